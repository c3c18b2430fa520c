"""Who belongs where among groups that there are, by probability.

A user's own data are taken out of a group before it is asked how well it fits; bounds tell where that need not be
asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.execution.blas import in_one_order
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Signed, Terms, expand
from prefkin.inference.quadratics.evidence import joining_gain, joint_evidence, set_evidence
from prefkin.models.prefkin.mixture import AllTerms, Centres, Mixture, Others, Prior, alone_in, nobody, pieces, solved
from prefkin.models.prefkin.settings import LIMITS, PLACING, affordable, is_crowd

__all__ = ["asked_anew", "assign", "place"]


def assign(every: AllTerms, share: FloatArray, prior: Prior, rounds: int, contenders: int) -> FloatArray:
    """Soft memberships: a user's own data are taken out of a group before it is asked how well it fits.

    Those who are sure of their place in one round are not asked again.
    """
    alone = every.users.evidences(prior.m0, prior.alone) + prior.lonely
    asked, many = np.arange(len(share)), is_crowd(len(share))
    for turn in range(rounds):
        share = share[:, share.sum(axis=0) > PLACING.members]
        if share.shape[1] == 0:
            break
        others = Others(share.sum(axis=0), by_degrees=False)
        groups, old = nobody(Centres.of(every.summed(share), prior), prior, others), share[asked]
        new = asked_anew(every, share, asked, alone[asked], groups, contenders)
        moved = np.abs(new - old)
        change = float(moved.sum()) / len(share) if many else float(moved.max(initial=0.0))
        share[asked] = new if turn < PLACING.undamped else (new + old) / 2.0
        unsure = np.maximum(new.max(axis=1), alone_in(new)) < (LIMITS.sure if many else 1.0 - LIMITS.unlikely)
        asked = asked[unsure]
        if change < PLACING.settled or not len(asked):
            break
    return share[:, share.sum(axis=0) > PLACING.members]


def asked_anew(
    every: AllTerms,
    share: FloatArray,
    asked: IntArray,
    alone: FloatArray,
    groups: Mixture,
    contenders: int,
    sure: float = 1.0,
) -> FloatArray:
    """Memberships of those who are asked, (asked, K); `alone` is their log weight of standing alone.

    From a probability of `sure` on, a place is taken as found: nothing is left for others.
    """
    new = np.empty((len(asked), len(groups.sizes)))
    for piece, own in every:
        some = slice(*np.searchsorted(asked, (piece.start, piece.stop)))
        mine = own if some.stop - some.start == len(own) else own[asked[some] - piece.start]
        fits = _fits(mine, share[asked[some]], groups, alone[some], contenders, sure)
        new[some] = _chances(fits, alone[some], sure)
    return new


@in_one_order
def place(
    known: Mixture,
    data: Signed,
    rounds: int = PLACING.rounds,
    contenders: int | None = None,
    who: IntArray | None = None,
    sure: float = 1.0,
    sites: Sites | None = None,
    still: float = 0.0,
) -> Mixture:
    """New users among known groups: those groups, and everybody in them, stay as they are.

    `who` says where in `known` each one stands whose answers are already in the groups (−1: nowhere): these answers are
    taken out first. Evidence is that of everybody's answers, each placed for themselves. Places are taken as found from
    a probability of `sure` on; below 1, evidence is not exact. `sites` are those to begin with, where some are known.
    Rounds end when no margin moved by more than `still`. `contenders` are those of `Effort` unless given.
    """
    sizes, prior = known.sizes, known.prior
    contenders = affordable(data).contenders if contenders is None else contenders
    weight = np.log(sizes.sum() + (0.0 if known.by_degrees else np.exp(prior.lonely)))
    without = None if who is None else _Without.of(known, who)
    nowhere, centres = np.zeros((len(data), len(sizes))), known.centres if without is None else without.beside(known)
    sites = prior.start(data) if sites is None else sites
    for turn in range(rounds):
        users = expand(data, sites)
        terms = users.at(prior.within)
        alone = (
            np.full(len(users), -np.inf) if known.by_degrees else users.evidences(prior.m0, prior.alone) + prior.lonely
        )
        fits = _fits(terms, nowhere, known, alone, contenders, sure)
        if without is not None:
            fits[without.user, without.group] = without.fits(terms, sizes, prior)
        share = np.ones(fits.shape) if known.by_degrees else _chances(fits, alone, sure)
        memberships = share if without is None else without.memberships(share)
        evidence = float((_log_total(np.column_stack([fits, alone])) - weight).sum())
        found = solved(users, sites, memberships, prior, evidence, terms=terms, centres=centres)
        if turn == rounds - 1 or (still and found.moved(data).max() <= still):
            break
        sites = found.refined(data)
    return replace(found, share=share)


class _Without(NamedTuple):
    """Groups as they would be without somebody who is in them: pairs of a user and a group."""

    user: IntArray  # (n,) among those who are placed
    group: IntArray  # (n,)
    part: FloatArray  # (n,) with how much of their old answers they are in it
    left: Centres  # (n,) what the others say

    @classmethod
    def of(cls, known: Mixture, who: IntArray) -> _Without:
        """Pairs of those who stand somewhere in `known`, each with a group they are in."""
        there = np.flatnonzero(who >= 0)
        at, group = np.nonzero(known.share[who[there]] > PLACING.share)
        part = known.share[who[there[at]], group]
        own, sums = known.terms_of(who[there]), known.centres.sums
        A = sums.A[group] - part[:, None, None].astype(sums.A.dtype) * own.A[at]
        left = Terms(A, sums.a[group] - part[:, None] * own.a[at], np.zeros(len(at)))
        return cls(there[at], group, part, Centres.of(left, known.prior))

    def beside(self, known: Mixture) -> Centres:
        """The known centres, then one for each pair."""
        both, left = known.centres, self.left
        sums = Terms.joined([both.sums, left.sums])
        return Centres(sums, np.concatenate([both.mean, left.mean]), np.concatenate([both.doubt, left.doubt]))

    def fits(self, own: Terms, sizes: FloatArray, prior: Prior) -> FloatArray:
        """As `_fits`, of the pairs."""
        mine = own[self.user]
        joined = replace(self.left.sums + mine, level=mine.level)
        gain = set_evidence(joined, prior.m0, prior.between) - set_evidence(self.left.sums, prior.m0, prior.between)
        others = sizes[self.group] - self.part
        return gain + np.log(others, out=np.full(len(others), -np.inf), where=others > PLACING.others)

    def memberships(self, share: FloatArray) -> FloatArray:
        """Memberships with a column for each pair beside those of the groups, whose place it takes."""
        n, K = share.shape
        wide = np.zeros((n, K + len(self.user)))
        wide[:, :K] = share
        wide[self.user, self.group] = 0.0
        wide[self.user, K + np.arange(len(self.user))] = share[self.user, self.group]
        return wide


def _chances(fits: FloatArray, alone: FloatArray, sure: float) -> FloatArray:
    """Probability of each group from log weights of the groups and of standing alone; 1 where above `sure`."""
    log = np.column_stack([fits, alone])
    chance = np.exp(log - log.max(axis=1, keepdims=True))
    share = (chance / chance.sum(axis=1, keepdims=True))[:, :-1]
    share[share < LIMITS.unlikely] = 0.0
    found = share.max(axis=1, initial=0.0) > sure
    share[found] = share[found] > sure
    return share


def _fits(
    own: Terms, share: FloatArray, groups: Mixture, alone: FloatArray, contenders: int, sure: float
) -> FloatArray:
    """log of (others in the group) × (evidence with the user / evidence without), for each user and group.

    Exact where a group may matter, for the likeliest few; −∞ where bounds show that it is out of the question. With
    places that are taken as found (`sure` below 1), a lower bound where that is enough to find one.
    """
    centres, sizes, prior = groups.centres, groups.sizes, groups.prior
    K, d = centres.mean.shape
    full, log = groups.evidences, np.full(share.shape, -np.inf)

    def weigh(who: IntArray, where: IntArray) -> None:
        part = share[who, where]
        gain = joining_gain(centres.mean, centres.doubt, own, who, where, part)
        if gain is None:
            with_, without = full[where], full[where]
            in_, out = part > PLACING.share, part < 1.0 - PLACING.share
            for chosen, times, target in ((in_, -part, without), (out, 1.0 - part, with_)):
                k, u = where[chosen], who[chosen]
                target[chosen] = joint_evidence(centres.sums, k, own, u, times[chosen], prior.m0, prior.between)
            gain = with_ - without
        log[who, where] = gain + own.level[who] + np.log(sizes[where] - part)

    inside = share > PLACING.share
    weigh(*np.nonzero(inside & (sizes - share > PLACING.others)))  # bounds hold for groups without the user
    crowded = np.log(sizes, out=np.full(K, -np.inf), where=sizes > PLACING.others)
    for piece in pieces(len(own), d * max(d, K)):
        low = _least(own[piece], centres) + crowded
        low[inside[piece]] = -np.inf
        look = low > -np.inf
        if contenders < K:
            likely = np.argpartition(np.where(inside[piece], -np.inf, -low), contenders, axis=1)[:, :contenders]
            chosen = np.zeros_like(look)
            np.put_along_axis(chosen, likely, True, axis=1)
            look &= chosen
        known = np.maximum(log[piece].max(axis=1, initial=-np.inf), low.max(axis=1, initial=-np.inf))
        floor = np.maximum(known, alone[piece]) - LIMITS.clear
        who, where = np.nonzero(look)
        most = np.full(low.shape, -np.inf)
        most[who, where] = _most(own[piece], centres, who, where) + crowded[where]
        look = most > floor[:, None]
        if sure < 1.0 and K:
            settled = _settled(low, most, alone[piece], sure) & ~inside[piece].any(axis=1)
            best = low[settled].argmax(axis=1)
            log[piece][settled, best], look[settled] = low[settled, best], False
        who, where = np.nonzero(look)
        weigh(piece.start + who, where)
    return log


def _log_total(log: FloatArray) -> FloatArray:
    """log Σ exp over each row, as scipy's `logsumexp`, which takes long to begin."""
    most = log.max(axis=1)
    most[most == -np.inf] = 0.0
    with np.errstate(divide="ignore"):
        found: FloatArray = most + np.log(np.exp(log - most[:, None]).sum(axis=1))
    return found


