"""Who belongs together: the search for the groups that users' answers speak for.

A Chinese-restaurant prior (concentration 1) on the partition; sets of users are merged while evidence grows, then
everybody may move, with their own data taken out of a group before it is asked how well it fits. Scales and the common
mean follow by evidence. Among many users sets are merged as in `crowd`; `settling` places those who were not asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.execution.blas import in_one_order
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Quadratics, Signed, Terms, expand
from prefkin.inference.quadratics.evidence import joint_evidence, set_evidence
from prefkin.models.prefkin.crowd import Seating, crowd_prior, merge_crowd, summed_sets
from prefkin.models.prefkin.degrees import NEAR, NEAR_ENOUGH, averaged, bounded, partition_prior
from prefkin.models.prefkin.mixture import (
    Apart,
    Centres,
    Crowd,
    Mixture,
    Prior,
    alone_in,
    pieces,
    solved,
    summed,
)
from prefkin.models.prefkin.modes import believable
from prefkin.models.prefkin.scales import Scaling, common_mean
from prefkin.models.prefkin.settings import LIMITS, TRUST, Effort, affordable, searching

__all__ = ["NOBODY", "asked_anew", "find_groups", "merged_sets", "place"]

STARTS = (0.02, 0.2)  # τ² as a share of the variance between users
WITHIN = np.array([3e-4, 0.003, 0.01, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 1.4])  # likewise, where little is known of it
VERY_THIN = 0.75  # comparisons per user and feature below which groups start out far too weak
USUAL = (1.5, 5.0, np.inf)  # members of a group, as merging a crowd expects them: clear unions first
FEW = 1e-3  # others in a group from which it may be joined
NOBODY = 1e-2  # members below which a group is dropped
MEMBER = 1e-9  # share from which somebody's answers are taken out of a group


@in_one_order
def find_groups(data: Signed, degrees: Mixture, like: Mixture | None = None) -> Mixture:
    """The best mixture found from several starts; its evidence tells whether it beats that of `degrees`.

    With `like`, groups of the same users found in other units of features, their partition is the only start. A start
    that leads at once to a partition that another one ended with is not followed.
    """
    effort, spread, found = searching(data), degrees.prior.within, list[Mixture]()
    if like is None:
        starts = [(start, np.arange(len(data))) for start in STARTS[: effort.starts]]
    else:
        starts = [(like.prior.within / like.prior.alone, _partition(like.share))]
    for start, partition in starts:
        prior = Prior(degrees.centres.mean[0], start * spread, (1.0 - start) * spread, degrees.prior.top)
        terms = degrees.users.at(prior.within)
        merged = _merge(terms, prior, partition, effort.partners)
        if not any(_same_partition(merged, _partition(one.share)) for one in found):
            found.append(_from_start(data, degrees, prior, terms, merged, effort))
    return max(found, key=lambda one: one.evidence)


def _from_start(
    data: Signed, degrees: Mixture, prior: Prior, terms: Terms, partition: IntArray, effort: Effort
) -> Mixture:
    users, sites, spread = degrees.users, degrees.sites, degrees.prior.within
    thin, ahead = len(data.X) < VERY_THIN * len(data) * data.dim, prior
    turn = 0
    while True:
        share, last = _as_share(partition), turn == effort.rounds - 1
        if len(data) > LIMITS.most_users:
            ahead = ahead._replace(lonely=Seating.of(np.bincount(partition)).alone)
        for again in range(effort.passes):
            terms = users.at(ahead.within) if again else terms
            prior, ahead, terms = _scales(users, terms, share, ahead, spread, effort)
            crowd = Crowd(users, prior.within, terms)
            share = _assign(crowd, share, prior, 2 * effort.moves if last else effort.moves, effort.contenders)
        found = solved(users, sites, share, prior, terms=terms)
        if last or (turn > 0 and _as_before(share, partition)):
            return replace(found, evidence=_believable_evidence(data, found))
        stretch = _stretch(data, found) if turn == 0 and thin else 1.0
        sites = found.refined(data, stretch, effort.pace)
        del users, terms, crowd, found  # room for the next ones
        users, ahead, spread = expand(data, sites), ahead.stretched(stretch), stretch**2 * spread
        terms = users.at(ahead.within)
        partition = _merge(terms, ahead, _partition(share), effort.partners)
        if turn == 0 and effort.fresh:
            fresh = _merge(terms, ahead, np.arange(len(users)), effort.partners)
            partition = max(partition, fresh, key=lambda each: _partition_evidence(terms, each, ahead))
        turn += 1


# -- merging -----------------------------------------------------------------------------------------------------------


def _merge(users: Terms, prior: Prior, partition: IntArray, partners: int = 12) -> IntArray:
    """Merge the two sets whose union gains most evidence, again and again; the best partition on the way."""
    n = int(partition.max()) + 1
    if len(users) > LIMITS.most_users:
        return _merge_many(users, prior, partition, partners)
    sums = users.summed(np.eye(n)[partition])
    score = set_evidence(sums, prior.m0, prior.between)
    near = _partners(users, sums, prior, partition, partners)
    gain = np.full((n, n), -np.inf)
    one, other = np.nonzero(np.triu(near, 1))
    gain[one, other] = _union(sums, one, other, prior) - score[one] - score[other]
    alive, partition, total, best = np.ones(n, dtype=bool), partition.copy(), 0.0, (0.0, partition.copy())
    while alive.sum() > 1:
        i, j = (int(at) for at in np.unravel_index(int(np.argmax(gain)), gain.shape))
        if gain[i, j] == -np.inf:
            break
        total += float(gain[i, j])
        score[i] += score[j] + gain[i, j]
        sums.A[i] += sums.A[j]
        sums.a[i] += sums.a[j]
        sums.level[i] += sums.level[j]
        alive[j] = False
        partition[partition == j] = i
        gain[j, :] = gain[:, j] = -np.inf
        near[i] |= near[j]
        near[:, i] = near[i]
        rest = np.flatnonzero(alive & near[i] & (np.arange(n) != i))
        if rest.size:
            united = _union(sums, np.full(len(rest), i), rest, prior)
            gain[np.minimum(rest, i), np.maximum(rest, i)] = united - score[i] - score[rest]
        if total > best[0]:
            best = (total, partition.copy())
    return np.unique(best[1], return_inverse=True)[1]


def _merge_many(users: Terms, prior: Prior, partition: IntArray, partners: int) -> IntArray:
    """In a crowd: with the prior that its sets suggest, or from nobody together through several, clear unions first."""
    sizes, tried = np.bincount(partition), list[tuple[float, IntArray]]()
    if sizes.max() > 1:
        return merge_crowd(users, prior, partition, Seating.of(sizes), partners)
    for usual in USUAL:
        partition = merge_crowd(users, prior, partition, Seating.of_groups_of(usual, len(users)), partners)
        tried.append((_partition_evidence(users, partition, prior) + crowd_prior(np.bincount(partition)), partition))
    return max(tried, key=lambda each: each[0])[1]


def _partners(users: Terms, sums: Terms, prior: Prior, partition: IntArray, partners: int) -> BoolArray:
    """(n, n) which sets are worth trying to merge: those whose centres explain each other's answers best."""
    n = len(sums)
    if n <= 2 * partners:
        return np.ones((n, n), dtype=bool)
    middle = _middles(sums, prior)
    explained = np.zeros((n, n))
    np.add.at(explained, partition, users.explained(middle))  # of each set's answers, by each centre
    gained = explained - np.diag(explained)[:, None]
    mutual = gained + gained.T
    np.fill_diagonal(mutual, -np.inf)
    near = np.zeros((n, n), dtype=bool)
    np.put_along_axis(near, np.argsort(-mutual, axis=1, kind="stable")[:, :partners], True, axis=1)
    return near | near.T


