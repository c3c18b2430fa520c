"""Expectation propagation against a textbook's, one site at a time, and against the exact posterior."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import digamma, expit

from prefkin.inference.ep import Convergence, Sites, cavities, run
from prefkin.inference.likelihood import Laplace, Logistic
from prefkin.inference.model import Design, Population
from prefkin.models.prefkin.partition.search import log_evidence
from prefkin.models.prefkin.posterior import Posterior
from tests.oracles.hierarchical import joint_gaussian, stacked, textbook_ep, users_and_means
from tests.oracles.posterior import on_a_grid
from tests.oracles.sampled import by_importance, small_problem

EXACT = Convergence(max_iter=400, tol=1e-10)
CONTINUOUS = {"within": 0.8, "between": 1.5, "top": 1.0}


def answers(rng, counts=(6, 3, 5), d=2, scale=1.0, weight=None):
    n, starts = sum(counts), np.concatenate([[0], np.cumsum(counts)])
    X = scale * rng.normal(size=(n, d))
    theta = np.array([1.0, -0.5])[:d] + rng.normal(size=(len(counts), d))
    y = (rng.random(n) < expit(np.einsum("ij,ij->i", X, np.repeat(theta, counts, axis=0)))).astype(float)
    return Design.of(Logistic(), X, y, np.ones(n) if weight is None else weight, starts)


def fitted(design, population, share=None, rules=EXACT):
    share = np.ones((design.n_users, 1)) if share is None else share
    return run(design, Sites.start(design, 2.0), share, population, rules=rules)


def continuous(d, **changes):
    return Population(**(CONTINUOUS | changes), m0=np.zeros(d))


@pytest.mark.parametrize("kind", ["plain", "offset", "weights below 1", "strong"])
def test_the_fixed_point_is_the_textbooks(rng, kind):
    design = answers(rng, scale=4.0 if kind == "strong" else 1.0)
    n, U = len(design.y), design.n_users
    if kind == "offset":
        design = replace(design, offset=rng.normal(size=n))
    if kind == "weights below 1":
        design = replace(design, weight=rng.uniform(0.2, 1.0, n))
    fit = fitted(design, continuous(2))
    assert fit.converged
    C = users_and_means([0] * U, 0.8, 1.5, 1e-300, 2)[: 2 * U, : 2 * U]
    literal = textbook_ep(
        stacked(design.X, design.owner, U), design.y, np.minimum(design.weight, 1), np.zeros(2 * U), C, design.offset
    )
    np.testing.assert_allclose(fit.moments.mean, literal.mean, atol=3e-5)
    np.testing.assert_allclose(fit.moments.variance, literal.variance, rtol=3e-5)
    assert log_evidence(design, fit) == pytest.approx(literal.log_evidence, abs=3e-5)


def test_the_fixed_point_with_known_clusters_is_the_textbooks(rng):
    design = answers(rng, (5, 4, 3, 4))
    share = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    population = Population(0.5, 0.9, 0.4, np.zeros(2), clustered=True)
    fit = fitted(design, population, share)
    C = users_and_means([0, 0, 0, -1], 0.5, 0.9, 0.4, 2)[:8, :8]
    literal = textbook_ep(stacked(design.X, design.owner, 4), design.y, np.ones(len(design.y)), np.zeros(8), C)
    np.testing.assert_allclose(fit.moments.mean, literal.mean, atol=3e-5)
    np.testing.assert_allclose(fit.moments.variance, literal.variance, rtol=3e-5)


def test_one_user_on_a_grid(rng):
    for _ in range(3):
        design = answers(rng, (8,), weight=rng.choice([0.5, 1.0, 2.0], 8))
        fit = fitted(design, continuous(2, within=0.7, between=1.3))
        log_p, mean, C = on_a_grid(design.X, design.y, design.weight, 2.0)
        posterior = Posterior.of(design, fit)
        np.testing.assert_allclose(posterior.theta[0], mean, atol=0.03)
        np.testing.assert_allclose(posterior.covariances(np.array([0]))[0], C, atol=0.04)
        assert log_evidence(design, fit) == pytest.approx(log_p, abs=0.02)


@pytest.mark.parametrize("kind", ["plain", "repeats", pytest.param("certain", marks=pytest.mark.long)])
def test_a_few_users_by_importance_sampling(kind):
    rng = np.random.default_rng(7)
    for _ in range(4):
        people = small_problem(rng, kind)
        X = np.concatenate([rows for rows, _ in people])
        starts = np.concatenate([[0], np.cumsum([len(rows) for rows, _ in people])])
        design = Design.of(Logistic(), X, np.ones(len(X)), np.ones(len(X)), starts)
        fit = fitted(design, continuous(X.shape[1]))
        exact = by_importance(people, 0.8, 1.5, rng)
        posterior = Posterior.of(design, fit)
        C = posterior.covariances(np.arange(len(people)))
        sd = np.sqrt(np.diagonal(exact.covariance, axis1=1, axis2=2))
        assert (np.abs(posterior.theta - exact.mean) < 0.06 * sd + 5 * exact.error).all()
        variance = np.diagonal(C, axis1=1, axis2=2)
        assert (np.abs(variance - sd**2) < 0.1 * sd**2 + 5 * exact.doubt).all()
        assert log_evidence(design, fit) == pytest.approx(exact.log_evidence, abs=0.15 if kind == "repeats" else 0.05)


def test_laplace_is_the_joint_mode(rng):
    design = replace(answers(rng), likelihood=Laplace(Logistic()))
    U = design.n_users
    fit = fitted(design, continuous(2))
    assert fit.converged
    X, C = stacked(design.X, design.owner, U), users_and_means([0] * U, 0.8, 1.5, 1e-300, 2)[: 2 * U, : 2 * U]
    side, prior, t = 2 * design.y - 1, np.linalg.inv(C), np.zeros(2 * U)
    for _ in range(100):
        miss = expit(-side * (X @ t))
        H = prior + (X.T * (miss * (1 - miss))) @ X
        t = t + np.linalg.solve(H, X.T @ (side * miss) - prior @ t)
    np.testing.assert_allclose(fit.moments.t.ravel(), t, atol=1e-6)
    np.testing.assert_allclose(fit.moments.variance, np.einsum("ij,ji->i", X, np.linalg.solve(H, X.T)), rtol=1e-6)


def test_weight_2_is_two_rows_and_weight_0_is_none(rng):
    design = answers(rng)
    n = len(design.y)
    weight = rng.choice([0.0, 1.0, 2.0, 3.0], n)
    rows = np.repeat(np.arange(n), weight.astype(int))
    counts = np.bincount(design.owner[rows], minlength=3)
    starts = np.concatenate([[0], np.cumsum(counts)])
    repeated = Design.of(Logistic(), design.X[rows], design.y[rows], np.ones(len(rows)), starts)
    weighted = Design.of(Logistic(), design.X, design.y, weight, design.starts)
    one, two = (fitted(each, continuous(2)) for each in (weighted, repeated))
    np.testing.assert_allclose(one.moments.t, two.moments.t, atol=1e-6)
    assert log_evidence(weighted, one) == pytest.approx(log_evidence(repeated, two), abs=1e-6)


def test_one_question_answered_both_ways_many_times_does_not_make_sites_leap():
    """σ(m) has a beta distribution; a start where answers are nearly certain used to leap past it."""
    weight = np.array([1000.0, 300.0])
    design = Design.of(Logistic(), np.ones((2, 1)), np.array([1.0, 0.0]), weight, np.array([0, 2]))
    population = continuous(1, within=5e3, between=5e3)
    for variance in (1e-4, 1.0, 1e6):
        fit = run(design, Sites.start(design, variance), np.ones((1, 1)), population, rules=EXACT)
        assert fit.converged
        assert fit.moments.mean[0] == pytest.approx(
            digamma(1000) - digamma(300), abs=2e-3
        )  # or the mode, log 1000 / 300


def test_cavities_leave_one_copy_out(rng):
    """With its cavity and its tilted law each site reproduces the margin's posterior."""
    design = answers(rng)
    fit = fitted(design, continuous(2))
    mean, variance = cavities(design, fit.sites, fit.moments.mean, fit.moments.variance)
    _, first, second = design.likelihood.tilted(design.y, design.weight, mean, variance)
    np.testing.assert_allclose(mean + variance * first, fit.moments.mean, atol=1e-6)
    np.testing.assert_allclose(variance + variance**2 * second, fit.moments.variance, rtol=1e-6)


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_evidence_of_answers_is_at_most_certainty(rng, scale):
    for _ in range(5):
        design = answers(rng, scale=scale)
        assert log_evidence(design, fitted(design, continuous(2))) < 0.0


