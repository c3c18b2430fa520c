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
from prefkin.inference.hierarchy import group_posterior, messages_of, user_factors, user_moments
from prefkin.inference.model import Design, Groups, Population, in_units_of, with_variances

__all__ = ["Components", "Posterior", "margins_of"]

NEGLIGIBLE = 1e-6  # responsibility of a component that is left out
NUMBERS_AT_ONCE = 1 << 21  # of covariance matrices that are computed together
NUMBERS_KEPT = 1 << 24  # of covariance matrices that are kept
STACKED_UP_TO = 64  # features up to which margins are computed from covariance matrices


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
    about: FloatArray | None = None  # (U, d) estimates of t whose uncertainty is asked, where these are not the means
    wide: Factors | None = None  # `messages_with` the variances of the uncertainty, of users who are not held here, too

    @classmethod
    def of(cls, design: Design, fit: Fit) -> Posterior:
        """All users of a fit."""
        found = cls(design, fit.sites, fit.share, fit.spread, fit.population, fit.messages, fit.share.sum(axis=0))
        found.__dict__["t"] = fit.moments.t
        return found

    def __len__(self) -> int:
        return self.design.n_users

    def some(self, who: IntArray) -> Posterior:
        """Some of the users; everybody's messages stay."""
        rows, _ = self.design.rows_of(who)
        return replace(
            self, design=self.design.users(who), sites=self.sites.take(rows), share=self.share[who],
            spread=self.spread[who], about=None if self.about is None else self.about[who],
        )  # fmt: skip

    def with_variances(self, within: float, between: float) -> Posterior:
        """The estimates' uncertainty with τ² and ρ² multiplied, given the same sites."""
        if within == between == 1.0:
            return self
        population = with_variances(self.population, within, between)
        messages = self.messages_with(within, between) if self.wide is None else self.wide
        rotated = population.root is not None and population.root.ndim == 2  # then R holds the scale
        about = self.t / np.sqrt(within) if rotated else self.t
        return replace(self, population=population, messages=messages, about=about)

    def messages_with(self, within: float, between: float) -> Factors:
        """Messages of the users who are held here, with τ² and ρ² multiplied."""
        population = with_variances(self.population, within, between)
        rows = self.design.with_root(population.root)
        return messages_of(rows, *self.sites, self.spread, self.share, population)

    def off(self, who: IntArray) -> FloatArray:
        """(n, d) what the estimates of t are away from the posterior means."""
        return np.zeros((len(who), self.design.dim)) if self.about is None else self.about[who] - self.t[who]

    @cached_property
    def groups(self) -> Groups:
        """Posterior of the group means."""
        return group_posterior(self.messages, self.population)

    @cached_property
    def t(self) -> FloatArray:
        """(U, d) posterior means of t, where θ = R t."""
        rows = self.design.with_root(self.population.root)
        return user_moments(rows, *self.sites[:2], self.spread, self.share, self.groups, self.population).t

    @cached_property
    def theta(self) -> FloatArray:
        """(U, d) posterior means."""
        return self.population.preferences(self.t)

    @property
    def own_variance(self) -> float:
        """Mean square of a coordinate of t over the population: the prior variance of estimates from own rows alone."""
        population = self.population
        common = self.groups.means[-1] if population.clustered else self.groups.means[0]
        return float(population.variances(len(self.sizes))[-1] + np.mean(common**2))

    def prior_variance(self, user: int) -> float:
        """Variance of a coordinate of t before any answer of anybody: that of a singleton, and of what it is around."""
        population = self.population
        around = population.top if population.clustered else population.between
        return float(population.variances(len(self.sizes))[-1] * self.spread[user] + around)

    def components(self, user: int) -> Components:
        """The posterior of one user as a mixture, around the estimate."""
        which = np.flatnonzero(self.share[user] > NEGLIGIBLE)
        who, population = np.array([user]), self.population
        (means,), (covs,) = self._of_components(self.factors(who), who, which)
        off = self.off(who)
        means, covs = population.preferences(means + off), population.covariance(covs + off.T @ off)
        return Components(which, self.share[user, which], means, covs)

    def covariances(self, who: IntArray) -> FloatArray:
        """Posterior covariances of some users, (n, d, d)."""
        if self._kept is not None:
            return self._kept[who]
        return self._covariances(who)

    def margins(self, X: FloatArray, owner: IntArray) -> tuple[FloatArray, FloatArray]:
        """Posterior mean and variance of the margin of each row, about the user at position owner[i]."""
        mean = np.einsum("ij,ij->i", X, self.theta[owner])
        if self.design.dim > STACKED_UP_TO:
            x = X if self.population.root is None else in_units_of(self.population.root, X)
            parts = [(int(u), np.flatnonzero(owner == u)) for u in np.unique(owner)]
            found = np.empty(len(X))
            for (_, rows), variance in zip(
                parts, for_each(lambda p: self._variance(p[0], x[p[1]]), parts), strict=True
            ):
                found[rows] = variance
            return mean, np.maximum(found, 0.0)
        if len(X) == 1:
            return mean, np.maximum(X[0] @ self.covariances(owner)[0] @ X.T, 0.0)
        variance, order = np.empty(len(X)), np.argsort(owner, kind="stable")
        who, begins, counts = np.unique(owner[order], return_index=True, return_counts=True)

        def some_users(users: slice) -> None:
            C = self.covariances(who[users])
            for n in np.unique(counts[users]):  # users with equally many rows at once
                here = np.flatnonzero(counts[users] == n)
                rows = order[begins[users][here, None] + np.arange(n)]
                x = X[rows]
                variance[rows] = np.einsum("uij,uij->ui", x @ C[here], x)

        for_each(some_users, self._blocks(len(who)))
        return mean, np.maximum(variance, 0.0)

    def _variance(self, user: int, x: FloatArray) -> FloatArray:
        """Posterior variance of rows in units of t, from the user's rows; takes no d × d matrix a user."""
        variances = self.population.variances(self.share.shape[1]) * self.spread[user]
        which = np.flatnonzero(self.share[user] > NEGLIGIBLE)
        means, found = np.empty((len(which), len(x))), np.zeros(len(x))
        for k, c in enumerate(which):
            v, r = variances[c], self.share[user, c]
            Gx, pull = self._applied(user, float(v), x)
            means[k] = Gx @ (self.groups.means[c] + v * pull)
            found += r * (v * np.einsum("ij,ij->i", x, Gx) + np.einsum("ij,ij->i", Gx @ self.groups.covs[c], Gx))
        return found + self.share[user, which] @ (means - self.share[user, which] @ means) ** 2

    def _applied(self, user: int, variance: float, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """G x of each row, and η of the user: G = I − v XᵀP X with P = (I + v diag(τ̃) X Xᵀ)⁻¹ diag(τ̃)."""
        rows = slice(self.design.starts[user], self.design.starts[user + 1])
        own, tau = self.design.X[rows], self.sites.tau[rows]
        own = own if self.population.root is None else in_units_of(self.population.root, own)
        few = len(own) < self.design.dim
        if (user, variance) not in self._precisions:
            M = tau[:, None] * (own @ own.T) if few else own.T @ (tau[:, None] * own)
            P = np.asarray(np.linalg.inv(np.eye(len(M)) + variance * M), dtype=np.float64)
            if len(self._precisions) * P.size > NUMBERS_KEPT:
                self._precisions.clear()
            self._precisions[user, variance] = P * tau if few else P
        P = self._precisions[user, variance]
        Gx = x - variance * (x @ own.T @ P) @ own if few else x @ P
        return Gx, own.T @ self.sites.nu[rows]

    @cached_property
    def _precisions(self) -> dict[tuple[int, float], FloatArray]:
        return {}

    def determined(self, user: int, variance: float, copies: FloatArray) -> FloatArray:
        """Share of a user's parameters that own rows, each so many times, determine under N(mean, variance I)."""
        rows = slice(self.design.starts[user], self.design.starts[user + 1])
        x, root = self.design.X[rows], self.population.root
        x = x if root is None else in_units_of(root, x)
        x = x * np.sqrt(np.maximum(self.sites.tau[rows], 0.0))[:, None]
        values = np.linalg.eigvalsh(x @ x.T if len(x) < self.design.dim else x.T @ x)
        known = variance * np.maximum(values, 0.0)[:, None] * copies
        return np.asarray((known / (1.0 + known)).sum(axis=0) / self.design.dim)

    def of_covariances(self, number: Any) -> FloatArray:
        """What `number` finds of blocks of covariance matrices, (..., n), for all users, (..., U)."""
        everybody = np.arange(len(self))
        blocks = [everybody[users] for users in self._blocks(len(self))]
        return np.concatenate(for_each(lambda who: number(self.covariances(who)), blocks), axis=-1)

    def _blocks(self, n: int) -> list[slice]:
        """Of n users, so many that their covariances fit in `NUMBERS_AT_ONCE`."""
        at_once = max(NUMBERS_AT_ONCE // self.design.dim**2, 1)
        return [slice(first, min(first + at_once, n)) for first in range(0, n, at_once)]

    @cached_property
    def _kept(self) -> FloatArray | None:
        if len(self) * self.design.dim**2 > NUMBERS_KEPT:
            return None
        everybody, d = np.arange(len(self)), self.design.dim
        found = for_each(self._covariances, [everybody[users] for users in self._blocks(len(self))])
        return np.concatenate([np.empty((0, d, d)), *found])

    def _covariances(self, who: IntArray) -> FloatArray:
        return self.population.covariance(self.t_covariances(who))

    def t_covariances(self, who: IntArray) -> FloatArray:
        """Posterior covariances of t of some users around their estimates, (n, d, d)."""
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
        off = self.off(who)
        return second - mean[:, :, None] * mean[:, None, :] + off[:, :, None] * off[:, None, :]

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


def margins_of(design: Design, fit: Fit | Posterior, X: FloatArray, owner: IntArray) -> tuple[FloatArray, FloatArray]:
    """Posterior mean and variance of the margins of rows that were not learnt from; takes no d × d matrix a user."""
    n, users = len(design.y), np.concatenate([design.owner, owner])
    order = np.argsort(users, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    zero = np.zeros(len(X))
    starts = np.searchsorted(users[order], np.arange(design.n_users + 1))
    joint = replace(design, X=np.concatenate([design.X, X])[order], y=users, starts=starts)
    joint = joint.with_root(fit.population.root)
    tau, nu = (np.concatenate([each, zero])[order] for each in fit.sites[:2])
    found = user_moments(joint, tau, nu, fit.spread, fit.share, fit.groups, fit.population)
    return found.mean[place[n:]], found.variance[place[n:]]
