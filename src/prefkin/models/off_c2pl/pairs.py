"""The connection test for all pairs of users at once, in memory linear in the users.

Squared distances come from float32 matrix products, a tile of users against another; pairs too near the threshold for
float32 are decided by the exact test. Nothing is kept of a pair but what its two users count: how many neighbours each
has, and a key that is equal for equal neighbourhoods.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray, above_zero
from prefkin.execution.executor import for_each
from prefkin.inference import _kernels

__all__ = ["Census", "census_by_rows", "census_by_tiles", "nearest_pair", "user_codes"]

TILE = 384  # users: a tile of products stays in the second cache, its rows in different sets of it
SLACK = 4e-6  # relative error allowed to float32 distances; nearer pairs are tested exactly
SAMPLE, ANCHORS = 512, 16  # users looked at, and taken, to put those alike beside each other
PAIRS_AT_ONCE = 2**16  # tested exactly in one call


class Census(NamedTuple):
    """What all rows of the graph say, a few numbers each."""

    degree: IntArray  # (U,) neighbours, oneself included
    key: IntArray  # (U,) equal for equal neighbourhoods
    tested: int  # pairs whose distance was computed
    exact: int  # pairs that needed the exact test


def user_codes(n_users: int) -> tuple[IntArray, IntArray]:
    """Two fixed odd-looking numbers per user; a neighbourhood's key is their sum."""
    codes = np.random.default_rng(20_240_817).integers(-(2**31), 2**31, size=(2, n_users), dtype=np.int64)
    return codes[0].astype(np.int32), codes[1].astype(np.int32)


def census_by_rows(connected: Callable[[int], BoolArray], n_users: int) -> Census:
    """By the exact test, one user after the other."""
    one, other = user_codes(n_users)

    def row(user: int) -> tuple[int, int, int]:
        near = connected(user)
        with np.errstate(over="ignore"):
            return int(near.sum()), int(one[near].sum(dtype=np.int32)), int(other[near].sum(dtype=np.int32))

    counted = np.array(for_each(row, range(n_users), label="graph"), dtype=np.int64).reshape(-1, 3)
    return Census(counted[:, 0].astype(np.intp), _joined(counted[:, 1], counted[:, 2]), n_users * n_users, 0)


def _joined(one: Any, other: Any) -> IntArray:
    return (one.astype(np.int64) << 32) ^ (other.astype(np.int64) & 0xFFFFFFFF)


