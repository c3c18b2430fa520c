"""Inner loops compiled by numba: the only file that knows it. Compiled once after installation and kept on disk.

Every function trusts its arrays, holds no Python lock while it runs (`for_each` shares sets out to threads) and treats
each set of rows by itself, so that results depend neither on threads nor on who else is in the data.
"""

from __future__ import annotations

import math
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
    "evidences",
    "gather",
    "integrate",
    "keep",
    "least_eigenvalues",
    "match",
    "misses",
    "sum_up",
]

# sums may be reordered, so that they vectorise; not-a-number and infinity keep their meaning
OPTIONS: Any = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy"}
kernel: Callable[[Callable[..., Any]], Any] = njit(cache=True, **OPTIONS)
# a part of kernels, which keep it on disk: a call could end in another copy of it where it was just compiled, and round
# otherwise
part: Callable[[Callable[..., Any]], Any] = njit(forceinline=True, **OPTIONS)

ROOT_2, ROOT_TWO_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)
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


@part
def swept(M: Any, pivots: int, room: Any, whole: bool) -> Any:
    """Sweep the first `pivots` rows and columns out of a symmetric matrix in its lower triangle; their log determinant.

    With M = [[P, B], [Bᵀ, C]] the corner C becomes C − BᵀP⁻¹B; with `whole` P becomes −P⁻¹, and B P⁻¹B (Beaton, 1964).
    Four at a time, of which the others, two rows at once, lose Bᵀ(P⁻¹B), so that numbers are used while they are at
    hand; above the diagonal is what is left of that. Not a number where P is not positive definite.
    room: (3, 4, n and pivots + 3 at least)
    """
    n, log_volume = len(M), 0.0
    B, W, inner = room[0], room[1], room[2]
    for k in range(0, pivots, 4):
        end = min(k + 4, pivots)
        first = 0 if whole else k
        m = n - first
        for a in range(end - k):
            row, other, lower = B[a], W[a], M[k + a]
            for j in range(first, k + a + 1):
                row[j] = lower[j]
            for j in range(k + a + 1, n):
                row[j] = M[j, k + a]
            for j in range(n):
                other[j] = row[j]
            for j in range(4):
                inner[a, j] = row[k + j]
        for a in range(end - k, 4):
            B[a, :] = 0.0
            W[a, :] = 0.0
        for a in range(end - k):
            pivot = inner[a, a]
            if not pivot > 0.0:
                return np.nan
            log_volume += math.log(pivot)
            inner[a, a] = 1.0
            for j in range(4):
                inner[a, j] /= pivot
            row = W[a, first:]
            for j in range(m):
                row[j] /= pivot
            for b in range(end - k):
                if b != a:
                    times, inner[b, a] = inner[b, a], 0.0
                    for j in range(4):
                        inner[b, j] -= times * inner[a, j]
                    other = W[b, first:]
                    for j in range(m):
                        other[j] -= times * row[j]
        b0, b1, b2, b3 = B[0], B[1], B[2], B[3]
        w0, w1, w2, w3 = W[0, first:], W[1, first:], W[2, first:], W[3, first:]
        i = first if first < k else end
        while i < n:
            row, s0, s1, s2, s3 = M[i, first:], b0[i], b1[i], b2[i], b3[i]
            if i + 1 < n and i + 1 != k:
                other, t0, t1, t2, t3 = M[i + 1, first:], b0[i + 1], b1[i + 1], b2[i + 1], b3[i + 1]
                for j in range(i + 2 - first):
                    row[j] -= s0 * w0[j] + s1 * w1[j] + s2 * w2[j] + s3 * w3[j]
                    other[j] -= t0 * w0[j] + t1 * w1[j] + t2 * w2[j] + t3 * w3[j]
                i += 2
            else:
                for j in range(i + 1 - first):
                    row[j] -= s0 * w0[j] + s1 * w1[j] + s2 * w2[j] + s3 * w3[j]
                i += 1
            i = end if i == k else i
        if whole:
            for a in range(end - k):
                row, lower = W[a], M[k + a]
                for j in range(k):
                    lower[j] = row[j]
                for j in range(a + 1):
                    lower[k + j] = -inner[a, j]
                for j in range(end, n):
                    M[j, k + a] = row[j]
    return log_volume


@kernel
def sum_up(X: Any, starts: Any, precision: Any, pull: Any, H: Any, c: Any) -> None:
    """H += Σ precision x xᵀ and c += Σ pull x over each user's rows starts[u]:starts[u + 1]."""
    d = X.shape[1]
    for u in range(len(c)):
        for i in range(starts[u], starts[u + 1]):
            x = X[i]
            for j in range(d):
                row, times = H[u, j], precision[i] * x[j]
                c[u, j] += pull[i] * x[j]
                for k in range(d):
                    row[k] += times * x[k]


