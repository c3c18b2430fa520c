"""Who belongs together: the search for the groups that users' answers speak for.

A Chinese-restaurant prior (concentration 1) on the partition; sets of users are merged while evidence grows
(`merging`), then everybody may move (`places`). Scales and the common mean follow by evidence. `settling` places those
who were not asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.execution.blas import in_one_order
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Quadratics, Signed, Terms, expand
from prefkin.inference.quadratics.evidence import set_evidence
from prefkin.inference.steps import heavy
from prefkin.models.prefkin.degrees import NEAR, averaged, partition_prior
from prefkin.models.prefkin.merging import PartitionPrior, as_share, crowd_prior, merge, partition_evidence, summed_sets
from prefkin.models.prefkin.mixture import AllTerms, Apart, Centres, Mixture, Prior, alone_in, solved
from prefkin.models.prefkin.modes import believable
from prefkin.models.prefkin.places import assign
from prefkin.models.prefkin.scales import Scaling, common_mean, with_common_mean
from prefkin.models.prefkin.settings import LIMITS, SCALES, TRUST, Effort, bounded, is_crowd, searching, very_thin

__all__ = ["find_groups"]

WITHIN = np.array([3e-4, 0.003, 0.01, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 1.4])  # τ² over the variance between users
CONCENTRATION_ONE = PartitionPrior(0.0, 0.0)  # a set of n weighs (n − 1)!


@in_one_order
def find_groups(data: Signed, degrees: Mixture, like: Mixture | None = None) -> Mixture:
    """The best mixture found from several starts; its evidence tells whether it beats that of `degrees`.

    With `like`, groups of the same users found in other units of features, their partition is the only start. A start
    that leads at once to a partition that another one ended with is not followed.
    """
    effort, spread, found = searching(data), degrees.prior.within, list[Mixture]()
    if like is None:
        starts = [(start, np.arange(len(data))) for start in effort.starts]
    else:
        starts = [(like.prior.within / like.prior.alone, _partition(like.share))]
    for start, partition in starts:
        prior = Prior(degrees.centres.mean[0], start * spread, (1.0 - start) * spread, degrees.prior.top)
        found += _from_start(data, degrees, prior, partition, effort, found)
    return max(found, key=lambda one: one.evidence)


def _from_start(
    data: Signed, degrees: Mixture, prior: Prior, partition: IntArray, effort: Effort, known: list[Mixture]
) -> list[Mixture]:
    """What one start leads to; nothing where that is `known` at once."""
    users, sites, spread = degrees.users, degrees.sites, degrees.prior.within
    ahead, terms = prior, users.at(prior.within)
    partition = merge(terms, prior, partition, effort.partners)
    if any(_same_partition(partition, _partition(one.share)) for one in known):
        return []
    judged = not heavy(data).any()  # sites of heavy answers follow slowly; until then evidence may claim anything
    turn, share = 0, as_share(partition)
    while True:
        begun = None
        if judged and turn > 0:
            begun = _Begun(partition, share, sites, ahead, _total_evidence(users, terms, partition, ahead))
        share, last = as_share(partition), turn == effort.rounds - 1
        if is_crowd(len(data)):
            ahead = ahead._replace(lonely=PartitionPrior.of(np.bincount(partition)).alone)
        for again in range(effort.passes):
            terms = users.at(ahead.within) if again else terms
            prior, ahead, terms = _scales(users, terms, share, ahead, spread, effort)
            every = AllTerms(users, prior.within, terms)
            share = assign(every, share, prior, 2 * effort.moves if last else effort.moves, effort.contenders)
        found = solved(users, sites, share, prior, terms=terms)
        if last or (turn > 0 and _as_before(share, partition)):
            if begun is not None and begun.beats_moved(found, data, effort.pace):
                found = begun.restored(data)
            return [replace(found, evidence=_believable_evidence(data, found))]
        stretch = _stretch(data, found) if turn == 0 and very_thin(data) else 1.0
        sites = found.refined(data, stretch, effort.pace)
        del users, terms, every, found  # room for the next ones
        users, ahead, spread = expand(data, sites), ahead.stretched(stretch), stretch**2 * spread
        terms, before = users.at(ahead.within), _partition(share)
        if begun is not None and begun.beats(data, users, terms, before, ahead, effort.pace):
            del users, terms
            sites, ahead, share = begun.restored(data).refined(data, step=effort.pace), begun.prior, begun.share
            before = begun.partition
            users = expand(data, sites)
            terms = users.at(ahead.within)
        partition = merge(terms, ahead, before, effort.partners)
        if turn == 0 and effort.fresh:
            fresh = merge(terms, ahead, np.arange(len(users)), effort.partners)
            partition = max(partition, fresh, key=lambda each: partition_evidence(terms, each, ahead))
        if not _same_partition(partition, before):
            there = solved(users, sites, as_share(partition), ahead, terms=terms)
            partition, kept = _kept(data, there, before, partition, effort.pace)
            del there
            if kept is not sites:
                sites = kept
                del users, terms
                users = expand(data, sites)
                terms = users.at(ahead.within)
        share = _of_the_likeliest(share) if _same_partition(partition, _partition(share)) else as_share(partition)
        turn += 1


class _Begun(NamedTuple):
    """Where people stood before they moved: what is gone back to if evidence fell by that.

    Moves are asked of sites that were matched to where people stood, which promise too much as merging does (`_kept`).
    So they are judged by sites matched to where people went, beside such sites of where they stood.
    """

    partition: IntArray
    share: FloatArray  # memberships, of which these sets are the likeliest
    sites: Sites
    prior: Prior
    evidence: float

    def beats_moved(self, found: Mixture, data: Signed, pace: float) -> bool:
        """`beats`, where sites are still those from before people moved."""
        partition = _partition(found.share)
        if _same_partition(partition, self.partition):
            return False
        users = expand(data, found.refined(data, step=pace))
        return self.beats(data, users, users.at(found.prior.within), partition, found.prior, pace)

    def beats(
        self, data: Signed, users: Quadratics, terms: Terms, partition: IntArray, prior: Prior, pace: float
    ) -> bool:
        """Does evidence clearly speak against this partition, to which everybody's sites are matched?"""
        if _same_partition(partition, self.partition):
            return False
        reached = _total_evidence(users, terms, partition, prior) + TRUST.clearly
        if reached > self.evidence:
            return False
        matched = expand(data, self.restored(data).refined(data, step=pace))
        return _total_evidence(matched, matched.at(self.prior.within), self.partition, self.prior) > reached

    def restored(self, data: Signed) -> Mixture:
        """Everybody where they stood."""
        return solved(expand(data, self.sites), self.sites, self.share, self.prior)


