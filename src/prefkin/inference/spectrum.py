"""Smallest eigenvalues of Σ w z zᵀ, without a full decomposition where there are many features."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh, eigh_tridiagonal
from scipy.linalg.blas import ssyrk, strsv
from scipy.linalg.lapack import spotrf

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.rows import Rows
from prefkin.execution.executor import for_each
from prefkin.inference import _kernels

__all__ = ["gram", "least_eigenvalue", "least_eigenvalues"]

DECOMPOSED_UP_TO = 192  # features: below, a decomposition of the whole matrix is quicker
ACCURACY = 1e-8  # relative, where no decomposition is made; a bound, usually far from reached
LANCZOS_STEPS = 100
KEPT = 2  # trial vectors: an eigenvalue close to the smallest does not blur it
SETTLED = 1e-9  # of the value is missing when Lanczos' method ends: its steps cost a third of a correction
CORRECTIONS = 12
STACK_NUMBERS = 2**21  # numbers in the matrices that are decomposed in one call, or in the rows they are made of


def gram(rows: Rows) -> FloatArray:
    """Σ w_i z_i z_iᵀ, exactly symmetric."""
    scaled = _scaled(rows)
    product: FloatArray = scaled.T @ scaled
    return product


def _scaled(rows: Rows) -> FloatArray:
    Z = rows.Z.astype(np.float64, copy=False)
    return Z if (rows.weights == 1.0).all() else Z * np.sqrt(rows.weights)[:, None]


def least_eigenvalue(rows: Rows) -> float:
    """Smallest eigenvalue of Σ w_i z_i z_iᵀ; with fewer rows than features it is 0 and nothing is computed.

    >>> least_eigenvalue(Rows(np.array([[3.0, 0.0], [0.0, 2.0]]), np.ones(2), np.ones(2)))
    4.0
    """
    n, d = rows.Z.shape
    if n < d:
        return 0.0
    if d > DECOMPOSED_UP_TO:
        found = _by_inverse_lanczos(_scaled(rows))
        if found is not None:
            return found
    return max(0.0, float(eigh(gram(rows), eigvals_only=True, subset_by_index=[0, 0], check_finite=False)[0]))


def least_eigenvalues(rows: Rows, starts: IntArray) -> FloatArray:
    """`least_eigenvalue` of each user's rows starts[u]:starts[u + 1], shape (U,)."""
    d = rows.Z.shape[1]
    if d > DECOMPOSED_UP_TO:
        each = for_each(
            lambda u: least_eigenvalue(Rows(*(part[starts[u] : starts[u + 1]] for part in rows))),
            range(len(starts) - 1),
            label="eigenvalues",
        )
        return np.array(each)
    least = np.zeros(len(starts) - 1)
    full = np.flatnonzero(np.diff(starts) >= d)

    def some_of(users: IntArray) -> None:
        found, grams = np.empty(len(users)), _grams(rows, starts, users)
        size = np.einsum("uii->ui", grams).max(axis=1)
        size = np.where(size > 0.0, size, 1.0)
        grams /= size[:, None, None]  # squares of small numbers would vanish
        _kernels.least_eigenvalues(grams, np.empty(d), found)
        least[users] = size * found

    numbers = d * max(len(full) * d, len(rows.Z))
    for_each(some_of, np.array_split(full, max(1, numbers // STACK_NUMBERS)), label="eigenvalues")
    return least


def _grams(rows: Rows, starts: IntArray, users: IntArray) -> FloatArray:
    """Σ w z zᵀ of each of these users, shape (users, d, d)."""
    d = rows.Z.shape[1]
    matrices = np.empty((len(users), d, d))
    if len(users) == 0:
        return matrices
    begin, end = starts[users[0]], starts[users[-1] + 1]
    Z = _scaled(Rows(*(part[begin:end] for part in rows)))
    for user, matrix in zip(users, matrices, strict=True):
        own = Z[starts[user] - begin : starts[user + 1] - begin]
        np.matmul(own.T, own, out=matrix)
    return matrices


def _by_inverse_lanczos(X: FloatArray) -> float | None:
    """Smallest eigenvalue of XᵀX from a float32 factorisation, made accurate by products with X; None if it is not.

    Lanczos on the inverse finds the vector and its neighbours; the value is a Rayleigh quotient in float64, whose
    error is at most ‖residual‖² / gap. Where that is too much, the residual, solved with the same factor, corrects it.
    """
    d = X.shape[1]
    light = X.astype(np.float32)
    factor, failed = spotrf(ssyrk(1.0, light.T, lower=1), lower=1, clean=0, overwrite_a=1)
    if failed or not np.isfinite(factor[-1, -1]):
        return None
    basis = np.empty((LANCZOS_STEPS + 1, d), dtype=np.float32)
    start = np.cos(np.arange(d) ** 2 % 997, dtype=np.float32)
    basis[0] = start / np.linalg.norm(start)
    diagonal, beside = np.empty(LANCZOS_STEPS), np.empty(LANCZOS_STEPS)
    for k in range(LANCZOS_STEPS):
        image = _solved(factor, basis[k])
        diagonal[k] = basis[k] @ image
        for _ in range(2):  # twice, so that the basis stays orthogonal
            image -= basis[: k + 1].T @ (basis[: k + 1] @ image)
        beside[k] = np.linalg.norm(image)
        basis[k + 1] = image / max(beside[k], 1e-30)
        if k >= 11 and k % 2 == 1:
            ritz, mix = eigh_tridiagonal(diagonal[: k + 1], beside[:k], check_finite=False)
            missing = (mix[-1, -1] * beside[k]) ** 2 / (ritz[-1] - ritz[-2])  # of the largest eigenvalue, about
            if missing <= SETTLED * ritz[-1]:
                break
    if not ritz[-KEPT - 1] > 0:
        return None
    trial = np.linalg.qr(basis[: k + 1].T.astype(np.float64) @ mix[:, : -KEPT - 1 : -1])[0].T
    return _corrected(X, factor, trial, gap=1.0 / ritz[-KEPT - 1] - 1.0 / ritz[-1])


def _solved(factor: FloatArray, b: FloatArray) -> FloatArray:
    half = strsv(factor, b, lower=1)
    whole: FloatArray = strsv(factor, half, lower=1, trans=1, overwrite_x=1)
    return whole


def _corrected(X: FloatArray, factor: FloatArray, trial: FloatArray, gap: float) -> float | None:
    """The smallest Rayleigh quotient among `trial` (orthonormal rows), until its error is below `ACCURACY`.

    `gap` is the distance to the eigenvalues beyond those the rows of `trial` stand for. Where the residual is too
    large, it is solved with the factor and joins the trial vectors.
    """
    images = np.array([X @ vector for vector in trial])
    for _ in range(CORRECTIONS):
        _, turn = np.linalg.eigh(images @ images.T)
        vector, image = turn[:, 0] @ trial, turn[:, 0] @ images
        value = float(image @ image)
        residual = X.T @ image - value * vector
        if float(residual @ residual) <= ACCURACY * value * gap:
            return value
        step = _solved(factor, residual.astype(np.float32)).astype(np.float64)
        for _ in range(2):
            step -= trial.T @ (trial @ step)
        step /= np.linalg.norm(step)
        trial, images = np.vstack([trial, step]), np.vstack([images, X @ step])
    return None
