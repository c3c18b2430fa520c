"""Posteriors of few answers, matched as a whole by weighted draws.

Expectation propagation matches answers one by one. Where a few answers say nearly all there is, and never contradict
each other, what they say together is skewed, and its variances are up to half too small. Few answers can be matched
together instead: of all normal laws that sites can give, take the one with the means and variances of the margins under
the exact posterior, given what is known about other people. These come by importance sampling, around what propagation
found.

Draws are in the space of the margins, along the axes in which these vary most, and the same in every run: neither
units, order nor mixtures of features matter.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaincinv, ndtri
from scipy.stats.qmc import Sobol

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Signed, expand
from prefkin.models.prefkin.mixture import Mixture, pieces, solved
from prefkin.models.prefkin.settings import DRAWN, LIMITS

__all__ = ["matched_by_draws"]

EDGE = 1e-12  # of the unit cube
REAL = 1e-12  # of the largest row, or variance of margins: below, it is rounding


def matched_by_draws(found: Mixture, data: Signed) -> Mixture:
    """The fit with sites matched to the exact posterior, where there are few enough answers for that.

    The people of a group are matched together, or, where too few draws would count, one by one, given the others.
    """
    answers = float(data.answers.sum())
    if not 0.5 < answers < DRAWN.answers + 0.5:
        return found
    powers = int(np.log2(min(DRAWN.draws, DRAWN.numbers / answers)))
    surely = [np.flatnonzero(each >= 1.0 - LIMITS.unlikely).tolist() for each in found.weights.T]
    sets = [people for people in surely[:-1] if people] + [[user] for user in surely[-1]]
    for _ in range(DRAWN.rounds):
        sites, moved = found.sites.copy(), 0.0
        for people in sets:
            change = _match(found, data, people, sites, powers)
            if change is None and len(people) > 1:
                change = max(_match(found, data, [user], sites, powers) or 0.0 for user in people)
            moved = max(moved, change or 0.0)
        if moved == 0.0:
            break
        found = solved(expand(data, sites), sites, found.share, found.prior, found.evidence)
        if moved < DRAWN.settled:
            break
    return found


def _match(found: Mixture, data: Signed, people: list[int], sites: Sites, powers: int) -> float | None:
    """Sites of people in one group, in place; how far a margin's mean moved, in standard deviations, or its variance.

    None, and no change, where draws tell too little.
    """
    rows = data.rows_of(people)
    rows = rows[(data.weights[rows] > 0.0) & (data.sizes[rows] > REAL * data.sizes[rows].max(initial=0.0))]
    if not rows.size:
        return None
    # what somebody said again is one answer
    offset = np.zeros(len(data.X)) if data.offset is None else data.offset
    owner = np.searchsorted(data.starts, rows, side="right") - 1
    keys = np.column_stack([owner, offset[rows], data.X[rows]])
    _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    which, weights, offset = which.ravel(), data.weights[rows], offset[rows[first]]
    power, precision, pull = (
        np.asarray(np.bincount(which, each), dtype=np.float64)
        for each in (weights, sites.precision[rows], sites.pull[rows])
    )
    mean, loads = _margins(found, owner[first], data.X[rows[first]].astype(np.float64))
    if loads.shape[1] > DRAWN.directions:
        return None
    points, log = _points(loads.shape[1], powers)
    ratio, slope, few = log.copy(), pull - precision * mean, list(pieces(len(points), len(loads), LIMITS.in_cache))
    for some in few:
        off = points[some] @ loads.T
        ratio[some] += _log_likelihoods(off + (mean + offset), power) - off @ slope + 0.5 * off**2 @ precision
    share = np.exp(ratio - ratio.max())
    log_mass, share = np.log(share.sum() / np.exp(log).sum()) + ratio.max(), share / share.sum()
    if not share @ share < 1.0 / DRAWN.effective:
        return None
    middle = share @ points
    spread, before = np.zeros(len(loads)), (loads**2).sum(axis=1)
    for some in few:
        spread += share[some] @ ((points[some] - middle) @ loads.T) ** 2
    new = _precisions(loads, precision, spread, before)
    P = np.eye(len(middle)) + (loads.T * (new - precision)) @ loads
    slope += np.linalg.lstsq(loads.T, P @ middle, rcond=None)[0]
    # what the new sites say at the old mean: their mass must be that of the answers
    top = log_mass + 0.5 * np.linalg.slogdet(P)[1] - 0.5 * middle @ P @ middle
    part, new_pull = weights / power[which], slope + new * mean
    level = top * power / power.sum() - new_pull * mean + 0.5 * new * mean**2
    for target, values in zip(sites[:3], (new, new_pull, level), strict=True):
        target[rows] = part * values[which]
    sites.at[rows] = (mean + loads @ middle)[which]
    return float(max((np.abs(loads @ middle) / np.sqrt(before)).max(), np.abs(spread / before - 1.0).max()))


def _log_likelihoods(margins: FloatArray, power: FloatArray) -> FloatArray:
    """Σ power · log σ(margin) over the answers, for each draw.

    log σ(m) = min(m, 0) − log(1 + e^−|m|). Factors of answers that count once are multiplied, so that one logarithm is
    taken of each draw instead of one of each answer: `DRAWN.answers` factors of at most 2 are no large number.
    """
    once, tails = power == 1.0, np.exp(-np.abs(margins))
    several = np.log1p(tails[:, ~once]) @ power[~once]
    return np.minimum(margins, 0.0) @ power - np.log((1.0 + tails[:, once]).prod(axis=1)) - several


def _margins(found: Mixture, owner: IntArray, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means and loads, (n, r), such that margins of these rows are means + loads η with η ~ N(0, I)."""
    through, covariance, doubt = np.empty_like(X), np.zeros((len(X), len(X))), None
    for user in np.unique(owner).tolist():
        part, own = found.person(user).parts[0], owner == user
        through[own] = part.keep(X[own])
        covariance[np.ix_(own, own)] = part.variance * through[own] @ X[own].T
        doubt = part.doubt  # about the centre of their group
    if doubt is not None:
        covariance += through @ doubt @ through.T
    size, axes = np.linalg.eigh(0.5 * (covariance + covariance.T))
    real = np.flatnonzero(size > size[-1] * REAL)[::-1]
    loads = axes[:, real] * np.sqrt(size[real])
    mean = np.einsum("ij,ij->i", X, found.mean[owner])
    return mean, loads * np.where(loads.sum(axis=0) < 0.0, -1.0, 1.0)


