"""Users' rows (2y − 1) z, in the units in which preferences are sought."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray, above_zero
from prefkin.data.rows import UserRows

__all__ = ["SINGLE_FROM", "Signed", "per_user_sum"]

SINGLE_FROM = 256  # features: from here single precision holds rows and matrices, in half the memory; sums stay double


@dataclass(frozen=True, eq=False)
class Signed:
    """Users' rows (2y − 1) z, as if the first action had always been preferred; one user's after another's."""

    X: FloatArray  # (n, d)
    weights: FloatArray  # (n,)
    starts: IntArray  # (U + 1,) user u owns rows starts[u]:starts[u + 1]
    offset: FloatArray | None = None  # (n,) of each margin, by what preferences have no part in
    repeated: FloatArray | None = None  # (n,) how often a user gave each answer, in all rows; None: rows are distinct

    @classmethod
    def of_users(cls, users: UserRows, root: FloatArray | float = 1.0) -> Signed:
        """With each feature multiplied by a number of its own, (d,), or all by a matrix, (d, r)."""
        Z, y, weights = users.rows
        sign = np.where(weights > 0.0, 2.0 * y - 1.0, 0.0)  # a row that counts for nothing has no margin to look at
        step, by_matrix = 1 << 10, np.ndim(root) == 2
        r = np.shape(root)[1] if by_matrix else users.dim
        X = np.empty((len(Z), r), np.float32 if r >= SINGLE_FROM else np.float64)
        for rows in (slice(start, start + step) for start in range(0, len(Z), step)):
            if by_matrix:
                X[rows] = (Z[rows] * sign[rows, None]) @ root
            else:
                np.multiply(Z[rows], sign[rows, None] * root, out=X[rows], casting="same_kind")
        offset = None if users.habits is None else sign * users.habits[users.owner]
        return cls(X, weights, users.starts, offset, users.repeated)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.X.shape[1]

    @property
    def total(self) -> FloatArray:
        """How often each answer was given, (n,)."""
        return self.weights if self.repeated is None else self.repeated

    @property
    def answers(self) -> FloatArray:
        """How many different answers users gave, (U,): one given several times counts once, of weight 0 not at all."""
        return per_user_sum(self.weights / above_zero(self.total), self.starts)

    @cached_property
    def sizes(self) -> FloatArray:
        """‖x‖² of each row, (n,)."""
        return np.einsum("ij,ij->i", self.X, self.X).astype(np.float64)

    def own(self, user: int) -> slice:
        """Where a user's rows are."""
        return slice(int(self.starts[user]), int(self.starts[user + 1]))

    def rows_of(self, users: Sequence[int] | IntArray) -> IntArray:
        """Where the rows of some users are."""
        return np.concatenate([np.arange(self.starts[u], self.starts[u + 1]) for u in users])

    def some(self, users: Sequence[int] | IntArray) -> Signed:
        """A few of the users."""
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[np.asarray(users)])]).astype(np.intp)
        rows = self.rows_of(users)
        return self._at(rows, starts)

    def between(self, users: slice) -> Signed:
        """Users at consecutive positions, as views."""
        first, last, _ = users.indices(len(self))
        rows = slice(int(self.starts[first]), int(self.starts[last]))
        return self._at(rows, self.starts[first : last + 1] - self.starts[first])

    def _at(self, rows: slice | IntArray, starts: IntArray) -> Signed:
        offset, repeated = (None if each is None else each[rows] for each in (self.offset, self.repeated))
        return Signed(self.X[rows], self.weights[rows], starts, offset, repeated)


def per_user_sum(values: FloatArray, starts: IntArray) -> FloatArray:
    """Σ over each user's stretch of `values`; 0 for an empty stretch.

    >>> per_user_sum(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3])).tolist()
    [3.0, 0.0, 4.0]
    """
    total = np.zeros((len(starts) - 1, *values.shape[1:]))
    used = np.flatnonzero(np.diff(starts))
    if used.size:
        total[used] = np.add.reduceat(values, starts[used], axis=0)
    return total
