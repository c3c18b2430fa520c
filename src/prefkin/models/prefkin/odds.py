"""What speaks for and against two users belonging together, in log odds, and what it would take to turn that round.

Everybody but `user` is left where they are. The seat beside `other` has prior odds by its size (the restaurant prior of
`blocks`); the answers multiply them by how much better that seat explains `user`'s answers than the other seats do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from prefkin.data.arrays import FloatArray
from prefkin.inference.quadratics import Signed
from prefkin.models.prefkin.groups import place
from prefkin.models.prefkin.mixture import Blocks, Centres, Sums, set_evidence, user_sums

__all__ = ["Odds", "comparisons_to_turn", "difference_covariance", "equality_odds", "joining_odds"]

ALMOST = 1e-9
MOST_COMPARISONS = 1e5


class Odds(NamedTuple):
    """Log odds that a user sits with another: prior and answers add up."""

    answers: float  # log Bayes factor of the user's answers for sitting there, against sitting elsewhere
    prior: float  # log prior odds

    @property
    def total(self) -> float:
        """Posterior log odds."""
        return self.answers + self.prior


def joining_odds(blocks: Blocks, user: int, other: int) -> Odds:
    """Log odds that `user` sits with `other`, everybody else seated as they are."""
    around, seat = _without(blocks, user, other)
    prior, fits = _scores(around, blocks, user)
    elsewhere = np.arange(len(fits)) != seat
    prior_odds = float(prior[seat] - logsumexp(prior[elsewhere]))
    total = float(prior[seat] + fits[seat] - logsumexp((prior + fits)[elsewhere]))
    return Odds(total - prior_odds, prior_odds)


def comparisons_to_turn(blocks: Blocks, user: int, other: int, data: Signed) -> float:
    """About how many more comparisons would change whether `user`, whose rows are `data`, sits with `other`.

    The rows so far come again and again, with answers as a member of `other`'s group would give them on average; or,
    when the two sit together, a member of the likeliest other group (the user's own answers taken alone, where there is
    no other). The user is placed anew with both kinds of rows. Infinity: not with rows like these.
    """
    around, seat = _without(blocks, user, other)
    prior, fits = _scores(around, blocks, user)
    score, X, weights = prior + fits, data.X, data.weights
    elsewhere = np.arange(len(score)) != seat
    joined = score[seat] > logsumexp(score[elsewhere])
    if not joined:
        truth = around.centres.mean[seat]
    else:
        groups = np.flatnonzero(elsewhere[:-1] & (around.share.sum(axis=0) > ALMOST))
        alone = blocks.users.one(user).posterior_mean(blocks.prior.m0, blocks.prior.alone)
        truth = around.centres.mean[groups[np.argmax(score[groups])]] if groups.size else alone
    p = expit(X @ truth)
    rows, share = np.vstack([X, X, -X]), 1.0 / max(float(weights.sum()), 1e-300)

    def turned(n: float) -> bool:
        again = np.concatenate([weights, n * share * weights * p, n * share * weights * (1.0 - p)])
        placed = place(around, Signed(rows, again, np.array([0, len(rows)])))
        return bool((placed.share[0, seat] > 0.5) != joined)

    low, high = 0.0, 4.0
    while not turned(high):
        low, high = high, 2.0 * high
        if high > MOST_COMPARISONS:
            return np.inf
    for _ in range(4):
        middle = (low + high) / 2.0
        low, high = (low, middle) if turned(middle) else (middle, high)
    return high


def _without(blocks: Blocks, user: int, other: int) -> tuple[Blocks, int]:
    """The blocks with `user` taken out, and the seat of `other` in them: a table for one, should it stand alone."""
    prior, sums, share = blocks.prior, blocks.centres.sums, blocks.share.copy()
    taken = user_sums(blocks.users.some(np.array([user])), prior.within)
    mine = share[user].copy()
    A = sums.A - mine[:, None, None] * taken.A
    a = sums.a - mine[:, None] * taken.a
    share[user] = 0.0
    seat = int(np.argmax(blocks.weights[other]))
    if seat == share.shape[1]:
        table = user_sums(blocks.users.some(np.array([other])), prior.within)
        A, a = np.concatenate([A, table.A]), np.concatenate([a, table.a])
        share = np.column_stack([share, np.arange(len(share)) == other])
    return replace(blocks, share=share, centres=Centres.of(Sums(A, a, np.zeros(len(a))), prior)), seat


def _scores(around: Blocks, blocks: Blocks, user: int) -> tuple[FloatArray, FloatArray]:
    """Log prior (up to a constant) and log evidence of the user's answers for each seat; last: alone."""
    prior, sums, one = blocks.prior, around.centres.sums, blocks.users.some(np.array([user]))
    joined = sums + user_sums(one, prior.within)
    fits = set_evidence(joined, prior.m0, prior.between) - set_evidence(sums, prior.m0, prior.between)
    sizes = around.share.sum(axis=0)
    sizes[sizes < ALMOST] = 0.0
    with np.errstate(divide="ignore"):
        odds = np.append(np.log(sizes), 0.0)  # one's own table: concentration 1
    return odds, np.append(fits, one.evidences(prior.m0, prior.alone))


def equality_odds(blocks: Blocks, user: int, other: int) -> float:
    """Log Bayes factor of the two wanting exactly the same, against being two people drawn from the first block."""
    both, centre, spread = blocks.users.some(np.array([user, other])), blocks.centres.mean[0], blocks.prior.within
    each = user_sums(both, 0.0)
    same = float(set_evidence(each[0] + each[1], centre, spread))
    return same - float(both.evidences(centre, spread).sum())


def difference_covariance(blocks: Blocks, user: int, other: int) -> FloatArray:
    """Posterior covariance of θ_u − θ_v: what they may share, a block's centre, is in doubt for both alike."""
    C = blocks.person(user).covariance() + blocks.person(other).covariance()
    u, v, within = blocks.users.one(user), blocks.users.one(other), blocks.prior.within
    together = blocks.share[user] * blocks.share[other]
    for k in np.flatnonzero(together > 1e-6):
        cross = u.keep(v.keep(blocks.centres.doubt[k], within).T, within)
        C -= together[k] * (cross + cross.T)
    return C
