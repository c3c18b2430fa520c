"""The posterior of one user under a mixture prior: a normal law for each group to which they may belong."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray

__all__ = ["Part", "Person"]


class Part(NamedTuple):
    """One component of a user's posterior: N(mean, τ²G + G doubt G) with G = I − τ²A."""

    weight: float
    variance: float  # τ²
    A: FloatArray  # (d, d)
    mean: FloatArray  # (d,)
    doubt: FloatArray | None  # (d, d) covariance of the prior's mean

    def keep(self, rows: FloatArray) -> FloatArray:
        """G row for each row: how a change of the prior's mean reaches the posterior mean."""
        lost = rows.astype(self.A.dtype, copy=False) @ self.A
        lost *= self.A.dtype.type(self.variance)
        return np.subtract(rows, lost, out=lost) if rows.dtype == lost.dtype else rows - lost


@dataclass(frozen=True, eq=False)
class Person:
    """The posterior of one user: a mixture over groups."""

    parts: list[Part]

    @cached_property
    def mean(self) -> FloatArray:
        """E θ, (d,)."""
        return np.sum([part.weight * part.mean for part in self.parts], axis=0)

    @cached_property
    def apart(self) -> list[FloatArray | None]:
        """How far each part's mean is from that of all."""
        return [None] if len(self.parts) == 1 else [part.mean - self.mean for part in self.parts]

    def variance(self, rows: FloatArray) -> FloatArray:
        """rowᵀ C row for each row."""
        total = np.zeros(len(rows))
        for part, off in zip(self.parts, self.apart, strict=True):
            through = part.keep(rows)
            found = np.maximum(part.variance * np.einsum("ij,ij->i", rows, through), 0.0)
            if off is not None:
                found += (rows @ off) ** 2
            if part.doubt is not None:
                found += np.einsum("ij,ij->i", through @ part.doubt, through)
            total += part.weight * found
        return total

    def covariance(self) -> FloatArray:
        """C, shape (d, d)."""
        C = np.zeros(self.parts[0].A.shape)
        for part, off in zip(self.parts, self.apart, strict=True):
            C += part.weight * part.variance * part.keep(np.eye(len(C)))
            if off is not None:
                C += part.weight * np.outer(off, off)
            if part.doubt is not None:
                C += part.weight * part.keep(part.keep(part.doubt).T)
        return (C + C.T) / 2.0
