"""Bradley-Terry-Luce likelihood and its regularised maximum  [paper: theta_hat].

A user with preference θ prefers a to a′ with probability σ(θᵀz), z = φ(x, a) − φ(x, a′). The estimate minimises

    Σ_i w_i [log(1 + exp(θᵀz_i)) − y_i θᵀz_i] + λ/2 ‖θ‖²,

which is strictly convex for λ > 0. Newton's method solves it; only the linear system inside changes with the
shape of the data.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.special import expit

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.rows import Rows, UserRows
from prefkin.errors import ConvergenceError
from prefkin.execution.executor import for_each
from prefkin.inference.compiled import RowSets, compiled_kernels, fit_compiled, refit_compiled

__all__ = [
    "estimate_users",
    "fit_preference",
    "fit_sets",
    "fit_with_prior",
    "fitting_seconds",
    "log_loss",
    "newton_direction",
    "refit_sequence",
]

DIRECT_UP_TO = 192  # a factorisation of this order is cheaper than the passes over the data that CG needs
ROUNDING = 64 * np.finfo(np.float64).eps


def log_loss(theta: FloatArray, rows: Rows) -> float:
    """Weighted sum of −log probability of the answers under preference `theta`.

    >>> rows = Rows(np.array([[1.0]]), np.array([1.0]), np.array([1.0]))
    >>> round(log_loss(np.array([0.0]), rows), 4)
    0.6931
    """
    return float(rows.weights @ np.logaddexp(0.0, (1.0 - 2.0 * rows.y) * (rows.Z @ theta)))


def fit_preference(
    rows: Rows,
    *,
    ridge: float,
    start: FloatArray | None = None,
    offset: FloatArray | float = 0.0,
    tol: float = 1e-9,
    max_iter: int = 100,
) -> FloatArray:
    """The preference that explains `rows` best, shrunk by `ridge`  [paper: theta_hat, pool, theta_n].

    Stops when a Newton step moves neither θ nor any margin by more than `tol`, relative to 1 + their size: the step
    estimates the distance to the optimum, and what is left after taking it is smaller still.

    >>> rows = Rows(np.array([[1.0], [1.0], [1.0]]), np.array([1.0, 1.0, 0.0]), np.ones(3))
    >>> theta = fit_preference(rows, ridge=1.0)
    >>> bool(abs(3 * expit(theta[0]) - 2 + theta[0]) < 1e-9)       # the gradient vanishes
    True
    """
    Z, y, weights = rows.Z.astype(np.float64, copy=False), rows.y, rows.weights
    side = 1.0 - 2.0 * y  # −1 where a was preferred: log(1 + exp(side·margin)) loses no digits, unlike log(1 + eᵐ) − ym
    theta = np.zeros(Z.shape[1]) if start is None else np.array(start, dtype=np.float64)
    margin = Z @ theta + offset  # `offset` is the part of the margins that is not up for estimation
    value = _objective(margin, theta, side, weights, ridge)
    for _ in range(max_iter):
        miss = expit(side * margin)  # probability of the answer that was not given
        gradient = Z.T @ (weights * side * miss) + ridge * theta
        step = newton_direction(Z, weights * miss * (1.0 - miss), gradient, ridge)
        move = Z @ step
        if _small(step, theta, tol) and _small(move, margin, tol):
            return theta - step
        slope = float(gradient @ step)  # positive: −step is a descent direction
        size = 1.0
        while True:
            new_theta, new_margin = theta - size * step, margin - size * move
            new_value = _objective(new_margin, new_theta, side, weights, ridge)
            if new_value <= value - 1e-4 * size * slope + ROUNDING * abs(value):
                break
            size /= 2.0
            if size < 1e-10:
                raise ConvergenceError(_failure(gradient, "no descent along the Newton direction"))
        theta, margin, value = new_theta, new_margin, new_value
    raise ConvergenceError(_failure(gradient, f"no optimum after {max_iter} Newton steps"))


def fit_with_prior(rows: Rows, *, mean: FloatArray, precision: FloatArray) -> FloatArray:
    """The mode of θ ~ N(mean, precision⁻¹) given the answers in `rows`.

    >>> rows = Rows(np.array([[1.0, 0.0]]), np.ones(1), np.ones(1))
    >>> np.allclose(fit_with_prior(rows, mean=np.zeros(2), precision=2 * np.eye(2)), fit_preference(rows, ridge=2.0))
    True
    """
    factor = cholesky(precision, lower=True)
    white = solve_triangular(factor, rows.Z.T, lower=True).T
    move = fit_preference(Rows(white, rows.y, rows.weights), ridge=1.0, offset=rows.Z @ mean)
    return mean + solve_triangular(factor, move, lower=True, trans="T")


def _objective(margin: FloatArray, theta: FloatArray, side: FloatArray, weights: FloatArray, ridge: float) -> float:
    return float(weights @ np.logaddexp(0.0, side * margin) + ridge / 2.0 * (theta @ theta))


def _small(change: FloatArray, value: FloatArray, tol: float) -> bool:
    return bool(np.linalg.norm(change) <= tol * (1.0 + np.linalg.norm(value)))


def _failure(gradient: FloatArray, what: str) -> str:
    return f"{what}: largest gradient entry {np.abs(gradient).max():.1e}; raise ridge or scale the features down"


def newton_direction(Z: FloatArray, curvature: FloatArray, gradient: FloatArray, ridge: float) -> FloatArray:
    """Solve (Zᵀ diag(curvature) Z + λ I) step = gradient by the route that fits the shape of Z.

    >>> Z, one = np.array([[1.0, 0.0], [0.0, 2.0]]), np.ones(2)
    >>> newton_direction(Z, one, np.array([2.0, 5.0]), 1.0).round(12).tolist()
    [1.0, 1.0]
    """
    n, d = Z.shape
    if min(n, d) > DIRECT_UP_TO:
        return _conjugate_gradients(Z, curvature, gradient, ridge)
    scaled = Z * np.sqrt(curvature)[:, None]
    if n < d:  # Woodbury: an n × n system instead of d × d
        dual = scaled @ scaled.T
        dual[np.diag_indices(n)] += ridge
        inner: FloatArray = cho_solve(cho_factor(dual, check_finite=False), scaled @ gradient, check_finite=False)
        return (gradient - scaled.T @ inner) / ridge
    hessian = scaled.T @ scaled
    hessian[np.diag_indices(d)] += ridge
    direct: FloatArray = cho_solve(cho_factor(hessian, check_finite=False), gradient, check_finite=False)
    return direct


def _conjugate_gradients(Z: FloatArray, curvature: FloatArray, gradient: FloatArray, ridge: float) -> FloatArray:
    """Diagonally preconditioned conjugate gradients, tighter the closer the optimum (smaller gradient) is."""
    scale = 1.0 / (curvature @ (Z * Z) + ridge)
    solution = np.zeros_like(gradient)
    residual = gradient.copy()
    conditioned = scale * residual
    direction = conditioned.copy()
    size = start = float(residual @ conditioned)
    accuracy = min(0.1, np.sqrt(start))  # superlinear convergence of the outer iteration
    for _ in range(10 * len(gradient)):
        if size <= accuracy**2 * start:
            break
        image = Z.T @ (curvature * (Z @ direction)) + ridge * direction
        length = size / float(direction @ image)
        solution += length * direction
        residual -= length * image
        conditioned = scale * residual
        previous, size = size, float(residual @ conditioned)
        direction = conditioned + size / previous * direction
    return solution


def estimate_users(users: UserRows, *, ridge: float, n_jobs: int | None = None) -> FloatArray:
    """θ̂_u from each user's own rows, shape (U, d)  [paper: theta_hat]."""
    sets = RowSets(users.starts[:-1], users.starts[1:], np.arange(len(users) + 1))
    return fit_sets(
        users.rows, sets, np.zeros((len(users), users.dim)), ridge=ridge, label="own estimates", n_jobs=n_jobs
    )


