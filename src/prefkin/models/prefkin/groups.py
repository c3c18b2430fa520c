"""Who sits with whom: the search for the blocks of users that their answers speak for.

A Chinese-restaurant prior (concentration 1) on the partition; sets of users are merged while evidence grows, then
everybody may move, with their own data taken out of a block before it is asked how well it fits. Scales and the common
mean follow by evidence. The prior is learnt from at most `MOST_SEATED` users; `settle` seats everybody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.linalg import solve

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.execution.blas import in_one_order
from prefkin.inference.quadratics import Quadratics, Signed, Sites, expand
from prefkin.models.prefkin.degrees import FEW, LARGE, LEAST, NEAR, climb, partition_prior
from prefkin.models.prefkin.mixture import (
    UNLIKELY,
    Blocks,
    Centres,
    Prior,
    Sums,
    block_sums,
    inverse,
    joint_evidence,
    lonely,
    pieces,
    seated,
    set_evidence,
    solved,
    user_sums,
)

__all__ = ["MOST_SEATED", "find_blocks", "place", "settle"]

WITHIN = np.array([3e-4, 0.003, 0.01, 0.02, 0.03, 0.045, 0.06, 0.09, 0.12, 0.18, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4])
STARTS = (0.02, 0.2)  # τ² as a share of the variance between users
ROUNDS = 4
VERY_THIN = 0.75  # comparisons per user and feature below which groups start out far too weak
SURE = 0.999
CONTENDERS = 3  # blocks of which an exact look is taken with that many features
PARTNERS = 12  # sets with which a set may merge, likeliest first, when there are more than twice as many
MOST_SEATED = 200  # users from whom the prior is learnt
CLEAR = 14.0  # log odds beyond which a block needs no exact look


# -- blocks ------------------------------------------------------------------------------------------------------------


@in_one_order
def find_blocks(data: Signed, cloud: Blocks, like: Blocks | None = None) -> Blocks:
    """The best mixture found from several starts; its evidence tells whether it beats the cloud.

    With `like`, blocks of the same users found in other units of features, their seats are the only start. A start that
    leads at once to seats that another one ended with is not followed.
    """
    if like is None:
        each = np.arange(len(data))
        starts = [(start, each) for start in (STARTS if data.dim < LARGE else STARTS[:1])]
    else:
        starts = [(like.prior.within / like.prior.alone, _seats(like.share))]
    spread, found = cloud.prior.within, list[Blocks]()
    for start, seats in starts:
        prior = Prior(cloud.centres.mean[0], start * spread, (1.0 - start) * spread, cloud.prior.top)
        merged = _merge(cloud.users, prior, seats)
        if not any(_same_partition(merged, _seats(blocks.share)) for blocks in found):
            found.append(_from_start(data, cloud, prior, merged))
    cloud.users.held.clear()
    return max(found, key=lambda blocks: blocks.evidence)


def _from_start(data: Signed, cloud: Blocks, prior: Prior, seats: IntArray) -> Blocks:
    users, sites, spread = cloud.users, cloud.sites, cloud.prior.within
    thin = len(data.X) < VERY_THIN * len(data) * data.dim
    rounds, passes, moves = (ROUNDS, (True, False), 6) if data.dim < LARGE else (ROUNDS - 1, (True,), 3)
    for turn in range(rounds):
        share, last = _as_share(seats), turn == rounds - 1
        for coarse in passes:
            prior = _scales(users, share, prior, spread if coarse else None)
            users.hold(prior.within)
            prior = _with_common_mean(users, share, prior)
            share = _assign(users, share, prior, 2 * moves if last else moves)
        blocks = solved(users, sites, share, prior)
        if last or (turn > 0 and data.dim >= LARGE and _as_before(share, seats)):
            break
        stretch = 1.0
        if turn == 0 and (thin or data.dim >= LARGE):
            stretch = _stretch(*((data, blocks) if thin else _few_blocks(data, blocks)))
        sites = blocks.refined(data, stretch)
        users, prior, spread = expand(data, sites), prior.stretched(stretch), stretch**2 * spread
        seats = _merge(users, prior, _seats(share))
        if turn == 0 and data.dim < LARGE:
            fresh = _merge(users, prior, np.arange(len(users)))
            seats = max((seats, fresh), key=lambda s: _partition_evidence(users, s, prior))
    evidence = _total_evidence(users, _seats(share), prior)
    users.held.clear()  # without it, sums are rounded as when a saved model is read
    return solved(users, sites, share, prior, evidence)


def _merge(users: Quadratics, prior: Prior, seats: IntArray) -> IntArray:
    """Merge the two sets whose union gains most evidence, again and again; the best partition on the way."""
    m0, between = prior.m0, prior.between
    n = int(seats.max()) + 1
    users.hold(prior.within)
    sums = block_sums(users, prior.within, np.eye(n)[seats])
    score = set_evidence(sums, m0, between)
    near = _partners(users, sums, prior, seats)
    gain = np.full((n, n), -np.inf)
    for row in range(n - 1):
        rest = row + 1 + np.flatnonzero(near[row, row + 1 :])
        gain[row, rest] = _union(sums, row, rest, prior) - score[row] - score[rest]
    alive, seats, total, best = np.ones(n, dtype=bool), seats.copy(), 0.0, (0.0, seats.copy())
    while alive.sum() > 1:
        i, j = (int(at) for at in np.unravel_index(int(np.argmax(gain)), gain.shape))
        if gain[i, j] == -np.inf:
            break
        total += float(gain[i, j])
        sums.A[i] += sums.A[j]
        sums.a[i] += sums.a[j]
        sums.level[i] += sums.level[j]
        score[i] = set_evidence(sums[i], m0, between)
        alive[j] = False
        seats[seats == j] = i
        gain[j, :] = gain[:, j] = -np.inf
        near[i] |= near[j]
        near[:, i] = near[i]
        rest = np.flatnonzero(alive & near[i] & (np.arange(n) != i))
        if rest.size:
            gain[np.minimum(rest, i), np.maximum(rest, i)] = _union(sums, i, rest, prior) - score[i] - score[rest]
        if total > best[0]:
            best = (total, seats.copy())
    return np.unique(best[1], return_inverse=True)[1]


def _partners(users: Quadratics, sums: Sums, prior: Prior, seats: IntArray) -> BoolArray:
    """(n, n) which sets are worth trying to merge: those whose centres explain each other's answers best."""
    n = len(sums)
    if n <= 2 * PARTNERS:
        return np.ones((n, n), dtype=bool)
    middle = np.array([_centre(sums[k], prior) for k in range(n)])
    explained = np.zeros((n, n))
    np.add.at(explained, seats, users.explained(middle, prior.within))  # of each set's answers, by each centre
    gained = explained - np.diag(explained)[:, None]
    mutual = gained + gained.T
    np.fill_diagonal(mutual, -np.inf)
    near = np.zeros((n, n), dtype=bool)
    np.put_along_axis(near, np.argsort(-mutual, axis=1, kind="stable")[:, :PARTNERS], True, axis=1)
    return near | near.T


