"""Estimates with many features that are hard: Newton's method with conjugate gradients inside, to float64's digits."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefkin.inference.kernels.arithmetic import add_rows, aligned, answer_slopes, dot, kernel, largest_of
from prefkin.inference.kernels.many_features import advance, advance_light, searched

LINE_SLOPE = 0.5  # a step is too long, or too short, when the slope along it has not fallen to this part


@kernel
def _bend(Z: Any, slope: Any, vector: Any, out: Any) -> None:
    """out = Zᵀ diag(slope) Z vector in one pass."""
    n, d = Z.shape
    out[:] = 0
    for i in range(n):
        row, along = Z[i], np.float32(0)
        for j in range(d):
            along += row[j] * vector[j]
        along *= slope[i]
        for j in range(d):
            out[j] += along * row[j]


@kernel
def newton_cg(
    Z: Any,
    light: Any,
    side: Any,
    weights: Any,
    squares: Any,
    zero: Any,
    ridge: float,
    tol: float,
    theta: Any,
    work: Any,
) -> None:
    """One estimate with many features, by Newton's method with conjugate gradients inside.

    `light` is Z in float32, `squares` and `zero` are from `note_rows`. `light` serves until the gradient is below the
    tolerance; then the gradient is taken on Z itself, in float64, and further steps use Z where that says so. Products
    with the Hessian, of which there are most, only choose directions and are float32 throughout.
    `theta` holds the start and receives the estimate; `work` the Newton steps, passes over `light`, passes over Z, and
    whether the tolerance of `descend` was reached.
    """
    n, d = Z.shape
    margin, change, pull, slope = np.zeros(n), np.zeros(n), np.empty(n), np.empty(n)
    gradient, step, residual, direction, scale = np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d)
    light_slope, light_direction, light_image = aligned(n), aligned(d), aligned(d)
    for j in range(d):
        scale[j] = 1.0 / (squares[j] + ridge)
        gradient[j] = zero[j]
    passes, exact, steps, fine, fresh = 0, 0, 0, False, False
    whole = largest_of(zero, d)
    limit = tol * whole
    if largest_of(theta, d) > 0.0:
        for j in range(d):
            gradient[j] = ridge * theta[j]
            light_direction[j] = theta[j]
        advance_light(light, side, weights, light_direction, margin, change, pull, light_image, gradient)
        passes += 1
    now = largest_of(gradient, d)
    while steps < 60:
        if now <= (limit if fine else 0.8 * limit):
            if fine and fresh:
                break
            fine = fresh = True  # margins that were carried along are taken anew before the end
            margin[:] = 0.0
            for j in range(d):
                gradient[j] = ridge * theta[j]
            advance(Z, side, weights, theta, margin, change, pull, gradient)
            exact += 1
            now = largest_of(gradient, d)
            continue
        answer_slopes(margin, weights, pull, slope, n)
        for i in range(n):
            light_slope[i] = slope[i]
        # H step = −gradient, the more accurately the nearer the optimum is, but no further than is wanted
        size = 0.0
        for j in range(d):
            step[j] = 0.0
            residual[j] = -gradient[j]
            direction[j] = scale[j] * residual[j]
            size += residual[j] * direction[j]
        enough = max(min(0.3, np.sqrt(now / whole)) * now, 0.3 * limit)
        for _ in range(4 * d):
            for j in range(d):
                light_direction[j] = direction[j]
            _bend(light, light_slope, light_direction, light_image)
            passes += 1
            along = ridge * dot(direction, direction, d)
            for j in range(d):
                along += light_image[j] * direction[j]
            length = size / along
            largest, former, size = 0.0, size, 0.0
            for j in range(d):
                step[j] += length * direction[j]
                residual[j] -= length * (light_image[j] + ridge * direction[j])
                size += residual[j] * residual[j] * scale[j]
                largest = max(largest, abs(residual[j]))
            if largest <= enough:
                break
            for j in range(d):
                direction[j] = scale[j] * residual[j] + size / former * direction[j]
        incline, own, along = dot(gradient, step, d), dot(step, step, d), dot(theta, step, d)
        for j in range(d):
            gradient[j] = ridge * (theta[j] + step[j])
        if fine:
            advance(Z, side, weights, step, margin, change, pull, gradient)
            exact += 1
        else:
            for j in range(d):
                light_direction[j] = step[j]
            advance_light(light, side, weights, light_direction, margin, change, pull, light_image, gradient)
            passes += 1
        taken = searched(margin, change, weights, pull, slope, ridge, incline, own, along, LINE_SLOPE)
        for j in range(d):
            theta[j] += taken * step[j]
        if taken != 1.0:
            for j in range(d):
                gradient[j] = ridge * theta[j]
            if fine:
                add_rows(Z, side, pull, gradient)
                exact += 1
            else:
                add_rows(light, side, pull, gradient)
                passes += 1
        steps += 1
        fresh = False
        now = largest_of(gradient, d)
    work[0], work[1], work[2], work[3] = steps, passes, exact, fresh and now <= limit < np.inf
