"""Position bias (order effect): users who take the first side more often than its content says.

    P(first is preferred) = σ(zᵀθ_u + b_u),   b_u ~ N(μ, s²)

Given b_u, the answers of a user to rows with cavities N(c_i, s_i) have the log likelihood Σ log E p(y_i | m_i + b_u).
One Newton step makes it a Gaussian measurement of b_u, and the measurements of all users give μ and s² by evidence.
Where the evidence for a bias is clear the sites are matched again with the biases as offsets; hyperparameters and
temperature stay, since folds that knew the biases would know what they hold out. Rows whose first side
was nearly always preferred were written with the winner first, and say nothing about sides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray, above_zero
from prefkin.data.rows import UserRows
from prefkin.inference.ep import Convergence, Fit, cavities, run
from prefkin.inference.model import Design
from prefkin.models.prefkin.fitting import Learnt, Specification, design_of
from prefkin.models.prefkin.posterior import Posterior
from prefkin.models.prefkin.scales import MacKayStep
from prefkin.models.prefkin.settings import POSITION_BIAS

__all__ = ["Biases", "find_biases", "sides_mean_something", "with_position_bias"]


class Biases(NamedTuple):
    """Log odds of taking the first side."""

    each: FloatArray  # (U,) posterior means
    variance: FloatArray  # (U,) posterior variances
    mean: float  # μ
    spread: float  # s
    evidence: float  # log evidence over no bias at all


def with_position_bias(rows: UserRows, specification: Specification, learnt: Learnt) -> tuple[UserRows, Learnt]:
    """Rows with users' biases, and what is learnt beside them; both as given where no bias is clear."""
    if rows.habits is not None or not sides_mean_something(rows):
        return rows, learnt
    found = find_biases(learnt.posterior)
    if found.evidence < POSITION_BIAS.clearly:
        return rows, learnt
    rows = replace(rows, habits=found.each)
    design, posterior = design_of(rows, specification.likelihood), learnt.posterior
    fit = run(design, posterior.sites, posterior.share, posterior.population, spread=posterior.spread)
    return rows, replace(learnt, posterior=Posterior.of(design, fit), n_iter=fit.n_iter, converged=fit.converged)


def sides_mean_something(rows: UserRows) -> bool:
    """Are sides known, and was not nearly always the same one preferred, as where the winner is written first?"""
    if not rows.sided or len(rows.rows.y) < POSITION_BIAS.least_rows:
        return False
    share = float(np.average(rows.rows.y, weights=above_zero(rows.rows.weights)))
    return min(share, 1.0 - share) >= POSITION_BIAS.least_share


def find_biases(posterior: Posterior) -> Biases:
    """Everybody's bias; EP sites and the variances of preferences, which a bias hides, follow the biases."""
    design, population = posterior.design, posterior.population
    m_step, rules = MacKayStep(design.with_root(population.root).size), Convergence(max_iter=POSITION_BIAS.sweeps)
    fit = run(design, posterior.sites, posterior.share, population, rules=Convergence(max_iter=1))
    biases, evidence = np.zeros(len(posterior)), None
    for _ in range(POSITION_BIAS.rounds):
        measured, precision = _measured(design, fit, biases)
        mean, variance, gain = _population(measured, precision)
        evidence = gain if evidence is None else evidence  # the first, around no bias
        if evidence < POSITION_BIAS.clearly:
            break
        biases = (precision * variance * measured + mean) / (precision * variance + 1.0)
        biases = np.clip(biases, -POSITION_BIAS.most, POSITION_BIAS.most)
        shifted = replace(design, offset=design.offset + biases[design.owner])
        fit = run(shifted, fit.sites, fit.share, fit.population, m_step=m_step, rules=rules)
    return Biases(biases, variance / (precision * variance + 1.0), mean, float(np.sqrt(variance)), float(evidence or 0))


def _measured(design: Design, fit: Fit, biases: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Users' biases after one Newton step, and the precision of each."""
    copies, power = np.maximum(design.weight, 1.0), np.minimum(design.weight, 1.0)
    mean, variance = cavities(design, fit.sites, fit.moments.mean, fit.moments.variance)
    at = mean + design.offset + biases[design.owner]
    _, slope, bend = design.likelihood.tilted(design.y, power, at, variance)
    precision = np.bincount(design.owner, -copies * bend, len(biases)).astype(np.float64)
    return biases + np.bincount(design.owner, copies * slope, len(biases)) / above_zero(precision), precision


def _population(measured: FloatArray, precision: FloatArray) -> tuple[float, float, float]:
    """μ and s² of users measured with these precisions, and the log evidence over both being 0."""
    best = (0.0, 0.0, 0.0)
    for variance in (0.0, *np.geomspace(0.003, 10.0, 36)):
        weight = precision / (1.0 + variance * precision)
        mean = float(weight @ measured / above_zero(weight.sum()))
        off = precision * measured**2 - weight * (measured - mean) ** 2
        gain = 0.5 * float(np.sum(off - np.log1p(variance * precision)))
        best = max(best, (mean, float(variance), gain), key=lambda one: one[2])
    return best
