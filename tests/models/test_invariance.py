"""Results depend on what was answered, not on how the table happens to be written."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from prefkin import Candidates, OffC2PL, PrefKin
from prefkin.errors import NoEdgeWarning
from prefkin.models.baselines import pooled
from tests.conftest import draw_answers


def fitted(Z, y, users, gamma=43.6, sample_weight=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoEdgeWarning)
        return OffC2PL(gamma, **options).fit(Z, y, users=users, sample_weight=sample_weight)


def same(one, other, rename=lambda label: label):
    for user in one.users_.tolist():
        u, v = one.position(user), other.position(rename(user))
        assert np.allclose(one.theta_[u], other.theta_[v], atol=1e-8)
        assert np.allclose(one.own_theta_[u], other.own_theta_[v], atol=1e-8)
        assert np.allclose(one.radius_[u], other.radius_[v], rtol=1e-9)
        assert np.allclose(one.gamma_[u], other.gamma_[v], rtol=1e-9)
        assert {rename(w) for w in one.neighbours(user).tolist()} == set(other.neighbours(rename(user)).tolist())


@given(seed=st.integers(0, 1000), gamma=st.sampled_from([43.6, "auto", "over"]))
def test_the_order_of_rows_does_not_matter(seed, gamma):
    rng = np.random.default_rng(seed)
    Z, y, users = draw_answers(rng)
    order = rng.permutation(len(y))
    same(fitted(Z, y, users, gamma), fitted(Z[order], y[order], users[order], gamma))


@given(seed=st.integers(0, 1000))
def test_the_order_of_users_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    Z, y, users = draw_answers(rng)
    names = rng.permutation(6)
    same(fitted(Z, y, users), fitted(Z, y, names[users]), lambda user: names[user].item())


@pytest.mark.parametrize("rename", [str, float, lambda u: (u, "x"), lambda u: u if u % 2 else str(u)])
def test_the_type_of_labels_does_not_matter(rng, rename):
    Z, y, users = draw_answers(rng)
    same(fitted(Z, y, users), fitted(Z, y, [rename(int(u)) for u in users]), rename)


@given(seed=st.integers(0, 1000), gamma=st.sampled_from([43.6, "auto"]))
def test_mirroring_a_pair_with_its_answer_does_not_matter(seed, gamma):
    rng = np.random.default_rng(seed)
    Z, y, users = draw_answers(rng)
    flip = rng.random(len(y)) < 0.5
    mirrored = np.where(flip[:, None], -Z, Z), np.where(flip, 1 - y, y)
    same(fitted(Z, y, users, gamma), fitted(*mirrored, users, gamma))


@pytest.mark.parametrize("options", [{}, {"radius": "calibrated"}, {"distance": "information", "radius": "calibrated"}])
def test_an_answer_given_twice_counts_as_one_of_weight_two(rng, options):
    Z, y, users = draw_answers(rng)
    twice = rng.random(len(y)) < 0.4
    weighted = fitted(Z, y, users, 2.0, sample_weight=1.0 + twice, **options)
    rows = np.vstack([Z, -Z[twice]]), np.concatenate([y, 1 - y[twice]]), np.concatenate([users, users[twice]])
    repeated = fitted(*rows, 2.0, **options)
    same(weighted, repeated)
    distances = [[model.graph_.distances(user) for user in range(6)] for model in (weighted, repeated)]
    assert np.allclose(*distances, rtol=1e-6, atol=1e-6)
    widths = [[model.width(user) for user in range(6)] for model in (weighted, repeated)]
    assert np.allclose(*widths, rtol=1e-6)


@pytest.mark.parametrize("dim", [5, 230])
def test_the_number_of_threads_changes_nothing_at_all(rng, dim):
    Z, y, users = draw_answers(rng, sizes=[300] * 4, dim=dim)
    results = []
    for n_jobs, blas in ((1, 1), (2, 2), (4, 1), (-1, 2)):
        with threadpool_limits(blas):
            model = fitted(Z, y, users, gamma=np.inf, n_jobs=n_jobs)
            results.append([model.theta_, model.own_theta_, model.radius_])
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("make", [PrefKin, pooled])
def test_long_sums_of_one_feature_are_not_divided_among_threads(rng, make):
    Z, y, _ = draw_answers(rng, sizes=[30_000], dim=1)
    results = []
    for blas in (1, 2):
        with threadpool_limits(blas):
            model = make().fit(Z, y)
            results.append(np.concatenate([model.theta_.ravel(), model.own_theta_.ravel(), model.radius_]))
    assert np.array_equal(*results)


def test_inputs_are_never_modified(rng):
    Z, y, users = draw_answers(rng)
    weights = rng.uniform(0.5, 2.0, len(y))
    features = rng.standard_normal((4, 3, 3))
    kept = [array.copy() for array in (Z, y, users, weights, features)]
    for array in (Z, y, users, weights, features):
        array.setflags(write=False)
    model = OffC2PL(43.6).fit(Z, y, users=users, sample_weight=weights)
    candidates = Candidates(features)
    model.policy(0, candidates, pessimism=0.1)
    session = model.session(0, candidates)
    session.tell(session.ask(), True)
    model.fold_in(Z[:5], y[:5])
    assert all(np.array_equal(a, b) for a, b in zip(kept, (Z, y, users, weights, features), strict=True))


def test_changing_the_input_afterwards_does_not_change_the_model(rng):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(np.inf).fit(Z, y, users=users)
    before = model.information(0)
    Z *= 0
    assert np.array_equal(model.information(0), before)
