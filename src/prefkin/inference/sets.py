"""Sets of rows of one table, as what they are made of: parcels, such as a user's rows or a fold of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prefkin.data.arrays import IntArray
from prefkin.data.rows import Rows

__all__ = ["Sets"]


@dataclass(frozen=True, eq=False)
class Sets:
    """Sets of parcels: set s has parcel[pointer[s]:pointer[s + 1]]; parcel p is rows starts[p]:starts[p + 1].

    >>> sets = Sets.of(np.array([0, 2, 4, 9]), [np.array([0, 2]), np.array([1])])
    >>> sets.sizes.tolist(), len(sets.rows(Rows(np.zeros((9, 1)), np.zeros(9), np.ones(9)), 0).y)
    ([7, 2], 7)
    """

    starts: IntArray
    parcel: IntArray
    pointer: IntArray

    @classmethod
    def of(cls, starts: IntArray, members: Sequence[IntArray]) -> Sets:
        """Sets given as lists of parcels."""
        parcel = np.concatenate([np.empty(0, dtype=np.intp), *members])
        return cls(starts, parcel, np.concatenate([[0], np.cumsum([len(some) for some in members])]).astype(np.intp))

    @classmethod
    def each(cls, starts: IntArray) -> Sets:
        """Every parcel by itself."""
        return cls(starts, np.arange(len(starts) - 1), np.arange(len(starts)))

    def __len__(self) -> int:
        return len(self.pointer) - 1

    def some(self, which: IntArray) -> Sets:
        """Those of these numbers, in ascending order."""
        if len(which) == len(self):
            return self
        return Sets.of(self.starts, [self.members(s) for s in which])

    @property
    def sizes(self) -> IntArray:
        """Rows per set."""
        before = np.concatenate([[0], np.cumsum(np.diff(self.starts)[self.parcel])])
        sizes: IntArray = before[self.pointer[1:]] - before[self.pointer[:-1]]
        return sizes

    def members(self, s: int) -> IntArray:
        """The parcels of one set."""
        return self.parcel[self.pointer[s] : self.pointer[s + 1]]

    def rows(self, table: Rows, s: int) -> Rows:
        """The rows of one set."""
        ranges = [slice(self.starts[p], self.starts[p + 1]) for p in self.members(s)]
        return Rows.join([Rows(*(part[own] for part in table)) for own in ranges or [slice(0)]])
