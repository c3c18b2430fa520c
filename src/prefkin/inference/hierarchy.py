"""The E-step of the hierarchical model given the EP sites: messages from users to group means, and moments back.

Both directions go over users one by one, in blocks that depend on the data alone, so that memory holds no d × d matrix
per user and results do not depend on threads; what blocks find is added up in their order.
"""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from operator import add
from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.execution.executor import for_each
from prefkin.inference import _ep_kernels
from prefkin.inference.factors import Factors
from prefkin.inference.model import Design, Groups, Population

__all__ = [
    *("Moments", "blocks_of", "group_posterior", "log_evidence", "messages_of", "user_factors", "user_moments"),
]

MOST_BLOCKS = 8
BLOCK_WORK = 1 << 23  # multiplications that are worth a block
BLOCK_ROOM = 1 << 23  # numbers that all blocks may hold together


class Moments(NamedTuple):
    """What the E-step finds for users; `scores`, `D` and `K` are for the M-step (`_ep_kernels.margins`)."""

    mean: FloatArray  # (n,) of each row's margin
    variance: FloatArray  # (n,)
    t: FloatArray  # (U, d) posterior mean of each user
    scores: FloatArray  # (U, 2, 2)
    D: FloatArray  # (d, d)
    K: FloatArray  # (d, d)


def blocks_of(design: Design, n_components: int) -> list[slice]:
    """Consecutive users, about equally many rows a block."""
    d, n = design.dim, int(design.starts[-1])
    work = n * d * min(d, n / max(design.n_users, 1) + 1.0)
    room = max(BLOCK_ROOM // max(n_components * d * d, 1), 1)
    many = max(min(MOST_BLOCKS, int(work / BLOCK_WORK), room), 1)
    if many == 1:
        return [slice(0, design.n_users)]
    cuts = np.searchsorted(design.starts, np.linspace(0, n, many + 1)[1:-1])
    cuts = np.unique(np.concatenate([[0], cuts, [design.n_users]]))
    return [slice(int(a), int(b)) for a, b in pairwise(cuts)]


def user_factors(design: Design, tau: FloatArray, nu: FloatArray, level: FloatArray) -> Factors:
    """Each user's likelihood as a Gaussian factor."""
    U, d = design.n_users, design.dim
    found = Factors(np.empty((U, d, d)), np.empty((U, d)), np.bincount(design.owner, level, U).astype(np.float64))

    def some(users: slice) -> None:
        starts = design.starts[users.start : users.stop + 1]
        _ep_kernels.sum_sites(design.X, starts, tau, nu, found.Lam[users], found.eta[users])

    for_each(some, blocks_of(design, 1))
    return found


def messages_of(
    design: Design, tau: FloatArray, nu: FloatArray, level: FloatArray, spread: FloatArray, share: FloatArray,
    population: Population,
) -> Factors:  # fmt: skip
    """Products of all users' messages to the mean of each component, to the power of their share in it."""
    d, C = design.dim, share.shape[1]
    levels, variance = np.bincount(design.owner, level, design.n_users), population.variances(C)

    def some(users: slice) -> Factors:
        found = Factors(np.zeros((C, d, d)), np.zeros((C, d)), np.zeros(C))
        starts = design.starts[users.start : users.stop + 1]
        _ep_kernels.messages(
            design.X, starts, tau, nu, levels[users], spread[users], share[users], variance,
            found.Lam, found.eta, found.level,
        )  # fmt: skip
        return found

    parts = for_each(some, blocks_of(design, C))
    return reduce(add, parts)


def group_posterior(messages: Factors, population: Population) -> Groups:
    """Posterior of the group means and of m_0 from the users' messages to them; singletons' go to m_0 directly."""
    d, rho2, m0 = messages.dim, population.between, population.m0
    own = messages[:-1] if population.clustered else messages
    H = np.linalg.inv(np.eye(d) + rho2 * own.Lam)
    up, to_m0, m0_cov = own.Lam @ H, np.einsum("kij,kj->ki", H, own.eta), np.zeros((d, d))
    if population.clustered:
        m0_cov = np.linalg.inv(up.sum(0) + messages.Lam[-1] + np.eye(d) / population.top)
        m0 = m0_cov @ (to_m0.sum(0) + messages.eta[-1])
    means, covs = np.einsum("kij,kj->ki", H, m0 + rho2 * own.eta), rho2 * 0.5 * (H + H.transpose(0, 2, 1))
    known, squares = float(np.einsum("kii->", up)), float(((to_m0 - up @ m0) ** 2).sum())
    if population.clustered:
        known -= float(((up @ m0_cov) * up).sum())
        covs = covs + H @ m0_cov @ H.transpose(0, 2, 1)
        means, covs = np.vstack([means, m0]), np.concatenate([covs, m0_cov[None]])
    return Groups(means, covs, m0, m0_cov, known, squares)


def log_evidence(messages: Factors, population: Population) -> float:
    """Log evidence of the answers, where users' shares are 0 or 1; m_0 of clusters integrated out."""
    if not population.clustered:
        return float(messages.log_integral(population.m0, population.between)[0])
    top = messages[:-1].marginalise(population.between).summed(np.ones((len(messages) - 1, 1))) + messages[-1:]
    return float(top.log_integral(np.zeros(messages.dim), population.top)[0])


def user_moments(
    design: Design, tau: FloatArray, nu: FloatArray, spread: FloatArray, share: FloatArray, groups: Groups,
    population: Population, learn: int = 0,
) -> Moments:  # fmt: skip
    """Posterior moments of users and of their rows' margins, group means integrated out."""
    U, d, C = design.n_users, design.dim, share.shape[1]
    variance, kind = population.variances(C), np.zeros(C, dtype=np.int64)
    kind[-1] = int(population.clustered)
    mean, var, t, scores = np.zeros(len(design.y)), np.zeros(len(design.y)), np.zeros((U, d)), np.zeros((U, 2, 2))
    side = d if learn == 2 else 0

    def some(users: slice) -> tuple[FloatArray, FloatArray]:
        D, K = np.zeros((side, side)), np.zeros((side, side))
        starts = design.starts[users.start : users.stop + 1]
        _ep_kernels.margins(
            design.X, starts, tau, nu, spread[users], share[users], variance, kind, groups.means, groups.covs, learn,
            mean, var, t[users], scores[users], D, K,
        )  # fmt: skip
        return D, K

    parts = for_each(some, blocks_of(design, 1 if learn < 2 else C))
    D, K = (np.sum([part[i] for part in parts], axis=0) for i in (0, 1))
    return Moments(mean, np.maximum(var, 1e-300), t, scores, D, K)
