"""Each user's quadratic as a matrix, from which the terms for one τ² come by inverting it.

That takes less than a sixth of the time of eigenvectors, which would pay only where many τ² are tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import get_blas_funcs
from scipy.linalg.lapack import get_lapack_funcs

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.execution.executor import for_each
from prefkin.inference import _kernels
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics.evidence import set_evidence
from prefkin.inference.quadratics.forms import Terms
from prefkin.inference.quadratics.signed import Signed, per_user_sum

__all__ = ["SHORT", "STACKED_UP_TO", "ByMatrices", "mirrored"]

STACKED_UP_TO = 64  # features: up to here, all users' matrices are inverted in one call
SHORT = 16  # features: up to here, compiled loops over rows take less time than a product of matrices for each user
FAINT, FAINT_SINGLE = 1e-4, 0.005  # mean of τ²H's eigenvalues below which I − G would lose A's digits
LOUD = 3e4  # norm of τ²H above which single precision is not enough
STRIP = 64  # rows mirrored at once
AT_ONCE = 1 << 16  # numbers of small matrices worked on at once: what is made on the way stays in the cache


@dataclass(frozen=True, eq=False)
class ByMatrices:
    """Everybody's H and c; with single precision also the rows they were made of."""

    H: FloatArray  # (U, d, d)
    c: FloatArray  # (U, d)
    const: FloatArray  # (U,)
    source: tuple[Signed, Sites, IntArray] | None = None  # rows, their sites, and who of their owners each one is

    @classmethod
    def of(cls, data: Signed, sites: Sites) -> ByMatrices:
        """From the sites of everybody's rows."""
        n, d, kind = len(data), data.dim, data.X.dtype
        root, pull = np.sqrt(sites.precision).astype(kind), sites.pull.astype(kind)
        H, c = np.empty((n, d, d), dtype=kind), np.empty((n, d))

        def one(user: int) -> None:
            own = data.own(user)
            X = data.X[own]
            scaled = X * root[own, None]
            np.matmul(scaled.T, scaled, out=H[user])
            c[user] = pull[own] @ X

        if d <= SHORT and kind == np.float64:
            H[...], c[...] = 0.0, 0.0
            _kernels.sum_up(data.X, data.starts, sites.precision, sites.pull, H, c)
        elif d <= STACKED_UP_TO:
            for user in range(n):
                one(user)
        else:
            for_each(one, range(n), label="users as quadratics")
        source = (data, sites, np.arange(n)) if kind == np.float32 else None
        return cls(H, c, per_user_sum(sites.level, data.starts), source)

    def __len__(self) -> int:
        return len(self.const)

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.H.shape[1]

    @property
    def _small(self) -> bool:
        return self.dim <= STACKED_UP_TO and self.H.dtype == np.float64

    def some(self, users: IntArray) -> ByMatrices:
        """A few, in the order given."""
        source = None if self.source is None else (*self.source[:2], self.source[2][users])
        return ByMatrices(self.H[users], self.c[users], self.const[users], source)

    def at(self, variance: float) -> Terms:
        """Everybody's terms in the mean of a prior with variance τ²: U d² numbers."""
        A, a, level = np.empty_like(self.H), np.empty(self.c.shape), np.empty(len(self))
        if self._small:
            d = self.dim
            room = np.empty((d, d)), np.empty((3, 4, d + 4))
            _kernels.integrate(self.H, self.c, float(variance), FAINT * d, *room, A, a, level)
            return Terms(A, a, self.const + _numbers(level))

        def one(user: int) -> None:
            factored = self._factored(user, variance)
            a[user], level[user] = factored.linear()
            factored.curvature(A[user])

        for_each(one, range(len(self)), label="information")
        return Terms(A, a, self.const + level)

    def evidences(self, mean: FloatArray, variance: float) -> FloatArray:
        """log ∫ exp(quadratic) N(θ; mean, τ² I) dθ of everybody, (U,)."""
        if self._small:
            return set_evidence(Terms(self.H, self.c, self.const), mean, variance)

        def one(user: int) -> float:
            factored = self._factored(user, variance)
            a, level = factored.linear()
            image = factored.H @ factored.solve(mean)
            return level + float(a @ mean) - 0.5 * float(image.astype(np.float64) @ mean)

        return self.const + np.array(for_each(one, range(len(self)), label="evidence"))

    def posterior_means(self, means: FloatArray, variance: float, trust: FloatArray) -> FloatArray:
        """trust × E θ of everybody when θ ~ N(means / trust, τ² I), (U, d), in less time than the terms take."""
        found = np.empty(self.c.shape)
        if self._small:
            for some, H, M in self._stacked(variance):
                m = means[some]
                pull = trust[some, None] * self.c[some] - np.matmul(H, m[:, :, None])[:, :, 0]
                found[some] = m + variance * np.linalg.solve(M, pull[:, :, None])[:, :, 0]
            return found

        def one(user: int) -> None:
            factored = self._factored(user, variance)
            pull = trust[user] * factored.c - factored.H @ means[user]
            found[user] = means[user] + variance * factored.solve(pull).astype(np.float64)

        for_each(one, range(len(self)), label="posterior means")
        return found

    def renewed(self, data: Signed, sites: Sites, mine: IntArray, theirs: IntArray) -> ByMatrices:
        """These users at positions `mine`, those with these rows at `theirs`, also in place of them.

        In double precision: rows of single precision are not kept.
        """
        others = ByMatrices.of(data, sites)
        n = len(np.union1d(mine, theirs))
        H, c, const = (np.empty((n, *each.shape[1:]), each.dtype) for each in (self.H, self.c, self.const))
        for target, one, other in ((H, self.H, others.H), (c, self.c, others.c), (const, self.const, others.const)):
            target[mine], target[theirs] = one, other
        return ByMatrices(H, c, const)

    def _stacked(self, variance: float) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
        """Some users at a time, their H and I + τ²H."""
        step = max(1, AT_ONCE // self.dim**2)
        for some in (slice(start, start + step) for start in range(0, len(self), step)):
            M = variance * self.H[some]
            np.einsum("...ii->...i", M)[...] += 1.0
            yield some, self.H[some], M

    def _factored(self, user: int, variance: float) -> _Factored:
        """In double precision where single precision could not tell a known direction from an unknown one."""
        H, c = self.H[user], self.c[user]
        if self.source is not None and variance * float(np.linalg.norm(H)) > LOUD:
            data, sites, place = self.source
            own = data.own(int(place[user]))
            scaled = data.X[own] * np.sqrt(sites.precision[own])[:, None]
            H, c = scaled.T @ scaled, sites.pull[own] @ data.X[own]
        return _Factored(H, c, variance)


class _Factored:
    """One user's I + τ²H, as the lower Cholesky factor."""

    def __init__(self, H: FloatArray, c: FloatArray, variance: float) -> None:
        self.H, self.c, self.variance = H, c, variance
        self.potrf, self.potri, self.potrs = get_lapack_funcs(("potrf", "potri", "potrs"), (H,))
        M = np.multiply(H, H.dtype.type(variance)).T  # symmetric, so that this is the order LAPACK works in
        _diagonal(M)[...] += 1.0
        self.factor, failed = self.potrf(M, lower=True, clean=False, overwrite_a=True)
        if failed:
            raise np.linalg.LinAlgError(f"information matrix is not positive definite (pivot {failed})")

    def solve(self, vectors: FloatArray) -> FloatArray:
        """G × vectors."""
        return np.asarray(self.potrs(self.factor, vectors.astype(self.H.dtype), lower=True)[0])

    def linear(self) -> tuple[FloatArray, float]:
        """a, and level − const."""
        (trsv,) = get_blas_funcs(("trsv",), (self.H,))
        half = trsv(self.factor, self.c.astype(self.H.dtype), lower=1)
        a = trsv(self.factor, half, lower=1, trans=1).astype(np.float64)
        volume = 2.0 * float(np.log(np.diagonal(self.factor).astype(np.float64)).sum())
        half = half.astype(np.float64)
        return a, 0.5 * (self.variance * float(half @ half) - volume)

    def curvature(self, out: FloatArray) -> None:
        """A, into `out`; the factor is overwritten."""
        G = mirrored(self.potri(self.factor, lower=True, overwrite_c=True)[0])
        faint = FAINT_SINGLE if self.H.dtype == np.float32 else FAINT
        if self.variance * float(np.trace(self.H)) < faint * len(G):
            product = self.H @ G
            np.multiply(0.5, product + product.T, out=out, casting="same_kind")
        else:
            np.multiply(G.T, G.dtype.type(-1.0 / self.variance), out=out, casting="same_kind")
            _diagonal(out)[...] += out.dtype.type(1.0 / self.variance)


def _numbers(found: FloatArray) -> FloatArray:
    """What a kernel found, if it is something."""
    if np.isnan(found).any():
        raise np.linalg.LinAlgError("information matrix is not positive definite")
    return found


def _diagonal(matrix: FloatArray) -> FloatArray:
    return np.einsum("ii->i", matrix)


def mirrored(lower: FloatArray) -> FloatArray:
    """The symmetric matrix whose lower triangle is given, in place."""
    for start in range(0, len(lower), STRIP):
        end = start + STRIP
        corner = lower[start:end, start:end]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
        lower[start:end, end:] = lower[end:, start:end].T
    return lower
