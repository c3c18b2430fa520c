"""Gaussian factors in canonical form, a batch of them: exp(level + ηᵀt − tᵀΛt / 2).

A user's likelihood (EP sites summed up) is one, and so is its message to a group mean. The product of factors is the
sum of their parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.execution.executor import for_each
from prefkin.inference import _ep_kernels

__all__ = ["Factors"]

PAIRS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Factors:
    """A batch of factors."""

    Lam: FloatArray  # Λ, (n, d, d)
    eta: FloatArray  # η, (n, d)
    level: FloatArray  # (n,)

    @classmethod
    def none(cls, d: int) -> Factors:
        """An empty batch of factors of d features."""
        return cls(np.empty((0, d, d)), np.empty((0, d)), np.empty(0))

    def __getitem__(self, which: Any) -> Factors:
        return Factors(self.Lam[which], self.eta[which], self.level[which])

    def __add__(self, other: Factors) -> Factors:
        return Factors(self.Lam + other.Lam, self.eta + other.eta, self.level + other.level)

    def __sub__(self, other: Factors) -> Factors:
        return Factors(self.Lam - other.Lam, self.eta - other.eta, self.level - other.level)

    def __len__(self) -> int:
        return len(self.eta)

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.eta.shape[-1]

    def marginalise(self, variance: FloatArray | float) -> Factors:
        """The factors in m when t ~ N(m, variance I) is integrated out."""
        v = np.broadcast_to(np.asarray(variance, dtype=np.float64), (len(self),))
        P = v[:, None, None] * self.Lam
        trace = np.einsum("nii->n", P)
        P = P + np.eye(self.dim)
        G = np.linalg.inv(P)
        A = np.where((trace < 1e-3)[:, None, None], self.Lam @ G, (np.eye(self.dim) - G) / v[:, None, None])
        a = np.einsum("nij,nj->ni", G, self.eta)
        drawn = v * np.einsum("ni,ni->n", a, self.eta)
        return Factors(0.5 * (A + A.transpose(0, 2, 1)), a, self.level + 0.5 * (drawn - np.linalg.slogdet(P)[1]))

    def log_integral(self, mean: FloatArray, variance: float) -> FloatArray:
        """log ∫ factor(t) N(t; mean, variance I) dt of each."""
        every = np.arange(len(self))
        return self.joint_log_integral(every, self[:1], np.zeros_like(every), np.zeros(len(self)), mean, variance)

    def joint_log_integral(
        self, one: IntArray, others: Factors, other: IntArray, times: FloatArray, mean: FloatArray, variance: float
    ) -> FloatArray:
        """log ∫ of factor one[p] times factor others[other[p]] to the power times[p], under N(mean, variance I)."""
        out, d = np.empty(len(one)), self.dim

        def some(start: int) -> None:
            pairs = slice(start, start + PAIRS_AT_ONCE)
            room = np.empty((d + 1, d + 1))
            _ep_kernels.pair_evidences(
                self.Lam, self.eta, one[pairs], others.Lam, others.eta, other[pairs], times[pairs], mean, variance,
                room, out[pairs],
            )  # fmt: skip

        for_each(some, range(0, len(one), PAIRS_AT_ONCE))
        return out + self.level[one] + times * others.level[other]

    def summed(self, share: FloatArray) -> Factors:
        """Products of factors to the powers of each column of share (n, K)."""
        n, d = self.eta.shape
        Lam = (share.T @ self.Lam.reshape(n, d * d)).reshape(-1, d, d)
        return Factors(Lam, share.T @ self.eta, share.T @ self.level)
