"""Compiled code gives what plain numpy gives, for any number of threads, with the work it promises."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

import prefkin.inference.compiled
import prefkin.inference.spectrum
from prefkin import Candidates, Comparisons, OffC2PL
from prefkin.data.rows import Rows, UserRows
from prefkin.decide.belief import Belief
from prefkin.decide.rules.coverage import LeastCovered
from prefkin.decide.rules.pairs import Pairs
from prefkin.decide.session import ActiveSession
from prefkin.errors import SessionError
from prefkin.inference.compiled import RELATIVE_GRADIENT, RowSets, fit_compiled
from prefkin.inference.estimate import estimate_users, fit_preference, refit_sequence
from prefkin.inference.overlapping import fit_overlapping
from prefkin.inference.spectrum import least_eigenvalue, least_eigenvalues
from prefkin.models.off_c2pl.graph import Graph
from prefkin.models.off_c2pl.pairs import census_by_rows, census_by_tiles
from prefkin.models.off_c2pl.pooling import distinct_sets, pool_estimates
from tests.oracles import literal

kernels = pytest.importorskip("prefkin.inference.kernels")


@pytest.fixture(autouse=True, scope="module")
def _small_users_side_by_side():
    """However few numbers there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefkin.inference.compiled, "WORTH_TOGETHER", 0)
        yield


def people(seed, sizes, d, scale=1.0, ill=False, dtype=np.float64):
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    Z = scale * rng.standard_normal((starts[-1], d))
    if ill:
        Z *= np.logspace(0, -3, d)
    theta = rng.standard_normal((len(sizes), d))
    y = (rng.random(len(Z)) < expit(np.einsum("ij,ij->i", Z, np.repeat(theta, sizes, axis=0)))).astype(float)
    return UserRows(Rows(Z.astype(dtype), y, rng.uniform(0.2, 3.0, len(Z))), starts, np.arange(len(sizes)))


def relative_gradient(rows, theta, ridge):
    Z, y, w = rows.Z.astype(float), rows.y, rows.weights
    slope = Z.T @ (w * (expit(Z @ theta) - y)) + ridge * theta
    return np.abs(slope).max() / np.abs(Z.T @ (w * (0.5 - y))).max()


def plain(monkeypatch):
    monkeypatch.setattr(prefkin.inference.compiled, "WORTH_LOADING", np.inf)


def always_compiled(monkeypatch):
    monkeypatch.setattr(prefkin.inference.compiled, "WORTH_LOADING", 0.0)


SHAPES = {
    "many small": ([30, 1, 7, 64, 300, 12], 5),
    "fewer rows than features": ([3, 8, 20], 40),
    "one feature": ([5, 50], 1),
    "many features": ([250, 40], 210),
    "side by side": ([30, 1, 0, 64, 9, 12, 16, 17, 33, 8, 40, 2] * 3, 6),
    "side by side and large": ([5, 50] * 10 + [600], 30),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ridge", [0.01, 1.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_compiled_estimates_are_those_of_numpy(monkeypatch, shape, ridge, dtype):
    users = people(0, *SHAPES[shape], dtype=dtype)
    plain(monkeypatch)
    slow = estimate_users(users, ridge=ridge)
    always_compiled(monkeypatch)
    fast = estimate_users(users, ridge=ridge)
    assert not np.array_equal(fast, slow)  # the compiled code did run
    for user in np.flatnonzero(users.counts):
        assert relative_gradient(users.of(user), fast[user], ridge) <= 1.01 * RELATIVE_GRADIENT
        assert np.abs(fast[user] - slow[user]).max() <= 2e-4 * (1 + np.abs(slow[user]).max())


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), ill=st.booleans(), scale=st.sampled_from([0.01, 1.0, 30.0]), d=st.integers(1, 20))
def test_every_compiled_estimate_keeps_the_tolerance(seed, ill, scale, d):
    sizes = np.random.default_rng(seed).integers(0, 60, size=6)
    users = people(seed, sizes, d, scale, ill)
    theta, sets = np.zeros((6, d)), RowSets(users.starts[:-1], users.starts[1:], np.arange(7))
    assert fit_compiled(kernels, users.rows, sets, theta, ridge=1.0, label="", n_jobs=1).all()
    for user in np.flatnonzero(sizes):
        assert relative_gradient(users.of(user), theta[user], 1.0) <= 1.01e-6


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    d=st.integers(1, 40),
    ill=st.booleans(),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
    started=st.booleans(),
)
def test_sixteen_at_a_time_are_solved_or_left_to_others(seed, d, ill, scale, started):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 60, size=37)
    users = people(seed, sizes, d, scale, ill)
    theta, work = started * rng.standard_normal((37, d)), np.zeros((37, 4), dtype=np.int64)
    order = rng.permutation(37)
    arguments = (*users.rows, users.starts[:-1], users.starts[1:], np.arange(38), order, 1.0, 1e-6)
    kernels.descend_together(*arguments, theta, work)
    solved = work[:, 3] > 0
    assert solved.mean() > (0.9 if scale <= 1.0 else 0.3)  # of nearly certain answers from a bad start, fewer
    for user in np.flatnonzero((sizes > 0) & solved):
        assert relative_gradient(users.of(user), theta[user], 1.0) <= 1.01e-6
    assert np.isfinite(theta).all()


