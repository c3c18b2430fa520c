"""Which rows are about the same topic, where only differences of features are known.

Where people compared a with b, b with c and a with c, one row is the sum of two others: (a − b) + (b − c) = a − c. Rows
of embeddings have no such sums unless items recur, so that rows which close a triangle, directly or through others,
belong together. (Which item is which, differences do not tell: a triangle and its mirror image have the same ones.)
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from prefkin.data.arrays import FloatArray, IntArray, above_zero

__all__ = ["topics_of_differences"]

SIGHTS = 6  # directions along which rows are compared: so many do not agree by chance
CLOSE = 2e-6  # of the longest row: what float32 leaves of a sum
PROBES, HITS = 16, 2  # rows looked at first, and how many of them must be sides of triangles to look at others
EFFORT = 10**8  # rows looked at, times rows: a few seconds


def topics_of_differences(Z: FloatArray) -> IntArray | None:
    """A number for each row, (n,), equal for rows that hang together by triangles; None where there are none.

    Equal rows and mirror images have the same number. What rows say decides, not their order.

    >>> items = np.random.default_rng(0).normal(size=(40, 5))
    >>> pairs = np.array([(8 * topic + a, 8 * topic + b) for topic in range(5) for a in range(8) for b in range(a)])
    >>> topics = topics_of_differences(items[pairs[:, 0]] - items[pairs[:, 1]])
    >>> sorted(np.unique(pairs[topics == topic] // 8).tolist() for topic in range(5))
    [[0], [1], [2], [3], [4]]
    >>> topics_of_differences(items) is None
    True
    """
    seen = _sights(Z)
    order = np.argsort(seen[:, 0], kind="stable")
    begins = np.ones(len(seen), dtype=bool)
    begins[1:] = (np.abs(np.diff(seen[order], axis=0)) > CLOSE).any(axis=1)
    row = np.empty(len(seen), dtype=np.intp)
    row[order] = np.cumsum(begins) - 1
    links = _links(seen[order][begins])
    if links is None:
        return None
    m = int(row.max()) + 1
    graph = coo_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(m, m))
    topics: IntArray = connected_components(graph, directed=False)[1][row].astype(np.intp)
    return topics


def _sights(Z: FloatArray) -> FloatArray:
    """Rows along a few directions, each row turned so that the first is not negative; the longest is 1."""
    unit = np.maximum(Z.max(axis=0), -Z.min(axis=0))  # without another copy of all rows
    columns, along = np.arange(1.0, Z.shape[1] + 1), np.arange(SIGHTS)
    directions = np.cos(np.outer(columns, np.sqrt(along + 2.0)) + along)
    seen = Z @ (directions / np.where(unit > 0, unit, 1.0)[:, None]).astype(Z.dtype)
    seen = seen.astype(np.float64) / above_zero(np.abs(seen).max())
    return np.where(seen[:, :1] < 0, -seen, seen)


def _links(seen: FloatArray) -> IntArray | None:
    """Pairs of rows that are sides of one triangle, enough to hold together what does; rows in order of sight."""
    m = len(seen)
    spread = np.argsort(np.arange(m) * 0.6180339887498949 % 1.0, kind="stable")  # each part of them fills the range
    spread = spread[seen[spread, 0] > CLOSE]
    probed = [_triangles(seen, int(i)) for i in spread[:PROBES]]
    if sum(len(sides) > 0 for sides in probed) < HITS:
        return None
    found, linked = probed, np.zeros(m, dtype=bool)
    for sides in probed:
        linked[sides] = True
    left = EFFORT // m
    for i in spread[PROBES:].tolist():
        if linked[i]:
            continue
        sides = _triangles(seen, i)
        found.append(sides)
        linked[sides] = True
        left -= 1
        if left <= 0:
            break
    sides = np.concatenate(found)
    return np.concatenate([sides[:, :2], sides[:, 1:]])


def _triangles(seen: FloatArray, i: int) -> IntArray:
    """Triangles with a side i, (k, 3)."""
    first = seen[:, 0]
    longer = _sums(seen, i, 1.0, int(np.searchsorted(first, first[-1] - first[i] + CLOSE)))  # i + j = k
    shorter = _sums(seen, i, -1.0, int(np.searchsorted(first, 0.5 * first[i] + CLOSE)))  # i - j = k
    sides = np.concatenate([longer, shorter])
    sides = np.column_stack([np.full(len(sides), i), sides])
    return sides[(sides != np.roll(sides, 1, axis=1)).all(axis=1)]


def _sums(seen: FloatArray, i: int, sign: float, end: int) -> IntArray:
    """Pairs (j, k), j before `end`, for which i + sign j = k."""
    first, j = seen[:, 0], np.arange(end)
    wanted = first[i] + sign * first[:end]
    k = np.searchsorted(first, wanted - CLOSE)
    found = [np.empty((0, 2), dtype=np.intp)]
    while len(j):
        near = k < len(first)
        near[near] = first[k[near]] <= wanted[near] + CLOSE
        j, k, wanted = j[near], k[near], wanted[near]
        equal = (np.abs(seen[i] + sign * seen[j] - seen[k]) <= CLOSE).all(axis=1)
        found.append(np.column_stack([j[equal], k[equal]]))
        k = k + 1
    return np.concatenate(found)
