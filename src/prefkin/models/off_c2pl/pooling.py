"""A neighbourhood's rows → one sharper estimate. Each distinct neighbourhood is fitted once  [paper: pool]."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.rows import UserRows
from prefkin.inference.compiled import RELATIVE_GRADIENT, RowSets, compiled_kernels
from prefkin.inference.estimate import fit_sets, fitting_seconds
from prefkin.inference.overlapping import fit_overlapping, worth_sharing

__all__ = ["distinct_sets", "pool_estimates"]


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


def pool_estimates(
    users: UserRows, neighbourhoods: Iterable[IntArray], own: FloatArray, *, ridge: float, n_jobs: int | None = None
) -> FloatArray:
    """θ̃ from the rows of everybody in each neighbourhood given, one row each.

    A neighbourhood of one is that user's own estimate, bit for bit.
    """
    sets, which = distinct_sets(neighbourhoods)
    counts = users.counts
    start = np.array([counts[s] @ own[s] / max(counts[s].sum(), 1e-300) for s in sets])
    alone = [i for i, s in enumerate(sets) if len(s) == 1]
    theta, several = start, [i for i, s in enumerate(sets) if len(s) > 1]
    theta[alone] = own[[sets[i][0] for i in alone]]
    if several:
        theta[several] = _fit_several(users, [sets[i] for i in several], start[several], ridge, n_jobs)
    return theta[which]


def _fit_several(
    users: UserRows, sets: list[IntArray], start: FloatArray, ridge: float, n_jobs: int | None
) -> FloatArray:
    theta, left = start.copy(), np.ones(len(sets), dtype=bool)
    sizes = np.add.reduceat(np.diff(users.starts)[np.concatenate(sets)], np.cumsum([0, *map(len, sets[:-1])]))
    kernels = compiled_kernels(fitting_seconds(sizes, users.dim))
    if kernels is not None and worth_sharing(sets, len(users), users.dim):
        shared, reached, _ = fit_overlapping(
            kernels, users, sets, start, ridge=ridge, tol=RELATIVE_GRADIENT, n_jobs=n_jobs
        )
        theta[reached], left = shared[reached], ~reached
    if left.any():
        rest = RowSets.of_users([sets[i] for i in np.flatnonzero(left)], users.starts)
        theta[left] = fit_sets(users.rows, rest, start[left], ridge=ridge, label="pooled estimates", n_jobs=n_jobs)
    return theta