@pytest.mark.parametrize(("n_users", "n", "d"), [(40, 30, 5), (10, 60, 100), (10, 100, 210)])
def test_a_start_that_is_good_already_is_kept(n_users, n, d):
    """Every kernel's end: what float64 finds a little worse than float32 did is not thrown away."""
    users = people(14, [n] * n_users, d)
    sets, theta = RowSets(users.starts[:-1], users.starts[1:], np.arange(n_users + 1)), np.zeros((n_users, d))
    for _ in range(3):
        assert fit_compiled(kernels, users.rows, sets, theta, ridge=1.0, label="", n_jobs=1).all()
        assert max(relative_gradient(users.of(u), theta[u], 1.0) for u in range(n_users)) <= 1.01e-6


@pytest.mark.parametrize("n_users", [1, 20])
def test_solved_is_said_only_where_the_gradient_at_zero_is_known(n_users, rng):
    """Where answers cancel to a hundred-millionth, float32 does not know what the tolerance is a part of."""
    users = people(15, [40] * n_users, 4)
    Z, y, weights = users.rows
    Z[1::2], y[1::2], weights[1::2] = Z[::2], 1.0 - y[::2], weights[::2] * (1.0 - 1e-8)
    sets, theta = RowSets(users.starts[:-1], users.starts[1:], np.arange(n_users + 1)), np.zeros((n_users, 4))
    solved = fit_compiled(kernels, users.rows, sets, theta, ridge=1.0, label="", n_jobs=1)
    assert solved.any()
    for u in np.flatnonzero(solved):
        assert relative_gradient(users.of(u), theta[u], 1.0) <= 1.01e-6


def test_nobody_depends_on_who_is_beside_them(monkeypatch, rng):
    always_compiled(monkeypatch)
    users = people(12, rng.integers(5, 50, size=50), 7)
    together = estimate_users(users, ridge=1.0)
    order = rng.permutation(50)[:33]
    starts = np.concatenate([[0], np.cumsum(np.diff(users.starts)[order])])
    fewer = estimate_users(UserRows(Rows.join([users.of(u) for u in order]), starts, order), ridge=1.0)
    assert np.array_equal(fewer, together[order])


def test_sets_of_several_stretches_are_fitted_side_by_side(rng):
    users = people(13, [6, 9, 20, 3, 11, 1, 15], 5)
    members = [np.union1d(np.flatnonzero(rng.random(7) < 0.4), [u % 7]) for u in range(20)]
    sets, theta = RowSets.of_users(members, users.starts), np.zeros((20, 5))
    assert fit_compiled(kernels, users.rows, sets, theta, ridge=1.0, label="", n_jobs=1).all()
    for found, s in zip(theta, members, strict=True):
        assert relative_gradient(users.of_many(s), found, 1.0) <= 1.01e-6


def test_few_numbers_are_not_worth_a_kernel_of_their_own(monkeypatch):
    monkeypatch.setattr(prefkin.inference.compiled, "WORTH_TOGETHER", 40 * 30 * 5 + 1)
    monkeypatch.setattr(kernels, "descend_together", None)  # would fail if it were called
    users = people(14, [30] * 40, 5)
    sets, theta = RowSets(users.starts[:-1], users.starts[1:], np.arange(41)), np.zeros((40, 5))
    assert fit_compiled(kernels, users.rows, sets, theta, ridge=1.0, label="", n_jobs=1).all()