def _kept(data: Signed, there: Mixture, before: IntArray, merged: IntArray, pace: float) -> tuple[IntArray, Sites]:
    """Merged sets (`there`) less the unions that evidence does not speak for once sites are matched to them; all sites.

    Sites tell about beliefs like those that they were matched to. Far from there, answers of which somebody was sure
    seem not to count, so that people who differ seem to belong together. Sets that exchange people, before and after,
    are one part, judged as a whole since their evidence is; parts of as many sets as before, or more, are not judged.
    """
    n, m = int(before.max()) + 1, int(merged.max()) + 1
    links = csr_array((np.ones(len(before)), (before, n + merged)), shape=(n + m, n + m))
    n_parts, part_of_set = connected_components(links, directed=False)
    part = part_of_set[before]
    fewer = np.bincount(part_of_set[n:], minlength=n_parts) < np.bincount(part_of_set[:n], minlength=n_parts)
    who = np.flatnonzero(fewer[part])
    if not len(who):
        return merged, there.sites
    mine, rows, prior = data.some(who), data.rows_of(who), there.prior
    matched = there.some(data, who).refined(mine, step=pace)
    sets_prior = PartitionPrior.of(np.bincount(before)) if is_crowd(len(before)) else CONCENTRATION_ONE

    def evidence(terms: Terms, partition: IntArray, part_of: IntArray) -> FloatArray:
        sets, place = np.unique(partition[who], return_inverse=True)
        found = set_evidence(summed_sets(terms, place), prior.m0, prior.between) + sets_prior.weigh(np.bincount(place))
        return np.asarray(np.bincount(part_of[sets], found, minlength=n_parts), dtype=np.float64)

    after = evidence(expand(mine, matched).at(prior.within), merged, part_of_set[n:])
    grown = after > evidence(there.terms_of(who), before, part_of_set[:n])
    partition = np.unique(np.where((grown | ~fewer)[part], n + merged, before), return_inverse=True)[1]
    if not grown.any():
        return partition, there.sites
    sites, here = there.sites.copy(), np.repeat(grown[part[who]], np.diff(mine.starts))
    sites.put(rows[here], matched.of(here))
    return partition, sites


# -- scales ------------------------------------------------------------------------------------------------------------


