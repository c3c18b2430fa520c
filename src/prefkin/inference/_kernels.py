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

__all__ = ["add_gradients", "compiled_before", "connect_tile", "descend", "gather", "least_eigenvalues", "misses"]

# sums may be reordered, so that they vectorise; not-a-number and infinity keep their meaning
FAST = {"reassoc", "contract", "nsz", "arcp"}
kernel: Callable[[Callable[..., Any]], Any] = njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")

MOST_PASSES = 200  # sets that need more are for Newton's method
LINE_SLOPE, LINE_STEPS = 0.3, 40  # a step along a line ends when the slope has fallen to this part


@kernel
def smaller_chance(m: Any) -> Any:
    """σ(−|m|) in float32, to its precision, by an exponential that vectorises."""
    one, half = np.float32(1), np.float32(0.5)
    x = max(-abs(m), np.float32(-80))
    k = np.int32(x * np.float32(1.4426950408889634) - half)  # nearest integer, x being negative
    f = x - np.float32(k) * np.float32(0.693359375) + np.float32(k) * np.float32(2.12194440e-4)
    e = f * (np.float32(1 / 24) + f * (np.float32(1 / 120) + f * np.float32(1 / 720)))
    e = one + f * (one + f * (half + f * (np.float32(1 / 6) + e)))
    e *= np.int32(np.int32(k + np.int32(127)) << np.int32(23)).view(np.float32)
    return e / (one + e)


@kernel
def misses(margin: Any, y: Any, weights: Any) -> None:
    """margin (rows, sets) in float32 → w (σ(margin) − y), in place: what each set's estimate gets wrong."""
    n, sets = margin.shape
    for i in range(n):
        row, answer, weight = margin[i], np.float32(y[i]), np.float32(weights[i])
        for s in range(sets):
            m = row[s]
            p = smaller_chance(m)
            row[s] = weight * ((np.float32(1) - p if m > 0 else p) - answer)


# -- many estimates: gather rows, descend, check -----------------------------------------------------------------------


