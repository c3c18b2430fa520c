"""Inner loops compiled by numba: the only file that knows it. Compiled once after installation and kept on disk.

Every function trusts its arrays, holds no Python lock while it runs (`for_each` shares sets out to threads) and treats
each set of rows by itself, so that results depend neither on threads nor on who else is in the data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

try:
    from numba import njit
except ImportError as error:
    raise ImportError(f"prefkin needs numba for its inner loops ({error}); pip install numba") from None

__all__ = [
    "add_gradients",
    "compiled_before",
    "connect_tile",
    "descend",
    "gather",
    "least_eigenvalues",
    "misses",
]

# sums may be reordered, so that they vectorise; not-a-number and infinity keep their meaning
OPTIONS: Any = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy"}
kernel: Callable[[Callable[..., Any]], Any] = njit(cache=True, **OPTIONS)
# a part of kernels, which keep it on disk: a call could end in another copy of it where it was just compiled, and round
# otherwise
part: Callable[[Callable[..., Any]], Any] = njit(forceinline=True, **OPTIONS)

MOST_PASSES = 200  # sets that need more are for Newton's method
FAR = 0.5  # change of a margin with which its curvature changes too much for a Newton step by the one before
MANY = 44  # features from which sweeping takes less time than Cholesky's method, measured
LINE_SLOPE, LINE_STEPS = 0.3, 40  # a step along a line ends when the slope has fallen to this part

# Compiling takes long for arrays made or reshaped inside, for np.float32(…), and for every loop: callers bring room,
# numbers lie flat, constants are float32 already.
ZERO, HALF, ONE = map(np.float32, (0, 0.5, 1))
LOWEST, LOG2_E, LN_2, LN_2_MORE = map(np.float32, (-80, 1.4426950408889634, 0.693359375, 2.12194440e-4))
SIXTH, T4, T5, T6 = map(np.float32, (1 / 6, 1 / 24, 1 / 120, 1 / 720))  # Taylor's for the exponential


@part
def smaller_chance(m: Any) -> Any:
    """σ(−|m|) in float32, to its precision, by an exponential that vectorises."""
    x = -abs(m)
    x = LOWEST if x < LOWEST else x
    k = np.int32(x * LOG2_E - HALF)  # nearest integer, x being negative
    whole = np.float32(k)  # numba would multiply int32 and float32 in float64
    f = x - whole * LN_2 + whole * LN_2_MORE
    e = ONE + f * (ONE + f * (HALF + f * (SIXTH + f * (T4 + f * (T5 + f * T6)))))
    e *= np.int32((k + 127) << 23).view(np.float32)
    return e / (ONE + e)


@kernel
def misses(margin: Any, y: Any, weights: Any) -> None:
    """margin (rows, sets) in float32 → w (σ(margin) − y), in place: what each set's estimate gets wrong."""
    n, sets = margin.shape
    for i in range(n):
        row, answer, weight = margin[i], np.float32(y[i]), np.float32(weights[i])
        for s in range(sets):
            p = smaller_chance(row[s])
            row[s] = weight * ((ONE - p if row[s] > 0 else p) - answer)


# -- many estimates: gather rows, descend, check -----------------------------------------------------------------------


@kernel
def gather(
    Z: Any, y: Any, weights: Any, rows: Any, pointer: Any, ridge: Any, begun: Any, numbers: Any, weight: Any, root: Any,
    zero: Any,
) -> None:  # fmt: skip
    """Rows rows[pointer[s]:pointer[s + 1]] of each set s into `numbers`, in float32, from begun[s] on.

    Rows are mirrored, as if the first action had always been preferred, and multiplied by root = 1 / √(¼ Σ w z² + λ),
    which makes features free of units; `zero` is the gradient of the loss at 0, in features as given.
    """
    for s in range(len(ridge)):
        scale, gradient, first = root[s], zero[s], begun[s] - pointer[s]
        for k in range(pointer[s], pointer[s + 1]):
            z, w, c = Z[rows[k]], weights[rows[k]], weights[rows[k]] * (0.5 - y[rows[k]])
            weight[first + k] = w
            for j in range(len(z)):
                scale[j] += w * z[j] * z[j]
                gradient[j] += c * z[j]
        for j in range(len(scale)):
            scale[j] = 1.0 / np.sqrt(0.25 * scale[j] + ridge[s])
        for k in range(pointer[s], pointer[s + 1]):
            z, side, row = Z[rows[k]], 2.0 * y[rows[k]] - 1.0, numbers[first + k]
            for j in range(len(z)):
                row[j] = side * z[j] * scale[j]


