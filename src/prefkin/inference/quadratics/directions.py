"""Each user's quadratic along the eigenvectors of its information, H = Vᵀ diag(h) V: for users with few rows.

The directions V (rows) are at most as many as the user has rows; along them, integrals over a Gaussian are diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.execution.executor import for_each
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics.forms import Terms
from prefkin.inference.quadratics.signed import Signed, per_user_sum

__all__ = ["ByDirections"]

FEW = 0.2  # directions per feature up to which what somebody adds to a group is told along them alone
REAL = 1e-13  # of the largest eigenvalue: below, a direction is rounding


@dataclass(frozen=True, eq=False)
class ByDirections:
    """The directions of one user after those of another."""

    V: FloatArray  # (R, d) R the sum of all ranks
    h: FloatArray  # (R,)
    b: FloatArray  # (R,) c along V
    const: FloatArray  # (U,)
    starts: IntArray  # (U + 1,) user u owns directions starts[u]:starts[u + 1]

    @classmethod
    def of(cls, data: Signed, sites: Sites) -> ByDirections:
        """From the sites of everybody's rows."""
        root, kind = np.sqrt(sites.precision), data.X.dtype

        def one(user: int) -> tuple[FloatArray, FloatArray, FloatArray]:
            own = data.own(user)
            X, scaled = data.X[own], data.X[own] * root[own, None]  # double: small eigenvalues spoil directions
            if len(X) < data.dim:  # the smaller Gram matrix has the same eigenvalues
                nothing = root[own], scaled[:, :0]
                h, Q = eigh(scaled @ scaled.T, driver="evd", check_finite=False) if len(X) else nothing
                real = h > REAL * h.max(initial=0.0)
                h, V = h[real], (Q[:, real] / np.sqrt(h[real])).T @ scaled
            else:
                h, Q = eigh(scaled.T @ scaled, driver="evd", overwrite_a=True, check_finite=False)
                h, V = np.maximum(h, 0.0), Q.T
            return V.astype(kind, copy=False), h, V @ (sites.pull[own] @ X)

        found = for_each(one, range(len(data)), label="users as quadratics")
        starts = np.concatenate([[0], np.cumsum([len(h) for _, h, _ in found])]).astype(np.intp)
        V, h, b = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return cls(V, h, b, per_user_sum(sites.level, data.starts), starts)

    def __len__(self) -> int:
        return len(self.const)

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.V.shape[1]

    def some(self, users: IntArray) -> ByDirections:
        """A few, in the order given."""
        own = np.concatenate([np.arange(self.starts[u], self.starts[u + 1]) for u in users])
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[users])]).astype(np.intp)
        return ByDirections(self.V[own], self.h[own], self.b[own], self.const[users], starts)

    def at(self, variance: float) -> Terms:
        """Everybody's terms in the mean of a prior with variance τ²: U d² numbers."""
        left = 1.0 / (1.0 + variance * self.h)
        root, weight = np.sqrt(self.h * left).astype(self.V.dtype), left * self.b

        A, a = np.empty((len(self), self.dim, self.dim), dtype=self.V.dtype), np.empty((len(self), self.dim))
        roots = np.empty(len(self), dtype=object)

        def one(user: int) -> None:
            own = slice(self.starts[user], self.starts[user + 1])
            scaled = roots[user] = root[own, None] * self.V[own]
            np.matmul(scaled.T, scaled, out=A[user])
            a[user] = weight[own] @ self.V[own]

        for_each(one, range(len(self)), label="information")
        return Terms(A, a, self._levels(variance), roots if len(self.V) <= FEW * len(self) * self.dim else None)

    def _levels(self, variance: float) -> FloatArray:
        gain = variance * self.b**2 / (1.0 + variance * self.h)
        return self.const + 0.5 * per_user_sum(gain - np.log1p(variance * self.h), self.starts)

    def evidences(self, mean: FloatArray, variance: float) -> FloatArray:
        """log ∫ exp(quadratic) N(θ; mean, τ² I) dθ of everybody, (U,)."""
        at = (self.V @ mean.astype(self.V.dtype)).astype(np.float64)
        explained = (self.b * at - 0.5 * self.h * at**2) / (1.0 + variance * self.h)
        return self._levels(variance) + per_user_sum(explained, self.starts)

    def posterior_means(self, means: FloatArray, variance: float, trust: FloatArray) -> FloatArray:
        """trust × E θ of everybody when θ ~ N(means / trust, τ² I), (U, d)."""
        owner = np.repeat(np.arange(len(self)), np.diff(self.starts))
        at = np.einsum("rd,rd->r", self.V, means[owner])
        pull = (trust[owner] * self.b - self.h * at) / (1.0 + variance * self.h)
        return means + variance * per_user_sum(pull[:, None] * self.V, self.starts)

    def renewed(self, data: Signed, sites: Sites, mine: IntArray, theirs: IntArray) -> ByDirections:
        """These users at positions `mine`, those with these rows at `theirs`, also in place of them."""
        others = ByDirections.of(data, sites)
        V, h = np.concatenate([self.V, others.V]), np.concatenate([self.h, others.h])
        b, const = np.concatenate([self.b, others.b]), np.concatenate([self.const, others.const])
        both = ByDirections(V, h, b, const, np.concatenate([self.starts, self.starts[-1] + others.starts[1:]]))
        order = np.empty(len(np.union1d(mine, theirs)), dtype=np.intp)
        order[mine], order[theirs] = np.arange(len(self)), len(self) + np.arange(len(others))
        return both.some(order)
