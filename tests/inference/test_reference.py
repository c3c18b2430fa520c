"""Own estimates beside Newton's method in double precision that shares no code: any units, weights, ridge, certainty."""

from itertools import product

import numpy as np
import pytest

from prefkin.data.rows import Rows, UserRows
from prefkin.inference.estimate import fit_preference
from prefkin.inference.many import estimate_users
from tests.oracles.newton import ridge_logistic
from tests.oracles.odd_people import KINDS, determined, deviations, drawn

RIDGES = [1.0, 1e-3, 1e-9]


def together(people):
    parts = [np.concatenate(part) for part in zip(*people, strict=True)]
    starts = np.concatenate([[0], np.cumsum([len(y) for _, y, _ in people])])
    return UserRows(Rows(*parts), starts, np.arange(len(people)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("d", "ridge"),
    [
        *((3, ridge) for ridge in RIDGES),
        (20, 1e-3),
        *(
            pytest.param(d, ridge, marks=pytest.mark.long)
            for d, ridge in product((20, 60), RIDGES)
            if (d, ridge) != (20, 1e-3)
        ),
    ],
)
def test_own_estimates_are_those_of_newtons_method_in_double_precision(kind, ridge, d):
    rng = np.random.default_rng([KINDS.index(kind), d])
    people = [drawn(rng, kind, d, int(rng.integers(1, 3 * d))) for _ in range(4 if d == 60 else 8)]
    found = estimate_users(together(people), ridge=ridge)
    for theta, (Z, y, weights) in zip(found, people, strict=True):
        wanted = ridge_logistic(Z, y, ridge, weights)
        apart, chances = deviations(theta, wanted, Z, weights, ridge)
        assert chances <= 1e-6
        assert apart <= 1e-6 or not determined(wanted, Z, weights, ridge)


@pytest.mark.long
def test_nobodys_estimate_depends_on_whether_5000_or_7000_others_are_there():
    rng = np.random.default_rng(2)
    people = [drawn(rng, KINDS[k % 6], 3, 6) for k in range(70)] * 100
    many, few = (estimate_users(together(people[:n]), ridge=1.0) for n in (7000, 5000))
    assert np.array_equal(many[:5000], few)


def test_weights_over_eight_decades_and_hardly_any_ridge_are_solved():
    rng = np.random.default_rng(1)  # Newton's method by itself goes astray
    Z, y, _ = drawn(rng, "plain", 40, 50)
    weights = 10.0 ** rng.uniform(-4, 8, 50)
    theta = fit_preference(Rows(Z, y, weights), ridge=1e-9)
    assert deviations(theta, ridge_logistic(Z, y, 1e-9, weights), Z, weights, 1e-9)[0] <= 1e-6


def test_the_reference_hears_answers_that_are_contradicted_by_thousands():
    """An unexpected answer at a margin of -3,700 has no curvature, but still its pull."""
    Z, y, weights = np.array([[0.005], [1.0]]), np.array([1.0, 0.0]), np.array([1e8, 1.0])
    theta = ridge_logistic(Z, y, 1e-9, weights)
    chance = 0.5 * (1.0 + np.tanh(0.5 * (Z @ theta)))
    assert abs(Z.T @ (weights * (chance - y)) + 1e-9 * theta) < 1e-6
    assert deviations(fit_preference(Rows(Z, y, weights), ridge=1e-9), theta, Z, weights, 1e-9)[0] <= 1e-6


def test_answers_that_contradict_each_other_exactly_have_no_length_to_compare():
    Z = np.ones((2, 1))
    assert deviations(np.zeros(1), np.full(1, 1e-17), Z, np.ones(2), 1e-3)[0] <= 1e-6
    assert deviations(np.zeros(1), np.full(1, 1e-3), Z, np.ones(2), 1e-3)[0] == 1.0
