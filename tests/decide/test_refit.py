"""The estimate after each answer is the regularised maximum likelihood, whatever way it was reached."""

import numpy as np
import pytest
from scipy.special import expit

import prefkin.decide.refit
from prefkin import ActiveSession, Candidates
from prefkin.data.rows import Rows
from prefkin.decide.belief import Belief
from prefkin.decide.refit import RunningEstimate
from prefkin.inference.estimate import fit_preference
from tests.oracles.newton import ridge_logistic
from tests.oracles.odd_people import KINDS, determined, deviations, drawn


def mode(rows, mean, precision):
    """Of θ ~ N(mean, precision⁻¹) given the answers: whitened, a ridge of 1."""
    factor = np.linalg.cholesky(precision)
    white = np.linalg.solve(factor, rows.Z.T).T
    move = fit_preference(Rows(white, rows.y, rows.weights), ridge=1.0, offset=rows.Z @ mean)
    return mean + np.linalg.solve(factor.T, move)


def answers(rng, n, d, scale):
    Z = scale * rng.standard_normal((n, d)) / np.sqrt(d)
    return Z, (rng.random(n) < expit(Z @ rng.standard_normal(d) / scale)).astype(float)


def relative_gradient(rows, theta, ridge):
    """In float64 and from the start."""
    Z, y, weights = rows
    gradient = Z.T @ (weights * (expit(Z @ theta) - y)) + ridge * theta
    return np.abs(gradient).max() / np.abs(Z.T @ (weights * (0.5 - y))).max()


@pytest.mark.parametrize("d", [1, 3, 30, 300])
@pytest.mark.parametrize(
    ("known", "scale", "ridge"), [(0, 1.0, 1.0), (100, 1.0, 1.0), (20, 20.0, 0.1), (30, 0.01, 1.0)]
)
def test_every_estimate_is_the_optimum(d, known, scale, ridge):
    rng = np.random.default_rng(d)
    Z, y = answers(rng, known + 60, d, scale)
    weights = np.append(rng.choice([0.5, 1.0, 3.0], known), np.ones(60))
    offline = Rows(Z[:known], y[:known], weights[:known])
    estimate = RunningEstimate(offline, fit_preference(offline, ridge=ridge), ridge=ridge)
    for z, answer in zip(Z[known:], y[known:], strict=True):
        estimate.hear(z, answer)
        assert relative_gradient(estimate.rows, estimate.theta, ridge) <= 1e-6
    assert np.array_equal(estimate.rows.Z, Z)
    assert np.array_equal(estimate.rows.weights, weights)


@pytest.mark.parametrize("ridge", [1.0, 1e-3, 1e-9])
@pytest.mark.parametrize("kind", KINDS)
def test_units_weights_and_certainty_do_not_end_it_too_early(kind, ridge):
    """A small gradient is no proof: probabilities used to be off by up to .98 after rows that count differently."""
    for d in (1, 3, 10):
        rng = np.random.default_rng([KINDS.index(kind), d])
        Z, y, weights = drawn(rng, kind, d, 3 * d + 2)
        weights[-2:] = 1.0
        offline = Rows(Z[:-2], y[:-2], weights[:-2])
        estimate = RunningEstimate(offline, fit_preference(offline, ridge=ridge), ridge=ridge)
        for z, answer in zip(Z[-2:], y[-2:], strict=True):
            estimate.hear(z, answer)
        wanted = ridge_logistic(Z, y, ridge, weights)
        apart, chances = deviations(estimate.theta, wanted, Z, weights, ridge)
        assert chances < 1e-6
        assert apart < 1e-6 or not determined(wanted, Z, weights, ridge)


def test_few_steps_are_enough(rng, monkeypatch):
    """What makes it quick: no fit from the start, and seldom a new metric."""
    Z, y = answers(rng, 500, 64, 1.0)
    rows = Rows(Z[:300], y[:300], np.ones(300))
    estimate = RunningEstimate(rows, fit_preference(rows, ridge=1.0), ridge=1.0)
    looked, look = [], RunningEstimate._look
    monkeypatch.setattr(RunningEstimate, "_look", lambda self, *a: looked.append(1) or look(self, *a))
    monkeypatch.setattr(prefkin.decide.refit, "fit_preference", None)
    for z, answer in zip(Z[300:], y[300:], strict=True):
        estimate.hear(z, answer)
    assert len(looked) < 1.5 * 200


@pytest.mark.parametrize("large", [1e8, 1e15])
def test_features_of_very_different_sizes_are_fitted_all_the_same(large):
    Z = np.array([[large, 0.0], [0.0, 1.0]])
    estimate = RunningEstimate(Rows(np.empty((0, 2)), np.empty(0), np.empty(0)), np.zeros(2), ridge=1.0)
    for z, answer in zip(Z, [1.0, 0.0], strict=True):
        estimate.hear(z, answer)
    assert relative_gradient(estimate.rows, estimate.theta, 1.0) <= 1e-6


def test_answers_that_contradict_each_other_leave_nothing_to_learn():
    estimate = RunningEstimate(Rows(np.empty((0, 2)), np.empty(0), np.empty(0)), np.zeros(2), ridge=1.0)
    for answer in (1.0, 0.0):
        estimate.hear(np.array([0.3, 0.7]), answer)
    assert np.abs(estimate.theta).max() < 1e-12


@pytest.mark.parametrize("d", [2, 40])
def test_a_posterior_session_follows_the_mode(rng, d):
    B = rng.standard_normal((d + 5, d))
    M, mean = B.T @ B + np.eye(d), rng.standard_normal(d) / 3
    session = ActiveSession.from_belief(Belief.from_information(mean, M), Candidates(rng.standard_normal((30, 3, d))))
    Z, y = [], []
    for _ in range(25):
        question = session.ask()
        Z.append(session.difference(question))
        y.append(float(rng.random() < 0.5))
        session.tell(question, bool(y[-1]))
        rows = Rows(np.array(Z), np.array(y), np.ones(len(y)))
        assert np.allclose(session.theta, mode(rows, mean, M), atol=1e-5)
    slope = expit(rows.Z @ session.theta) * expit(-rows.Z @ session.theta)
    assert np.allclose(session.information, M + rows.Z.T @ (slope[:, None] * rows.Z), rtol=1e-6)
    assert np.array_equal(session.preference, session.theta)
    again = ActiveSession.from_belief(Belief.from_information(mean, M), session.candidates)
    again.restore(session.state())
    for talk in (session, again):
        talk.tell(talk.ask(), True)
    assert again.state() == session.state()  # to the last bit
