"""Agglomeration by marginal likelihood (Heller and Ghahramani, 2005)."""

from __future__ import annotations

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.inference.factors import Factors
from prefkin.inference.model import Population
from prefkin.models.hierarchical.settings import SEARCH

__all__ = ["agglomerate", "sums_by_label"]


def sums_by_label(messages: Factors, labels: IntArray) -> Factors:
    """Products of the messages with the same label, 0 to K − 1."""
    order = np.argsort(labels, kind="stable")
    begins = np.flatnonzero(np.concatenate([[True], np.diff(labels[order]) > 0]))
    sums = (np.add.reduceat(each[order], begins, axis=0) for each in (messages.Lam, messages.eta, messages.level))
    return Factors(*sums)


def agglomerate(messages: Factors, population: Population, labels: IntArray) -> IntArray:
    """Merge clusters until no merge raises the evidence.

    Pairs that are each other's best partner are merged, the clearer half of them at once.
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
        best = np.zeros(len(sizes))
        np.maximum.at(best, i, gains)
        np.maximum.at(best, j, gains)
        mutual = (gains > 0) & (gains == best[i]) & (gains == best[j])
        if not mutual.any():
            return np.unique(labels, return_inverse=True)[1]
        mutual &= gains >= np.median(gains[mutual])
        target = np.arange(len(sizes))
        target[j[mutual]] = i[mutual]
        for each in (clusters.Lam, clusters.eta, clusters.level, sizes):
            np.add.at(each, i[mutual], each[j[mutual]])
        merged = np.unique(i[mutual])
        own[merged] = clusters[merged].log_integral(population.m0, population.between)
        labels = target[labels]
        changed = np.isin(i, merged) | np.isin(j, merged) | (target[i] != i) | (target[j] != j)
        pairs = np.sort([target[i[changed]], target[j[changed]]], axis=0)
        pairs = np.unique(pairs[:, pairs[0] < pairs[1]], axis=1)
        i, j = (np.concatenate([old[~changed], new]) for old, new in zip((i, j), pairs, strict=True))
        gains = np.concatenate([gains[~changed], gain(pairs[0], pairs[1])])


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
