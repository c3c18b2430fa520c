"""What is believed about one preference: θ ~ N(mean, C). Every recommendation and every question is made from it.

C is held as a root, C = root rootᵀ, because decisions need only ‖z‖_C = ‖rootᵀz‖, and because a sum of squares keeps
its digits where a difference of matrices loses them. Whoever has a covariance factors it once, whoever has an
information matrix M = C⁻¹ factors that; neither is turned into the other on the way to a decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import cholesky
from scipy.linalg.blas import dger
from scipy.linalg.lapack import dtrtri
from scipy.special import expit

from prefkin.data.arrays import FloatArray
from prefkin.errors import ConvergenceError

if TYPE_CHECKING:
    from prefkin.decide.rules.pool import Pool

__all__ = ["Belief", "Margins", "absorb", "factored"]

NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(7)  # seven are exact for polynomials of degree 13
WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
DIGITS_LEFT = 1e-13  # of a diagonal entry: a pivot below that is three digits and less


class Margins(NamedTuple):
    """Log odds of many answers: N(mean_k, variance_k) with chance k, in single precision."""

    chance: FloatArray  # (K,)
    mean: FloatArray  # (K, pairs)
    variance: FloatArray  # (K, pairs)


def factored(M: FloatArray) -> FloatArray:
    """L with L Lᵀ = M, a precision; refused where rounding has taken what is known about some direction.

    >>> factored(np.diag([4.0, 9.0])).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    try:
        L: FloatArray = cholesky(M, lower=True)
        if (np.diagonal(L) ** 2 > DIGITS_LEFT * np.diagonal(M)).all():
            return L
    except (np.linalg.LinAlgError, ValueError):  # the latter: not finite
        pass
    raise ConvergenceError(
        "the rows are so large, along directions in which they are alike, that no digits are left for the others; "
        "scale the features down, or raise ridge"
    )


@dataclass(frozen=True, eq=False)
class Belief:
    """A normal distribution over preferences.

    >>> belief = Belief.from_information(np.zeros(2), np.diag([4.0, 1.0]))
    >>> belief.norm(np.array([[2.0, 0.0]])).tolist()
    [1.0]
    >>> belief.heard(np.array([0.0, 1.0]), weight=3.0).information.round(12).tolist()
    [[4.0, 0.0], [0.0, 4.0]]
    """

    mean: FloatArray  # (d,)
    root: FloatArray  # (d, d), any with root rootᵀ = C

    @classmethod
    def from_information(cls, mean: FloatArray, M: FloatArray) -> Belief:
        """Precision M: root = L⁻ᵀ with L Lᵀ = M."""
        inverse, _ = dtrtri(factored(M), lower=1)
        return cls(mean, inverse.T)

    @classmethod
    def from_covariance(cls, mean: FloatArray, C: FloatArray) -> Belief:
        """Covariance C: its Cholesky factor, or where rounding left C without one, its eigenvectors."""
        try:
            return cls(mean, cholesky(C, lower=True))
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh(C)
            return cls(mean, vectors * np.sqrt(np.maximum(values, 0.0)))

    def norm(self, rows: FloatArray) -> FloatArray:
        """‖row‖_C for each row: the standard deviation of θᵀrow."""
        return np.linalg.norm(rows @ self.root, axis=1)

    @property
    def covariance(self) -> FloatArray:
        """C, shape (d, d)."""
        return self.root @ self.root.T

    @property
    def information(self) -> FloatArray:
        """C⁻¹, shape (d, d)."""
        inverse = np.linalg.inv(self.root)
        return inverse.T @ inverse

    @property
    def radius(self) -> float:
        """√tr C, the typical distance between mean and truth."""
        return float(np.linalg.norm(self.root))

    def expected_slope(self, z: FloatArray) -> float:
        """E σ′(θᵀz): the information that an answer about `z` is expected to carry.

        >>> Belief(np.zeros(1), np.full((1, 1), 1e-6)).expected_slope(np.ones(1)).__round__(3)
        0.25
        """
        p = expit(float(z @ self.mean) + float(np.linalg.norm(z @ self.root)) * NODES)
        return float(WEIGHTS @ (p * (1.0 - p)))

    def margins(self, pool: Pool) -> Margins:
        """Log odds of the answer about each pair."""
        mean = pool.Z @ (pool.unit * self.mean).astype(np.float32)
        white = pool.Z @ (pool.unit * self.root).astype(np.float32)
        return Margins(np.ones(1, dtype=np.float32), mean[None], np.einsum("ij,ij->i", white, white)[None])

    def draws(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Preferences from the belief, (d, n)."""
        return self.mean[:, None] + self.root @ rng.standard_normal((len(self.mean), n))

    def heard(self, z: FloatArray, weight: float) -> Belief:
        """The same mean, with information `weight` · z zᵀ more."""
        root = np.array(self.root, order="C")
        absorb(root, z, weight)
        return Belief(self.mean, root)


def absorb(root: FloatArray, z: FloatArray, weight: float = 1.0) -> FloatArray:
    """C⁻¹ ← C⁻¹ + weight · z zᵀ, in place on a root of C in C order; takes O(d²). Returns g with C_old = C_new + ggᵀ.

    With v = rootᵀz, C becomes root (I + weight · vvᵀ)⁻¹ rootᵀ. A root may be turned from the right, so a reflection
    first turns v onto one axis, that of its largest entry; then one column shrinks by q = √(1 + weight ‖v‖²) and
    nothing is subtracted. Features of 1e8 beside C = I keep their digits.
    """
    v = z @ root
    length = float(np.linalg.norm(v))
    if length == 0.0:
        return np.zeros_like(z)
    axis = int(np.argmax(np.abs(v)))
    along = abs(float(v[axis]))
    v[axis] += np.copysign(length, v[axis])
    image = root @ v
    # the reflection I − vvᵀ / (‖v‖ (‖v‖ + |v_axis|)), of lengths before the last but one line
    dger(-1.0, v / length, image / (length + along), a=root.T, overwrite_x=1, overwrite_y=1, overwrite_a=1)
    root[:, axis] /= np.hypot(1.0, np.sqrt(weight) * length)
    gone: FloatArray = (np.sqrt(weight) * length) * root[:, axis]
    return gone
