"""Laplace's approximation for those whose sites do not settle.

Where somebody's answers count a thousandfold and never contradict each other, sites that are all matched at once may
leap to and fro for ever, and what they say in between contradicts the answers. The log posterior of one person is
concave: its mode is always found, and explains the answers as well as the prior allows.
"""

from __future__ import annotations

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.data.rows import Rows
from prefkin.inference.estimate import fit_preference
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Signed, expand
from prefkin.inference.steps import SAFE
from prefkin.models.prefkin.mixture import Mixture, solved

__all__ = ["at_their_modes"]

CHANCE = 3.0  # log posterior that a mean may fall behind what half of all draws reach


def at_their_modes(found: Mixture, data: Signed) -> Mixture:
    """The fit with sites as tangents at the mode for users whose mean is less likely than a draw would be.

    A draw from a normal posterior of r parameters falls r / 2 behind the mode, on average. The groups stay.
    """
    modes = {user: _mode(found, data, user) for user in np.flatnonzero(found.moved(data) > SAFE).tolist()}
    better = {user: mode for user, mode in modes.items() if mode is not None}
    if not better:
        return found
    sites = Sites(*(each.copy() for each in found.sites))
    for user, mode in better.items():
        own = data.own(user)
        offset = None if data.offset is None else data.offset[own]
        tangent = Sites.tangent(data.weights[own], data.X[own] @ mode, offset)
        for target, values in zip(sites, tangent, strict=True):
            target[own] = values
    return solved(expand(data, sites), sites, found.share, found.prior, found.evidence, centres=found.centres)


def _mode(found: Mixture, data: Signed, user: int) -> FloatArray | None:
    """The mode under the group that `user` most likely belongs to, where the mean is too far from it."""
    group, own = int(np.argmax(found.weights[user])), data.own(user)
    alone = group == found.share.shape[1]
    centre = found.prior.m0 if alone else found.centres.mean[group]
    ridge = 1.0 / (found.prior.alone if alone else found.prior.within)
    rows = Rows(data.X[own].astype(np.float64), np.ones(own.stop - own.start), data.weights[own])
    offset = np.zeros(len(rows.y)) if data.offset is None else data.offset[own]

    def misfit(theta: FloatArray) -> float:
        loss = rows.weights @ np.logaddexp(0.0, -rows.Z @ theta - offset)
        return float(loss + 0.5 * ridge * ((theta - centre) ** 2).sum())

    mode = fit_preference(rows, ridge=ridge, centre=centre, offset=offset)
    behind = misfit(found.mean[user]) - misfit(mode)
    return mode if behind > 0.5 * min(rows.Z.shape) + CHANCE else None
