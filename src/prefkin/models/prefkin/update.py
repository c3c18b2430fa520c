"""Tomorrow's answers: those who gave them are placed anew, under the prior as it is.

Given the prior (metric, scales, who there is to belong to), a person's place follows from their own answers and from
what the others of a group say. So those with new answers are taken out of their groups, placed with all of their rows,
and put back: a group's sums lose what they said before and gain what they say now. Nobody else's rows are looked at:
their sites and memberships stay; what they share with others, the centre of their group, follows from its sums.
"""

from __future__ import annotations

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.data.folds import probe_users
from prefkin.data.rows import Grown, UserRows, only
from prefkin.execution.blas import in_one_order
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import SINGLE_FROM, Quadratics, Signed, expand
from prefkin.models.prefkin.calibrate import Fitted, fitted_in
from prefkin.models.prefkin.mixture import Apart, Centres, Mixture, Prior, pieces
from prefkin.models.prefkin.places import place
from prefkin.models.prefkin.settings import LIMITS, TRUST

__all__ = ["clearly_better", "gain_of_refit", "taken_in"]

AT_ONCE = 64  # people placed together, each with groups of their own: those without their old answers
ROUNDS = 3  # of sites, then places: more would settle on the first guess, be it wrong
MOST_SAMPLED = 40  # people by whom it is judged whether the prior should be learnt again


def taken_in(fitted: Fitted, more: Grown) -> Fitted:
    """Everybody with their new answers; `more` are the rows of old and new."""
    data, metric = fitted.metric.signed(only(more.rows, more.who)), fitted.metric
    whole = metric.signed(more.rows) if metric.dim >= SINGLE_FROM else None  # whose quadratics know their rows
    mixture = _renewed(fitted.mixture, more, data, whole)
    wide = None if fitted.wide is None else _renewed(fitted.wide, more, data, whole)
    return Fitted(mixture, metric, wide, fitted.temperature)


@in_one_order
def _renewed(known: Mixture, more: Grown, data: Signed, whole: Signed | None) -> Mixture:
    share, sites = np.empty((len(data), known.share.shape[1])), Sites.start(data.weights)
    sums, prior = known.centres.sums, known.prior
    for piece in pieces(len(data), data.dim**2, min(AT_ONCE * data.dim**2, LIMITS.at_once)):
        was, rows = more.was[piece], slice(data.starts[piece.start], data.starts[piece.stop])
        placed = place(known, data.between(piece), ROUNDS, who=was)
        share[piece] = placed.share
        sites.put(rows, placed.sites)
        old = was[was >= 0]
        before = known.terms_of(old).summed(known.share[old])
        after = placed.terms_of(np.arange(len(was))).summed(placed.share)
        sums = sums - before + after
    everybody = np.empty((len(more.rows), share.shape[1]))
    everybody[more.before], everybody[more.who] = known.share, share
    new, sites = sites, _in_their_rows(known.sites, sites, more)
    users = known.users.renewed(data, new, more.before, more.who) if whole is None else expand(whole, sites)
    centres, others = Centres.of(sums, prior), known.others
    mean = _means(users, everybody, centres, prior)
    return Mixture(users, everybody, mean, prior, centres, sites, known.evidence, None, others)


def _means(users: Quadratics, share: FloatArray, centres: Centres, prior: Prior) -> FloatArray:
    """E θ of everybody, as in `solved`, where only that is asked for."""
    mean = users.posterior_means(share @ centres.mean, prior.within, share.sum(axis=1))
    apart = Apart.of(users, share, prior)
    if len(apart.who):
        w = apart.weight
        mean[apart.who] += apart.terms.posterior_means(w[:, None] * prior.m0, prior.alone, w)
    return mean


def _in_their_rows(known: Sites, new: Sites, more: Grown) -> Sites:
    """Sites of all rows: those of people who were placed anew are all new."""
    told = np.zeros(len(more.rows), dtype=bool)
    told[more.who] = True
    told = told[more.rows.owner]
    found = Sites(*(np.empty(len(told)) for _ in known))
    for target, one, other in zip(found, known, new, strict=True):
        target[~told], target[told] = one[more.silent], other
    return found


# -- should the prior be learnt again? ---------------------------------------------------------------------------------


def gain_of_refit(fitted: Fitted, new: UserRows) -> float:
    """Log evidence of new answers under a prior learnt from them alone, over that under the prior as it is.

    Of a sample of those who gave them, each as if it were not known who they are. A prior that fits has learnt from
    many more people and knows the groups, so that it is far ahead; behind it is when people are no longer like that.
    """
    some = only(new, np.array(probe_users(new, MOST_SAMPLED)))
    believed = fitted.mixture, *(() if fitted.wide is None else (fitted.wide,))
    guessed = -np.log(2.0) * float(some.rows.weights.sum())  # a prior worth learning beats that
    before = max(guessed, *(place(each, fitted.metric.signed(some)).evidence for each in believed))
    return fitted_in(some, "isotropic").degrees.evidence - before


def clearly_better(gain: float, people: int) -> bool:
    """Is such a gain worth a refit?"""
    return gain > max(TRUST.clearly, min(people, MOST_SAMPLED) * TRUST.clearly_each)
