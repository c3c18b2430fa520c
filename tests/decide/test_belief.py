"""A belief and how it hears: every way to build it is the same, and no digits are lost on the way."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefkin.decide.belief import Belief, absorb
from tests.oracles import literal


def spread_out(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 7))
    B = rng.standard_normal((d + 2, d)) * scale
    return rng, B.T @ B + 0.1 * np.eye(d)


@given(seed=st.integers(0, 10_000))
def test_information_and_covariance_make_the_same_belief(seed):
    rng, M = spread_out(seed)
    rows, C = rng.standard_normal((4, len(M))), np.linalg.inv(M)
    one, other = Belief.from_information(np.zeros(len(M)), M), Belief.from_covariance(np.zeros(len(M)), C)
    expected = np.sqrt(np.einsum("ij,jk,ik->i", rows, C, rows))
    for belief in (one, other):
        assert np.allclose(belief.norm(rows), expected, rtol=1e-9)
        assert np.allclose(belief.covariance, C, rtol=1e-7, atol=1e-12)
        assert np.allclose(belief.information, M, rtol=1e-7, atol=1e-12)
        assert belief.radius == pytest.approx(np.sqrt(np.trace(C)))


@given(seed=st.integers(0, 10_000), weight=st.sampled_from([0.0, 0.2, 3.0]))
def test_hearing_adds_information_and_changes_nothing_else(seed, weight):
    rng, M = spread_out(seed)
    z, mean = rng.standard_normal(len(M)), rng.standard_normal(len(M))
    before = Belief.from_information(mean, M)
    kept = before.root.copy()
    after = before.heard(z, weight)
    assert np.allclose(after.information, M + weight * np.outer(z, z), rtol=1e-8, atol=1e-9)
    assert after.mean is mean
    assert np.array_equal(before.root, kept)


def test_a_covariance_that_rounding_left_without_a_factor_is_used_all_the_same():
    v = np.array([1.0, 2.0, 3.0])
    belief = Belief.from_covariance(np.zeros(3), np.outer(v, v))
    assert np.allclose(belief.covariance, np.outer(v, v))


@pytest.mark.parametrize("scale", [1e6, 1e8])
def test_large_features_beside_a_small_prior_keep_their_digits(scale):
    """P − VᵀV has none left here: scores fall from scale² to 1."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        d = 4
        root, M = np.eye(d), [[Fraction(int(i == j)) for j in range(d)] for i in range(d)]
        asked = scale * rng.standard_normal((6, d))
        for z in asked:
            absorb(root, z)
            M = [[M[i][j] + Fraction(z[i]) * Fraction(z[j]) for j in range(d)] for i in range(d)]
            for other in asked:
                expected = literal.squared_inverse_norm(other, M)
                assert np.sum((other @ root) ** 2) == pytest.approx(expected, rel=1e-5 * scale / 1e8)
