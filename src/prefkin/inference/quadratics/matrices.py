"""Each user's quadratic as a matrix, from which the terms for one τ² come by a Cholesky factor, or its inverse.

With many features and answers that takes a fifth of the time of eigenvectors, which pay only where many τ² are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.linalg import eigvalsh
from scipy.linalg.blas import get_blas_funcs
from scipy.linalg.lapack import get_lapack_funcs

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.execution.executor import for_each
from prefkin.inference.quadratics.forms import Quadratic, Quadratics
from prefkin.inference.quadratics.sites import Signed, Sites, per_user_sum

__all__ = ["AsMatrix", "ByMatrices", "mirrored"]

FAINT = 0.005  # mean of τ²H's eigenvalues below which I − G would lose A's digits
LOUD = 3e4  # norm of τ²H above which single precision is not enough
STRIP = 64  # rows mirrored at once
CROWD = 8  # users whose matrices are made before they are looked at


@dataclass(frozen=True, eq=False)
class AsMatrix(Quadratic):
    """const + cᵀθ − θᵀHθ/2."""

    at: Callable[[float], _At]
    H: FloatArray  # (d, d)
    c: FloatArray  # (d,) in single precision
    known: dict[float, FloatArray] = field(default_factory=dict, repr=False)  # A for some τ²

    @cached_property
    def h(self) -> FloatArray:
        """Eigenvalues of H."""
        return np.maximum(eigvalsh(self.H, check_finite=False), 0.0).astype(np.float64)

    def shrink(self, variance: float) -> FloatArray:
        """1 / (1 + τ² h)."""
        return 1.0 / (1.0 + variance * self.h)

    def keep(self, rows: FloatArray, variance: float) -> FloatArray:
        """row − τ² A row."""
        if variance not in self.known:
            self.known[variance] = self.at(variance).curvature()
        A = self.known[variance]
        lost = rows.astype(A.dtype, copy=False) @ A
        lost *= A.dtype.type(variance)
        return np.subtract(rows, lost, out=lost) if rows.dtype == lost.dtype else rows - lost

    def posterior_mean(self, mean: FloatArray, variance: float) -> FloatArray:
        """G (mean + τ² c)."""
        at = self.at(variance)
        return at.solve(mean + variance * at.c).astype(np.float64)


@dataclass(frozen=True, eq=False)
class ByMatrices(Quadratics):
    """Everybody's matrix; for the τ² that is held also A, for those looked at also a and level."""

    H: FloatArray  # (U, d, d)
    c: FloatArray  # (U, d)
    const: FloatArray  # (U,)
    source: tuple[Signed, Sites, IntArray] | None = None  # rows, their sites, and who of their owners each one is
    held: dict[float, tuple[FloatArray, ...]] = field(default_factory=dict, repr=False)  # A
    seen: dict[float, tuple[FloatArray, FloatArray]] = field(default_factory=dict, repr=False)  # a and level

    @classmethod
    def of(cls, data: Signed, sites: Sites) -> ByMatrices:
        """From the sites of everybody's rows."""
        kind = data.X.dtype
        root, pull = np.sqrt(sites.precision).astype(kind), sites.pull.astype(kind)
        H = np.empty((len(data), data.dim, data.dim), dtype=kind)
        c = np.empty((len(data), data.dim))

        def one(user: int) -> None:
            own = data.own(user)
            scaled = data.X[own] * root[own, None]
            np.matmul(scaled.T, scaled, out=H[user])
            c[user] = pull[own] @ data.X[own]

        for_each(one, range(len(data)), label="users as quadratics")
        return cls(H, c, per_user_sum(sites.level, data.starts), (data, sites, np.arange(len(data))))

    def __len__(self) -> int:
        return len(self.const)

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.H.shape[1]

    def one(self, user: int) -> AsMatrix:
        """With the A that is held."""
        known = {variance: A[user] for variance, (A,) in self.held.items()}
        return AsMatrix(lambda variance: self._at(user, variance), self.H[user], self.c[user], known)

    def between(self, users: slice) -> ByMatrices:
        """Without what is held."""
        return ByMatrices(self.H[users], self.c[users], self.const[users], self._source_of(users))

    def some(self, users: IntArray) -> ByMatrices:
        """Copies, without what is held."""
        return ByMatrices(self.H[users], self.c[users], self.const[users], self._source_of(users))

    def _source_of(self, users: slice | IntArray) -> tuple[Signed, Sites, IntArray] | None:
        return None if self.source is None else (*self.source[:2], self.source[2][users])

    def _at(self, user: int, variance: float) -> _At:
        """In double precision where single precision could not tell a known direction from an unknown one."""
        H, c = self.H[user], self.c[user]
        if self.source is not None and variance * float(np.linalg.norm(H)) > LOUD:
            data, sites, place = self.source
            own = data.own(int(place[user]))
            scaled = data.X[own] * np.sqrt(sites.precision[own])[:, None]
            H, c = scaled.T @ scaled, sites.pull[own] @ data.X[own]
        return _At(H, c, variance)

    def levels(self, variance: float) -> FloatArray:
        """By the factor's diagonal."""
        return self._seen(variance)[1]

    def pulls(self, variance: float) -> FloatArray:
        """By solving with the factor."""
        return self._seen(variance)[0]

    def curvatures(self, variance: float) -> FloatArray:
        """By inverses."""
        if variance in self.held:
            return self.held[variance][0]
        A = np.empty_like(self.H)
        self._show(variance, A.__setitem__)
        return A

    def curvatures_of(self, variance: float, shares: FloatArray) -> FloatArray:
        """By inverses, a few at a time."""
        total = np.zeros((shares.shape[1], self.dim, self.dim), dtype=self.H.dtype)
        few = shares.astype(self.H.dtype)

        def add(user: int, A: FloatArray) -> None:
            for k in np.flatnonzero(shares[user]):
                total[k] += A if few[user, k] == 1.0 else few[user, k] * A

        self._show(variance, add, half=True)
        for one in total:
            mirrored(one.T)
        return total

    def explained(self, means: FloatArray, variance: float) -> FloatArray:
        """By solving with the factor."""
        images = self._images(lambda user: means.T, variance)  # noqa: ARG005
        quadratic = np.einsum("udn,nd->un", images, means)
        return self.pulls(variance) @ means.T - 0.5 * quadratic

    def posterior_means(self, means: FloatArray, variance: float, trust: FloatArray) -> FloatArray:
        """By solving with the factor."""
        lost = self._images(lambda user: means[user, :, None], variance)[:, :, 0]
        return means + variance * (trust[:, None] * self.pulls(variance) - lost)

    def expect(self, variance: float) -> None:
        """The inverses, once."""
        self.hold(variance)

    def hold(self, variance: float) -> None:
        """The inverses."""
        if self.may_hold and variance not in self.held:
            self.held.clear()
            self.held[variance] = (self.curvatures(variance),)

    def _seen(self, variance: float) -> tuple[FloatArray, FloatArray]:
        if variance not in self.seen:
            self._images(lambda user: self.c[user, :, None], variance)
        return self.seen[variance]

    def _images(self, vectors: Callable[[int], FloatArray], variance: float) -> FloatArray:
        """A_u × the user's vectors, (U, d, n), for everybody."""
        if variance in self.held:
            each = [A @ vectors(user).astype(A.dtype) for user, A in enumerate(self.held[variance][0])]
            return np.array(each, dtype=np.float64)

        def one(user: int) -> tuple[FloatArray, FloatArray, float]:
            at = self._at(user, variance)
            return at.H @ at.solve(vectors(user)), *at.linear()

        images, a, gains = zip(*for_each(one, range(len(self)), label="information"), strict=True)
        self.seen[variance] = np.array(a), self.const + gains
        return np.array(images, dtype=np.float64)

    def _show(self, variance: float, look: Callable[[int, FloatArray], None], half: bool = False) -> None:
        """Show everybody's A, or its upper half, one after another in one order, whatever the threads."""
        if variance in self.held:
            for user, A in enumerate(self.held[variance][0]):
                look(user, A)
            return

        def one(user: int) -> tuple[FloatArray, FloatArray, float]:
            at = self._at(user, variance)
            linear = at.linear()
            return at.curvature(half).astype(self.H.dtype, copy=False), *linear

        a, gains = np.empty((len(self), self.dim)), np.empty(len(self))
        for start in range(0, len(self), CROWD):
            some = range(start, min(start + CROWD, len(self)))
            for user, found in zip(some, for_each(one, some, label="information"), strict=True):
                A, a[user], gains[user] = found
                look(user, A)
        self.seen[variance] = a, self.const + gains


class _At:
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

    def curvature(self, half: bool = False) -> FloatArray:
        """A, or its upper half with anything below; the factor is overwritten."""
        kind = self.H.dtype.type
        G = self.potri(self.factor, lower=True, overwrite_c=True)[0]
        faint = self.variance * float(np.trace(self.H)) < FAINT * len(G)
        if faint or not half:
            mirrored(G)
        if faint:
            product = self.H @ G
            return np.asarray((product + product.T) / 2.0)
        A = np.multiply(G, kind(-1.0 / self.variance), out=G).T
        _diagonal(A)[...] += kind(1.0 / self.variance)
        return A


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
