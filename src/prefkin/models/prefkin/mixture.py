"""A mixture prior over users, and what it says once the users' answers are in.

    θ_u = N(m_k, τ² I) for u in block k,   m_k = N(m_0, ρ² I),   a loner: N(m_0, (τ² + ρ²) I),   m_0 = N(0, σ² I).

τ² small: groups of equals; one block with τ² large: people who differ by degrees around a common mean ("cloud");
τ² → 0 in one block: everybody alike. With each user a quadratic, the evidence of a set of users is a Gaussian integral
over its centre m_k that depends on sums over its users. `seating` searches for the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.execution.executor import for_each
from prefkin.inference.quadratics import (
    STACKED_UP_TO,
    ByDirections,
    Quadratic,
    Quadratics,
    Signed,
    Sites,
    mirrored,
    refine,
)

__all__ = [
    "Blocks",
    "Centres",
    "Person",
    "Prior",
    "Sums",
    "block_sums",
    "covariances",
    "inverse",
    "joint_evidence",
    "lonely",
    "pieces",
    "seated",
    "set_evidence",
    "solved",
    "user_sums",
]

STACKED_CHOLESKY = 100  # features from which matrices are factored one by one, on threads
AT_ONCE = 1 << 23  # numbers held at a time beside the users' own
UNLIKELY = 1e-6  # probability below which a block is not looked at


class Prior(NamedTuple):
    """What is assumed about users before their answers."""

    m0: FloatArray  # (d,)
    within: float  # τ²
    between: float  # ρ²
    top: float  # σ²

    @property
    def alone(self) -> float:
        """τ² + ρ², around m_0, for somebody in no block."""
        return self.within + self.between

    def stretched(self, factor: float) -> Prior:
        """Of preferences so many times as strong."""
        return Prior(factor * self.m0, factor**2 * self.within, factor**2 * self.between, self.top)


@dataclass(frozen=True, eq=False)
class Sums:
    """Σ over a set's users of the terms in its centre m: level + aᵀm − mᵀAm/2. Leading axes are several sets."""

    A: FloatArray  # (..., d, d)
    a: FloatArray  # (..., d)
    level: FloatArray  # (...,)

    def __getitem__(self, sets: Any) -> Sums:
        return Sums(self.A[sets], self.a[sets], self.level[sets])

    def __len__(self) -> int:
        return len(self.level)

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.A + other.A, self.a + other.a, self.level + other.level)


def user_sums(users: Quadratics, within: float) -> Sums:
    """Everybody as a set of one."""
    return Sums(users.curvatures(within), users.pulls(within), users.levels(within))


def block_sums(users: Quadratics, within: float, share: FloatArray) -> Sums:
    """Sums of each block when user u belongs to block k by share[u, k]."""
    return Sums(users.curvatures_of(within, share), share.T @ users.pulls(within), share.T @ users.levels(within))


def set_evidence(sums: Sums, m0: FloatArray, between: float) -> FloatArray:
    """log ∫ exp(level + aᵀm − mᵀAm/2) N(m; m_0, ρ² I) dm for each set.

    With P = I + ρ²A and b = ρ²a + m_0 it is level − log|P|/2 + (bᵀP⁻¹b − m_0ᵀm_0) / 2ρ². One Cholesky factor of P
    bordered by b gives both: the last pivot is what bᵀP⁻¹b leaves of the corner.
    """
    b = between * sums.a + m0
    corner = 1.0 + np.einsum("...i,...i->...", b, b)  # more than bᵀP⁻¹b, since P is at least I
    if sums.a.shape[-1] < STACKED_CHOLESKY or sums.level.ndim == 0:
        pivots = _pivots(_bordered(sums.A, b, corner, between))
    else:
        pivots = _each_pivots(lambda k: _bordered(sums.A[k], b[k], corner[k], between), len(b), b.shape[1] + 1)
    return sums.level + _evidence(pivots, corner, m0, between)


