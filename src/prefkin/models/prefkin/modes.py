"""A fit with those at their modes whose sites did not settle (`inference.modes`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import expit

from prefkin.data.arrays import BoolArray, FloatArray
from prefkin.inference.modes import at_modes
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Signed, expand
from prefkin.inference.steps import SAFE, apart, farthest
from prefkin.models.prefkin.mixture import Mixture, solved

__all__ = ["at_their_modes", "believable"]

STEPS = 100  # of Newton's method
SETTLED = 1e-6  # log posterior that a step still promises
ENDS = 0.01  # of a step: how exactly it is known where it should end


def at_their_modes(found: Mixture, data: Signed) -> Mixture:
    """The fit with sites as tangents at the mode for users whose mean is less likely than a draw would be.

    Memberships stay; centres follow, or stay too where others who shaped them are not here.
    """
    margin = found.margin(data)
    leapt = farthest(margin - found.sites.at, data.starts) > SAFE
    astray = np.union1d(np.flatnonzero(leapt), apart(found.sites, data, margin))
    sites = at_modes(found.sites, data, found.around(astray), found.mean)
    if sites is found.sites:
        return found
    centres = None if found.others is None else found.centres
    there = solved(expand(data, sites), sites, found.share, found.prior, found.evidence, centres=centres)
    return replace(there, others=found.others)


def believable(found: Mixture, data: Signed) -> Mixture:
    """The fit with nobody's sites saying something else than their answers do: else its evidence says nothing.

    Everybody surely is in one group, or alone. Ordinary fits are returned as they are. Those whose sites are apart from
    their answers are set to where their log posterior is highest, together with the centres of their groups.
    """
    lost = np.zeros(len(found), dtype=bool)
    while True:
        more = apart(found.sites, data, found.margin(data))
        if lost[more].all():
            return found
        lost[more] = True
        found = _at_joint_mode(found, data, np.repeat(lost, np.diff(data.starts)))


def _at_joint_mode(found: Mixture, data: Signed, exact: BoolArray) -> Mixture:
    """With tangents at the joint mode for the rows `exact`, and the sites of others as they are: Newton's method.

    The log posterior is concave: the best step along each direction leads there. `inference.modes.at_modes` is for one
    person around a centre that stays, which is an estimate as any other (`fit_preference`); here centres move with
    those in them, some of whom have sites, so that only a step for everybody together will do.
    """
    offset = np.zeros(len(data.X)) if data.offset is None else data.offset
    n, at, weights = len(data.X), _coordinates(found, data), _precisions(found, data)
    for _ in range(STEPS):
        tangent = Sites.tangent(data.weights, at[:n], offset)
        sites = Sites(*(np.where(exact, *both) for both in zip(tangent, found.sites, strict=True)))
        found = solved(expand(data, sites), sites, found.share, found.prior, found.evidence)
        way = _coordinates(found, data) - at

        def slope(length: float, at: FloatArray = at, way: FloatArray = way, sites: Sites = sites) -> float:
            there = at + length * way
            margin = there[:n]
            pull = np.where(exact, data.weights * expit(-margin - offset), sites.pull - sites.precision * margin)
            return float(pull @ way[:n] - (weights * there) @ way)

        if slope(0.0) < SETTLED:
            break
        low, high = 0.0, 1.0
        while slope(high) > 0.0:
            low, high = high, 2.0 * high
        while high - low > ENDS * high:  # from where answers are certain to be wrong, steps are 10¹³ times too long
            middle = 0.5 * (low + high)
            low, high = (middle, high) if slope(middle) > 0.0 else (low, middle)
        at = at + low * way
    return found


def _coordinates(found: Mixture, data: Signed) -> FloatArray:
    """Margins, then users around their centres, then centres around m_0: the log posterior is a sum over them."""
    alone = found.weights[:, -1:] * found.prior.m0
    users = found.mean - found.share @ found.centres.mean - alone
    return np.concatenate([found.margin(data), users.ravel(), (found.centres.mean - found.prior.m0).ravel()])


def _precisions(found: Mixture, data: Signed) -> FloatArray:
    """What the prior says about each of these coordinates; nothing about margins."""
    width = np.where(found.weights[:, -1] > 0.5, found.prior.alone, found.prior.within)
    users = np.repeat(1.0 / width, data.dim)
    return np.concatenate([np.zeros(len(data.X)), users, np.full(found.centres.mean.size, 1.0 / found.prior.between)])
