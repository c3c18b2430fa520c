from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

import prefkin.decide.rules.fisher
import prefkin.decide.rules.pairs
from prefkin import Candidates, Question
from prefkin.decide.belief import Belief
from prefkin.decide.rules.coverage import LeastCovered
from prefkin.decide.rules.fisher import Fisher
from prefkin.decide.rules.pairs import Pairs, widest_pair
from prefkin.decide.rules.random import Random
from tests.oracles import literal


def scattered(seed, n=None):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 6))
    features = rng.standard_normal((int(rng.integers(2, 12)) if n is None else n, d))
    B = rng.standard_normal((d + 2, d))
    return rng, features, np.linalg.inv(B.T @ B + 0.1 * np.eye(d))


@given(seed=st.integers(0, 10_000), block=st.sampled_from([2, 3, 512]), weighted=st.booleans())
def test_the_widest_open_pair_is_found_without_listing_pairs(seed, block, weighted):
    rng, features, inverse = scattered(seed)
    n = len(features)
    every = [(i, j) for i in range(n) for j in range(i + 1, n)]
    closed = {pair for pair in every if rng.random() < 0.4}
    theta = 2 * rng.standard_normal(features.shape[1]) if weighted else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefkin.decide.rules.pairs, "ROWS_AT_ONCE", block)
        score, i, j = widest_pair(features, np.linalg.cholesky(inverse), closed, theta)
    best, pair = literal.widest_pair(features, inverse, closed, theta)
    if pair is None:
        assert (score, i, j) == (-np.inf, -1, -1)
    else:
        assert score == pytest.approx(best, rel=1e-9)
        assert (i, j) == pair


def test_the_same_action_twice_is_not_a_question():
    assert widest_pair(np.array([[1.0, 2.0], [1.0, 2.0]]), np.eye(2), set()) == (-np.inf, -1, -1)


def test_near_pairs_beside_a_far_one_are_seen():
    assert widest_pair(np.array([[0.0], [1.0], [1e7]]), np.eye(1), {(0, 2), (1, 2)}) == (1.0, 0, 1)


def test_a_pair_with_a_certain_answer_still_has_a_score(monkeypatch):
    monkeypatch.setattr(prefkin.decide.rules.pairs, "ROWS_AT_ONCE", 1)
    for sign in (1, -1):
        score, i, j = widest_pair(sign * np.array([[40.0], [0.0]]), np.eye(1), set(), np.ones(1))
        assert (score, i, j) == (pytest.approx(1600 * np.exp(-40.0)), 0, 1)


def not_read():
    raise AssertionError("this rule reads no answers")


def covered(M):
    return Belief.from_information(np.zeros(len(M)), M)


