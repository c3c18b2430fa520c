"""Estimates of many users with few features each: rows in float32 tiles that fit the first cache."""

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

LINE_SLOPE = 0.3  # a step along a line ends when the slope has fallen to this part
FACTOR_COST = 0.3  # a factorisation costs about this times d steps, and 5 more steps after it
MOST_STEPS = 400
NEAR, PATIENCE = 1e-4, 20  # near the optimum, so many steps without progress can only be rounding
CANCELLED = 1e-5  # of what the gradient at 0 could have been: if it is less, float32 does not know it well enough
TILE = 256  # rows per tile: a tile's margins stay in the first cache


@kernel
def _into_tiles(
    Z: Any, y: Any, weights: Any, first: int, last: int, at: int, width: int, d: int, tiles: Any, weight: Any
) -> None:
    """Rows first:last to place `at` of the tiles, mirrored so that each answer was "the first one"."""
    row = first
    while row < last:
        base = (at // width * d) * width + at % width
        if row + 8 <= last and at % width + 8 <= width:
            z0, z1, z2, z3 = Z[row], Z[row + 1], Z[row + 2], Z[row + 3]
            z4, z5, z6, z7 = Z[row + 4], Z[row + 5], Z[row + 6], Z[row + 7]
            s0, s1, s2, s3 = 2 * y[row] - 1, 2 * y[row + 1] - 1, 2 * y[row + 2] - 1, 2 * y[row + 3] - 1
            s4, s5, s6, s7 = 2 * y[row + 4] - 1, 2 * y[row + 5] - 1, 2 * y[row + 6] - 1, 2 * y[row + 7] - 1
            for j in range(d):
                t = tiles[base + j * width :][:8]
                t[0], t[1], t[2], t[3] = s0 * z0[j], s1 * z1[j], s2 * z2[j], s3 * z3[j]
                t[4], t[5], t[6], t[7] = s4 * z4[j], s5 * z5[j], s6 * z6[j], s7 * z7[j]
            for i in range(8):
                weight[at + i] = weights[row + i]
            row += 8
            at += 8
        else:
            s0 = 2 * y[row] - 1
            for j in range(d):
                tiles[base + j * width] = s0 * Z[row, j]
            weight[at] = weights[row]
            row += 1
            at += 1


@kernel
def _product(tiles: Any, width: int, count: int, d: int, vector: Any, slope: Any, out: Any) -> Any:
    """out = Z vector, from tiles (count, d, width) laid out feature by feature; Σ slope · out² is returned."""
    total = np.float64(0)
    for t in range(count):
        base = t * d * width
        o, h = out[t * width : (t + 1) * width], slope[t * width : (t + 1) * width]
        for i in range(width):
            o[i] = np.float32(0)
        j = 0
        while j + 8 <= d:  # views: an index into the middle of an array does not vectorise
            a = base + j * width
            z0, z1 = tiles[a : a + width], tiles[a + width : a + 2 * width]
            z2, z3 = tiles[a + 2 * width : a + 3 * width], tiles[a + 3 * width : a + 4 * width]
            z4, z5 = tiles[a + 4 * width : a + 5 * width], tiles[a + 5 * width : a + 6 * width]
            z6, z7 = tiles[a + 6 * width : a + 7 * width], tiles[a + 7 * width : a + 8 * width]
            p0, p1, p2, p3 = vector[j], vector[j + 1], vector[j + 2], vector[j + 3]
            p4, p5, p6, p7 = vector[j + 4], vector[j + 5], vector[j + 6], vector[j + 7]
            for i in range(width):
                o[i] += p0 * z0[i] + p1 * z1[i] + p2 * z2[i] + p3 * z3[i]
                o[i] += p4 * z4[i] + p5 * z5[i] + p6 * z6[i] + p7 * z7[i]
            j += 8
        while j < d:
            z0, p0 = tiles[base + j * width : base + (j + 1) * width], vector[j]
            for i in range(width):
                o[i] += p0 * z0[i]
            j += 1
        bend = np.float32(0)
        for i in range(width):
            bend += h[i] * o[i] * o[i]
        total += bend
    return total


@kernel
def _add_transposed(tiles: Any, width: int, count: int, d: int, values: Any, out: Any) -> None:
    """out += Zᵀ values; within a tile in float32, over tiles in float64."""
    for t in range(count):
        base = t * d * width
        v = values[t * width : (t + 1) * width]
        j = 0
        while j + 4 <= d:
            a = base + j * width
            z0, z1 = tiles[a : a + width], tiles[a + width : a + 2 * width]
            z2, z3 = tiles[a + 2 * width : a + 3 * width], tiles[a + 3 * width : a + 4 * width]
            s0 = s1 = s2 = s3 = np.float32(0)
            for i in range(width):
                s0 += v[i] * z0[i]
                s1 += v[i] * z1[i]
                s2 += v[i] * z2[i]
                s3 += v[i] * z3[i]
            out[j] += s0
            out[j + 1] += s1
            out[j + 2] += s2
            out[j + 3] += s3
            j += 4
        while j < d:
            z0, s0 = tiles[base + j * width : base + (j + 1) * width], np.float32(0)
            for i in range(width):
                s0 += v[i] * z0[i]
            out[j] += s0
            j += 1


@kernel
def _move(margin: Any, change: Any, step: Any, weight: Any, pull: Any, slope: Any) -> tuple[Any, Any]:
    """margin += step · change, and there pull and slope as in `answer_slopes`, all in float32.

    Σ pull · change and Σ slope · change² are returned: slope and bend of the objective along the line.
    """
    nothing, one = np.float32(0), np.float32(1)
    now, bend = nothing, nothing
    for i in range(len(margin)):
        c = change[i]
        m = margin[i] + step * c
        margin[i] = m
        p = smaller_chance(m)
        w = weight[i]
        g = -w * (p if m > nothing else one - p)
        h = w * p * (one - p)
        pull[i], slope[i] = g, h
        now += g * c
        bend += h * c * c
    return now, bend


@kernel
def _curvature(tiles: Any, width: int, count: int, d: int, slope: Any, ridge: float, scaled: Any, A: Any) -> None:
    """A = Zᵀ diag(slope) Z + ridge I, upper triangle, two rows and four columns at a time."""
    for i in range(d):
        A[i, i:] = 0.0
        A[i, i] = ridge
    one, two = scaled[:width], scaled[width : 2 * width]
    for t in range(count):
        base = t * d * width
        v = slope[t * width : (t + 1) * width]
        for j in range(0, d, 2):
            after = min(j + 1, d - 1)  # the last row of an odd d is its own partner
            z0, z1 = tiles[base + j * width :][:width], tiles[base + after * width :][:width]
            for i in range(width):
                one[i] = z0[i] * v[i]
                two[i] = z1[i] * v[i]
            k = j
            while k + 4 <= d:
                a = base + k * width
                z0, z1 = tiles[a : a + width], tiles[a + width : a + 2 * width]
                z2, z3 = tiles[a + 2 * width : a + 3 * width], tiles[a + 3 * width : a + 4 * width]
                s0 = s1 = s2 = s3 = r0 = r1 = r2 = r3 = np.float32(0)
                for i in range(width):
                    x, y = one[i], two[i]
                    s0 += x * z0[i]
                    s1 += x * z1[i]
                    s2 += x * z2[i]
                    s3 += x * z3[i]
                    r0 += y * z0[i]
                    r1 += y * z1[i]
                    r2 += y * z2[i]
                    r3 += y * z3[i]
                A[j, k] += s0
                A[j, k + 1] += s1
                A[j, k + 2] += s2
                A[j, k + 3] += s3
                if after > j:
                    A[after, k] += r0
                    A[after, k + 1] += r1
                    A[after, k + 2] += r2
                    A[after, k + 3] += r3
                k += 4
            while k < d:
                z0, s0, r0 = tiles[base + k * width :][:width], np.float32(0), np.float32(0)
                for i in range(width):
                    s0 += one[i] * z0[i]
                    r0 += two[i] * z0[i]
                A[j, k] += s0
                if after > j:
                    A[after, k] += r0
                k += 1


@kernel
def _factor(A: Any, d: int) -> bool:
    """Cholesky factor U of A = UᵀU in the upper triangle, in place; False when A is not positive definite."""
    for k in range(d):
        row = A[k]
        if not row[k] > 0.0:
            return False
        scale = 1.0 / np.sqrt(row[k])
        row = row[k:]  # views, because only loops from 0 vectorise
        for j in range(d - k):
            row[j] *= scale
        for i in range(1, d - k):
            other, tail, c = A[k + i, k + i :], row[i:], row[i]
            for j in range(d - k - i):
                other[j] -= c * tail[j]
    return True


@kernel
def _solve(U: Any, d: int, b: Any, x: Any) -> None:
    """x = (UᵀU)⁻¹ b."""
    for k in range(d):
        x[k] = b[k]
    for k in range(d):
        row = U[k]
        c = x[k] / row[k]
        x[k] = c
        for j in range(k + 1, d):
            x[j] -= c * row[j]
    for k in range(d - 1, -1, -1):
        row, c = U[k], x[k]
        for j in range(k + 1, d):
            c -= row[j] * x[j]
        x[k] = c / row[k]


@kernel
def add_gradient(
    Z: Any, y: Any, weights: Any, first: int, last: int, theta: Any, margin: Any, pull: Any, slope: Any, out: Any
) -> None:
    """out += the gradient of rows first:last at theta, in float64; margin, pull and slope are room."""
    n, d = last - first, Z.shape[1]
    for i in range(0, n, 4):
        end = n - 1
        i1, i2, i3 = min(i + 1, end), min(i + 2, end), min(i + 3, end)
        z0, z1, z2, z3 = Z[first + i], Z[first + i1], Z[first + i2], Z[first + i3]
        s0 = s1 = s2 = s3 = 0.0
        for j in range(d):
            v = theta[j]
            s0 += z0[j] * v
            s1 += z1[j] * v
            s2 += z2[j] * v
            s3 += z3[j] * v
        margin[i], margin[i1], margin[i2], margin[i3] = s0, s1, s2, s3
    sides = y[first:last]
    for i in range(n):
        margin[i] *= 2.0 * sides[i] - 1.0
    answer_slopes(margin, weights[first:last], pull, slope, n)
    for i in range(n):
        slope[i] = 2.0 * sides[i] - 1.0  # nobody needs the slopes: their room takes the sides
    add_rows(Z[first:last], slope, pull, out)


@kernel
def most_telling(Z: Any, weights: Any, first: int, last: int) -> float:
    """At least the largest entry that the gradient at 0 of rows first:last could have had, about."""
    largest = total = 0.0
    for row in range(first, last, max((last - first) // 4, 1)):  # a few rows tell how large features are
        largest = max(largest, largest_of(Z[row], Z.shape[1]))
    for row in range(first, last):
        total += weights[row]
    return 0.5 * largest * total


@kernel
def descend(
    Z: Any,
    y: Any,
    weights: Any,
    first: Any,
    last: Any,
    pointer: Any,
    begin: int,
    end: int,
    ridge: float,
    tol: float,
    theta: Any,
    work: Any,
) -> None:
    """Estimates of the sets `begin` to `end`, by nonlinear conjugate gradients; set s owns the row ranges
    first[k]:last[k], k from pointer[s] to pointer[s + 1].

    `theta` holds the starts and receives the estimates; `work[s]` the steps, the passes over the rows, whether a
    factorisation was made, and whether max|gradient| ≤ tol · max|gradient at 0| was reached. Margins are carried
    along, so that a step costs one product with Z and one with Zᵀ; its length is that of a Newton step on the line,
    mended where the slope says so, which needs no pass over the data. Rows are kept in float32, in tiles that fit the
    first cache; whether the tolerance was reached is found out on Z itself, in float64.
    """
    d = Z.shape[1]
    largest = 0
    for s in range(begin, end):
        n = 0
        for k in range(pointer[s], pointer[s + 1]):
            n += last[k] - first[k]
        largest = max(largest, n)
    room = (largest + TILE) // 16 * 16 + 16
    tiles, scaled, factor, light = aligned(room * d), aligned(TILE * 2), np.empty((d, d)), aligned(d)
    margins, changes, pulls, slopes, weight = aligned(room), aligned(room), aligned(room), aligned(room), aligned(room)
    exact, exact_pull, exact_slope = np.empty(largest), np.empty(largest), np.empty(largest)
    gradient, direction, conditioned, zero = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    for s in range(begin, end):
        n = 0
        for k in range(pointer[s], pointer[s + 1]):
            n += last[k] - first[k]
        width = min((n + 7) // 8 * 8, TILE)
        count = (n + width - 1) // width if n else 0
        padded = width * count
        # rows into tiles, each mirrored so that its answer was "the first one": the loss is log(1 + exp(−margin))
        at = 0
        for k in range(pointer[s], pointer[s + 1]):
            _into_tiles(Z, y, weights, first[k], last[k], at, width, d, tiles, weight)
            at += last[k] - first[k]
        while at < padded:
            base = (at // width * d) * width + at % width
            for j in range(d):
                tiles[base + j * width] = np.float32(0)
            weight[at] = np.float32(0)
            at += 1
        margin, change, pull, slope = margins[:padded], changes[:padded], pulls[:padded], slopes[:padded]
        estimate = theta[s]
        zero[:] = 0.0
        for i in range(padded):
            margin[i], pull[i], slope[i] = np.float32(0), np.float32(-0.5) * weight[i], np.float32(0.25) * weight[i]
        _add_transposed(tiles, width, count, d, pull, zero)
        whole = largest_of(zero, d)
        limit = tol * whole
        enough = 0.7 * limit  # float32 may be wrong by some of the rest
        unit = 1.0 / whole**2 if 1e-100 < whole < 1e100 else 1.0  # so that steps are neither huge nor tiny in float32
        passes = 1
        gradient[:] = zero
        if largest_of(estimate, d) > 0.0:
            for j in range(d):
                light[j] = estimate[j]
                gradient[j] = ridge * estimate[j]
            _product(tiles, width, count, d, light, slope, change)
            _move(margin, change, np.float32(1), weight, pull, slope)
            _add_transposed(tiles, width, count, d, pull, gradient)
            passes += 2
        for j in range(d):
            direction[j] = conditioned[j] = 0.0
        ready = False
        begun = largest_now = best = largest_of(gradient, d)
        previous, steps, best_at = 0.0, 0, 0
        while enough < largest_now < np.inf and steps < MOST_STEPS:
            if largest_now < 0.7 * best:
                best, best_at = largest_now, steps
            elif (ready or best < NEAR * begun) and steps > best_at + PATIENCE:  # float32 has no more digits
                break
            # at the speed so far, would the steps still to go cost more than a factorisation?
            to_go = steps * np.log(largest_now / limit) / max(np.log(begun / largest_now), 1e-3)
            if not ready and steps >= 3 and to_go > FACTOR_COST * d + 5.0:
                _curvature(tiles, width, count, d, slope, ridge, scaled, factor)
                ready = _factor(factor, d)
                previous = 0.0
            mixed = size = 0.0
            if ready:
                mixed = dot(gradient, conditioned, d)
                _solve(factor, d, gradient, conditioned)
                size = dot(gradient, conditioned, d)
            else:
                for j in range(d):
                    g = gradient[j]
                    mixed += g * conditioned[j]
                    size += unit * g * g
                    conditioned[j] = unit * g
            # Polak-Ribière; `conditioned` was that of the former gradient in `mixed`
            keep = max(0.0, (size - mixed) / previous) if previous > 0.0 else 0.0
            incline = own = along = 0.0
            for j in range(d):
                p = keep * direction[j] - conditioned[j]
                direction[j] = light[j] = p
                incline += gradient[j] * p
                own += p * p
                along += estimate[j] * p
            if not incline < 0.0:  # not downhill: start again from the gradient
                for j in range(d):
                    direction[j] = light[j] = -conditioned[j]
                incline, own, along = -size, dot(direction, direction, d), dot(estimate, direction, d)
            previous = size
            bend = _product(tiles, width, count, d, light, slope, change)
            now, low, high, length = incline, 0.0, np.inf, 0.0
            for _ in range(60):
                step = -now / (bend + ridge * own)
                if not (low < length + step < high):
                    step = (low + high) / 2.0 - length if high < np.inf else max(1.0, length)
                length += step
                turned, bent = _move(margin, change, np.float32(step), weight, pull, slope)
                now, bend = turned + ridge * (along + length * own), np.float64(bent)
                if abs(now) <= LINE_SLOPE * -incline:
                    break
                if now > 0.0:
                    high = length
                else:
                    low = length
            for j in range(d):
                estimate[j] += length * direction[j]
                gradient[j] = ridge * estimate[j]
            _add_transposed(tiles, width, count, d, pull, gradient)
            passes += 2
            steps += 1
            largest_now = largest_of(gradient, d)
        for j in range(d):
            gradient[j] = ridge * estimate[j]
        for k in range(pointer[s], pointer[s + 1]):
            add_gradient(Z, y, weights, first[k], last[k], estimate, exact, exact_pull, exact_slope, gradient)
        largest_now, telling = largest_of(gradient, d), 0.0
        for k in range(pointer[s], pointer[s + 1]):
            telling += most_telling(Z, weights, first[k], last[k])
        done = largest_now <= limit and CANCELLED * telling <= whole < np.inf
        if not (done or largest_now <= begun):  # no better than it was: whoever tries next begins at 0
            estimate[:] = 0.0
        work[s, 0], work[s, 1], work[s, 2], work[s, 3] = steps, passes, ready, done
