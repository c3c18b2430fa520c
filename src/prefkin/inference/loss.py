"""The ridge logistic loss, which every estimate minimises  [paper: theta_hat].

A user with preference θ prefers a to a′ with probability σ(θᵀz), z = φ(x, a) − φ(x, a′). The estimate minimises

    Σ_i w_i log(1 + exp(−s_i θᵀz_i)) + λ/2 ‖θ − c‖²,     s_i = 2y_i − 1,

which is strictly convex for λ > 0; c is 0 unless an estimate is drawn towards something else.
"""

from __future__ import annotations

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.data.rows import Rows

__all__ = ["TOLERANCE", "log_loss", "moderated", "unit_root", "widening"]

TOLERANCE = 1e-6
"""An estimate θ is found when a Newton step moves it by no more than this share of its length, both measured by
‖θ / r‖, where r_j = `unit_root` makes them free of the units of feature j; what is left after that step is smaller
still. A small gradient would not do: where rows count very differently, or answers are nearly certain and λ is small,
hardly any gradient may be left far from the optimum."""


def log_loss(theta: FloatArray, rows: Rows) -> float:
    """Weighted sum of −log probability of the answers under preference `theta`.

    >>> rows = Rows(np.array([[1.0]]), np.array([1.0]), np.array([1.0]))
    >>> round(log_loss(np.array([0.0]), rows), 4)
    0.6931
    """
    return float(rows.weights @ np.logaddexp(0.0, (1.0 - 2.0 * rows.y) * (rows.Z @ theta)))


def unit_root(squares: FloatArray, ridge: FloatArray | float) -> FloatArray:
    """1 / √(¼ Σ w z² + λ) from Σ w z²: what an answer can tell about a feature's weight, at most, per unit of it."""
    root: FloatArray = 1.0 / np.sqrt(0.25 * squares + ridge)
    return root


def moderated(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """mean / `widening`, the margin whose σ is about E σ(m) for m ~ N(mean, variance): drawn towards 0 by doubt.

    >>> moderated(np.array([2.0, 2.0]), np.array([0.0, 24.0 / np.pi])).tolist()
    [2.0, 1.0]
    """
    return mean / widening(variance)


def widening(variance: FloatArray) -> FloatArray:
    """√(1 + π v / 8), by which doubt about a margin widens the sigmoid: E σ(m) is about σ(mean / widening)."""
    return np.sqrt(1.0 + np.pi * variance / 8.0)
