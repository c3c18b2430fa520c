import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefkin import KAPPA_UNIT_BALL, ItemRegularity
from prefkin.data.rows import Rows
from prefkin.errors import InvalidParameter
from prefkin.inference.information import confidence_width, information_matrix
from prefkin.inference.spectrum import least_eigenvalue
from prefkin.models.off_c2pl.radius import Measured
from tests.oracles import literal

sizes = {"seed": st.integers(0, 1000), "n": st.integers(1, 40), "d": st.integers(1, 12)}
constants = {
    "ridge": st.sampled_from([0.01, 1.0, 50.0]),
    "kappa": st.sampled_from([0.01, KAPPA_UNIT_BALL, 0.25]),
}


def rows_of(seed, n, d):
    rng = np.random.default_rng(seed)
    return Rows(rng.standard_normal((n, d)), np.ones(n), rng.uniform(0.1, 2.0, n))


def test_kappa_is_the_slope_of_the_sigmoid_at_two():
    assert pytest.approx(literal.sigmoid(2) * (1 - literal.sigmoid(2)), rel=1e-14) == KAPPA_UNIT_BALL


@given(**sizes, **constants)
def test_information_and_its_least_eigenvalue_are_the_literal_sums(seed, n, d, ridge, kappa):
    rows = rows_of(seed, n, d)
    M = literal.information(rows.Z, ridge, kappa, rows.weights)
    assert np.allclose(information_matrix(rows, ridge=ridge, kappa=kappa), M, rtol=1e-9, atol=1e-12)
    least = least_eigenvalue(rows) + ridge / kappa
    assert least == pytest.approx(np.linalg.eigvalsh(M)[0], rel=1e-9)


@given(
    n=st.integers(0, 10**6),
    d=st.integers(1, 800),
    delta=st.floats(1e-6, 0.9),
    users=st.integers(1, 1000),
    **constants,
)
def test_the_width_is_the_printed_formula(n, d, delta, users, ridge, kappa):
    ours = confidence_width(n, d, ridge=ridge, kappa=kappa, failure=delta / (2 * users))
    assert ours == pytest.approx(literal.width(n, d, ridge, kappa, users, delta), rel=1e-12)


def test_with_fewer_rows_than_features_the_floor_is_the_prior_exactly():
    assert least_eigenvalue(rows_of(0, 5, 6)) == 0.0


@pytest.mark.parametrize(
    ("lambda_a", "sigma", "size"), [(0.2, 0.1, 2), (0.05, 0.3, 10), (0.5, 0.001, 3), (1e-3, 1e-4, 1)]
)
def test_smoothed_regularity_is_the_integral(lambda_a, sigma, size):
    ours = ItemRegularity(lambda_a, sigma, size)
    assert ours.smoothed == pytest.approx(literal.smoothed_regularity(lambda_a, sigma, size), rel=1e-8)
    assert 0 < ours.smoothed < lambda_a


def test_n_min_is_the_printed_formula():
    regular = ItemRegularity(0.3, 0.05, 2)
    s = regular.smoothed
    assert regular.n_min(n_users=7, dim=4, delta=0.1) == pytest.approx(16 / s**2 * np.log(8 * 7 * 4 / (s**2 * 0.1)))


def test_regularity_refuses_what_is_not_positive():
    with pytest.raises(InvalidParameter, match="sigma must be a number above 0"):
        ItemRegularity(0.1, 0.0, 2)


def test_measured_coverage_lets_everybody_in():
    assert Measured().least_count(n_users=2, dim=3, delta=0.1) == 0