def fit_sets(
    rows: Rows, sets: RowSets, start: FloatArray, *, ridge: float, label: str, n_jobs: int | None = None
) -> FloatArray:
    """One estimate for each set of rows, from its row of `start`, shape (sets, d).

    Much work goes to compiled code, which stops at a relative gradient of `compiled.RELATIVE_GRADIENT`; what that
    does not solve, and little work, is `fit_preference`'s.
    """
    sizes = sets.sizes
    theta = np.array(start, dtype=np.float64)
    kernels = compiled_kernels(fitting_seconds(sizes, rows.Z.shape[1]))
    left = list(range(len(sets)))
    if kernels is not None:
        solved = fit_compiled(kernels, rows, sets, theta, ridge=ridge, label=label, n_jobs=n_jobs)
        left = np.flatnonzero(~solved).tolist()
        theta[left] = start[left]
        if not left:
            return theta
    found = for_each(
        lambda s: fit_preference(sets.rows(rows, s), ridge=ridge, start=theta[s]), left, label=label, n_jobs=n_jobs
    )
    theta[left] = found
    return theta


def refit_sequence(rows: Rows, known: int, theta: FloatArray, *, ridge: float) -> FloatArray:
    """Estimates after each row from number `known` on, given the estimate `theta` before it  [paper: theta_n].

    >>> rows = Rows(np.eye(2), np.ones(2), np.ones(2))
    >>> trail = refit_sequence(rows, 1, np.zeros(2), ridge=1.0)
    >>> np.allclose(trail[-1], fit_preference(rows, ridge=1.0))
    True
    """
    sizes = np.arange(known + 1, len(rows.y) + 1)
    kernels = compiled_kernels(fitting_seconds(sizes, rows.Z.shape[1]))
    if kernels is not None:
        trail = refit_compiled(kernels, rows, known, theta, ridge=ridge)
        if np.isfinite(trail).all():
            return trail
    trail, current = np.empty((len(sizes), rows.Z.shape[1])), theta
    for k, end in enumerate(sizes):
        trail[k] = current = fit_preference(Rows(*(part[:end] for part in rows)), ridge=ridge, start=current)
    return trail


def fitting_seconds(sizes: IntArray, d: int) -> float:
    """About how long `fit_preference` would take, one set after the other."""
    small = np.minimum(sizes, d)
    direct = np.where(small > DIRECT_UP_TO, 150.0 * DIRECT_UP_TO / d, small / 2.0)  # passes' worth, at most
    return float(np.sum(5e-4 + 6 * sizes * float(d) * (4.0 + direct) / 5e9))
