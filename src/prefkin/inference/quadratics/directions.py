"""Each user's quadratic along the eigenvectors of its information H = Vᵀ diag(h) V.

The directions V (rows) are at most min(N, d); along them, every integral over a Gaussian prior is diagonal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.linalg import eigh

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.execution.executor import for_each
from prefkin.inference.quadratics.forms import Quadratic, Quadratics
from prefkin.inference.quadratics.sites import Signed, Sites, per_user_sum

__all__ = ["STACKED_UP_TO", "ByDirections"]

STACKED_UP_TO = 64  # features: below, all users' matrices are decomposed in one call


@dataclass(frozen=True, eq=False)
class AlongDirections(Quadratic):
    """const + cᵀθ − θᵀHθ/2, with H = Vᵀ diag(h) V and c = Vᵀ b."""

    V: FloatArray  # (r, d) orthonormal rows
    h: FloatArray  # (r,)
    b: FloatArray  # (r,)
    const: float

    def shrink(self, variance: float) -> FloatArray:
        """1 / (1 + τ² h)."""
        return 1.0 / (1.0 + variance * self.h)

    def keep(self, rows: FloatArray, variance: float) -> FloatArray:
        """What answers along V leave of the rows."""
        lost = (rows.astype(self.V.dtype, copy=False) @ self.V.T) * (1.0 - self.shrink(variance)).astype(self.V.dtype)
        lost = lost @ self.V
        return np.subtract(rows, lost, out=lost) if rows.dtype == lost.dtype else rows - lost

    def posterior_mean(self, mean: FloatArray, variance: float) -> FloatArray:
        """By the prior where there are no answers."""
        at, shrink = self.V @ mean, self.shrink(variance)
        return mean + (shrink * (at + variance * self.b) - at) @ self.V


@dataclass(frozen=True, eq=False)
class ByDirections(Quadratics):
    """The directions of one user after those of another."""

    V: FloatArray  # (R, d) R the sum of all ranks
    h: FloatArray  # (R,)
    b: FloatArray  # (R,)
    const: FloatArray  # (U,)
    starts: IntArray  # (U + 1,) user u owns directions starts[u]:starts[u + 1]
    held: dict[float, tuple[FloatArray, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, data: Signed, sites: Sites) -> ByDirections:
        """From the sites of everybody's rows."""
        V, h, starts = _directions(data, np.sqrt(sites.precision))
        b = np.empty(len(h))
        for user in range(len(data)):
            rows, own = data.own(user), slice(starts[user], starts[user + 1])
            b[own] = V[own] @ (sites.pull[rows].astype(data.X.dtype) @ data.X[rows])
        return cls(V, h, b, per_user_sum(sites.level, data.starts), starts)

    def __len__(self) -> int:
        return len(self.const)

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.V.shape[1]

    @cached_property
    def owner(self) -> IntArray:
        """(R,) the user of each direction."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def one(self, user: int) -> AlongDirections:
        """The user's own, as views."""
        own = slice(self.starts[user], self.starts[user + 1])
        return AlongDirections(self.V[own], self.h[own], self.b[own], float(self.const[user]))

    def between(self, users: slice) -> ByDirections:
        """Views."""
        first, last, _ = users.indices(len(self))
        own = slice(self.starts[first], self.starts[last])
        starts = self.starts[first : last + 1] - self.starts[first]
        return ByDirections(self.V[own], self.h[own], self.b[own], self.const[users], starts)

    def some(self, users: IntArray) -> ByDirections:
        """Copies."""
        own = np.concatenate([np.arange(self.starts[u], self.starts[u + 1]) for u in users])
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[users])]).astype(np.intp)
        return ByDirections(self.V[own], self.h[own], self.b[own], self.const[users], starts)

    def levels(self, variance: float) -> FloatArray:
        """Sums over directions."""
        gain = variance * self.b**2 / (1.0 + variance * self.h)
        return self.const + 0.5 * per_user_sum(gain - np.log1p(variance * self.h), self.starts)

    def explained(self, means: FloatArray, variance: float) -> FloatArray:
        """Sums over directions."""
        at = (self.V @ means.T.astype(self.V.dtype)).astype(np.float64)
        shrink, b, h = (1.0 / (1.0 + variance * self.h))[:, None], self.b[:, None], self.h[:, None]
        return per_user_sum(shrink * (b * at - 0.5 * h * at**2), self.starts)

    def pulls(self, variance: float) -> FloatArray:
        """Sums over directions."""
        if variance in self.held:
            return self.held[variance][1]
        return self._combine(self.b / (1.0 + variance * self.h))

    def posterior_means(self, means: FloatArray, variance: float, trust: FloatArray) -> FloatArray:
        """Sums over directions."""
        at = self._project(means)
        shrink = 1.0 / (1.0 + variance * self.h)
        return means + self._combine(shrink * (at + variance * self.b * trust[self.owner]) - at)

    def _project(self, means: FloatArray) -> FloatArray:
        """Each user's mean along each of the user's directions, (R,)."""
        few = means.astype(self.V.dtype, copy=False)
        if (np.diff(self.starts) == self.dim).all():
            found = np.matmul(self.V.reshape(-1, self.dim, self.dim), few[:, :, None]).ravel()
        else:
            found = np.concatenate([np.empty(0, self.V.dtype), *(v @ mean for mean, v in self._split(few))])
        return np.asarray(found, dtype=np.float64)

    def _combine(self, weights: FloatArray) -> FloatArray:
        """Σ over each user's directions of weight × direction, (U, d)."""
        size, weights = np.diff(self.starts), weights.astype(self.V.dtype, copy=False)
        if (size == self.dim).all():
            found = np.matmul(weights.reshape(-1, 1, self.dim), self.V.reshape(-1, self.dim, self.dim))[:, 0]
        else:
            each = (weights[self.starts[u] : self.starts[u + 1]] for u in range(len(self)))
            found = np.array([w @ v for w, v in self._split(each)]).reshape(len(self), self.dim)
        return np.asarray(found, dtype=np.float64)

    def _split(self, each: Iterable[FloatArray]) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Something of each user's, with the user's directions."""
        return ((mine, self.V[a:b]) for mine, a, b in zip(each, self.starts[:-1], self.starts[1:], strict=True))

    def curvatures(self, variance: float) -> FloatArray:
        """One product a user."""
        return self.held[variance][0] if variance in self.held else self._curvatures(variance)

    def _curvatures(self, variance: float) -> FloatArray:
        root = np.sqrt(self.h / (1.0 + variance * self.h)).astype(self.V.dtype)
        if self.dim <= STACKED_UP_TO and (np.diff(self.starts) == self.dim).all():
            scaled = (root[:, None] * self.V).reshape(len(self), self.dim, self.dim)
            return np.matmul(scaled.transpose(0, 2, 1), scaled)

        def one(user: int) -> FloatArray:
            own = slice(self.starts[user], self.starts[user + 1])
            scaled = root[own, None] * self.V[own]
            return scaled.T @ scaled

        return np.array(for_each(one, range(len(self)), label="information"))

    def expect(self, variance: float) -> None:
        """Nothing: with directions at hand nothing takes long."""

    def hold(self, variance: float) -> None:
        """A and a."""
        if self.may_hold and variance not in self.held:
            self.held.clear()
            self.held[variance] = self._curvatures(variance), self.pulls(variance)

    def curvatures_of(self, variance: float, shares: FloatArray) -> FloatArray:
        """One product for all users: nobody's matrix is made."""
        if variance in self.held:
            return np.tensordot(shares.T.astype(self.V.dtype), self.held[variance][0], 1)
        return np.array([self._curvature_of(variance, share) for share in shares.T]).reshape(-1, self.dim, self.dim)

    def _curvature_of(self, variance: float, share: FloatArray) -> FloatArray:
        weight = share[self.owner]
        used = np.flatnonzero(weight)
        root = np.sqrt(weight[used] * self.h[used] / (1.0 + variance * self.h[used]))
        scaled = (self.V if len(used) == len(weight) else self.V[used]) * root[:, None].astype(self.V.dtype)
        return scaled.T @ scaled


