"""Steps in which everybody is placed: beside draws from the prior, and without work that changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Signed, expand
from prefkin.models.prefkin import settling
from prefkin.models.prefkin.degrees import fit_degrees
from prefkin.models.prefkin.groups import find_groups
from prefkin.models.prefkin.mixture import Others, nobody, solved
from prefkin.models.prefkin.settings import PLACING
from prefkin.models.prefkin.settling import STEPS, State, Told

DIM, GROUPS, ROWS = 5, 3, 30


def people(rng, users, size=0.4):
    centres = 2.0 * rng.standard_normal((GROUPS, DIM))
    X = size * rng.standard_normal((users * ROWS, DIM))
    chance = 1.0 / (1.0 + np.exp(-np.einsum("ij,ij->i", X, centres[np.repeat(np.arange(users) % GROUPS, ROWS)])))
    X *= np.where(rng.random(len(X)) < chance, 1.0, -1.0)[:, None]
    return Signed(X, np.ones(len(X)), np.arange(users + 1) * ROWS)


@pytest.fixture
def crowd(rng):
    """What some people taught, and others."""
    return some_taught(people(rng, 210))


def some_taught(data):
    taught = data.between(slice(0, 150))
    found = find_groups(taught, fit_degrees(taught))
    found = replace(found, prior=found.prior._replace(within=0.002))
    return nobody(found.centres, found.prior, Others(found.sizes, False), 0.0), data.between(slice(150, 210))


def told(around):
    K = len(around.sizes)
    return Told(around, np.ones(K, dtype=bool), np.empty(0, dtype=np.intp), np.empty((0, K)), np.full(K, np.inf))


def test_people_are_placed_as_draws_from_the_prior_say(crowd, rng):
    around, data = crowd
    state, _ = STEPS["place"](data, None, told(around))
    prior, centres = around.prior, around.centres
    spreads = [*(prior.within * np.eye(DIM) + S for S in centres.doubt), prior.alone * np.eye(DIM)]
    log = np.empty((len(data), len(spreads)))
    for k, (mean, C) in enumerate(zip([*centres.mean, prior.m0], spreads, strict=True)):
        draws = rng.multivariate_normal(mean, C, size=20_000)
        for u in range(len(data)):
            margins = data.X[data.own(u)] @ draws.T
            chance = 1.0 / (1.0 + np.exp(-margins)).prod(axis=0)  # of all answers, by each draw
            log[u, k] = np.log(chance.mean())
    log += np.append(np.log(around.sizes), prior.lonely)
    chances = np.exp(log - logsumexp(log, axis=1, keepdims=True))
    assert ((chances.max(axis=1) > 0.5) & (chances.max(axis=1) < 0.99)).sum() > 10  # who is not clear
    off = np.abs(state.share - chances[:, :-1])
    assert off.mean() < 0.01  # two rounds from where nobody is known: 0.015 and more
    assert off.max() < 0.25


@pytest.mark.parametrize("share_moved", [0.0, 0.4, 1.0])
def test_sites_follow_where_margins_moved_and_terms_follow_sites(crowd, rng, share_moved):
    around, data = crowd
    share = np.eye(len(around.sizes))[rng.integers(len(around.sizes), size=len(data))]
    believed = solved(
        users := expand(data, sites := Sites.start(data.weights)), sites, share, around.prior, centres=around.centres
    )
    margin = np.einsum("ij,ij->i", data.X, np.repeat(believed.mean, ROWS, axis=0))
    far = rng.random(len(data)) < share_moved if 0.0 < share_moved < 1.0 else np.full(len(data), bool(share_moved))
    at = margin + np.where(np.repeat(far, ROWS), 2.0, 0.5) * PLACING.still
    believed = replace(believed, sites=sites._replace(at=at))
    literal = believed.refined(data)
    found, terms = settling._matched(believed, data, np.flatnonzero(believed.moved(data) > PLACING.still))
    for one, old, new in zip(found, believed.sites, literal, strict=True):
        np.testing.assert_allclose(one, np.where(np.repeat(far, ROWS), new, old), rtol=1e-12)
    direct = expand(data, found).at(around.prior.within)
    for name in ("A", "a", "level"):
        np.testing.assert_allclose(getattr(terms, name), getattr(direct, name), atol=1e-10)
    assert users.dim == DIM


def test_whoever_does_not_move_is_not_asked_again(crowd):
    around, data = crowd
    first, sums = STEPS["place"](data, None, told(around))
    around = settling._told_by(around.prior, sums, False, 0.0)
    second, _ = STEPS["move"](data, first, told(around))
    moved = np.abs(second.share - first.share).max(axis=1)
    assert first.asked.sum() > second.asked.sum() > 0
    assert (moved[second.asked] > PLACING.moved).all()
    assert (second.share.max(axis=1)[second.asked] < 0.999).all()
    still = State.settled(second.share, second.sites)
    third, change = STEPS["move"](data, still, told(around))
    assert change.moved == 0.0
    assert np.array_equal(third.share, second.share)


def test_whoever_is_not_looked_at_again_would_have_stayed_as_they_are(rng):
    around, data = some_taught(people(rng, 210, size=1.0))
    state, sums = STEPS["place"](data, None, told(around))
    way = np.quantile(state.slack[state.slack > 0.0], 0.6) * normalized(rng.normal(size=around.centres.mean.shape))
    around = replace(around, centres=replace(around.centres, mean=around.centres.mean + way))
    every = told(around)
    few = replace(every, ways=np.linalg.norm(way, axis=1))
    skipped = few.ways[state.share.argmax(axis=1)] <= state.slack
    assert 0 < skipped.sum() < len(data)
    (one, change), (other, same) = STEPS["match"](data, state, every), STEPS["match"](data, state, few)
    for name in ("precision", "pull", "level"):
        np.testing.assert_allclose(getattr(one.sites, name), getattr(other.sites, name), rtol=1e-12)
    np.testing.assert_allclose(change.terms.A, same.terms.A, atol=1e-10)
    after = expand(data, one.sites).at(around.prior.within).summed(one.share)
    for name in ("A", "a", "level"):
        np.testing.assert_allclose(getattr((sums.terms + change.terms), name), getattr(after, name), atol=1e-9)


def normalized(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("within", [0.002, 3.0])
def test_those_whose_margins_vary_begin_where_nobody_is_known(crowd, within):
    around, data = crowd
    around = replace(around, prior=around.prior._replace(within=within))
    sites, found = settling._begun(data, around)
    start = around.prior.start(data)
    if within > 1.0:
        assert not found.any()
        assert np.array_equal(sites.pull, start.pull)
        return
    assert found.any()
    rows = np.repeat(found, ROWS)
    assert np.array_equal(sites.pull[~rows], start.pull[~rows])
    margins = data.X @ around.centres.mean.T
    assert np.abs(margins[rows] - sites.at[rows, None]).min(axis=1).max() < 1e-12  # one of the centres
    likely = -np.logaddexp(0.0, -margins).reshape(len(data), ROWS, -1).sum(axis=1) + np.log(around.sizes)
    chosen = np.abs(margins - sites.at[:, None]).reshape(len(data), ROWS, -1).sum(axis=1).argmin(axis=1)
    assert (likely.argmax(axis=1) == chosen)[found].mean() > 0.9
