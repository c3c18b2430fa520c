"""The regularised Bradley-Terry-Luce estimate of one set of rows, by Newton's method  [paper: theta_hat].

Everything that solves many estimates at once is measured against this one, and leaves to it what it cannot do.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve, qr, solve_triangular
from scipy.special import expit

from prefkin.data.arrays import FloatArray, above_zero
from prefkin.data.rows import Rows
from prefkin.errors import ConvergenceError
from prefkin.inference.loss import unit_root

__all__ = ["fit_preference", "newton_direction"]

DIRECT_UP_TO = 192  # a factorisation of this order is cheaper than the passes over the data that CG needs
ROUNDING = 64 * np.finfo(np.float64).eps  # of a sum, relative to the size of what is added up
CLOSE = 1e-9  # of the length of an estimate, in features free of units: a step that moves it no farther is the last one
SOLID = 1e-8  # of a diagonal entry: where Cholesky's method leaves less, half of the digits are gone
ASTRAY = 60  # Newton steps after which it has lost its way: answers that are certain, with hardly any ridge, take 30
MOST_STEPS = 200  # of each of the fits by which it is found all the same
MORE = 100.0  # times the ridge: from the estimate with that it is found


def fit_preference(
    rows: Rows,
    *,
    ridge: float,
    start: FloatArray | None = None,
    centre: FloatArray | float = 0.0,
    offset: FloatArray | float = 0.0,
) -> FloatArray:
    """The preference that explains `rows` best, drawn towards `centre` by `ridge`  [paper: theta_hat, pool, theta_n].

    Works in features free of units (`loss.unit_root`), where rows span fewer directions in coordinates of those,
    outside of which the estimate is the centre. `offset` is a part of the margins that is not up for estimation. Stops
    when a Newton step is small: it estimates the distance to the optimum, and what is left after taking it is smaller
    still, far below `loss.TOLERANCE`.

    >>> rows = Rows(np.array([[1.0], [1.0], [1.0]]), np.array([1.0, 1.0, 0.0]), np.ones(3))
    >>> theta = fit_preference(rows, ridge=1.0)
    >>> bool(abs(3 * expit(theta[0]) - 2 + theta[0]) < 1e-9)       # the gradient vanishes
    True
    """
    Z, y, weights = rows.Z.astype(np.float64, copy=False), rows.y, rows.weights
    n, d = Z.shape
    middle = np.broadcast_to(np.asarray(centre, dtype=np.float64), (d,))
    begin = middle if start is None else np.asarray(start, dtype=np.float64)
    known = Z @ middle + offset
    if n >= d:
        try:
            return middle + _patiently(Z, y, weights, known, ridge, begin - middle)
        except ConvergenceError:
            if _span(Z).shape[1] == d:
                raise
    basis = _span(Z)
    return middle + basis @ _patiently(Z @ basis, y, weights, known, ridge, (begin - middle) @ basis)


def _span(Z: FloatArray) -> FloatArray:
    """Orthonormal columns that rows are made of, (d, rank): outside of them there is nothing but rounding."""
    if not len(Z):
        return np.empty((Z.shape[1], 0))
    basis, triangle, _ = qr(Z.T, mode="economic", pivoting=True, check_finite=False)
    size = np.abs(np.diagonal(triangle))
    real: FloatArray = basis[:, size > ROUNDING * size[0]]
    return real


def _patiently(
    Z: FloatArray, y: FloatArray, weights: FloatArray, known: FloatArray, ridge: float, start: FloatArray
) -> FloatArray:
    """`_newton`; where it goes astray, from the estimates with more ridge, much more to begin with."""
    try:
        return _newton(Z, y, weights, known, ridge, start, ASTRAY)
    except ConvergenceError:
        most = float((weights @ Z**2).max(initial=0.0))
        if not ridge < most < np.inf:
            raise
    near = np.zeros_like(start)
    for more in np.geomspace(most, ridge, 1 + int(np.ceil(np.log(most / ridge) / np.log(MORE)))):
        near = _newton(Z, y, weights, known, float(more), near, MOST_STEPS)
    return near


def _newton(
    Z: FloatArray, y: FloatArray, weights: FloatArray, known: FloatArray, ridge: float, start: FloatArray, most: int
) -> FloatArray:
    """argmin over δ of the loss at margins `known` + Zδ, and λ/2 ‖δ‖²."""
    root = unit_root(weights @ Z**2, ridge)
    X, penalty = Z * root, ridge * root**2
    side = 1.0 - 2.0 * y  # −1 where a was preferred: log(1 + exp(side·margin)) loses no digits, unlike log(1 + eᵐ) − ym
    away = start / root
    margin, size_of_rows = known + X @ away, np.abs(X)

    def objective(margin: FloatArray, away: FloatArray) -> float:
        return float(weights @ np.logaddexp(0.0, side * margin) + 0.5 * penalty @ away**2)

    value = objective(margin, away)
    for _ in range(most):
        miss = expit(side * margin)  # probability of the answer that was not given
        pull = weights * miss
        slope = X.T @ (side * pull) + penalty * away
        step = newton_direction(X, weights * miss * (1.0 - miss), slope, penalty)
        change = X @ step
        if np.linalg.norm(step) <= CLOSE * np.linalg.norm(away - step):
            return (away - step) * root
        rounding = ROUNDING * (size_of_rows.T @ pull + penalty * np.abs(away))
        if (np.abs(slope) <= rounding).all():  # steps along what rows hardly tell about lead nowhere
            return away * root
        promised = float(slope @ step)  # positive: −step is a descent direction
        size = 1.0
        while True:
            new_away, new_margin = away - size * step, margin - size * change
            new_value = objective(new_margin, new_away)
            if new_value <= value - 1e-4 * size * promised + ROUNDING * abs(value):
                break
            size /= 2.0
            if size < 1e-10:
                lost = ROUNDING * (np.abs(known) + size_of_rows @ np.abs(away))  # digits of margins, near a far centre
                if promised <= pull @ lost:
                    return away * root
                raise ConvergenceError(_failure(slope, "no descent along the Newton direction"))
        away, margin, value = new_away, new_margin, new_value
    raise ConvergenceError(_failure(slope, f"no optimum after {most} Newton steps"))


def _failure(slope: FloatArray, what: str) -> str:
    return f"{what}: largest gradient entry {np.abs(slope).max():.1e}; raise ridge or scale the features down"


def newton_direction(X: FloatArray, curvature: FloatArray, slope: FloatArray, penalty: FloatArray) -> FloatArray:
    """Solve (Xᵀ diag(curvature) X + diag(penalty)) step = slope.

    >>> X, one = np.array([[1.0, 0.0], [0.0, 2.0]]), np.ones(2)
    >>> newton_direction(X, one, np.array([2.0, 5.0]), one).round(12).tolist()
    [1.0, 1.0]
    """
    d = X.shape[1]
    if d > DIRECT_UP_TO:
        return _conjugate_gradients(X, curvature, slope, penalty)
    scaled = X * np.sqrt(curvature)[:, None]
    hessian = scaled.T @ scaled
    hessian[np.diag_indices(d)] += penalty
    try:
        factor = cho_factor(hessian, check_finite=False)
        if (np.diagonal(factor[0]) ** 2 > SOLID * np.diagonal(hessian)).all():
            direct: FloatArray = cho_solve(factor, slope, check_finite=False)
            return direct
    except np.linalg.LinAlgError:
        pass
    return _by_reflections(scaled, slope, penalty)


def _by_reflections(scaled: FloatArray, slope: FloatArray, penalty: FloatArray) -> FloatArray:
    """The same from a QR factorisation of the rows, without the matrix whose entries would have lost the small ones.

    Large rows come first, so that reflections keep what small ones say; a refinement makes up for solving with the
    triangle twice.
    """
    rows = np.vstack([scaled, np.diag(np.sqrt(penalty))])
    rows = rows[np.argsort(-np.abs(rows).max(axis=1), kind="stable")]
    triangle, order = qr(rows, mode="r", pivoting=True, check_finite=False)
    triangle = triangle[: len(slope)]
    least = ROUNDING * above_zero(abs(triangle[0, 0]))
    entries = np.einsum("ii->i", triangle)
    entries[...] = np.where(np.abs(entries) < least, least, entries)  # copied features, and hardly any ridge

    def solved(b: FloatArray) -> FloatArray:
        half = solve_triangular(triangle, b[order], trans="T", check_finite=False)
        found = np.empty_like(b)
        found[order] = solve_triangular(triangle, half, check_finite=False)
        return found

    step = solved(slope)
    return step + solved(slope - rows.T @ (rows @ step))


def _conjugate_gradients(X: FloatArray, curvature: FloatArray, slope: FloatArray, penalty: FloatArray) -> FloatArray:
    """Diagonally preconditioned conjugate gradients, tighter the closer the optimum (smaller slope) is."""
    scale = 1.0 / (curvature @ (X * X) + penalty)
    solution = np.zeros_like(slope)
    residual = slope.copy()
    conditioned = scale * residual
    direction = conditioned.copy()
    size = start = float(residual @ conditioned)
    accuracy = min(0.1, np.sqrt(start))  # superlinear convergence of the outer iteration
    for _ in range(10 * len(slope)):
        if size <= accuracy**2 * start:
            break
        image = X.T @ (curvature * (X @ direction)) + penalty * direction
        length = size / float(direction @ image)
        solution += length * direction
        residual -= length * image
        conditioned = scale * residual
        previous, size = size, float(residual @ conditioned)
        direction = conditioned + size / previous * direction
    return solution
