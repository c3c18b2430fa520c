"""What users' quadratics have to tell, in whichever form they are kept.

A user's log-likelihood, made of sites, is

    log p(answers | θ) ≈ const + cᵀθ − θᵀHθ/2,   H = Σ precision x xᵀ,   c = Σ pull x.

A Gaussian prior N(m, τ² I) on θ can be integrated out exactly, which leaves a quadratic in m,

    level + aᵀm − mᵀAm/2,   G = (I + τ²H)⁻¹,   A = H G,   a = G c,   level = const + (τ² cᵀa − log|I + τ²H|) / 2.

What follows for θ: its mean is m + τ²(a − Am), its covariance τ²G = τ²(I − τ²A); own answers decide τ² tr A / d of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from prefkin.data.arrays import FloatArray

__all__ = ["DENSE", "Terms"]

DENSE = 1 << 16  # memberships from which those of 0 are left out of sums


@dataclass(frozen=True, eq=False)
class Terms:
    """level + aᵀm − mᵀAm/2 in a prior's mean m, of each user or summed over each of several sets of users."""

    A: FloatArray  # (..., d, d)
    a: FloatArray  # (..., d)
    level: FloatArray  # (...,)
    roots: NDArray[np.object_] | None = None  # (U,) each a B, (r, d), with A = BᵀB: where r is far below d

    @classmethod
    def zeros(cls, n: int, dim: int) -> Terms:
        """The terms of n sets with nobody in them."""
        return cls(np.zeros((n, dim, dim)), np.zeros((n, dim)), np.zeros(n))

    @classmethod
    def joined(cls, parts: Sequence[Terms]) -> Terms:
        """One after the other, without roots."""
        A, a, level = (np.concatenate(each) for each in zip(*(part.arrays.values() for part in parts), strict=True))
        return cls(A, a, level)

    @property
    def arrays(self) -> dict[str, FloatArray]:
        """By name, without roots."""
        return {"A": self.A, "a": self.a, "level": self.level}

    def __getitem__(self, which: Any) -> Terms:
        roots = None if self.roots is None else self.roots[which]
        return Terms(self.A[which], self.a[which], self.level[which], roots)

    def __len__(self) -> int:
        return len(self.level)

    def __add__(self, other: Terms) -> Terms:
        return Terms(self.A + other.A, self.a + other.a, self.level + other.level)

    def __sub__(self, other: Terms) -> Terms:
        return Terms(self.A - other.A, self.a - other.a, self.level - other.level)

    def summed(self, share: Any) -> Terms:
        """Of each set to which user u belongs by share[u, k], an array or a sparse one."""
        n, d = self.a.shape
        few = isinstance(share, np.ndarray) and share.size <= DENSE
        belongs = share.T if few else csr_array(share).T.tocsr()
        A = (belongs.astype(self.A.dtype, copy=False) @ self.A.reshape(n, d * d)).reshape(-1, d, d)
        return Terms(A, belongs @ self.a, belongs @ self.level)

    def images(self, means: FloatArray) -> FloatArray:
        """A_u m_u of everybody, (U, d)."""
        found = np.matmul(self.A, means.astype(self.A.dtype, copy=False)[:, :, None])[:, :, 0]
        return np.asarray(found, dtype=np.float64)

    def posterior_means(self, means: FloatArray, variance: float, trust: FloatArray | float = 1.0) -> FloatArray:
        """trust × E θ of everybody when θ ~ N(means / trust, τ² I), (U, d); the terms are those for τ²."""
        pull = self.a * np.reshape(trust, (-1, 1))
        return means + variance * (pull - self.images(means))

    def explained(self, means: FloatArray) -> FloatArray:
        """aᵀm − mᵀAm/2 of everybody for each m, (U, n): what a prior's mean adds to the evidence."""
        n, d = self.a.shape
        few = means.astype(self.A.dtype, copy=False)
        images = (self.A.reshape(n * d, d) @ few.T).reshape(n, d, len(means))
        return self.a @ means.T - 0.5 * np.einsum("udk,kd->uk", images, few, dtype=np.float64)