@kernel
def keep(X: Any, starts: Any, A: Any, a: Any, within: float, through: Any, own: Any) -> None:
    """(I − τ²A)x into `through` and τ² aᵀx into `own`, of each user's rows starts[u]:starts[u + 1]."""
    d = X.shape[1]
    for u in range(len(a)):
        for i in range(starts[u], starts[u + 1]):
            x, out, total = X[i], through[i], 0.0
            for j in range(d):
                out[j] = x[j]
                total += a[u, j] * x[j]
            own[i] = within * total
            for j in range(d):
                row, times = A[u, j], within * x[j]
                for k in range(d):
                    out[k] -= times * row[k]


@part
def forward(A: Any, row: Any, out: Any) -> Any:
    """A⁻¹ row, A lower triangular, into `out`, which may be `row`; its squared length."""
    square = 0.0
    for a in range(len(row)):
        total, lower = row[a], A[a]
        for c in range(a):
            total -= lower[c] * out[c]
        out[a] = total / lower[a]
        square += out[a] * out[a]
    return square


@part
def next_row(A: Any, i: int) -> Any:
    """Row i of the lower Cholesky factor of A, in place, after those before it; what it has on the diagonal."""
    row = A[i]
    row[i] = np.sqrt(row[i] - forward(A, row[:i], row[:i]))
    return row[i]


@kernel
def evidences(
    A: Any, a: Any, at: Any, other_A: Any, other_a: Any, which: Any, times: Any, m0: Any, between: float, M: Any,
    room: Any, out: Any,
) -> None:  # fmt: skip
    """log ∫ exp(aᵀm − mᵀAm/2) N(m; m0, between I) dm of A[at] + times · other_A[which], likewise a, pair by pair.

    With P = I + ρ²A and b = ρ²a + m0 it is (bᵀP⁻¹b − m0ᵀm0) / 2ρ² − log|P|/2: by `swept` where there are many features,
    else by Cholesky's method, row by row in M, whose last row is b and becomes L⁻¹b. Not a number where P is not
    positive definite. M: (d + 1, d + 1), room: (3, 4, d + 4)
    """
    d = len(m0)
    for p in range(len(at)):
        one, other, t, value = A[at[p]], other_A[which[p]], times[p], 0.0
        for i in range(d):
            row, mine, more = M[i], one[i], other[i]
            for j in range(i + 1):
                row[j] = between * (mine[j] + t * more[j])
            row[i] += 1.0
            M[d, i] = between * (a[at[p], i] + t * other_a[which[p], i]) + m0[i]
            value -= 0.5 * m0[i] * m0[i] / between
        if d >= MANY:
            M[d, d] = 0.0
            log_volume = swept(M, d, room, False)
            out[p] = value - 0.5 * (log_volume + M[d, d] / between)
            continue
        for i in range(d):
            value -= np.log(next_row(M, i))
        out[p] = value + 0.5 * forward(M, M[d, :d], M[d, :d]) / between


@kernel
def integrate(
    H: Any, c: Any, variance: float, faint: float, M: Any, room: Any, A: Any, a: Any, level: Any
) -> None:  # fmt: skip
    """A = HG, a = Gc and level = (τ² cᵀa − log|I + τ²H|) / 2 with G = (I + τ²H)⁻¹, user by user.

    A = (I − G) / τ², but as a product where the trace of τ²H is below `faint`. Levels are not numbers where I + τ²H is
    not positive definite. M: (d, d), room: (3, 4, d + 4)
    """
    d = len(M)
    for u in range(len(H)):
        own, out, trace = H[u], A[u], 0.0
        for i in range(d):
            row, mine = M[i], own[i]
            for j in range(i + 1):
                row[j] = variance * mine[j]
            trace += row[i]
            row[i] += 1.0
        log_volume, drawn = swept(M, d, room, True), 0.0
        for i in range(d):
            for j in range(i):
                M[j, i] = M[i, j]
        for i in range(d):
            row, total = M[i], 0.0
            for j in range(d):
                total -= row[j] * c[u, j]
            a[u, i] = total
            drawn += total * c[u, i]
        level[u] = 0.5 * (variance * drawn - log_volume)
        if trace < faint:
            for i in range(d):
                for j in range(i + 1):
                    total = 0.0
                    for k in range(d):
                        total -= own[i, k] * M[k, j] + own[j, k] * M[k, i]
                    out[i, j] = out[j, i] = 0.5 * total
        else:
            for i in range(d):
                row, mine = M[i], out[i]
                for j in range(d):
                    mine[j] = row[j] / variance
                mine[i] += 1.0 / variance


@part
def match_site(middle: Any, spread: Any, shares: Any, slopes: Any, farthest: Any) -> tuple[Any, Any, Any]:
    """Log mass of σ(m) when m ~ N(middle, spread); precision and pull of the site with the same moments."""
    mass, first, second = 0.0, 0.0, 0.0
    tail = middle < -0.5 * spread
    mirrored = -middle - spread if tail else middle
    for s in range(len(slopes)):
        widen = 1.0 / np.sqrt(1.0 + spread * slopes[s] * slopes[s])
        at = max(mirrored * slopes[s] * widen, farthest)
        mass += shares[s] * 0.5 * math.erfc(-at / ROOT_2)
        bell = math.exp(-0.5 * at * at) * widen / ROOT_TWO_PI * shares[s] * slopes[s]
        first += bell
        second += at * bell * widen * slopes[s]
    slope = first / mass
    curvature = min(max(slope * slope + second / mass, 1e-10), (1.0 - 1e-9) / spread)
    precision, log_mass = curvature / (1.0 - spread * curvature), math.log(mass)
    if tail:  # matched by way of its mirror image: propagation says why
        slope, log_mass = 1.0 - slope, log_mass + middle + 0.5 * spread
    return log_mass, precision, slope * (1.0 + spread * precision) + precision * middle


