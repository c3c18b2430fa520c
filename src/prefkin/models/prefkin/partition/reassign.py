"""Responsibilities by leave-one-out mean field (CVB0; Asuncion et al., 2009).

A user's own message is taken out of a cluster before its weight for the user is computed, so that nobody is held in a
cluster by their own answers. Exact weights are computed for the likeliest clusters of users who are not sure.
"""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.inference.factors import Factors
from prefkin.inference.model import Population
from prefkin.models.prefkin.settings import SEARCH

__all__ = ["labels_of", "log_weights", "one_hot", "reassign", "responsibilities"]


def one_hot(labels: IntArray) -> FloatArray:
    """(U, K + 1) responsibilities; clusters of one are singletons, the last column."""
    _, place, size = np.unique(labels, return_inverse=True, return_counts=True)
    column = np.cumsum(size > 1) - 1
    column[size == 1] = int((size > 1).sum())
    share = np.zeros((len(labels), int((size > 1).sum()) + 1))
    share[np.arange(len(labels)), column[place]] = 1.0
    return share


def labels_of(share: FloatArray) -> IntArray:
    """The likeliest cluster of each user; singletons by themselves."""
    label = np.argmax(share, axis=1)
    alone = label == share.shape[1] - 1
    label[alone] = share.shape[1] + np.arange(alone.sum())
    return np.unique(label, return_inverse=True)[1]


def reassign(factors: Factors, share: FloatArray, population: Population) -> FloatArray:
    """Responsibilities (U, K + 1) from the users' likelihoods and the responsibilities so far."""
    messages = factors.marginalise(population.within)
    for _ in range(SEARCH.reassignments):
        kept = np.append(share[:, :-1].sum(axis=0) > SEARCH.least_share, True)
        share = share[:, kept]
        if share.shape[1] == 1:
            return np.ones_like(share)
        clusters = messages.summed(share[:, :-1])
        new = softmax(log_weights(factors, messages, share, clusters, share.sum(axis=0), population), axis=1)
        change, share = np.abs(new - share).max(), new
        if change < 1e-3:
            break
    return share


def responsibilities(
    factors: Factors, own: FloatArray, clusters: Factors, sizes: FloatArray, population: Population
) -> FloatArray:
    """(U, K + 1) under clusters that stay as they are; `own` (U, K + 1) is what each user has a share in."""
    if len(sizes) == 1:
        return np.ones_like(own)
    messages = factors.marginalise(population.within)
    return softmax(log_weights(factors, messages, own, clusters, sizes, population), axis=1)


def log_weights(
    factors: Factors, messages: Factors, share: FloatArray, clusters: Factors, sizes: FloatArray, population: Population
) -> FloatArray:
    """(U, K + 1): plug-in where a user is sure, exact for contenders of the others, −∞ elsewhere.

    factors: users' likelihoods; messages: marginalised to the group means; clusters (K): products of the messages;
    sizes (K + 1).
    """
    members, U, d, prior = share[:, :-1], len(messages), messages.dim, population.partition
    alone = factors.log_integral(population.m0, population.within + population.between) + prior.singleton
    size = sizes[:-1]
    H = np.linalg.inv(np.eye(d) + population.between * clusters.Lam)
    means = np.einsum("kij,kj->ki", H, population.m0 + population.between * clusters.eta)
    squares = messages.Lam.reshape(U, d * d) @ (means[:, :, None] * means[:, None, :]).reshape(-1, d * d).T
    plug_in = messages.eta @ means.T - 0.5 * squares + messages.level[:, None] + prior.log_weights(size)
    contenders = np.argsort(-plug_in, axis=1, kind="stable")[:, : SEARCH.contenders]
    ranked = np.sort(np.column_stack([plug_in, alone]), axis=1)
    top = np.argmax(plug_in, axis=1)
    sure = (ranked[:, -1] - ranked[:, -2] > SEARCH.clear) & (plug_in.max(axis=1) > alone)
    sure &= size[top] - members[np.arange(U), top] > 1.5
    found = np.full((U, len(size) + 1), -np.inf)
    found[:, -1] = alone
    found[sure, top[sure]] = plug_in[sure, top[sure]]
    found[sure, -1] = np.minimum(alone[sure], plug_in[sure, top[sure]] - SEARCH.clear)
    asked = np.flatnonzero(~sure)
    u, k = np.repeat(asked, contenders.shape[1]), contenders[asked].ravel()
    left = size[k] - members[u, k]
    u, k, left = u[left > 1e-3], k[left > 1e-3], left[left > 1e-3]
    with_user, without = (
        clusters.joint_log_integral(k, messages, u, times, population.m0, population.between)
        for times in (1.0 - members[u, k], -members[u, k])
    )
    found[u, k] = with_user - without + prior.log_weights(left)
    return found
