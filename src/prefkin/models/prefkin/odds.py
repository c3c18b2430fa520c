"""What speaks for and against two users belonging together, in log odds, and what it would take to turn that round.

Everybody but `user` is left where they are. The group of `other` has prior odds by its size (the restaurant prior
of `groups`); the answers multiply them by how much better that group explains `user`'s answers than others do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, logsumexp

from prefkin.data.arrays import FloatArray
from prefkin.inference.propagation import above_zero
from prefkin.inference.quadratics import Signed, Terms
from prefkin.inference.quadratics.evidence import set_evidence
from prefkin.models.prefkin.mixture import Centres, Mixture
from prefkin.models.prefkin.places import place
from prefkin.models.prefkin.settings import LIMITS

__all__ = ["Odds", "comparisons_to_turn", "difference_covariance", "equality_odds", "joining_odds"]

ALMOST = 1e-9
FEWEST, MOST, NEARLY = 0.0, 17.0, 0.1  # comparisons to turn a verdict, as powers of 2


class Odds(NamedTuple):
    """Log odds that a user belongs with another: prior and answers add up."""

    answers: float  # log Bayes factor of the user's answers for belonging there, against elsewhere
    prior: float  # log prior odds

    @property
    def total(self) -> float:
        """Posterior log odds."""
        return self.answers + self.prior


def joining_odds(mixture: Mixture, user: int, other: int) -> Odds:
    """Log odds that `user` belongs with `other`, everybody else left where they are."""
    around, beside = _without(mixture, user, other)
    prior, fits = _scores(around, mixture, user)
    elsewhere = np.arange(len(fits)) != beside
    prior_odds = float(prior[beside] - logsumexp(prior[elsewhere]))
    total = float(prior[beside] + fits[beside] - logsumexp((prior + fits)[elsewhere]))
    return Odds(total - prior_odds, prior_odds)


def comparisons_to_turn(mixture: Mixture, user: int, other: int, data: Signed) -> float:
    """About how many more comparisons would change whether `user`, whose rows are `data`, belongs with `other`.

    The rows so far come again and again, with answers as a member of `other`'s group would give them on average; or,
    when the two belong together, a member of the likeliest other group (the user's own answers taken alone, where there
    is no other). The user is placed anew with both kinds of rows. Infinity: not with rows like these.
    """
    around, beside = _without(mixture, user, other)
    prior, fits = _scores(around, mixture, user)
    score, X, weights = prior + fits, data.X, data.weights
    elsewhere = np.arange(len(score)) != beside
    joined = score[beside] > logsumexp(score[elsewhere])
    if not joined:
        truth = around.centres.mean[beside]
    else:
        groups = np.flatnonzero(elsewhere[:-1] & (around.sizes > ALMOST))
        alone = _posterior_alone(mixture, user)
        truth = around.centres.mean[groups[np.argmax(score[groups])]] if groups.size else alone
    p, share = expit(X @ truth), 1.0 / above_zero(weights.sum())
    rows, ends = np.vstack([X, -X]), np.array([0, 2 * len(X)])  # a row that comes again counts more

    def log_odds(doublings: float) -> float:
        """Of belonging with `other` after 2^doublings comparisons more."""
        n = 2.0**doublings * share
        placed = place(around, Signed(rows, np.concatenate([weights * (1.0 + n * p), n * weights * (1.0 - p)]), ends))
        return float(logit(np.clip(placed.share[0, beside], ALMOST, 1.0 - ALMOST)))

    few, many = log_odds(FEWEST), log_odds(MOST)
    if (many > 0.0) == joined:
        return np.inf
    return 2.0**FEWEST if (few > 0.0) != joined else float(2.0 ** brentq(log_odds, FEWEST, MOST, xtol=NEARLY))


def _posterior_alone(mixture: Mixture, user: int) -> FloatArray:
    """E θ of somebody who shares nothing but m_0."""
    prior = mixture.prior
    return mixture.users.some(np.array([user])).at(prior.alone).posterior_means(prior.m0[None], prior.alone)[0]


def _without(mixture: Mixture, user: int, other: int) -> tuple[Mixture, int]:
    """The mixture with `user` taken out, and the group of `other` among them: one of its own, should it stand alone."""
    prior, sums, share, others = mixture.prior, mixture.centres.sums, mixture.share.copy(), mixture.others
    taken = mixture.terms_of(np.array([user]))
    mine = share[user].copy()
    A = sums.A - mine[:, None, None] * taken.A
    a = sums.a - mine[:, None] * taken.a
    share[user] = 0.0
    beside = int(np.argmax(mixture.weights[other]))
    if beside == share.shape[1]:
        own = mixture.terms_of(np.array([other]))
        A, a = np.concatenate([A, own.A]), np.concatenate([a, own.a])
        share = np.column_stack([share, np.arange(len(share)) == other])
        others = None if others is None else replace(others, sizes=np.append(others.sizes, 0.0))
    centres = Centres.of(Terms(A, a, np.zeros(len(a))), prior)
    return replace(mixture, share=share, centres=centres, others=others), beside


def _scores(around: Mixture, mixture: Mixture, user: int) -> tuple[FloatArray, FloatArray]:
    """Log prior (up to a constant) and log evidence of the user's answers for each group; last: alone."""
    prior, sums, one = mixture.prior, around.centres.sums, mixture.users.some(np.array([user]))
    joined = sums + one.at(prior.within)
    fits = set_evidence(joined, prior.m0, prior.between) - set_evidence(sums, prior.m0, prior.between)
    sizes = np.where(around.sizes < ALMOST, 0.0, around.sizes)
    with np.errstate(divide="ignore"):
        odds = np.append(np.log(sizes), prior.lonely)
    return odds, np.append(fits, one.evidences(prior.m0, prior.alone))


def equality_odds(mixture: Mixture, user: int, other: int) -> float:
    """Log Bayes factor of the two wanting exactly the same, against being two people drawn from the first group."""
    both, centre, spread = mixture.users.some(np.array([user, other])), mixture.centres.mean[0], mixture.prior.within
    each = both.at(0.0)
    same = float(set_evidence(each[0] + each[1], centre, spread))
    return same - float(both.evidences(centre, spread).sum())


def difference_covariance(mixture: Mixture, user: int, other: int) -> FloatArray:
    """Posterior covariance of θ_u − θ_v: what they may share, a group's centre, is in doubt for both alike."""
    C = mixture.person(user).covariance() + mixture.person(other).covariance()
    G = np.eye(len(C)) - mixture.prior.within * mixture.terms_of(np.array([user, other])).A
    together = mixture.share[user] * mixture.share[other]
    for k in np.flatnonzero(together > LIMITS.unlikely):
        cross = G[0] @ mixture.centres.doubt[k] @ G[1]
        C -= together[k] * (cross + cross.T)
    return C
