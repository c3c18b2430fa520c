"""One person's answers under each of several normal priors: expectation propagation, for all of them side by side.

Under prior k the margins m = xᵀθ of a person's rows are normal, m = offset_k + L_k u with u ~ N(0, I), where L_k has no
more columns than there are rows or features. Each prior has sites of its own, since a site that suits one group does
not suit another; what is found depends on the rows alone, not on the order in which they came.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.inference.propagation import Sites, refine

__all__ = ["Components", "propagate"]

NEAR = 0.1  # change of any margin's mean, in log odds, at which evidence is known well enough to give up some priors
HOPELESS = 20.0  # log odds at which that is done
SETTLED = 1e-9  # change at which sites are taken as found
MOST_ROUNDS = 200
LEAST_STEP = 0.1  # share of the way that sites move at least


class Components(NamedTuple):
    """Sites and what they say, under each prior."""

    precision: FloatArray  # (K, n)
    pull: FloatArray  # (K, n)
    margin: FloatArray  # (K, n) mean of each row's margin
    evidence: FloatArray  # (K,) log probability of the answers


def propagate(L: FloatArray, offset: FloatArray, log_weights: FloatArray) -> Components:
    """Sites of every row under every prior; of priors that lose by e²⁰ and more only roughly.

    L : (K, n, r); offset : (K, n); log_weights : (K,) of the priors, before any answer

    >>> one = propagate(np.ones((1, 1, 1)), np.zeros((1, 1)), np.zeros(1))  # an answer whose margin is N(0, 1)
    >>> round(float(one.evidence[0]), 6), round(float(one.margin[0, 0]), 3)
    (-0.693147, 0.413)
    """
    K, n, _ = L.shape
    nothing = Sites(*(np.zeros(K * n) for _ in range(3)))
    first = refine(nothing, np.ones(K * n), offset.ravel(), np.einsum("knr,knr->kn", L, L).ravel())
    sites = _matched(L, offset, Sites(*(each.reshape(K, n) for each in first)), NEAR)
    found = _told(L, offset, sites)
    score = log_weights + found.evidence
    alive = np.flatnonzero(score > score.max() - HOPELESS)
    better = _matched(L[alive], offset[alive], Sites(*(each[alive] for each in sites)), SETTLED)
    for whole, part in zip(found, _told(L[alive], offset[alive], better), strict=True):
        whole[alive] = part
    return found


def _matched(L: FloatArray, offset: FloatArray, sites: Sites, enough: float) -> Sites:
    """Sites that agree with what the others say; by smaller steps where they swing to and fro."""
    step, change, ones = 1.0, np.inf, np.ones(offset.size)
    mean, variance = _margins(L, offset, sites)
    for _ in range(MOST_ROUNDS):
        flat = Sites(*(each.ravel() for each in sites))
        flat = refine(flat, ones, mean.ravel(), variance.ravel(), step)
        sites = Sites(*(each.reshape(offset.shape) for each in flat))
        before = mean
        mean, variance = _margins(L, offset, sites)
        last, change = change, float(np.abs(mean - before).max())
        if change < enough:
            break
        if change > last:
            step = max(step / 2.0, LEAST_STEP)
    return sites


def _precisions(L: FloatArray, precision: FloatArray) -> FloatArray:
    """Of u, I + LᵀSL, (K, r, r)."""
    return np.eye(L.shape[2]) + np.matmul(L.transpose(0, 2, 1), precision[:, :, None] * L)


def _margins(L: FloatArray, offset: FloatArray, sites: Sites) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of each margin, (K, n) each."""
    through = np.matmul(L, np.linalg.inv(_precisions(L, sites.precision)))
    pulled = np.matmul((sites.pull - sites.precision * offset)[:, None, :], L)[:, 0]
    return offset + np.matmul(through, pulled[:, :, None])[:, :, 0], np.einsum("knr,knr->kn", through, L)


def _told(L: FloatArray, offset: FloatArray, sites: Sites) -> Components:
    A = _precisions(L, sites.precision)
    pulled = np.matmul((sites.pull - sites.precision * offset)[:, None, :], L)[:, 0]
    u = np.linalg.solve(A, pulled[:, :, None])[:, :, 0]
    level = sites.level + sites.pull * offset - 0.5 * sites.precision * offset**2
    volume = np.log(np.einsum("kii->ki", np.linalg.cholesky(A))).sum(axis=1)
    evidence = level.sum(axis=1) + 0.5 * np.einsum("kr,kr->k", pulled, u) - volume
    return Components(sites.precision, sites.pull, offset + np.matmul(L, u[:, :, None])[:, :, 0], evidence)
