"""M-step for the variances τ², ρ² and σ²: MacKay's fixed point (1992).

Where evidence is highest, Σ|s|² = Σ tr(A − A S A) for the scores s = a − A m of the users: their squares over the
number of parameters that the data determine, the uncertainty S of the group means taken out. Likewise for ρ² with the
scores of the group means, and for σ² with m_0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.inference.hierarchy import Moments
from prefkin.inference.model import Groups, Population
from prefkin.models.prefkin.settings import SCALES

__all__ = ["MacKayStep", "StepLength", "bounded", "mackay_factors", "ratio"]


class StepLength:
    """Step lengths of Barzilai and Borwein (1988) for a fixed-point iteration x ← x + residual(x).

    Residuals that shrink slowly, or grow, ask for longer steps; residuals that turn back for shorter ones.

    >>> x, steps = 8.0, StepLength(most=20.0)
    >>> for _ in range(4):
    ...     x += float(steps(np.array([-0.1 * x]))[0])
    >>> abs(x) < 1e-9
    True
    """

    def __init__(self, most: float = SCALES.longest_step) -> None:
        self.most, self.length = most, 1.0
        self.last: FloatArray | None = None

    def __call__(self, residual: FloatArray) -> FloatArray:
        """The step to take."""
        residual = np.nan_to_num(residual)
        if self.last is not None:
            square, agree = float(np.vdot(self.last, self.last)), float(np.vdot(self.last, residual))
            longer = square / (square - agree) if agree < square else 2.0
            self.length = float(np.clip(self.length * longer, SCALES.shortest_step, self.most))
        self.last = residual.copy()
        return self.length * residual


def bounded(variance: float, size: float) -> float:
    """Within what a variance may be, for rows of this mean square length."""
    return float(np.clip(variance, SCALES.least_margin_variance / size, SCALES.most_margin_variance / size))


def ratio(squares: Any, known: Any) -> float:
    """MacKay's factor on a variance."""
    most = SCALES.most_change  # beyond which the quotient may be no number
    return most if squares > most * known else float(max(squares / max(known, 1e-300), 1.0 / most))


def mackay_factors(scores: FloatArray, groups: Groups) -> FloatArray:
    """On τ² and ρ²; scores: [of cluster members, of singletons] x [squares, degrees of freedom].

    Singletons speak about τ² + ρ², and count for both.
    """
    between = ratio(groups.squares + scores[1, 0], groups.known + scores[1, 1])
    return np.array([ratio(*scores.sum(axis=0)), between])


class MacKayStep:
    """τ², ρ² and, where clustered, σ² and m_0, for rows of this mean square length."""

    def __init__(self, size: float) -> None:
        self.size, self.steps = size, StepLength()

    def __call__(self, moments: Moments, groups: Groups, population: Population) -> tuple[Population, float]:
        """The next population, and the largest change of a logarithm of τ² and ρ²."""
        step = self.steps(np.log(mackay_factors(moments.scores.sum(axis=0), groups)))
        factors = np.exp(np.clip(step, -SCALES.most_step, SCALES.most_step))
        new = replace(
            population,
            within=bounded(population.within * factors[0], self.size),
            between=bounded(population.between * factors[1], self.size),
        )
        change = max(abs(np.log(new.within / population.within)), abs(np.log(new.between / population.between)))
        if population.clustered:
            known = len(population.m0) - np.trace(groups.m0_cov) / population.top
            top = ratio(groups.m0 @ groups.m0 / population.top + 1.0, known + 1.0)
            new = replace(new, m0=groups.m0, top=bounded(population.top * top, self.size))
        return new, float(change)
