"""The ridge logistic estimate by Newton's method in double precision, each step a least-squares problem solved by QR.

No Hessian is ever formed, so that what rows of very different weight say, and features in very different units, keeps
its digits. Slow, one person at a time, sharing no code with the package.
"""

import numpy as np
from scipy.linalg import qr, solve_triangular

STRAIGHT = -500.0  # margins below which an answer has no curvature


def ridge_logistic(Z, y, ridge, weights=None, steps=300):
    """argmin of Σ w log(1 + exp(−s zᵀθ)) + λ/2 ‖θ‖², along ever smaller ridges from one that leaves nothing else."""
    Z, side = np.asarray(Z, dtype=float), 2.0 * np.asarray(y, dtype=float) - 1.0
    weights = np.ones(len(Z)) if weights is None else np.asarray(weights, dtype=float)
    unit = 1.0 / np.sqrt(weights @ Z**2 + ridge)
    X, root = Z * side[:, None] * unit, np.sqrt(ridge) * unit
    theta = np.zeros(Z.shape[1])
    for more in (1.0, 1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-14, 1e-16, 0.0):
        theta = _minimum(X, weights, np.sqrt(root**2 + more), theta, steps)
    return theta * unit


def _minimum(X, weights, root, theta, steps):
    margin = X @ theta
    value = _value(margin, theta, weights, root)
    for _ in range(steps):
        step = _step(X, margin, theta, weights, root)
        change, size = X @ step, 1.0
        while size > 1e-12:
            new = _value(margin + size * change, theta + size * step, weights, root)
            if new <= value * (1.0 + 1e-14):
                break
            size /= 2.0
        theta, margin, value = theta + size * step, margin + size * change, min(new, value)
        if np.linalg.norm(step) <= 1e-13 * np.linalg.norm(theta):
            break
    return theta


def _value(margin, theta, weights, root):
    return float(weights @ np.logaddexp(0.0, -margin) + 0.5 * ((root * theta) ** 2).sum())


def _step(X, margin, theta, weights, root):
    """argmin over s of Σ h (x s − r)² + ‖root (θ + s)‖²: h the curvature of each row, r where its tangent parabola ends.

    Rows of no curvature left have a pull alone, h r = w p; where r itself would be beyond all numbers it is added as such.
    """
    miss = np.exp(-np.logaddexp(0.0, margin))  # probability of the answer that was not given
    kept = np.exp(-np.logaddexp(0.0, -margin))
    straight = margin < STRAIGHT
    h = np.where(straight, 0.0, np.sqrt(weights * miss * kept))
    target = np.where(straight, 0.0, np.sqrt(weights) * np.sqrt(miss / np.maximum(kept, 1e-300)))
    pull = X.T @ np.where(straight, weights, 0.0)
    A = np.vstack([X * h[:, None], np.diag(root)])
    b = np.concatenate([target, -root * theta])
    order = np.argsort(-np.abs(A).max(axis=1), kind="stable")  # large rows first: Householder's method keeps small ones
    Q, R, pivot = qr(A[order], mode="economic", pivoting=True)
    found = np.empty(X.shape[1])
    found[pivot] = solve_triangular(R, Q.T @ b[order] + solve_triangular(R, pull[pivot], trans="T"))
    return found