@part
def log_tilted(m: Any, middle: Any, spread: Any, power: Any) -> Any:
    """log σ(m)ᵖ N(m; middle, spread), but for a constant."""
    unlikely = math.log1p(math.exp(-abs(m))) + max(-m, 0.0)
    return -power * unlikely - 0.5 * (m - middle) * (m - middle) / spread


@part
def match_power(middle: Any, spread: Any, power: Any, nodes: Any) -> tuple[Any, Any, Any]:
    """`match_site` of σ(m)ᵖ, by quadrature, cut where the product is highest and where σᵖ no longer bends."""
    if spread * max(power, 1.0) < 1e-9:  # σᵖ does not bend within it
        miss = 1.0 / (1.0 + math.exp(min(middle, 700.0)))
        precision = power * miss * (1.0 - miss)
        return log_tilted(middle, middle, 1.0, power), precision, power * miss + precision * middle
    low, high, m, width = middle, middle + power * spread, middle, math.sqrt(spread)
    last = math.inf
    for _ in range(200):
        miss = 1.0 / (1.0 + math.exp(min(m, 700.0)))
        slope, bend = power * miss - (m - middle) / spread, power * miss * (1.0 - miss) + 1.0 / spread
        width = 1.0 / math.sqrt(bend)
        if slope > 0.0:
            low = m
        else:
            high = m
        if abs(slope) * width < 0.01 or high - low < 0.01 * min(width, 1.0):  # only where to cut, but σ bends within 1
            break
        step = slope / bend
        if abs(step) > 0.5 * last or not low < m + step < high:  # Newton's method goes to and fro
            step = 0.5 * (low + high) - m
        m, last = m + step, abs(step)
    top = log_tilted(m, middle, spread, power)
    left, right = width, width
    while top - log_tilted(m - left, middle, spread, power) < 36.0:
        left *= 1.5
    while top - log_tilted(m + right, middle, spread, power) < 36.0:
        right *= 1.5
    for k in range(8):  # σᵖ may end in a cliff, and nodes before it would be lost
        less = left * (1.0 - 0.5 ** (k + 2))
        left = less if top - log_tilted(m - less, middle, spread, power) > 36.0 else left
    bend_begins = min(max(-10.0 - m, -left), right)  # before, log σᵖ is straight
    bend_ends = min(max(math.log(power) + 10.0 - m, bend_begins), right)  # from there on σᵖ is 1
    cut = min(max(0.0, bend_begins), bend_ends)
    mass, first, second, told, square, curved = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    begin = -left
    for end in (bend_begins, cut, bend_ends, right):
        for k in range(nodes.shape[1]):
            off = begin + (end - begin) * nodes[0, k]
            part_ = nodes[1, k] * (end - begin) * math.exp(log_tilted(m + off, middle, spread, power) - top)
            miss = 1.0 / (1.0 + math.exp(min(m + off, 700.0)))
            mass, first, second = mass + part_, first + part_ * off, second + part_ * off * off
            told, square = told + part_ * miss, square + part_ * miss * miss
            curved += part_ * miss * (1.0 - miss)
        begin = end
    first, second, told, square, curved = first / mass, second / mass, told / mass, square / mass, curved / mass
    variance = second - first * first
    slope = power * told  # d log mass / d middle, since (mean − middle) / spread = E p σ(−m)
    curvature = power * (curved - power * (square - told * told))
    if variance < 0.9 * spread:
        slope, curvature = (m + first - middle) / spread, (1.0 - variance / spread) / spread
    curvature = min(max(curvature, 1e-10 * min(power, 1.0)), (1.0 - 1e-9) / spread)
    precision = curvature / (1.0 - spread * curvature)
    log_mass = top + math.log(mass) - 0.5 * math.log(spread) - math.log(ROOT_TWO_PI)
    return log_mass, precision, slope * (1.0 + spread * precision) + precision * middle


@kernel
def match(mean: Any, variance: Any, power: Any, mixture: Any, farthest: Any, nodes: Any, out: Any) -> None:
    """`match_site` of every row, or `match_power`, into `out`, (3, n): log mass, precision, pull."""
    for i in range(len(mean)):
        if power[i] != 1.0:
            out[0, i], out[1, i], out[2, i] = match_power(mean[i], variance[i], power[i], nodes)
        else:
            out[0, i], out[1, i], out[2, i] = match_site(mean[i], variance[i], mixture[0], mixture[1], farthest)


def compiled_before() -> bool:
    """Is compiled code of these loops on disk? If not, the first use takes seconds."""
    return any(Path(descend.stats.cache_path).glob("_kernels.descend-*.nbi"))
