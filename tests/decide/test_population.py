"""What is believed of somebody who may belong to several groups."""

import numpy as np
import pytest
from scipy.special import expit

from prefkin.decide.population import MixtureBelief, Population


@pytest.fixture
def two():
    return Population(np.ones(2), np.array([[6.0, 0.0], [0.0, 6.0]]), np.array([0.3 * np.eye(2)] * 2))


def heard_one_by_one(people: Population, rows: np.ndarray) -> MixtureBelief:
    belief = people.nobody
    for x in rows[:, None]:
        belief = belief.hearing(x, np.ones(1))
    return belief


def test_answers_one_by_one_teach_what_all_at_once_do(two):
    rows = np.random.default_rng(1).normal(size=(12, 2))
    slowly, at_once = heard_one_by_one(two, rows), two.belief(rows, np.ones(len(rows)))
    assert np.allclose(slowly.chance, at_once.chance, atol=1e-8)
    assert np.allclose(slowly.mean, at_once.mean, atol=1e-7)


def test_a_group_that_was_given_up_comes_back_when_answers_speak_for_it(two):
    first, second = np.array([[1.0, -1.0]]), np.array([[-1.0, 1.0]])
    misled = heard_one_by_one(two, np.repeat(first, 8, axis=0))
    assert misled.chance[1] < np.exp(-20.0)
    rows = np.concatenate([np.repeat(first, 8, axis=0), np.repeat(second, 16, axis=0)])
    turned, at_once = heard_one_by_one(two, rows), two.belief(rows, np.ones(len(rows)))
    assert turned.chance[1] > 0.5
    assert np.allclose(turned.chance, at_once.chance, atol=1e-6)
    assert np.allclose(turned.mean, at_once.mean, atol=1e-6)


def test_a_habit_of_taking_the_first_side_is_no_preference():
    people = Population(np.ones(1), np.array([[0.4]]), np.array([[[2.0]]]), habit=1.5)
    Z, y = np.array([[0.8], [-0.3], [1.1]]), np.array([1.0, 1.0, 0.0])
    fewer = people.nobody.hearing(Z[:1], y[:1]).hearing(Z[1:2], y[1:2])
    belief = fewer.hearing(Z[2:], y[2:])
    theta = np.linspace(-12.0, 12.0, 20_001)
    likely = np.exp(-((theta - 0.4) ** 2) / 4.0) * expit(0.8 * theta + 1.5) * expit(-0.3 * theta + 1.5)
    likely *= expit(-1.1 * theta - 1.5)
    assert belief.mean[0] == pytest.approx(np.sum(theta * likely) / likely.sum(), abs=2e-3)
    assert np.allclose(people.belief(Z, y).mean, belief.mean, atol=1e-8)
    assert np.array_equal(belief.without_last().mean, fewer.mean)
