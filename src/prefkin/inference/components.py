"""One person's answers under each of several normal priors: expectation propagation, for all of them side by side.

Under prior k the margins m = xᵀθ of a person's rows are normal, m = offset_k + L_k u with u ~ N(0, I), where L_k has no
more columns than there are rows or features. Each prior has sites of its own, since a site that suits one group does
not suit another; what is found depends on the rows alone, not on the order in which they came.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray
from prefkin.inference import _kernels
from prefkin.inference.propagation import FARTHEST, LEAST_CAVITY, SIGMOID

__all__ = ["Components", "propagate"]

NEAR = 0.1  # change of any margin's mean, in log odds, at which evidence is known well enough to give up some priors
HOPELESS = 20.0  # log odds at which that is done
SETTLED = 1e-9  # change at which sites are taken as found
MOST_ROUNDS = 200.0  # through all answers
LEAST_STEP = 0.1  # share of the way that sites move at least


class Components(NamedTuple):
    """Sites and what they say, under each prior."""

    precision: FloatArray  # (K, n)
    pull: FloatArray  # (K, n)
    margin: FloatArray  # (K, n) mean of each row's margin
    evidence: FloatArray  # (K,) log probability of the answers


def propagate(
    L: FloatArray, offset: FloatArray, log_weights: FloatArray, before: Components | None = None
) -> Components:
    """Sites of every row under every prior; of priors that lose by e²⁰ and more only roughly.

    L : (K, n, r); offset : (K, n); log_weights : (K,) of the priors, before any answer. `before` is what was found of
    the first rows alone: a place to begin, and since no answer has a probability above one, a bound on what a prior can
    still reach. One that is hopeless by it is left as it was.

    >>> one = propagate(np.ones((1, 1, 1)), np.zeros((1, 1)), np.zeros(1))  # an answer whose margin is N(0, 1)
    >>> round(float(one.evidence[0]), 6), round(float(one.margin[0, 0]), 3)
    (-0.693147, 0.413)
    """
    K, n, r = L.shape
    L, columns, offset = (np.ascontiguousarray(each) for each in (L, L.swapaxes(1, 2), offset))
    sites, margin, evidence = np.zeros((K, 3, n)), offset.copy(), np.zeros(K)
    if before is not None:
        known = before.precision.shape[1]
        sites[:, 0, :known], sites[:, 1, :known], evidence = before.precision, before.pull, before.evidence.copy()
    room = np.empty((r, r)), np.empty((3, r))
    for still in (NEAR, SETTLED):
        rules, found = (still, MOST_ROUNDS, LEAST_STEP, LEAST_CAVITY, FARTHEST), np.zeros(K, dtype=bool)
        while len(which := np.flatnonzero(_hopeful(log_weights + evidence) & ~found)):
            _kernels.match_sites(L, columns, offset, sites, margin, evidence, which, rules, SIGMOID, *room)
            found[which] = True
    return Components(sites[:, 0], sites[:, 1], margin, evidence)


def _hopeful(score: FloatArray) -> BoolArray:
    return score > score.max() - HOPELESS
