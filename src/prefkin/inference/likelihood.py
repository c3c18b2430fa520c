"""Likelihoods of an answer given its margin: what expectation propagation asks of them are tilted moments."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from prefkin.data.arrays import FloatArray
from prefkin.inference import _ep_kernels
from prefkin.inference.model import Likelihood

__all__ = ["Laplace", "Logistic"]


class Logistic:
    """P(y = 1) = σ(m): σ as a mixture of normal distribution functions; σᵖ by quadrature.

    >>> log_mass, first, second = Logistic().tilted(np.ones(1), np.ones(1), np.zeros(1), np.ones(1))
    >>> round(float(log_mass[0]), 6), round(float(first[0]), 3)
    (-0.693147, 0.413)
    """

    def tilted(
        self, y: FloatArray, power: FloatArray, mean: FloatArray, variance: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """log E σ(±m)^power under m ~ N(mean, variance), and its first two derivatives in `mean`."""
        found = np.empty((3, len(y)))
        _ep_kernels.logistic_tilted(2.0 * y - 1.0, power, mean, variance, *found)
        return found[0], found[1], found[2]

    def log_likelihood(self, y: FloatArray, m: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """log σ(±m) and its first two derivatives in m."""
        side = 2.0 * y - 1.0
        miss = expit(-side * m)
        return -np.logaddexp(0.0, -side * m), side * miss, -miss * (1.0 - miss)


class Laplace:
    """Laplace's approximation of a likelihood with derivatives: the fallback where tilted moments do not converge.

    The tilted law is replaced by the normal law at its mode, so that at convergence all sites together are Laplace's
    approximation at the joint mode.
    """

    def __init__(self, likelihood: Any) -> None:
        self.likelihood = likelihood

    def tilted(
        self, y: FloatArray, power: FloatArray, mean: FloatArray, variance: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """As of `Likelihood`, by Newton's method with bisection in each row."""
        low, high = mean - power * variance, mean + power * variance
        m = mean.copy()
        for _ in range(100):
            _, slope, bend = self.likelihood.log_likelihood(y, m)
            gradient = power * slope - (m - mean) / variance
            low, high = np.where(gradient > 0, m, low), np.where(gradient > 0, high, m)
            step = m + gradient / (1.0 / variance - power * bend)
            now = np.where((step > low) & (step < high), step, 0.5 * (low + high))
            if np.abs(now - m).max(initial=0.0) < 1e-10 * (1.0 + np.abs(m).max(initial=0.0)):
                break
            m = now
        log_p, _, bend = self.likelihood.log_likelihood(y, m)
        ratio = 1.0 - power * variance * bend
        first = (m - mean) / variance
        log_mass = power * log_p - 0.5 * (m - mean) * first - 0.5 * np.log(ratio)
        return log_mass, first, (1.0 / ratio - 1.0) / variance


_: type[Likelihood] = Logistic
