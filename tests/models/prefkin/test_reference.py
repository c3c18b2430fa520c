"""Posteriors of a few people beside importance sampling under the same prior, which shares no code."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from prefkin import PrefKin
from prefkin.data.rows import Rows, UserRows
from prefkin.inference.propagation import Sites, refine
from prefkin.inference.quadratics import Signed
from prefkin.models.prefkin.by_draws import _log_likelihoods, matched_by_draws
from prefkin.models.prefkin.degrees import fit_degrees
from prefkin.models.prefkin.mixture import Prior
from tests.oracles.sampled import by_importance, small_problem


def signed(people):
    starts = np.concatenate([[0], np.cumsum([len(weights) for _, weights in people])])
    X, weights = (np.concatenate(part) for part in zip(*people, strict=True))
    return Signed.of_users(UserRows(Rows(X, np.ones(len(X)), weights), starts, np.arange(len(people))))


@pytest.mark.parametrize(
    "kind", ["plain", "weights", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("repeats", "certain"))]
)
def test_posteriors_of_few_answers_are_the_sampled_ones(kind):
    """Means and variances within three errors of the sampling; propagation alone has 45 to 92 % of variances."""
    rng, within = np.random.default_rng([16, len(kind)]), []
    for _ in range(8):
        people = small_problem(rng, kind)
        data = signed(people)
        propagated = fit_degrees(data)
        found = matched_by_draws(propagated, data)
        sampled = by_importance(people, found.prior.within, found.prior.top, rng)
        assert propagated.evidence <= 0.0
        if sampled.effective > 1000:
            alone, variance = (
                np.array([np.diag(fit.person(u).covariance()) for u in range(len(people))])
                for fit in (propagated, found)
            )
            wanted = np.einsum("uii->ui", sampled.covariance)
            assert (np.abs(propagated.mean - sampled.mean) <= 0.2 * np.sqrt(wanted) + 4.0 * sampled.error).all()
            assert 0.5 <= (alone / wanted).min() <= (alone / wanted).max() <= 1.5
            within.extend((np.abs(found.mean - sampled.mean) < 3.0 * sampled.error).ravel())
            within.extend((np.abs(variance - wanted) < 3.0 * sampled.doubt).ravel())
    assert len(within) > 20
    assert np.mean(within) > 0.95


@pytest.mark.parametrize("power", [np.ones(128), np.r_[np.ones(60), 0.3, 5.0, 1e6]])
def test_factors_multiplied_are_logarithms_added(rng, power):
    margins = rng.normal(scale=30.0, size=(50, len(power)))
    margins[0], margins[1], margins[2] = 0.0, 800.0, -800.0
    np.testing.assert_allclose(_log_likelihoods(margins, power), -np.logaddexp(0.0, -margins) @ power, rtol=1e-13)


def test_posteriors_by_draws_do_not_depend_on_how_rows_are_written():
    """Axes turned, rows in another order, an answer twice for one that counts twice, an answer that does not count."""
    people = small_problem(np.random.default_rng(4), "plain")[:1]
    (X, weights), rng = people[0], np.random.default_rng(5)
    assert len(X) > 3
    turn, order = np.linalg.qr(rng.standard_normal((X.shape[1], X.shape[1])))[0], rng.permutation(len(X))
    weights = np.where(np.arange(len(X)) == 1, 2.0, weights)
    written = [
        (X, weights),
        (X[order] @ turn, weights[order]),
        (X[[1, *range(len(X))]], np.ones(len(X) + 1)),
        (np.vstack([X, X[:1] + 1.0]), np.append(weights, 0.0)),
    ]
    start = Prior(np.zeros(X.shape[1]), 1.0, 4.0, 4.0)
    found = [matched_by_draws(fit_degrees(signed([each]), start=start), signed([each])) for each in written]
    means = [each.mean[0] for each in found]
    means[1] = turn @ means[1]
    assert np.allclose(means, means[0], rtol=1e-5, atol=1e-6)


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


@pytest.mark.parametrize(
    "copies", [pytest.param(30, marks=pytest.mark.long), 1000, pytest.param(1_000_000, marks=pytest.mark.long)]
)
def test_answers_given_many_times_are_not_contradicted(copies):
    rng = np.random.default_rng(3)
    centres, users = 2.0 * rng.standard_normal((3, 4)), np.repeat(np.arange(12), 20)
    Z = rng.standard_normal((240, 4))
    y = (rng.random(240) < 1.0 / (1.0 + np.exp(-np.einsum("ij,ij->i", Z, centres[users % 3])))).astype(int)
    model = PrefKin().fit(Z, y, users=users, sample_weight=np.full(240, float(copies)))

    def explained(theta):
        return np.bincount(users, (2 * y - 1) * np.einsum("ij,ij->i", Z, theta[users]) > 0.0) / 20

    assert (explained(model.theta_) >= explained(model.own_theta_) - 0.1).all()
    mixture, data = model._fitted.mixture, model._fitted.metric.signed(model._users)
    sure = np.flatnonzero(mixture.weights.max(axis=1) > 0.99)  # of where they belong, and so of one prior
    assert len(sure) > 6
    for user, centre, variance in zip(*mixture.around(sure), strict=True):
        rows = data.X[data.own(user)]

        def misfit(theta, rows=rows, centre=centre, variance=variance):
            return copies * np.logaddexp(0.0, -rows @ theta).sum() + 0.5 * ((theta - centre) ** 2).sum() / variance

        best = minimize(misfit, mixture.mean[user], method="Powell", options={"maxiter": 10_000}).fun
        assert misfit(mixture.mean[user]) < best + 0.5 * 4 + 3.0  # as far as a draw from the posterior falls behind
    assert max(model.evidence_.values()) <= 0.0
