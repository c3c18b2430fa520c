"""When compiled code is worth loading, and the loops over users that use it.

numba takes half a second to load, and seconds to compile on the first use ever (it keeps the result on disk). So it is
loaded only where the plain numpy code would take longer; that depends on the size of the work alone, never on what ran
before, so that equal calls give equal results. Without numba everything runs all the same, slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from threading import local
from typing import Any

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.data.rows import Rows
from prefkin.execution.executor import for_each

__all__ = ["RELATIVE_GRADIENT", "RowSets", "compiled_kernels", "fit_compiled", "refit_compiled"]

WORTH_LOADING = 3.0  # seconds of plain numpy
RELATIVE_GRADIENT = 1e-6  # compiled estimates: max|gradient| is at most this times max|gradient at 0|
TOGETHER = 16  # sets fitted side by side, if there are as many with at most so many features and numbers:
TOGETHER_FEATURES, TOGETHER_NUMBERS = 64, 2**14
WORTH_TOGETHER = (
    2**24
)  # numbers in all of them: with fewer, a tenth of a second is not worth one more kernel to compile
TILED_FEATURES = 192  # more features than this: conjugate gradients inside Newton's method
TILED_NUMBERS = 2**23  # likewise for sets of more numbers than this (64 MB), which are not copied
CANCELLED = 3e-5  # of what the gradient at 0 could have been: if it is less, float64 sums it up
CHUNK_NUMBERS = 2**20  # numbers in the rows of sets that are handed to one thread at a time


@cache
def _load() -> Any:
    try:
        return import_module("prefkin.inference.kernels")
    except ImportError:  # no numba, or one that does not fit this numpy
        return None


def compiled_kernels(seconds: float) -> Any:
    """The module of compiled kernels if plain numpy would take long, else None.

    >>> compiled_kernels(0.1) is None
    True
    """
    return _load() if seconds >= WORTH_LOADING else None


@dataclass(frozen=True, eq=False)
class RowSets:
    """Sets of rows of one table: set s owns the ranges first[k]:last[k], k from pointer[s] to pointer[s + 1].

    >>> sets = RowSets.of_users([np.array([0, 1, 3])], np.array([0, 2, 4, 5, 9]))
    >>> sets.first.tolist(), sets.last.tolist(), sets.sizes.tolist()
    ([0, 5], [4, 9], [8])
    """

    first: IntArray
    last: IntArray
    pointer: IntArray

    def __len__(self) -> int:
        return len(self.pointer) - 1

    @classmethod
    def of_users(cls, members: list[IntArray], starts: IntArray) -> RowSets:
        """The rows of each set of users, of whom user u owns starts[u]:starts[u + 1]; neighbours share one range."""
        first, last, pointer = [], [], [0]
        for users in members:
            breaks = np.flatnonzero(np.diff(users) != 1) + 1
            first.append(starts[users[np.concatenate([[0], breaks])]])
            last.append(starts[users[np.concatenate([breaks - 1, [-1]])] + 1])
            pointer.append(pointer[-1] + len(first[-1]))
        return cls(np.concatenate(first), np.concatenate(last), np.array(pointer))

    @property
    def sizes(self) -> IntArray:
        """Rows per set."""
        before = np.concatenate([[0], np.cumsum(self.last - self.first)])
        sizes: IntArray = before[self.pointer[1:]] - before[self.pointer[:-1]]
        return sizes

    def rows(self, table: Rows, s: int) -> Rows:
        """The rows of one set; a view when they are one range."""
        ranges = range(self.pointer[s], self.pointer[s + 1])
        return Rows.join([Rows(*(part[self.first[k] : self.last[k]] for part in table)) for k in ranges])


def refit_compiled(kernels: Any, rows: Rows, known: int, theta: FloatArray, *, ridge: float) -> FloatArray:
    """Estimates from the first known + 1, known + 2, ... rows, one row each, every one from the last; NaN from the
    first on that fails."""
    Z, y, weights = rows
    d, side = Z.shape[1], 2.0 * y - 1.0
    light = kernels.aligned(Z.size).reshape(Z.shape)
    with np.errstate(over="ignore"):
        np.copyto(light, Z, casting="same_kind")
    squares, zero, work = np.zeros(d), np.zeros(d), np.zeros(4, dtype=np.int64)
    kernels.note_rows(light[:known], side[:known], weights[:known], squares, zero)
    trail = np.full((len(y) - known, d), np.nan)
    current = np.array(theta, dtype=np.float64)
    for k in range(len(trail)):
        end = known + k + 1
        kernels.note_rows(light[end - 1 : end], side[end - 1 : end], weights[end - 1 : end], squares, zero)
        _mend_zero(Z[:end], side[:end], weights[:end], squares, zero)
        work[3] = 0
        for solve in (kernels.quasi_newton, kernels.newton_cg):
            if not work[3]:
                some = Z[:end], light[:end], side[:end], weights[:end]
                solve(*some, squares, zero, ridge, RELATIVE_GRADIENT, current, work)
        if not work[3]:
            break
        trail[k] = current
    return trail


def _mend_zero(Z: Any, side: FloatArray, weights: FloatArray, squares: FloatArray, zero: FloatArray) -> None:
    """The gradient at 0, by which the tolerance is measured, anew in float64 where float32 sums nearly cancelled."""
    if not np.abs(zero).max() > CANCELLED * np.sqrt(weights.sum() * squares.max()):
        zero[:] = -0.5 * (side * weights) @ Z.astype(np.float64, copy=False)


def fit_compiled(
    kernels: Any, rows: Rows, sets: RowSets, theta: FloatArray, *, ridge: float, label: str, n_jobs: int | None
) -> BoolArray:
    """Estimates of all sets into `theta`, which holds the starts; for each set whether the tolerance was reached."""
    Z, y, weights = rows
    sizes, d = sets.sizes, Z.shape[1]
    work = np.zeros((len(sets), 4), dtype=np.int64)
    numbers = sizes * d
    tiled = (d <= TILED_FEATURES) & (numbers <= TILED_NUMBERS)
    small = (d <= TOGETHER_FEATURES) & (numbers <= TOGETHER_NUMBERS)
    if small.sum() < TOGETHER or numbers[small].sum() < WORTH_TOGETHER:
        small[:] = False
    own = local()

    def side_by_side(some: IntArray) -> None:
        kernels.descend_together(
            Z, y, weights, sets.first, sets.last, sets.pointer, some, ridge, RELATIVE_GRADIENT, theta, work
        )
        for s in some.tolist():
            if not work[s, 3]:
                alone(s, s + 1)

    def alone(begin: int, end: int) -> None:
        if tiled[begin]:
            kernels.descend(
                Z, y, weights, sets.first, sets.last, sets.pointer, begin, end, ridge, RELATIVE_GRADIENT, theta, work
            )
        for s in range(begin, end):  # many features, or more digits needed than float32 has
            if not work[s, 3]:
                one(s)

    def one(s: int) -> None:
        table, answers, scale = sets.rows(rows, s)
        light = table
        if table.dtype != np.float32:
            if not hasattr(own, "room") or own.room.size < table.size:
                own.room = kernels.aligned(table.size)
            light = own.room[: table.size].reshape(table.shape)
            with np.errstate(over="ignore"):  # seen by the kernel, which then says that it has not solved it
                np.copyto(light, table, casting="same_kind")
        side, squares, zero = 2.0 * answers - 1.0, np.zeros(d), np.zeros(d)
        kernels.note_rows(light, side, scale, squares, zero)
        _mend_zero(table, side, scale, squares, zero)
        for solve in (kernels.quasi_newton, kernels.newton_cg):
            if not work[s, 3]:
                solve(table, light, side, scale, squares, zero, ridge, RELATIVE_GRADIENT, theta[s], work[s])

    jobs = [partial(side_by_side, some) for some in _crowds(sizes, small, d)]
    jobs += [partial(alone, begin, end) for begin, end in _stretches(np.where(tiled, numbers, CHUNK_NUMBERS), ~small)]
    for_each(lambda job: job(), jobs, label=label, n_jobs=n_jobs)
    reached: BoolArray = work[:, 3] > 0
    return reached


def _crowds(sizes: IntArray, small: BoolArray, d: int) -> list[IntArray]:
    """The small sets in the order of their sizes, so that those side by side have about as many rows; in chunks."""
    order = np.flatnonzero(small)
    order = order[np.argsort(sizes[order], kind="stable")]
    crowd = np.arange(len(order)) // TOGETHER
    chunk = np.cumsum(sizes[order] * d + 1)[crowd * TOGETHER] // CHUNK_NUMBERS
    return np.split(order, np.flatnonzero(np.diff(chunk)) + 1) if len(order) else []


def _stretches(cost: IntArray, chosen: BoolArray) -> list[tuple[int, int]]:
    """Begin and end of stretches of the chosen sets, of about equal cost; a costly set is one by itself."""
    begins: list[int] = []
    ends: list[int] = []
    chunk = np.cumsum(cost) // CHUNK_NUMBERS
    for s in np.flatnonzero(chosen).tolist():
        if not ends or ends[-1] != s or chunk[s] != chunk[begins[-1]] or cost[s] >= CHUNK_NUMBERS:
            begins.append(s)
            ends.append(s)
        ends[-1] = s + 1
    return list(zip(begins, ends, strict=True))
