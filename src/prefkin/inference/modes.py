"""Sites at the mode of somebody's posterior, for those whose sites do not settle: Laplace's approximation.

Where somebody's answers count a thousandfold and never contradict each other, sites that are all matched at once may
leap to and fro, or creep, for ever, and what they say in between contradicts the answers. The log posterior of one
person is concave: its mode is always found, and explains the answers as well as the prior allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.rows import Rows
from prefkin.errors import ConvergenceError
from prefkin.inference.estimate import fit_preference
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Signed
from prefkin.inference.steps import CHANCE, apart, improved

__all__ = ["Around", "at_modes", "matched"]


class Around(NamedTuple):
    """What is assumed about some users before their answers: the likeliest of their groups, or none."""

    who: IntArray  # (n,)
    centre: FloatArray  # (n, d)
    variance: FloatArray  # (n,)

    @classmethod
    def one(cls, who: IntArray, centre: FloatArray, variance: float) -> Around:
        """One centre and one variance for all of them."""
        return cls(who, np.broadcast_to(centre, (len(who), len(centre))), np.full(len(who), variance))


def matched(
    sites: Sites,
    data: Signed,
    mean: FloatArray,
    variance: FloatArray,
    around: Callable[[IntArray], Around],
    step: float = 1.0,
) -> Sites:
    """`steps.improved`; who is apart from their answers goes to their mode instead."""
    lost, found = apart(sites, data, mean), improved(sites, data, mean, variance, step)
    return at_modes(found, data, around(lost)) if lost.size else found


def at_modes(sites: Sites, data: Signed, around: Around, mean: FloatArray | None = None) -> Sites:
    """Sites with tangents at the mode for these users; with `mean`s, (U, d), for those whose mean is too far from it.

    A draw from a normal posterior of r parameters falls r / 2 behind the mode, on average. Sites stay where rounding
    hides the mode.
    """
    found: Sites | None = None
    parameters = np.minimum(data.answers, data.dim)
    for user, centre, variance in zip(*around, strict=True):
        own, ridge = data.own(user), 1.0 / variance
        rows = Rows(data.X[own].astype(np.float64), np.ones(own.stop - own.start), data.weights[own])
        offset = np.zeros(len(rows.y)) if data.offset is None else data.offset[own]
        try:
            mode = fit_preference(rows, ridge=ridge, centre=centre, offset=offset)
        except ConvergenceError:
            continue

        def misfit(theta: FloatArray) -> float:
            loss = rows.weights @ np.logaddexp(0.0, -rows.Z @ theta - offset)  # noqa: B023 - called at once
            return float(loss + 0.5 * ridge * ((theta - centre) ** 2).sum())  # noqa: B023

        if mean is not None and misfit(mean[user]) - misfit(mode) <= 0.5 * parameters[user] + CHANCE:
            continue
        found = found or sites.copy()
        found.put(own, Sites.tangent(rows.weights, rows.Z @ mode, offset))
    return found or sites
