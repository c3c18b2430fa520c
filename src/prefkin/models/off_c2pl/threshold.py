"""Choosing the threshold γ̂: the paper's Appendix A, or by held-out likelihood; the ridge too  [paper: gamma choice]."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray
from prefkin.data.folds import probe_users, splits_of
from prefkin.data.rows import UserRows
from prefkin.inference.held_out import best_option
from prefkin.models.off_c2pl.graph import Graph
from prefkin.models.off_c2pl.pooling import pool_estimates

__all__ = [
    "APPENDIX",
    "JOINED_FRACTIONS",
    "by_held_out",
    "different_users",
    "gap_bounds",
    "overestimate",
    "underestimate",
]

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
) -> float:
    """One threshold for everybody: the one whose pooled estimates predict held-out answers best.

    Radii shrink with data, so a threshold found on part of the rows would be too wide on all of them. What is
    carried over is the fraction of pairs it joins: each fold tries the same fractions, the best is turned into a
    threshold on all rows. "Nobody" and "everybody" are always among the candidates; ties go to fewer edges. With very
    many users, some of them are asked (`probe_users`).
    """
    if len(users) == 1:
        return 0.0
    some = probe_users(users)
    margins: list[list[FloatArray]] = [[] for _ in JOINED_FRACTIONS]
    weights: list[FloatArray] = []
    for split in splits_of(users):
        train, test = split.parts(users)
        part = locate(train)
        graphs = [part.under(gamma) for gamma in joining_thresholds(part, some)]
        members = (graph.neighbours(user) for graph in graphs for user in some)
        pooled = pool_estimates(train, members, part.theta, ridge=ridge).reshape(len(graphs), len(some), -1)
        for k, user in enumerate(some):
            own = test.of(user)
            weights.append(own.weights)
            for option, signed in zip(margins, (own.signed() @ pooled[:, k].T).T, strict=True):
                option.append(signed)
    best, _ = best_option([np.concatenate(option) for option in margins], np.concatenate(weights))
    return joining_thresholds(points, some)[best]


def joining_thresholds(points: Graph, asked: list[int], fractions: Sequence[float] = JOINED_FRACTIONS) -> list[float]:
    """For each of `fractions`, a threshold that joins this fraction of the pairs of those asked."""
    others = np.arange(len(points))
    needed = [
        (points.distances(u) + points.allowances(u))[points.enough & ((others > u) | ~np.isin(others, asked))]
        for u in asked
        if points.enough[u]
    ]
    pairs = np.sort(np.concatenate(needed)) if needed else np.empty(0)
    # midway to the next pair, so that rounding cannot join it; above the last one for everybody
    steps = np.concatenate([[0.0], (pairs[1:] + pairs[:-1]) / 2, np.nextafter(pairs[-1:], np.inf)])
    return [float(steps[round(fraction * len(pairs))]) for fraction in fractions]
