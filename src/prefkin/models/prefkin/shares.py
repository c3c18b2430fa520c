"""How much of an estimate own answers decide, and what two users, or a user and the prior, have in common."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from prefkin.data.arrays import FloatArray, above_zero
from prefkin.models.prefkin.posterior import NEGLIGIBLE, Posterior

__all__ = ["difference_covariance", "doubt_left", "own_share", "rows_to_half", "shares_of"]


def own_share(posterior: Posterior, user: int, copies: float = 1.0) -> float:
    """Share of the estimate that own answers decide, had there been so many copies of them."""
    share, population = posterior.share[user], posterior.population
    singleton = population.clustered and share[:-1].max(initial=0.0) <= 0.5
    variance = population.variances(len(share))[-1] if singleton else population.within
    return float(posterior.determined(user, variance * posterior.spread[user], np.array([copies]))[0])


def shares_of(posterior: Posterior, user: int, counts: FloatArray, own: FloatArray) -> FloatArray:
    """Shares of an estimate of its neighbours: own answers decide theirs, others in proportion to their counts."""
    share = (1.0 - own_share(posterior, user)) * counts / above_zero(counts.sum())
    return np.where(own, 1.0 - share.sum(), share)


def doubt_left(posterior: Posterior, user: int) -> tuple[FloatArray, FloatArray]:
    """What own answers, and everybody's, leave of the prior covariance, in features scaled by it."""
    who, prior, root = np.array([user]), posterior.prior_variance(user), posterior.population.root
    own = np.linalg.inv(np.eye(posterior.design.dim) + prior * posterior.factors(who).Lam[0])
    left = posterior.t_covariances(who)[0] / prior
    if root is not None and root.ndim == 2:  # R = P Q with P symmetric: scaled by P, not by R
        U, _, Vt = np.linalg.svd(root)
        own, left = (U @ Vt @ M @ (U @ Vt).T for M in (own, left))
    return own, left


def rows_to_half(posterior: Posterior, user: int, n: float) -> float:
    """More comparisons like the n of the user until own answers decide half of the estimate; 0 if they do already."""
    if own_share(posterior, user) >= 0.5:
        return 0.0
    if own_share(posterior, user, 1e9) < 0.5:  # directions that such comparisons never touch
        return np.inf
    copies = np.exp(brentq(lambda x: own_share(posterior, user, np.exp(x)) - 0.5, 0.0, np.log(1e9)))
    return n * (float(copies) - 1.0)


def difference_covariance(posterior: Posterior, user: int, other: int) -> FloatArray:
    """Posterior covariance of θ_u − θ_v: the mean of a group that both belong to is uncertain for both alike."""
    both = np.array([user, other])
    C, population = posterior.covariances(both).sum(axis=0), posterior.population
    off = posterior.off(both)
    C -= population.covariance(np.outer(off[0], off[1]) + np.outer(off[1], off[0]))
    v = population.within * posterior.spread[both]
    G = np.linalg.inv(np.eye(len(C)) + v[:, None, None] * posterior.factors(both).Lam)
    together = posterior.share[user] * posterior.share[other]
    for k in np.flatnonzero(together > NEGLIGIBLE):
        cross = G[0] @ posterior.groups.covs[k] @ G[1]
        C = C - together[k] * population.covariance(cross + cross.T)
    return C