def _directions(data: Signed, root: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Eigenvectors (as rows) and eigenvalues of each user's Xᵀ diag(root²) X, and where each user's begin."""
    d, n_users = data.dim, len(data)
    if d <= STACKED_UP_TO:
        grams = np.empty((n_users, d, d))
        for user in range(n_users):
            own = data.own(user)
            scaled = data.X[own] * root[own, None]
            np.matmul(scaled.T, scaled, out=grams[user])
        h, Q = np.linalg.eigh(grams)
        V = np.ascontiguousarray(Q.transpose(0, 2, 1)).reshape(-1, d)
        return V, np.maximum(h, 0.0).ravel(), d * np.arange(n_users + 1)

    def one(user: int) -> tuple[FloatArray, FloatArray]:
        own = data.own(user)
        scaled = data.X[own] * root[own, None].astype(kind)
        if len(scaled) == 0:
            return np.empty((0, d), dtype=kind), np.empty(0)
        if len(scaled) < d:  # rank n: the smaller Gram matrix has the same eigenvalues
            scaled = scaled.astype(np.float64)  # small eigenvalues would spoil the directions below
            h, Q = eigh(scaled @ scaled.T, driver="evd", check_finite=False)
            real = h > 1e-13 * max(float(h[-1]), 1e-300)
            return ((Q[:, real] / np.sqrt(h[real])).T @ scaled).astype(kind), h[real]
        h, Q = eigh(scaled.T @ scaled, driver="evd", overwrite_a=True, check_finite=False)
        return Q.T, np.maximum(h, 0.0).astype(np.float64)

    kind = data.X.dtype
    found = for_each(one, range(n_users), label="users as quadratics")
    starts = np.concatenate([[0], np.cumsum([len(h) for _, h in found])]).astype(np.intp)
    return np.concatenate([V for V, _ in found]), np.concatenate([h for _, h in found]), starts
