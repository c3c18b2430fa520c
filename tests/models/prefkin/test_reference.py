"""Posteriors of a few people beside importance sampling under the same prior, which shares no code."""

import numpy as np
import pytest
from scipy.special import expit

from prefkin import PrefKin
from prefkin.data.rows import Rows, UserRows
from prefkin.inference.propagation import Sites, refine
from prefkin.inference.quadratics import Signed
from prefkin.models.prefkin.degrees import fit_degrees
from tests.oracles.sampled import by_importance, small_problem


def signed(people):
    starts = np.concatenate([[0], np.cumsum([len(weights) for _, weights in people])])
    X, weights = (np.concatenate(part) for part in zip(*people, strict=True))
    return Signed.of_users(UserRows(Rows(X, np.ones(len(X)), weights), starts, np.arange(len(people))))


@pytest.mark.parametrize("kind", ["plain", "repeats", "certain"])
def test_posteriors_are_the_sampled_ones_but_for_what_propagation_leaves_out(kind):
    rng = np.random.default_rng([14, len(kind)])
    for _ in range(8):
        people = small_problem(rng, kind)
        fit = fit_degrees(signed(people))
        sampled = by_importance(people, fit.prior.within, fit.prior.top, rng)
        spread = np.sqrt(np.einsum("uii->ui", sampled.covariance))
        found = np.array([np.diag(fit.person(u).covariance()) for u in range(len(people))])
        assert (np.abs(fit.mean - sampled.mean) <= 0.2 * spread + 4.0 * sampled.error).all()
        assert (found / spread**2).min() >= 0.5
        assert (found / spread**2).max() <= 1.5
        assert fit.evidence <= 0.0


def test_weights_over_decades_lead_no_posterior_astray():
    rng, off, widths = np.random.default_rng(15), [], []
    for _ in range(12):
        people = small_problem(rng, "weights")
        fit = fit_degrees(signed(people))
        sampled = by_importance(people, fit.prior.within, fit.prior.top, rng)
        spread = np.sqrt(np.einsum("uii->ui", sampled.covariance))
        if sampled.effective > 500:  # else sampling knows too little
            off.append((np.abs(fit.mean - sampled.mean) / spread).max())
            widths.extend(np.diag(fit.person(u).covariance()) / spread[u] ** 2 for u in range(len(people)))
        assert fit.evidence <= 0.0
    assert len(off) >= 6
    assert np.median(off) < 0.05
    assert max(off) < 0.25
    assert np.concatenate(widths).min() > 0.5
    assert np.concatenate(widths).max() < 1.5


@pytest.mark.parametrize("power", [1e-9, 0.1, 0.5, 3.0, 1e3, 1e9])
@pytest.mark.parametrize("variance", [1e-6, 0.01, 1.0, 30.0, 1e3])
def test_answers_given_many_times_are_matched_as_a_whole(power, variance):
    """Mass, mean and variance of σ(m)ᵖ N(m) beside a fine grid."""
    for mean in (-200.0, -20.0, -3.0, 0.0, 2.0, 15.0, 300.0):
        one = Sites.start(np.ones(1))._replace(precision=np.zeros(1), pull=np.zeros(1))
        site = refine(one, np.full(1, power), np.full(1, mean), np.full(1, variance))
        grid, log = fine_grid(mean, variance, power)
        share = np.exp(log - log.max())
        mass = np.trapezoid(share, grid)
        middle = np.trapezoid(share * grid, grid) / mass
        spread = np.trapezoid(share * (grid - middle) ** 2, grid) / mass
        width = 1.0 / (1.0 / variance + site.precision[0])
        assert width == pytest.approx(spread, rel=0.005)
        assert width * (mean / variance + site.pull[0]) == pytest.approx(middle, abs=0.005 * np.sqrt(spread))


def fine_grid(mean, variance, power):
    """Points from where the density is next to nothing to where it is so again, close together at its top."""

    def log(m):
        return -power * np.logaddexp(0.0, -m) - 0.5 * (m - mean) ** 2 / variance

    low, high = mean, mean + power * variance
    for _ in range(300):
        m = 0.5 * (low + high)
        low, high = (m, high) if power * expit(-m) > (m - mean) / variance else (low, m)
    parts = []
    for side in (-1.0, 1.0):
        far = 1.0 / np.sqrt(1.0 / variance + power * expit(low) * expit(-low))
        while log(low) - log(low + side * far) < 45.0:
            far *= 1.1
        parts.append(low + side * far * np.linspace(0.0, 1.0, 20_001) ** 3)
    grid = np.unique(np.concatenate(parts))
    return grid, log(grid)


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
