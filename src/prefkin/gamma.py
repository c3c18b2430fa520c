"""Choosing the threshold γ̂: the paper's Appendix A, or by held-out likelihood; the ridge too  [paper: gamma choice]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from prefkin.comparisons import BoolArray, FloatArray, IntArray, Rows, UserRows
from prefkin.graph import Graph
from prefkin.likelihood import fit_preference, log_loss
from prefkin.pooling import pool_estimates
from prefkin.progress import for_each

__all__ = [
    "APPENDIX",
    "FOLDS",
    "RIDGES",
    "by_held_out",
    "content_folds",
    "different_users",
    "gap_bounds",
    "judges",
    "overestimate",
    "ridge_by_held_out",
    "split_rows",
    "underestimate",
]

FOLDS = 3
RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
JUDGES = 60
JOINED_FRACTIONS = (0.0, 0.02, 0.05, 0.08, 0.12, 0.17, 0.23, 0.3, 0.4, 0.55, 0.75, 1.0)


def gap_bounds(graph: Graph, user: int) -> tuple[FloatArray, FloatArray]:
    """Γ(u, v) and Γ̃(u, v): lower and upper bound on the true gap between a user and each other.

    Γ = ‖θ̂_u − θ̂_v‖ − α (CI_u + CI_v),    Γ̃ = ‖θ̂_u − θ̂_v‖ + α (CI_u + CI_v)
    """
    distance, allowance = graph.distances(user), graph.allowances(user)
    return distance - allowance, distance + allowance


def different_users(graph: Graph, user: int) -> BoolArray:
    """M(u): the others who certainly want something else, Γ(u, v) > 0."""
    lower, _ = gap_bounds(graph, user)
    different = lower > 0
    different[user] = False
    return different


def underestimate(graph: Graph, user: int) -> float:
    """γ̂ = min over M(u) of Γ(u, v), and 0 when M(u) is empty: little bias, few neighbours.

    >>> theta, radius = np.array([[0.0], [1.0], [3.0]]), np.full(3, 0.125)
    >>> points = Graph(theta, radius, np.zeros(3), 1.0, np.ones(3, bool))
    >>> underestimate(points, 0), overestimate(points, 0)
    (0.75, 1.25)
    """
    return _nearest(graph, user, bound=0)


def overestimate(graph: Graph, user: int) -> float:
    """γ̂ = min over M(u) of Γ̃(u, v), and 0 when M(u) is empty: little noise, perhaps some bias."""
    return _nearest(graph, user, bound=1)


def _nearest(graph: Graph, user: int, bound: int) -> float:
    different = different_users(graph, user)
    return float(gap_bounds(graph, user)[bound][different].min()) if different.any() else 0.0


APPENDIX = {"under": underestimate, "over": overestimate}
"""The policies of Appendix A by name: a threshold for one user, from the graph without thresholds."""


def by_held_out(
    users: UserRows,
    points: Graph,
    locate: Callable[[UserRows], Graph],
    *,
    ridge: float,
    folds: int = FOLDS,
    n_jobs: int | None = None,
) -> float:
    """One threshold for everybody: the one whose pooled estimates predict held-out answers best.

    Radii shrink with data, so a threshold found on part of the rows would be too wide on all of them. What is
    carried over is the fraction of pairs it joins: each fold tries the same fractions, the best is turned into a
    threshold on all rows. "Nobody" and "everybody" are always among the candidates; ties go to fewer edges. With very
    many users, `JUDGES` of them are asked.
    """
    if len(users) == 1:
        return 0.0
    fold_of = content_folds(users, folds)
    some = judges(users)
    loss = np.zeros(len(JOINED_FRACTIONS))
    for fold in range(folds):
        train, test = split_rows(users, fold_of != fold)
        part = locate(train)
        known: dict[float, float] = {}
        for i, threshold in enumerate(joining_thresholds(part, some)):
            if threshold not in known:
                graph = replace(part, gamma=np.full(len(part), threshold))
                members = (graph.neighbours(user) for user in some)
                pooled = pool_estimates(train, members, part.theta, ridge=ridge, n_jobs=n_jobs)
                known[threshold] = sum(log_loss(t, test.of(user)) for t, user in zip(pooled, some, strict=True))
            loss[i] += known[threshold]
    return joining_thresholds(points, some)[int(np.argmin(loss.round(9)))]


def ridge_by_held_out(users: UserRows, *, n_jobs: int | None = None) -> float:
    """The one of `RIDGES` with which each user's own estimate predicts held-out answers best; ties go to the smaller.

    >>> rows = Rows(np.eye(2)[[0, 1] * 6], np.ones(12), np.ones(12))       # certain answers need little ridge
    >>> ridge_by_held_out(UserRows(rows, np.array([0, 12]), np.array(["ann"])))
    0.1
    """
    fold_of, some = content_folds(users, FOLDS), judges(users)
    loss = np.zeros(len(RIDGES))
    for fold in range(FOLDS):
        train, test = split_rows(users, fold_of != fold)

        def losses(user: int, train: UserRows = train, test: UserRows = test) -> list[float]:
            own = [fit_preference(train.of(user), ridge=ridge) for ridge in RIDGES]
            return [log_loss(theta, test.of(user)) for theta in own]

        loss += np.sum(for_each(losses, some, label="ridge", n_jobs=n_jobs), axis=0)
    return RIDGES[int(np.argmin(loss.round(9)))]


def by_content(users: UserRows) -> IntArray:
    """Positions of users, ordered by what they answered."""
    share = np.add.reduceat(users.rows.weights * np.abs(_facing(users)), users.starts[:-1])
    return np.argsort(share, kind="stable")


def judges(users: UserRows) -> list[int]:
    """Everybody, or a spread of users by what they answered (not by their place in the table)."""
    order = by_content(users)
    chosen = order[np.linspace(0, len(order) - 1, min(JUDGES, len(order))).astype(int)]
    return sorted(int(user) for user in chosen)


def joining_thresholds(points: Graph, judges: list[int]) -> list[float]:
    """For each of `JOINED_FRACTIONS`, a threshold that joins this fraction of the judges' pairs."""
    others = np.arange(len(points))
    needed = [
        (points.distances(u) + points.allowances(u))[points.enough & ((others > u) | ~np.isin(others, judges))]
        for u in judges
        if points.enough[u]
    ]
    pairs = np.sort(np.concatenate(needed)) if needed else np.empty(0)
    # midway to the next pair, so that rounding cannot join it; above the last one for everybody
    steps = np.concatenate([[0.0], (pairs[1:] + pairs[:-1]) / 2, np.nextafter(pairs[-1:], np.inf)])
    return [float(steps[round(fraction * len(pairs))]) for fraction in JOINED_FRACTIONS]


