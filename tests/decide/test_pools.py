"""Pools of many pairs, and answers to many questions at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefkin import Candidates
from prefkin.decide.belief import Belief
from prefkin.decide.rules.coverage import LeastCovered
from prefkin.decide.rules.pairs import Pairs
from prefkin.decide.session import ActiveSession
from prefkin.errors import SessionError
from tests.conftest import people


@given(seed=st.integers(0, 500), together=st.sampled_from([1, 3, 256]))
def test_pools_of_pairs_are_asked_in_the_order_of_scoring_all(seed, together):
    rng = np.random.default_rng(seed)
    d, pool = int(rng.integers(1, 6)), int(rng.integers(1, 40))
    pairs = rng.standard_normal((pool, 2, d)) * rng.choice([1e-3, 1.0, 1e3])
    candidates, M, closed = Candidates(pairs), np.eye(d) + 0.1, Pairs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefkin.decide.rules.coverage.NEWCOMERS", together)
        rule = LeastCovered(candidates, Belief.from_information(np.zeros(d), M), rng)
        for _ in range(pool + 1):
            question = rule.pick(closed, None)
            inverse = np.linalg.inv(M)
            left = [x for x in range(pool) if (0, 1) not in closed.of(x)]
            if question is None:
                assert not left
                break
            z = pairs[:, 0] - pairs[:, 1]
            scores = np.einsum("ij,jk,ik->i", z, inverse, z)
            assert question.score**2 == pytest.approx(scores[left].max(), rel=1e-6)
            assert scores[question.context] == pytest.approx(scores[left].max(), rel=1e-6)
            M = M + np.outer(z[question.context], z[question.context])
            closed.add(question)
            rule.heard(z[question.context])


def test_most_pairs_of_a_large_pool_are_scored_once(rng):
    pairs = np.zeros((5000, 2, 10))
    pairs[:, 0] = rng.standard_normal((5000, 10)) * rng.uniform(0.5, 1.5, (5000, 1))
    rule, closed = LeastCovered(Candidates(pairs), Belief(np.zeros(10), np.eye(10)), rng), Pairs()
    for _ in range(50):
        question = rule.pick(closed, None)
        closed.add(question)
        rule.heard(pairs[question.context, 0])
    assert rule.scored < 50 * 5000 / 10


def session(rng, repeat=False, rule="coverage"):
    rows = people(10, [20], 4).rows
    candidates = Candidates(np.random.default_rng(0).standard_normal((12, 3, 4)))
    return ActiveSession(rows, candidates, theta=np.zeros(4), ridge=1.0, kappa=0.1, repeat=repeat, rule=rule, rng=rng)


@pytest.mark.parametrize("rule", ["coverage", "fisher"])
def test_answers_at_once_are_answers_one_by_one(rng, rule):
    one, all_at_once = session(np.random.default_rng(1), rule=rule), session(np.random.default_rng(1), rule=rule)
    questions = one.plan(9) if rule == "coverage" else [one.ask()]
    answers = [bool(k % 2) for k in range(len(questions))]
    for question, answer in zip(questions, answers, strict=True):
        one.tell(question, answer)
    all_at_once.tell_all(questions, answers)
    assert np.allclose(one.theta, all_at_once.theta, atol=1e-8)
    assert np.allclose(one.preference, all_at_once.preference, atol=1e-8)
    assert np.allclose(one.information, all_at_once.information)
    assert one.ask() == all_at_once.ask()
    assert one.log == all_at_once.log


def test_answers_at_once_are_checked_before_anything_changes(rng):
    talk = session(rng)
    questions = talk.plan(2)
    for arguments, message in (
        ((questions, [True]), "1 answers to 2 questions"),
        ((questions, [True, "yes"]), "an answer is True or False"),
        (([questions[0], questions[0]], [True, True]), "a pair occurs twice"),
    ):
        with pytest.raises(SessionError, match=message):
            talk.tell_all(*arguments)
    assert talk.n_answers == 0
    assert talk.log == []
