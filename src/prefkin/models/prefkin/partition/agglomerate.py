"""Agglomeration by marginal likelihood (Heller and Ghahramani, 2005)."""

from __future__ import annotations

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.inference.factors import Factors
from prefkin.inference.model import Population
from prefkin.models.prefkin.settings import SEARCH

__all__ = ["agglomerate", "sums_by_label"]


def sums_by_label(messages: Factors, labels: IntArray) -> Factors:
    """Products of the messages with the same label, 0 to K − 1."""
    order = np.argsort(labels, kind="stable")
    begins = np.flatnonzero(np.concatenate([[True], np.diff(labels[order]) > 0]))
    sums = (np.add.reduceat(each[order], begins, axis=0) for each in (messages.Lam, messages.eta, messages.level))
    return Factors(*sums)


def agglomerate(messages: Factors, population: Population, labels: IntArray) -> IntArray:
    """Merge clusters until no merge raises the evidence.

    Pairs that are each other's best partner are merged, the clearer half of them at once, and small clusters whose best
    partner is a large one join it (`_joiners`).
    """
    labels = np.unique(labels, return_inverse=True)[1]
    clusters, sizes = sums_by_label(messages, labels), np.bincount(labels).astype(np.float64)
    own = clusters.log_integral(population.m0, population.between)

    def gain(i: IntArray, j: IntArray) -> FloatArray:
        joint = clusters.joint_log_integral(i, clusters, j, np.ones(len(i)), population.m0, population.between)
        return joint - own[i] - own[j] + population.partition.merge_gain(sizes[i], sizes[j])

    i, j = _candidate_pairs(clusters, population)
    gains = gain(i, j)
    while True:
        target = _targets(i, j, gains, sizes)
        gone = np.flatnonzero(target != np.arange(len(sizes)))
        if not len(gone):
            return np.unique(labels, return_inverse=True)[1]
        for each in (clusters.Lam, clusters.eta, clusters.level, sizes):
            np.add.at(each, target[gone], each[gone])
        merged = np.unique(target[gone])
        own[merged] = clusters[merged].log_integral(population.m0, population.between)
        labels = target[labels]
        changed = np.isin(i, merged) | np.isin(j, merged) | (target[i] != i) | (target[j] != j)
        pairs = np.sort([target[i[changed]], target[j[changed]]], axis=0)
        pairs = np.unique(pairs[:, pairs[0] < pairs[1]], axis=1)
        i, j = (np.concatenate([old[~changed], new]) for old, new in zip((i, j), pairs, strict=True))
        gains = np.concatenate([gains[~changed], gain(pairs[0], pairs[1])])


def _targets(i: IntArray, j: IntArray, gains: FloatArray, sizes: FloatArray) -> IntArray:
    """The cluster that each becomes part of; itself where it stays."""
    K = len(sizes)
    target, best, partner = np.arange(K), np.zeros(K), np.full(K, -1)
    for one, other in ((i, j), (j, i)):
        order = np.lexsort([other, -gains, one])
        order = order[np.concatenate([[True], np.diff(one[order]) != 0])] if len(order) else order
        better = order[gains[order] > best[one[order]]]
        best[one[better]], partner[one[better]] = gains[better], other[better]
    mutual = (gains > 0) & (gains == best[i]) & (gains == best[j]) & (partner[i] == j) & (partner[j] == i)
    if not mutual.any():
        return target
    mutual &= gains >= np.median(gains[mutual])
    target[j[mutual]] = i[mutual]
    for small in _joiners(best, partner, sizes):
        if target[small] == small and not (target == small).sum() > 1:
            target[small] = target[partner[small]]
    return target


def _joiners(best: FloatArray, partner: IntArray, sizes: FloatArray) -> list[int]:
    """Small clusters that join a large one, their best partner: the clearest, at most doubling it.

    Such a cluster hardly changes with each, so that asking again after each would take long and change little.
    """
    small = np.flatnonzero(partner >= 0)
    small = small[SEARCH.hub * sizes[small] <= sizes[partner[small]]]
    order = small[np.lexsort([small, -best[small], partner[small]])]
    begins = np.flatnonzero(np.concatenate([[True], np.diff(partner[order]) != 0])) if len(order) else order
    found: list[int] = []
    for members in np.split(order, begins[1:]):
        members = members[: (len(members) + 1) // 2]
        found += members[np.cumsum(sizes[members]) <= sizes[partner[members]]].tolist()
    return found


def _candidate_pairs(clusters: Factors, population: Population) -> tuple[IntArray, IntArray]:
    """All pairs; of many clusters each with those whose posterior means point the same way."""
    K = len(clusters)
    if SEARCH.all_pairs >= K:
        one, other = np.triu_indices(K, 1)
        return one, other
    up = clusters.marginalise(population.between)
    x = up.eta - up.Lam @ population.m0
    x /= np.sqrt(np.maximum(np.einsum("kii->k", up.Lam), 1e-300))[:, None]
    alike = x @ x.T
    np.fill_diagonal(alike, -np.inf)
    best = np.argpartition(-alike, SEARCH.partners, axis=1)[:, : SEARCH.partners]
    pairs = np.unique(np.sort([np.repeat(np.arange(K), SEARCH.partners), best.ravel()], axis=0), axis=1)
    return pairs[0], pairs[1]
