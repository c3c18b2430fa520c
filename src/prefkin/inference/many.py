"""Many estimates at once: of every user, of neighbourhoods, of folds, with any ridge and towards any centre.

Rows are cut into *parcels* (a user's rows, or a fold of them); a set is some parcels. Sets that share nothing are
gathered and descended one by one by compiled kernels, so that an estimate does not depend on who else is there. Sets
that share parcels are fitted together, each parcel read once for all of them (`shared`). Both work in float32, are
checked in float64 against `loss.TOLERANCE`, and what they do not solve is `fit_preference`'s.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.data.rows import Rows, UserRows
from prefkin.execution.executor import for_each
from prefkin.inference import _kernels
from prefkin.inference.estimate import fit_preference
from prefkin.inference.loss import TOLERANCE
from prefkin.inference.sets import Sets
from prefkin.inference.shared import fit_shared, worth_sharing

__all__ = ["estimate_users", "fit_sets"]

FLAT = 3e-5  # of the gradient at 0: so far float32 goes; then Newton steps
REFINED = 1e-3  # of a gradient is left by such a Newton step, in float32 again
CONFIRMED = 0.03  # likewise, when it is about to be the last: its length counts, and what it leaves is far less
NEARLY = 1e-3  # of an estimate's length: a Newton step that long leaves less than is asked for
REFINEMENTS = 4  # such steps at most
COMPILING = "prefkin: compiling its inner loops, once after installation (some seconds)"
LANES = 16  # float32 numbers in a cache line
VECTOR = 8  # float32 numbers in a vector of the machine: rows are filled up to whole ones
TOGETHER = 4  # rows that kernels take at once: sets are filled up
CHUNK_NUMBERS = 2**20  # numbers that are gathered before they are descended, 4 MB


def estimate_users(users: UserRows, *, ridge: float) -> FloatArray:
    """θ̂_u from each user's own rows, shape (U, d)  [paper: theta_hat]."""
    return fit_sets(users.rows, Sets.each(users.starts), ridge=ridge, label="own estimates")


def fit_sets(
    rows: Rows,
    sets: Sets,
    *,
    ridge: float | FloatArray,
    centre: FloatArray | None = None,
    start: FloatArray | None = None,
    label: str = "estimates",
) -> FloatArray:
    """One estimate for each set, shape (sets, d), each to `loss.TOLERANCE`.

    `ridge` is one number or one for each set, `centre` (sets, d) what estimates are drawn towards (0 unless given) and
    `start` (sets, d) where to begin (the centre unless given).
    """
    shape = len(sets), rows.Z.shape[1]
    penalty = np.zeros(shape[0]) + ridge
    towards = np.zeros(shape) if centre is None else np.asarray(centre, dtype=np.float64)
    begin = towards if start is None else np.asarray(start, dtype=np.float64)
    theta, left = np.array(begin), np.arange(len(sets))
    _announce_compiling()
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows in float32 is not solved
        for fit in (fit_shared, _fit_each) if worth_sharing(sets) else (_fit_each,):
            near = theta[left]
            solved = fit(rows, sets.some(left), penalty[left], towards[left], near, label)
            theta[left[solved]], left = near[solved], left[~solved]

    def plainly(s: int) -> FloatArray:
        near = begin[s] if np.isfinite(begin[s]).all() else towards[s]
        return fit_preference(sets.rows(rows, s), ridge=float(penalty[s]), centre=towards[s], start=near)

    if len(left):
        theta[left] = for_each(plainly, left.tolist(), label=label)
    return theta


@cache
def _announce_compiling() -> None:
    """Say so when the first use of the kernels is about to take long."""
    if not _kernels.compiled_before():
        print(COMPILING, file=sys.stderr, flush=True)


