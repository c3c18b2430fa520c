"""Each user's log-likelihood as a quadratic, matched to what is believed about the user.

With rows x = (2y − 1) z and belief θ ~ N(T, C), the margins xᵀθ are normal. Expectations of the log-sigmoid and its
first two derivatives under that law (seven-point Gauss-Hermite) give

    log p(answers | θ) ≈ const + cᵀθ − θᵀHθ/2,   H = V diag(h) Vᵀ,   c = V b,

kept as factors of rank min(N, d). A Gaussian prior N(m, τ² I) on θ can then be integrated out exactly: every formula
below is a diagonal operation in the basis V.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from prefkin.comparisons import FloatArray, IntArray, Rows
from prefkin.progress import for_each

__all__ = ["Belief", "Quadratic", "Quadratics", "expand", "expand_users", "signed_rows"]

NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
WEIGHTS: FloatArray = _WEIGHTS / _WEIGHTS.sum()


class Belief(NamedTuple):
    """What the margins of a user's rows are believed to be: mean T and variance of each xᵀθ."""

    mean: FloatArray  # (d,)
    margin_variance: FloatArray  # (n,)


@dataclass(frozen=True, eq=False)
class Quadratic:
    """const + cᵀθ − θᵀHθ/2, with H = V diag(h) Vᵀ and c = V b."""

    V: FloatArray  # (d, r) orthonormal columns
    h: FloatArray  # (r,)
    b: FloatArray  # (r,)
    const: float

    def shrink(self, variance: float) -> FloatArray:
        """1 / (1 + τ² h): how much of the prior is left in each direction of V."""
        return 1.0 / (1.0 + variance * self.h)

    def curvature(self, variance: float) -> FloatArray:
        """A = H (I + τ²H)⁻¹, the information about the prior's mean, shape (d, d)."""
        return (self.V * (self.h * self.shrink(variance))) @ self.V.T

    def pull(self, variance: float) -> FloatArray:
        """a = (I + τ²H)⁻¹ c, the linear term in the prior's mean, shape (d,)."""
        return self.V @ (self.shrink(variance) * self.b)

    def level(self, variance: float) -> float:
        """The constant term in the prior's mean."""
        gain = variance * self.shrink(variance) * self.b**2
        return float(self.const - 0.5 * np.log1p(variance * self.h).sum() + 0.5 * gain.sum())

    def evidence(self, mean: FloatArray, variance: float) -> float:
        """log ∫ exp(quadratic) N(θ; mean, τ² I) dθ."""
        at, shrink = self.V.T @ mean, self.shrink(variance)
        return self.level(variance) + float((shrink * self.b * at - 0.5 * self.h * shrink * at**2).sum())

    def posterior_mean(self, mean: FloatArray, variance: float) -> FloatArray:
        """E θ when θ ~ N(mean, τ² I)."""
        at, shrink = self.V.T @ mean, self.shrink(variance)
        return mean + self.V @ (shrink * (at + variance * self.b) - at)

    def keep(self, rows: FloatArray, variance: float) -> FloatArray:
        """G row = (I + τ²H)⁻¹ row: how a change of the prior's mean reaches the posterior mean."""
        return rows - ((rows @ self.V) * (1.0 - self.shrink(variance))) @ self.V.T

    def own_variance(self, rows: FloatArray, variance: float) -> FloatArray:
        """rowᵀ (H + I/τ²)⁻¹ row for each row: what the user's own answers leave open."""
        along = rows @ self.V
        open_ = variance * (np.einsum("ij,ij->i", rows, rows) - along**2 @ (1.0 - self.shrink(variance)))
        return np.maximum(open_, 0.0)


