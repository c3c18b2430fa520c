"""The hierarchical model on one page.

    y_i     ~ p(y | m_i),  m_i = z_iᵀθ_u + offset_i              answer i of user u; logistic: P(y = 1) = σ(m)
    θ_u     = R t_u                                              R Rᵀ: covariance structure of the users
    t_u     ~ N(m_k, τ² I)          z_u = k                      user in cluster k, or
    t_u     ~ N(m_0, (τ² + ρ²) I)   z_u = 0                      a singleton: a cluster of one
    m_k     ~ N(m_0, ρ² I),   m_0 ~ N(0, σ² I)                   group means and their mean
    z       ~ Chinese restaurant process

Continuous heterogeneity (random effects) is one cluster of all users with m_0 = 0. Complete pooling is τ² → 0 with one
cluster, no pooling is ρ² → 0 with τ² > 0.

=================  ==============================================================================================
symbol             in the code
=================  ==============================================================================================
z, y, weight       `Design.X`, `Design.y`, `Design.weight`; rows sorted by user
τ², ρ², σ²         `Population.within`, `between`, `top`
R, m_0             `Population.root`, `Population.m0`
r_uk               `share` (U, C): responsibilities of C components, of which the last one is "singleton"
τ̃_i, ν̃_i           `Sites.tau`, `Sites.nu`: natural parameters of the Gaussian site of row i
Λ_u, η_u           user's likelihood as a Gaussian factor: Λ = Σ τ̃ xxᵀ, η = Σ ν̃ x with x = Rᵀz
G_u                (I + τ² Λ_u)⁻¹, so that E[t_u | m_k] = G_u (m_k + τ² η_u)
A_u, a_u           Λ_u G_u and G_u η_u: the user's message to its group mean
m_k, S_k           `Groups.means`, `Groups.covs`: posterior of the group means
=================  ==============================================================================================

Inference is empirical Bayes: expectation propagation for the answers (Minka, 2001: cavity, tilted moments, damped
update), Gaussian messages from users to group means and back, MacKay's fixed point for τ², ρ², σ² (1992; with the
uncertainty of the group means taken out of the degrees of freedom), minorise-maximise steps for R Rᵀ (Zhou et al.,
2019), agglomeration of clusters by marginal likelihood (Heller and Ghahramani, 2005) and leave-one-out reassignment
(Asuncion et al., 2009: CVB0; Neal, 2000, for the prior over partitions), and MacKay's moderated output for predictions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray

__all__ = [
    *("GAUSSIAN", "Design", "Gaussian", "Groups", "Likelihood", "Population", "PopulationLaw"),
    *("in_units_of", "with_variances"),
]


class Likelihood(Protocol):
    """How an answer depends on its margin."""

    def tilted(
        self, y: FloatArray, power: FloatArray, mean: FloatArray, variance: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """log E p(y | m)^power under m ~ N(mean, variance), and its first two derivatives in `mean`, row by row."""


class PopulationLaw(Protocol):
    """The law of a user around the group mean, as a scale mixture of normal laws."""

    def spread(self, deviation: FloatArray, d: int) -> FloatArray:
        """(U,) factor on each user's variance, from E|t_u − m_k|² / τ² of d features."""


class Gaussian:
    """Users are normal around the group mean."""

    def spread(self, deviation: FloatArray, d: int) -> FloatArray:  # noqa: ARG002
        """One for everybody."""
        return np.ones_like(deviation)


GAUSSIAN: PopulationLaw = Gaussian()


