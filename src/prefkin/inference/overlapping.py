"""Many estimates at once from overlapping sets of users.

Each user's rows are read once for all sets the user belongs to: margins and gradients of all these sets are matrix
products. A user's loss is nearly quadratic around a rough mean of its sets' estimates, so sums of the users' quadratics
give both the start and the metric of a quasi-Newton iteration (L-BFGS); few gradients are needed, and those are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.data.rows import Rows, UserRows
from prefkin.execution.executor import for_each
from prefkin.inference.estimate import fit_preference

__all__ = ["fit_overlapping", "worth_sharing"]

SHARED_FEATURES = 128  # with more, a d × d matrix per set takes too much room
SHARED_BY = 8.0  # sets a user belongs to, on average, from which reading rows once for all of them pays
BLOCK_NUMBERS = 2**20  # in the d × d matrices of the sets that are fitted together
LIGHT_COPY = 2**31  # bytes: a float32 copy is made of data up to this size
OWNERS_AT_ONCE = 64
MOST_GRADIENTS = 30
RANDOM_ORDERS = 3
MEMORY = 6  # steps whose curvature is remembered
CHECKED = 2  # sets of a block whose last gradient is taken in float64 too
FLOAT32_SHARE = 0.7  # gradients are sums of float32 products: stop this much below the tolerance


def worth_sharing(sets: list[IntArray], n_users: int, dim: int) -> bool:
    """Do these sets overlap enough?"""
    return dim <= SHARED_FEATURES and sum(map(len, sets)) >= SHARED_BY * n_users


def fit_overlapping(
    kernels: Any,
    users: UserRows,
    sets: list[IntArray],
    start: FloatArray,
    *,
    ridge: float,
    tol: float,
    n_jobs: int | None = None,
) -> tuple[FloatArray, BoolArray, int]:
    """Estimates of all sets, whether each reached max|gradient| ≤ tol · max|gradient at 0|, and gradients taken.

    `start` are rough estimates, one per set. Without `kernels` numpy does it alone.
    """
    size = int(np.clip(BLOCK_NUMBERS // users.dim**2, 32, 2048))
    Z = users.rows.Z
    table = Z.astype(np.float32, copy=False) if Z.nbytes <= LIGHT_COPY else None
    order = _alike_together(sets, len(users))

    def fit(at: int) -> tuple[FloatArray, BoolArray, int]:
        some = order[at : at + size]
        near = _lengthened(users, sets[some[0]], start[some], ridge)
        return _Block(kernels, users, table, [sets[s] for s in some], ridge).fit(near, tol)

    found = for_each(fit, range(0, len(sets), size), label="pooled estimates", n_jobs=n_jobs)
    theta, reached = np.empty_like(start), np.empty(len(sets), dtype=bool)
    theta[order] = np.concatenate([part[0] for part in found])
    reached[order] = np.concatenate([part[1] for part in found])
    return theta, reached, sum(part[2] for part in found)


def _alike_together(sets: list[IntArray], n_users: int) -> IntArray:
    """An order in which sets that share many users stand together.

    Two such sets have, probably, the same user first in one of several random orders of all users; sets that are
    linked in this way, even over others, follow each other.
    """
    rng, every = np.random.default_rng(0), np.arange(len(sets))
    first = np.empty((RANDOM_ORDERS, len(sets)), dtype=np.intp)
    for some in first:
        place = rng.permutation(n_users)
        some[:] = [place[members].min() for members in sets]
    marks = len(sets) + n_users * np.arange(RANDOM_ORDERS)[:, None] + first
    nodes = len(sets) + n_users * RANDOM_ORDERS
    links = coo_array((np.ones(first.size), (np.tile(every, RANDOM_ORDERS), marks.ravel())), shape=(nodes, nodes))
    linked = connected_components(links, directed=False)[1][: len(sets)]
    return np.lexsort([first[0], linked])


def _lengthened(users: UserRows, members: IntArray, start: FloatArray, ridge: float) -> FloatArray:
    """Rough estimates times one factor: means of own estimates are all too long, or too short, by about the same.

    It is the one that suits the first set, `members`.
    """
    if not start[0].any():
        return start
    rows = users.of_many(members)
    along = Rows((rows.Z @ start[0])[:, None], rows.y, rows.weights)
    factor = fit_preference(along, ridge=max(ridge * float(start[0] @ start[0]), 1e-300), tol=1e-3)[0]
    return float(np.clip(factor, 0.5, 2.0)) * start


class _Block:
    """Some sets, the users in them, and in which sets each user is."""

    def __init__(self, kernels: Any, users: UserRows, table: Any, sets: list[IntArray], ridge: float) -> None:
        self.kernels, self.users, self.ridge, self.sets, self.n_sets = kernels, users, ridge, sets, len(sets)
        owner = np.concatenate(sets)
        which = np.repeat(np.arange(len(sets)), [len(s) for s in sets])
        order = np.argsort(owner, kind="stable")
        owners, first = np.unique(owner[order], return_index=True)
        belongs = np.split(which[order], first[1:])  # the sets of each owner
        near = np.argsort([each.mean() for each in belongs], kind="stable")  # owners of the same sets together
        self.owners, self.belongs = owners[near], [belongs[i] for i in near]
        self.table = table

    def fit(self, start: FloatArray, tol: float) -> tuple[FloatArray, BoolArray, int]:
        """Quasi-Newton from the optimum of the summed quadratics."""
        try:
            theta, metric, zero = self._quadratics(start)
        except np.linalg.LinAlgError:  # too few digits
            return start, np.zeros(self.n_sets, dtype=bool), 0
        limit = FLOAT32_SHARE * tol * np.abs(zero).max(axis=1)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # what overflows is not reached
            return self._descend(theta, metric, limit, tol)

    def _descend(
        self, theta: FloatArray, metric: FloatArray, limit: FloatArray, tol: float
    ) -> tuple[FloatArray, BoolArray, int]:
        active = np.arange(self.n_sets)
        gradient, taken = self._gradients(theta, active), 1
        steps: list[FloatArray] = []
        bends: list[FloatArray] = []
        while True:
            open_ = ~(np.abs(gradient).max(axis=1) <= limit[active])  # also what is not a number
            if not open_.any() or taken == MOST_GRADIENTS:
                break
            active, gradient = active[open_], gradient[open_]
            steps, bends = [s[open_] for s in steps][-MEMORY:], [b[open_] for b in bends][-MEMORY:]
            step = _two_loops(gradient, steps, bends, metric[active])
            theta[active] -= step
            fresh = self._gradients(theta, active)
            taken += 1
            steps, bends = [*steps, -step], [*bends, fresh - gradient]
            gradient = fresh
        reached = np.ones(self.n_sets, dtype=bool)
        reached[active] = np.abs(gradient).max(axis=1) <= limit[active]
        reached &= np.isfinite(limit) & self._holds_in_float64(theta, active[:CHECKED], tol)
        return theta, reached, taken

    def _holds_in_float64(self, theta: FloatArray, some: IntArray, tol: float) -> bool:
        """Do a few sets, of those that took longest, keep the tolerance? If not, float32 has too few digits for all."""
        for s in some:
            Z, y, weights = self.users.of_many(self.sets[s])
            gradient = Z.T @ (weights * (expit(Z @ theta[s]) - y)) + self.ridge * theta[s]
            if not np.abs(gradient).max() <= tol * np.abs(Z.T @ (weights * (0.5 - y))).max():
                return False
        return True

    def _rows(self, owner: int) -> tuple[Any, FloatArray, FloatArray]:
        """Features in float32, answers, weights."""
        own, (Z, y, weights) = slice(self.users.starts[owner], self.users.starts[owner + 1]), self.users.rows
        return Z[own].astype(np.float32) if self.table is None else self.table[own], y[own], weights[own]

    def _quadratics(self, start: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Each set's sum of its users' quadratics: where it is least, its inverse Hessian, the gradients at 0."""
        d = self.users.dim
        bend: Any = np.zeros((self.n_sets, d * d), dtype=np.float32)
        pull: Any = np.zeros((self.n_sets, d))
        zero: Any = np.zeros((self.n_sets, d))
        for at in range(0, len(self.owners), OWNERS_AT_ONCE):
            some = range(at, min(at + OWNERS_AT_ONCE, len(self.owners)))
            in_set = np.zeros((self.n_sets, len(some)), dtype=np.float32)
            hessians = np.empty((len(some), d, d), dtype=np.float32)
            slopes, zeros = np.empty((len(some), d)), np.empty((len(some), d))
            for k, i in enumerate(some):
                owner, member = self.owners[i], self.belongs[i]
                Z, y, weights = self._rows(owner)
                centre = start[member].mean(axis=0)
                p = expit(Z @ centre.astype(np.float32))
                np.matmul(Z.T * (weights * p * (1.0 - p)).astype(np.float32), Z, out=hessians[k])
                slopes[k] = hessians[k] @ centre - (weights * (p - y)).astype(np.float32) @ Z
                zeros[k] = (weights * (0.5 - y)).astype(np.float32) @ Z
                in_set[member, k] = 1.0
            used = in_set.any(axis=1)
            in_set = in_set[used]
            bend[used] += in_set @ hessians.reshape(len(some), d * d)
            pull[used] += in_set @ slopes
            zero[used] += in_set @ zeros
        whole: Any = bend.reshape(self.n_sets, d, d).astype(np.float64)
        whole[:, np.arange(d), np.arange(d)] += self.ridge
        inverse: FloatArray = np.linalg.inv(whole)
        return np.einsum("sij,sj->si", inverse, pull), inverse, zero

    def _gradients(self, theta: FloatArray, active: IntArray) -> FloatArray:
        """Exact gradients of the active sets, each user's rows read once."""
        place = np.full(self.n_sets, -1)
        place[active] = np.arange(len(active))
        total: Any = self.ridge * theta[active]
        light = theta[active].astype(np.float32)
        for owner, member in zip(self.owners, self.belongs, strict=True):
            here = member
            if len(active) < self.n_sets:
                here = place[member]
                here = here[here >= 0]
            if len(here) == 0:
                continue
            Z, y, weights = self._rows(owner)
            miss = Z @ np.ascontiguousarray(light[here].T)  # margins of all sets at once
            if self.kernels is None:
                expit(miss, out=miss)
                miss -= y[:, None]
                miss *= weights[:, None]
            else:
                self.kernels.misses(miss, y, weights)
            total[here] += miss.T @ Z
        return total


def _two_loops(
    gradient: FloatArray, steps: list[FloatArray], bends: list[FloatArray], metric: FloatArray
) -> FloatArray:
    """L-BFGS for many problems: the step (to subtract) from the remembered steps and the metric they start from."""
    direction = gradient.copy()
    shares = []
    for step, bend in zip(reversed(steps), reversed(bends), strict=True):
        along = np.maximum(np.einsum("ij,ij->i", step, bend), 1e-300)
        shares.append(np.einsum("ij,ij->i", step, direction) / along)
        direction -= shares[-1][:, None] * bend
    direction = np.einsum("sij,sj->si", metric, direction)
    for step, bend, share in zip(steps, bends, reversed(shares), strict=True):
        along = np.maximum(np.einsum("ij,ij->i", step, bend), 1e-300)
        direction += (share - np.einsum("ij,ij->i", bend, direction) / along)[:, None] * step
    return direction