@part
def sweep(X: Any, vector: Any, slope: Any, values: Any, some: Any, out: Any, forth: bool, back: bool) -> None:
    """Forth: values = X vector. Back: out += Xᵀ values. Both, while rows are at hand: out += Xᵀ diag(slope) X vector.

    Four rows at a time, in float32; `some` has room for the sums over 64 of them, which are added up in float64.
    """
    for t in range(0, len(values), 64):
        for j in range(len(some)):
            some[j] = ZERO
        for i in range(t, min(t + 64, len(values)), 4):
            x0, x1, x2, x3 = X[i], X[i + 1], X[i + 2], X[i + 3]
            if forth:
                s0 = s1 = s2 = s3 = ZERO
                for j in range(len(vector)):
                    s0 += x0[j] * vector[j]
                    s1 += x1[j] * vector[j]
                    s2 += x2[j] * vector[j]
                    s3 += x3[j] * vector[j]
                values[i], values[i + 1], values[i + 2], values[i + 3] = s0, s1, s2, s3
            if back:
                v0, v1, v2, v3 = values[i], values[i + 1], values[i + 2], values[i + 3]
                if forth:
                    v0, v1, v2, v3 = v0 * slope[i], v1 * slope[i + 1], v2 * slope[i + 2], v3 * slope[i + 3]
                for j in range(len(some)):
                    some[j] += v0 * x0[j] + v1 * x1[j] + v2 * x2[j] + v3 * x3[j]
        if back:
            for j in range(len(out)):
                out[j] += some[j]


@part
def move(margin: Any, change: Any, length: Any, weight: Any, pull: Any, slope: Any) -> tuple[Any, Any]:
    """margin += length · change; there pull and slope, the loss's two derivatives, and both along change."""
    now = bend = ZERO
    for i in range(len(margin)):
        c, w = change[i], weight[i]
        m = margin[i] + length * c
        p = smaller_chance(m)
        g = -w * (p if m > 0 else ONE - p)
        h = w * p * (ONE - p)
        margin[i], pull[i], slope[i] = m, g, h
        now += g * c
        bend += h * c * c
    return now, bend


