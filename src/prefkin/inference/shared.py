"""Estimates of sets that share parcels: each parcel is read once for all sets it belongs to.

Margins and gradients of all these sets are matrix products. With few features a parcel's loss is nearly quadratic
around a rough mean of its sets' estimates, so sums of the parcels' quadratics give both the start and the metric of a
quasi-Newton iteration (L-BFGS); with many features the metric is diagonal. Gradients are exact either way: in float32
until steps are about as short as `loss.TOLERANCE` asks, then in float64, mostly once. Sets for which that is hard, few
rows for their features or rows that count very differently, are given up: one by one they take less time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from prefkin.data.arrays import BoolArray, FloatArray, IntArray, above_zero
from prefkin.data.rows import Rows
from prefkin.execution.blas import single_threaded
from prefkin.execution.executor import for_each
from prefkin.execution.progress import tell
from prefkin.inference import _kernels
from prefkin.inference.loss import unit_root
from prefkin.inference.sets import Sets

__all__ = ["fit_shared", "worth_sharing"]

SHARED_BY = 8.0  # sets a parcel belongs to, on average, from which reading rows once for all of them pays
FULL_METRIC = 128  # features up to which a d × d matrix per set pays
BLOCK_NUMBERS = 2**22  # in the matrices, or estimates, of the sets that are fitted together
STRETCH = 512  # parcels that one thread goes through
MOST_GRADIENTS = 40  # of each kind; what is left then is hard
RANDOM_ORDERS = 3
MEMORY = 8  # steps whose curvature is remembered
TURNED = 0.9  # a step whose slope has turned by more than this was too long
SHRINKS = 0.5, 0.9  # by how much steps become shorter, if by more or less than this, is not believed
ROUGHLY = 3e-7  # of an estimate's length: how little steps to come would move it when float32 has done its part
MOST_LIGHT = 16  # gradients in float32; who needs more is hard
CLOSE = 1e-7  # as ROUGHLY, when all is done
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
    size = int(np.clip(BLOCK_NUMBERS // per_set, 32, 4096))
    order = _alike_together(sets)
    solved = np.zeros(len(sets), dtype=bool)
    with single_threaded():
        for at in range(0, len(sets), size):
            tell(label, at, len(sets))
            some = order[at : at + size]
            block = _Block(rows, sets.starts, [sets.members(s) for s in some], ridge[some], centre[some])
            theta[some], solved[some] = block.fit(theta[some])
    tell(label, len(sets), len(sets))
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
        begin, every = start / self.unit, np.arange(self.n_sets)
        theta, metric, close, most = begin.copy(), self.root**2, CLOSER, MOST_GRADIENTS
        if begin.shape[1] <= FULL_METRIC:
            close, most = CLOSE, MOST_LIGHT
            try:
                theta, metric = self._quadratics(begin * self._length(begin))
            except np.linalg.LinAlgError:  # too few digits
                return start, np.zeros(self.n_sets, dtype=bool)
        steps = _Steps(metric)
        hard = self._descend(theta, every, steps, np.float32, ROUGHLY, most)
        left = self._descend(theta, np.setdiff1d(every, hard), steps, np.float64, close, MOST_GRADIENTS)
        theta = np.where(np.isfinite(theta), theta, begin)
        return theta * self.unit, ~np.isin(every, np.concatenate([hard, left]))

    def _descend(
        self,
        theta: FloatArray,
        active: IntArray,
        steps: _Steps,
        digits: type[np.floating[Any]],
        close: float,
        most: int,
    ) -> IntArray:
        """L-BFGS for all active sets at once, until steps to come are as short as `close` says; those it gave up."""
        slope = self._gradients(theta, active, digits)
        for _ in range(most):
            step = steps.next(active, slope)
            theta[active] += step
            size, length = (np.linalg.norm(v / self.root[active], axis=1) for v in (step, theta[active]))
            if digits is np.float64:  # what is remembered of float32 may be rounding, which makes steps too short
                plain = steps.by_metric(active, slope)
                size = np.maximum(size, np.linalg.norm(plain / self.root[active], axis=1))
            shrinks = np.clip(size / steps.last[active], *SHRINKS)
            open_ = ~(size * shrinks / (1.0 - shrinks) <= close * length)  # also what is not a number
            steps.last[active] = size
            if not open_.all():
                active, slope, step = active[open_], slope[open_], step[open_]
            if not len(active):
                break
            fresh = self._gradients(theta, active, digits)
            before, after = (np.einsum("ij,ij->i", each, step) for each in (slope, fresh))
            wild = np.flatnonzero(~(after <= TURNED * -before))
            if len(wild):  # too far: to where the slope along the step vanishes, by the secant
                kept = (before[wild] / (before[wild] - after[wild]))[:, None]
                theta[active[wild]] -= (1.0 - kept) * step[wild]
                step[wild] *= kept
                fresh[wild] = self._gradients(theta, active[wild], digits)
            steps.remember(active, step, fresh - slope)
            slope = fresh
        return active

    def _length(self, start: FloatArray) -> float:
        """Rough estimates are all too long, or too short, by about the same: the factor that suits the first set."""
        mine = [part for part, member in zip(self.parts, self.belongs, strict=True) if member[0] == 0]
        margin = np.concatenate([Z @ start[0].astype(np.float32) for Z, _, _ in mine])
        y, weights = (np.concatenate([part[k] for part in mine]) for k in (1, 2))
        factor = 1.0
        for _ in range(4):  # Newton's method in one number
            p = expit(factor * margin)
            bend = float((weights * p * (1.0 - p)) @ margin**2)
            factor -= float((weights * (p - y)) @ margin) / float(above_zero(bend))
        return float(np.clip(factor, 0.5, 2.0)) if np.isfinite(factor) else 1.0

    def _quadratics(self, start: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Each set's sum of its parcels' quadratics: where it is least, and its inverse Hessian."""
        d = start.shape[1]
        bend, pull = np.zeros((self.n_sets, d * d)), self.penalty * self.towards
        for some in _stretches(len(self.parts), max(16, BLOCK_NUMBERS // (4 * d * d))):
            used, place = np.unique(np.concatenate([self.belongs[i] for i in some]), return_inverse=True)
            parcel = np.repeat(np.arange(len(some)), [len(self.belongs[i]) for i in some])
            in_set = csr_array((np.ones(len(place)), (place, parcel)), shape=(len(used), len(some)))
            middles = in_set.T @ start[used] / in_set.sum(axis=0)[:, None]
            hessians, slopes = np.empty((len(some), d, d)), np.empty((len(some), d))
            for i, middle, hessian, slope in zip(some, middles, hessians, slopes, strict=True):
                Z, y, weights = self._part(i, np.float64)
                p = expit(Z @ middle)
                np.matmul(Z.T * (weights * p * (1.0 - p)), Z, out=hessian)
                slope[:] = hessian @ middle - (weights * (p - y)) @ Z
            bend[used] += in_set @ hessians.reshape(len(some), d * d)
            pull[used] += in_set @ slopes
        whole = bend.reshape(self.n_sets, d, d)
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
        light = theta[active].astype(digits)

        def of(parcels: range) -> FloatArray:
            total = np.zeros((len(active), theta.shape[1]))
            for i in parcels:
                here = self.belongs[i]
                if len(active) < self.n_sets:
                    here = place[here]
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

        ridge = self.penalty[active] * (theta[active] - self.towards[active])
        return sum(for_each(of, _stretches(len(self.parts), STRETCH)), ridge)


def _stretches(n: int, size: int) -> list[range]:
    return [range(at, min(at + size, n)) for at in range(0, n, size)]


class _Steps:
    """L-BFGS for many sets: a metric, d × d each or diagonal, steps they took, and how gradients changed with them."""

    def __init__(self, metric: FloatArray) -> None:
        self.metric = metric
        self.factor = np.ones(len(metric))  # of a diagonal metric: as long as the last step says
        self.last = np.full(len(metric), np.inf)  # how long the last step of each was
        self.taken: list[tuple[FloatArray, FloatArray]] = []

    def remember(self, active: IntArray, step: FloatArray, bend: FloatArray) -> None:
        """A step of some sets; that of the others is 0."""
        pair = np.zeros((2, len(self.metric), step.shape[1]))
        pair[:, active] = step, bend
        self.taken = [*self.taken, (pair[0], pair[1])][-MEMORY:]
        if self.metric.ndim == 2:
            self.factor[active] = _along(step, bend) / np.einsum("ij,ij,ij->i", bend, self.metric[active], bend)

    def by_metric(self, active: IntArray, slope: FloatArray) -> FloatArray:
        """Metric × slope."""
        metric = self.metric[active]
        if metric.ndim == 3:
            return np.asarray(np.einsum("sij,sj->si", metric, slope))
        return np.asarray(slope * metric * self.factor[active, None])

    def next(self, active: IntArray, slope: FloatArray) -> FloatArray:
        """−(inverse Hessian) × slope, from the metric and what is remembered."""
        direction, shares = -slope, []
        pairs = [(step[active], bend[active]) for step, bend in self.taken]
        along = [_along(step, bend) for step, bend in pairs]
        for (step, bend), size in zip(reversed(pairs), reversed(along), strict=True):
            shares.append(np.einsum("ij,ij->i", step, direction) / size)
            direction -= shares[-1][:, None] * bend
        direction = self.by_metric(active, direction)
        for (step, bend), size, share in zip(pairs, along, reversed(shares), strict=True):
            direction += (share - np.einsum("ij,ij->i", bend, direction) / size)[:, None] * step
        return direction


def _along(step: FloatArray, bend: FloatArray) -> FloatArray:
    return above_zero(np.einsum("ij,ij->i", step, bend))
