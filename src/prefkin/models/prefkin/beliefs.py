"""What is believed about the margin of each row of users who surely are around one centre.

With G = I − τ²A the posterior of a user is N(G centre + τ²a, τ²G + G doubt G): rows multiplied by G tell all of it,
and stay the same while the centre moves.
"""

from __future__ import annotations

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.inference import _kernels
from prefkin.inference.quadratics import SHORT, Signed, Terms

__all__ = ["centred_beliefs", "kept_rows", "row_beliefs"]


def row_beliefs(
    data: Signed, terms: Terms, within: float, mean: FloatArray, doubt: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the margin of each row of users around one centre N(mean, doubt); `terms` are for τ²."""
    through, own = kept_rows(data, terms, within)
    return centred_beliefs(data, through, own, within, mean, doubt)


def kept_rows(data: Signed, terms: Terms, within: float) -> tuple[FloatArray, FloatArray]:
    """(I − τ²A)x of each row, (n, d): how what all share reaches it; and τ² aᵀx, what its user's own answers add."""
    through, own = np.empty(data.X.shape), np.empty(len(data.X))
    if data.dim <= SHORT and data.X.dtype == np.float64:
        _kernels.keep(data.X, data.starts, terms.A, terms.a, float(within), through, own)
        return through, own
    for user in range(len(data)):
        mine = data.own(user)
        np.matmul(data.X[mine], terms.A[user], out=through[mine], casting="same_kind")
        np.matmul(data.X[mine], terms.a[user], out=own[mine], casting="same_kind")
    through *= -within
    through += data.X
    return through, within * own


def centred_beliefs(
    data: Signed, through: FloatArray, own: FloatArray, within: float, mean: FloatArray, doubt: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of each row's margin, from `kept_rows`."""
    variance = within * np.einsum("ij,ij->i", data.X, through, dtype=np.float64)
    variance += np.einsum("ij,ij->i", through @ doubt, through)
    return through @ mean + own, np.maximum(variance, 0.0)