@kernel
def descend(
    numbers: Any, weights: Any, begun: Any, penalties: Any, limits: Any, directions: Any, tilts: Any, estimates: Any,
    by_row: Any, by_feature: Any, some: Any, passes: Any, linear: bool,
) -> None:  # fmt: skip
    """Conjugate gradients on what `gather` made, one product with X and one with Xᵀ a step.

    Nonlinear, for set s: x in estimates[s] until no entry of the gradient Xᵀ pull(margins) + penalty x is above
    limits[s]. The first step, from margins 0, is directions[s] as it is; others are as long as Newton's method on the
    line says. Linear, after that: the Newton step x from there, given the gradient as tilts[s], that is
    (Xᵀ diag(slope) X + penalty) x = −tilt, with both products while a row is at hand. `by_row` holds margins, their
    changes, pulls and slopes, 0 or as they were left; `by_feature` and `some` are room for three vectors and one.
    """
    gradient, former, image = by_feature[0], by_feature[1], by_feature[2]
    for s in range(len(limits)):
        a, b, penalty, x, direction, tilt = begun[s], begun[s + 1], penalties[s], estimates[s], directions[s], tilts[s]
        margin, change, pull, slope = by_row[0, a:b], by_row[1, a:b], by_row[2, a:b], by_row[3, a:b]
        X, taken, previous, incline, own, along = numbers[a:b], 0, 0.0, -1.0, 1.0, 0.0  # a first step of length 1
        for j in range(len(x)):
            gradient[j] = tilt[j]
        while True:
            length = 0.0
            for j in range(len(x)):
                image[j] = 0.0
            for back in range(1 if linear else 0, 2 if taken > 0 or not linear else 0):  # one call: it is compiled once
                values = pull if back > 0 and not linear else change
                sweep(X, direction, slope, values, some, image, linear or back == 0, back > 0)
                if linear:
                    bend = own
                    for j in range(len(x)):
                        bend += direction[j] * image[j]
                    length = -incline / bend
                elif back == 0:
                    bend, low, high, turned = own, 0.0, np.inf, incline
                    for i in range(b - a):
                        bend += slope[i] * change[i] * change[i]
                    for _ in range(LINE_STEPS):
                        step = -turned / bend
                        if not (low < length + step < high):
                            step = (low + high) / 2.0 - length if high < np.inf else length + 1.0
                        length += step
                        turned, bend = move(margin, change, np.float32(step), weights[a:b], pull, slope)
                        turned, bend = turned + along + length * own, bend + own
                        if taken == 0 or abs(turned) <= LINE_SLOPE * -incline:
                            break
                        if turned > 0.0:
                            high = length
                        else:
                            low = length
            for j in range(len(x)):
                x[j] += length * direction[j]
                if linear:
                    gradient[j] += length * (image[j] + penalty[j] * direction[j])
                else:
                    gradient[j] = tilt[j] + image[j] + penalty[j] * x[j]
            taken += 1
            square = mixed = ahead = largest = 0.0
            for j in range(len(x)):
                g = gradient[j]
                square += g * g
                mixed += g * former[j]
                ahead += g * direction[j]
                largest = max(largest, abs(g))
                former[j] = g
            if not limits[s] < largest or taken >= MOST_PASSES:
                break
            keep = (square - mixed) / previous if previous > 0.0 else 0.0  # Polak and Ribière's
            if not (keep > 0.0 and keep * ahead < square):
                keep = 0.0  # would not be downhill: from the gradient again
            previous, incline, own, along = square, keep * ahead - square, 0.0, 0.0
            for j in range(len(x)):
                p = keep * direction[j] - gradient[j]
                direction[j] = p
                own += penalty[j] * p * p
                along += penalty[j] * x[j] * p
        passes[s] = taken


@kernel
def add_gradients(
    Z: Any, y: Any, weights: Any, rows: Any, pointer: Any, begun: Any, by_row: Any, theta: Any, gradient: Any, far: Any
) -> None:
    """gradient[s] += the gradient of the loss at theta[s], in float64, from the rows as given.

    far[s] is how far any margin is from what `descend` left.
    """
    for s in range(len(theta)):
        at, out, margin = theta[s], gradient[s], by_row[0, begun[s] :]
        far[s] = 0.0
        for k in range(pointer[s + 1] - pointer[s]):
            i = rows[pointer[s] + k]
            z, m = Z[i], 0.0
            for j in range(len(at)):
                m += z[j] * at[j]
            miss = weights[i] * (1.0 / (1.0 + np.exp(-m)) - y[i])
            far[s] = max(far[s], abs((2.0 * y[i] - 1.0) * m - margin[k]))
            for j in range(len(at)):
                out[j] += miss * z[j]


# -- eigenvalues and pairs ---------------------------------------------------------------------------------------------


