"""The estimate after each answer, without fitting from the start.

One more row moves the optimum a little. Its gradient at the old optimum is known, the inverse Hessian of some rounds
ago tells where to go, and L-BFGS on top makes up for what has changed since: about four steps an answer. Steps and
what they change are computed in float32, which is as good as float64 for small changes; that the optimum was reached
is decided by the step to which a gradient of all rows in float64 leads. What float32 has too few digits for is left to
`fit_preference`: an inverse Hessian that was rounded gives steps that are too long, never such that are too short.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import ssymv, ssyr
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.special import expit

from prefkin.data.arrays import FloatArray
from prefkin.data.rows import Rows
from prefkin.inference.estimate import fit_preference
from prefkin.inference.loss import unit_root

__all__ = ["Metric", "RunningEstimate"]

CLOSE = 1e-7  # of its length, in features free of units: an estimate is done when a step is no longer
SAME = 1e-4  # of its length: so far what a saved session says of its answers may be from what is found here
MOST_STEPS = 30  # then the optimum is left to `fit_preference`, which is slower and always arrives
USUAL_STEPS = 4  # with a metric that is up to date
BALANCING = 4  # Newton steps in one dimension
STEPS_PER_FEATURE = 1 / 16  # so many steps take as long as a new metric does, measured at d = 768


_BEYOND_FLOAT32 = np.errstate(over="ignore", invalid="ignore")  # becomes infinite, and is left to `fit_preference`


class Metric(NamedTuple):
    """Which Hessian the steps are measured by."""

    rows: int  # how many it was computed from; later ones were added one by one
    theta: FloatArray  # (d,) where
    wasted: int  # steps since, beyond the usual ones


class _Point(NamedTuple):
    """A preference, and what the rows say about it."""

    theta: FloatArray  # (d,)
    margin: FloatArray  # (n,) zᵀθ + offset
    pull: FloatArray  # (n,) derivative of each row's loss by its margin
    gradient: FloatArray  # (d,)


class RunningEstimate:
    """argmin of Σ w_i log(1 + exp(∓(z_iᵀθ + offset_i))) + ridge/2 ‖θ‖², as rows come in one at a time.

    After each `hear` the estimate is right to `loss.TOLERANCE`. What comes next depends on rows, θ and `metric` alone,
    so that a conversation can be taken up again to the last bit.

    >>> estimate = RunningEstimate(Rows(np.eye(2), np.ones(2), np.ones(2)), np.zeros(2), ridge=1.0)
    >>> estimate.hear(np.array([1.0, 1.0]), 0.0)
    >>> np.allclose(estimate.theta, fit_preference(estimate.rows, ridge=1.0), atol=1e-6)
    True
    """

    @_BEYOND_FLOAT32
    def __init__(self, rows: Rows, theta: FloatArray, *, ridge: float) -> None:
        self.theta, self.ridge = np.array(theta, dtype=np.float64), ridge
        self.n, d = rows.Z.shape
        room = self.n + self.n // 4 + 16
        self._Z: FloatArray = np.empty((room, d))
        self._light = np.empty((room, d), dtype=np.float32)  # the same
        self._y, self._weights, self._offset = np.empty(room), np.empty(room), np.zeros(room)
        self._Z[: self.n], self._y[: self.n], self._weights[: self.n] = rows
        self._light[: self.n] = rows.Z
        self.metric = Metric(self.n, self.theta, 0)
        self._inverse: Any = None  # of the Hessian in this metric: its lower triangle, float32, Fortran order
        self._point: _Point | None = None  # at theta
        self._squares = rows.weights @ np.square(rows.Z, dtype=np.float64)  # Σ w z²

    @property
    def rows(self) -> Rows:
        """All that was heard, as views."""
        return self._first(self.n)

    def curvature(self) -> FloatArray:
        """w_i σ′ of each row's margin at the estimate: its weight in the Hessian."""
        return self._curvature(self.theta, self.n)

    @_BEYOND_FLOAT32
    def hear(self, z: FloatArray, y: float, offset: float = 0.0) -> None:
        """Take one more row; if this is interrupted, nothing has changed."""
        n = self._write(z, y, offset)
        if self._inverse is None:
            self._inverse = self._inverse_hessian()
        if self._point is None:
            self._point = self._look(self.theta, self.n)
        image, gain = self._hears(z, offset)
        squares = self._squares + z * z
        point, steps = self._descend(self._point_with(z, y, offset), unit_root(squares, self.ridge), image, y)
        wasted = self.metric.wasted + max(0, steps - USUAL_STEPS)
        # nothing has changed so far
        self.n, self.theta, self._point, self._squares = n, point.theta, point, squares
        if wasted > STEPS_PER_FEATURE * len(z):
            self.metric, self._inverse = Metric(n, point.theta, 0), None
        else:
            self.metric = self.metric._replace(wasted=wasted)
            ssyr(-gain, image, a=self._inverse, lower=1, overwrite_a=1)

    @_BEYOND_FLOAT32
    def add(self, z: FloatArray, y: float, offset: float = 0.0) -> None:
        """Take one more row, and leave the estimate where it is; `move` must follow."""
        self.n, self._squares = self._write(z, y, offset), self._squares + z * z

    @_BEYOND_FLOAT32
    def move(self, theta: FloatArray, metric: Metric) -> None:
        """Go on from this estimate, which was the optimum of all rows; ValueError if it was not."""
        self.theta, self.metric, self._inverse, self._point = theta, metric, None, self._look(theta, self.n)
        unit = 1.0 / unit_root(self._squares, self.ridge)
        self._inverse = self._inverse_hessian()
        step = self._by_inverse(self._point.gradient)
        if not np.linalg.norm(step * unit) <= SAME * np.linalg.norm(theta * unit):  # or float32 had too few digits
            right = fit_preference(self.rows, ridge=self.ridge, start=theta, offset=self._offset[: self.n])
            if not np.linalg.norm((theta - right) * unit) <= SAME * np.linalg.norm(right * unit):
                raise ValueError("the estimate does not follow from the answers")

    def _first(self, n: int) -> Rows:
        return Rows(self._Z[:n], self._y[:n], self._weights[:n])

    def _write(self, z: FloatArray, y: float, offset: float) -> int:
        """Put a row behind those that count, and say how many there would be with it."""
        n = self.n
        if n == len(self._y):
            wide, long = np.empty((n // 2 + 16, len(z))), np.empty(n // 2 + 16)
            self._Z, self._light = np.vstack([self._Z, wide]), np.vstack([self._light, wide.astype(np.float32)])
            self._weights, self._offset = np.append(self._weights, long), np.append(self._offset, long)
            self._y = np.append(self._y, long)
        self._light[n] = z
        self._Z[n], self._y[n], self._weights[n], self._offset[n] = z, y, 1.0, offset
        return n + 1

    def _point_with(self, z: FloatArray, y: float, offset: float) -> _Point:
        """The point that was the optimum, with one more row."""
        assert self._point is not None
        theta, margin, pull, gradient = self._point
        margin = np.append(margin, z @ theta + offset)
        pull = np.append(pull, _pull(margin[-1], y))
        return _Point(theta, margin, pull, gradient + pull[-1] * z)

    def _look(self, theta: FloatArray, n: int) -> _Point:
        """What the first n rows say about θ."""
        Z, y, weights = self._first(n)
        margin = Z @ theta + self._offset[:n]
        pull = weights * _pull(margin, y)
        return _Point(theta, margin, pull, pull @ Z + self.ridge * theta)

    def _step(self, point: _Point, step: FloatArray) -> _Point:
        """What they say about θ − step: the change in float32."""
        n = len(point.margin)
        _, y, weights = self._first(n)
        margin = point.margin - self._light[:n] @ step.astype(np.float32)
        pull = weights * _pull(margin, y)
        change = (pull - point.pull).astype(np.float32) @ self._light[:n]
        return _Point(point.theta - step, margin, pull, point.gradient + change - self.ridge * step)

    def _descend(self, point: _Point, root: FloatArray, image: Any, y: float) -> tuple[_Point, int]:
        """The optimum of all rows of `point`, the last of which is new and answered `y`, and the steps it took.

        Were the loss of all others quadratic, with inverse Hessian P, the optimum would lie where the new row pulls,
        along its `image` Pz: that is the first step. From there L-BFGS, whose first metric is P with the new row in it.
        Features times `root` are free of units.
        """
        n = len(point.margin)
        past: list[tuple[FloatArray, FloatArray, float]] = []
        spread = float(self._Z[n - 1] @ image)
        length, weight = _balance(float(point.margin[-1]), spread, y)
        gain = weight / (1.0 + weight * spread)
        step = length * image.astype(np.float64)
        size = float(np.linalg.norm(step / root))
        point, steps, exact = self._step(point, step), 1, False
        while steps < MOST_STEPS:
            step, shares = point.gradient.copy(), []
            for moved, bent, scale in reversed(past):
                shares.append(scale * float(moved @ step))
                step -= shares[-1] * bent
            step = (self._by_inverse(step) - gain * (image @ step) * image).astype(np.float64)
            for moved, bent, scale in past:
                step += (shares.pop() - scale * float(bent @ step)) * moved
            last, size = size, float(np.linalg.norm(step / root))
            goal = CLOSE * float(np.linalg.norm((point.theta - step) / root))
            if size <= goal:
                if exact:
                    return point, steps
                point, exact = self._look(point.theta, n), True
                continue
            steps, before, exact = steps + 1, point, size * size <= goal * last  # another step like the last arrives
            point = self._look(point.theta - step, n) if exact else self._step(point, step)
            bent = before.gradient - point.gradient
            bend = float(step @ bent)
            if not bend > 0.0:  # of a convex function it is, but for rounding
                break
            past.append((step, bent, 1.0 / bend))
        theta = fit_preference(self._first(n), ridge=self.ridge, start=self.theta, offset=self._offset[:n])
        return self._look(theta, n), MOST_STEPS

    def _curvature(self, theta: FloatArray, n: int) -> FloatArray:
        Z, _, weights = self._first(n)
        curvature: FloatArray = weights * _slope(Z @ theta + self._offset[:n])
        return curvature

    def _inverse_hessian(self) -> Any:
        """At `metric`, by Cholesky; rows since then one by one, as they were when they came."""
        n, theta, _ = self.metric
        scaled = self._Z[:n] * np.sqrt(self._curvature(theta, n))[:, None]
        hessian = scaled.T @ scaled
        hessian[np.diag_indices_from(hessian)] += self.ridge
        factor, failed = dpotrf(hessian.T, lower=1, overwrite_a=1)
        half = np.eye(len(theta)) / self.ridge if failed else dpotri(factor, lower=1, overwrite_c=1)[0]
        self._inverse = np.asfortranarray(half, dtype=np.float32)
        for z, offset in zip(self._Z[n : self.n], self._offset[n : self.n], strict=True):
            image, gain = self._hears(z, offset)
            ssyr(-gain, image, a=self._inverse, lower=1, overwrite_a=1)
        return self._inverse

    def _by_inverse(self, vector: FloatArray) -> Any:
        """The inverse Hessian × vector, in float32."""
        return ssymv(1.0, self._inverse, vector.astype(np.float32), lower=1)

    def _hears(self, z: FloatArray, offset: float) -> tuple[Any, float]:
        """Sherman-Morrison: with this row the inverse Hessian P is less by gain · image imageᵀ."""
        image = self._by_inverse(z)
        weight = _slope(z @ self.metric.theta + offset)
        return image, float(weight / (1.0 + weight * (z @ image)))


def _pull(margin: Any, y: Any) -> Any:
    """σ(margin) − y, to full relative accuracy."""
    side = 1.0 - 2.0 * y
    return side * expit(side * margin)


def _balance(margin: float, spread: float, y: float) -> tuple[float, float]:
    """t with t = σ(margin − t · spread) − y, by Newton's method, and σ′ there.

    >>> t, _ = _balance(0.5, 2.0, 1.0)
    >>> bool(abs(t - (expit(0.5 - 2.0 * t) - 1.0)) < 1e-6)
    True
    """
    t = 0.0
    for _ in range(BALANCING):
        pull, slope = float(_pull(margin - t * spread, y)), float(_slope(margin - t * spread))
        t -= (t - pull) / (1.0 + spread * slope)
    return t, slope


def _slope(margin: Any) -> Any:
    """σ′."""
    return expit(margin) * expit(-margin)