def _settled(low: FloatArray, most: FloatArray, alone: FloatArray, sure: float) -> BoolArray:
    """Whose likeliest group is above `sure` by bounds alone, (U,)."""
    rivals, best, every = np.column_stack([most, alone]), low.argmax(axis=1), np.arange(len(low))
    rivals[every, best] = -np.inf
    found: BoolArray = low[every, best] - _log_total(rivals) > np.log(sure / (1.0 - sure))
    return found


# With the group's centre N(μ, S) and g = a − Aμ, evidence(group with user) − evidence(group), for users outside it, is
# plug-in + gᵀ(S⁻¹ + A)⁻¹g/2 − log|I + SA|/2, where plug-in = level + aᵀμ − μᵀAμ/2; the second term is between 0 and
# gᵀSg/2, the third between −tr(SA)/2 and 0.


def _least(own: Terms, centres: Centres) -> FloatArray:
    """What a user adds to a group's evidence at least, (U, K)."""
    (K, d), kind = centres.mean.shape, own.A.dtype
    outer = (centres.mean[:, :, None] * centres.mean[:, None, :] + centres.doubt).reshape(K, d * d).astype(kind)
    return own.level[:, None] + own.a @ centres.mean.T - 0.5 * (own.A.reshape(-1, d * d) @ outer.T)


def _most(own: Terms, centres: Centres, who: IntArray, where: IntArray) -> FloatArray:
    """What user who[i] adds to the evidence of group where[i] at most; `who` is in order."""
    mean, image = centres.mean[where], np.empty((len(who), own.a.shape[1]))
    users, counts = np.unique(who, return_counts=True)
    ends = np.cumsum(counts)
    for u, first, last in zip(users.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True):
        image[first:last] = mean[first:last].astype(own.A.dtype, copy=False) @ own.A[u]  # symmetric
    g = own.a[who] - image
    found = own.level[who] + np.einsum("ud,ud->u", own.a[who] - 0.5 * image, mean)
    for k in np.unique(where).tolist():
        mine = np.flatnonzero(where == k)
        found[mine] += 0.5 * np.einsum("ud,ud->u", g[mine] @ centres.doubt[k], g[mine])
    return found
