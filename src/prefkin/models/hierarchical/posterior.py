"""The posterior of users under learnt hyperparameters, from which estimates, probabilities and radii are computed.

Under component c a user's preference has mean G (m_c + v η) and covariance v G + G S_c G, with G = (I + v Λ)⁻¹
(`inference.model`); over components it is a mixture. The mean and the variance of a margin zᵀθ follow from the mean and
the covariance of the whole mixture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.execution.executor import for_each
from prefkin.inference.ep import Fit, Sites
from prefkin.inference.factors import Factors
from prefkin.inference.hierarchy import group_posterior, user_factors, user_moments
from prefkin.inference.model import Design, Groups, Population

__all__ = ["Components", "Posterior"]

NEGLIGIBLE = 1e-6  # responsibility of a component that is left out
NUMBERS_AT_ONCE = 1 << 21  # of covariance matrices that are computed together
NUMBERS_KEPT = 1 << 24  # of covariance matrices that are kept


class Components(NamedTuple):
    """One user's posterior as a mixture of normal laws, in the units of features."""

    which: IntArray  # (n,) components that are not negligible
    weights: FloatArray  # (n,) responsibilities
    means: FloatArray  # (n, d)
    covariances: FloatArray  # (n, d, d)


@dataclass(frozen=True, eq=False)
class Posterior:
    """Users with their EP sites and responsibilities, and everybody's messages to the group means.

    `messages` and `sizes` may include users who are not held here (out of core).
    """

    design: Design
    sites: Sites
    share: FloatArray  # (U, C) responsibilities; the last component of clustered users is "singleton"
    spread: FloatArray  # (U,) factors on users' variances, from the population law
    population: Population
    messages: Factors  # (C): products of the messages to each group mean
    sizes: FloatArray  # (C,) sums of the responsibilities

    @classmethod
    def of(cls, design: Design, fit: Fit) -> Posterior:
        """All users of a fit."""
        found = cls(design, fit.sites, fit.share, fit.spread, fit.population, fit.messages, fit.share.sum(axis=0))
        found.__dict__["theta"] = fit.population.preferences(fit.moments.t)
        return found

    def __len__(self) -> int:
        return self.design.n_users

    def some(self, who: IntArray) -> Posterior:
        """Some of the users; everybody's messages stay."""
        rows, _ = self.design.rows_of(who)
        return replace(
            self, design=self.design.users(who), sites=self.sites.take(rows), share=self.share[who],
            spread=self.spread[who],
        )  # fmt: skip

    @cached_property
    def groups(self) -> Groups:
        """Posterior of the group means."""
        return group_posterior(self.messages, self.population)

    @cached_property
    def theta(self) -> FloatArray:
        """(U, d) posterior means."""
        rows = self.design.with_root(self.population.root)
        moments = user_moments(rows, *self.sites[:2], self.spread, self.share, self.groups, self.population)
        return self.population.preferences(moments.t)

    def components(self, user: int) -> Components:
        """The posterior of one user as a mixture."""
        which = np.flatnonzero(self.share[user] > NEGLIGIBLE)
        means, covs = self._of_components(self.factors(np.array([user])), np.array([user]), which)
        population = self.population
        return Components(
            which, self.share[user, which], population.preferences(means[0]), population.covariance(covs[0])
        )

    def covariances(self, who: IntArray) -> FloatArray:
        """Posterior covariances of some users, (n, d, d)."""
        if self._kept is not None:
            return self._kept[who]
        return self._covariances(who)

    def margins(self, X: FloatArray, owner: IntArray) -> tuple[FloatArray, FloatArray]:
        """Posterior mean and variance of the margin of each row, about the user at position owner[i]."""
        mean, variance = np.einsum("ij,ij->i", X, self.theta[owner]), np.empty(len(X))
        order = np.argsort(owner, kind="stable")
        who, begins = np.unique(owner[order], return_index=True)
        ends, d = np.append(begins[1:], len(order)), self.design.dim
        at_once = max(NUMBERS_AT_ONCE // d**2, 1)

        def some(first: int) -> None:
            users = slice(first, first + at_once)
            for C, begin, end in zip(self.covariances(who[users]), begins[users], ends[users], strict=True):
                rows = order[begin:end]
                variance[rows] = np.einsum("ij,ij->i", X[rows] @ C, X[rows])

        for_each(some, range(0, len(who), at_once))
        return mean, np.maximum(variance, 0.0)

    def of_covariances(self, number: Any) -> FloatArray:
        """What `number` finds of blocks of covariance matrices, (..., n), for all users, (..., U)."""
        at_once = max(NUMBERS_AT_ONCE // self.design.dim**2, 1)
        blocks = [np.arange(a, min(a + at_once, len(self))) for a in range(0, len(self), at_once)]
        return np.concatenate(for_each(lambda who: number(self.covariances(who)), blocks), axis=-1)

    @cached_property
    def _kept(self) -> FloatArray | None:
        if len(self) * self.design.dim**2 > NUMBERS_KEPT:
            return None
        at_once = max(NUMBERS_AT_ONCE // self.design.dim**2, 1)
        blocks = [np.arange(a, min(a + at_once, len(self))) for a in range(0, len(self), at_once)]
        return np.concatenate([np.empty((0, self.design.dim, self.design.dim)), *for_each(self._covariances, blocks)])

    def _covariances(self, who: IntArray) -> FloatArray:
        share = self.share[who]
        which = np.flatnonzero(share.max(axis=0, initial=0.0) > NEGLIGIBLE)
        mean, second = np.zeros((len(who), self.design.dim)), np.zeros((len(who), self.design.dim, self.design.dim))
        factors = self.factors(who)
        for c in which:
            here = np.flatnonzero(share[:, c] > NEGLIGIBLE)
            means, covs = self._of_components(factors[here], who[here], np.array([c]))
            r, m = share[here, c], means[:, 0]
            mean[here] += r[:, None] * m
            second[here] += r[:, None, None] * (covs[:, 0] + m[:, :, None] * m[:, None, :])
        return self.population.covariance(second - mean[:, :, None] * mean[:, None, :])

    def factors(self, who: IntArray) -> Factors:
        """Likelihoods of some users as Gaussian factors in t."""
        rows, _ = self.design.rows_of(who)
        return user_factors(self.design.users(who).with_root(self.population.root), *self.sites.take(rows))

    def _of_components(self, factors: Factors, who: IntArray, which: IntArray) -> tuple[FloatArray, FloatArray]:
        """Means (n, C, d) and covariances (n, C, d, d) of t of some users under some components."""
        d, variances = self.design.dim, self.population.variances(self.share.shape[1])
        means, covs = np.empty((len(who), len(which), d)), np.empty((len(who), len(which), d, d))
        for k, c in enumerate(which):
            v = variances[c] * self.spread[who]
            G = np.linalg.inv(np.eye(d) + v[:, None, None] * factors.Lam)
            around = self.groups.means[c] + v[:, None] * factors.eta
            means[:, k] = np.einsum("nij,nj->ni", G, around)
            covs[:, k] = v[:, None, None] * G + G @ self.groups.covs[c] @ G.transpose(0, 2, 1)
        return means, covs