def _fit_each(
    rows: Rows, sets: Sets, ridge: FloatArray, centre: FloatArray, theta: FloatArray, label: str
) -> BoolArray:
    """Estimates of sets that are fitted one by one into `theta`, which holds the starts; which ones were solved."""
    wide = -(-theta.shape[1] // VECTOR) * VECTOR
    padded = -(-sets.sizes // TOGETHER) * TOGETHER
    solved = np.zeros(len(sets), dtype=bool)

    def fit(some: slice) -> None:
        solved[some] = _Chunk(rows, sets, some, wide, padded[some]).fit(ridge[some], centre[some], theta[some])

    for_each(fit, _chunks(padded * wide), label=label)
    return solved


def _chunks(cost: IntArray) -> list[slice]:
    """Stretches of sets of about `CHUNK_NUMBERS` each."""
    edges = np.flatnonzero(np.diff(np.cumsum(cost) // CHUNK_NUMBERS)) + 1
    return [slice(a, b) for a, b in zip([0, *edges.tolist()], [*edges.tolist(), len(cost)], strict=True) if b > a]


class _Chunk:
    """Some sets, gathered."""

    def __init__(self, rows: Rows, sets: Sets, some: slice, wide: int, padded: IntArray) -> None:
        self.n_sets, self.wide = some.stop - some.start, wide
        self.begun = np.concatenate([[0], np.cumsum(padded)])
        total = int(self.begun[-1])
        self.numbers, self.weights, self.by_row = aligned(total, wide), aligned(total), aligned(4, total)
        pointer = sets.pointer[some.start : some.stop + 1]
        parcel = sets.parcel[pointer[0] : pointer[-1]]
        sizes = sets.starts[parcel + 1] - sets.starts[parcel]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        own = np.repeat(sets.starts[parcel] - ends[:-1], sizes) + np.arange(ends[-1])
        self.rows = *(_sealed(part) for part in rows), own, ends[pointer - pointer[0]]

    def fit(self, ridge: FloatArray, centre: FloatArray, theta: FloatArray) -> BoolArray:
        """Estimates into `theta`; whether each one is within the tolerance, by the rows as given."""
        d = theta.shape[1]
        whole, zero, x, tilt = np.zeros((4, self.n_sets, self.wide))
        _kernels.gather(*self.rows, ridge, self.begun, self.numbers, self.weights, whole, zero)
        root, penalty = whole[:, :d], ridge[:, None] * whole**2
        limit = FLAT * np.abs((zero[:, :d] - ridge[:, None] * centre) * root).max(axis=1)
        start = np.zeros_like(x, dtype=np.float32)
        start[:, :d], x[:, :d] = theta / root, -centre / root
        self._descend(penalty, limit, start, tilt, x, linear=False)
        theta[:] = centre + root * x[:, :d]
        return np.asarray((self._refine(ridge, centre, theta, root, penalty) <= TOLERANCE) & np.isfinite(limit))

    def _refine(
        self, ridge: FloatArray, centre: FloatArray, theta: FloatArray, root: FloatArray, penalty: FloatArray
    ) -> FloatArray:
        """Newton steps by conjugate gradients, without a matrix: how long the last ones were, relatively."""
        d, left = theta.shape[1], np.full(self.n_sets, np.inf)
        tilt, step = np.zeros((2, self.n_sets, self.wide))
        start = np.zeros((self.n_sets, self.wide), dtype=np.float32)
        for _ in range(REFINEMENTS):
            slope, far = self._exact(ridge, centre, theta)
            tilt[:, :d] = slope * root
            start[:], step[:] = 0.0, 0.0
            part = np.where(left <= NEARLY, CONFIRMED, REFINED)
            limit = np.where(left <= TOLERANCE, np.inf, part * np.abs(tilt).max(axis=1))
            passes = self._descend(penalty, limit, start, tilt, step, linear=True)
            theta += root * step[:, :d]
            moved, whole = np.linalg.norm(step, axis=1), np.linalg.norm(theta / root, axis=1)
            still = np.where(tilt.any(axis=1), np.inf, 0.0)  # no step although there is a slope: not solved
            length = np.divide(moved, whole, out=still, where=moved > 0.0)
            left = np.where(left <= TOLERANCE, left, length)
            left[~(far <= _kernels.FAR) | (passes >= _kernels.MOST_PASSES)] = np.inf
            if (left <= TOLERANCE).all():
                break
        return left

    def _descend(
        self, penalty: FloatArray, limit: FloatArray, start: Any, tilt: FloatArray, x: FloatArray, linear: bool
    ) -> IntArray:
        """Conjugate gradients into `x`; how many passes over the rows each set took."""
        gathered = self.numbers, self.weights, self.begun
        room = self.by_row, np.zeros((3, self.wide)), aligned(self.wide)
        passes = np.zeros(self.n_sets, dtype=np.int64)
        _kernels.descend(*gathered, penalty, limit, start, tilt, x, *room, passes, linear)
        return passes

    def _exact(self, ridge: FloatArray, centre: FloatArray, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradients in float64, of the rows as given; and how far any margin is from what float32 found."""
        slope, far = ridge[:, None] * (theta - centre), np.empty(self.n_sets)
        _kernels.add_gradients(*self.rows, self.begun, self.by_row, theta, slope, far)
        return slope, far


def _sealed(part: FloatArray) -> FloatArray:
    """A view that cannot be written: kernels are compiled for that alone, whatever the caller may do with its array."""
    view = part.view()
    view.flags.writeable = False
    return view


def aligned(*shape: int) -> Any:
    """Float32 zeros at the start of a cache line: vectors across two lines are read at half the speed."""
    size = int(np.prod(shape))
    raw = np.zeros(size + LANES, dtype=np.float32)
    skip = (-(raw.ctypes.data // 4)) % LANES
    return raw[skip : skip + size].reshape(shape)