def joint_evidence(
    base: Sums, at: IntArray, other: Sums, which: IntArray, times: FloatArray, m0: FloatArray, between: float
) -> FloatArray:
    """`set_evidence` of base[at] + times × other[which], pair by pair, as if all levels were 0; (pairs,)."""
    d = base.a.shape[-1]
    found = np.empty(len(at))
    for piece in pieces(len(at), d * d):
        k, u, t = at[piece], which[piece], times[piece]
        b = between * (base.a[k] + t[:, None] * other.a[u]) + m0
        corner = 1.0 + np.einsum("...i,...i->...", b, b)
        few = t.astype(base.A.dtype)
        if d < STACKED_CHOLESKY:
            pivots = _pivots(_bordered(base.A[k] + few[:, None, None] * other.A[u], b, corner, between))
        else:

            def one(i: int, k: Any = k, u: Any = u, few: Any = few, b: Any = b, corner: Any = corner) -> FloatArray:
                both = few[i] * other.A[u[i]]
                both += base.A[k[i]]
                return _bordered(both, b[i], corner[i], between)

            pivots = _each_pivots(one, len(b), d + 1)
        found[piece] = _evidence(pivots, corner, m0, between)
    return found


def _bordered(A: FloatArray, b: FloatArray, corner: FloatArray, between: float) -> FloatArray:
    """I + ρ²A with b beside and below it, and `corner` in the corner."""
    d = A.shape[-1]
    whole = np.empty((*A.shape[:-2], d + 1, d + 1), dtype=A.dtype)
    np.multiply(A, A.dtype.type(between), out=whole[..., :d, :d])
    whole[..., np.arange(d), np.arange(d)] += 1.0
    whole[..., d, :d] = whole[..., :d, d] = b
    whole[..., d, d] = corner
    return whole


def _evidence(pivots: FloatArray, corner: FloatArray, m0: FloatArray, between: float) -> FloatArray:
    quadratic = corner - pivots[..., -1] ** 2
    value: FloatArray = 0.5 * (quadratic - m0 @ m0) / between - np.log(pivots[..., :-1]).sum(-1)
    return value


def _each_pivots(matrix: Callable[[int], FloatArray], n: int, size: int) -> FloatArray:
    each = for_each(lambda k: _pivots(matrix(k)), range(n), label="evidence of sets")
    return np.array(each).reshape(n, size)


