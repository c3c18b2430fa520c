"""Estimates with many features: L-BFGS, one pass over the rows per step."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefkin.inference.kernels.arithmetic import (
    add_rows,
    aligned,
    answer_slopes,
    dot,
    kernel,
    largest_of,
    smaller_chance,
)

FLUSHED = 256  # rows whose sum stays in float32
MEMORY = 16  # steps whose curvature is remembered
LINE_SLOPE = 0.9  # a step is too long, or too short, when the slope along it has not fallen to this part
ENOUGH = 0.25  # of the tolerance: where little holds an estimate, a gradient as large as allowed would move it visibly
MOST_STEPS = 150  # more are for Newton's method


@kernel
def note_rows(light: Any, side: Any, weights: Any, squares: Any, zero: Any) -> None:
    """What `quasi_newton` needs to know of rows beforehand: squares += ¼ Σ w z², zero += the gradient at 0.

    Sums of more than `FLUSHED` rows are float64.
    """
    n, d = light.shape
    size, pull = aligned(d), aligned(d)
    for start in range(0, n, FLUSHED):
        end = min(start + FLUSHED, n)
        size[:] = np.float32(0)
        pull[:] = np.float32(0)
        for i in range(start, end, 4):
            last = end - 1
            z0, z1, z2, z3 = light[i], light[min(i + 1, last)], light[min(i + 2, last)], light[min(i + 3, last)]
            w0, w1 = np.float32(weights[i]), np.float32(weights[i + 1] if i + 1 < end else 0.0)
            w2 = np.float32(weights[i + 2] if i + 2 < end else 0.0)
            w3 = np.float32(weights[i + 3] if i + 3 < end else 0.0)
            p0, p1 = w0 * np.float32(side[i]), w1 * np.float32(side[min(i + 1, last)])
            p2, p3 = w2 * np.float32(side[min(i + 2, last)]), w3 * np.float32(side[min(i + 3, last)])
            for j in range(d):
                a, b, c, e = z0[j], z1[j], z2[j], z3[j]
                size[j] += w0 * a * a + w1 * b * b + w2 * c * c + w3 * e * e
                pull[j] += p0 * a + p1 * b + p2 * c + p3 * e
        for j in range(d):
            total = 1.0 * size[j]
            if total > 1e38:  # too much for float32
                total = 0.0
                for i in range(start, end):
                    total += weights[i] * (1.0 * light[i, j]) ** 2
            squares[j] += 0.25 * total
            zero[j] -= 0.5 * pull[j]


@kernel
def advance(Z: Any, side: Any, weights: Any, vector: Any, margin: Any, change: Any, pull: Any, out: Any) -> None:
    """In one pass: change = side · Z vector, margin += change, and there pull and out += Zᵀ (side · pull)."""
    n, d = Z.shape
    slope = np.empty(4)
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
        answer_slopes(margin[i:top], weights[i:top], pull[i:top], slope, top - i)
        c0 = pull[i] * side[i]
        c1 = pull[i + 1] * side[i + 1] if i + 1 < n else 0.0
        c2 = pull[i + 2] * side[i + 2] if i + 2 < n else 0.0
        c3 = pull[i + 3] * side[i + 3] if i + 3 < n else 0.0
        for j in range(d):
            out[j] += c0 * z0[j] + c1 * z1[j] + c2 * z2[j] + c3 * z3[j]


@kernel
def searched(
    margin: Any,
    change: Any,
    weights: Any,
    pull: Any,
    slope: Any,
    ridge: float,
    incline: float,
    own: float,
    along: float,
    part: float,
) -> float:
    """How much of a step that was taken as a whole to keep: until the slope along it has fallen to a part.

    Nearly always 1; where not, the line is searched by its margins. Margins and pulls are moved there.
    """
    n, taken, low, high = len(margin), 1.0, 0.0, np.inf
    for _ in range(60):
        turned, bend = ridge * (along + taken * own), ridge * own
        for i in range(n):
            turned += pull[i] * change[i]
        if abs(turned) <= part * -incline:
            break
        if turned > 0.0:
            high = taken
        else:
            low = taken
        answer_slopes(margin, weights, pull, slope, n)
        for i in range(n):
            bend += slope[i] * change[i] * change[i]
        at = taken - turned / bend
        if not (low < at < high):
            at = (low + high) / 2.0 if high < np.inf else 2.0 * taken
        for i in range(n):
            margin[i] += (at - taken) * change[i]
        taken = at
        answer_slopes(margin, weights, pull, slope, n)
    return taken


@kernel
def advance_light(
    light: Any,
    side: Any,
    weights: Any,
    vector: Any,
    margin: Any,
    change: Any,
    pull: Any,
    part: Any,
    out: Any,
) -> None:
    """`advance` on float32 rows and a float32 vector, eight rows at a time; `part` is room for d numbers.

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
            p = smaller_chance(np.float32(m[k]))
            g[k] = -weights[i + k] * (p if m[k] > 0 else np.float32(1) - p)
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
    advance(light[done:], side[done:], weights[done:], vector, margin[done:], change[done:], pull[done:], out)


