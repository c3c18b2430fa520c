"""A neighbourhood's rows → one sharper estimate. Each distinct neighbourhood is fitted once  [paper: pool]."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from prefkin.comparisons import FloatArray, IntArray, UserRows
from prefkin.likelihood import fit_preference
from prefkin.progress import for_each

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

    def fit(members: IntArray) -> FloatArray:
        if len(members) == 1:
            return own[members[0]]
        counts = users.counts[members]
        start = counts @ own[members] / max(counts.sum(), 1e-300)
        return fit_preference(users.of_many(members), ridge=ridge, start=start)

    sets, which = distinct_sets(neighbourhoods)
    return np.array(for_each(fit, sets, label="pooled estimates", n_jobs=n_jobs))[which]
