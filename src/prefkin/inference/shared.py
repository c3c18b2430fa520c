"""Estimates of sets that share parcels: each parcel is read once for all sets it belongs to.

Margins and gradients of all these sets are matrix products. With few features a parcel's loss is nearly quadratic
around a rough mean of its sets' estimates, so sums of the parcels' quadratics give both the start and the metric of a
quasi-Newton iteration (L-BFGS); with many features the metric is diagonal. Gradients are exact either way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.data.rows import Rows
from prefkin.execution.executor import for_each
from prefkin.inference import _kernels
from prefkin.inference.loss import TOLERANCE, gradient, unit_root
from prefkin.inference.sets import Sets

__all__ = ["fit_shared", "worth_sharing"]

SHARED_BY = 8.0  # sets a parcel belongs to, on average, from which reading rows once for all of them pays
FULL_METRIC = 128  # features up to which a d × d matrix per set pays
BLOCK_NUMBERS = 2**20  # in the matrices, or estimates, of the sets that are fitted together
PARCELS_AT_ONCE = 64
MOST_GRADIENTS = 200
RANDOM_ORDERS = 3
MEMORY = 8  # steps whose curvature is remembered
LINE_SLOPE = 0.9  # a step whose slope has turned by more than this was too long
CHECKED = 2  # sets of a block whose last gradient is taken in float64 too
NEARLY = 0.7  # gradients are sums of float32 products: stop this much below the tolerance


def worth_sharing(sets: Sets) -> bool:
    """Do these sets overlap enough?"""
    return len(sets.parcel) >= SHARED_BY * len(np.unique(sets.parcel))


def fit_shared(
    rows: Rows, sets: Sets, ridge: FloatArray, centre: FloatArray, theta: FloatArray, label: str
) -> BoolArray:
    """Estimates into `theta`, which holds rough ones to start from; which sets reached the tolerance."""
    d = theta.shape[1]
    per_set = d * d if d <= FULL_METRIC else 16 * d
    size = int(np.clip(BLOCK_NUMBERS // per_set, 32, 2048))
    order = _alike_together(sets)
    solved = np.zeros(len(sets), dtype=bool)

    def fit(at: int) -> None:
        some = order[at : at + size]
        members = [sets.members(s) for s in some]
        theta[some], solved[some] = _Block(rows, sets.starts, members, ridge[some], centre[some]).fit(theta[some])

    for_each(fit, range(0, len(sets), size), label=label)
    return solved


def _alike_together(sets: Sets) -> IntArray:
    """An order in which sets that share many parcels stand together.

    Two such sets have, probably, the same parcel first in one of several random orders of all parcels; sets that are
    linked in this way, even over others, follow each other.
    """
    n_parcels, rng = len(sets.starts) - 1, np.random.default_rng(0)
    first = np.empty((RANDOM_ORDERS, len(sets)), dtype=np.intp)
    for some in first:
        some[:] = np.minimum.reduceat(rng.permutation(n_parcels)[sets.parcel], sets.pointer[:-1])
    marks = len(sets) + n_parcels * np.arange(RANDOM_ORDERS)[:, None] + first
    nodes = len(sets) + n_parcels * RANDOM_ORDERS
    every = np.tile(np.arange(len(sets)), RANDOM_ORDERS)
    links = coo_array((np.ones(first.size), (every, marks.ravel())), shape=(nodes, nodes))
    linked = connected_components(links, directed=False)[1][: len(sets)]
    return np.lexsort([first[0], linked])


class _Block:
    """Some sets and the parcels in them, in features divided by their size, so that float32 has digits for all."""

    def __init__(
        self, rows: Rows, starts: IntArray, members: list[IntArray], ridge: FloatArray, centre: FloatArray
    ) -> None:
        self.members, self.n_sets, self.given, self.starts = members, len(members), rows, starts
        self.ridge, self.centre = ridge, centre
        parcel, which = np.concatenate(members), np.repeat(np.arange(self.n_sets), [len(some) for some in members])
        order = np.argsort(parcel, kind="stable")
        parcels, first = np.unique(parcel[order], return_index=True)
        belongs = np.split(which[order], first[1:])  # the sets of each parcel
        near = np.argsort([each.mean() for each in belongs], kind="stable")  # parcels of the same sets together
        self.belongs = [belongs[i] for i in near]
        own = [slice(starts[p], starts[p + 1]) for p in parcels[near]]
        squares = np.array([rows.weights[o] @ np.square(rows.Z[o], dtype=np.float64) for o in own])
        self.unit = unit_root(squares.mean(axis=0), float(ridge.min()))
        self.parts = [((rows.Z[o] * self.unit).astype(np.float32), rows.y[o], rows.weights[o]) for o in own]
        self.penalty = ridge[:, None] * self.unit**2  # λ of each set, in these features
        self.towards = centre / self.unit
        total = np.zeros_like(centre)
        for member, square in zip(self.belongs, squares * self.unit**2, strict=True):
            total[member] += square
        self.root = unit_root(total, self.penalty)

    def fit(self, start: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Quasi-Newton from the optimum of the summed quadratics, or from `start`; which were reached."""
        begin = start / self.unit
        zero = np.abs(self._gradients(np.zeros_like(begin), np.arange(self.n_sets)) * self.root).max(axis=1)
        metric = None
        if begin.shape[1] <= FULL_METRIC:
            try:
                begin, metric = self._quadratics(begin * self._length(begin))
            except np.linalg.LinAlgError:  # too few digits
                return start, np.zeros(self.n_sets, dtype=bool)
        theta, slow = self._descend(begin, metric, NEARLY * TOLERANCE * zero)
        found = theta * self.unit
        reached = np.isfinite(zero) & ~np.isin(np.arange(self.n_sets), slow)
        return found, reached & all(self._holds(found, s, zero[s]) for s in self.slowest[:CHECKED])

    def _descend(self, theta: FloatArray, metric: FloatArray | None, limit: FloatArray) -> tuple[FloatArray, IntArray]:
        """L-BFGS for all sets at once; those that it gave up."""
        active = np.arange(self.n_sets)
        slope = self._gradients(theta, active)
        steps, bends = list[FloatArray](), list[FloatArray]()
        for _ in range(MOST_GRADIENTS):
            open_ = ~(np.abs(slope * self.root[active]).max(axis=1) <= limit[active])  # also what is not a number
            self.slowest = active
            if not open_.all():
                active, slope = active[open_], slope[open_]
                steps, bends = [s[open_] for s in steps], [b[open_] for b in bends]
            if not len(active):
                return theta, active
            inverse = self.root[active] ** 2 if metric is None else metric[active]
            step = -_two_loops(slope, steps, bends, inverse)
            theta[active] += step
            fresh = self._gradients(theta, active)
            before, after = (np.einsum("ij,ij->i", each, step) for each in (slope, fresh))
            wild = np.flatnonzero(~(after <= LINE_SLOPE * -before))
            if len(wild):  # too far: to where the slope along the step vanishes, by the secant
                kept = (before[wild] / (before[wild] - after[wild]))[:, None]
                theta[active[wild]] -= (1.0 - kept) * step[wild]
                step[wild] *= kept
                fresh[wild] = self._gradients(theta, active[wild])
            steps, bends = [*steps, step][-MEMORY:], [*bends, fresh - slope][-MEMORY:]
            slope = fresh
        return theta, active

    def _holds(self, theta: FloatArray, s: int, zero: float) -> bool:
        """Does a set that took long keep the tolerance in float64? If not, float32 has too few digits for all."""
        own = np.concatenate([np.arange(self.starts[p], self.starts[p + 1]) for p in self.members[s]])
        found = gradient(theta[s], Rows(*(part[own] for part in self.given)), float(self.ridge[s]), self.centre[s])
        return bool(np.abs(found * self.unit * self.root[s]).max() <= TOLERANCE * zero)

    def _length(self, start: FloatArray) -> float:
        """Rough estimates are all too long, or too short, by about the same: the factor that suits the first set."""
        mine = [part for part, member in zip(self.parts, self.belongs, strict=True) if member[0] == 0]
        margin = np.concatenate([Z @ start[0].astype(np.float32) for Z, _, _ in mine])
        y, weights = (np.concatenate([part[k] for part in mine]) for k in (1, 2))
        factor = 1.0
        for _ in range(4):  # Newton's method in one number
            p = expit(factor * margin)
            bend = float((weights * p * (1.0 - p)) @ margin**2)
            factor -= float((weights * (p - y)) @ margin) / max(bend, np.finfo(float).tiny)
        return float(np.clip(factor, 0.5, 2.0)) if np.isfinite(factor) else 1.0

    def _quadratics(self, start: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Each set's sum of its parcels' quadratics: where it is least, and its inverse Hessian."""
        d = start.shape[1]
        bend: Any = np.zeros((self.n_sets, d * d), dtype=np.float32)
        pull: Any = self.penalty * self.towards
        for at in range(0, len(self.parts), PARCELS_AT_ONCE):
            some = range(at, min(at + PARCELS_AT_ONCE, len(self.parts)))
            in_set = np.zeros((self.n_sets, len(some)), dtype=np.float32)
            hessians = np.empty((len(some), d, d), dtype=np.float32)
            slopes = np.empty((len(some), d))
            for k, i in enumerate(some):
                (Z, y, weights), member = self.parts[i], self.belongs[i]
                middle = start[member].mean(axis=0)
                p = expit(Z @ middle.astype(np.float32))
                np.matmul(Z.T * (weights * p * (1.0 - p)).astype(np.float32), Z, out=hessians[k])
                slopes[k] = hessians[k] @ middle - (weights * (p - y)).astype(np.float32) @ Z
                in_set[member, k] = 1.0
            used = in_set.any(axis=1)
            in_set = in_set[used]
            bend[used] += in_set @ hessians.reshape(len(some), d * d)
            pull[used] += in_set @ slopes
        whole: Any = bend.reshape(self.n_sets, d, d).astype(np.float64)
        whole[:, np.arange(d), np.arange(d)] += self.penalty
        inverse: FloatArray = np.linalg.inv(whole)
        return np.einsum("sij,sj->si", inverse, pull), inverse

    def _gradients(self, theta: FloatArray, active: IntArray) -> FloatArray:
        """Exact gradients of the active sets, each parcel's rows read once."""
        place = np.full(self.n_sets, -1)
        place[active] = np.arange(len(active))
        total: Any = self.penalty[active] * (theta[active] - self.towards[active])
        light = theta[active].astype(np.float32)
        for (Z, y, weights), member in zip(self.parts, self.belongs, strict=True):
            here = member
            if len(active) < self.n_sets:
                here = place[member]
                here = here[here >= 0]
            if len(here) == 0:
                continue
            miss = Z @ np.ascontiguousarray(light[here].T)  # margins of all sets at once
            _kernels.misses(miss, y, weights)
            total[here] += miss.T @ Z
        return total


def _two_loops(slope: FloatArray, steps: list[FloatArray], bends: list[FloatArray], metric: FloatArray) -> FloatArray:
    """L-BFGS for many problems: inverse Hessian × slope from the remembered steps and the metric they start from."""
    direction = slope.copy()
    along = [np.maximum(np.einsum("ij,ij->i", s, b), np.finfo(float).tiny) for s, b in zip(steps, bends, strict=True)]
    shares = []
    for step, bend, size in zip(reversed(steps), reversed(bends), reversed(along), strict=True):
        shares.append(np.einsum("ij,ij->i", step, direction) / size)
        direction -= shares[-1][:, None] * bend
    if metric.ndim == 3:
        direction = np.einsum("sij,sj->si", metric, direction)
    else:
        direction *= metric
        if steps:  # as long as the last step says
            direction *= (along[-1] / np.einsum("ij,ij,ij->i", bends[-1], metric, bends[-1]))[:, None]
    for step, bend, size, share in zip(steps, bends, along, reversed(shares), strict=True):
        direction += (share - np.einsum("ij,ij->i", bend, direction) / size)[:, None] * step
    return direction
