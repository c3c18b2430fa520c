"""People who differ by degrees: everybody around one common mean.

How far they are from it, τ², and how far it is from 0, σ², follow by evidence. The sites of expectation propagation and
these scales depend on each other, so they are found in turns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln

from prefkin.data.arrays import IntArray
from prefkin.execution.blas import in_one_order
from prefkin.inference.quadratics import Quadratics, Signed, Sites, expand, per_user_sum, refine
from prefkin.models.prefkin.mixture import Blocks, Prior, block_sums, set_evidence, solved

__all__ = ["FEW", "LARGE", "LEAST", "NEAR", "climb", "fit_cloud", "partition_prior"]

LEAST, MOST = 1e-6, 1e4  # of any variance
NEAR = np.array([0.25, 0.5, 0.71, 0.84, 1.0, 1.19, 1.41, 2.0, 4.0])
COARSE = np.geomspace(0.003, 100.0, 10)  # variance of margins
STEP, LEAST_STEP = 1.0, 0.25  # share of the way that sites move at once
SETTLED = 0.03  # change of log scales at which the cloud is taken as found
SHARP = 7.0  # log evidence by which a scale must beat its half and double to be taken without averaging
LARGE = 256  # features from which one start has to do, scales are climbed, and `FEW` users tell the cloud's scales
FEW = 10


@in_one_order
def fit_cloud(data: Signed, rounds: int = 16, start: Prior | None = None) -> Blocks:
    """One block: people who differ by degrees. τ² and σ² by evidence.

    Sites and scales depend on each other. Where everybody grows (or shrinks) by steps of a steady ratio, all the steps
    to come are taken at once; where they swing to and fro, sites move by a smaller share of the way. With a `start`,
    and with very many features after learning from a few users, scales wait until the sites have come near.
    """
    if data.dim >= LARGE and len(data) > 2 * FEW and start is None:
        start, rounds = fit_cloud(data.some(_spread(data, FEW)), rounds // 2).prior, 2
    nothing, everybody = np.zeros(data.dim), np.ones((len(data), 1))
    tau, top = (0.1, 0.1) if start is None else (start.within, start.top)
    sites = Sites.start(data.weights)
    if start is not None:  # what rows say under the prior alone
        spread = (tau + top) * np.einsum("ij,ij->i", data.X, data.X).astype(np.float64)
        sites = refine(
            sites,
            data.weights,
            spread * sites.pull / (1.0 + spread * sites.precision),
            spread / (1.0 + spread * sites.precision),
        )
    pace, growth, size, mean, drift = STEP, 0.0, 0.0, np.zeros((1, 1)), np.zeros((1, 1))
    for turn in range(rounds):
        users, at = expand(data, sites), np.log([tau, top])
        if start is None or turn == rounds - 1:
            tau, top = _cloud_scales(users, tau, top, 2.5 if turn < 3 and start is None else 1.5)
        cloud = solved(users, sites, everybody, Prior(nothing, tau, top, top))
        last_drift, drift, mean = drift, cloud.mean - mean, cloud.mean
        last_growth, last_size, size = growth, size, float(np.log(max((mean**2).sum(), 1e-300)))
        growth = size - last_size
        change = max(abs(growth), *np.abs(np.log([tau, top]) - at))
        if turn == rounds - 1 or (turn > 2 and change < SETTLED):
            break
        if float((drift * last_drift).sum()) < 0.0:  # they swing instead of settling
            pace = max(pace / 2.0, LEAST_STEP)
        stretch, rate = 1.0, growth / last_growth if last_growth else 0.0
        if turn >= 3 and 0.0 < rate < 0.97:  # all the steps to come, at once
            leap = float(np.clip(growth * rate / (1.0 - rate), -1.0, 1.0))
            tau, top, stretch = tau * np.exp(leap), top * np.exp(leap), float(np.exp(leap / 2.0))
            mean, size, growth, drift = stretch * mean, size + leap, 0.0, 0.0 * drift
        sites = cloud.refined(data, stretch, pace)
    evidence = float(set_evidence(cloud.centres.sums, nothing, top)[0]) + partition_prior(np.array([len(data)]))
    tau, top = _averaged_scales(users, tau, top)
    return solved(users, sites, everybody, Prior(nothing, tau, top, top), evidence)


def _averaged_scales(users: Quadratics, tau: float, top: float) -> tuple[float, float]:
    """τ² and σ² as evidence-weighted means: the likeliest value may be 0 only because answers tell little."""
    everybody, nothing = np.ones((len(users), 1)), np.zeros(users.dim)
    wide = COARSE / users.dim  # from margins that hardly vary to margins that settle nearly every answer

    def mean(score: Callable[[float], float], value: float) -> float:
        if users.dim >= LARGE and score(value) - max(score(value / 2.0), score(value * 2.0)) > SHARP:
            return value
        tried = np.unique(np.append(np.clip(value * NEAR, LEAST, MOST), wide))
        evidence = np.array([score(float(each)) for each in tried])
        trust = np.exp(evidence - evidence.max()) * np.sqrt(tried) * np.gradient(np.log(tried))
        return float(trust @ tried / trust.sum())

    tau = mean(lambda t: float(set_evidence(block_sums(users, t, everybody), nothing, top)[0]), tau)
    sums = block_sums(users, tau, everybody)
    return tau, mean(lambda t: float(set_evidence(sums, nothing, t)[0]), top)


def _cloud_scales(users: Quadratics, tau: float, top: float, reach: float) -> tuple[float, float]:
    everybody, nothing = np.ones((len(users), 1)), np.zeros(users.dim)

    def evidence(tau: float, top: float) -> float:
        return float(set_evidence(block_sums(users, tau, everybody), nothing, top)[0])

    tau = climb(lambda value: evidence(value, top), tau, reach)
    users.expect(tau)
    sums = block_sums(users, tau, everybody)
    return tau, climb(lambda value: float(set_evidence(sums, nothing, value)[0]), top, 2.5)


def _spread(data: Signed, n: int) -> IntArray:
    """n users spread by what they answered, not by their place."""
    probe = np.cos(np.arange(1, data.dim + 1))
    key = per_user_sum(data.weights * np.abs(data.X @ probe.astype(data.X.dtype)), data.starts)
    order = np.argsort(key, kind="stable")
    return np.sort(order[np.linspace(0, len(order) - 1, n).astype(int)])


def climb(score: Callable[[float], float], value: float, reach: float) -> float:
    """A value with a higher score: the top of the parabola in log(value) through three points, within `reach`²."""
    low, middle, high = (score(value * factor) for factor in (1.0 / reach, 1.0, reach))
    bend, slope = low - 2.0 * middle + high, (high - low) / 2.0
    step = -slope / bend if bend < -1e-12 else 2.0 * np.sign(slope)
    return float(np.clip(value * reach ** np.clip(step, -2.0, 2.0), LEAST, MOST))


def partition_prior(sizes: IntArray) -> float:
    """log probability of a partition under the Chinese-restaurant prior with concentration 1."""
    return float(gammaln(sizes).sum() - gammaln(1 + sizes.sum()))
