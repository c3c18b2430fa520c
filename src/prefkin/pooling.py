"""A neighbourhood's rows → one sharper estimate. Each distinct neighbourhood is fitted once  [paper: pool]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prefkin.comparisons import FloatArray, IntArray, UserRows
from prefkin.likelihood import fit_preference
from prefkin.progress import for_each

__all__ = ["distinct_sets", "pool_estimates"]


def distinct_sets(neighbourhoods: Sequence[IntArray]) -> tuple[list[IntArray], IntArray]:
    """The distinct neighbourhoods and, for each user, which one is theirs.

    >>> sets, which = distinct_sets([np.array([0, 1]), np.array([0, 1]), np.array([2])])
    >>> [s.tolist() for s in sets], which.tolist()
    ([[0, 1], [2]], [0, 0, 1])
    """
    seen: dict[bytes, int] = {}
    which = [seen.setdefault(members.tobytes(), len(seen)) for members in neighbourhoods]
    first = np.unique(which, return_index=True)[1]
    return [neighbourhoods[i] for i in first], np.array(which, dtype=np.intp)


def pool_estimates(
    users: UserRows,
    neighbourhoods: Sequence[IntArray],
    own: FloatArray,
    *,
    ridge: float,
    n_jobs: int | None = None,
) -> FloatArray:
    """θ̃_u from the rows of everybody in u's neighbourhood, shape (U, d).

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
