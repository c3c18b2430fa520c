"""The evidence behind PrefKin: every factored formula against one big Gaussian."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefkin.blocks import (
    Sums,
    _assign,
    _merge,
    _user_sums,
    _weighted_sums,
    find_blocks,
    fit_cloud,
    set_evidence,
    solved,
)
from prefkin.quadratics import Belief, Quadratics, expand, expand_users
from tests.oracles import gaussian


def some_users(seed, n_users=3, d=3, sizes=(2, 3, 8)):
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((n, d)) for n in sizes[:n_users]]
    weights = [rng.uniform(0.5, 2.0, len(x)) for x in X]
    beliefs = [Belief(0.3 * rng.standard_normal(d), rng.uniform(0.0, 0.5, len(x))) for x in X]
    return rng, X, weights, beliefs


@given(seed=st.integers(0, 500), variance=st.sampled_from([1e-4, 0.1, 3.0]))
def test_one_users_integrals_are_those_of_dense_matrices(seed, variance):
    rng, X, weights, beliefs = some_users(seed)
    for x, w, belief in zip(X, weights, beliefs, strict=True):
        q = expand(x, w, belief)
        H, c, const = gaussian.dense(q)
        m, prior = rng.standard_normal(3), variance * np.eye(3)
        assert q.evidence(m, variance) == pytest.approx(gaussian.log_integral(H, c, const, m, prior), abs=1e-8)
        mean, C = gaussian.posterior(H, c, m, prior)
        assert np.allclose(q.posterior_mean(m, variance), mean, atol=1e-9)
        rows = rng.standard_normal((4, 3))
        assert np.allclose(q.own_variance(rows, variance), np.einsum("ij,jk,ik->i", rows, C, rows), atol=1e-9)
        G = np.linalg.inv(np.eye(3) + variance * H)
        assert np.allclose(q.keep(rows, variance), rows @ G.T, atol=1e-9)
        assert np.allclose(q.curvature(variance), H @ G, atol=1e-9)
        assert np.allclose(q.pull(variance), G @ c, atol=1e-9)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3)])
def test_the_quadratic_matches_value_slope_and_curvature_of_the_expected_likelihood(rng, shape):
    X, T = rng.standard_normal(shape), 0.5 * rng.standard_normal(3)
    q = expand(X, np.ones(len(X)), Belief(T, np.zeros(len(X))))  # no doubt: the likelihood itself
    H, c, const = gaussian.dense(q)
    p = 1 / (1 + np.exp(-X @ T))
    assert const + c @ T - T @ H @ T / 2 == pytest.approx(np.log(p).sum())
    assert np.allclose(c - H @ T, X.T @ (1 - p))
    assert np.allclose(H, X.T @ np.diag(p * (1 - p)) @ X)
    C = 0.3 * np.eye(3)
    doubtful = expand(X, np.ones(len(X)), Belief(T, 0.3 * (X**2).sum(axis=1)))
    H, c, const = gaussian.dense(doubtful)
    under_belief = const + c @ T - (T @ H @ T + np.trace(H @ C)) / 2  # E of the quadratic under N(T, C)
    assert under_belief == pytest.approx(gaussian.expected_log_likelihood(X, None, T, C, 1), abs=0.01)


def test_stacked_users_are_the_users_one_by_one():
    rng, X, weights, beliefs = some_users(1)
    stack, m = expand_users(X, weights, beliefs), rng.standard_normal(3)
    each = [expand(*one) for one in zip(X, weights, beliefs, strict=True)]
    assert np.allclose(stack.levels(0.4), [q.level(0.4) for q in each])
    assert np.allclose(stack.evidences(m, 0.4), [q.evidence(m, 0.4) for q in each])
    assert np.allclose(stack.posterior_means(m, 0.4), [q.posterior_mean(m, 0.4) for q in each])
    share = np.array([0.0, 0.5, 1.0])
    A, a = stack.curvature_and_pull(0.4, share)
    assert np.allclose(A, sum(s * q.curvature(0.4) for s, q in zip(share, each, strict=True)))
    assert np.allclose(a, sum(s * q.pull(0.4) for s, q in zip(share, each, strict=True)))


@given(seed=st.integers(0, 500), within=st.sampled_from([0.01, 0.5]), between=st.sampled_from([0.05, 2.0]))
def test_the_evidence_of_a_set_is_the_joint_integral_over_its_users(seed, within, between):
    rng, X, weights, beliefs = some_users(seed)
    users, m0 = expand_users(X, weights, beliefs), rng.standard_normal(3)
    parts = [gaussian.dense(users.one(u)) for u in range(3)]
    whole = set_evidence(_weighted_sums(users, within, np.ones((3, 1))), m0, between)[0]
    assert whole == pytest.approx(gaussian.joint_log_integral(parts, m0, within, between), abs=1e-7)
    single = _user_sums(users, within)
    assert whole == pytest.approx(set_evidence(single[0] + single[1] + single[2], m0, between), abs=1e-9)


@given(seed=st.integers(0, 500), within=st.sampled_from([0.01, 0.5]))
def test_means_and_covariances_are_those_of_the_joint_posterior(seed, within):
    rng, X, weights, beliefs = some_users(seed)
    users, m0 = expand_users(X, weights, beliefs), rng.standard_normal(3)
    blocks = solved(users, beliefs, np.ones((3, 1)), m0, within, 0.7, 1.0, 0.0)
    mean, C = gaussian.joint_posterior([gaussian.dense(users.one(u)) for u in range(3)], m0, within, 0.7)
    assert np.allclose(blocks.mean, mean, atol=1e-8)
    rows = rng.standard_normal((5, 3))
    for u in range(3):
        assert np.allclose(blocks.covariance(u), C[u, :, u], atol=1e-8)
        assert np.allclose(blocks.variance(u, rows), np.einsum("ij,jk,ik->i", rows, C[u, :, u], rows), atol=1e-8)


def test_soft_seats_are_leave_one_out_odds():
    """With everybody seated for certain: odds of a block are (others there) × evidence with / evidence without."""
    _, X, weights, beliefs = some_users(3, 4, 3, (6, 6, 6, 6))
    users, m0 = expand_users(X, weights, beliefs), np.zeros(3)
    share = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    parts = [gaussian.dense(users.one(u)) for u in range(4)]
    soft = _assign(users, share, m0, 0.1, 0.5, 1)
    for u in range(4):
        odds = []
        for block in (0, 1):
            others = [v for v in range(4) if share[v, block] and v != u]
            with_ = gaussian.joint_log_integral([parts[v] for v in [*others, u]], m0, 0.1, 0.5)
            without = gaussian.joint_log_integral([parts[v] for v in others], m0, 0.1, 0.5)
            odds.append(np.log(len(others)) + with_ - without)
        odds.append(gaussian.log_integral(*parts[u], m0, 0.6 * np.eye(3)))
        chance = np.exp(np.array(odds) - max(odds))
        assert np.allclose(soft[u], (chance / chance.sum())[:2], atol=1e-5)


def test_merging_follows_the_evidence():
    """Two pairs of equals: the best partition on the way has two sets, and no other partition has more evidence."""
    rng = np.random.default_rng(0)
    truth = np.array([[2.0, 0.0], [2.0, 0.0], [-2.0, 0.0], [-2.0, 0.0]])
    X = []
    for theta in truth:
        Z = rng.standard_normal((80, 2))
        X.append(np.where(rng.random(80) < 1 / (1 + np.exp(-Z @ theta)), 1, -1)[:, None] * Z)
    users = expand_users(X, [np.ones(80)] * 4, [Belief(np.zeros(2), np.zeros(80))] * 4)
    seats = _merge(users, np.zeros(2), 0.01, 1.0, np.arange(4))
    assert seats[0] == seats[1] != seats[2] == seats[3]
    score = [
        set_evidence(_weighted_sums(users, 0.01, np.eye(max(p) + 1)[list(p)]), np.zeros(2), 1.0).sum()
        for p in ((0, 0, 1, 1), (0, 1, 0, 1), (0, 0, 0, 0), (0, 1, 2, 3), (0, 0, 1, 2), (0, 1, 2, 2))
    ]
    assert np.argmax(score) == 0


def test_groups_are_found_when_there_are_some_and_not_otherwise():
    rng = np.random.default_rng(1)

    def signed(theta, n=80):
        Z = rng.standard_normal((n, len(theta)))
        return np.where(rng.random(n) < 1 / (1 + np.exp(-Z @ theta)), 1, -1)[:, None] * Z

    weights = [np.ones(80)] * 12
    centres = 2 * rng.standard_normal((3, 4))
    grouped = [signed(centres[u % 3]) for u in range(12)]
    cloud = fit_cloud(grouped, weights)
    blocks = find_blocks(grouped, weights, cloud, np.arange(12))
    assert blocks.evidence > cloud.evidence + 10
    assert [set(np.flatnonzero(column > 0.5)) for column in blocks.share.T] in (
        [{0, 3, 6, 9}, {1, 4, 7, 10}, {2, 5, 8, 11}],
        *([set(range(a, 12, 3)), set(range(b, 12, 3)), set(range(c, 12, 3))] for a, b, c in ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))),
    )  # fmt: skip
    middle = rng.standard_normal(4)
    by_degrees = [signed(middle + 0.7 * rng.standard_normal(4)) for _ in range(12)]
    cloud = fit_cloud(by_degrees, weights)
    assert find_blocks(by_degrees, weights, cloud, np.arange(12)).evidence < cloud.evidence + 1


def test_sums_of_sets_add_up():
    one = Sums(np.eye(2)[None], np.ones((1, 2)), np.ones(1))
    assert (one + one).level.tolist() == [2.0]
    assert Quadratics.stack([expand(np.eye(2), np.ones(2), Belief(np.zeros(2), np.zeros(2)))]).dim == 2
