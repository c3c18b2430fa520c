"""M-step for the variances τ², ρ² and σ²: MacKay's fixed point (1992).

Where evidence is highest, Σ|s|² = Σ tr(A − A S A) for the scores s = a − A m of the users: their squares over the
number of parameters that the data determine, the uncertainty S of the group means taken out. Likewise for ρ² with the
scores of the group means, and for σ² with m_0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from prefkin.inference.hierarchy import Moments
from prefkin.inference.model import Groups, Population
from prefkin.models.hierarchical.settings import SCALES

__all__ = ["bounded", "update_scales"]


def bounded(variance: float, size: float) -> float:
    """Within what a variance may be, for rows of this mean square length."""
    return float(np.clip(variance, SCALES.least_margin_variance / size, SCALES.most_margin_variance / size))


def update_scales(moments: Moments, groups: Groups, population: Population, size: float) -> tuple[Population, float]:
    """τ², ρ² and, where clustered, σ² and m_0; the largest change of a logarithm of τ² and ρ²."""
    scores = moments.scores.sum(axis=0)  # [of cluster members, of singletons] x [squares, degrees of freedom]
    within = _ratio(*scores.sum(axis=0))  # singletons speak about τ² + ρ², and count for both
    between = _ratio(groups.squares + scores[1, 0], groups.known + scores[1, 1])
    new = replace(
        population,
        within=bounded(population.within * within, size),
        between=bounded(population.between * between, size),
    )
    change = max(abs(np.log(new.within / population.within)), abs(np.log(new.between / population.between)))
    if population.clustered:
        known = len(population.m0) - np.trace(groups.m0_cov) / population.top
        top = _ratio(groups.m0 @ groups.m0 / population.top + 1.0, known + 1.0)
        new = replace(new, m0=groups.m0, top=bounded(population.top * top, size))
    return new, float(change)


def _ratio(squares: Any, known: Any) -> float:
    return float(np.clip(squares / max(known, 1e-300), 1.0 / SCALES.most_change, SCALES.most_change))