@kernel
def gather(
    Z: Any, y: Any, weights: Any, starts: Any, parcel: Any, pointer: Any, ridge: Any, begun: Any, width: Any,
    numbers: Any, weight: Any, root: Any, zero: Any,
) -> None:  # fmt: skip
    """Each set's rows into tiles of `width` rows, by feature; set s from row begun[s] of `numbers` and `weight` on.

    Rows are mirrored, as if the first action had always been preferred, and multiplied by root = 1 / √(¼ Σ w z² + λ),
    which makes features free of units; `zero` is the gradient of the loss at 0, in features as given.
    """
    d, wide = Z.shape[1], numbers.shape[1]
    block = np.zeros((16, wide), np.float32)
    for s in range(len(ridge)):
        scale, gradient, n = root[s], zero[s], 0
        for k in range(pointer[s], pointer[s + 1]):
            for i in range(starts[parcel[k]], starts[parcel[k] + 1]):
                z, w, c = Z[i], weights[i], weights[i] * (0.5 - y[i])
                for j in range(d):
                    scale[j] += w * z[j] * z[j]
                    gradient[j] += c * z[j]
                n += 1
        for j in range(wide):
            scale[j] = 1.0 / np.sqrt(0.25 * scale[j] + ridge[s])
        at, rows, size = begun[s], numbers[begun[s] : begun[s + 1]], width[s]
        tiles = rows.reshape((len(rows) // size, wide, size))
        for k in range(pointer[s], pointer[s + 1]):
            for i in range(starts[parcel[k]], starts[parcel[k] + 1]):
                z, row, side = Z[i], block[(at - begun[s]) % 16], 2.0 * y[i] - 1.0
                for j in range(d):
                    row[j] = side * z[j] * scale[j]
                weight[at] = weights[i]
                at += 1
                here = at - begun[s] - 1
                if here % 16 == 15 or here == n - 1:
                    tile, place, filled = tiles[here // size], here % size // 16 * 16, here % 16 + 1
                    for j in range(wide):
                        for r in range(16):
                            tile[j, place + r] = block[r, j] if r < filled else np.float32(0)


@kernel
def product(tiles: Any, vector: Any, slope: Any, out: Any) -> Any:
    """out = X vector, from tiles of rows that lie by feature; Σ slope · out² is returned."""
    count, d, width = tiles.shape
    bend = np.float32(0)
    for t in range(count):
        o, h = out[t], slope[t]
        for i in range(width):
            o[i] = np.float32(0)
        for j in range(0, d, 4):
            x0, x1, x2, x3 = tiles[t, j], tiles[t, j + 1], tiles[t, j + 2], tiles[t, j + 3]
            v0, v1, v2, v3 = vector[j], vector[j + 1], vector[j + 2], vector[j + 3]
            for i in range(width):
                o[i] += v0 * x0[i] + v1 * x1[i] + v2 * x2[i] + v3 * x3[i]
        for i in range(width):
            bend += h[i] * o[i] * o[i]
    return bend


@kernel
def add_transposed(tiles: Any, values: Any, out: Any) -> None:
    """out += Xᵀ values: float32 within a tile, float64 over tiles."""
    count, d, width = tiles.shape
    for t in range(count):
        for j in range(0, d, 4):
            x0, x1, x2, x3, value = tiles[t, j], tiles[t, j + 1], tiles[t, j + 2], tiles[t, j + 3], values[t]
            s0 = s1 = s2 = s3 = np.float32(0)
            for i in range(width):
                v = value[i]
                s0 += v * x0[i]
                s1 += v * x1[i]
                s2 += v * x2[i]
                s3 += v * x3[i]
            out[j] += s0
            out[j + 1] += s1
            out[j + 2] += s2
            out[j + 3] += s3


@kernel
def move(margin: Any, change: Any, length: Any, weight: Any, pull: Any, slope: Any) -> tuple[Any, Any]:
    """margin += length · change; there pull and slope, the loss's two derivatives, and both along change."""
    now = bend = np.float32(0)
    for i in range(len(margin)):
        c, w = change[i], weight[i]
        m = margin[i] + length * c
        p = smaller_chance(m)
        g = -w * (p if m > 0 else np.float32(1) - p)
        h = w * p * (np.float32(1) - p)
        margin[i], pull[i], slope[i] = m, g, h
        now += g * c
        bend += h * c * c
    return now, bend


@kernel
def descend(
    numbers: Any, weights: Any, begun: Any, width: Any, penalties: Any, limits: Any, start: Any, tilts: Any,
    estimates: Any, room: Any, passes: Any, linear: bool,
) -> None:  # fmt: skip
    """Conjugate gradients on what `gather` made, one product with X and one with Xᵀ a step.

    Nonlinear, for set s: x in estimates[s] until no entry of the gradient Xᵀ pull(margins) + penalty x is above
    limits[s], with margins that begin at X start. A step is as long as Newton's method on the line says. Linear: the
    Newton step x from there, given the gradient as tilts[s], that is (Xᵀ diag(slope) X + penalty) x = −tilt.
    `room` has four rows of as many numbers as the largest set has rows.
    """
    wide, margins, changes, pulls, slopes = numbers.shape[1], room[0], room[1], room[2], room[3]
    vector, gradient, former, direction = np.zeros(wide, np.float32), np.zeros(wide), np.zeros(wide), np.zeros(wide)
    for s in range(len(limits)):
        n, size, penalty, x = begun[s + 1] - begun[s], width[s], penalties[s], estimates[s]
        tiles = numbers[begun[s] : begun[s + 1]].reshape((n // size, wide, size))
        weight, margin, change, pull, slope = weights[begun[s] :][:n], margins[:n], changes[:n], pulls[:n], slopes[:n]
        by_tile = change.reshape((n // size, size)), pull.reshape((n // size, size)), slope.reshape((n // size, size))
        for i in range(n):
            margin[i] = slope[i] = np.float32(0)
        for j in range(wide):
            vector[j], direction[j] = start[s, j], 0.0  # nothing of the set before
        previous, taken, incline, own, along = 0.0, 0, 0.0, 0.0, 0.0
        while True:
            bend = product(tiles, vector, by_tile[2], by_tile[0])
            length, low, high, turned = 0.0, 0.0, np.inf, incline
            if linear and taken > 0:
                length = -incline / (bend + own)
                for i in range(n):
                    margin[i] += np.float32(length) * change[i]
                    pull[i] = slope[i] * margin[i]
            else:
                for _ in range(LINE_STEPS):
                    step = -turned / (bend + own) if taken > 0 else 1.0  # the first one leads to the start, as a whole
                    if taken > 0 and not (low < length + step < high):
                        step = (low + high) / 2.0 - length if high < np.inf else max(1.0, length)
                    length += step
                    turned, bend = move(margin, change, np.float32(step), weight, pull, slope)
                    turned += along + length * own
                    if taken == 0 or abs(turned) <= LINE_SLOPE * -incline:
                        break
                    if turned > 0.0:
                        high = length
                    else:
                        low = length
            if taken == 0:
                length = 0.0
                for i in range(
                    n if linear else 0
                ):  # from here on margins are those of x, pulls what slopes make of them
                    margin[i] = pull[i] = np.float32(0)
            for j in range(wide):
                x[j] += length * direction[j]
                gradient[j] = tilts[s, j] + penalty[j] * x[j]
            taken += 1
            add_transposed(tiles, by_tile[1], gradient)
            size_of = mixed = now = 0.0
            for j in range(wide):
                size_of += gradient[j] * gradient[j]
                mixed += gradient[j] * former[j]
                now = max(now, abs(gradient[j]))
            if not limits[s] < now or taken >= MOST_PASSES:
                break
            keep = max(0.0, (size_of - mixed) / previous) if previous > 0.0 else 0.0  # Polak and Ribière's
            previous, incline = size_of, 1.0
            while not incline < 0.0:
                incline = own = along = 0.0
                for j in range(wide):
                    p = keep * direction[j] - gradient[j]
                    direction[j], former[j], vector[j] = p, gradient[j], p
                    incline += gradient[j] * p
                    own += penalty[j] * p * p
                    along += penalty[j] * x[j] * p
                if keep == 0.0:
                    break
                keep = 0.0  # should it not be downhill: from the gradient again
        passes[s] = taken


@kernel
def add_gradients(
    Z: Any, y: Any, weights: Any, starts: Any, parcel: Any, pointer: Any, theta: Any, gradient: Any
) -> None:
    """gradient[s] += the gradient of the loss at theta[s], in float64, from the rows as given."""
    d = Z.shape[1]
    for s in range(len(theta)):
        at, out = theta[s], gradient[s]
        for k in range(pointer[s], pointer[s + 1]):
            for i in range(starts[parcel[k]], starts[parcel[k] + 1]):
                z, m = Z[i], 0.0
                for j in range(d):
                    m += z[j] * at[j]
                miss = weights[i] * (1.0 / (1.0 + np.exp(-m)) - y[i])
                for j in range(d):
                    out[j] += miss * z[j]


# -- eigenvalues and pairs ---------------------------------------------------------------------------------------------


@kernel
def least_eigenvalues(matrices: Any, out: Any) -> None:
    """The smallest eigenvalue of each positive semidefinite matrix, (k, d, d), which are overwritten.

    Householder reflections make a matrix tridiagonal; Laguerre's method, started below all eigenvalues, climbs to the
    smallest and never passes it. As accurate as LAPACK: some roundings of the largest eigenvalue.
    """
    d = matrices.shape[1]
    diagonal, square, v, w = np.empty(d), np.zeros(d), np.empty(d), np.empty(d)
    for at in range(len(matrices)):
        A, size = matrices[at], 0.0
        for k in range(d):
            diagonal[k] = A[k, k]
            square[k] = 0.0
            size = max(size, A[k, k])
            m = d - k - 1
            if m == 0:
                break
            rest, s = A[k + 1 :, k + 1 :], 0.0
            for i in range(m):
                v[i] = A[k, k + 1 + i]
                s += v[i] * v[i]
            square[k] = s  # of the entry beside the diagonal
            tail = s - v[0] * v[0]
            if m == 1 or tail <= 1e-300:
                continue
            v[0] += np.copysign(np.sqrt(s), v[0])
            beta, product = 2.0 / (tail + v[0] * v[0]), 0.0
            for i in range(m):
                row, dot = rest[i], 0.0
                for j in range(m):
                    dot += row[j] * v[j]
                w[i] = beta * dot
                product += w[i] * v[i]
            half = 0.5 * beta * product
            for i in range(m):
                w[i] -= half * v[i]
            for i in range(m):
                row, a, b = rest[i], v[i], w[i]
                for j in range(m):
                    row[j] -= a * w[j] + b * v[j]
        x = -1e-15 * size
        for _ in range(60):
            q, r, t = diagonal[0] - x, -1.0, 0.0  # a pivot of the matrix − x, and its derivatives
            f, g, below = -r / q, 1.0 / (q * q), q > 0.0
            for k in range(1, d):
                c = square[k - 1] / q
                t = c / q * (t - 2.0 * r * r / q)
                r = -1.0 + c / q * r
                q = diagonal[k] - x - c
                below &= q > 0.0
                f -= r / q
                g += (r / q) * (r / q) - t / q
            if not below:
                break
            step = d / (f + np.sqrt(max((d - 1.0) * (d * g - f * f), 0.0)))
            x += step
            if step <= 1e-14 * size + 1e-13 * x:
                break
        out[at] = max(x, 0.0)


@kernel
def connect_tile(
    excess: Any,
    top: int,
    left: int,
    low: Any,
    high: Any,
    error: Any,
    reach: Any,
    take: Any,
    both: bool,
    code: Any,
    other_code: Any,
    degree: Any,
    key: Any,
    other_key: Any,
    doubtful: Any,
) -> int:
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


def compiled_before() -> bool:
    """Is compiled code of these loops on disk? If not, the first use takes seconds."""
    return any(Path(descend.stats.cache_path).glob("_kernels.descend-*.nbi"))
