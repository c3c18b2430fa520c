"""Evidence, of somebody's quadratic or of a set's terms: an integral over a preference or over a common centre.

log ∫ exp(level + aᵀm − mᵀAm/2) N(m; m_0, ρ² I) dm depends on the sums of the users' terms alone, so that partitions
are compared without looking at anybody's answers again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.execution.executor import for_each
from prefkin.inference import _kernels
from prefkin.inference.quadratics.forms import Terms

__all__ = ["STACKED_CHOLESKY", "joining_gain", "joint_evidence", "set_evidence"]

STACKED_CHOLESKY = 100  # features from which matrices are factored one by one, on threads


def set_evidence(sums: Terms, m0: FloatArray, between: float) -> FloatArray:
    """log ∫ exp(level + aᵀm − mᵀAm/2) N(m; m_0, ρ² I) dm for each set."""
    if sums.level.ndim == 0:
        return set_evidence(Terms(sums.A[None], sums.a[None], sums.level[None]), m0, between)[0]
    every = np.arange(len(sums))
    return sums.level + joint_evidence(sums, every, sums, every, np.zeros(len(sums)), m0, between)


def joint_evidence(
    base: Terms, at: IntArray, other: Terms, which: IntArray, times: FloatArray, m0: FloatArray, between: float
) -> FloatArray:
    """`set_evidence` of base[at] + times × other[which], pair by pair, as if all levels were 0; (pairs,)."""
    d, found = len(m0), np.empty(len(at))
    if d < STACKED_CHOLESKY:
        at, which = (np.ascontiguousarray(each) for each in (at, which))  # the kernel is compiled for that alone
        _kernels.evidences(
            *(base.A, base.a, at, other.A, other.a, which, times, np.array(m0), between),
            *(np.empty((d + 1, d + 1)), np.empty((3, 4, d + 4)), found),
        )
        if np.isnan(found).any():
            raise np.linalg.LinAlgError("information matrix is not positive definite")
        return found

    def one(i: int) -> None:
        k, u, t = at[i], which[i], times[i]
        A = base.A.dtype.type(t) * other.A[u]
        A += base.A[k]
        found[i] = _evidence(A, between * (base.a[k] + t * other.a[u]) + m0, m0, between)

    for_each(one, range(len(at)), label="evidence of sets")
    return found


def joining_gain(
    mean: FloatArray, doubt: FloatArray, own: Terms, who: IntArray, where: IntArray, part: FloatArray
) -> FloatArray | None:
    """Evidence of group where[i] with user who[i] over that without, of which the user is a `part`; (pairs,).

    Levels are left out. With the group's centre N(μ, S), somebody's A = BᵀB and g = a − Aμ, a group's evidence grows by
    t (aᵀμ − μᵀAμ/2) + t² (gᵀSg − t qᵀ(I + tK)⁻¹q) / 2 − log|I + tK|/2, where K = BSBᵀ and q = BSg, when t times this
    person joins: all in as many directions as B has rows. None where people have no such B, or where it is not told to
    any digit: nearly all that is known about the group was the user's.
    """
    if own.roots is None:
        return None
    found = np.empty(len(who))
    for k in np.unique(where).tolist():
        pairs = np.flatnonzero(where == k)
        a, B, S, centre = own.a[who[pairs]], _stacked(own.roots[who[pairs]]), doubt[k], mean[k]
        (n, r, d), image = B.shape, (B @ centre.astype(B.dtype)).astype(np.float64)
        BS, g = (B.reshape(n * r, d) @ S).reshape(n, r, d), a - np.matmul(image[:, None], B)[:, 0]
        K, q = np.matmul(BS, B.transpose(0, 2, 1)).astype(np.float64), np.matmul(BS, g[:, :, None])
        flat, wide = a @ centre - 0.5 * np.einsum("nr,nr->n", image, image), np.einsum("nd,nd->n", g @ S, g)
        try:
            with_, without = (_grown(t, K, q, flat, wide) for t in (1.0 - part[pairs], -part[pairs]))
        except np.linalg.LinAlgError:
            return None
        found[pairs] = with_ - without
    return found


def _grown(t: FloatArray, K: FloatArray, q: FloatArray, flat: FloatArray, wide: FloatArray) -> FloatArray:
    """What a group's evidence grows by, pair by pair, as in `joining_gain`."""
    M = t[:, None, None] * K
    np.einsum("nii->ni", M)[...] += 1.0
    volume = np.log(np.einsum("nii->ni", np.linalg.cholesky(M))).sum(axis=1)
    left = wide - t * np.einsum("nri,nri->n", q, np.linalg.solve(M, q))
    return t * flat + 0.5 * t**2 * left - volume


def _stacked(roots: NDArray[np.object_]) -> FloatArray:
    """(n, r, d), filled up with rows of 0."""
    stack = np.zeros((len(roots), max(map(len, roots)), roots[0].shape[1]), roots[0].dtype)
    for place, B in zip(stack, roots, strict=True):
        place[: len(B)] = B
    return stack


def _evidence(A: FloatArray, b: FloatArray, m0: FloatArray, between: float) -> float:
    """The same of one large matrix, by LAPACK: of a corner beside b, P's last pivot is what bᵀP⁻¹b leaves."""
    d, corner = len(b), 1.0 + float(b @ b)  # more than bᵀP⁻¹b, since P is at least I
    whole = np.empty((d + 1, d + 1), dtype=A.dtype)
    np.multiply(A, A.dtype.type(between), out=whole[:d, :d])
    whole[np.arange(d), np.arange(d)] += 1.0
    whole[d, :d] = whole[:d, d] = b
    whole[d, d] = corner
    (potrf,) = get_lapack_funcs(("potrf",), (whole,))
    _, failed = potrf(whole.T, lower=True, clean=False, overwrite_a=True)
    if failed:
        raise np.linalg.LinAlgError(f"information matrix is not positive definite (pivot {failed})")
    pivots = np.diagonal(whole).astype(np.float64)
    return float(0.5 * (corner - pivots[-1] ** 2 - m0 @ m0) / between - np.log(pivots[:-1]).sum())
