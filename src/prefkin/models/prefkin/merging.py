"""Sets of users are merged while evidence grows."""

from __future__ import annotations

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.inference.quadratics import Terms
from prefkin.inference.quadratics.evidence import joint_evidence, set_evidence
from prefkin.models.prefkin.crowd import Seating, crowd_prior, merge_crowd, summed_sets
from prefkin.models.prefkin.mixture import Prior, pieces
from prefkin.models.prefkin.settings import LIMITS

__all__ = ["as_share", "merge", "merged_sets", "partition_evidence"]

USUAL = (1.5, 5.0, np.inf)  # members of a group, as merging a crowd expects them: clear unions first


def merge(users: Terms, prior: Prior, partition: IntArray, partners: int = 12) -> IntArray:
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
        tried.append((partition_evidence(users, partition, prior) + crowd_prior(np.bincount(partition)), partition))
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


def merged_sets(users: Terms, prior: Prior) -> FloatArray:
    """Memberships, (U, K), in the sets of two and more that evidence unites these users to."""
    return as_share(merge(users, prior, np.arange(len(users))))
