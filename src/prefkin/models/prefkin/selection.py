"""Model selection: candidates by log evidence, then by one criterion, the log-loss of held-out answers.

A candidate is a covariance structure of continuous heterogeneity, or clusters in the metric of one. In every fold each
candidate is learnt from nothing, hyperparameters included. The scales and the temperature of the chosen one are set by
the same held-out answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from prefkin.data.arrays import FloatArray
from prefkin.data.folds import Split
from prefkin.inference.ep import Convergence, Fit, Sites, run
from prefkin.inference.hierarchy import user_moments
from prefkin.inference.loss import moderated
from prefkin.inference.model import GAUSSIAN, Design, PopulationLaw, with_variances
from prefkin.models.prefkin.covariance import Structure
from prefkin.models.prefkin.partition.search import log_evidence, search
from prefkin.models.prefkin.posterior import margins_of
from prefkin.models.prefkin.settings import SCALES, SELECTION

__all__ = ["Calibration", "Candidate", "HeldOut", "best_temperature", "calibrate", "gain_over_pooled", "rescaled"]


@dataclass(frozen=True)
class Candidate:
    """A model that may be chosen."""

    structure: Structure
    law: PopulationLaw = GAUSSIAN
    clustered: bool = False

    @property
    def name(self) -> str:
        """For reports."""
        return f"groups, {self.structure.name}" if self.clustered else self.structure.name

    def fit(self, design: Design, start: Fit | None = None) -> Fit:
        """Learnt from nothing, by evidence; clusters from `start`, the continuous fit, where it is known."""
        if start is None:
            start = fit_continuous(design, self.structure, self.law)
        return averaged_scale(design, search(design, start).fit) if self.clustered else start


def fit_continuous(design: Design, structure: Structure, law: PopulationLaw) -> Fit:
    """Continuous heterogeneity with this covariance structure."""
    population = replace(structure.known or structure.start(design), law=law)
    sites = Sites.start(design, SCALES.first_margin_variance)
    if structure.known is not None:
        rules, share = Convergence(max_iter=SELECTION.known_iter), np.ones((design.n_users, 1))
        return run(
            design, sites, share, population, m_step=structure.m_step(design), learn=structure.learn, rules=rules
        )
    rules, m_step = Convergence(max_iter=SELECTION.max_iter), structure.m_step(design)
    share = np.ones((design.n_users, 1))
    learn = partial(run, design, m_step=m_step, learn=structure.learn, rules=rules)
    fit = best_scale(design, learn(sites, share, population))
    fit = fit if structure.step is None else learn(fit.sites, share, fit.population)
    return averaged_scale(design, fit)


def best_scale(design: Design, fit: Fit) -> Fit:
    """The fit with both variances multiplied by the factor of highest evidence.

    The sites follow a change of the overall scale only slowly, so that the M-step, which trusts them, takes hundreds of
    iterations along this one direction; evidence with a few sweeps at each scale finds it.
    """
    evidence = _ScaleEvidence(design, fit)
    at, step = 0.0, SCALES.scale_step
    sign = 1.0 if evidence(step) > evidence(0.0) else -1.0
    while evidence(at + sign * step) > evidence(at) and abs(at) < SCALES.scale_steps * step:
        at += sign * step
    below, here, above = evidence(at - step), evidence(at), evidence(at + step)
    bend = below - 2.0 * here + above
    if bend < 0.0:
        evidence(at + float(np.clip(0.5 * step * (below - above) / bend, -step, step)))
    return max(evidence.found.values(), key=lambda each: each[0])[1]


def averaged_scale(design: Design, fit: Fit) -> Fit:
    """The fit with both variances at their posterior mean along the overall scale, where few parameters are determined.

    The scale of highest evidence may then be near 0 although evidence hardly tells it from others. The prior is flat in
    the standard deviation. Where evidence tells no scales apart it is flat in the logarithm, and the mean geometric.
    """
    if determined(design, fit) > SCALES.well_determined:
        return fit
    margin = fit.population.within * design.with_root(fit.population.root).size
    ends = np.log(np.array([SCALES.least_margin_variance, SCALES.most_margin_variance]) / margin)
    evidence = _ScaleEvidence(design, fit)

    def weight(x: float) -> float:  # logarithm of what is averaged, under the prior
        return evidence(x) + 1.5 * x

    best = weight(0.0)
    for sign, end in ((1.0, max(ends[1], 0.0)), (-1.0, max(-ends[0], 0.0))):
        at = 0.0
        while at + SCALES.scale_step <= end and weight(sign * at) > best - SCALES.negligible:
            at += SCALES.scale_step
            best = max(best, weight(sign * at))
    x = np.array(sorted(evidence.found))
    value = np.array([evidence(each) for each in x])
    if len(x) < 2:
        return fit
    fine = np.linspace(x[0], x[-1], 20 * len(x))
    log_p = PchipInterpolator(x, value)(fine)
    if np.ptp(value) < SCALES.says_nothing:
        mean = float(np.average(fine, weights=np.exp(log_p - log_p.max())))
    else:
        mean = float(logsumexp(log_p + 1.5 * fine) - logsumexp(log_p + 0.5 * fine))
    evidence(mean)
    return evidence.found[mean][1]


def determined(design: Design, fit: Fit) -> float:
    """Number of parameters, of users and of groups, that the answers determine."""
    population, rows = fit.population, design.with_root(fit.population.root)
    moments = user_moments(rows, *fit.sites[:2], fit.spread, fit.share, fit.groups, population, 1)
    members, singletons = moments.scores[:, :, 1].sum(axis=0)
    alone = population.within + population.between
    return float(population.within * members + alone * singletons + population.between * fit.groups.known)


class _ScaleEvidence:
    """Log evidence with both variances multiplied by e^x, and the fits of which it was computed."""

    def __init__(self, design: Design, fit: Fit) -> None:
        self.design, self.found = design, {0.0: (log_evidence(design, fit), fit)}

    def __call__(self, x: float) -> float:
        if x not in self.found:
            near = min(self.found, key=lambda other: abs(other - x))
            factor = float(np.exp(x - near))
            scaled = rescaled(self.design, self.found[near][1], factor, factor, SCALES.scale_sweeps)
            self.found[x] = log_evidence(self.design, scaled), scaled
        return self.found[x][0]


def rescaled(design: Design, fit: Fit, within: float, between: float, max_iter: int = 3) -> Fit:
    """The fit with variances multiplied, and sites matched to that."""
    population = with_variances(fit.population, within, between)
    return run(design, fit.sites, fit.share, population, spread=fit.spread, rules=Convergence(max_iter=max_iter))


AROUND = ((0, 0), (1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1))  # steps of both variances


class Calibration(NamedTuple):
    """What held-out answers say of a candidate."""

    loss: float  # in all
    temperature: float
    within: float = 1.0  # factors on the variances
    between: float = 1.0


class HeldOut:
    """A candidate's fits in the folds, and what they say about the rows left out."""

    def __init__(self, design: Design, splits: list[Split], candidate: Candidate, start: HeldOut | None = None) -> None:
        """`start`: the continuous fits in the same metric, from which clusters are sought."""
        self.parts = [(design.take(split.train), design.take(split.held), split.weight) for split in splits]
        starts = [None] * len(splits) if start is None else start.fits
        self.fits: list[Fit] = [
            candidate.fit(train, fit) for (train, _, _), fit in zip(self.parts, starts, strict=True)
        ]
        self.weight = np.concatenate([weight for _, _, weight in self.parts])
        self.owner = np.concatenate([held.owner for _, held, _ in self.parts])

    def log_odds(self, within: float = 1.0, between: float = 1.0) -> FloatArray:
        """Of each held-out answer that was given, with variances multiplied."""
        found = []
        for (train, held, _), fit in zip(self.parts, self.fits, strict=True):
            if (within, between) != (1.0, 1.0):
                fit = rescaled(train, fit, within, between)
            log_odds = moderated(*margins_of(train, fit, held.X, held.owner))
            found.append((2.0 * held.y - 1.0) * (log_odds + held.offset))
        return np.concatenate(found)