def _middles(sums: Terms, prior: Prior) -> FloatArray:
    """The mean of each set's centre, (n, d), without its covariance."""
    kind, found = sums.A.dtype.type, np.empty(sums.a.shape)
    pull = (prior.between * sums.a + prior.m0).astype(kind)
    for piece in pieces(len(sums), len(prior.m0) ** 2):
        P = np.eye(len(prior.m0), dtype=kind) + kind(prior.between) * sums.A[piece]
        found[piece] = np.linalg.solve(P, pull[piece, :, None])[:, :, 0]
    return found


def _union(sums: Terms, one: IntArray, other: IntArray, prior: Prior) -> FloatArray:
    """Evidence of each of `one` united with each of `other`."""
    together = joint_evidence(sums, one, sums, other, np.ones(len(one)), prior.m0, prior.between)
    return together + sums.level[one] + sums.level[other]


# -- everybody may move ------------------------------------------------------------------------------------------------


def _assign(crowd: Crowd, share: FloatArray, prior: Prior, rounds: int, contenders: int = 12) -> FloatArray:
    """Soft memberships: a user's own data are taken out of a group before it is asked how well it fits.

    Those who are sure of their place in one round are not asked again.
    """
    alone = crowd.users.evidences(prior.m0, prior.alone) + prior.lonely
    asked, many = np.arange(len(share)), len(share) > LIMITS.most_users
    for turn in range(rounds):
        share = share[:, share.sum(axis=0) > NOBODY]
        if share.shape[1] == 0:
            break
        centres, sizes = Centres.of(crowd.summed(share), prior), share.sum(axis=0)
        old = share[asked]
        new = asked_anew(crowd, share, asked, alone[asked], centres, sizes, prior, contenders)
        moved = np.abs(new - old)
        change = float(moved.sum()) / len(share) if many else float(moved.max(initial=0.0))
        share[asked] = new if turn < 4 else (new + old) / 2.0  # damped, should two partitions alternate
        unsure = np.maximum(new.max(axis=1), alone_in(new)) < (LIMITS.sure if many else 1.0 - LIMITS.unlikely)
        asked = asked[unsure]
        if change < 1e-3 or not len(asked):
            break
    return share[:, share.sum(axis=0) > NOBODY]


