"""Information about a preference, and how far an estimate may be off given it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import gamma as gamma_law

from prefkin.data.arrays import FloatArray
from prefkin.data.rows import Rows
from prefkin.inference.spectrum import gram

__all__ = ["ball_radius", "confidence_width", "information_matrix"]


def confidence_width(n: float, dim: int, *, ridge: float, kappa: float, failure: float) -> float:
    """Width of the confidence ellipsoid after `n` comparisons, wrong with probability `failure`  [paper: CI, beta].

        (√(λκ) + 2 √(d log(1 + 4κn / (λd)) + 2 log(1/failure))) / κ

    CI_u and β̃_u use failure = δ / 2U, Lemma 1 uses δ, the proof of Theorem 2 uses δ / 2N.

    >>> round(confidence_width(100, 5, ridge=1.0, kappa=0.1, failure=0.05 / 2), 3)
    88.868
    """
    noise = 2.0 * np.sqrt(dim * np.log1p(4.0 * kappa * n / (ridge * dim)) + 2.0 * np.log(1.0 / failure))
    return float((np.sqrt(ridge * kappa) + noise) / kappa)


def ball_radius(mean: Any, square: Any, level: float) -> Any:
    """Radius that a random vector's length stays below with probability `level`; of many vectors, from arrays.

    Its squared length has this `mean` and variance 2 · `square`; a Gamma law with both stands in for it. For a centred
    normal vector with covariance C they are tr C and tr C².

    >>> round(float(ball_radius(1.0, 1.0, 0.95)), 3)       # one standard normal number
    1.96
    """
    return np.sqrt(gamma_law.ppf(level, mean**2 / (2.0 * square), scale=2.0 * square / mean))


def information_matrix(rows: Rows, *, ridge: float, kappa: float) -> FloatArray:
    """M = (λ/κ) I + Σ w_i z_i z_iᵀ, shape (d, d)  [paper: M].

    >>> rows = Rows(np.array([[1.0, 2.0]]), np.array([1.0]), np.array([1.0]))
    >>> information_matrix(rows, ridge=1.0, kappa=0.5).tolist()
    [[3.0, 2.0], [2.0, 6.0]]
    """
    M = gram(rows)
    M[np.diag_indices_from(M)] += ridge / kappa
    return M
