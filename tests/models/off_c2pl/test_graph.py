"""All pairs at once are the rows of the graph."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefkin.execution.executor import threads
from prefkin.models.off_c2pl.graph import Graph
from prefkin.models.off_c2pl.pairs import census_by_rows, census_by_tiles
from prefkin.models.off_c2pl.pooling import distinct_sets, pool_neighbourhoods
from tests.conftest import allocated, people


def points(seed, n_users, d=3):
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((n_users, d)).round(1)  # rounded: some pairs lie on the threshold exactly
    radius = rng.uniform(0.1, 0.5, n_users).round(1) + 20.0
    return Graph(theta, radius, np.full(n_users, 41.9), 1.0, np.ones(n_users, dtype=bool))


@pytest.mark.parametrize("mutual", [True, False])
@pytest.mark.parametrize("n_users", [1, 2, 511, 700, 1100])
def test_all_pairs_at_once_are_the_rows_of_the_graph(n_users, mutual):
    graph = points(n_users, n_users)
    rng = np.random.default_rng(0)
    if n_users > 500:
        if not mutual:
            graph.gamma[:] += rng.uniform(-0.5, 0.5, n_users)
            graph.gamma[3] = np.inf
        graph.enough[4] = False
        graph.radius[5] = np.inf
        graph.theta[7] = graph.theta[6]
    fast = graph.census
    slow = census_by_rows(graph.connected, n_users)
    assert np.array_equal(fast.degree, slow.degree)
    assert np.array_equal(fast.key, slow.key)
    some = np.arange(0, n_users, 5)
    for user, members in zip(some, graph.neighbourhoods(some), strict=True):
        assert np.array_equal(members, graph.neighbours(user))


def test_a_pair_exactly_on_the_threshold_is_decided_as_in_its_row():
    graph = points(1, 600)
    u, v = 17, 411
    graph.gamma[:] = graph.distances(u)[v] + graph.allowances(u)[v]
    fast = graph.census
    assert fast.exact >= 1
    assert np.array_equal(fast.degree, census_by_rows(graph.connected, 600).degree)


def test_each_pair_is_tested_once_and_few_twice(rng):
    graph = Graph(rng.standard_normal((768, 8)), rng.uniform(1, 1.1, 768), np.full(768, 5.0), 1.0, np.ones(768, bool))
    counted = graph.census
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
    fast = census_by_tiles(graph.theta, graph.gamma - take, take, graph.joined, mutual)
    slow = census_by_rows(graph.connected, 60)
    assert np.array_equal(fast.degree, slow.degree)
    assert np.array_equal(fast.key, slow.key)
    if far == 1.0:
        assert fast.exact < 60 * 60 / 5


@pytest.mark.parametrize("less", [1e-6, 1e-8, 1e-12])
def test_thresholds_of_about_nothing_are_decided_exactly(less):
    theta, radius = np.array([[0.0, 0.0], [0.0, 0.0], [5.0, 0.0], [-3.0, 0.0]]), np.array([0.7, 0.3 - less, 0.5, 0.5])
    graph = Graph(theta, radius, np.ones(4), 1.0, np.ones(4, dtype=bool))
    assert graph.census.degree.tolist() == [2, 2, 1, 1]
    alike = Graph(np.zeros((3, 2)), np.array([3e17, 4e17, 2e17]), np.full(3, 1.9e18), 1.0, np.ones(3, dtype=bool))
    assert alike.census.degree.tolist() == [3, 3, 3]


def test_pairs_in_doubt_are_not_all_held_at_once(rng):
    """Two tight groups far apart: float32 cannot decide any pair within them."""
    theta = np.repeat([[0.0, 0.0], [1.0, 0.0]], 1000, axis=0) + 1e-4 * rng.standard_normal((2000, 2))
    graph = Graph(theta, np.zeros(2000), np.full(2000, 2e-4), 1.0, np.ones(2000, dtype=bool))
    points(1, 600).census  # noqa: B018 - compiled
    tracemalloc.start()
    counted = graph.census
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(counted.degree, census_by_rows(graph.connected, 2000).degree)
    assert counted.exact > 900_000
    assert peak < 24 * 2**20


def test_the_graph_does_not_depend_on_threads():
    results = []
    for n_jobs in (1, 3):
        with threads(n_jobs):
            results.append(points(2, 1500).census)
    assert np.array_equal(results[0].key, results[1].key)
    assert np.array_equal(results[0].degree, results[1].degree)


@given(seed=st.integers(0, 300))
def test_distinct_neighbourhoods_are_found_by_their_keys(seed):
    graph = points(seed, 30, d=1)
    first, which = graph.distinct
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


def test_no_matrix_of_all_pairs_is_made():
    with threads(1):
        assert allocated(lambda: points(3, 4000).census) < 4000**2 / 4  # a byte per pair would be four times that
    assert allocated(lambda: points(3, 4000).neighbours(7)) < 4000 * 8 * 40


def test_nobody_is_looked_at_where_nobody_reaches_anybody(monkeypatch):
    users = people(3, [4] * 300, 2)
    graph = Graph(np.zeros((300, 2)), np.ones(300), np.zeros(300), 1.0, np.ones(300, dtype=bool))
    monkeypatch.setattr(Graph, "neighbours", None)  # would fail if it were called
    assert graph.census.tested == 0
    assert np.array_equal(pool_neighbourhoods(users, graph, ridge=1.0), graph.theta)
