"""Somebody who has not answered yet: what is known about people in general.

In groups: around each group's centre with the weight of its members, or around none of them, as `groups.place` weighs
them. By degrees: around what all share; where held-out answers saw less spread between people than evidence does, both
spreads are possible, and the person's answers decide.
"""

from __future__ import annotations

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.decide.plan import Panel
from prefkin.decide.population import MixtureBelief, Population
from prefkin.models.prefkin.calibrate import Fitted
from prefkin.models.prefkin.mixture import Mixture, covariances, pieces
from prefkin.models.prefkin.person import Person
from prefkin.models.prefkin.settings import TRUST

__all__ = ["everybody_at_once", "group_chances", "people_in_general", "person_as_population"]


def people_in_general(fitted: Fitted, habit: float) -> Population:
    """A component for each group, then one for those in no group, or for a wider spread."""
    weights, means, covariances = _components(fitted.mixture)
    if fitted.wide is not None:
        unlikely, others, wider = _components(fitted.wide)
        weights = np.append(weights, np.exp(-TRUST.clearly) * unlikely)
        means, covariances = np.vstack([means, others]), np.concatenate([covariances, wider])
    metric = fitted.metric
    return Population(weights, metric.preferences(means), np.array([metric.covariance(C) for C in covariances]), habit)


def _components(known: Mixture) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights, means and covariances in the metric."""
    prior, centres = known.prior, known.centres
    weights, means, unit = known.sizes, centres.mean, np.eye(len(prior.m0))
    covariances = centres.doubt.astype(np.float64) + prior.within * unit
    if known.by_degrees:
        return weights, means, covariances
    weights = np.append(weights, np.exp(prior.lonely))
    return weights, np.vstack([means, prior.m0]), np.concatenate([covariances, prior.alone * unit[None]])


def group_chances(fitted: Fitted, belief: MixtureBelief) -> FloatArray:
    """How probable each of the fitted groups is, (K,)."""
    return np.ones(1) if fitted.mixture.by_degrees else belief.chance[:-1]


def everybody_at_once(fitted: Fitted) -> Panel:
    """Everybody in their group, with the centre that they share; those who may be elsewhere, for themselves."""
    known = fitted.believed
    within, n = known.prior.within, len(known)
    group, keep, spread = np.full(n, -1), np.empty((n, *known.centres.doubt.shape[1:])), np.ones(n)
    sure = np.flatnonzero(known.share.max(axis=1, initial=0.0) >= TRUST.certain_place)
    group[sure], spread[sure] = np.argmax(known.share[sure], axis=1), within
    for piece in pieces(n, keep[0].size):
        who = np.arange(piece.start, piece.stop)
        together = group[who] >= 0
        if together.any():
            keep[who[together]] = np.eye(keep.shape[1]) - within * known.terms_of(who[together]).A
        if not together.all():
            keep[who[~together]] = covariances(known, who[~together])
    return Panel(fitted.mixture.mean, keep, spread, group, known.centres.doubt.astype(np.float64))


def person_as_population(fitted: Fitted, user: int, habit: float) -> Population:
    """Somebody who is known: the groups to which they may belong, each as they would be in it."""
    metric = fitted.metric
    if fitted.wide is not None:
        mean = metric.preferences(fitted.mixture.mean[user])
        return Population(np.ones(1), mean[None], fitted.covariance(user)[None], habit)
    parts = fitted.mixture.person(user).parts
    each = [Person([part._replace(weight=1.0)]) for part in parts]
    covariances = np.array([metric.covariance(one.covariance()) for one in each])
    weights = np.array([part.weight for part in parts])
    return Population(weights, metric.preferences(np.array([part.mean for part in parts])), covariances, habit)
