"""Sets of users are merged while evidence grows.

Among few, the two sets whose union gains most are merged, again and again. All pairs of some thousand people are too
many to weigh: in a crowd partners are those whose union would gain most if everybody's answers told about the same
directions, which takes one product of vectors a pair; the likeliest are weighed exactly. The clearer half of the unions
that both sides like best happens at once. A set's centre is better known than its members: partners are looked up anew
whenever half of the sets are gone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import digamma, gammaln

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.inference.quadratics import Terms
from prefkin.inference.quadratics.evidence import joint_evidence, set_evidence
from prefkin.models.prefkin.mixture import Prior, pieces
from prefkin.models.prefkin.settings import GROUPS, LIMITS, is_crowd

__all__ = ["PartitionPrior", "as_share", "crowd_prior", "merge", "partition_evidence", "summed_sets"]

ROWS = 256  # sets of about the same information whose partners are looked up together


def merge(users: Terms, prior: Prior, partition: IntArray, partners: int) -> IntArray:
    """Merge the two sets whose union gains most evidence, again and again; the best partition on the way."""
    n = int(partition.max()) + 1
    if is_crowd(len(users)):
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


def as_share(partition: IntArray) -> FloatArray:
    """A group for each set of two and more; the largest, where there is no room for a column each."""
    sizes = np.bincount(partition)
    kept = np.argsort(-sizes, kind="stable")[: max(LIMITS.most_numbers // len(partition), 1)]
    grouped = (sizes > 1) & np.isin(np.arange(len(sizes)), kept)
    column, together = np.cumsum(grouped) - 1, np.flatnonzero(grouped[partition])
    share = np.zeros((len(partition), int(grouped.sum())))
    share[together, column[partition[together]]] = 1.0
    return share


def partition_evidence(users: Terms, partition: IntArray, prior: Prior) -> float:
    """Of all its sets, without what the prior says about the partition."""
    return float(set_evidence(summed_sets(users, partition), prior.m0, prior.between).sum())


# -- in a crowd ------------------------------------------------------------------------------------------------------


class PartitionPrior(NamedTuple):
    """What a partition of a crowd is worth before any answer, as log weights.

    A person stands alone with an unknown probability; groups are a Chinese-restaurant process whose concentration is
    where the groups found are likeliest.
    """

    alone: float  # standing alone, where joining a group of n members weighs log n
    group: float  # a group beside log (members − 1)!

    @classmethod
    def of(cls, sizes: IntArray) -> PartitionPrior:
        """With both numbers estimated from the sizes of sets that were found."""
        members = int(sizes[sizes > 1].sum())
        concentration = _concentration(int((sizes > 1).sum()), members)
        odds = (int((sizes == 1).sum()) + 1.0) / (members + 1.0)
        return cls(float(np.log(odds * (members + concentration))), float(np.log(concentration)))

    @classmethod
    def of_groups_of(cls, size: float, people: int) -> PartitionPrior:
        """With the concentration at which so many people are in groups of about this size."""
        log = float(np.log(_concentration(int(people / size), people)))
        return cls(log, log)

    def weigh(self, sizes: IntArray) -> FloatArray:
        """Log weight of each set, from its size."""
        return np.where(sizes > 1, self.group + gammaln(sizes), self.alone)


def crowd_prior(sizes: IntArray) -> float:
    """log probability of a partition of a crowd: who is alone, and who belongs with whom."""
    groups, alone = sizes[sizes > 1], int((sizes == 1).sum())
    members, concentration = int(groups.sum()), _concentration(len(groups), int(groups.sum()))
    value = gammaln(alone + 1) + gammaln(members + 1) - gammaln(alone + members + 2) + gammaln(groups).sum()
    value += len(groups) * np.log(concentration) + gammaln(concentration) - gammaln(concentration + members)
    return float(value)


def _concentration(groups: int, members: int) -> float:
    """Where so many groups of so many people are likeliest, at least 1: α (ψ(α + members) − ψ(α)) = groups."""
    alpha = 1.0
    for _ in range(200):
        last, alpha = alpha, float(np.clip(groups / max(digamma(alpha + members) - digamma(alpha), 1e-9), 1.0, 1e9))
        if abs(alpha - last) < 1e-6 * alpha:
            break
    return alpha


def _merge_many(users: Terms, prior: Prior, partition: IntArray, partners: int) -> IntArray:
    """In a crowd: with the prior that its sets suggest, or from nobody together through several, clear unions first."""
    sizes, tried = np.bincount(partition), list[tuple[float, IntArray]]()
    if sizes.max() > 1:
        return merge_crowd(users, prior, partition, PartitionPrior.of(sizes), partners)
    for usual in GROUPS.usual:
        partition = merge_crowd(users, prior, partition, PartitionPrior.of_groups_of(usual, len(users)), partners)
        tried.append((partition_evidence(users, partition, prior) + crowd_prior(np.bincount(partition)), partition))
    return max(tried, key=lambda each: each[0])[1]


def merge_crowd(users: Terms, prior: Prior, partition: IntArray, sets_prior: PartitionPrior, partners: int) -> IntArray:
    """Unite sets as long as evidence and the prior of the partition gain; partners are looked up anew by rounds."""
    while True:
        sums = summed_sets(users, partition)
        into = _united(sums, np.bincount(partition), prior, sets_prior, partners)
        partition = np.unique(into[partition], return_inverse=True)[1]
        if partition.max() + 1 == len(sums) or partition.max() == 0:
            return partition


def summed_sets(users: Terms, partition: IntArray) -> Terms:
    """Sums over the users of each set."""
    return users.summed(csr_array((np.ones(len(users)), partition, np.arange(len(users) + 1))))


class _Pairs(NamedTuple):
    """Pairs of sets that may unite, the first before the second, and what that gains."""

    one: IntArray
    other: IntArray
    gain: FloatArray

    def some(self, which: BoolArray | IntArray) -> _Pairs:
        return _Pairs(self.one[which], self.other[which], self.gain[which])

    def liked_best(self, n: int) -> _Pairs:
        """Those that both sides like best, the clearer half of them; of equals the first."""
        most = np.zeros(n)
        for side in (self.one, self.other):
            np.maximum.at(most, side, self.gain)
        best = self.some((self.gain > 0.0) & (self.gain == most[self.one]) & (self.gain == most[self.other]))
        if not len(best.gain):
            return best
        best = best.some(best.gain >= np.median(best.gain))
        first = np.full(n, len(best.gain))  # pairs are in order, so that the first of a set comes first
        for side in (best.one, best.other):
            np.minimum.at(first, side, np.arange(len(best.gain)))
        place = np.arange(len(best.gain))
        return best.some((first[best.one] == place) & (first[best.other] == place))

    def renamed(self, into: IntArray, grown: BoolArray, partners: int) -> tuple[_Pairs, int]:
        """Between what sets became, and how many pairs are as before: those come first.

        Sets that have grown keep their likeliest partners, by what their parts would have gained.
        """
        one, other = into[self.one], into[self.other]
        new = grown[one] | grown[other]
        low, high, gain = np.minimum(one, other)[new], np.maximum(one, other)[new], self.gain[new]
        order = np.lexsort([-gain, high, low])
        low, high, gain = low[order], high[order], gain[order]
        first = np.concatenate([[True], (low[1:] != low[:-1]) | (high[1:] != high[:-1])])[: len(low)] & (low != high)
        fresh, kept = _Pairs(low[first], high[first], gain[first]), self.some(~new)
        near = np.zeros(len(fresh.gain), dtype=bool)
        for side in (fresh.one, fresh.other):
            near |= grown[side] & (_rank(side, fresh.gain) < partners)
        both = (np.concatenate(columns) for columns in zip(kept, fresh.some(near), strict=True))
        return _Pairs(*both), len(kept.gain)


def _rank(of: IntArray, value: FloatArray) -> IntArray:
    """How many entries of the same set have a larger value."""
    order = np.lexsort([-value, of])
    start = np.concatenate([[0], np.flatnonzero(np.diff(of[order])) + 1]) if len(of) else np.zeros(0, dtype=np.intp)
    count = np.diff(np.append(start, len(of)))
    rank = np.empty(len(of), dtype=np.intp)
    rank[order] = np.arange(len(of)) - np.repeat(start, count)
    return rank


def _united(sums: Terms, sizes: IntArray, prior: Prior, sets_prior: PartitionPrior, partners: int) -> IntArray:
    """For each set the one in which it ends, once half of them are gone or no union gains; sums and sizes change."""
    n, into = len(sums), np.arange(len(sums))
    score, left = set_evidence(sums, prior.m0, prior.between) + sets_prior.weigh(sizes), n

    def gains(one: IntArray, other: IntArray) -> FloatArray:
        together = _union(sums, one, other, prior) + sets_prior.weigh(sizes[one] + sizes[other])
        return together - score[one] - score[other]

    one, other = _likely_pairs(sums, prior, 2 * partners)
    pairs = _Pairs(one, other, gains(one, other))
    while left > n // 2 and len((best := pairs.liked_best(n)).one):
        step = np.arange(n)
        step[best.other] = best.one
        score[best.one] += best.gain + score[best.other]
        sizes[best.one] += sizes[best.other]
        for total in (sums.A, sums.a, sums.level):
            total[best.one] += total[best.other]
        into, left = step[into], left - len(best.one)
        grown = np.zeros(n, dtype=bool)
        grown[best.one] = True
        pairs, known = pairs.renamed(step, grown, partners)
        pairs.gain[known:] = gains(pairs.one[known:], pairs.other[known:])
    return into


def _likely_pairs(sums: Terms, prior: Prior, partners: int) -> tuple[IntArray, IntArray]:
    """Pairs of sets, the first before the second: of each set its likeliest partners.

    As if every set's information were a multiple w of the mean one, in whose units a union gains
    f(a + a′, w + w′) − f(a, w) − f(a′, w′) with f(a, w) = (r‖a‖²/(1 + rw) − d log(1 + rw))/2. Sets of about the same w
    are looked up together, with their mean: then all gains are one product of matrices.
    """
    n, d = sums.a.shape
    if n <= max(2 * partners, GROUPS.all_pairs):
        return np.triu_indices(n, 1)
    mean = sums.A.mean(axis=0, dtype=np.float64)
    values, axes = np.linalg.eigh(mean)
    values = np.maximum(values, 1e-9 * values[-1])
    a = (sums.a - sums.A @ prior.m0) @ axes / np.sqrt(values)
    r = prior.between * float(np.exp(np.log(values).mean()))
    w = np.einsum("uii->u", sums.A, dtype=np.float64) / np.trace(mean)
    size = np.einsum("ud,ud->u", a, a)
    alone = 0.5 * (r * size / (1.0 + r * w) - d * np.log1p(r * w))
    order, found = np.argsort(w, kind="stable"), np.empty((n, partners), dtype=np.intp)
    for some in (order[start : start + ROWS] for start in range(0, n, ROWS)):
        both = 1.0 + r * (w[some].mean() + w)
        level = 0.5 * (r * size / both - d * np.log(both)) - alone
        gain = (
            np.column_stack([a[some], size[some], np.ones(len(some))])
            @ np.column_stack([r * a / both[:, None], 0.5 * r / both, level]).T
        )
        gain[np.arange(len(some)), some] = -np.inf
        found[some] = np.argpartition(gain, n - partners, axis=1)[:, n - partners :]
    one, other = np.repeat(np.arange(n), partners), found.ravel()
    code = np.unique(np.minimum(one, other) * n + np.maximum(one, other))
    return code // n, code % n
