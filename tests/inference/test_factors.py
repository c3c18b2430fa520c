"""Gaussian factors against dense matrices."""

import numpy as np
import pytest

from prefkin.inference.factors import Factors
from tests.oracles.gaussian import log_integral


def some_factors(rng, n, d, rank=None):
    half = rng.normal(size=(n, rank or d + 2, d))
    return Factors(np.einsum("nri,nrj->nij", half, half), rng.normal(size=(n, d)), rng.normal(size=n))


def value(factors, i, t):
    return factors.level[i] + factors.eta[i] @ t - 0.5 * t @ factors.Lam[i] @ t


@pytest.mark.parametrize("d", [1, 4, 43])
def test_marginalised_factors_are_integrals_over_users(rng, d):
    factors, variance = some_factors(rng, 3, d, rank=2), rng.uniform(0.1, 3.0, 3)
    found = factors.marginalise(variance)
    for i in range(3):
        for m in rng.normal(size=(3, d)):
            own = (factors.Lam[i], factors.eta[i], factors.level[i])
            assert value(found, i, m) == pytest.approx(log_integral(*own, m, variance[i] * np.eye(d)), abs=1e-8)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e6])
def test_a_message_is_precise_whatever_its_information(rng, scale):
    factors = some_factors(rng, 1, 3)
    factors = Factors(scale * factors.Lam, factors.eta, factors.level)
    message, Lam = factors.marginalise(0.5).Lam[0], factors.Lam[0]
    np.testing.assert_allclose(message, np.linalg.inv(np.linalg.inv(Lam) + 0.5 * np.eye(3)), rtol=1e-6)


@pytest.mark.parametrize("d", [1, 4, 43])
def test_log_integrals_of_powers_of_products(rng, d):
    one, other, mean = some_factors(rng, 3, d), some_factors(rng, 2, d), rng.normal(size=d)
    i, j, times = np.array([0, 2, 2]), np.array([1, 0, 1]), np.array([1.0, -0.01, 0.4])
    found = one.joint_log_integral(i, other, j, times, mean, 0.7)
    for p in range(3):
        Lam, eta, level = (
            getattr(one, name)[i[p]] + times[p] * getattr(other, name)[j[p]] for name in ("Lam", "eta", "level")
        )
        assert found[p] == pytest.approx(log_integral(Lam, eta, level, mean, 0.7 * np.eye(d)), abs=1e-8)
    alone = [log_integral(one.Lam[k], one.eta[k], one.level[k], mean, 0.7 * np.eye(d)) for k in range(3)]
    np.testing.assert_allclose(one.log_integral(mean, 0.7), alone, atol=1e-8)


def test_products_add_parameters(rng):
    factors, share, t = some_factors(rng, 4, 3), rng.uniform(size=(4, 2)), rng.normal(size=3)
    found = factors.summed(share)
    for k in range(2):
        assert value(found, k, t) == pytest.approx(sum(share[u, k] * value(factors, u, t) for u in range(4)))
    both = factors[:2] + factors[2:]
    assert value(both, 1, t) == pytest.approx(value(factors, 1, t) + value(factors, 3, t))