class StudentT:
    def spread(self, deviation, d):
        return (3.0 + deviation) / (3.0 + d)


def test_factors_of_a_scale_mixture_are_those_of_their_deviations(rng):
    """E|t_u − m|² / τ² from the joint Gaussian of users and their mean, by dense matrices."""
    design = answers(rng, (30, 5, 12))
    fit = fitted(design, replace(continuous(2), law=StudentT()))
    C = np.kron(users_and_means([0] * 3, 0.0, 1.5, 1e-300, 1)[:4, :4], np.eye(2))
    C[:6, :6] += np.kron(np.diag(0.8 * fit.spread), np.eye(2))
    C[6:, 6:] += 1e-9 * np.eye(2)
    factors = []
    for u in range(3):
        own = slice(design.starts[u], design.starts[u + 1])
        X, tau, nu = design.X[own], fit.sites.tau[own], fit.sites.nu[own]
        factors.append((u, (X.T * tau) @ X, X.T @ nu, 0.0))
    joint = joint_gaussian(factors, np.zeros(8), C)
    for u in range(3):
        off = np.zeros((2, 8))
        off[:, 2 * u : 2 * u + 2], off[:, 6:] = np.eye(2), -np.eye(2)
        square = np.sum((off @ joint.mean) ** 2) + np.trace(off @ joint.covariance @ off.T)
        assert fit.spread[u] == pytest.approx(StudentT().spread(square / 0.8, 2), rel=1e-5)
