"""Steps that would leap too far."""

import numpy as np
import pytest
from scipy.special import digamma

from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Signed
from prefkin.inference.steps import held_back, improved


def test_a_leap_past_the_answers_is_held_back_and_a_step_is_not():
    rows = np.array([1.0, -1.0])  # the same question, answered both ways
    data = Signed(rows[:, None], np.array([1000.0, 300.0]), np.array([0, 2]))

    def solved(sites, prior=1e-4):
        precision = prior + sites.precision.sum()
        return rows * (rows @ sites.pull) / precision, np.full(2, 1.0 / precision)

    sites = Sites.tangent(data.weights, 12.0 * rows)  # where answers are nearly certain
    mean, variance = solved(sites)
    assert np.abs(mean).max() > 1000.0
    assert np.abs(held_back(sites, data, mean, variance)[1]).max() < 12.0
    for _ in range(12):
        sites = improved(sites, data, mean, variance)
        mean, variance = solved(sites)
    assert mean[0] == pytest.approx(digamma(1000) - digamma(300), abs=1e-5)  # σ(m) has a beta distribution
    assert held_back(sites, data, mean, variance)[1] is mean