def _centre(sums: Sums, prior: Prior) -> FloatArray:
    P = np.eye(len(prior.m0), dtype=sums.A.dtype) + sums.A.dtype.type(prior.between) * sums.A
    pull = (prior.between * sums.a + prior.m0).astype(P.dtype)
    return np.asarray(solve(P, pull, assume_a="pos", overwrite_a=True, check_finite=False), dtype=np.float64)


def _union(sums: Sums, one: int, others: IntArray, prior: Prior) -> FloatArray:
    """Evidence of `one` united with each of `others`."""
    times, which = np.ones(len(others)), np.full(len(others), one)
    together = joint_evidence(sums, others, sums, which, times, prior.m0, prior.between)
    return together + sums.level[others] + sums.level[one]


# -- everybody may move ------------------------------------------------------------------------------------------------


def _assign(users: Quadratics, share: FloatArray, prior: Prior, rounds: int) -> FloatArray:
    """Soft seats: a user's own data are taken out of a block before it is asked how well it fits.

    With very many features, those who are sure of their seat in the first round are not asked again.
    """
    alone = users.evidences(prior.m0, prior.alone)
    crowds = _Crowds(users, prior.within)
    asked = np.ones(len(users), dtype=bool)
    for turn in range(rounds):
        share = share[:, share.sum(axis=0) > 1e-2]
        if share.shape[1] == 0:
            break
        centres = Centres.of(block_sums(users, prior.within, share), prior)
        fits, new = crowds.fits(share, centres, share.sum(axis=0) - share, prior, alone, asked), share.copy()
        new[asked] = _chances(fits, alone[asked])
        change = float(np.abs(new - share).max())
        share = new if turn < 4 else (new + share) / 2.0  # damped, should two seatings alternate
        if users.dim >= LARGE:
            asked = np.maximum(new.max(axis=1), lonely(new)) < 1.0 - UNLIKELY
        if change < 1e-3 or not asked.any():
            break
    return share[:, share.sum(axis=0) > 1e-2]