def best_temperature(log_odds: FloatArray, weight: FloatArray) -> Calibration:
    """The temperature with the least held-out log-loss, with a log-normal prior."""

    def loss(log_temperature: float) -> float:
        prior = SELECTION.temperature_prior * log_temperature**2
        return float(weight @ np.logaddexp(0.0, -np.exp(log_temperature) * log_odds)) + prior

    bound = SELECTION.most_log_temperature
    if float(weight @ (np.log(2.0) - np.logaddexp(0.0, -log_odds))) < SELECTION.beats_a_coin:
        bound = min(bound, np.log(2.0))  # nothing was learnt that a temperature could sharpen
    found = minimize_scalar(loss, bounds=(-SELECTION.most_log_temperature, bound), method="bounded")
    return Calibration(float(found.fun), float(np.exp(found.x)))


def calibrate(held: HeldOut) -> Calibration:
    """Factors on both variances, and the temperature: means of logarithms, weighted by held-out likelihood.

    The factors are looked for in half decades, from where the evidence has them, as long as a neighbour is better.
    """
    seen: dict[tuple[int, int], Calibration] = {}

    def loss(at: tuple[int, int]) -> float:
        if at not in seen:
            factors = tuple(10.0 ** (SELECTION.scale_step * steps) for steps in at)
            found = best_temperature(held.log_odds(*factors), held.weight)
            penalty = SELECTION.scale_prior * float(np.square(at).sum())
            seen[at] = Calibration(found.loss + penalty, found.temperature, *factors)
        return seen[at].loss

    best, before = (0, 0), None
    while best != before and max(map(abs, best)) < SELECTION.most_steps:
        before = best
        best = min(((best[0] + i, best[1] + j) for i, j in AROUND), key=loss)
    every = list(seen.values())
    weight = np.exp(loss(best) - np.array([each.loss for each in every]))
    mean = np.exp(weight @ np.log([each[1:] for each in every]) / weight.sum())
    return Calibration(loss(best), *(float(each) for each in mean))


def gain_over_pooled(held: HeldOut, calibration: Calibration) -> tuple[float, float]:
    """Mean log-loss of a held-out answer below that of complete pooling, and its standard error over users."""

    def losses(within: float, between: float) -> FloatArray:
        log_odds = held.log_odds(within, between)
        temperature = best_temperature(log_odds, held.weight).temperature
        return held.weight * np.logaddexp(0.0, -temperature * log_odds)

    gain = losses(SELECTION.pooled, 1.0) - losses(calibration.within, calibration.between)
    of_users, weight = np.bincount(held.owner, gain), np.bincount(held.owner, held.weight)
    mean, n = float(gain.sum() / held.weight.sum()), max(int((weight > 0).sum()), 1)
    error = np.linalg.norm(of_users - mean * weight) / held.weight.sum() * np.sqrt(n / max(n - 1, 1))
    return mean, float(error)