def asked_anew(
    crowd: Crowd,
    share: FloatArray,
    asked: IntArray,
    alone: FloatArray,
    centres: Centres,
    sizes: FloatArray,
    prior: Prior,
    contenders: int,
    sure: float = 1.0,
) -> FloatArray:
    """Memberships of those who are asked, (asked, K); `alone` is their log weight of standing alone.

    From a probability of `sure` on, a place is taken as found: nothing is left for others.
    """
    new = np.empty((len(asked), len(sizes)))
    for piece, own in crowd:
        some = slice(*np.searchsorted(asked, (piece.start, piece.stop)))
        mine = own if some.stop - some.start == len(own) else own[asked[some] - piece.start]
        fits = _fits(mine, share[asked[some]], centres, sizes, prior, alone[some], contenders, sure)
        new[some] = _chances(fits, alone[some], sure)
    return new


def _chances(fits: FloatArray, alone: FloatArray, sure: float = 1.0) -> FloatArray:
    """Probability of each group from log weights of the groups and of standing alone; 1 where above `sure`."""
    log = np.column_stack([fits, alone])
    chance = np.exp(log - log.max(axis=1, keepdims=True))
    share = (chance / chance.sum(axis=1, keepdims=True))[:, :-1]
    share[share < LIMITS.unlikely] = 0.0
    found = share.max(axis=1, initial=0.0) > sure
    share[found] = share[found] > sure
    return share


def _fits(
    own: Terms,
    share: FloatArray,
    centres: Centres,
    sizes: FloatArray,
    prior: Prior,
    alone: FloatArray,
    contenders: int,
    sure: float = 1.0,
) -> FloatArray:
    """log of (others in the group) × (evidence with the user / evidence without), for each user and group.

    Exact where a group may matter, for the likeliest few; −∞ where bounds show that it is out of the question. With
    places that are taken as found (`sure` below 1), a lower bound where that is enough to find one.
    """
    K, d = centres.mean.shape
    bare = replace(centres.sums, level=np.zeros(len(centres.sums)))
    full, log = set_evidence(bare, prior.m0, prior.between), np.full(share.shape, -np.inf)

    def weigh(who: IntArray, where: IntArray) -> None:
        part = share[who, where]
        with_, without = full[where], full[where]
        for chosen, times, target in ((part > MEMBER, -part, without), (part < 1.0 - MEMBER, 1.0 - part, with_)):
            k, u = where[chosen], who[chosen]
            target[chosen] = joint_evidence(centres.sums, k, own, u, times[chosen], prior.m0, prior.between)
        log[who, where] = with_ - without + own.level[who] + np.log(sizes[where] - part)

    inside = share > MEMBER
    weigh(*np.nonzero(inside & (sizes - share > FEW)))  # bounds hold for groups without the user
    crowded = np.log(sizes, out=np.full(K, -np.inf), where=sizes > FEW)
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


# -- scales ------------------------------------------------------------------------------------------------------------


class _Scales(NamedTuple):
    prior: Prior
    after: Prior  # one step further
    terms: Terms  # everybody's, for τ²


