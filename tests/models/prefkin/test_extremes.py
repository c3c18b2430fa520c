"""Tables at the edge: weights over many powers of ten, unanimous or nearly certain answers, answers at random."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from prefkin import PrefKin
from prefkin.inference.ep import Convergence, Sites, run
from prefkin.inference.likelihood import Laplace, Logistic
from prefkin.inference.model import Design, Population
from prefkin.models.prefkin.covariance import STRUCTURES
from prefkin.models.prefkin.partition.search import log_evidence
from prefkin.models.prefkin.selection import Candidate, averaged_scales
from tests.oracles.newton import ridge_logistic


def fitted(Z, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PrefKin(n_jobs=1).fit(Z, np.asarray(y).astype(int), **options)


def radii_of(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.radius_


def heavy(powers, number, units=0):
    """Users in three groups, whose answers count by so many powers of ten, in units as many apart."""
    rng = np.random.default_rng([0, powers, number])
    n_users, n, d = (int(rng.integers(*between)) for between in ((1, 14), (1, 25), (1, 7)))
    users, Z = np.repeat(np.arange(n_users), n), rng.standard_normal((n_users * n, d))
    centres = rng.choice([0.5, 2.0, 20.0]) * rng.standard_normal((3, d))
    y = rng.random(len(Z)) < expit(np.einsum("ij,ij->i", Z, centres[users % 3]))
    weights = 10.0 ** rng.uniform(min(0, 9 - powers), min(powers, 9), len(Z))
    return Z * 10.0 ** rng.uniform(-units, units, d), y.astype(float), users, weights


def design_of(Z, y, users, weights):
    return Design.of(Logistic(), Z, y, weights, np.searchsorted(users, np.arange(users.max() + 2)))


def mean_loss(Z, y, weights, margins):
    return weights @ np.logaddexp(0.0, -(2 * y - 1) * margins) / weights.sum()


@pytest.mark.long
@pytest.mark.parametrize(
    ("powers", "number", "units"), [(3, 0, 0), (6, 1, 0), (9, 3, 0), (9, 8, 0), (12, 11, 0), (12, 16, 0), (12, 4, 3)]
)
def test_weights_over_many_powers_of_ten(powers, number, units):
    """No failure, no log evidence above 0, and answers that decide are fitted as by a ridge regression for each."""
    Z, y, users, weights = heavy(powers, number, units)
    model = fitted(Z, y, users=users, sample_weight=weights)
    assert max(model.evidence_.values()) <= 0.0
    assert np.isfinite(radii_of(model)).all()
    margins, ridge = np.einsum("ij,ij->i", Z, model.theta_[users]), np.empty(len(y))
    for u in range(users.max() + 1):
        mine, unit = users == u, np.sqrt(np.mean(Z**2, axis=0))
        ridge[mine] = Z[mine] / unit @ ridge_logistic(Z[mine] / unit, y[mine], 1.0, weights[mine])
    assert mean_loss(Z, y, weights, margins) <= 1.05 * mean_loss(Z, y, weights, ridge) + 0.02


@pytest.mark.parametrize("heaviest", [2.0, 6.0, 9.0])
@pytest.mark.parametrize("likelihood", [Logistic(), Laplace(Logistic())])
def test_where_propagation_fails_users_are_at_the_joint_mode(rng, heaviest, likelihood):
    X, weights, y = rng.standard_normal((24, 2)), 10.0 ** rng.uniform(0.0, heaviest, 24), np.tile([1.0, 0.0, 1.0], 8)
    design = Design.of(likelihood, X, y, weights, np.array([0, 8, 16, 24]))
    astray = Sites(weights, 1e3 * weights, np.zeros(24))
    population = Population(0.7, 2.0, 2.0, np.zeros(2))
    fit = run(design, astray, np.ones((3, 1)), population, rules=Convergence(max_iter=60, diverged=-1.0, tol=1e-9))
    assert fit.laplace
    assert fit.converged

    def minus_log_posterior(at):
        t, m = at[:6].reshape(3, 2), at[6:]
        margins = np.einsum("ij,ij->i", X, t[design.owner])
        return weights @ np.logaddexp(0.0, -(2 * y - 1) * margins) + 0.5 * (((t - m) ** 2).sum() / 0.7 + m @ m / 2.0)

    reached = np.concatenate([fit.moments.t.ravel(), fit.groups.means[0]])
    best = min(
        (minimize(minus_log_posterior, start, method=method, options={"maxiter": 20_000})
         for start in (reached, np.zeros(8)) for method in ("Powell", "BFGS")), key=lambda each: each.fun,
    )  # fmt: skip
    assert minus_log_posterior(reached) == pytest.approx(best.fun, abs=1e-5, rel=1e-9)
    assert log_evidence(design, fit) <= -minus_log_posterior(reached)


def test_given_group_means_each_user_has_a_line_search_of_its_own(rng):
    X, weights, y = rng.standard_normal((24, 2)), 10.0 ** rng.uniform(0.0, 6.0, 24), np.tile([1.0, 0.0, 1.0], 8)
    design = Design.of(Laplace(Logistic()), X, y, weights, np.array([0, 8, 16, 24]))
    population, start = Population(0.7, 2.0, 2.0, np.zeros(2)), Sites.start(design, 1.0)
    rules = Convergence(max_iter=60, tol=1e-9)
    groups = run(design, start, np.ones((3, 1)), population, rules=rules).groups
    whole = run(design, start, np.ones((3, 1)), population, groups=groups, rules=rules)
    for u in range(3):
        rows = design.rows_of(np.array([u]))[0]
        alone = run(
            design.users(np.array([u])), start.take(rows), np.ones((1, 1)), population, groups=groups, rules=rules
        )
        np.testing.assert_allclose(alone.moments.t[0], whole.moments.t[u], atol=1e-8)


@pytest.mark.parametrize("n", [1, 2, 6, 40])
def test_unanimous_answers(rng, n):
    """Features of one sign, the first always preferred."""
    Z, users = np.abs(rng.standard_normal((n * 4, 6))), np.repeat(np.arange(4), n)
    model = fitted(Z, np.ones(len(Z)), users=users)
    assert (model.predict_proba(Z, users=users)[:, 1] > 0.5).all()
    assert max(model.evidence_.values()) <= 0.0
    assert np.isfinite(radii_of(model)).all()
    assert np.linalg.norm(model.theta_, axis=1).max() < 100.0


@pytest.mark.parametrize("n", [4, 10, 80])
def test_nearly_certain_answers(rng, n):
    theta = 8.0 * rng.standard_normal((2, 8)) / np.sqrt(8)
    users = np.repeat(np.arange(10), n)
    Z = rng.standard_normal((len(users), 8))
    model = fitted(Z, rng.random(len(Z)) < expit(np.einsum("ij,ij->i", Z, theta[users % 2])), users=users)
    assert max(model.evidence_.values()) <= 0.0
    cosine = np.einsum("ij,ij->i", model.theta_, theta[np.arange(10) % 2])
    cosine /= np.linalg.norm(model.theta_, axis=1) * np.linalg.norm(theta[np.arange(10) % 2], axis=1)
    assert np.median(cosine) > {4: 0.3, 10: 0.7, 80: 0.95}[n]


@pytest.mark.parametrize("seed", range(3))
def test_answers_at_random_do_not_make_the_fit_sure_of_itself(seed):
    rng = np.random.default_rng(seed)
    Z, users = rng.standard_normal((960, 6)), np.repeat(np.arange(24), 40)
    model = fitted(Z, rng.integers(0, 2, 960), users=users)
    assert model.radius_.min() > 0.15
    assert np.linalg.norm(model.theta_, axis=1).max() < model.radius_.min()
    margins = model.decision_function(Z, users=users)
    assert np.abs(margins).max() < 0.5
    new = rng.standard_normal((200, 6))
    folded = model.fold_in(new, (new[:, 0] > 0).astype(int))
    assert folded.theta[0] > 3 * np.abs(folded.theta[1:]).max()
    assert folded.theta[0] > 0.1


def test_scales_are_averaged_only_where_few_parameters_are_determined(rng):
    X, users = rng.standard_normal((2000, 3)), np.repeat(np.arange(20), 100)
    theta = np.array([1.0, -2.0, 0.5]) + rng.standard_normal((20, 3))
    y = (rng.random(2000) < expit(np.einsum("ij,ij->i", X, theta[users]))).astype(float)
    plenty = design_of(X, y, users, np.ones(2000))
    fit = Candidate(STRUCTURES["isotropic"]).fit(plenty)
    assert averaged_scales(plenty, fit) is fit
    one = plenty.users(np.array([0])).take(np.arange(100) < 1)
    fit = Candidate(STRUCTURES["isotropic"]).fit(one)  # evidence is nearly the same at all scales
    assert 1e-3 < fit.population.within * one.size < 10.0


def test_uncertainty_is_by_the_variances_of_the_evidence(rng):
    X, users = rng.standard_normal((200, 3)), np.repeat(np.arange(10), 20)
    model = fitted(X, rng.random(200) < expit(X[:, 0]), users=users)
    posterior = model._learnt.posterior
    assert posterior.with_variances(1.0, 1.0) is posterior
    wide = posterior.with_variances(4.0, 4.0)
    for u in range(10):
        more = wide.covariances(np.array([u]))[0] - posterior.covariances(np.array([u]))[0]
        assert np.linalg.eigvalsh(more).min() > 0.0
    calibrated = replace(model._learnt, calibration=model._learnt.calibration._replace(within=0.25, between=0.25))
    np.testing.assert_allclose(calibrated.uncertainty.covariances(np.arange(10)), wide.covariances(np.arange(10)))
    some = calibrated.uncertainty.some(np.array([3, 5]))
    np.testing.assert_allclose(some.covariances(np.arange(2)), wide.covariances(np.array([3, 5])))