@dataclass(frozen=True, eq=False)
class Design:
    """Comparisons sorted by user: row i is about the difference X[i], and user u owns rows starts[u]:starts[u + 1]."""

    likelihood: Likelihood  # of an answer given its margin
    X: FloatArray  # (n, d)
    y: FloatArray  # (n,) 1 where the first was preferred
    weight: FloatArray  # (n,)
    starts: IntArray  # (U + 1,)
    offset: FloatArray  # (n,) log-odds that are given

    @classmethod
    def of(
        cls, likelihood: Likelihood, X: FloatArray, y: FloatArray, weight: FloatArray, starts: IntArray,
        offset: FloatArray | None = None,
    ) -> Self:  # fmt: skip
        """Rows of weight 0 are dropped."""
        offset = np.zeros(len(y)) if offset is None else offset
        whole = cls(likelihood, np.ascontiguousarray(X, dtype=np.float64), y, weight, starts, offset)
        return whole if (weight > 0).all() else whole.take(weight > 0)

    @property
    def n_users(self) -> int:
        """U."""
        return len(self.starts) - 1

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.X.shape[1]

    @cached_property
    def owner(self) -> IntArray:
        """(n,) the user of each row."""
        return np.repeat(np.arange(self.n_users), np.diff(self.starts))

    @cached_property
    def size(self) -> float:
        """Mean square length of the rows, counted by weight."""
        squares = np.einsum("ij,ij->i", self.X, self.X)
        return float(self.weight @ squares / max(self.weight.sum(), 1e-300)) or 1.0

    def with_root(self, root: FloatArray | None) -> Design:
        """The rows for t instead of θ = R t."""
        return self if root is None else replace(self, X=in_units_of(root, self.X))

    def take(self, rows: Any) -> Self:
        """Some rows, given by a mask; all users stay."""
        before = np.concatenate([[0], np.cumsum(rows)])
        return self._of_rows(rows, before[self.starts])

    def rows_of(self, who: IntArray) -> tuple[IntArray, IntArray]:
        """Positions of the rows of some users, one user after the other, and where each user's begin among them."""
        counts = np.diff(self.starts)[who]
        starts = np.concatenate([[0], np.cumsum(counts)])
        return np.repeat(self.starts[who] - starts[:-1], counts) + np.arange(starts[-1]), starts

    def users(self, who: IntArray) -> Self:
        """Some users."""
        return self._of_rows(*self.rows_of(who))

    def between(self, users: slice) -> Self:
        """Consecutive users, as views."""
        starts = self.starts[users.start : users.stop + 1]
        return self._of_rows(slice(int(starts[0]), int(starts[-1])), starts - starts[0])

    def _of_rows(self, rows: Any, starts: IntArray) -> Self:
        return replace(
            self, X=self.X[rows], y=self.y[rows], weight=self.weight[rows], starts=starts, offset=self.offset[rows]
        )


def in_units_of(root: FloatArray, X: FloatArray) -> FloatArray:
    """Rᵀx of each row; R is a matrix, or its diagonal."""
    return X * root if root.ndim == 1 else np.ascontiguousarray(X @ root)


@dataclass(frozen=True, eq=False)
class Population:
    """Hyperparameters."""

    within: float  # τ²
    between: float  # ρ²
    top: float  # σ²
    m0: FloatArray  # (d,)
    root: FloatArray | None = None  # R: (d,), (d, d), or None for the identity
    clustered: bool = False
    partition: Any = None  # prior over partitions, where clustered
    law: PopulationLaw = GAUSSIAN  # of a user around the group mean

    def variances(self, n_components: int) -> FloatArray:
        """(C,) of t around m_c in each component; the last one of clustered users is "singleton"."""
        variance = np.full(n_components, self.within)
        if self.clustered:
            variance[-1] = self.within + self.between
        return variance

    def preferences(self, t: FloatArray) -> FloatArray:
        """θ = R t of each row of t."""
        if self.root is None:
            return t
        return t * self.root if self.root.ndim == 1 else t @ self.root.T

    def covariance(self, C: FloatArray) -> FloatArray:
        """R C Rᵀ, of one matrix or a batch."""
        if self.root is None:
            return C
        if self.root.ndim == 1:
            return C * self.root[:, None] * self.root
        return self.root @ C @ self.root.T


def with_variances(population: Population, within: float, between: float) -> Population:
    """Both variances multiplied; where R is a matrix, it holds the scale."""
    if population.root is None or population.root.ndim == 1:
        return replace(population, within=population.within * within, between=population.between * between)
    root = population.root * np.sqrt(within)
    return replace(population, root=root, between=population.between * between / within)


class Groups(NamedTuple):
    """Posterior of the group means; the last component of clustered users is "singleton", around m_0."""

    means: FloatArray  # (C, d)
    covs: FloatArray  # (C, d, d)
    m0: FloatArray  # (d,) posterior mean of m_0
    m0_cov: FloatArray  # (d, d)
    known: float = 0.0  # Σ_k tr of the message precision, and
    squares: float = 0.0  # Σ_k |score|²: what the M-step of ρ² needs
