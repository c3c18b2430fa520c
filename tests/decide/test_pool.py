from itertools import combinations

import numpy as np
import pytest
from scipy.special import expit, xlogy

from prefkin import Candidates, Question
from prefkin.decide.belief import Belief
from prefkin.decide.rules.information import Information, information_of
from prefkin.decide.rules.pairs import Pairs
from prefkin.decide.rules.pool import MOST_PAIRS, Pool


def test_every_pair_of_different_actions_is_in_the_pool_once(rng):
    parts = [rng.standard_normal((size, 3)) for size in (1, 2, 5, 3)]
    parts[2][4] = parts[2][1]  # a copy: nothing to ask
    pool = Pool.of(Candidates(parts))
    expected = [(x, i, j) for x, part in enumerate(parts) for i, j in combinations(range(len(part)), 2)]
    expected.remove((2, 1, 4))
    assert [(q.context, q.first, q.second) for q in map(pool.question, range(len(pool)))] == expected
    for at, (x, i, j) in enumerate(expected):
        assert np.allclose(pool.unit * pool.Z[at], parts[x][i] - parts[x][j], atol=1e-6)


def test_closed_pairs_are_shut_whichever_way_they_were_shown(rng):
    pool, closed = Pool.of(Candidates([rng.standard_normal((4, 2)), rng.standard_normal((2, 2))])), Pairs()
    for question in (Question(0, 2, 1), Question(1, 0, 1), Question(0, 0, 3)):
        closed.add(question)
    left = [pool.question(at) for at in np.flatnonzero(pool.open(closed))]
    assert left == [Question(0, 0, 1), Question(0, 0, 2), Question(0, 1, 3), Question(0, 2, 3)]


def test_of_very_many_pairs_some_are_looked_at(rng):
    pool = Pool.of(Candidates([rng.standard_normal((3000, 2)), rng.standard_normal((2, 2))]))
    assert len(pool) == MOST_PAIRS
    questions = {(q.context, q.first, q.second) for q in map(pool.question, range(len(pool)))}
    assert len(questions) == MOST_PAIRS
    assert all(0 <= i < j < 3000 for _, i, j in questions)
    assert (1, 0, 1) in questions


def test_information_is_that_of_the_answer(rng):
    """Mutual information of an answer and a normal margin, by quadrature."""
    nodes = np.linspace(-9, 9, 20001)
    weights = np.exp(-(nodes**2) / 2)
    weights /= weights.sum()

    def entropy(p):
        return -xlogy(p, p) - xlogy(1 - p, 1 - p)

    for mean, spread in ((0.0, 0.1), (0.5, 1.0), (2.0, 2.0), (-1.0, 3.0), (4.0, 1.0)):
        chance = expit(mean + spread * nodes)
        exact = entropy(weights @ chance) - weights @ entropy(chance)
        pool = Pool.of(Candidates([[[1.0], [0.0]]]))
        found = information_of(Belief(np.array([mean]), np.array([[spread]])).margins(pool))
        assert found[0] == pytest.approx(exact, abs=0.025)
        assert found[0] == pytest.approx(exact, rel=0.15)


def test_nothing_is_asked_where_nothing_differs():
    same = Candidates([[[1.0], [1.0]], [[0.0]]])
    rule = Information(same, Belief(np.zeros(1), np.eye(1)), np.random.default_rng(0))
    assert rule.pick(Pairs(), lambda: Belief(np.zeros(1), np.eye(1))) is None
