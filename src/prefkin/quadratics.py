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
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from prefkin.comparisons import FloatArray, Rows
from prefkin.progress import for_each

__all__ = ["Belief", "Quadratic", "expand", "expand_users", "signed_rows"]

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


def expand_users(
    X: Sequence[FloatArray], weights: Sequence[FloatArray], beliefs: Sequence[Belief], n_jobs: int | None = None
) -> list[Quadratic]:
    """Every user's quadratic."""
    return for_each(
        lambda u: expand(X[u], weights[u], beliefs[u]), range(len(X)), label="users as quadratics", n_jobs=n_jobs
    )