def test_what_compiled_code_cannot_solve_is_left_to_numpy(monkeypatch):
    users = people(1, [20, 30] * 10, 4)
    plain(monkeypatch)
    slow = estimate_users(users, ridge=1.0)
    always_compiled(monkeypatch)
    for kernel in ("descend_together", "descend", "quasi_newton", "newton_cg"):
        monkeypatch.setattr(kernels, kernel, lambda *arguments: None)  # reaches nothing
    assert np.array_equal(estimate_users(users, ridge=1.0), slow)


@pytest.mark.parametrize("shape", SHAPES)
def test_compiled_estimates_do_not_depend_on_threads(monkeypatch, shape):
    always_compiled(monkeypatch)
    monkeypatch.setattr(prefkin.inference.compiled, "CHUNK_NUMBERS", 50)
    users = people(2, *SHAPES[shape])
    one = estimate_users(users, ridge=1.0, n_jobs=1)
    for n_jobs in (2, 5):
        assert np.array_equal(estimate_users(users, ridge=1.0, n_jobs=n_jobs), one)


@pytest.mark.parametrize(("scale", "d"), [(1e-30, 6), (1e10, 6), (1e20, 6), (1e40, 6), (1e10, 200), (1e20, 200)])
@pytest.mark.parametrize("which", [slice(None), slice(0, 1)])  # all features, or one in other units than the rest
def test_features_in_any_units_are_solved_or_left_to_numpy(monkeypatch, scale, d, which):
    always_compiled(monkeypatch)
    users = people(11, [60, 0, 40], d)
    users.rows.Z[:, which] *= scale
    found = estimate_users(users, ridge=1.0)
    for user in (0, 2):
        assert relative_gradient(users.of(user), found[user], 1.0) <= 1.01e-6


def test_what_needs_more_digits_than_float32_has_is_solved_in_float64(monkeypatch):
    always_compiled(monkeypatch)
    users = people(9, [400] * 3, 6)
    Z, y, weights = users.rows
    Z[::2], y[::2], weights[::2] = Z[1::2], 1.0 - y[1::2], 0.99999 * weights[1::2]  # answers nearly cancel
    theta, work = np.zeros((3, 6)), np.zeros((3, 4), dtype=np.int64)
    kernels.descend(Z, y, weights, users.starts[:-1], users.starts[1:], np.arange(4), 0, 3, 1.0, 1e-6, theta, work)
    assert not work[:, 3].any()  # and it knows,
    assert work[:, 0].max() < 100  # soon
    found = estimate_users(users, ridge=1.0)
    for user in range(3):
        assert relative_gradient(users.of(user), found[user], 1.0) <= 1.01e-6


@pytest.mark.parametrize("together", [True, False])
def test_small_users_take_few_passes_over_their_rows(together):
    def fitted(users):
        theta, work = np.zeros((20, 32)), np.zeros((20, 4), dtype=np.int64)
        sets = (*users.rows, users.starts[:-1], users.starts[1:], np.arange(21))
        if together:
            kernels.descend_together(*sets, np.arange(20), 1.0, 1e-6, theta, work)
        else:
            kernels.descend(*sets, 0, 20, 1.0, 1e-6, theta, work)
        assert work[:, 3].all()
        return work.T

    steps, passes, _factored, _ = fitted(people(3, [200] * 20, 32))
    assert (passes == 1 + 2 * steps).all()
    assert steps.mean() < (12 if together else 25)
    assert steps.max() < (20 if together else 40)
    steps, _, factored, _ = fitted(people(3, [200] * 20, 32, 3.0, ill=True))
    assert factored.any()  # a factorisation was worth it
    assert steps.max() < 40  # a hundred and more without


def test_many_features_take_few_passes_and_one_over_float64():
    rng = np.random.default_rng(4)
    Z = rng.standard_normal((400, 300))
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    side = np.where(rng.random(400) < expit(3 * Z[:, 0]), 1.0, -1.0)
    theta, work, squares, zero = np.zeros(300), np.zeros(4, dtype=np.int64), np.zeros(300), np.zeros(300)
    light = Z.astype(np.float32)
    kernels.note_rows(light, side, np.ones(400), squares, zero)
    assert np.allclose(zero, -0.5 * side @ Z, atol=1e-5)
    assert np.allclose(squares, 0.25 * (Z**2).sum(axis=0), rtol=1e-5)
    kernels.quasi_newton(Z, light, side, np.ones(400), squares, zero, 1.0, 1e-6, theta, work)
    steps, passes, exact, reached = work
    assert reached
    assert steps <= 12
    assert passes <= steps + 2
    assert exact == 1