def _precisions(loads: FloatArray, precision: FloatArray, spread: FloatArray, before: FloatArray) -> FloatArray:
    """Of sites: the margins' variances become `spread`, as far as precisions of 0 and more can do that.

    A normal law of least Kullback-Leibler divergence from the exact one: Σ precision · spread − log|P| is least.
    """

    def divergence(scaled: FloatArray) -> tuple[float, FloatArray]:
        change = scaled / before - precision
        P = np.eye(loads.shape[1]) + (loads.T * change) @ loads
        now = np.einsum("ij,ij->i", loads, np.linalg.solve(P, loads.T).T)
        return float(change @ spread - np.linalg.slogdet(P)[1]), (spread - now) / before

    options = {"ftol": 0.0, "gtol": DRAWN.precise, "maxiter": DRAWN.steps}
    bounds = [(0.0, None)] * len(precision)
    found = minimize(divergence, precision * before, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return np.asarray(found.x / before)


@lru_cache(maxsize=4)
def _points(dim: int, powers: int) -> tuple[FloatArray, FloatArray]:
    """2ᵖ points of a multivariate t law, evenly spread; log N(point; 0, I) less their log density, plus a constant."""
    even = np.clip(Sobol(dim + 1, rng=0).random_base2(powers), EDGE, 1.0 - EDGE)
    points = ndtri(even[:, :-1]) / np.sqrt(2.0 / DRAWN.freedom * gammaincinv(DRAWN.freedom / 2.0, even[:, -1:]))
    square = (points**2).sum(axis=1)
    return points, 0.5 * (DRAWN.freedom + dim) * np.log1p(square / DRAWN.freedom) - 0.5 * square
