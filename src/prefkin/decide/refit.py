"""The estimate after each answer, without fitting from the start.

One more row moves the optimum a little. Its gradient at the old optimum is known, the inverse Hessian of some rounds
ago tells where to go, and L-BFGS on top makes up for what has changed since: two passes over the rows a step, and
about three steps an answer. The gradient that ends it is computed from all rows in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dsymv, dsyr
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.special import expit

from prefkin.data.arrays import FloatArray
from prefkin.data.rows import Rows
from prefkin.inference.estimate import fit_preference

__all__ = ["RunningEstimate"]

FLAT = 1e-7  # largest gradient entry at which an estimate is done, relative to that at θ = 0
ROUNDING = 1e-14  # below this share of what is summed up, a gradient is nothing but rounding
MOST_STEPS = 30  # then the optimum is left to `fit_preference`, which is slower and always arrives
USUAL_STEPS = 3  # with a metric that is up to date
STEPS_PER_FEATURE = 1 / 8  # so many steps take as long as a new metric does, measured at d = 768


class Metric(NamedTuple):
    """Which Hessian the steps are measured by."""

    rows: int  # how many it was computed from; later ones were added one by one
    theta: FloatArray  # (d,) where
    wasted: int  # steps since, beyond the usual ones


class RunningEstimate:
    """argmin of Σ w_i log(1 + exp(∓(z_iᵀθ + offset_i))) + ridge/2 ‖θ‖², as rows come in one at a time.

    After each `hear` the largest entry of the gradient is below 1e-6 of that at θ = 0. What comes next depends on
    rows, θ and `metric` alone, so that a conversation can be taken up again to the last bit.

    >>> estimate = RunningEstimate(Rows(np.eye(2), np.ones(2), np.ones(2)), np.zeros(2), ridge=1.0)
    >>> estimate.hear(np.array([1.0, 1.0]), 0.0)
    >>> np.allclose(estimate.theta, fit_preference(estimate.rows, ridge=1.0), atol=1e-6)
    True
    """

    def __init__(self, rows: Rows, theta: FloatArray, *, ridge: float) -> None:
        self.theta, self.ridge = np.array(theta, dtype=np.float64), ridge
        self.n = len(rows.y)
        room = self.n + self.n // 4 + 16
        self._Z: FloatArray = np.empty((room, len(self.theta)))
        self._y, self._weights, self._offset = np.empty(room), np.empty(room), np.zeros(room)
        self._Z[: self.n], self._y[: self.n], self._weights[: self.n] = rows
        self.metric = Metric(self.n, self.theta, 0)
        self._inverse: FloatArray | None = None  # of the Hessian in this metric, lower half, Fortran order
        self._gradient: FloatArray | None = None  # at theta
        self._at_zero = self._slope(np.zeros_like(self.theta), self.n)
        self._size = float(rows.weights @ np.abs(rows.Z).max(axis=1, initial=0.0))  # of what gradients are summed from

    @property
    def rows(self) -> Rows:
        """All that was heard, as views."""
        return Rows(self._Z[: self.n], self._y[: self.n], self._weights[: self.n])

    def hear(self, z: FloatArray, y: float, offset: float = 0.0) -> None:
        """Take one more row; if this is interrupted, nothing has changed."""
        n = self._write(z, y, offset)
        if self._inverse is None:
            self._inverse = self._inverse_hessian()
        if self._gradient is None:
            self._gradient = self._slope(self.theta, self.n)
        image = dsymv(1.0, self._inverse, z, lower=1)
        weight = _curvature(float(z @ self.metric.theta) + offset)
        gain = weight / (1.0 + weight * float(z @ image))  # Sherman-Morrison
        at_zero, size = self._scale_with(z, y, offset)
        gradient = self._gradient + _row_slope(self.theta, z, y, offset)
        goal = max(FLAT * float(np.abs(at_zero).max()), ROUNDING * size)
        theta, gradient, steps = self._descend(gradient, n, goal, image, gain)
        wasted = self.metric.wasted + max(0, steps - USUAL_STEPS)
        # nothing has changed so far
        self.n, self.theta, self._gradient, self._at_zero, self._size = n, theta, gradient, at_zero, size
        if wasted > STEPS_PER_FEATURE * len(theta):
            self.metric, self._inverse = Metric(n, theta, 0), None
        else:
            self.metric = self.metric._replace(wasted=wasted)
            dsyr(-gain, image, a=self._inverse, lower=1, overwrite_a=1)

    def add(self, z: FloatArray, y: float, offset: float = 0.0) -> None:
        """Take one more row, and leave the estimate where it is; `move` must follow."""
        n = self._write(z, y, offset)
        self._at_zero, self._size = self._scale_with(z, y, offset)
        self.n = n

    def move(self, theta: FloatArray, metric: Metric) -> None:
        """Go on from this estimate, which is taken for the optimum of all rows."""
        self.theta, self.metric, self._inverse, self._gradient = theta, metric, None, None

    def curvature(self) -> FloatArray:
        """w_i σ′ of each row's margin at the estimate: its weight in the Hessian."""
        Z, _, weights = self.rows
        slope: FloatArray = weights * _curvature(Z @ self.theta + self._offset[: self.n])
        return slope

    def _write(self, z: FloatArray, y: float, offset: float) -> int:
        """Put a row behind those that count, and say how many there would be with it."""
        n = self.n
        if n == len(self._y):
            more = n // 2 + 16
            self._Z = np.concatenate([self._Z, np.empty((more, self._Z.shape[1]))])
            self._y, self._weights, self._offset = (
                np.concatenate([part, np.empty(more)]) for part in (self._y, self._weights, self._offset)
            )
        self._Z[n], self._y[n], self._weights[n], self._offset[n] = z, y, 1.0, offset
        return n + 1

    def _scale_with(self, z: FloatArray, y: float, offset: float) -> tuple[FloatArray, float]:
        """Gradient at θ = 0 and size of its terms with one more row."""
        return self._at_zero + _row_slope(np.zeros_like(z), z, y, offset), self._size + float(np.abs(z).max())

    def _slope(self, theta: FloatArray, n: int) -> FloatArray:
        """Gradient of the first n rows and the ridge."""
        Z, side = self._Z[:n], 1.0 - 2.0 * self._y[:n]
        miss = expit(side * (Z @ theta + self._offset[:n]))
        gradient: FloatArray = (self._weights[:n] * side * miss) @ Z + self.ridge * theta
        return gradient

    def _inverse_hessian(self) -> FloatArray:
        """At `metric`, by Cholesky; rows since then one by one, as they were when they came."""
        n, theta, _ = self.metric
        Z = self._Z[:n]
        scaled = Z * np.sqrt(self._weights[:n] * _curvature(Z @ theta + self._offset[:n]))[:, None]
        hessian = scaled.T @ scaled
        hessian[np.diag_indices_from(hessian)] += self.ridge
        factor, failed = dpotrf(hessian.T, lower=1, overwrite_a=1)
        if failed:
            return np.asfortranarray(np.eye(len(theta)) / self.ridge)
        inverse: FloatArray = dpotri(factor, lower=1, overwrite_c=1)[0]
        for z, offset in zip(self._Z[n : self.n], self._offset[n : self.n], strict=True):
            image, weight = dsymv(1.0, inverse, z, lower=1), _curvature(float(z @ theta) + offset)
            dsyr(-weight / (1.0 + weight * float(z @ image)), image, a=inverse, lower=1, overwrite_a=1)
        return inverse

    def _descend(
        self, gradient: FloatArray, n: int, goal: float, image: FloatArray, gain: float
    ) -> tuple[FloatArray, FloatArray, int]:
        """The optimum of the first n rows, its gradient, and the steps it took from θ and the gradient there.

        L-BFGS whose first metric is the inverse Hessian with the last row in it, P − gain · image imageᵀ.
        """
        theta = self.theta
        past: list[tuple[FloatArray, FloatArray, float]] = []
        for steps in range(MOST_STEPS):
            if float(np.abs(gradient).max()) <= goal:
                return theta, gradient, steps
            step, shares = gradient.copy(), []
            for moved, bent, scale in reversed(past):
                shares.append(scale * float(moved @ step))
                step -= shares[-1] * bent
            step = dsymv(1.0, self._inverse, step, lower=1) - gain * float(image @ step) * image
            for moved, bent, scale in past:
                step += (shares.pop() - scale * float(bent @ step)) * moved
            before, theta = gradient, theta - step
            gradient = self._slope(theta, n)
            bend = float(step @ (before - gradient))
            if not bend > 0.0:  # of a convex function it is, but for rounding
                break
            past.append((-step, gradient - before, 1.0 / bend))
        rows = Rows(self._Z[:n], self._y[:n], self._weights[:n])
        theta = fit_preference(rows, ridge=self.ridge, start=self.theta, offset=self._offset[:n])
        return theta, self._slope(theta, n), MOST_STEPS


def _curvature(margin: Any) -> Any:
    """σ′."""
    return expit(margin) * expit(-margin)


def _row_slope(theta: FloatArray, z: FloatArray, y: float, offset: float) -> FloatArray:
    """Gradient of one row of weight 1."""
    side = 1.0 - 2.0 * y
    slope: FloatArray = side * expit(side * (float(z @ theta) + offset)) * z
    return slope