def test_what_takes_many_steps_is_left_to_newtons_method(monkeypatch):
    always_compiled(monkeypatch)
    rng = np.random.default_rng(5)
    Z = (rng.standard_normal((500, 300)) * np.arange(1, 301) ** -1.5) @ np.linalg.qr(rng.standard_normal((300, 300)))[0]
    y = (rng.random(500) < expit(Z @ rng.standard_normal(300))).astype(float)
    users = UserRows(Rows(Z, y, np.ones(500)), np.array([0, 500]), np.arange(1))
    called = []
    hard = kernels.newton_cg
    monkeypatch.setattr(kernels, "newton_cg", lambda *arguments: called.append(hard(*arguments)))
    theta = estimate_users(users, ridge=1e-3)
    assert called
    assert relative_gradient(users.rows, theta[0], 1e-3) <= 1.01e-6


def test_refits_after_each_answer_are_fits_of_all_rows_so_far(monkeypatch):
    always_compiled(monkeypatch)
    rows = people(5, [60], 30).rows
    trail = refit_sequence(rows, 40, np.zeros(30), ridge=1.0)
    for k, theta in enumerate(trail):
        part = Rows(*(column[: 41 + k] for column in rows))
        assert relative_gradient(part, theta, 1.0) <= 1.01e-6
        assert np.allclose(theta, fit_preference(part, ridge=1.0), atol=1e-5)


# -- eigenvalues -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "power"), [(300, 250, 0.0), (300, 250, 0.5), (255, 250, 0.0), (900, 250, 0.0)])
def test_the_least_of_many_eigenvalues_needs_no_decomposition(monkeypatch, rng, n, d, power):
    Z = (rng.standard_normal((n, d)) * np.arange(1, d + 1) ** -power) @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows = Rows(Z, np.ones(n), rng.uniform(0.5, 2.0, n))
    exact = np.linalg.eigvalsh(literal.information(Z, 0.0, 1.0, rows.weights))[0]
    monkeypatch.setattr(prefkin.inference.spectrum, "eigh", None)
    assert least_eigenvalue(rows) == pytest.approx(exact, rel=1e-8)


def test_a_singular_matrix_has_least_eigenvalue_zero(rng):
    Z = rng.standard_normal((400, 200)) @ rng.standard_normal((200, 250))
    assert least_eigenvalue(Rows(Z, np.ones(400), np.ones(400))) == pytest.approx(0.0, abs=1e-7)


def test_eigenvalues_of_many_users_are_those_of_each():
    users = people(6, [40, 3, 12, 60], 12)
    assert np.allclose(least_eigenvalues(users.rows, users.starts), [least_eigenvalue(users.of(u)) for u in range(4)])


# -- graph -----------------------------------------------------------------------------------------------------------


def points(seed, n_users, d=3):
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((n_users, d)).round(1)  # rounded: some pairs lie on the threshold exactly
    radius = rng.uniform(0.1, 0.5, n_users).round(1) + 20.0
    return Graph(theta, radius, np.full(n_users, 41.9), 1.0, np.ones(n_users, dtype=bool))


