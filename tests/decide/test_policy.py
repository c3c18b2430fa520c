import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefkin import Candidates
from prefkin.decide.policy import best_policy, inverse_norm, pessimistic_value
from prefkin.errors import InvalidParameter
from tests.oracles import literal


def problem(seed, most_contexts=5, most_actions=5):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 7))
    features = [
        rng.standard_normal((rng.integers(1, most_actions + 1), d)) for _ in range(rng.integers(1, most_contexts + 1))
    ]
    candidates = Candidates(features, rng.uniform(0.05, 1.0, len(features)))
    B = rng.standard_normal((3 * d, d))
    M = float(rng.choice([0.1, 1.0, 10.0])) * B.T @ B + np.eye(d)
    reference = [np.zeros(d), candidates.features.mean(axis=0), rng.standard_normal(d)][seed % 3]
    return (
        candidates,
        features,
        rng.standard_normal(d),
        M,
        float(rng.choice([0.1, 1.0, 5.0, 200.0])),
        reference,
    )


@settings(max_examples=150)
@given(seed=st.integers(0, 100_000))
def test_the_policy_is_the_best_of_all_and_the_bound_holds(seed):
    candidates, features, theta, M, beta, w = problem(seed)
    best = literal.best_policy_value(features, candidates.weights, theta, M, beta, w)
    found = best_policy(candidates, theta, M, beta=beta, reference=w)
    slack = 1e-9 * max(1.0, abs(best), beta)
    assert found.upper_bound >= best - slack
    assert found.value == pytest.approx(best, abs=slack)
    mean = candidates.mean(found.actions)
    assert found.value == pytest.approx(literal.pessimistic(mean, theta, M, beta, w), abs=slack)


@given(seed=st.integers(0, 10_000))
def test_without_enumeration_the_moves_find_it_and_the_bound_still_holds(seed):
    import prefkin.decide.policy as module

    candidates, features, theta, M, beta, w = problem(seed)
    best = literal.best_policy_value(features, candidates.weights, theta, M, beta, w)
    limit, module.MOST_COMBINATIONS = module.MOST_COMBINATIONS, -1
    try:
        found = best_policy(candidates, theta, M, beta=beta, reference=w)
    finally:
        module.MOST_COMBINATIONS = limit
    assert found.upper_bound >= best - 1e-9 * max(1.0, abs(best), beta)
    assert found.value <= best + 1e-9 * max(1.0, abs(best), beta)


def test_moves_alone_match_brute_force_nearly_always():
    import prefkin.decide.policy as module

    limit, module.MOST_COMBINATIONS = module.MOST_COMBINATIONS, -1
    try:
        hits = 0
        for seed in range(100):
            candidates, features, theta, M, beta, w = problem(seed)
            best = literal.best_policy_value(features, candidates.weights, theta, M, beta, w)
            found = best_policy(candidates, theta, M, beta=beta, reference=w)
            hits += found.value >= best - 1e-9 * max(1.0, abs(best), beta)
    finally:
        module.MOST_COMBINATIONS = limit
    assert hits >= 98


def test_contexts_that_never_occur_do_not_stand_in_the_way(rng):
    features = [rng.standard_normal((4, 2)) for _ in range(12)]
    weights = np.array([1.0, 2.0] + [0.0] * 10)
    found = best_policy(Candidates(features, weights), np.ones(2), np.eye(2), beta=3.0)
    best = literal.best_policy_value(features[:2], weights[:2] / 3, np.ones(2), np.eye(2), 3.0, np.zeros(2))
    assert found.value == pytest.approx(best)
    assert found.upper_bound == found.value


@pytest.mark.parametrize("beta", [0.5, 200.0])
def test_a_large_problem_comes_with_a_bound_that_means_something(rng, beta):
    candidates = Candidates(rng.standard_normal((300, 20, 30)) / np.sqrt(30))
    theta, B = rng.standard_normal(30) / np.sqrt(30), rng.standard_normal((500, 30))
    M = B.T @ B + 10 * np.eye(30)
    found = best_policy(candidates, theta, M, beta=beta)
    greedy = best_policy(candidates, theta, M, beta=0.0)
    worst = pessimistic_value(greedy.mean[None], theta, M, beta=beta)[0]
    assert worst <= found.value <= found.upper_bound
    assert found.upper_bound - found.value <= 0.05 * (found.upper_bound - worst) + 1e-9


def test_no_pessimism_is_the_greedy_policy(rng):
    candidates = Candidates([rng.standard_normal((k, 3)) for k in (1, 4, 2)])
    theta = rng.standard_normal(3)
    found = best_policy(candidates, theta, np.eye(3), beta=0.0)
    assert found.actions.tolist() == [int(np.argmax(part @ theta)) for part in candidates]
    assert found.value == found.upper_bound


def test_the_per_context_variant_plays_safe_in_each_context(rng):
    candidates = Candidates(rng.standard_normal((4, 6, 3)))
    theta, M, w = rng.standard_normal(3), np.diag([1.0, 4.0, 9.0]), rng.standard_normal(3)
    found = best_policy(candidates, theta, M, beta=0.7, reference=w, scope="context")
    for x, part in enumerate(candidates):
        values = [literal.pessimistic(row, theta, M, 0.7, w) for row in part]
        assert found.actions[x] == int(np.argmax(values))
    assert found.upper_bound >= best_policy(candidates, theta, M, beta=0.7, reference=w).value - 1e-12


def test_the_reference_changes_the_policy_although_the_paper_says_it_does_not(rng):
    candidates = Candidates(rng.standard_normal((20, 10, 5)))
    theta, M = rng.standard_normal(5), np.diag([1.0, 2.0, 3.0, 4.0, 5.0])
    one = best_policy(candidates, theta, M, beta=5.0)
    other = best_policy(candidates, theta, M, beta=5.0, reference=10 * rng.standard_normal(5))
    assert (one.actions != other.actions).any()


def test_norms_are_those_of_the_inverse(rng):
    M = np.array([[2.0, 0.5], [0.5, 1.0]])
    rows = rng.standard_normal((4, 2))
    assert np.allclose(inverse_norm(rows, M) ** 2, np.einsum("ij,jk,ik->i", rows, np.linalg.inv(M), rows))


@pytest.mark.parametrize(
    ("change", "message"),
    [({"scope": "all"}, "scope must be"), ({"reference": np.ones(9)}, "reference must be 2 finite numbers")],
)
def test_wrong_arguments_are_named(change, message):
    with pytest.raises(InvalidParameter, match=message):
        best_policy(Candidates([[[1.0, 2.0]]]), np.ones(2), np.eye(2), **{"beta": 1.0, **change})