def census_by_tiles(
    theta: FloatArray,
    reach: FloatArray,
    take: FloatArray,
    exact: Callable[[IntArray, IntArray], BoolArray],
    mutual: bool = False,
) -> Census:
    """u is joined to v when ‖θ_u − θ_v‖ < reach_u − take_v; `exact(u, v)` decides pairs in doubt.

    `mutual`: reach_u + take_u is the same for everybody, so that edges go both ways.
    """
    n_users = len(theta)
    members = np.flatnonzero(np.isfinite(take))  # a user about whom nothing is known has no neighbours
    if len(members) == 0 or not reach[members].max() > take[members].min():  # nobody reaches anybody
        return Census(np.ones(n_users, dtype=np.intp), _joined(*user_codes(n_users)), 0, 0)
    members = members[_alike_beside(theta, members)]
    tiles = _Tiles.of(theta[members], reach[members], take[members])
    codes = [code[members] for code in user_codes(n_users)]
    edges = np.append(np.arange(0, len(members), TILE), len(members))
    totals, lock = np.zeros((3, len(members)), dtype=np.int32), Lock()

    def decide(pairs: Any, counted: Any) -> None:
        """Count those in doubt who are joined."""
        joined = pairs[exact(members[pairs[:, 0]], members[pairs[:, 1]])]
        np.add.at(counted[0], joined[:, 0], 1)
        for count, code in zip(counted[1:], codes, strict=True):
            np.add.at(count, joined[:, 0], code[joined[:, 1]])

    def band(at: int) -> tuple[int, int]:
        """The users of tile number `at` against all, or against those from that tile on: pairs tested, and exactly."""
        counted = np.zeros_like(totals)
        doubtful, waiting = np.empty((TILE * TILE, 2), dtype=np.int32), list[Any]()
        room = np.empty(TILE * TILE, dtype=np.float32)
        tested = in_doubt = 0
        rows = slice(edges[at], edges[at + 1])
        for column in range(at if mutual else 0, len(edges) - 1):
            columns = slice(edges[column], edges[column + 1])
            shape = rows.stop - rows.start, columns.stop - columns.start
            excess = np.matmul(tiles.ask[rows], tiles.give[columns].T, out=room[: shape[0] * shape[1]].reshape(shape))
            both = mutual and column > at
            filled = _kernels.connect_tile(
                excess, rows.start, columns.start, *tiles.bounds, both, *codes, *counted, doubtful
            )
            tested += excess.size
            waiting += [doubtful[:filled].copy(), doubtful[: filled * both, ::-1].copy()]
            if sum(map(len, waiting)) > PAIRS_AT_ONCE or column == len(edges) - 2:
                pairs = np.concatenate(waiting)
                for some in np.array_split(pairs, len(pairs) // PAIRS_AT_ONCE + 1):
                    decide(some, counted)
                in_doubt, waiting = in_doubt + len(pairs), []
        with lock:
            np.add(totals, counted, out=totals)
        return tested, in_doubt

    found = for_each(band, range(len(edges) - 1), label="graph")
    tested, in_doubt = (sum(each) for each in zip(*found, strict=True))
    degree, one, other = np.ones(n_users, dtype=np.intp), *user_codes(n_users)  # everybody's own neighbour
    degree[members] += totals[0]
    one[members] += totals[1]
    other[members] += totals[2]
    return Census(degree, _joined(one, other), tested, in_doubt)


def _alike_beside(theta: FloatArray, members: IntArray) -> IntArray:
    """An order that puts users near the same of a few far-apart ones together: then most tiles hold no edge at all."""
    some = theta[members[:: -(-len(members) // SAMPLE)]]
    anchors, apart = some[:1], np.full(len(some), np.inf)
    for _ in range(ANCHORS - 1):
        apart = np.minimum(apart, ((some - anchors[-1]) ** 2).sum(axis=1))
        anchors = np.vstack([anchors, some[np.argmax(apart)]])
    nearest = np.argmax(theta @ anchors.T - 0.5 * (anchors**2).sum(axis=1), axis=1)[members]
    return np.argsort(nearest, kind="stable")


class _Tiles(NamedTuple):
    """The connection test as one float32 product and one comparison.

    (reach_u − take_v)² − ‖θ_u − θ_v‖² = reach_u² − ‖θ_u‖² + (2θ_u, −2 reach_u, 1) · (θ_v, take_v, take_v² − ‖θ_v‖²).
    """

    ask: FloatArray  # (U, d + 2) the first factor
    give: FloatArray  # (U, d + 2) the second, made larger by the error a product with it may have
    bounds: tuple[FloatArray, ...]  # below the first no edge; above the second and twice the third an edge; reach; take

    @classmethod
    def of(cls, theta: FloatArray, reach: FloatArray, take: FloatArray) -> _Tiles:
        points = theta - theta.mean(axis=0)
        square = np.einsum("ij,ij->i", points, points)
        # float32 keeps differences best when the common part of the radii is gone and what decides nothing is cut off:
        # who takes more than anyone reaches, who reaches less than anyone takes, who reaches everybody
        farthest = take.max() + 3.0 * float(np.sqrt(square.max())) + 1.0
        wide = np.clip(reach, take.min(), farthest)
        narrow = np.minimum(take, wide.max())
        middle = np.median(narrow)
        wide, narrow = wide - middle, narrow - middle
        unit = np.sqrt(max(square.max(), (wide**2).max(), (narrow**2).max())) or 1.0
        square, wide, narrow = square / unit**2, wide / unit, narrow / unit
        error = SLACK * (square + wide**2 + narrow**2) + 1e-35  # what is smaller, float32 may lose
        floor = square - wide**2
        ask, give = np.empty((2, len(points), points.shape[1] + 2), dtype=np.float32)
        np.multiply(points, 1.0 / unit, out=give[:, :-2], casting="same_kind")
        np.multiply(give[:, :-2], 2.0, out=ask[:, :-2])
        ask[:, -2], ask[:, -1] = -2.0 * wide, 1.0
        give[:, -2], give[:, -1] = narrow, narrow**2 - square + error
        # a threshold of about 0 is in doubt, whatever its sign in float32
        slightly_more, slightly_less = wide + 4e-7 * np.abs(wide) + 1e-37, narrow - 4e-7 * np.abs(narrow)
        bounds = (floor - error, floor + error, 2.0 * error, slightly_more, slightly_less)
        return cls(ask, give, tuple(each.astype(np.float32) for each in bounds))


def nearest_pair(theta: FloatArray, extra: FloatArray) -> tuple[int, int] | None:
    """The pair u < v with the least ‖θ_u − θ_v‖ + extra_u + extra_v; None when there is none with finite extras.

    Users are looked at in the order of the coordinate in which they differ most: who is further apart in that alone
    than the best pair so far need not be looked at.

    >>> nearest_pair(np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0.0, 0.0, 0.0, 2.0]))
    (0, 1)
    """
    members = np.flatnonzero(np.isfinite(extra))
    if len(members) < 2:
        return None
    axis = int(np.argmax(theta[members].var(axis=0)))
    members = members[np.argsort(theta[members, axis], kind="stable")]
    centred = theta[members] - theta[members].mean(axis=0)
    line = centred[:, axis]
    beyond = extra[members] - extra[members].min()
    unit = above_zero(max(np.abs(centred).max(), beyond.max()))  # so that float32 does not overflow
    points = (centred / unit).astype(np.float32)
    square = np.einsum("ij,ij->i", points, points)
    more = (beyond / unit).astype(np.float32)
    best, pair = np.inf, (-1, -1)
    for top in range(0, len(members), TILE):
        for left in range(top, len(members), TILE):
            if left > top and line[left] - line[top + TILE - 1] > best * (1.0 + 1e-9):
                break
            rows, columns = slice(top, top + TILE), slice(left, left + TILE)
            size = square[rows, None] + square[columns]
            apart = size - np.float32(2.0) * (points[rows] @ points[columns].T) - np.float32(SLACK) * size
            # at least this much: what float32 may have added is taken off
            needed = np.sqrt(np.maximum(apart, 0.0)) + (more[rows, None] + more[columns]) * np.float32(1.0 - 1e-6)
            if top == left:
                needed[np.tril_indices(len(needed))] = np.inf
            if needed.min() == np.inf or not needed.min() <= best / unit:
                continue
            lowest = np.unravel_index([int(np.argmin(needed))], needed.shape)
            for near in (lowest, None):  # the lowest first: with it few are left to look at
                some = np.nonzero(needed <= best / unit * (1.0 + 1e-6)) if near is None else near
                one, other = np.sort([members[some[0] + top], members[some[1] + left]], axis=0)
                exact = np.linalg.norm(theta[other] - theta[one], axis=1)
                exact += (extra[one] - extra[members].min()) + (extra[other] - extra[members].min())
                for total, u, v in zip(exact.tolist(), one.tolist(), other.tolist(), strict=True):
                    if total < best or (total == best and (u, v) < pair):
                        best, pair = total, (u, v)
    return pair if np.isfinite(best) else None