class _Crowds:
    """Users' own terms in a centre, as many at a time as fit in memory."""

    def __init__(self, users: Quadratics, within: float) -> None:
        self.users, self.within = users, within
        self.everybody = user_sums(users, within) if users.may_hold else None

    def own(self) -> Iterator[tuple[slice, Sums]]:
        """Positions and terms."""
        for piece in pieces(len(self.users), self.users.dim**2):
            every = self.everybody
            yield piece, user_sums(self.users.between(piece), self.within) if every is None else every[piece]

    def fits(
        self,
        share: FloatArray,
        centres: Centres,
        others: FloatArray,
        prior: Prior,
        alone: FloatArray,
        asked: BoolArray,
    ) -> FloatArray:
        """`_fits` of those who are asked."""
        found = []
        for piece, own in self.own():
            some = np.flatnonzero(asked[piece])
            mine = own if len(some) == len(own) else own[some]
            found.append(_fits(mine, share[piece][some], centres, others[piece][some], prior, alone[piece][some]))
        return np.concatenate(found)


def _chances(fits: FloatArray, alone: FloatArray) -> FloatArray:
    """Probability of each block from log weights of the blocks and of standing alone."""
    log = np.column_stack([fits, alone])
    chance = np.exp(log - log.max(axis=1, keepdims=True))
    share = (chance / chance.sum(axis=1, keepdims=True))[:, :-1]
    share[share < UNLIKELY] = 0.0
    return share


def _fits(
    own: Sums, share: FloatArray, centres: Centres, others: FloatArray, prior: Prior, alone: FloatArray
) -> FloatArray:
    """log of (others in the block) × (evidence with the user / evidence without), for each user and block.

    Exact where a block may matter; −∞ where bounds show that it is out of the question.
    """
    crowd = np.where(others > 1e-3, np.log(np.maximum(others, 1e-12)), -np.inf)
    low, high = (bound + crowd for bound in _bounds(own, centres))
    inside = share > 1e-9
    low[inside], high[inside] = -np.inf, np.inf  # bounds hold for blocks without the user
    floor = np.maximum(low.max(axis=1, initial=-np.inf), alone) - CLEAR
    look = (high > floor[:, None]) & (others > 1e-3)
    if own.a.shape[1] >= LARGE and look.shape[1] > CONTENDERS:
        likely = np.argsort(-np.where(inside, np.inf, low), axis=1, kind="stable")[:, :CONTENDERS]
        chosen = np.zeros_like(look)
        np.put_along_axis(chosen, likely, True, axis=1)
        look &= chosen | inside
    who, where = np.nonzero(look)
    bare = replace(centres.sums, level=np.zeros(len(centres.sums)))
    full = set_evidence(bare, prior.m0, prior.between)
    part = share[who, where]
    with_, without = full[where], full[where]
    for chosen, times, target in ((part > 1e-9, -part, without), (part < 1.0 - 1e-9, 1.0 - part, with_)):
        k, u = where[chosen], who[chosen]
        target[chosen] = joint_evidence(centres.sums, k, own, u, times[chosen], prior.m0, prior.between)
    log = np.full(share.shape, -np.inf)
    log[who, where] = with_ - without + own.level[who] + crowd[who, where]
    return log