def counted_by_tiles(graph, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(prefkin.inference.compiled, "WORTH_LOADING", 0.0)
        return graph.census()


@pytest.mark.parametrize("mutual", [True, False])
@pytest.mark.parametrize("n_users", [1, 2, 511, 700, 1100])
def test_all_pairs_at_once_are_the_rows_of_the_graph(monkeypatch, n_users, mutual):
    graph = points(n_users, n_users)
    rng = np.random.default_rng(0)
    if n_users > 500:
        if not mutual:
            graph.gamma[:] += rng.uniform(-0.5, 0.5, n_users)
            graph.gamma[3] = np.inf
        graph.enough[4] = False
        graph.radius[5] = np.inf
        graph.theta[7] = graph.theta[6]
    fast = counted_by_tiles(graph, monkeypatch)
    slow = census_by_rows(graph.connected, n_users)
    assert np.array_equal(fast.degree, slow.degree)
    assert np.array_equal(fast.key, slow.key)


def test_a_pair_exactly_on_the_threshold_is_decided_as_in_its_row(monkeypatch):
    graph = points(1, 600)
    u, v = 17, 411
    graph.gamma[:] = graph.distances(u)[v] + graph.allowances(u)[v]
    fast = counted_by_tiles(graph, monkeypatch)
    assert fast.exact >= 1
    assert np.array_equal(fast.degree, census_by_rows(graph.connected, 600).degree)


def test_each_pair_is_tested_once_and_few_twice(monkeypatch, rng):
    graph = Graph(rng.standard_normal((768, 8)), rng.uniform(1, 1.1, 768), np.full(768, 5.0), 1.0, np.ones(768, bool))
    counted = counted_by_tiles(graph, monkeypatch)
    assert counted.tested == 3 * 384 * 384  # two tiles with themselves, and one with the other
    assert counted.exact < 768 * 768 / 1000


@settings(max_examples=40)
@given(
    seed=st.integers(0, 500),
    scale=st.sampled_from([1e-30, 1e-6, 1.0, 1e25]),
    far=st.sampled_from([1.0, 1e3, 1e9, 1e25]),
    mutual=st.booleans(),
)
def test_edges_do_not_depend_on_units_or_on_a_few_far_away(seed, scale, far, mutual):
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((60, 2)).round(1)
    radius = rng.uniform(0.1, 0.5, 60).round(1)
    theta[:2] *= far
    radius[2:4] *= far
    gamma = np.full(60, 1.9) if mutual else rng.uniform(0.5, 3.0, 60).round(1)
    graph = Graph(scale * theta, scale * radius, scale * gamma, 1.0, np.ones(60, dtype=bool))
    take = graph.alpha * graph.radius
    fast = census_by_tiles(kernels, graph.theta, graph.gamma - take, take, graph._joined, 1, mutual)
    slow = census_by_rows(graph.connected, 60)
    assert np.array_equal(fast.degree, slow.degree)
    assert np.array_equal(fast.key, slow.key)
    if far == 1.0:
        assert fast.exact < 60 * 60 / 5


@pytest.mark.parametrize("less", [1e-6, 1e-8, 1e-12])
def test_thresholds_of_about_nothing_are_decided_exactly(monkeypatch, less):
    theta, radius = np.array([[0.0, 0.0], [0.0, 0.0], [5.0, 0.0], [-3.0, 0.0]]), np.array([0.7, 0.3 - less, 0.5, 0.5])
    graph = Graph(theta, radius, np.ones(4), 1.0, np.ones(4, dtype=bool))
    assert counted_by_tiles(graph, monkeypatch).degree.tolist() == [2, 2, 1, 1]
    alike = Graph(np.zeros((3, 2)), np.array([3e17, 4e17, 2e17]), np.full(3, 1.9e18), 1.0, np.ones(3, dtype=bool))
    assert counted_by_tiles(alike, monkeypatch).degree.tolist() == [3, 3, 3]


def test_pairs_in_doubt_are_not_all_held_at_once(monkeypatch, rng):
    """Two tight groups far apart: float32 cannot decide any pair within them."""
    theta = np.repeat([[0.0, 0.0], [1.0, 0.0]], 1000, axis=0) + 1e-4 * rng.standard_normal((2000, 2))
    graph = Graph(theta, np.zeros(2000), np.full(2000, 2e-4), 1.0, np.ones(2000, dtype=bool))
    counted_by_tiles(points(1, 600), monkeypatch)  # compiled
    tracemalloc.start()
    counted = counted_by_tiles(graph, monkeypatch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(counted.degree, census_by_rows(graph.connected, 2000).degree)
    assert counted.exact > 900_000
    assert peak < 24 * 2**20


def test_the_graph_does_not_depend_on_threads(monkeypatch):
    always_compiled(monkeypatch)
    results = [points(2, 1500).census(n_jobs) for n_jobs in (1, 3)]
    assert np.array_equal(results[0].key, results[1].key)
    assert np.array_equal(results[0].degree, results[1].degree)


@given(seed=st.integers(0, 300))
def test_distinct_neighbourhoods_are_found_by_their_keys(seed):
    graph = points(seed, 30, d=1)
    first, which = graph.distinct()
    sets, expected = distinct_sets(graph.neighbours(u) for u in range(30))
    assert np.array_equal(which, expected)
    assert [graph.neighbours(u).tolist() for u in first] == [s.tolist() for s in sets]


@settings(max_examples=60)
@given(seed=st.integers(0, 500), n_users=st.sampled_from([1, 2, 5, 40]), scale=st.sampled_from([1e-9, 1.0, 1e40]))
def test_the_first_edge_is_the_pair_that_needs_the_least(seed, n_users, scale):
    rng = np.random.default_rng(seed)
    theta, radius = scale * rng.standard_normal((n_users, 2)).round(1), scale * rng.uniform(0, 2, n_users).round(1)
    enough = rng.random(n_users) < 0.8
    graph = Graph(theta, radius, np.zeros(n_users), 1.5, enough)
    needed = {
        (u, v): np.linalg.norm(theta[u] - theta[v]) + 1.5 * (radius[u] + radius[v])
        for u in range(n_users)
        for v in range(u + 1, n_users)
        if enough[u] and enough[v]
    }
    found = graph.first_edge()
    if not needed:
        assert found is None
    else:
        assert needed[found] == pytest.approx(min(needed.values()), rel=1e-9)


def test_the_first_edge_is_found_across_tiles(monkeypatch, rng):
    monkeypatch.setattr("prefkin.models.off_c2pl.pairs.TILE", 7)
    theta = rng.standard_normal((50, 3))
    theta[44] = theta[9] + 1e-5
    assert Graph(theta, np.full(50, 30.0), np.zeros(50), 1.0, np.ones(50, dtype=bool)).first_edge() == (9, 44)


# -- pooling ---------------------------------------------------------------------------------------------------------


def overlapping_sets(rng, n_users):
    return [np.union1d(np.flatnonzero(rng.random(n_users) < 0.5), [u]) for u in range(n_users)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_overlapping_sets_are_fitted_as_if_alone(monkeypatch, rng, dtype):
    users = people(8, rng.integers(5, 40, size=30), 6, dtype=dtype)
    sets = overlapping_sets(rng, 30)
    plain(monkeypatch)
    own = estimate_users(users, ridge=1.0)
    slow = pool_estimates(users, sets, own, ridge=1.0)
    always_compiled(monkeypatch)
    fast = pool_estimates(users, sets, own, ridge=1.0)
    assert not np.array_equal(fast, slow)
    for theta, members in zip(fast, sets, strict=True):
        assert relative_gradient(users.of_many(members), theta, 1.0) <= 1.01e-6
    assert np.allclose(fast, slow, atol=1e-5)
    assert np.array_equal(pool_estimates(users, sets, own, ridge=1.0, n_jobs=3), fast)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("compiled", [True, False])
def test_overlapping_sets_are_reached_only_if_float64_says_so(rng, compiled, offset):
    users = people(16, [30] * 40, 6)
    users.rows.Z[:] += offset
    sets = overlapping_sets(rng, 40)
    theta, reached, _ = fit_overlapping(
        kernels if compiled else None, users, sets, np.zeros((40, 6)), ridge=1e-3, tol=1e-6
    )
    assert offset > 0.0 or reached.all()
    for found, members in zip(theta[reached], [s for s, done in zip(sets, reached, strict=True) if done], strict=True):
        assert relative_gradient(users.of_many(members), found, 1e-3) <= 1.01e-6


def test_overlapping_sets_with_copied_features_are_left_to_others(rng):
    users = people(17, [30] * 40, 6)
    users.rows.Z[:] = 1e9 * users.rows.Z[:, [0, 0, 1, 2, 3, 4]]
    assert not fit_overlapping(None, users, overlapping_sets(rng, 40), np.zeros((40, 6)), ridge=1.0, tol=1e-6)[1].any()


@pytest.mark.parametrize("compiled", [True, False])
def test_overlapping_sets_take_few_gradients(rng, compiled):
    users = people(9, [50] * 40, 8)
    theta = rng.standard_normal(8)
    users.rows.y[:] = rng.random(2000) < expit(users.rows.Z @ theta)  # all alike
    sets = overlapping_sets(rng, 40)
    start = np.array([estimate_users(users, ridge=1.0)[s].mean(axis=0) for s in sets])
    _, reached, gradients = fit_overlapping(kernels if compiled else None, users, sets, start, ridge=1.0, tol=1e-6)
    assert reached.all()
    assert gradients <= 7


def test_sets_of_rows_join_neighbouring_users():
    sets = RowSets.of_users([np.array([1, 2, 5]), np.array([0])], np.array([0, 2, 3, 7, 7, 9, 12]))
    assert (sets.first.tolist(), sets.last.tolist(), sets.pointer.tolist()) == ([2, 9, 0], [7, 12, 2], [0, 2, 3])
    table = Rows(np.arange(12.0)[:, None], np.ones(12), np.ones(12))
    assert sets.rows(table, 0).Z[:, 0].tolist() == [2, 3, 4, 5, 6, 9, 10, 11]


# -- questions -------------------------------------------------------------------------------------------------------


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


# -- allocations -------------------------------------------------------------------------------------------------------


def allocated(work):
    """Bytes of Python and numpy at the peak of `work`, beyond what was there before."""
    work()  # what is kept for good is not counted
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_matrix_of_all_pairs_is_made(monkeypatch):
    always_compiled(monkeypatch)
    graph = points(3, 4000)
    assert allocated(lambda: graph.census(n_jobs=1)) < 4000**2 / 4  # a byte per pair would be four times that
    assert allocated(lambda: graph.neighbours(7)) < 4000 * 8 * 20


@pytest.mark.parametrize(("n_users", "d"), [(400, 32), (4, 300)])
def test_data_are_not_copied_for_estimates(monkeypatch, n_users, d):
    always_compiled(monkeypatch)
    users = people(12, [400] * n_users, d, dtype=np.float32)
    assert allocated(lambda: estimate_users(users, ridge=1.0, n_jobs=1)) < users.rows.Z.nbytes / 4


def test_data_are_not_copied_for_eigenvalues(monkeypatch):
    monkeypatch.setattr(prefkin.inference.spectrum, "STACK_NUMBERS", 2**16)
    users = people(12, [400] * 400, 16, dtype=np.float32)
    assert allocated(lambda: least_eigenvalues(users.rows, users.starts)) < users.rows.Z.nbytes / 4


# -- loading ---------------------------------------------------------------------------------------------------------

SMALL_FIT = """
import sys, numpy as np
{before}
import prefkin
rng = np.random.default_rng(0)
Z, users = rng.standard_normal((200, 3)) / 3, np.repeat(np.arange(10), 20)
model = prefkin.OffC2PL(gamma=np.inf).fit(Z, Z[:, 0] > 0, users=users)
{after}
"""


def run_python(before, after):
    code = SMALL_FIT.format(before=before, after=after)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_little_work_does_not_load_numba():
    assert run_python("", "print('numba' in sys.modules)") == "False"


def test_without_numba_everything_runs():
    after = "prefkin.inference.compiled.WORTH_LOADING = 0\nprint(model.fit(Z, Z[:, 0] > 0, users=users).theta_.round(6).tolist()[0])"
    with_numba, without = run_python("", after), run_python("sys.modules['numba'] = None", after)
    assert np.allclose(eval(with_numba), eval(without), atol=1e-5)


# -- float32 ---------------------------------------------------------------------------------------------------------


def test_float32_features_stay_float32_in_the_papers_algorithm(rng):
    users = people(11, [40] * 5, 3, scale=0.3)
    Z, y, owner = users.rows.Z.astype(np.float32), users.rows.y, np.repeat(np.arange(5), 40)
    data = Comparisons.from_arrays(Z, y, owner)
    assert data.Z is Z
    light, full = OffC2PL(gamma=np.inf).fit(data), OffC2PL(gamma=np.inf).fit(Z.astype(float), y, users=owner)
    assert light._users.rows.Z.base is Z  # in order already: no copy
    assert OffC2PL(gamma=np.inf).fit(Z, y, users=owner)._users.rows.Z.dtype == np.float32
    assert np.allclose(light.theta_, full.theta_, atol=1e-9)
    assert np.allclose(light.radius_, full.radius_)
    assert light.theta_.dtype == light.information(0).dtype == np.float64
    assert light.fold_in(Z[:7], y[:7]).theta.dtype == np.float64
