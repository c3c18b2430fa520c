"""All pairs that could be asked about, as one table that the sessions about the same candidates share."""

from __future__ import annotations

from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.decide.rules.pairs import Pairs, Question

__all__ = ["MOST_PAIRS", "Pool"]

MOST_PAIRS = 20_000  # of more, so many that are spread evenly over all


class Pool:
    """Pairs of candidates i < j, and the difference of each in single precision, in units of the largest feature.

    >>> pool = Pool.of(Candidates([[[0.0], [2.0], [1.0]]]))
    >>> pool.question(1), len(pool), (pool.Z * pool.unit).tolist()
    (Question(context=0, first=0, second=2), 3, [[-2.0], [-1.0], [1.0]])
    """

    _made: ClassVar[WeakKeyDictionary[Candidates, Pool]] = WeakKeyDictionary()

    @classmethod
    def of(cls, candidates: Candidates) -> Pool:
        """Made once for the same candidates."""
        if candidates not in cls._made:
            cls._made[candidates] = cls(candidates)
        return cls._made[candidates]

    def __init__(self, candidates: Candidates) -> None:
        sizes = candidates.sizes
        pairs = sizes * (sizes - 1) // 2
        ends = np.cumsum(pairs)
        some = np.unique(np.linspace(0, ends[-1] - 1, min(int(ends[-1]), MOST_PAIRS)).round().astype(np.intp))
        context = np.searchsorted(ends, some, side="right")
        first, second = _pair_number(some - (ends - pairs)[context], sizes[context])
        rows = candidates.starts[context]
        self.unit = float(np.abs(candidates.features).max()) or 1.0
        Z = ((candidates.features[rows + first] - candidates.features[rows + second]) / self.unit).astype(np.float32)
        differ = Z.any(axis=1)  # an action and its copy: nothing to ask
        self.context: IntArray = context[differ]
        self.first: IntArray = first[differ]
        self.second: IntArray = second[differ]
        self.Z: FloatArray = np.ascontiguousarray(Z[differ])  # (pairs, d)
        self._widest = int(sizes.max())
        self._codes = self._code(self.context, self.first, self.second)

    def __len__(self) -> int:
        return len(self.context)

    def question(self, at: int, score: float = np.nan) -> Question:
        """The pair at a position."""
        return Question(int(self.context[at]), int(self.first[at]), int(self.second[at]), score)

    def open(self, closed: Pairs) -> BoolArray:
        """Which pairs may still be asked, (pairs,)."""
        found = np.ones(len(self), dtype=bool)
        shut = np.array([self._code(x, *pair) for x in closed.touched().tolist() for pair in closed.of(x)], dtype=int)
        at = np.minimum(np.searchsorted(self._codes, shut), len(self) - 1)
        found[at[self._codes[at] == shut]] = False
        return found

    def _code(self, context: IntArray | int, first: IntArray | int, second: IntArray | int) -> IntArray:
        return np.asarray((context * self._widest + first) * self._widest + second, dtype=np.int64)


def _pair_number(number: IntArray, size: IntArray) -> tuple[IntArray, IntArray]:
    """The pair i < j at this place among those of so many actions, in the order of i, then of j.

    >>> [part.tolist() for part in _pair_number(np.arange(6), np.full(6, 4))]
    [[0, 0, 0, 1, 1, 2], [1, 2, 3, 2, 3, 3]]
    """

    def before(i: IntArray) -> IntArray:
        """Pairs whose smaller action is less than i."""
        return i * (2 * size - i - 1) // 2

    i = ((2 * size - 1 - np.sqrt((2.0 * size - 1) ** 2 - 8.0 * number)) / 2).astype(np.intp)
    i -= before(i) > number  # the root may be off by its rounding
    i += before(i + 1) <= number
    return i, i + 1 + number - before(i)
