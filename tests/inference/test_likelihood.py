"""Tilted moments against quadrature."""

import numpy as np
import pytest

from prefkin.inference.likelihood import Laplace, Logistic
from tests.oracles.hierarchical import tilted

PLACES = [(c, s) for c in (-60.0, -12.0, -3.0, -0.4, 0.0, 1.5, 9.0, 40.0) for s in (0.01, 0.6, 4.0, 50.0, 900.0, 1e4)]


@pytest.mark.parametrize("y", [0.0, 1.0])
@pytest.mark.parametrize("power", [1.0, 0.999, 0.7, 0.1, 0.001])
def test_logistic_tilted_moments_are_those_of_quadrature(power, y):
    c, s = np.array(PLACES).T
    n = len(c)
    log_mass, first, second = Logistic().tilted(np.full(n, y), np.full(n, power), c, s)
    literal = np.array([tilted(y, power, *place) for place in PLACES]).T
    np.testing.assert_allclose(log_mass, literal[0], atol=3e-6)
    np.testing.assert_allclose(np.sqrt(s) * first, np.sqrt(s) * literal[1], atol=2e-5)  # in standard deviations
    np.testing.assert_allclose(1 + s * second, 1 + s * literal[2], rtol=5e-4)  # of the variance


def test_far_in_the_tail_moments_keep_their_relative_precision():
    side, c = np.array([0.0, 1.0]), np.array([300.0, -300.0])
    log_mass, first, second = Logistic().tilted(side, np.ones(2), c, np.full(2, 2.0))
    np.testing.assert_allclose(log_mass, -299.0, rtol=1e-9)  # E exp(m) of a normal margin
    np.testing.assert_allclose(first, [-1.0, 1.0], rtol=1e-9)
    assert (second < 0).all()


def test_laplace_finds_the_mode_and_its_curvature(rng):
    n = 50
    y, power = (rng.random(n) < 0.5).astype(float), rng.uniform(0.1, 1.0, n)
    c, s = 4 * rng.normal(size=n), rng.uniform(0.1, 20.0, n)
    _, first, second = Laplace(Logistic()).tilted(y, power, c, s)
    m = c + s * first
    miss = 1.0 / (1.0 + np.exp((2 * y - 1) * m))
    np.testing.assert_allclose((m - c) / s, power * (2 * y - 1) * miss, atol=1e-8)
    np.testing.assert_allclose(s + s * s * second, 1.0 / (1.0 / s + power * miss * (1 - miss)), rtol=1e-6)


def test_logistic_derivatives_are_those_of_its_logarithm(rng):
    y, m = (rng.random(20) < 0.5).astype(float), 4 * rng.normal(size=20)
    likelihood, h = Logistic(), 1e-5
    value, slope, bend = likelihood.log_likelihood(y, m)
    up, down = likelihood.log_likelihood(y, m + h)[0], likelihood.log_likelihood(y, m - h)[0]
    np.testing.assert_allclose(slope, (up - down) / (2 * h), atol=1e-8)
    np.testing.assert_allclose(bend, (up - 2 * value + down) / h**2, atol=1e-4)
