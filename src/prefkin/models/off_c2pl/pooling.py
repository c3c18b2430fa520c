"""A neighbourhood's rows → one sharper estimate. Each distinct neighbourhood is fitted once  [paper: pool]."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray, above_zero
from prefkin.data.rows import UserRows
from prefkin.inference.many import fit_sets
from prefkin.inference.sets import Sets
from prefkin.models.off_c2pl.graph import Graph

__all__ = ["distinct_sets", "pool_estimates", "pool_neighbourhoods"]


def pool_neighbourhoods(users: UserRows, graph: Graph, *, ridge: float) -> FloatArray:
    """θ̃_u of everybody, shape (U, d): somebody alone keeps the own estimate, bit for bit."""
    theta, (some, which) = graph.theta.copy(), graph.distinct
    shared = np.flatnonzero(graph.census.degree > 1)
    if len(shared):
        several = np.unique(which[shared])
        found = np.empty((len(some), users.dim))
        found[several] = pool_estimates(users, graph.neighbourhoods(some[several]), graph.theta, ridge=ridge)
        theta[shared] = found[which[shared]]
    return theta


def pool_estimates(users: UserRows, neighbourhoods: Iterable[IntArray], own: FloatArray, *, ridge: float) -> FloatArray:
    """θ̃ from the rows of everybody in each neighbourhood given, one row each.

    A neighbourhood of one is that user's own estimate, bit for bit.
    """
    sets, which = distinct_sets(neighbourhoods)
    counts = users.counts
    theta = np.array([counts[s] @ own[s] / above_zero(counts[s].sum()) for s in sets])
    alone = [i for i, s in enumerate(sets) if len(s) == 1]
    several = [i for i, s in enumerate(sets) if len(s) > 1]
    theta[alone] = own[[sets[i][0] for i in alone]]
    if several:
        joined = Sets.of(users.starts, [sets[i] for i in several])
        theta[several] = fit_sets(users.rows, joined, ridge=ridge, start=theta[several], label="pooled estimates")
    return theta[which]


def distinct_sets(neighbourhoods: Iterable[IntArray]) -> tuple[list[IntArray], IntArray]:
    """The distinct neighbourhoods and, for each user, which one is theirs; only the distinct ones are kept.

    >>> sets, which = distinct_sets([np.array([0, 1]), np.array([0, 1]), np.array([2])])
    >>> [s.tolist() for s in sets], which.tolist()
    ([[0, 1], [2]], [0, 0, 1])
    """
    seen: dict[bytes, int] = {}
    sets: list[IntArray] = []
    which = []
    for members in neighbourhoods:
        which.append(seen.setdefault(members.tobytes(), len(sets)))
        if which[-1] == len(sets):
            sets.append(members)
    return sets, np.array(which, dtype=np.intp)
