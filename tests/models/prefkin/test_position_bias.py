"""Position bias is recovered, and preferences are better for it; where there is none, nothing changes."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from prefkin import Comparisons
from prefkin.models.prefkin.fitting import Specification, learn
from prefkin.models.prefkin.position_bias import _population, find_biases, with_position_bias

PLAIN = Specification()


def planted(rng, mean=0.0, spread=0.0, n_users=20, n=60, d=4):
    theta = rng.normal(size=d) + 0.5 * rng.normal(size=(n_users, d))
    users, bias = np.repeat(np.arange(n_users), n), mean + spread * rng.normal(size=n_users)
    first, second = rng.normal(size=(2, n_users * n, d))
    y = rng.random(len(users)) < expit(np.einsum("ij,ij->i", first - second, theta[users]) + bias[users])
    return first, second, y, users, bias, theta


def test_planted_biases_are_recovered_within_their_standard_errors():
    deviations = []
    for seed in range(3):
        first, second, y, users, bias, theta = planted(np.random.default_rng(20 + seed), 0.5, 1.0)
        rows = Comparisons.from_sides(first, second, y, users).by_user()
        without = learn(rows, PLAIN)
        found = find_biases(without.posterior)
        deviations.append((found.each - bias) / np.sqrt(found.variance))
        given, learnt = with_position_bias(rows, PLAIN, without)
        assert np.array_equal(given.habits, found.each)
        better, worse = (((fit.posterior.theta - theta) ** 2).sum() for fit in (learnt, without))
        assert better < worse
    assert np.sqrt(np.mean(np.square(deviations))) < 1.35


def test_a_bias_that_all_users_share(rng):
    first, second, y, users, _, theta = planted(rng, 2.0)
    rows = Comparisons.from_sides(first, second, y, users).by_user()
    without = learn(rows, PLAIN)
    given, learnt = with_position_bias(rows, PLAIN, without)
    assert given.habits.mean() == pytest.approx(2.0, abs=0.25)
    assert ((learnt.posterior.theta - theta) ** 2).sum() < 0.7 * ((without.posterior.theta - theta) ** 2).sum()


def test_nothing_changes_without_a_bias(rng):
    first, second, y, users, *_ = planted(rng)
    rows = Comparisons.from_sides(first, second, y, users).by_user()
    learnt = learn(rows, PLAIN)
    given, again = with_position_bias(rows, PLAIN, learnt)
    assert given is rows
    assert again is learnt


def test_sides_must_be_known_and_not_those_of_winners(rng):
    first, second, y, users, *_ = planted(rng, 2.0)
    better, worse = np.where(y[:, None], first, second), np.where(y[:, None], second, first)
    for data in (
        Comparisons.from_sides(better, worse, np.ones(len(y)), users),
        Comparisons.from_sides(worse, better, np.zeros(len(y)), users),
        Comparisons.from_arrays(first - second, y, users),
    ):
        rows = data.by_user()
        learnt = learn(rows, PLAIN)
        assert with_position_bias(rows, PLAIN, learnt) == (rows, learnt)


def test_sides_exchanged_give_the_opposite_biases(rng):
    first, second, y, users, *_ = planted(rng, 0.7, 0.3)
    one, other = (
        find_biases(learn(data.by_user(), PLAIN).posterior)
        for data in (
            Comparisons.from_sides(first, second, y, users),
            Comparisons.from_sides(second, first, ~y, users),
        )
    )
    np.testing.assert_allclose(other.each, -one.each, atol=1e-9)


def test_biases_given_as_offsets_leave_none_to_find(rng):
    first, second, y, users, bias, _ = planted(rng, 0.5, 1.0)
    rows = replace(Comparisons.from_sides(first, second, y, users).by_user(), habits=bias)
    assert find_biases(learn(rows, PLAIN).posterior).evidence < 6.0


def test_mean_and_spread_of_biases_are_the_likeliest(rng):
    precision = rng.uniform(1.0, 9.0, 400)
    measured = 0.3 + rng.normal(size=400) * np.sqrt(0.5 + 1 / precision)
    mean, variance, gain = _population(measured, precision)

    def loss(parameters):
        total = np.exp(parameters[1]) + 1 / precision
        return 0.5 * np.sum((measured - parameters[0]) ** 2 / total + np.log(total))

    best = minimize(loss, [0.0, 0.0])
    assert mean == pytest.approx(best.x[0], abs=0.01)
    assert np.log(variance) == pytest.approx(best.x[1], abs=0.13)  # the nearest of the grid
    without = 0.5 * np.sum(measured**2 * precision - np.log(precision))
    assert without - best.fun - 0.3 < gain <= without - best.fun + 1e-9