def _bounds(own: Sums, centres: Centres) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds of evidence(block with user) − evidence(block), for users outside the block.

    With the block's centre N(μ, S) and g = a − Aμ it is plug-in + gᵀ(S⁻¹ + A)⁻¹g/2 − log|I + SA|/2, where
    plug-in = level + aᵀμ − μᵀAμ/2; the second term is between 0 and gᵀSg/2, the third between −tr(SA)/2 and 0.
    """
    n, (K, d) = len(own), centres.mean.shape
    mean = centres.mean.astype(own.A.dtype)
    image = (own.A.reshape(n * d, d) @ mean.T).reshape(n, d, K)  # A_u μ_k
    linear = own.a @ centres.mean.T
    quadratic = np.einsum("udk,kd->uk", image, mean, dtype=np.float64)
    plug = own.level[:, None] + linear - 0.5 * quadratic
    volume = (own.A.reshape(n, d * d) @ centres.doubt.reshape(K, d * d).T).astype(np.float64)
    gain = np.empty((n, K))
    for k in range(K):
        g = own.a - image[:, :, k]
        gain[:, k] = np.einsum("ud,ud->u", g @ centres.doubt[k], g)
    return plug - 0.5 * volume, plug + 0.5 * gain


# -- scales ------------------------------------------------------------------------------------------------------------


def _scales(users: Quadratics, share: FloatArray, prior: Prior, spread: float | None) -> Prior:
    """ρ² by evidence; τ² as an evidence-weighted mean over a grid, so that it does not collapse to 0."""
    alone, m0 = lonely(share), prior.m0

    def evidence(sums: Sums, within: float, between: float) -> float:
        single = float(alone @ users.evidences(m0, within + between)) if alone.any() else 0.0
        return float(set_evidence(sums, m0, between).sum()) + single

    within, between = prior.within, prior.between
    sums = block_sums(users, within, share)
    if users.dim >= LARGE:  # evidence is sharp with many features: climb instead of tabulating
        between = climb(lambda value: evidence(sums, within, value), between, 1.6)
        within = climb(
            lambda value: evidence(block_sums(users, value, share), value, between), within, 2.5 if spread else 1.5
        )
        return prior._replace(within=within, between=between)
    tried = np.maximum(between * NEAR, 1e-5)
    between = float(tried[int(np.argmax([evidence(sums, within, value) for value in tried]))])
    tried = np.maximum(spread * WITHIN if spread else within * np.append(NEAR, [0.35, 2.8]), 1e-5)
    values = np.array([evidence(block_sums(users, value, share), value, between) for value in tried])
    trust = np.exp(values - values.max()) * np.sqrt(tried)
    return prior._replace(within=float(trust @ tried / trust.sum()), between=between)


def _common_mean(users: Quadratics, share: FloatArray, prior: Prior) -> tuple[FloatArray, FloatArray, Sums]:
    """m_0 given who sits where, its covariance, and the blocks' sums."""
    d, sums = users.dim, block_sums(users, prior.within, share)
    kept = inverse(np.eye(d, dtype=sums.A.dtype) + sums.A.dtype.type(prior.between) * sums.A)  # (I + ρ²A)⁻¹
    precision = np.eye(d) / prior.top + (len(sums) * np.eye(d) - kept.sum(axis=0, dtype=np.float64)) / prior.between
    pull = np.einsum("kij,kj->i", kept, sums.a)
    alone = lonely(share)
    if alone.any():
        precision = precision + users.curvatures_of(prior.alone, alone[:, None])[0]
        pull = pull + alone @ users.pulls(prior.alone)
    covariance = inverse(precision[None])[0]
    return covariance @ pull, covariance, sums


def _with_common_mean(users: Quadratics, share: FloatArray, prior: Prior) -> Prior:
    m0, covariance, _ = _common_mean(users, share, prior)
    top = max(float(m0 @ m0 + np.trace(covariance)) / len(m0), LEAST)
    return prior._replace(m0=m0, top=top)


def _stretch(data: Signed, blocks: Blocks) -> float:
    """How many times as strong preferences should be, by evidence once sites are matched to that: 1 or √2.

    Sites matched to weak preferences speak for weak ones: scales would grow only slowly. More than twice the variance
    that people were found to have before anybody was seated is not believed: seats were chosen to agree.
    """
    seats = _seats(blocks.share)
    plain = _matched(data, blocks, 1.0)
    found = {
        stretch: _total_evidence(each.users, seats, _with_common_mean(each.users, each.share, each.prior))
        for stretch, each in ((1.0, plain), (np.sqrt(2.0), _matched(data, plain, np.sqrt(2.0))))
    }
    return max(found, key=lambda stretch: found[stretch])


def _matched(data: Signed, blocks: Blocks, stretch: float) -> Blocks:
    """These seats with preferences so many times as strong, and sites that agree with that."""
    prior = blocks.prior.stretched(stretch)
    for factor in (stretch, 1.0):
        sites = blocks.refined(data, factor)
        blocks = solved(expand(data, sites), sites, blocks.share, prior)
    return blocks


def _few_blocks(data: Signed, blocks: Blocks) -> tuple[Signed, Blocks]:
    """The largest blocks, with at least `FEW` users in them: with many comparisons they tell enough."""
    seat = np.argmax(blocks.weights, axis=1)
    sizes = np.bincount(seat, minlength=blocks.weights.shape[1])[:-1]
    largest = np.lexsort([(blocks.centres.mean**2).sum(axis=1), -sizes])  # ties by content, not by place
    taken = np.sort(largest[: 1 + int(np.searchsorted(np.cumsum(sizes[largest]), FEW))])
    users = np.flatnonzero(np.isin(seat, taken))
    if not len(users):
        return data, blocks
    rows = np.isin(data.owner, users)
    sites = Sites(*(each[rows] for each in blocks.sites))
    some = solved(blocks.users.some(users), sites, blocks.share[np.ix_(users, taken)], blocks.prior)
    return data.some(users), some