def _scales(users: Quadratics, terms: Terms, share: FloatArray, prior: Prior, spread: float, effort: Effort) -> _Scales:
    """τ², ρ², m_0 and σ² by evidence; τ² as a mean where little is known of it, so that it does not collapse to 0.

    `terms` are everybody's for the τ² to start from.
    """
    for step in range(effort.steps):
        terms = users.at(prior.within) if step else terms
        centres, apart = Centres.of(summed(terms, share), prior), Apart.of(users, share, prior)
        scaling = Scaling.of(terms, share, centres, apart, prior)
        m0, covariance = common_mean(centres, apart, prior)
        top = bounded(float(m0 @ m0 + np.trace(covariance)) / len(m0))
        prior = prior._replace(m0=m0, top=top)
        within, between = bounded(prior.within * scaling.within), bounded(prior.between * scaling.between)
        after = prior._replace(within=within, between=between)
        if step == effort.steps - 1 or scaling.change < NEAR_ENOUGH:
            break
        prior = after
    if scaling.determined >= TRUST.determined:
        return _Scales(prior, after, terms)

    def evidence(within: float) -> float:
        single = alone_in(share) @ users.evidences(prior.m0, within + prior.between)
        return float(set_evidence(summed(users.at(within), share), prior.m0, prior.between).sum() + single)

    within = averaged(evidence, np.append(prior.within * NEAR, spread * WITHIN), effort.values)
    prior = prior._replace(within=within)
    return _Scales(prior, prior, users.at(within))


def _stretch(data: Signed, found: Mixture) -> float:
    """How many times as strong preferences should be, by evidence once sites are matched to that: 1 or √2.

    Sites matched to weak preferences speak for weak ones: scales would grow only slowly. More than twice the variance
    that people were found to have before anybody was placed is not believed: groups were chosen to agree.
    """
    partition = _partition(found.share)

    def evidence(each: Mixture) -> float:
        m0, covariance = common_mean(each.centres, Apart.of(each.users, each.share, each.prior), each.prior)
        top = bounded(float(m0 @ m0 + np.trace(covariance)) / len(m0))
        assert each.terms is not None
        return _total_evidence(each.users, each.terms, partition, each.prior._replace(m0=m0, top=top))

    plain = _matched(data, found, 1.0)
    twice = _matched(data, plain, float(np.sqrt(2.0)))
    return float(np.sqrt(2.0)) if evidence(twice) > evidence(plain) else 1.0


def _matched(data: Signed, found: Mixture, stretch: float) -> Mixture:
    """These groups with preferences so many times as strong, and sites that agree with that."""
    prior = found.prior.stretched(stretch)
    for factor in (stretch, 1.0):
        sites = found.refined(data, factor)
        found = solved(expand(data, sites), sites, found.share, prior)
    return found


def _as_before(share: FloatArray, partition: IntArray) -> bool:
    """Everybody surely is where they were."""
    sure = np.maximum(alone_in(share), share.max(axis=1, initial=0.0)) > LIMITS.sure
    return bool(sure.all()) and np.array_equal(_partition(share), partition)


# -- partitions --------------------------------------------------------------------------------------------------------


def _partition(share: FloatArray) -> IntArray:
    """The likeliest set of everybody; those who stand alone get one each."""
    where = np.argmax(np.column_stack([share, 1.0 - share.sum(axis=1)]), axis=1)
    lone = where == share.shape[1]
    where[lone] = share.shape[1] + np.arange(lone.sum())
    return np.unique(where, return_inverse=True)[1]


def _same_partition(one: IntArray, other: IntArray) -> bool:
    """Do both put the same users together, whatever the sets are called?"""
    n_pairs = len(np.unique(np.column_stack([one, other]), axis=0))
    return n_pairs == one.max() + 1 == other.max() + 1


