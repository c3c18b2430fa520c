"""The E-step of blocks of users: additive, independent of order, and as good as a fit of everybody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from prefkin import Comparisons
from prefkin.data.rows import only
from prefkin.errors import PriorWarning
from prefkin.inference.likelihood import Logistic
from prefkin.models.prefkin.covariance import STRUCTURES
from prefkin.models.prefkin.e_step import Shared, e_step, e_step_in_blocks
from prefkin.models.prefkin.estimator import PrefKin
from prefkin.models.prefkin.everybody import everybody, passes, sample_of, singletons_of
from prefkin.models.prefkin.fitting import design_of
from prefkin.models.prefkin.posterior import Posterior
from prefkin.models.prefkin.selection import Candidate
from prefkin.models.prefkin.update import evidence_of_new_users


def crowd(seed=0, users=90, groups=5, dim=4, rows=30, size=3.0):
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(groups, dim))
    theta = (size * means / np.linalg.norm(means, axis=1, keepdims=True))[np.arange(users) % groups]
    owner, Z = np.repeat(np.arange(users), rows), rng.normal(size=(users * rows, dim))
    y = rng.random(len(Z)) < expit(np.einsum("ij,ij->i", Z, theta[owner]))
    return Comparisons.from_arrays(Z, y, owner).by_user(), theta


def fitted(rows, kind="groups"):
    name = "isotropic" if kind == "groups" else kind
    design = design_of(rows, Logistic())
    return Posterior.of(design, Candidate(STRUCTURES[name], clustered=kind == "groups").fit(design))


def numbers(statistics):
    messages = statistics.messages
    return [messages.Lam, messages.eta, messages.level, statistics.sizes, statistics.scores]


@pytest.fixture(scope="module", params=["groups", "isotropic", "full"])
def sample(request):
    return fitted(only(crowd()[0], np.arange(45)), request.param)


def test_statistics_add_up_and_do_not_depend_on_the_order_of_users(sample):
    design = design_of(crowd()[0], Logistic())
    shared = Shared(sample.population, sample.messages, sample.sizes)
    state, whole = e_step(design, None, shared, scores=True)
    for _ in range(2):
        parts = [np.arange(7), np.arange(7, 60), np.arange(60, 90)]
        found = [e_step(design.users(who), state.some(design, who), shared, scores=True) for who in parts]
        added = found[0][1] + found[1][1] + found[2][1]
        order = np.random.default_rng(0).permutation(90)
        moved, permuted = e_step(design.users(order), state.some(design, order), shared, scores=True)
        state, whole = e_step(design, state, shared, scores=True)
        for other in (added, permuted):
            for one, values in zip(numbers(whole), numbers(other), strict=True):
                np.testing.assert_allclose(values, one, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(moved.share, state.share[order], atol=1e-10)
        back = whole - found[0][1]
        np.testing.assert_allclose(back.messages.eta, (found[1][1] + found[2][1]).messages.eta, atol=1e-9)
        shared = shared.followed(whole)


def test_blocks_do_not_matter(sample, monkeypatch):
    design = design_of(crowd()[0], Logistic())
    shared = Shared(sample.population, sample.messages, sample.sizes)
    state, whole = e_step_in_blocks(design, None, shared)
    monkeypatch.setattr("prefkin.models.prefkin.e_step.PASSES", SMALL)
    few, again = e_step_in_blocks(design, None, shared)
    np.testing.assert_allclose(few.share, state.share, atol=1e-10)
    for one, values in zip(numbers(whole), numbers(again), strict=True):
        np.testing.assert_allclose(values, one, rtol=1e-9, atol=1e-10)


def _small():
    from prefkin.models.prefkin.settings import PASSES

    return replace(PASSES, numbers=1)


SMALL = _small()


def test_users_of_no_sample_are_estimated_as_well_as_those_in_it():
    rows, theta = crowd(4, users=240, dim=6)
    few = fitted(only(rows, np.arange(0, 240, 2)))
    whole, placed = fitted(rows), everybody(design_of(rows, Logistic()), few)
    error, reference = (float(np.mean((each.theta - theta) ** 2)) for each in (placed, whole))
    assert error < 1.05 * reference


def test_passes_from_everybody_stay_where_they_are():
    rows, _ = crowd(2)
    whole = fitted(rows, "isotropic")
    again = everybody(design_of(rows, Logistic()), whole)
    assert np.abs(again.theta - whole.theta).max() < 0.1
    assert again.population.within == pytest.approx(whole.population.within, rel=0.1)


class Recorder:
    def singletons(self, shared):
        who = np.empty(0, dtype=np.intp)
        return singletons_of(self.design, self.state, who, shared)

    def __init__(self, design):
        self.design, self.state, self.names = design, None, []

    def e_step(self, name, shared, united=None, *, scores=False):
        assert united is None
        self.names.append(name)
        self.state, found = e_step_in_blocks(self.design, self.state, shared, scores=scores)
        return found


def test_everybody_is_visited_three_times():
    parts = Recorder(design_of(crowd()[0], Logistic()))
    shared = passes(parts, sample_of(fitted(only(crowd()[0], np.arange(45)))))
    assert parts.names == ["first", "second", "third"]
    np.testing.assert_allclose(shared.sizes, parts.state.share.sum(axis=0))


# -- updates -----------------------------------------------------------------------------------------------------------


def loss(model, rows):
    p = model.predict_proba(rows.rows.Z, users=rows.labels[rows.owner])[:, 1]
    return -float(np.mean(np.log(np.where(rows.rows.y > 0.5, p, 1.0 - p))))


def test_an_update_is_as_good_as_a_refit_and_does_not_warn():
    rows, _ = crowd(3, users=80, rows=40)
    Z, y, owner = rows.rows.Z, rows.rows.y, rows.labels[rows.owner]
    turn = np.arange(len(y)) % 4
    first = (turn < 2) & (owner < 70)
    model = PrefKin().fit(Z[first], y[first], users=owner[first])
    more = (turn < 3) & ~first
    model.update(Z[more], y[more], users=owner[more])
    refit = PrefKin().fit(Z[turn < 3], y[turn < 3], users=owner[turn < 3])
    test = turn == 3
    held = Comparisons.from_arrays(Z[test], y[test], owner[test]).by_user()
    assert loss(model, held) < 1.02 * loss(refit, held)
    assert model.refit_gain_ < 0


@pytest.mark.parametrize("strength", [np.inf, 8.0])
def test_answers_at_random_to_a_model_of_sure_people_ask_for_a_refit(strength):
    rng = np.random.default_rng(0)
    users, Z = np.arange(450) % 30, rng.normal(size=(450, 5))
    margin = Z @ rng.normal(size=5)
    y = margin > 0 if np.isinf(strength) else rng.random(450) < expit(strength * margin)
    with pytest.warns() if np.isinf(strength) else _nothing():
        model = PrefKin().fit(Z, y, users=users)
    with pytest.warns(PriorWarning, match="learn it again"):
        model.update(Z, rng.integers(0, 2, 450), users=users + 1000)
    posterior = model._learnt.posterior
    shared = Shared(posterior.population, posterior.messages, posterior.sizes)
    evidence = evidence_of_new_users(posterior.design, shared)
    assert np.isfinite(evidence).all()
    assert (evidence <= 0.0).all()


def _nothing():
    from contextlib import nullcontext

    return nullcontext()