def _as_before(share: FloatArray, seats: IntArray) -> bool:
    """Everybody surely sits where they sat."""
    sure = np.maximum(lonely(share), share.max(axis=1, initial=0.0)) > SURE
    return bool(sure.all()) and np.array_equal(_seats(share), seats)


# -- partitions --------------------------------------------------------------------------------------------------------


def _seats(share: FloatArray) -> IntArray:
    """The likeliest seat of everybody; those who stand alone get one each."""
    seat = np.argmax(np.column_stack([share, 1.0 - share.sum(axis=1)]), axis=1)
    lone = seat == share.shape[1]
    seat[lone] = share.shape[1] + np.arange(lone.sum())
    return np.unique(seat, return_inverse=True)[1]


def _same_partition(one: IntArray, other: IntArray) -> bool:
    """Do both put the same users together, whatever the sets are called?"""
    n_pairs = len(np.unique(np.column_stack([one, other]), axis=0))
    return n_pairs == one.max() + 1 == other.max() + 1


def _as_share(seats: IntArray) -> FloatArray:
    share = np.eye(int(seats.max()) + 1)[seats]
    return share[:, share.sum(axis=0) > 1]


def _partition_evidence(users: Quadratics, seats: IntArray, prior: Prior) -> float:
    belongs = np.eye(int(seats.max()) + 1)[seats]
    return float(set_evidence(block_sums(users, prior.within, belongs), prior.m0, prior.between).sum())


def _total_evidence(users: Quadratics, seats: IntArray, prior: Prior) -> float:
    """Evidence with m_0 integrated out, and the prior of the partition."""
    share = _as_share(seats)
    m0, covariance, sums = _common_mean(users, share, prior)
    value = float(set_evidence(sums, m0, prior.between).sum())
    value += float(lonely(share) @ users.evidences(m0, prior.alone))
    value -= 0.5 * float(m0 @ m0) / prior.top + 0.5 * len(m0) * float(np.log(prior.top))
    return value + 0.5 * float(np.linalg.slogdet(covariance)[1]) + partition_prior(np.bincount(seats))


# -- everybody else ----------------------------------------------------------------------------------------------------


@in_one_order
def place(blocks: Blocks, data: Signed, rounds: int = 8) -> Blocks:
    """New users among known blocks: those blocks, and everybody in them, stay as they are."""
    sizes = np.broadcast_to(blocks.share.sum(axis=0), (len(data), blocks.share.shape[1]))
    nowhere, everybody, prior = np.zeros(sizes.shape), np.ones(len(data), dtype=bool), blocks.prior
    sites = Sites.start(data.weights)
    for turn in range(rounds):
        users = expand(data, sites)
        alone = np.full(len(users), -np.inf) if blocks.is_cloud else users.evidences(prior.m0, prior.alone)
        fits = _Crowds(users, prior.within).fits(nowhere, blocks.centres, sizes, prior, alone, everybody)
        share = _chances(fits, alone)
        found = seated(users, sites, share, prior, blocks.centres)
        if turn < rounds - 1:
            sites = found.refined(data)
    return found


@in_one_order
def settle(blocks: Blocks, known: IntArray, data: Signed) -> Blocks:
    """Everybody, under a prior learnt from some of them (`known`): placed one by one, then seated all together."""
    placed = place(blocks, data, rounds=3)
    share = placed.share
    share[known] = blocks.share  # they shaped the blocks: their own data were taken out when they chose
    sites = placed.refined(data)
    users = expand(data, sites)
    if not blocks.is_cloud:
        share = _assign(users, _with_pairs_of_loners(users, share, blocks.prior), blocks.prior, rounds=2)
    sites = solved(users, sites, share, blocks.prior).refined(data)
    return solved(expand(data, sites), sites, share, blocks.prior, blocks.evidence)


def _with_pairs_of_loners(users: Quadratics, share: FloatArray, prior: Prior) -> FloatArray:
    """Blocks that those who learnt the prior had too few members of to see: sought among those left alone."""
    alone = np.flatnonzero(lonely(share) > 0.5)
    alone = alone[np.linspace(0, len(alone) - 1, min(len(alone), MOST_SEATED)).astype(int)]
    if len(alone) < 2:
        return share
    new = _as_share(_merge(users.some(alone), prior, np.arange(len(alone))))
    wider = np.zeros((len(share), share.shape[1] + new.shape[1]))
    wider[:, : share.shape[1]] = share
    wider[alone[new.any(axis=1)]] = 0.0
    wider[alone, share.shape[1] :] = new
    return wider