@kernel
def _two_loops(steps: Any, bends: Any, along: Any, held: int, newest: int, share: Any, out: Any) -> None:
    """out ← −(inverse Hessian as the remembered steps tell it) × out, in float32."""
    d, room = len(out), len(steps)
    for k in range(held):
        at = (newest - k) % room
        share[at] = dot(steps[at], out, d) / along[at]
        bend, c = bends[at], np.float32(share[at])
        for j in range(d):
            out[j] -= c * bend[j]
    size = np.float32(along[newest] / dot(bends[newest], bends[newest], d) if held > 0 else 1.0)
    for j in range(d):
        out[j] *= -size
    for k in range(held - 1, -1, -1):
        at = (newest - k) % room
        step, c = steps[at], np.float32(-share[at] - dot(bends[at], out, d) / along[at])
        for j in range(d):
            out[j] += c * step[j]


@kernel
def quasi_newton(
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
    """One estimate with many features, by L-BFGS: one pass over the rows per step.

    `light` is Z in float32, `squares` and `zero` are from `note_rows`. `theta` holds the start and receives the
    estimate; `work` the steps, passes over `light`, passes over Z, and whether the tolerance of `descend` was reached:
    that is found out on Z itself, in float64.
    """
    n, d = Z.shape
    margin, change, pull, slope = np.zeros(n), np.zeros(n), np.empty(n), np.empty(n)
    gradient, former, products, share = np.zeros(d), np.zeros(d), np.empty(MEMORY), np.empty(MEMORY)
    moves, bends = aligned(MEMORY * d).reshape((MEMORY, d)), aligned(MEMORY * d).reshape((MEMORY, d))
    step, heading, part, root = aligned(d), aligned(d), aligned(d), np.empty(d)
    for j in range(d):
        root[j] = 1.0 / np.sqrt(squares[j] + ridge)  # what is remembered is free of features' units
        gradient[j] = zero[j]
    whole = largest_of(zero, d)
    passes, steps, held, newest = 0, 0, 0, -1
    if largest_of(theta, d) > 0.0:
        for j in range(d):
            gradient[j] = ridge * theta[j]
            step[j] = theta[j]
        advance_light(light, side, weights, step, margin, change, pull, part, gradient)
        passes += 1
    now = begun = largest_of(gradient, d)
    while ENOUGH * tol * whole < now < np.inf and steps < MOST_STEPS:
        for j in range(d):
            heading[j] = root[j] * gradient[j]
        _two_loops(moves, bends, products, held, newest, share, heading)
        incline = 0.0
        for j in range(d):
            step[j] = root[j] * heading[j]
            incline += gradient[j] * step[j]
        if not incline < 0.0:  # not downhill: forget what was remembered
            held, incline = 0, 0.0
            for j in range(d):
                heading[j] = -root[j] * gradient[j]
                step[j] = root[j] * heading[j]
                incline += gradient[j] * step[j]
        own = along = 0.0
        for j in range(d):
            own += step[j] * step[j]
            along += theta[j] * step[j]
            former[j] = gradient[j]
            gradient[j] = ridge * (theta[j] + step[j])
        advance_light(light, side, weights, step, margin, change, pull, part, gradient)
        passes += 1
        taken = searched(margin, change, weights, pull, slope, ridge, incline, own, along, LINE_SLOPE)
        for j in range(d):
            theta[j] += taken * step[j]
        if taken != 1.0:
            for j in range(d):
                gradient[j] = ridge * theta[j]
            add_rows(light, side, pull, gradient)
            passes += 1
        place = (newest + 1) % MEMORY
        move, turn, size = moves[place], bends[place], 0.0
        for j in range(d):
            move[j] = taken * heading[j]
            turn[j] = root[j] * (gradient[j] - former[j])
            size += move[j] * turn[j]
        if size > 0.0:  # else rounding: not to be remembered
            newest, held, products[place] = place, min(held + 1, MEMORY), size
        steps += 1
        now = largest_of(gradient, d)
    margin[:] = 0.0
    for j in range(d):
        gradient[j] = ridge * theta[j]
    advance(Z, side, weights, theta, margin, change, pull, gradient)
    now = largest_of(gradient, d)
    done = now <= tol * whole < np.inf
    if not (done or now <= begun):  # no better than it was: whoever tries next begins at 0
        theta[:] = 0.0
    work[0], work[1], work[2], work[3] = steps, passes, 1, done