def pieces(n: int, size: int) -> Iterator[slice]:
    """Slices of n matrices of `size` numbers that fit in memory together."""
    step = max(1, AT_ONCE // size)
    return (slice(start, start + step) for start in range(0, n, step))


def _pivots(matrices: FloatArray) -> FloatArray:
    """Diagonals of the Cholesky factors, in double precision; a single large matrix is overwritten."""
    if matrices.shape[-1] <= STACKED_CHOLESKY:
        return np.diagonal(np.linalg.cholesky(matrices), axis1=-2, axis2=-1)
    (potrf,) = get_lapack_funcs(("potrf",), (matrices,))
    factor, info = potrf(matrices.T, lower=True, clean=False, overwrite_a=True)
    if info:
        raise np.linalg.LinAlgError(f"information matrix is not positive definite (pivot {info})")
    return np.diagonal(factor).astype(np.float64)


def inverse(matrices: FloatArray) -> FloatArray:
    """Inverses of symmetric positive definite matrices, (k, d, d)."""
    if matrices.shape[-1] <= STACKED_CHOLESKY:
        return np.asarray(np.linalg.inv(matrices), dtype=np.float64)
    potrf, potri = get_lapack_funcs(("potrf", "potri"), (matrices,))

    def one(matrix: FloatArray) -> FloatArray:
        return mirrored(potri(potrf(matrix.T, lower=True, clean=False)[0], lower=True, overwrite_c=True)[0])

    return np.array(for_each(one, list(matrices), label="inverses"), dtype=matrices.dtype).reshape(matrices.shape)


@dataclass(frozen=True, eq=False)
class Centres:
    """What is known about each block's centre."""

    sums: Sums
    mean: FloatArray  # (K, d)
    doubt: FloatArray  # (K, d, d) covariance

    @classmethod
    def of(cls, sums: Sums, prior: Prior) -> Centres:
        """Posterior of m_k given the answers of its users."""
        d = len(prior.m0)
        few = sums.A.dtype.type(prior.between)
        doubt = few * inverse(np.eye(d, dtype=sums.A.dtype) + few * sums.A)
        return cls(sums, np.einsum("kij,kj->ki", doubt, sums.a + prior.m0 / prior.between), doubt)


@dataclass(frozen=True, eq=False)
class Person:
    """The posterior of one user: a mixture over blocks."""

    quadratic: Quadratic
    weights: FloatArray  # (K + 1,) probability of each block and, last, of standing alone
    prior: Prior
    centres: Centres

    @cached_property
    def parts(self) -> list[tuple[float, float, FloatArray, FloatArray | None]]:
        """Each part that is likely enough: weight, prior variance, prior mean, doubt of it."""
        prior, K = self.prior, len(self.weights) - 1
        found: list[tuple[float, float, FloatArray, FloatArray | None]] = []
        for k in np.flatnonzero(self.weights > UNLIKELY):
            middle, variance = (self.centres.mean[k], prior.within) if k < K else (prior.m0, prior.alone)
            found.append((float(self.weights[k]), variance, middle, self.centres.doubt[k] if k < K else None))
        return found

    @cached_property
    def mean(self) -> FloatArray:
        """E θ, (d,)."""
        return np.sum([part[0] * mean for part, mean in zip(self.parts, self.means, strict=True)], axis=0)

    @cached_property
    def means(self) -> list[FloatArray]:
        """E θ in each part, (d,)."""
        return [self.quadratic.posterior_mean(middle, variance) for _, variance, middle, _ in self.parts]

    @cached_property
    def apart(self) -> list[FloatArray | float]:
        """How far each part's mean is from that of all."""
        return [0.0] if len(self.parts) == 1 else [mean - self.mean for mean in self.means]

    def variance(self, rows: FloatArray) -> FloatArray:
        """rowᵀ C row for each row."""
        total = np.zeros(len(rows))
        for (weight, variance, _, doubt), off in zip(self.parts, self.apart, strict=True):
            through = self.quadratic.keep(rows, variance)
            part = np.maximum(variance * np.einsum("ij,ij->i", rows, through), 0.0)
            if not isinstance(off, float):
                part += (rows @ off) ** 2
            if doubt is not None:
                part += np.einsum("ij,ij->i", through @ doubt, through)
            total += weight * part
        return total

    def covariance(self) -> FloatArray:
        """C, shape (d, d)."""
        d = len(self.prior.m0)
        C = np.zeros((d, d))
        for (weight, variance, _, doubt), off in zip(self.parts, self.apart, strict=True):
            C += weight * variance * self.quadratic.keep(np.eye(d), variance)
            if not isinstance(off, float):
                C += weight * np.outer(off, off)
            if doubt is not None:
                C += weight * self.quadratic.keep(self.quadratic.keep(doubt, variance).T, variance)
        return (C + C.T) / 2.0


@dataclass(frozen=True, eq=False)
class Blocks:
    """Who sits where, by probability, and everybody's posterior under that."""

    users: Quadratics
    share: FloatArray  # (U, K) probability of each block; what is missing to 1 is the probability of standing alone
    mean: FloatArray  # (U, d) posterior mean of each user
    prior: Prior
    centres: Centres
    sites: Sites  # from which the users' quadratics are
    evidence: float  # log evidence of the data and of who sits together

    def __len__(self) -> int:
        return len(self.share)

    @cached_property
    def weights(self) -> FloatArray:
        """(U, K + 1) probability of each block and, last, of standing alone."""
        return np.column_stack([self.share, lonely(self.share)])

    @property
    def is_cloud(self) -> bool:
        """One block in which everybody certainly is."""
        return self.share.shape[1] == 1 and bool((self.share == 1.0).all())

    def person(self, user: int) -> Person:
        """One user's posterior."""
        return Person(self.users.one(user), self.weights[user], self.prior, self.centres)

    def refined(self, data: Signed, stretch: float = 1.0, step: float = 1.0) -> Sites:
        """The sites of everybody's rows, matched to what is now believed about their margins, `stretch` times that."""
        mean, variance = self.margins(data)
        precision, pull, level = self.sites
        sites = Sites(precision / stretch**2, pull / stretch, level)
        return refine(sites, data.weights, stretch * mean, stretch**2 * variance, step)

    def margins(self, data: Signed) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the margin of each row of these users, (n,) each."""
        mean = np.concatenate([data.X[data.own(u)] @ self.mean[u].astype(data.X.dtype) for u in range(len(data))])
        return mean.astype(np.float64), self._margin_variances(data)

    def _margin_variances(self, data: Signed) -> FloatArray:
        """xᵀ C_u x for each row of each user."""
        if data.dim > STACKED_UP_TO:
            each = for_each(
                lambda u: self.person(u).variance(data.X[data.own(u)]), range(len(self)), label="uncertainty of margins"
            )
            return np.concatenate(each)
        C = covariances(self)
        found = np.empty(len(data.X))
        torn = self.weights.max(axis=1) < 1.0 - UNLIKELY
        for user in range(len(self)):
            own = data.own(user)
            rows = data.X[own]
            if torn[user]:
                found[own] = self.person(user).variance(rows)
            else:
                found[own] = np.einsum("ij,ij->i", rows @ C[user], rows)
        return found


def covariances(blocks: Blocks) -> FloatArray:
    """C_u of everybody, (U, d, d); of somebody torn between blocks, as if the likeliest half were certain."""
    users, d = blocks.users, len(blocks.prior.m0)
    if d > STACKED_UP_TO:
        return np.array([blocks.person(u).covariance() for u in range(len(blocks))])
    assert isinstance(users, ByDirections)
    V, h = users.V.reshape(-1, d, d), users.h.reshape(-1, d)
    alone = blocks.weights[:, -1] > 0.5
    variance = np.where(alone, blocks.prior.alone, blocks.prior.within)[:, None]
    shrink = 1.0 / (1.0 + variance * h)
    inside = np.where(alone[:, None], 0.0, blocks.share)
    doubt = (inside @ blocks.centres.doubt.reshape(-1, d * d)).reshape(-1, d, d)
    along = np.matmul(np.matmul(V, doubt), V.transpose(0, 2, 1)) * shrink[:, :, None] * shrink[:, None, :]
    along[:, np.arange(d), np.arange(d)] += variance * shrink
    return np.matmul(np.matmul(V.transpose(0, 2, 1), along), V)


def solved(users: Quadratics, sites: Sites, share: FloatArray, prior: Prior, evidence: float = -np.inf) -> Blocks:
    """Blocks with these seats."""
    users.expect(prior.within)
    return seated(users, sites, share, prior, Centres.of(block_sums(users, prior.within, share), prior), evidence)


def seated(
    users: Quadratics, sites: Sites, share: FloatArray, prior: Prior, centres: Centres, evidence: float = -np.inf
) -> Blocks:
    """Blocks with these seats and centres."""
    alone = lonely(share)
    mean = users.posterior_means(share @ centres.mean, prior.within, share.sum(axis=1))
    if alone.any():
        mean += users.posterior_means(alone[:, None] * prior.m0, prior.alone, alone)
    return Blocks(users, share, mean, prior, centres, sites, evidence)


def lonely(share: FloatArray) -> FloatArray:
    """(U,) the probability of standing alone that `share` leaves."""
    return np.maximum(1.0 - share.sum(axis=1), 0.0)
