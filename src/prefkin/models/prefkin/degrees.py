"""People who differ by degrees: everybody around one common mean.

How far they are from it, τ², and how far it is from 0, σ², follow by evidence. The sites of expectation propagation and
these scales depend on each other, so they are found in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import gammaln

from prefkin.data.arrays import FloatArray, IntArray, above_zero
from prefkin.data.rows import spread
from prefkin.execution.blas import in_one_order
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Quadratics, Signed, expand, per_user_sum
from prefkin.inference.quadratics.evidence import set_evidence
from prefkin.models.prefkin.mixture import Apart, Centres, Mixture, Prior, solved
from prefkin.models.prefkin.modes import believable
from prefkin.models.prefkin.scales import Scaling
from prefkin.models.prefkin.settings import LIMITS, SCALES, TRUST, affordable, bounded

__all__ = ["averaged", "fit_degrees", "partition_prior"]

NEAR = np.array([0.25, 0.5, 0.71, 0.84, 1.0, 1.19, 1.41, 2.0, 4.0])
WIDE = np.geomspace(0.003, 100.0, 10)  # variances from margins that hardly vary to margins that settle every answer
NO_MORE = 1e-6  # evidence is a matter of rounding: that of one answer is the same under every strength


@in_one_order
def fit_degrees(
    data: Signed, rounds: int = SCALES.rounds, start: Prior | None = None, sites: Sites | None = None
) -> Mixture:
    """One group: people who differ by degrees. τ² and σ² by evidence.

    Where everybody grows (or shrinks) by steps of a steady ratio, all the steps to come are taken at once; where they
    swing to and fro, sites move by a smaller share of the way. A `start` gives scales, and `sites` of the same rows,
    which do not depend on units of features, save most rounds. Many users start from what a few of them tell.
    """
    effort = affordable(data)
    if start is None:
        few = len(data) > 2 * effort.first_users
        start = _first_scales(data.some(_spread(data, effort.first_users)) if few else data)
        rounds = min(rounds, effort.warm_rounds) if few else rounds
    everybody = np.ones((len(data), 1))
    tau, top, warm = start.within, start.top, sites is not None
    if sites is None:
        sites = Sites.start(data.weights, (tau + top) * data.sizes)
    pace, growth, size, mean, drift = 1.0, 0.0, 0.0, np.zeros((1, 1)), np.zeros((1, 1))
    for turn in range(rounds):
        users = expand(data, sites)
        waiting = turn == 0 and not warm  # scales, until the sites have come near
        fit, scaling = _scaled(users, sites, everybody, tau, top, 1 if waiting else effort.steps)
        tau, top = fit.prior.within, fit.prior.top
        last_drift, drift, mean = drift, fit.mean - mean, fit.mean
        last_growth, last_size, size = growth, size, float(np.log((mean**2).sum() + np.finfo(float).tiny))
        growth = size - last_size
        if turn == rounds - 1 or (turn > 1 and max(abs(growth), scaling.change) < SCALES.settled):
            break
        if float((drift * last_drift).sum()) < 0.0:  # they swing instead of settling
            pace = max(pace / 2.0, SCALES.least_pace)
        if not waiting:
            tau, top = bounded(tau * scaling.within), bounded(top * scaling.between)
        stretch, rate = 1.0, growth / last_growth if last_growth else 0.0
        if turn >= 3 and 0.0 < rate < SCALES.steady:  # all the steps to come, at once
            leap = float(np.clip(growth * rate / (1.0 - rate), -SCALES.leap, SCALES.leap))
            tau, top, stretch = tau * np.exp(leap), top * np.exp(leap), float(np.exp(leap / 2.0))
            mean, size, growth, drift = stretch * mean, size + leap, 0.0, 0.0 * drift
        sites = fit.refined(data, stretch, pace)
    fit = believable(fit, data)
    evidence = float(set_evidence(fit.centres.sums, fit.prior.m0, top)[0]) + partition_prior(np.array([len(data)]))
    return _with_averaged_scales(data, fit, scaling, evidence, effort.values)


def _first_scales(data: Signed) -> Prior:
    """τ² and σ² to start from: the strength of preferences by evidence, once sites are matched to it.

    Sites matched to weak preferences speak for weak ones, and with few rows a feature hardly let go of them: so a few
    strengths are tried, each with sites of its own.
    """
    everybody = np.ones((len(data), 1))
    size = float(above_zero(data.weights @ data.sizes / above_zero(data.weights.sum())))
    tried: dict[int, tuple[float, FloatArray]] = {}

    def score(k: int) -> float:
        if k not in tried:
            tau = top = bounded(0.5 * SCALES.first * SCALES.apart**k / size)
            sites = Sites.start(data.weights, (tau + top) * data.sizes)
            for turn in range(2):
                fit, scaling = _scaled(expand(data, sites), sites, everybody, tau, top, 1 + turn)
                tau, top = bounded(tau * scaling.within), bounded(top * scaling.between)
                sites = sites if turn else fit.refined(data)
            evidence = float(set_evidence(fit.centres.sums, fit.prior.m0, fit.prior.top)[0])
            trusted = abs(np.log(scaling.within)) < SCALES.believed  # else sites are far from agreeing with it
            tried[k] = evidence if trusted or k == 0 else -np.inf, np.log([tau, top])
        return tried[k][0]

    best = 1 if score(1) > score(0) - NO_MORE else 0  # of equals the stronger, whose sites let go more easily
    direction = 1 if best else -1
    while abs(best) < SCALES.farthest and score(best + direction) > score(best) + NO_MORE:
        best += direction
    if abs(best) == SCALES.farthest:
        return _around_nothing(data.dim, *np.exp(tried[best][1]))
    low, middle, high = (score(k) for k in (best - 1, best, best + 1))
    bend = low - 2.0 * middle + high
    step = float(np.clip(0.5 * (low - high) / bend, -0.5, 0.5)) if -np.inf < bend < 0.0 else 0.0
    towards = tried[best + (1 if step > 0 else -1)][1] - tried[best][1]
    return _around_nothing(data.dim, *np.exp(tried[best][1] + abs(step) * towards))


def _around_nothing(dim: int, tau: float, top: float) -> Prior:
    return Prior(np.zeros(dim), float(tau), float(top), float(top))


def _scaled(
    users: Quadratics, sites: Sites, everybody: FloatArray, tau: float, top: float, steps: int
) -> tuple[Mixture, Scaling]:
    """The fit with better scales for these sites, and what is still to change about them."""
    for step in range(steps):
        prior = _around_nothing(users.dim, tau, top)
        terms = users.at(tau)
        centres = Centres.of(terms.summed(everybody), prior)
        scaling = Scaling.of(terms, everybody, centres, Apart.of(users, everybody, prior), prior)
        if step == steps - 1 or scaling.change < SCALES.waiting:
            break
        tau, top = bounded(tau * scaling.within), bounded(top * scaling.between)
    return solved(users, sites, everybody, prior, terms=terms, centres=centres), scaling


def _with_averaged_scales(data: Signed, fit: Mixture, scaling: Scaling, evidence: float, most: int) -> Mixture:
    """Scales that few parameters speak about as means: the likeliest may be 0 only because answers tell little.

    Sites are then matched to those scales: with the ones before, posteriors were off by half a standard deviation.
    """
    users, everybody, nothing = fit.users, fit.share, fit.prior.m0
    tau, top, sums = fit.prior.within, fit.prior.top, fit.centres.sums
    if scaling.determined < TRUST.determined:
        around = np.append(tau * NEAR, WIDE / users.dim)
        tau = averaged(lambda t: float(set_evidence(users.at(t).summed(everybody), nothing, top)[0]), around, most)
        sums = users.at(tau).summed(everybody)
    if scaling.centred < TRUST.determined:
        around = np.append(top * NEAR, WIDE / users.dim)
        top = averaged(lambda t: float(set_evidence(sums, nothing, t)[0]), around, len(around))
    if (tau, top) == (fit.prior.within, fit.prior.top):
        return replace(fit, evidence=evidence)
    prior, sites = _around_nothing(users.dim, tau, top), fit.sites
    fit = solved(users, sites, everybody, prior, evidence)
    for _ in range(SCALES.agreeing):
        before, sites = fit.mean, fit.refined(data, step=0.5)
        fit = solved(expand(data, sites), sites, everybody, prior, evidence)
        if np.linalg.norm(fit.mean - before) < SCALES.agreed * np.linalg.norm(fit.mean):
            break
    return fit


def averaged(score: Callable[[float], float], tried: FloatArray, most: int) -> float:
    """The mean of a variance by its evidence at some values, under a prior that is flat in its square root.

    Where evidence says nothing at all, as about a single answer, that prior would speak for strong preferences: then it
    is flat in the logarithm, and the mean is geometric.
    """
    tried = np.unique(np.clip(tried, LIMITS.least_variance, LIMITS.most_variance))
    tried = tried[np.unique(np.linspace(0, len(tried) - 1, most).round().astype(int))]
    evidence = np.array([score(float(each)) for each in tried])
    trust = np.exp(evidence - evidence.max()) * np.gradient(np.log(tried))
    if np.ptp(evidence) < TRUST.says_nothing:
        return float(np.exp(trust @ np.log(tried) / trust.sum()))
    trust *= np.sqrt(tried)
    return float(trust @ tried / trust.sum())


def _spread(data: Signed, n: int) -> IntArray:
    """n users spread by what they answered, not by their place."""
    probe = np.cos(np.arange(1, data.dim + 1))
    key = per_user_sum(data.weights * np.abs(data.X @ probe.astype(data.X.dtype)), data.starts)
    order = np.argsort(key, kind="stable")
    return np.sort(order[spread(len(order), n)])


def partition_prior(sizes: IntArray) -> float:
    """log probability of a partition under the Chinese-restaurant prior with concentration 1."""
    return float(gammaln(sizes).sum() - gammaln(1 + sizes.sum()))