@dataclass(frozen=True, eq=False)
class Quadratics:
    """Many users' quadratics side by side: the columns of V of one user after those of another."""

    V: FloatArray  # (d, R) R the sum of all ranks
    h: FloatArray  # (R,)
    b: FloatArray  # (R,)
    const: FloatArray  # (U,)
    starts: IntArray  # (U + 1,) user u owns columns starts[u]:starts[u + 1]

    @classmethod
    def stack(cls, users: Sequence[Quadratic]) -> Quadratics:
        """From one by one."""
        starts = np.concatenate([[0], np.cumsum([len(q.h) for q in users])]).astype(np.intp)
        V, h, b = (np.concatenate([getattr(q, name) for q in users], axis=-1) for name in ("V", "h", "b"))
        return cls(V, h, b, np.array([q.const for q in users]), starts)

    def __len__(self) -> int:
        return len(self.const)

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.V.shape[0]

    @cached_property
    def owner(self) -> IntArray:
        """(R,) the user of each column."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def one(self, user: int) -> Quadratic:
        """A single user's, as views."""
        own = slice(self.starts[user], self.starts[user + 1])
        return Quadratic(self.V[:, own], self.h[own], self.b[own], float(self.const[user]))

    def some(self, users: Sequence[int] | IntArray) -> Quadratics:
        """A few of the users."""
        return Quadratics.stack([self.one(int(u)) for u in users])

    def _per_user(self, columns: FloatArray) -> FloatArray:
        return np.bincount(self.owner, columns, len(self)).astype(np.float64)

    def levels(self, variance: float) -> FloatArray:
        """`Quadratic.level` of everybody, (U,)."""
        gain = variance * self.b**2 / (1.0 + variance * self.h)
        return self.const + 0.5 * self._per_user(gain - np.log1p(variance * self.h))

    def evidences(self, mean: FloatArray, variance: float) -> FloatArray:
        """`Quadratic.evidence` of everybody, (U,)."""
        at, shrink = mean @ self.V, 1.0 / (1.0 + variance * self.h)
        return self.levels(variance) + self._per_user(shrink * (self.b * at - 0.5 * self.h * at**2))

    def posterior_means(self, mean: FloatArray, variance: float) -> FloatArray:
        """`Quadratic.posterior_mean` of everybody under one prior mean, (U, d)."""
        at, shrink = mean @ self.V, 1.0 / (1.0 + variance * self.h)
        moved = self.V * (shrink * (at + variance * self.b) - at)
        total = np.zeros((self.dim, len(self)))
        used = np.flatnonzero(np.diff(self.starts))  # somebody whose rows are all zero has no columns
        if used.size:
            total[:, used] = np.add.reduceat(moved, self.starts[used], axis=1)
        return mean + total.T

    def curvature_and_pull(self, variance: float, share: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Σ_u share_u A_u and Σ_u share_u a_u."""
        weight = share[self.owner]
        used = np.flatnonzero(weight)
        V, shrink = (self.V, 1.0 / (1.0 + variance * self.h))
        if len(used) < len(weight):
            V, shrink, weight = V[:, used], shrink[used], weight[used]
        h, b = (self.h, self.b) if len(used) == len(self.h) else (self.h[used], self.b[used])
        return (V * (weight * shrink * h)) @ V.T, V @ (weight * shrink * b)


def signed_rows(rows: Rows) -> FloatArray:
    """(2y − 1) z: every row as if its first action had been preferred."""
    return (2.0 * rows.y - 1.0)[:, None] * rows.Z


def expand(X: FloatArray, weights: FloatArray, belief: Belief) -> Quadratic:
    """The quadratic of one user whose signed rows are X, around a belief.

    >>> one = expand(np.array([[1.0, 0.0]]), np.ones(1), Belief(np.zeros(2), np.zeros(1)))
    >>> one.h.tolist(), one.b.tolist()
    ([0.25], [0.5])
    """
    T, spread = belief
    margins = (X @ T)[:, None] + np.sqrt(spread)[:, None] * NODES
    miss = expit(-margins)
    pull, curvature = weights * (miss @ WEIGHTS), weights * ((miss * (1.0 - miss)) @ WEIGHTS)
    level = -float(weights @ (np.logaddexp(0.0, -margins) @ WEIGHTS))
    gradient = X.T @ pull
    n, d = X.shape
    scaled = X * np.sqrt(curvature)[:, None]
    if n < d:  # rank n: the smaller Gram matrix has the same eigenvalues
        h, Q = np.linalg.eigh(scaled @ scaled.T)
        real = h > 1e-13 * max(float(h[-1]), 1e-300)
        h, V = h[real], (scaled.T @ Q[:, real]) / np.sqrt(h[real])
    else:
        h, V = np.linalg.eigh(scaled.T @ scaled)
        h = np.maximum(h, 0.0)
    at = V.T @ T
    # with fewer rows than features c = HT + gradient lies in the span of the rows, which is that of V
    b = h * at + V.T @ gradient
    flip = np.where(V[np.argmax(np.abs(V), axis=0), np.arange(V.shape[1])] < 0, -1.0, 1.0)
    const = level - float(gradient @ T) - 0.5 * float(h @ at**2) + 0.5 * float(curvature @ spread)
    return Quadratic(V * flip, h, b * flip, const)


def expand_users(X: Sequence[FloatArray], weights: Sequence[FloatArray], beliefs: Sequence[Belief]) -> Quadratics:
    """Every user's quadratic; on threads where that is worth it."""
    heavy = X[0].shape[1] >= 64
    return Quadratics.stack(
        for_each(
            lambda u: expand(X[u], weights[u], beliefs[u]),
            range(len(X)),
            label="users as quadratics",
            n_jobs=None if heavy else 1,
        )
    )