def _scales(
    users: Quadratics, terms: Terms, share: FloatArray, prior: Prior, spread: float, effort: Effort
) -> tuple[Prior, Prior, Terms]:
    """τ², ρ², m_0 and σ² by evidence; τ² as a mean where little is known of it, so that it does not collapse to 0.

    `terms` are everybody's for the τ² to start from. The prior, the one a step further, and everybody's terms for it.
    """
    for step in range(effort.steps):
        terms = users.at(prior.within) if step else terms
        centres, apart = Centres.of(terms.summed(share), prior), Apart.of(users, share, prior)
        scaling = Scaling.of(terms, share, centres, apart, prior)
        prior = with_common_mean(centres, apart, prior)
        within, between = bounded(prior.within * scaling.within), bounded(prior.between * scaling.between)
        after = prior._replace(within=within, between=between)
        if step == effort.steps - 1 or scaling.change < SCALES.waiting:
            break
        prior = after
    if scaling.determined >= TRUST.determined:
        return prior, after, terms

    def evidence(within: float) -> float:
        single = alone_in(share) @ users.evidences(prior.m0, within + prior.between)
        return float(set_evidence(users.at(within).summed(share), prior.m0, prior.between).sum() + single)

    within = averaged(evidence, np.append(prior.within * NEAR, spread * WITHIN), effort.values)
    prior = prior._replace(within=within)
    return prior, prior, users.at(within)


def _stretch(data: Signed, found: Mixture) -> float:
    """How many times as strong preferences should be, by evidence once sites are matched to that: 1 or √2.

    Sites matched to weak preferences speak for weak ones: scales would grow only slowly. More than twice the variance
    that people were found to have before anybody was placed is not believed: groups were chosen to agree.
    """
    partition = _partition(found.share)

    def evidence(each: Mixture) -> float:
        assert each.terms is not None
        prior = with_common_mean(each.centres, Apart.of(each.users, each.share, each.prior), each.prior)
        return _total_evidence(each.users, each.terms, partition, prior)

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
    return bool(sure.all()) and _same_partition(_partition(share), partition)


# -- partitions --------------------------------------------------------------------------------------------------------


def _partition(share: FloatArray) -> IntArray:
    """The likeliest set of everybody; those who stand alone get one each."""
    where = np.argmax(np.column_stack([share, 1.0 - share.sum(axis=1)]), axis=1)
    lone = where == share.shape[1]
    where[lone] = share.shape[1] + np.arange(lone.sum())
    return np.unique(where, return_inverse=True)[1]


def _of_the_likeliest(share: FloatArray) -> FloatArray:
    """Memberships of sets that are somebody's likeliest, as if there were no others.

    >>> _of_the_likeliest(np.array([[0.375, 0.25], [0.75, 0.25]])).tolist()
    [[0.5], [1.0]]
    """
    likeliest = np.unique(np.argmax(np.column_stack([share, 1.0 - share.sum(axis=1)]), axis=1))
    kept = np.isin(np.arange(share.shape[1]), likeliest)
    return share[:, kept] / (1.0 - share[:, ~kept].sum(axis=1, keepdims=True))


def _same_partition(one: IntArray, other: IntArray) -> bool:
    """Do both put the same users together, whatever the sets are called?"""
    n_pairs = len(np.unique(np.column_stack([one, other]), axis=0))
    return n_pairs == one.max() + 1 == other.max() + 1


def _believable_evidence(data: Signed, found: Mixture) -> float:
    """Evidence with everybody in the likeliest of their sets, and sites that agree with that."""
    partition = _partition(found.share)
    share, users, terms = as_share(partition), found.users, found.terms
    assert terms is not None
    centres, alone = Centres.of(terms.summed(share), found.prior), Apart.of(users, share, found.prior)
    prior = found.prior._replace(m0=common_mean(centres, alone, found.prior)[0])
    there = solved(users, found.sites, share, prior, terms=terms)
    settled = believable(there, data)
    if settled is not there:
        users, terms = settled.users, settled.users.at(prior.within)
    return _total_evidence(users, terms, partition, found.prior)


def _total_evidence(users: Quadratics, terms: Terms, partition: IntArray, prior: Prior) -> float:
    """Evidence with m_0 integrated out, and the prior of the partition."""
    share = as_share(partition)
    centres, apart = Centres.of(terms.summed(share), prior), Apart.of(users, share, prior)
    m0, covariance = common_mean(centres, apart, prior)
    value = float(set_evidence(centres.sums, m0, prior.between).sum())
    value += float(apart.weight @ (apart.terms.level + apart.terms.explained(m0[None])[:, 0]))
    value -= 0.5 * float(m0 @ m0) / prior.top + 0.5 * len(m0) * float(np.log(prior.top))
    of_partition = crowd_prior if is_crowd(len(users)) else partition_prior
    return value + 0.5 * float(np.linalg.slogdet(covariance)[1]) + of_partition(np.bincount(partition))
