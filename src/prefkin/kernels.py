"""Inner loops compiled by numba. Imported by `compiled` alone, and only when the work pays for loading it.

Every function trusts its arrays, holds no Python lock while it runs (users are shared out to threads by `for_each`),
and treats each user by itself: results do not depend on threads. Data may be float32 or float64; sums are float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# sums may be reordered, so that they vectorise; not-a-number and infinity keep their meaning
FAST = {"reassoc", "contract", "nsz", "arcp"}
LINE_SLOPE = 0.3  # a step along a line ends when the slope has fallen to this part
FACTOR_COST = 0.3  # a factorisation costs about this times d steps, and 5 more steps after it
MOST_STEPS = 400
TILE = 256  # rows per tile: a tile's margins stay in the first cache


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _answer_slopes(margin: Any, weight: Any, pull: Any, slope: Any, n: int) -> None:
    """For margins of the given answers: pull = −w σ(−m), slope = w σ(m) σ(−m), by an exponential that vectorises."""
    for i in range(n):
        m = margin[i]
        x = -abs(m)
        if x < -700.0:
            x = -700.0
        k = int(x * 1.4426950408889634 - 0.5)  # nearest integer, x being negative
        f = x - k * 0.6931471805599453
        e = 1.0 + f * (
            1.0
            + f
            * (
                0.5
                + f
                * (
                    1 / 6
                    + f
                    * (
                        1 / 24
                        + f
                        * (
                            1 / 120
                            + f
                            * (
                                1 / 720
                                + f * (1 / 5040 + f * (1 / 40320 + f * (1 / 362880 + f * (1 / 3628800 + f / 39916800))))
                            )
                        )
                    )
                )
            )
        )
        e *= np.int64((np.int64(k) + 1023) << 52).view(np.float64)
        p = e / (1.0 + e)  # the smaller of the two probabilities
        wrong = p if m > 0 else 1.0 - p
        pull[i] = -weight[i] * wrong
        slope[i] = weight[i] * p * (1.0 - p)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def aligned(size: int) -> Any:
    """Room for float32 numbers at the start of a cache line: vectors across two lines are read at half the speed."""
    raw = np.empty(size + 16, np.float32)
    skip = (-(raw.ctypes.data // 4)) % 16
    return raw[skip : skip + size]


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _move(margin: Any, change: Any, step: Any, weight: Any, pull: Any, slope: Any) -> tuple[Any, Any]:
    """margin += step · change, and there pull and slope as in `_answer_slopes`, all in float32.

    Σ pull · change and Σ slope · change² are returned: slope and bend of the objective along the line.
    """
    nothing, one = np.float32(0), np.float32(1)
    now, bend = nothing, nothing
    for i in range(len(margin)):
        c = change[i]
        m = margin[i] + step * c
        margin[i] = m
        p = _smaller_chance(m)
        w = weight[i]
        g = -w * (p if m > nothing else one - p)
        h = w * p * (one - p)
        pull[i], slope[i] = g, h
        now += g * c
        bend += h * c * c
    return now, bend


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _smaller_chance(m: Any) -> Any:
    """σ(−|m|) in float32, to its precision, by an exponential that vectorises."""
    one, half = np.float32(1), np.float32(0.5)
    x = max(-abs(m), np.float32(-80))
    k = np.int32(x * np.float32(1.4426950408889634) - half)  # nearest integer, x being negative
    f = x - np.float32(k) * np.float32(0.693359375) + np.float32(k) * np.float32(2.12194440e-4)
    e = f * (np.float32(1 / 24) + f * (np.float32(1 / 120) + f * np.float32(1 / 720)))
    e = one + f * (one + f * (half + f * (np.float32(1 / 6) + e)))
    e *= np.int32(np.int32(k + np.int32(127)) << np.int32(23)).view(np.float32)
    return e / (one + e)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
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


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
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


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
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


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
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


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
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


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
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


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _dot(a: Any, b: Any, n: int) -> float:
    s = 0.0
    for i in range(n):
        s += a[i] * b[i]
    return s


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _largest(a: Any, n: int) -> float:
    s = 0.0
    for i in range(n):
        s = max(s, abs(a[i]))
    return s


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
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
        width = min((n + 15) // 16 * 16, TILE)
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
        limit = tol * _largest(zero, d)
        enough = 0.7 * limit  # float32 may be wrong by some of the rest
        passes = 1
        gradient[:] = zero
        if _largest(estimate, d) > 0.0:
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
        begun = largest_now = _largest(gradient, d)
        previous, steps = 0.0, 0
        while largest_now > enough and steps < MOST_STEPS:
            # at the speed so far, would the steps still to go cost more than a factorisation?
            to_go = steps * np.log(largest_now / limit) / max(np.log(begun / largest_now), 1e-3)
            if not ready and steps >= 3 and to_go > FACTOR_COST * d + 5.0:
                _curvature(tiles, width, count, d, slope, ridge, scaled, factor)
                ready = _factor(factor, d)
                previous = 0.0
            mixed = size = 0.0
            if ready:
                mixed = _dot(gradient, conditioned, d)
                _solve(factor, d, gradient, conditioned)
                size = _dot(gradient, conditioned, d)
            else:
                for j in range(d):
                    g = gradient[j]
                    mixed += g * conditioned[j]
                    size += g * g
                    conditioned[j] = g
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
                incline, own, along = -size, _dot(direction, direction, d), _dot(estimate, direction, d)
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
            largest_now = _largest(gradient, d)
        for j in range(d):
            gradient[j] = ridge * estimate[j]
        for k in range(pointer[s], pointer[s + 1]):
            _add_gradient(Z, y, weights, first[k], last[k], estimate, exact, exact_pull, exact_slope, gradient)
        work[s, 0], work[s, 1], work[s, 2], work[s, 3] = steps, passes, ready, _largest(gradient, d) <= limit


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _add_gradient(
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
    _answer_slopes(margin, weights[first:last], pull, slope, n)
    for i in range(n):
        slope[i] = 2.0 * sides[i] - 1.0
    _add_rows(Z[first:last], slope, pull, out)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
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
        _answer_slopes(margin[i:top], weights[i:top], pull[i:top], slope[i:top], top - i)
        c0 = pull[i] * side[i]
        c1 = pull[i + 1] * side[i + 1] if i + 1 < n else 0.0
        c2 = pull[i + 2] * side[i + 2] if i + 2 < n else 0.0
        c3 = pull[i + 3] * side[i + 3] if i + 3 < n else 0.0
        for j in range(d):
            out[j] += c0 * z0[j] + c1 * z1[j] + c2 * z2[j] + c3 * z3[j]


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
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
    """`_advance` on float32 rows and a float32 vector, eight rows at a time; sums of more than `TILE` rows in float64.

    `part` is room for d numbers.
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
        _answer_slopes(m, weights[i : i + 8], g, slope[i : i + 8], 8)
        p0, p1 = np.float32(g[0] * side[i]), np.float32(g[1] * side[i + 1])
        p2, p3 = np.float32(g[2] * side[i + 2]), np.float32(g[3] * side[i + 3])
        p4, p5 = np.float32(g[4] * side[i + 4]), np.float32(g[5] * side[i + 5])
        p6, p7 = np.float32(g[6] * side[i + 6]), np.float32(g[7] * side[i + 7])
        for j in range(d):
            part[j] += p0 * z0[j] + p1 * z1[j] + p2 * z2[j] + p3 * z3[j]
            part[j] += p4 * z4[j] + p5 * z5[j] + p6 * z6[j] + p7 * z7[j]
        if i % TILE == TILE - 8:
            for j in range(d):
                out[j] += part[j]
                part[j] = np.float32(0)
    for j in range(d):
        out[j] += part[j]
    _advance(
        light[done:], side[done:], weights[done:], vector, margin[done:], change[done:], pull[done:], slope[done:], out
    )


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _add_rows(Z: Any, side: Any, pull: Any, out: Any) -> None:
    """out += Zᵀ (side · pull), four rows at a time."""
    n, d = Z.shape
    i = 0
    while i + 4 <= n:
        z0, z1, z2, z3 = Z[i], Z[i + 1], Z[i + 2], Z[i + 3]
        c0, c1 = pull[i] * side[i], pull[i + 1] * side[i + 1]
        c2, c3 = pull[i + 2] * side[i + 2], pull[i + 3] * side[i + 3]
        for j in range(d):
            out[j] += c0 * z0[j] + c1 * z1[j] + c2 * z2[j] + c3 * z3[j]
        i += 4
    while i < n:
        z0, c0 = Z[i], pull[i] * side[i]
        for j in range(d):
            out[j] += c0 * z0[j]
        i += 1


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
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


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
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


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
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
    tolerance; then the gradient is taken on Z itself, and further steps use Z where that says so. Products with the
    Hessian, of which there are most, only choose directions and are float32 throughout; every other sum is float64.
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
    passes, exact, steps, fine = 0, 0, 0, False
    whole = _largest(zero, d)
    limit = tol * whole
    if _largest(theta, d) > 0.0:
        for j in range(d):
            gradient[j] = ridge * theta[j]
            light_direction[j] = theta[j]
        _advance_light(light, side, weights, light_direction, margin, change, pull, slope, light_image, gradient)
        passes += 1
    now = _largest(gradient, d)
    while steps < 60:
        if now <= (limit if fine else 0.8 * limit):
            if fine:
                break
            fine = True
            margin[:] = 0.0
            for j in range(d):
                gradient[j] = ridge * theta[j]
            _advance(Z, side, weights, theta, margin, change, pull, slope, gradient)
            exact += 1
            now = _largest(gradient, d)
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
            along = ridge * _dot(direction, direction, d)
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
        incline, own, along = _dot(gradient, step, d), _dot(step, step, d), _dot(theta, step, d)
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
            _answer_slopes(margin, weights, pull, slope, n)
        for j in range(d):
            theta[j] += taken * step[j]
        if taken != 1.0:
            for j in range(d):
                gradient[j] = ridge * theta[j]
            if fine:
                _add_rows(Z, side, pull, gradient)
                exact += 1
            else:
                _add_rows(light, side, pull, gradient)
                passes += 1
        steps += 1
        now = _largest(gradient, d)
    work[0], work[1], work[2], work[3] = steps, passes, exact, fine and now <= limit


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def connect_tile(
    products: Any,
    top: int,
    left: int,
    square: Any,
    reach: Any,
    take: Any,
    blur: Any,
    slack: Any,
    code: Any,
    other_code: Any,
    degree: Any,
    key: Any,
    other_key: Any,
    doubtful: Any,
) -> int:
    """Edges between the users from `top` and those from `left` on, given −2 θθᵀ of the two in float32.

    u is joined to v when ‖θ_u − θ_v‖² < (reach_u − take_v)². Both directions are counted, in `degree` and in two keys
    that sum the codes of the neighbours. Pairs whose two sides are within their rounding errors, slack · (‖θ_u‖² +
    ‖θ_v‖²) and (blur_u + blur_v) (reach_u − take_v), are left out and listed in `doubtful`, whose fill is returned.
    """
    filled = 0
    height, m = products.shape
    nothing, margin = np.float32(0), np.float32(1e-6)
    for i in range(height):
        u = top + i
        begin = i + 1 if top == left else 0
        at = left + begin  # views from there on: only loops from 0 vectorise
        product, squares, takes, reaches, blurs = products[i, begin:], square[at:], take[at:], reach[at:], blur[at:]
        codes, others = code[at:], other_code[at:]
        degrees, keys, other_keys = degree[at:], key[at:], other_key[at:]
        s, r, t, b = square[u], reach[u], take[u], blur[u]
        near = np.int32(0)
        for j in range(m - begin):  # could any be an edge, in either direction? In most graphs few can
            wide = max(max(r - takes[j], reaches[j] - t), nothing)
            size = s + squares[j]
            edge = size + product[j] < wide * (wide + wide * margin + b + blurs[j]) + slack * size
            near = np.int32(near + edge)  # else numba adds in 64 bits, half as many at a time
        if near == 0:
            continue
        found, mine, other, unsure = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
        c, o = code[u], other_code[u]
        for j in range(m - begin):
            size = s + squares[j]
            distance = size + product[j]
            out, back = max(r - takes[j], nothing), max(reaches[j] - t, nothing)
            error = slack * size + max(out, back) * (b + blurs[j] + margin * max(out, back))
            out *= out
            back *= back
            sure = (abs(distance - out) > error) & (abs(distance - back) > error)
            joined, heard = np.int32(sure & (distance < out)), np.int32(sure & (distance < back))
            unsure = np.int32(unsure + np.int32(not sure))
            found = np.int32(found + joined)
            mine = np.int32(mine + np.int32(joined * codes[j]))
            other = np.int32(other + np.int32(joined * others[j]))
            degrees[j] = np.int32(degrees[j] + heard)
            keys[j] = np.int32(keys[j] + np.int32(heard * c))
            other_keys[j] = np.int32(other_keys[j] + np.int32(heard * o))
        degree[u] += found
        key[u] += mine
        other_key[u] += other
        if unsure > 0:
            for j in range(m - begin):
                size = s + squares[j]
                distance = size + product[j]
                out, back = max(r - takes[j], nothing), max(reaches[j] - t, nothing)
                error = slack * size + max(out, back) * (b + blurs[j] + margin * max(out, back))
                if not ((abs(distance - out * out) > error) & (abs(distance - back * back) > error)):
                    doubtful[filled, 0], doubtful[filled, 1] = u, at + j
                    filled += 1
    return filled


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def misses(margin: Any, y: Any, weights: Any) -> None:
    """margin (sets, rows) in float32 → w (σ(margin) − y), in place."""
    sets, n = margin.shape
    for s in range(sets):
        row = margin[s]
        for i in range(n):
            m = row[i]
            p = _smaller_chance(m)
            row[i] = np.float32(weights[i]) * ((np.float32(1) - p if m > 0 else p) - np.float32(y[i]))