@given(seed=st.integers(0, 1000))
def test_lazy_scoring_picks_what_scoring_everything_would(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    parts = [rng.standard_normal((rng.integers(1, 6), d)) for _ in range(rng.integers(1, 6))]
    candidates, M, closed = Candidates(parts), np.eye(d) + 0.1, Pairs()
    rule = LeastCovered(candidates, covered(M), rng)
    for _ in range(8):
        question = rule.pick(closed, not_read)
        scores = [literal.widest_pair(part, np.linalg.inv(M), closed.of(x))[0] for x, part in enumerate(parts)]
        if question is None:
            assert max(scores) == -np.inf
            break
        assert question.score**2 == pytest.approx(max(scores), rel=1e-9)
        z = parts[question.context][question.first] - parts[question.context][question.second]
        M = M + np.outer(z, z)
        closed.add(question)
        rule.heard(z)


def test_most_contexts_are_not_scored_again(rng):
    candidates = Candidates(rng.standard_normal((200, 4, 5)))
    rule, closed = LeastCovered(candidates, covered(np.eye(5)), rng), Pairs()
    for _ in range(20):
        question = rule.pick(closed, not_read)
        closed.add(question)
        rule.heard(candidates.of(question.context)[question.first] - candidates.of(question.context)[question.second])
    assert rule.scored < 200 + 20 * 60  # scoring everything each time would be 20 * 200


@pytest.mark.parametrize("actions", [2, 4])
@pytest.mark.parametrize("scale", [1e-6, 1e6, 1e8])
def test_large_features_beside_a_small_prior_are_asked_in_the_right_order(scale, actions):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        d = 3
        parts = scale * rng.standard_normal((8, actions, d))
        rule, closed = LeastCovered(Candidates(parts), covered(np.eye(d)), rng), Pairs()
        M = [[Fraction(int(i == j)) for j in range(d)] for i in range(d)]
        for _ in range(8):
            question = rule.pick(closed, not_read)
            scores = {
                (x, i, j): literal.squared_inverse_norm(parts[x, i] - parts[x, j], M)
                for x in range(8)
                for j in range(actions)
                for i in range(j)
                if (i, j) not in closed.of(x)
            }
            best = max(scores.values())
            assert scores[question.context, question.first, question.second] == pytest.approx(best, rel=1e-6)
            assert question.score**2 == pytest.approx(best, rel=1e-6)
            z = parts[question.context, question.first] - parts[question.context, question.second]
            M = [[M[i][j] + Fraction(z[i]) * Fraction(z[j]) for j in range(d)] for i in range(d)]
            closed.add(question)
            rule.heard(z)


@given(seed=st.integers(0, 200), kept=st.sampled_from([1, 2, 5]))
def test_rows_that_were_taken_up_still_count(seed, kept):
    rng = np.random.default_rng(seed)
    pairs, M, closed = rng.standard_normal((30, 2, 3)), np.eye(3), Pairs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefkin.decide.rules.coverage.KEPT", kept)
        patch.setattr("prefkin.decide.rules.coverage.NEWCOMERS", 4)
        rule = LeastCovered(Candidates(pairs), covered(M), rng)
        for n in range(30):
            question = (rule if n % 4 else rule.copy(rng)).pick(closed, not_read)
            z = pairs[:, 0] - pairs[:, 1]
            left = [x for x in range(30) if (0, 1) not in closed.of(x)]
            best = np.einsum("ij,jk,ik->i", z, np.linalg.inv(M), z)[left].max()
            assert question.score**2 == pytest.approx(best, rel=1e-9)
            M = M + np.outer(z[question.context], z[question.context])
            closed.add(question)
            rule.heard(z[question.context])


def test_random_pairs_come_with_equal_chances_and_never_twice(rng):
    candidates = Candidates([np.eye(3), np.eye(3)[:2], np.eye(3)[:1]])
    counts = {}
    for _ in range(4000):
        question = Random(candidates, covered(np.eye(3)), rng).pick(Pairs(), not_read)
        counts[question] = counts.get(question, 0) + 1
    assert len(counts) == 4
    assert min(counts.values()) > 850
    rule, closed, asked = Random(candidates, covered(np.eye(3)), rng), Pairs(), set()
    while (question := rule.pick(closed, not_read)) is not None:
        closed.add(question)
        asked.add(question)
    assert asked == {Question(0, 0, 1), Question(0, 0, 2), Question(0, 1, 2), Question(1, 0, 1)}


@pytest.mark.long
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=12),
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([1.0, 1e-20, 1e25]),
    block=st.sampled_from([1, 3, 512]),
)
def test_the_most_telling_pair_is_found_without_scoring_every_context(sizes, seed, scale, block):
    rng = np.random.default_rng(seed)
    dim = int(rng.integers(1, 6))
    candidates = Candidates([scale * rng.integers(-2, 3, size=(size, dim)) for size in sizes])
    precision = scale**2 * (np.eye(dim) + np.diag(rng.random(dim)))
    theta, inverse = rng.standard_normal(dim) / scale, np.linalg.inv(precision)
    belief = Belief.from_information(theta, precision)
    rule, closed = Fisher(candidates, belief, rng), Pairs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefkin.decide.rules.fisher, "ROWS_AT_ONCE", block)
        patch.setattr(prefkin.decide.rules.pairs, "ROWS_AT_ONCE", block)
        for _ in range(100):
            every = [literal.widest_pair(actions, inverse, closed.of(x), theta) for x, actions in enumerate(candidates)]
            best = max((score for score, pair in every if score > 0), default=None)
            found = rule.pick(closed, lambda: belief)
            if found is None:
                assert best is None
                return
            z = candidates.of(found.context)[found.first] - candidates.of(found.context)[found.second]
            assert found not in closed
            assert expit(z @ theta) * expit(-z @ theta) * (z @ inverse @ z) == pytest.approx(best, rel=1e-9)
            closed.add(found)