def content_folds(users: UserRows, folds: int) -> IntArray:
    """A fold for each row, decided by what the row says: neither the order of rows nor a seed matters.

    Rows of one context stay together when contexts are known; otherwise each user's rows are spread evenly.
    """
    key = np.abs(_facing(users))  # the same for a pair and its mirror image, also where their last digits differ:
    key = np.round(key / max(float(key.max()), 1e-300), 10)
    if users.contexts is not None:
        largest = np.full(users.contexts.max() + 1, -np.inf)
        np.maximum.at(largest, users.contexts, key)
        return (np.argsort(np.argsort(largest, kind="stable"), kind="stable") % folds)[users.contexts]
    fold_of = np.empty(len(key), dtype=np.intp)
    for user in range(len(users)):
        own = slice(users.starts[user], users.starts[user + 1])
        fold_of[own] = np.unique(key[own], return_inverse=True)[1] % folds  # copies of a row stay together
    return fold_of


def _facing(users: UserRows) -> FloatArray:
    """Each row along one direction that tells rows apart."""
    Z = users.rows.Z
    along = Z @ np.cos(np.arange(1, users.dim + 1)).astype(Z.dtype)  # of one type: nothing is copied
    return along.astype(np.float64, copy=False)


def split_rows(users: UserRows, training: BoolArray) -> tuple[UserRows, UserRows]:
    """Training and test rows; everybody stays, perhaps with no rows."""

    def part(chosen: BoolArray) -> UserRows:
        before = np.concatenate([[0], np.cumsum(chosen)]).astype(np.intp)
        rows = Rows(*(column[chosen] for column in users.rows))
        return UserRows(rows, before[users.starts], users.labels)

    return part(training), part(~training)
