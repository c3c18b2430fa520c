"""Estimates of sets that share parcels: each parcel is read once for all sets it belongs to.

Margins and gradients of all these sets are matrix products. With few features a parcel's loss is nearly quadratic
around a rough mean of its sets' estimates, so sums of the parcels' quadratics give both the start and the metric of a
quasi-Newton iteration (L-BFGS); with many features the metric is diagonal. Gradients are exact either way: in float32
until steps are short, then in float64 until they are shorter than what `loss.TOLERANCE` promises.
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
from prefkin.inference.loss import unit_root
from prefkin.inference.sets import Sets

__all__ = ["fit_shared", "worth_sharing"]

SHARED_BY = 8.0  # sets a parcel belongs to, on average, from which reading rows once for all of them pays
FULL_METRIC = 128  # features up to which a d × d matrix per set pays
BLOCK_NUMBERS = 2**20  # in the matrices, or estimates, of the sets that are fitted together
PARCELS_AT_ONCE = 64
MOST_GRADIENTS = 60  # of each kind; what is left then is left to Newton's method, one set at a time
RANDOM_ORDERS = 3
MEMORY = 8  # steps whose curvature is remembered
LINE_SLOPE = 0.9  # a step whose slope has turned by more than this was too long
ROUGHLY = 1e-3  # of an estimate's length: how short a step is when float32 has done its part
CLOSE = 1e-7  # of an estimate's length: how short the step is that is not taken any more
CLOSER = 1e-8  # the same with a diagonal metric, by which steps are shorter than they should be


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
        self.n_sets, self.given = len(members), rows
        parcel, which = np.concatenate(members), np.repeat(np.arange(self.n_sets), [len(some) for some in members])
        order = np.argsort(parcel, kind="stable")
        parcels, first = np.unique(parcel[order], return_index=True)
        belongs = np.split(which[order], first[1:])  # the sets of each parcel
        near = np.argsort([each.mean() for each in belongs], kind="stable")  # parcels of the same sets together
        self.belongs = [belongs[i] for i in near]
        self.own = [slice(starts[p], starts[p + 1]) for p in parcels[near]]
        squares = np.array([rows.weights[o] @ np.square(rows.Z[o], dtype=np.float64) for o in self.own])
        self.unit = unit_root(squares.mean(axis=0), float(ridge.min()))
        self.parts = [((rows.Z[o] * self.unit).astype(np.float32), rows.y[o], rows.weights[o]) for o in self.own]
        self.penalty = ridge[:, None] * self.unit**2  # λ of each set, in these features
        self.towards = centre / self.unit
        total = np.zeros_like(centre)
        for member, square in zip(self.belongs, squares * self.unit**2, strict=True):
            total[member] += square
        self.root = unit_root(total, self.penalty)

    def fit(self, start: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Quasi-Newton from the optimum of the summed quadratics, or from `start`; which were reached."""
        begin, metric, close = start / self.unit, None, CLOSER
        theta = begin.copy()
        if begin.shape[1] <= FULL_METRIC:
            try:
                theta, metric = self._quadratics(begin * self._length(begin), np.float32)
                theta, _ = self._descend(theta, metric, np.float32, ROUGHLY)
                theta = np.where(np.isfinite(theta), theta, begin)
                metric, close = self._quadratics(theta, np.float64)[1], CLOSE
            except np.linalg.LinAlgError:  # too few digits
                return start, np.zeros(self.n_sets, dtype=bool)
        else:
            theta, _ = self._descend(theta, None, np.float32, ROUGHLY)
            theta = np.where(np.isfinite(theta), theta, begin)
        theta, left = self._descend(theta, metric, np.float64, close)
        return theta * self.unit, ~np.isin(np.arange(self.n_sets), left)

    def _descend(
        self, theta: FloatArray, metric: FloatArray | None, digits: type[np.floating[Any]], close: float
    ) -> tuple[FloatArray, IntArray]:
        """L-BFGS for all sets at once, until steps are as short as `close` says; those that it gave up."""
        active = np.arange(self.n_sets)
        slope = self._gradients(theta, active, digits)
        steps, bends = list[FloatArray](), list[FloatArray]()
        for _ in range(MOST_GRADIENTS):
            step = -_two_loops(slope, steps, bends, self.root[active] ** 2 if metric is None else metric[active])
            size, length = (np.linalg.norm(v / self.root[active], axis=1) for v in (step, theta[active] + step))
            open_ = ~(size <= close * length)  # also what is not a number
            if not open_.all():
                active, slope, step = active[open_], slope[open_], step[open_]
                steps, bends = [s[open_] for s in steps], [b[open_] for b in bends]
            if not len(active):
                break
            theta[active] += step
            fresh = self._gradients(theta, active, digits)
            before, after = (np.einsum("ij,ij->i", each, step) for each in (slope, fresh))
            wild = np.flatnonzero(~(after <= LINE_SLOPE * -before))
            if len(wild):  # too far: to where the slope along the step vanishes, by the secant
                kept = (before[wild] / (before[wild] - after[wild]))[:, None]
                theta[active[wild]] -= (1.0 - kept) * step[wild]
                step[wild] *= kept
                fresh[wild] = self._gradients(theta, active[wild], digits)
            steps, bends = [*steps, step][-MEMORY:], [*bends, fresh - slope][-MEMORY:]
            slope = fresh
        return theta, active

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

    def _quadratics(self, start: FloatArray, digits: type[np.floating[Any]]) -> tuple[FloatArray, FloatArray]:
        """Each set's sum of its parcels' quadratics: where it is least, and its inverse Hessian."""
        d = start.shape[1]
        bend: Any = np.zeros((self.n_sets, d * d), dtype=digits)
        pull: Any = self.penalty * self.towards
        for at in range(0, len(self.parts), PARCELS_AT_ONCE):
            some = range(at, min(at + PARCELS_AT_ONCE, len(self.parts)))
            in_set = np.zeros((self.n_sets, len(some)), dtype=digits)
            hessians = np.empty((len(some), d, d), dtype=digits)
            slopes = np.empty((len(some), d))
            for k, i in enumerate(some):
                (Z, y, weights), member = self._part(i, digits), self.belongs[i]
                middle = start[member].mean(axis=0)
                margin = Z @ middle.astype(digits)
                np.matmul(Z.T * (weights * expit(margin) * expit(-margin)).astype(digits), Z, out=hessians[k])
                slopes[k] = hessians[k] @ middle - (weights * (expit(margin) - y)).astype(digits) @ Z
                in_set[member, k] = 1.0
            used = in_set.any(axis=1)
            in_set = in_set[used]
            bend[used] += in_set @ hessians.reshape(len(some), d * d)
            pull[used] += in_set @ slopes
        whole: Any = bend.reshape(self.n_sets, d, d).astype(np.float64)
        whole[:, np.arange(d), np.arange(d)] += self.penalty
        inverse: FloatArray = np.linalg.inv(whole)
        return np.einsum("sij,sj->si", inverse, pull), inverse

    def _part(self, i: int, digits: type[np.floating[Any]]) -> tuple[Any, FloatArray, FloatArray]:
        """A parcel's rows: as they are kept, or with all of their digits."""
        if digits is np.float32:
            return self.parts[i]
        return self.given.Z[self.own[i]] * self.unit, *self.parts[i][1:]

    def _gradients(self, theta: FloatArray, active: IntArray, digits: type[np.floating[Any]]) -> FloatArray:
        """Exact gradients of the active sets, each parcel's rows read once."""
        place = np.full(self.n_sets, -1)
        place[active] = np.arange(len(active))
        total: Any = self.penalty[active] * (theta[active] - self.towards[active])
        light = theta[active].astype(digits)
        for i, member in enumerate(self.belongs):
            here = member
            if len(active) < self.n_sets:
                here = place[member]
                here = here[here >= 0]
            if len(here) == 0:
                continue
            Z, y, weights = self._part(i, digits)
            miss = Z @ np.ascontiguousarray(light[here].T)  # margins of all sets at once
            if digits is np.float32:
                _kernels.misses(miss, y, weights)
            else:
                side = (1.0 - 2.0 * y)[:, None]  # σ(m) − y = side · σ(side · m), written so that it vectorises
                miss *= -side
                np.exp(miss, out=miss)
                miss += 1.0
                np.divide(side * weights[:, None], miss, out=miss)
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