def _as_share(partition: IntArray) -> FloatArray:
    """A group for each set of two and more; the largest, where there is no room for a column each."""
    sizes = np.bincount(partition)
    kept = np.argsort(-sizes, kind="stable")[: max(LIMITS.most_numbers // len(partition), 1)]
    grouped = (sizes > 1) & np.isin(np.arange(len(sizes)), kept)
    column, together = np.cumsum(grouped) - 1, np.flatnonzero(grouped[partition])
    share = np.zeros((len(partition), int(grouped.sum())))
    share[together, column[partition[together]]] = 1.0
    return share


def _partition_evidence(users: Terms, partition: IntArray, prior: Prior) -> float:
    return float(set_evidence(summed_sets(users, partition), prior.m0, prior.between).sum())


def _believable_evidence(data: Signed, found: Mixture) -> float:
    """Evidence with everybody in the likeliest of their sets, and sites that agree with that."""
    partition = _partition(found.share)
    share, users, terms = _as_share(partition), found.users, found.terms
    assert terms is not None
    centres, alone = Centres.of(summed(terms, share), found.prior), Apart.of(users, share, found.prior)
    prior = found.prior._replace(m0=common_mean(centres, alone, found.prior)[0])
    there = solved(users, found.sites, share, prior, terms=terms)
    settled = believable(there, data)
    if settled is not there:
        users, terms = settled.users, settled.users.at(prior.within)
    return _total_evidence(users, terms, partition, found.prior)


def _total_evidence(users: Quadratics, terms: Terms, partition: IntArray, prior: Prior) -> float:
    """Evidence with m_0 integrated out, and the prior of the partition."""
    share = _as_share(partition)
    centres, apart = Centres.of(summed(terms, share), prior), Apart.of(users, share, prior)
    m0, covariance = common_mean(centres, apart, prior)
    value = float(set_evidence(centres.sums, m0, prior.between).sum())
    value += float(apart.weight @ (apart.terms.level + apart.terms.explained(m0[None])[:, 0]))
    value -= 0.5 * float(m0 @ m0) / prior.top + 0.5 * len(m0) * float(np.log(prior.top))
    of_partition = partition_prior if len(users) <= LIMITS.most_users else crowd_prior
    return value + 0.5 * float(np.linalg.slogdet(covariance)[1]) + of_partition(np.bincount(partition))


# -- everybody else ----------------------------------------------------------------------------------------------------


@in_one_order
def place(
    known: Mixture,
    data: Signed,
    rounds: int = 8,
    contenders: int | None = None,
    who: IntArray | None = None,
    sure: float = 1.0,
    sites: Sites | None = None,
) -> Mixture:
    """New users among known groups: those groups, and everybody in them, stay as they are.

    `who` says where in `known` each one stands whose answers are already in the groups (−1: nowhere): these answers are
    taken out first. Evidence is that of everybody's answers, each placed for themselves. Places are taken as found from
    a probability of `sure` on; below 1, evidence is not exact. `sites` are those to begin with, where some are known.
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
        fits = _fits(terms, nowhere, known.centres, sizes, prior, alone, contenders, sure)
        if without is not None:
            fits[without.user, without.group] = without.fits(terms, sizes, prior)
        share = np.ones(fits.shape) if known.by_degrees else _chances(fits, alone, sure)
        seats = share if without is None else without.seats(share)
        evidence = float((_log_total(np.column_stack([fits, alone])) - weight).sum())
        found = solved(users, sites, seats, prior, evidence, terms=terms, centres=centres)
        if turn < rounds - 1:
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
        """Of those who stand somewhere in `known`."""
        there = np.flatnonzero(who >= 0)
        at, group = np.nonzero(known.share[who[there]] > MEMBER)
        part = known.share[who[there[at]], group]
        own, sums = known.terms_of(who[there]), known.centres.sums
        A = sums.A[group] - part[:, None, None].astype(sums.A.dtype) * own.A[at]
        left = Terms(A, sums.a[group] - part[:, None] * own.a[at], np.zeros(len(at)))
        return cls(there[at], group, part, Centres.of(left, known.prior))

    def beside(self, known: Mixture) -> Centres:
        """The known centres, then one for each pair."""
        both, left = known.centres, self.left
        sums = Terms(*(np.concatenate(p) for p in zip(_arrays(both.sums), _arrays(left.sums), strict=True)))
        return Centres(sums, np.concatenate([both.mean, left.mean]), np.concatenate([both.doubt, left.doubt]))

    def fits(self, own: Terms, sizes: FloatArray, prior: Prior) -> FloatArray:
        """As `_fits`, of the pairs."""
        mine = own[self.user]
        joined = replace(self.left.sums + mine, level=mine.level)
        gain = set_evidence(joined, prior.m0, prior.between) - set_evidence(self.left.sums, prior.m0, prior.between)
        others = sizes[self.group] - self.part
        return gain + np.log(others, out=np.full(len(others), -np.inf), where=others > FEW)

    def seats(self, share: FloatArray) -> FloatArray:
        """Memberships with a column for each pair beside those of the groups, whose place it takes."""
        n, K = share.shape
        wide = np.zeros((n, K + len(self.user)))
        wide[:, :K] = share
        wide[self.user, self.group] = 0.0
        wide[self.user, K + np.arange(len(self.user))] = share[self.user, self.group]
        return wide


def _arrays(terms: Terms) -> tuple[FloatArray, FloatArray, FloatArray]:
    return terms.A, terms.a, terms.level


def merged_sets(users: Terms, prior: Prior) -> FloatArray:
    """Memberships, (U, K), in the sets of two and more that evidence unites these users to."""
    return _as_share(_merge(users, prior, np.arange(len(users))))
