"""What a user's quadratic has to tell, in whichever form it is kept.

A user's log-likelihood, made of sites, is

    log p(answers | θ) ≈ const + cᵀθ − θᵀHθ/2,   H = Σ precision x xᵀ,   c = Σ pull x.

A Gaussian prior N(m, τ² I) on θ can be integrated out exactly, which leaves a quadratic in m,

    level + aᵀm − mᵀAm/2,   G = (I + τ²H)⁻¹,   A = H G,   a = G c,   level = const + (τ² cᵀa − log|I + τ²H|) / 2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from prefkin.data.arrays import FloatArray, IntArray

__all__ = ["Quadratic", "Quadratics"]

HELD = 1 << 25  # numbers: matrices of all users are held for the next use if they are fewer


class Quadratic(ABC):
    """One user's."""

    @abstractmethod
    def shrink(self, variance: float) -> FloatArray:
        """Eigenvalues of G: how much of the prior is left, along each direction in which there are answers."""

    @abstractmethod
    def keep(self, rows: FloatArray, variance: float) -> FloatArray:
        """G row for each row: how a change of the prior's mean reaches the posterior mean; τ² G is the covariance."""

    @abstractmethod
    def posterior_mean(self, mean: FloatArray, variance: float) -> FloatArray:
        """E θ when θ ~ N(mean, τ² I)."""


class Quadratics(ABC):
    """Many users'."""

    held: dict[float, tuple[FloatArray, ...]]  # terms of everybody for a τ² that is asked for several times

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of features."""

    @abstractmethod
    def one(self, user: int) -> Quadratic:
        """A single user's, as views."""

    @abstractmethod
    def between(self, users: slice) -> Quadratics:
        """Those at consecutive positions, as views."""

    @abstractmethod
    def some(self, users: IntArray) -> Quadratics:
        """A few, in the order given."""

    @abstractmethod
    def levels(self, variance: float) -> FloatArray:
        """log ∫ exp(quadratic) N(θ; 0, τ² I) dθ of everybody, (U,)."""

    @abstractmethod
    def pulls(self, variance: float) -> FloatArray:
        """a of everybody, the linear term in the prior's mean, (U, d)."""

    @abstractmethod
    def curvatures(self, variance: float) -> FloatArray:
        """A of everybody, the information about the prior's mean, (U, d, d)."""

    @abstractmethod
    def curvatures_of(self, variance: float, shares: FloatArray) -> FloatArray:
        """Σ_u share_u A_u for each column of shares, (K, d, d); at most one user's matrix is made at a time."""

    @abstractmethod
    def explained(self, means: FloatArray, variance: float) -> FloatArray:
        """aᵀm − mᵀAm/2 of everybody for each m, (U, n): what a prior's mean adds to the evidence."""

    @abstractmethod
    def posterior_means(self, means: FloatArray, variance: float, trust: FloatArray) -> FloatArray:
        """trust × E θ when θ ~ N(means / trust, τ² I), for everybody at once, (U, d)."""

    @abstractmethod
    def expect(self, variance: float) -> None:
        """Several terms for this τ² are about to be asked for: hold what it would take long to make again."""

    @abstractmethod
    def hold(self, variance: float) -> None:
        """Hold everybody's terms for this τ² instead of any other's, if there is room."""

    def evidences(self, mean: FloatArray, variance: float) -> FloatArray:
        """log ∫ exp(quadratic) N(θ; mean, τ² I) dθ of everybody, (U,)."""
        explained = self.explained(mean[None], variance)[:, 0]  # first: levels may come with it
        return self.levels(variance) + explained

    @property
    def may_hold(self) -> bool:
        """Whether everybody's matrix may be held in memory."""
        return len(self) * self.dim**2 <= HELD
