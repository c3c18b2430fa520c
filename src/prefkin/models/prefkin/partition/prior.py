"""The prior over partitions: the only code that knows the Chinese restaurant process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, gammaln

from prefkin.data.arrays import FloatArray

__all__ = ["ChineseRestaurant", "PartitionPrior"]


class PartitionPrior(Protocol):
    """What a search asks of a prior over partitions."""

    @property
    def singleton(self) -> float:
        """Log weight of a cluster of one's own."""

    def log_weights(self, sizes: FloatArray) -> FloatArray:
        """Log weights of joining clusters of these sizes."""

    def merge_gain(self, one: FloatArray, other: FloatArray) -> FloatArray:
        """Change of the log probability when clusters of these sizes become one."""

    def log_prob(self, sizes: FloatArray) -> float:
        """Log probability of a partition into clusters of these sizes."""

    def fitted(self, sizes: FloatArray) -> Self:
        """The prior whose hyperparameters suit clusters of these sizes."""


@dataclass(frozen=True)
class ChineseRestaurant:
    """p(z) = α^K Π Γ(n_k) Γ(α) / Γ(α + n).

    >>> two = ChineseRestaurant(1.0)
    >>> round(float(np.exp(two.log_prob(np.array([2.0])))), 3), round(float(np.exp(two.log_prob(np.ones(2)))), 3)
    (0.5, 0.5)
    """

    concentration: float = 1.0

    @property
    def singleton(self) -> float:
        """log α."""
        return float(np.log(self.concentration))

    def log_weights(self, sizes: FloatArray) -> FloatArray:
        """log n_k."""
        return np.log(np.maximum(sizes, 1e-300))

    def merge_gain(self, one: FloatArray, other: FloatArray) -> FloatArray:
        """log Γ(n + n′) − log Γ(n) − log Γ(n′) − log α."""
        return gammaln(one + other) - gammaln(one) - gammaln(other) - self.singleton

    def log_prob(self, sizes: FloatArray) -> float:
        """Of a partition into clusters of these sizes."""
        alpha, n = self.concentration, float(np.sum(sizes))
        return float(len(sizes) * np.log(alpha) + gammaln(sizes).sum() + gammaln(alpha) - gammaln(alpha + n))

    def fitted(self, sizes: FloatArray) -> ChineseRestaurant:
        """With the likeliest α, one pseudo-cluster among e users keeping it from 0."""
        n, K = float(np.sum(sizes)), len(sizes)

        def slope(log_alpha: float) -> float:
            alpha = np.exp(log_alpha)
            return float(K - alpha * (digamma(alpha + n) - digamma(alpha)) - log_alpha)

        return ChineseRestaurant(float(np.exp(brentq(slope, -20.0, 20.0))))
