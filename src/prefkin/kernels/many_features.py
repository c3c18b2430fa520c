"""Estimates with many features: Newton's method with conjugate gradients inside, one pass over the rows per product."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefkin.kernels.arithmetic import add_rows, aligned, answer_slopes, dot, kernel, largest_of

FLUSHED = 256  # rows whose sum stays in float32


@kernel
def note_rows(light: Any, side: Any, weights: Any, squares: Any, zero: Any) -> None:
    """What `newton_cg` needs to know of rows beforehand: squares += ¼ Σ w z², zero += the gradient at 0."""
    n, d = light.shape
    i = 0
    while i + 4 <= n:
        z0, z1, z2, z3 = light[i], light[i + 1], light[i + 2], light[i + 3]
        w0, w1, w2, w3 = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        p0, p1, p2, p3 = w0 * side[i], w1 * side[i + 1], w2 * side[i + 2], w3 * side[i + 3]
        for j in range(d):
            a, b, c, e = z0[j], z1[j], z2[j], z3[j]
            squares[j] += 0.25 * (w0 * a * a + w1 * b * b + w2 * c * c + w3 * e * e)
            zero[j] -= 0.5 * (p0 * a + p1 * b + p2 * c + p3 * e)
        i += 4
    while i < n:
        row, w0, p0 = light[i], weights[i], weights[i] * side[i]
        for j in range(d):
            squares[j] += 0.25 * w0 * row[j] * row[j]
            zero[j] -= 0.5 * p0 * row[j]
        i += 1


@kernel
def _advance(
    Z: Any, side: Any, weights: Any, vector: Any, margin: Any, change: Any, pull: Any, slope: Any, out: Any
) -> None:
    """In one pass: change = side · Z vector, margin += change, and there pull, slope and out += Zᵀ (side · pull)."""
    n, d = Z.shape
    for i in range(0, n, 4):
        top = min(i + 4, n)
        last = top - 1
        z0, z1, z2, z3 = Z[i], Z[min(i + 1, last)], Z[min(i + 2, last)], Z[min(i + 3, last)]
        s0 = s1 = s2 = s3 = 0.0
        for j in range(d):
            v = vector[j]
            s0 += z0[j] * v
            s1 += z1[j] * v
            s2 += z2[j] * v
            s3 += z3[j] * v
        for k in range(i, top):
            change[k] = side[k] * (s0 if k == i else s1 if k == i + 1 else s2 if k == i + 2 else s3)
            margin[k] += change[k]
        answer_slopes(margin[i:top], weights[i:top], pull[i:top], slope[i:top], top - i)
        c0 = pull[i] * side[i]
        c1 = pull[i + 1] * side[i + 1] if i + 1 < n else 0.0
        c2 = pull[i + 2] * side[i + 2] if i + 2 < n else 0.0
        c3 = pull[i + 3] * side[i + 3] if i + 3 < n else 0.0
        for j in range(d):
            out[j] += c0 * z0[j] + c1 * z1[j] + c2 * z2[j] + c3 * z3[j]


@kernel
def _advance_light(
    light: Any,
    side: Any,
    weights: Any,
    vector: Any,
    margin: Any,
    change: Any,
    pull: Any,
    slope: Any,
    part: Any,
    out: Any,
) -> None:
    """`_advance` on float32 rows and a float32 vector, eight rows at a time; `part` is room for d numbers.

    Sums of more than `FLUSHED` rows are float64.
    """
    n, d = light.shape
    done = n // 8 * 8
    part[:] = 0
    for i in range(0, done, 8):
        z0, z1, z2, z3 = light[i], light[i + 1], light[i + 2], light[i + 3]
        z4, z5, z6, z7 = light[i + 4], light[i + 5], light[i + 6], light[i + 7]
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = np.float32(0)
        for j in range(d):
            v = vector[j]
            s0 += z0[j] * v
            s1 += z1[j] * v
            s2 += z2[j] * v
            s3 += z3[j] * v
            s4 += z4[j] * v
            s5 += z5[j] * v
            s6 += z6[j] * v
            s7 += z7[j] * v
        c, m, g = change[i : i + 8], margin[i : i + 8], pull[i : i + 8]
        c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7] = s0, s1, s2, s3, s4, s5, s6, s7
        for k in range(8):
            c[k] *= side[i + k]
            m[k] += c[k]
        answer_slopes(m, weights[i : i + 8], g, slope[i : i + 8], 8)
        p0, p1 = np.float32(g[0] * side[i]), np.float32(g[1] * side[i + 1])
        p2, p3 = np.float32(g[2] * side[i + 2]), np.float32(g[3] * side[i + 3])
        p4, p5 = np.float32(g[4] * side[i + 4]), np.float32(g[5] * side[i + 5])
        p6, p7 = np.float32(g[6] * side[i + 6]), np.float32(g[7] * side[i + 7])
        for j in range(d):
            part[j] += p0 * z0[j] + p1 * z1[j] + p2 * z2[j] + p3 * z3[j]
            part[j] += p4 * z4[j] + p5 * z5[j] + p6 * z6[j] + p7 * z7[j]
        if i % FLUSHED == FLUSHED - 8:
            for j in range(d):
                out[j] += part[j]
                part[j] = np.float32(0)
    for j in range(d):
        out[j] += part[j]
    _advance(
        light[done:], side[done:], weights[done:], vector, margin[done:], change[done:], pull[done:], slope[done:], out
    )


@kernel
def _bend(Z: Any, slope: Any, vector: Any, out: Any) -> None:
    """out = Zᵀ diag(slope) Z vector in one pass, eight rows at a time while they are in the first cache."""
    n, d = Z.shape
    out[:] = 0
    i = 0
    while i + 8 <= n:
        z0, z1, z2, z3, z4, z5, z6, z7 = Z[i], Z[i + 1], Z[i + 2], Z[i + 3], Z[i + 4], Z[i + 5], Z[i + 6], Z[i + 7]
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = np.float32(0)
        for j in range(d):
            v = vector[j]
            s0 += z0[j] * v
            s1 += z1[j] * v
            s2 += z2[j] * v
            s3 += z3[j] * v
            s4 += z4[j] * v
            s5 += z5[j] * v
            s6 += z6[j] * v
            s7 += z7[j] * v
        s0, s1, s2, s3 = s0 * slope[i], s1 * slope[i + 1], s2 * slope[i + 2], s3 * slope[i + 3]
        s4, s5, s6, s7 = s4 * slope[i + 4], s5 * slope[i + 5], s6 * slope[i + 6], s7 * slope[i + 7]
        for j in range(d):
            out[j] += s0 * z0[j] + s1 * z1[j] + s2 * z2[j] + s3 * z3[j]
            out[j] += s4 * z4[j] + s5 * z5[j] + s6 * z6[j] + s7 * z7[j]
        i += 8
    while i < n:
        z0, s0 = Z[i], np.float32(0)
        for j in range(d):
            s0 += z0[j] * vector[j]
        s0 *= slope[i]
        for j in range(d):
            out[j] += s0 * z0[j]
        i += 1


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
    for i in range(n):
        slope[i] = 0.25 * weights[i]
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
        _advance_light(light, side, weights, light_direction, margin, change, pull, slope, light_image, gradient)
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
            _advance(Z, side, weights, theta, margin, change, pull, slope, gradient)
            exact += 1
            now = largest_of(gradient, d)
            continue
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
            _advance(Z, side, weights, step, margin, change, pull, slope, gradient)
            exact += 1
        else:
            for j in range(d):
                light_direction[j] = step[j]
            _advance_light(light, side, weights, light_direction, margin, change, pull, slope, light_image, gradient)
            passes += 1
        taken, low, high = 1.0, 0.0, np.inf
        for _ in range(60):  # a whole step is nearly always taken; where not, the line is searched by its margins
            turned, bend = ridge * (along + taken * own), ridge * own
            for i in range(n):
                turned += pull[i] * change[i]
                bend += slope[i] * change[i] * change[i]
            if abs(turned) <= 0.5 * -incline:
                break
            if turned > 0.0:
                high = taken
            else:
                low = taken
            at = taken - turned / bend
            if not (low < at < high):
                at = (low + high) / 2.0 if high < np.inf else 2.0 * taken
            for i in range(n):
                margin[i] += (at - taken) * change[i]
            taken = at
            answer_slopes(margin, weights, pull, slope, n)
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
