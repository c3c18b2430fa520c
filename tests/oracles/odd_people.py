"""People whose answers are hard on numerics: units, weights, repeats, certainty, few rows and many, all at once."""

import numpy as np

KINDS = ("plain", "units", "one heavy row", "weights", "certain", "repeats")

NOTHING = 1e-7


def drawn(rng, kind, d, rows):
    """Z, y and weights of one person of a kind; units and weights reach 1e8."""
    strength = 8.0 if kind == "certain" else 1.5
    Z = rng.standard_normal((rows, d))
    if kind == "repeats":
        Z = Z[rng.integers(0, max(rows // 4, 1), rows)]
    y = (rng.random(rows) < 1.0 / (1.0 + np.exp(-strength * (Z @ rng.standard_normal(d))))).astype(float)
    weights = np.ones(rows)
    if kind == "units":
        Z = Z * np.where(rng.random(d) < 0.5, 10.0 ** rng.uniform(-8, 8, d), 1.0)
    elif kind == "one heavy row":
        weights[0] = 10.0 ** rng.uniform(2, 8)
    elif kind == "weights":
        weights = 10.0 ** rng.uniform(0, 8, rows)
    return Z, y, weights


def deviations(found, wanted, Z, weights, ridge):
    """How far an estimate is off: as a share of its length, each feature in its own unit; and in probabilities.

    Answers that contradict each other exactly have an estimate of 0, and no length: less than `NOTHING` of what the rows
    could tell if all agreed is rounding.
    """
    unit = np.sqrt(weights @ Z**2 / weights.sum())
    unit = np.where(unit > 0, unit, 1.0)
    reach = 0.5 * weights @ np.abs(Z) / (0.25 * weights @ Z**2 + ridge)
    length = max(np.linalg.norm(wanted * unit), NOTHING * np.linalg.norm(reach * unit), 1e-300)
    apart = np.linalg.norm((found - wanted) * unit) / length
    chance, other = (0.5 * (1.0 + np.tanh(0.5 * (Z @ theta))) for theta in (found, wanted))
    return float(apart), float(np.abs(chance - other).max(initial=0.0))


def determined(theta, Z, weights, ridge):
    """Do answers and ridge tell where the optimum is, to half of the digits there are? In features free of units."""
    chance = 0.5 * (1.0 + np.tanh(0.5 * (Z @ theta)))
    unit = 1.0 / np.sqrt(weights @ Z**2 + ridge)
    X = Z * unit
    curvature = (X.T * (weights * chance * (1.0 - chance))) @ X + np.diag(ridge * unit**2)
    return bool(np.linalg.eigvalsh(curvature)[0] > 1e-8)
