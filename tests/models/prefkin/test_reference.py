"""Posteriors of a few people beside importance sampling under the same prior, which shares no code."""

import numpy as np
import pytest

from prefkin import PrefKin
from prefkin.inference.quadratics import Signed
from prefkin.models.prefkin.degrees import fit_degrees
from tests.oracles.sampled import by_importance, small_problem


@pytest.mark.parametrize("kind", ["plain", "repeats", "certain"])
def test_posteriors_are_the_sampled_ones_but_for_what_propagation_leaves_out(kind):
    rng = np.random.default_rng([14, len(kind)])
    for _ in range(8):
        people = small_problem(rng, kind)
        starts = np.concatenate([[0], np.cumsum([len(weights) for _, weights in people])])
        fit = fit_degrees(Signed(*(np.concatenate(part) for part in zip(*people, strict=True)), starts))
        sampled = by_importance(people, fit.prior.within, fit.prior.top, rng)
        spread = np.sqrt(np.einsum("uii->ui", sampled.covariance))
        found = np.array([np.diag(fit.person(u).covariance()) for u in range(len(people))])
        assert (np.abs(fit.mean - sampled.mean) <= 0.2 * spread + 4.0 * sampled.error).all()
        assert (found / spread**2).min() >= 0.5
        assert (found / spread**2).max() <= 1.5
        assert fit.evidence <= 0.0


def test_weights_over_decades_lead_no_posterior_astray():
    rng, off = np.random.default_rng(15), []
    for _ in range(12):
        people = small_problem(rng, "weights")
        starts = np.concatenate([[0], np.cumsum([len(weights) for _, weights in people])])
        fit = fit_degrees(Signed(*(np.concatenate(part) for part in zip(*people, strict=True)), starts))
        sampled = by_importance(people, fit.prior.within, fit.prior.top, rng)
        spread = np.sqrt(np.einsum("uii->ui", sampled.covariance))
        if sampled.effective > 500:  # else sampling knows too little
            off.append((np.abs(fit.mean - sampled.mean) / spread).max())
        assert fit.evidence <= 0.0
    assert len(off) >= 6
    assert np.median(off) < 0.2
    assert max(off) < 1.0


@pytest.mark.parametrize("copies", [30, 1000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_answers_given_many_times_are_not_contradicted(copies):
    rng = np.random.default_rng(3)
    centres, users = 2.0 * rng.standard_normal((3, 4)), np.repeat(np.arange(12), 20)
    Z = rng.standard_normal((240, 4))
    y = (rng.random(240) < 1.0 / (1.0 + np.exp(-np.einsum("ij,ij->i", Z, centres[users % 3])))).astype(int)
    model = PrefKin().fit(Z, y, users=users, sample_weight=np.full(240, float(copies)))

    def explained(theta):
        return -np.bincount(users, np.logaddexp(0.0, (1 - 2 * y) * np.einsum("ij,ij->i", Z, theta[users]))) / 20

    assert (explained(model.theta_) > explained(model.own_theta_) - 0.02).all()
    assert max(model.evidence_.values()) <= 0.0
