import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from prefkin.data.rows import Rows
from prefkin.errors import ConvergenceError
from prefkin.inference import estimate
from prefkin.inference.estimate import DIRECT_UP_TO, fit_preference, newton_direction
from prefkin.inference.loss import log_loss
from tests.oracles import literal


def drawn(seed, n, d, scale=1.0, strength=2.0):
    rng = np.random.default_rng(seed)
    Z = scale * rng.standard_normal((n, d))
    y = (rng.random(n) < expit(strength * Z[:, 0])).astype(float)
    return Rows(Z, y, rng.uniform(0.2, 3.0, n))


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 25),
    d=st.integers(1, 12),
    ridge=st.sampled_from([0.01, 1.0, 30.0]),
    scale=st.sampled_from([0.05, 1.0, 20.0]),
)
def test_the_estimate_is_the_optimum_found_independently(seed, n, d, ridge, scale):
    rows = drawn(seed, n, d, scale)
    assert np.abs(fit_preference(rows, ridge=ridge) - literal.optimum(*rows[:2], ridge, rows.weights)).max() < 1e-6


@pytest.mark.parametrize(("n", "d"), [(30, 8), (8, 30), (250, 200), (600, 250), (40, 400)])
@pytest.mark.parametrize("ridge", [1e-3, 1.0])
def test_the_gradient_vanishes_whichever_way_the_system_is_solved(n, d, ridge):
    rows = drawn(3, n, d)
    theta = fit_preference(rows, ridge=ridge)
    slope = rows.Z.T @ (rows.weights * (expit(rows.Z @ theta) - rows.y)) + ridge * theta
    assert np.linalg.norm(slope) / ridge < 1e-6  # bounds the distance to the optimum


@pytest.mark.parametrize(("n", "d"), [(30, 8), (8, 30), (DIRECT_UP_TO + 40, DIRECT_UP_TO + 10)])
def test_newton_directions_agree_with_a_dense_solve(rng, n, d):
    Z, curvature, gradient = (
        rng.standard_normal((n, d)),
        rng.uniform(0.01, 0.25, n),
        1e-9 * rng.standard_normal(d),
    )
    dense = np.linalg.solve(Z.T @ (curvature[:, None] * Z) + 0.5 * np.eye(d), gradient)
    assert np.allclose(
        newton_direction(Z, curvature, gradient, np.full(d, 0.5)), dense, rtol=1e-3, atol=1e-6 * np.abs(dense).max()
    )


def test_the_start_does_not_matter(rng):
    rows = drawn(5, 40, 6)
    far = fit_preference(rows, ridge=1.0, start=50 * rng.standard_normal(6))
    assert np.allclose(far, fit_preference(rows, ridge=1.0), atol=1e-9)


def test_separable_answers_have_an_estimate_all_the_same():
    rows = Rows(np.array([[1.0, 0.0], [2.0, 0.1]]), np.array([1.0, 1.0]), np.ones(2))
    theta = fit_preference(rows, ridge=1e-6)
    assert np.isfinite(theta).all()
    assert theta[0] > 3


def test_a_weight_of_two_is_the_row_twice():
    rows = Rows(np.array([[1.0, 0.3], [0.2, -1.0]]), np.array([1.0, 0.0]), np.array([2.0, 1.0]))
    twice = Rows(np.vstack([rows.Z[:1], rows.Z]), np.append(1.0, rows.y), np.ones(3))
    assert np.allclose(fit_preference(rows, ridge=1.0), fit_preference(twice, ridge=1.0), atol=1e-12)
    assert log_loss(np.ones(2), rows) == pytest.approx(log_loss(np.ones(2), twice))


def test_a_failed_fit_says_what_to_change(monkeypatch):
    rows = drawn(1, 20, 3)
    monkeypatch.setattr(estimate, "ASTRAY", 1)
    monkeypatch.setattr(estimate, "MOST_STEPS", 1)
    with pytest.raises(ConvergenceError, match="no optimum after 1 Newton steps.*raise ridge"):
        fit_preference(rows, ridge=1.0)