@kernel
def least_eigenvalues(matrices: Any, w: Any, out: Any) -> None:
    """The smallest eigenvalue of each positive semidefinite matrix, (k, d, d), which are overwritten; `w` is room.

    Householder reflections make a matrix tridiagonal; Laguerre's method, started below all eigenvalues, climbs to the
    smallest and never passes it. As accurate as LAPACK: some roundings of the largest eigenvalue.
    """
    d = matrices.shape[1]
    for at in range(len(matrices)):
        A, size = matrices[at], 0.0
        for k in range(d):
            size = max(size, A[k, k])
            v, m, s = A[k, k + 1 :], d - k - 1, 0.0
            for i in range(m):
                s += v[i] * v[i]
            if m == 0:
                break
            first = v[0]
            tail = s - first * first
            if m > 1 and tail > 1e-300:
                v[0] += np.copysign(np.sqrt(s), first)
                beta, turn = 2.0 / (tail + v[0] * v[0]), 0.0
                for i in range(m):
                    row, dot = A[k + 1 + i, k + 1 :], 0.0
                    for j in range(m):
                        dot += row[j] * v[j]
                    w[i] = beta * dot
                    turn += beta * w[i] * v[i]
                for i in range(m):
                    row, e, f = A[k + 1 + i, k + 1 :], v[i], w[i] - turn * v[i]
                    for j in range(m):
                        row[j] -= e * w[j] + f * v[j]
            v[0] = s  # the square of the entry beside the diagonal
        x = -1e-15 * size
        for _ in range(60):
            q = A[0, 0] - x  # a pivot of the matrix − x; u and h are its two derivatives, divided by it
            u, h, below = -1.0 / q, 0.0, q > 0.0
            f, g = -u, u * u
            for k in range(1, d):
                c = A[k - 1, k] / q
                q = A[k, k] - x - c
                h = c * (h - 2.0 * u * u) / q
                u = (c * u - 1.0) / q
                below &= q > 0.0
                f -= u
                g += u * u - h
            if not below:
                break
            step = d / (f + np.sqrt(max((d - 1.0) * (d * g - f * f), 0.0)))
            x += step
            if step <= 1e-14 * size + 1e-13 * x:
                break
        out[at] = max(x, 0.0)


@kernel
def connect_tile(
    excess: Any, top: int, left: int, low: Any, high: Any, error: Any, reach: Any, take: Any, both: bool, code: Any,
    other_code: Any, degree: Any, key: Any, other_key: Any, doubtful: Any,
) -> int:  # fmt: skip
    """Edges from the users from `top` on to those from `left` on, whose `excess` says how near they are.

    u is joined to v when excess_uv > high_u + error_v, is not when excess_uv ≤ low_u or reach_u ≤ take_v, and is listed
    in `doubtful`, whose fill is returned, in between. Edges are counted in `degree` and in two keys that sum the codes
    of the neighbours, for u and, where they hold for `both`, for v.
    """
    filled = 0
    height, m = excess.shape
    errors, takes, codes, others = error[left:], take[left:], code[left:], other_code[left:]  # only loops from 0 are
    degrees, keys, other_keys = degree[left:], key[left:], other_key[left:]  # vectorised
    crowded = False
    for i in range(height):
        u = top + i
        row = excess[i]
        least, enough, r, c, o = low[u], high[u], reach[u], code[u], other_code[u]
        if top == left:
            row[i] = -np.inf  # not with oneself
        near = np.int32(crowded)
        if not crowded:
            for j in range(m):  # could any be an edge? In most graphs few can
                near = np.int32(near + np.int32(not (row[j] <= least)))  # else numba adds in 64 bits; nan is in doubt
        if near == 0:
            continue
        found, mine, other, unsure = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
        for j in range(m):
            possible = np.int32((not (row[j] <= least)) & (takes[j] < r))
            joined = np.int32(possible & np.int32(row[j] > enough + errors[j]))
            unsure = np.int32(unsure + np.int32(possible - joined))
            found = np.int32(found + joined)
            mine = np.int32(mine + np.int32(joined * codes[j]))
            other = np.int32(other + np.int32(joined * others[j]))
            if both:
                degrees[j] = np.int32(degrees[j] + joined)
                keys[j] = np.int32(keys[j] + np.int32(joined * c))
                other_keys[j] = np.int32(other_keys[j] + np.int32(joined * o))
        crowded = bool(found > 0)  # then the next row probably has edges too: no need to ask first
        degree[u] += found
        key[u] += mine
        other_key[u] += other
        if unsure > 0:
            for j in range(m):
                if (not (row[j] <= least)) and takes[j] < r and not (row[j] > enough + errors[j]):
                    doubtful[filled, 0], doubtful[filled, 1] = u, left + j
                    filled += 1
    return filled


# -- Gaussian integrals and expectation propagation -------------------------------------------------------------------


def compiled_before() -> bool:
    """Is compiled code of these loops on disk? If not, the first use takes seconds."""
    return any(Path(descend.stats.cache_path).glob("_kernels.descend-*.nbi"))
