"""Estimates of sixteen users at a time, one in each lane of the machine's vectors.

With few rows and features, loops over one user's are too short to be fast. Here every innermost loop runs over users,
who have about as many rows each. Numbers lie as [chunk of 8 rows][4 features][row][lane], so that such a loop reads
whole vectors at fixed places of one or two arrays: with more of them the compiler could not tell that they are apart.

No lane looks at another one: an estimate does not depend on whose neighbour a user is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prefkin.inference.kernels.arithmetic import aligned, kernel, largest_of, smaller_chance
from prefkin.inference.kernels.small_users import CANCELLED, LINE_SLOPE, add_gradient

MOST_STEPS = 60  # more are for those who get every user's own treatment
FACTOR_AFTER = (3, 10, 30)  # steps after which there may be a factorisation, if more are left than it costs
LINE_STEPS = 20

# places in a chunk's 5 × 128 numbers
CHANGE, WEIGHT, PULL, SLOPE = 128, 256, 384, 512
# places in a line's 3 × 128, and in a group's 4 × 64
NOW, BEND = 128, 256
DIRECTION, CONDITIONED, ESTIMATE = 64, 128, 192
# what is known of each lane: the gradient at 0, at the start and now; whether it goes on, has a factor, wants one;
# the metric without; terms of the direction and of the line; how many steps a factorisation costs; how large the
# gradient at 0 could have been
WHOLE, BEGUN, LARGEST, GOING, READY, WANTED, UNIT = 0, 16, 32, 48, 64, 80, 96
SIZE, MIXED, BEFORE, KEEP, INCLINE, OWN, ALONG, LENGTH = 112, 128, 144, 160, 176, 192, 208, 224
COST, TELLING = 240, 256
LANE_NUMBERS = 17


@kernel
def _fill(
    Z: Any,
    y: Any,
    weights: Any,
    first: Any,
    last: Any,
    pointer: Any,
    users: Any,
    chunks: int,
    rows: Any,
    T: Any,
    state: Any,
) -> None:
    """Everybody's rows into chunks, mirrored so that each answer was "the first one"; 0 where a lane has no more.

    By way of `rows`, where each lane's follow each other: then memory is read in one go.
    """
    d = Z.shape[1]
    by_feature = T.reshape((len(T), -1, 128))
    for c in range(chunks):
        part = state[c]
        for i in range(640):
            part[i] = np.float32(0)
    for lane in range(16):
        own, at = rows[lane], 0
        if lane < len(users):
            for k in range(pointer[users[lane]], pointer[users[lane] + 1]):
                for row in range(first[k], last[k]):
                    side, z, target = 2 * y[row] - 1, Z[row], own[at * d :]
                    for j in range(d):
                        target[j] = side * z[j]
                    state[at // 8, WEIGHT + at % 8 * 16 + lane] = weights[row]
                    at += 1
        rest = own[at * d : chunks * 8 * d]
        for i in range(len(rest)):
            rest[i] = np.float32(0)
    for c in range(chunks):
        for r in range(8):
            base = (8 * c + r) * d
            for j in range(d):
                tile, column = by_feature[c, j][16 * r :], rows[:, base + j]
                for n in range(16):
                    tile[n] = column[n]
        for j in range(d, by_feature.shape[1]):
            tile = by_feature[c, j]
            for i in range(128):
                tile[i] = np.float32(0)


@kernel
def _along(T: Any, chunks: int, groups: int, vectors: Any, place: int, state: Any, line: Any) -> None:
    """change = Z × the vectors at `place`, and Σ slope · change² on the line."""
    for i in range(128):
        line[BEND + i] = np.float32(0)
    for c in range(chunks):
        s = state[c]
        for i in range(128):
            s[CHANGE + i] = np.float32(0)
        for q in range(groups):
            z, v = T[c, q], vectors[q][place:]
            for n in range(16):
                for r in range(0, 128, 16):
                    s[CHANGE + n + r] += v[n] * z[n + r] + v[n + 16] * z[n + r + 128]
                    s[CHANGE + n + r] += v[n + 32] * z[n + r + 256] + v[n + 48] * z[n + r + 384]
        for i in range(128):
            line[BEND + i] += s[SLOPE + i] * s[CHANGE + i] * s[CHANGE + i]


@kernel
def _move(chunks: int, state: Any, line: Any) -> None:
    """margin += step · change, there pull and slope; Σ pull · change and Σ slope · change² on the line."""
    nothing, one = np.float32(0), np.float32(1)
    for i in range(128):
        line[NOW + i] = line[BEND + i] = nothing
    for c in range(chunks):
        s = state[c]
        for i in range(128):
            change, w = s[CHANGE + i], s[WEIGHT + i]
            m = s[i] + line[i] * change
            p = smaller_chance(m)
            g = -w * (p if m > nothing else one - p)
            h = w * p * (one - p)
            s[i], s[PULL + i], s[SLOPE + i] = m, g, h
            line[NOW + i] += g * change
            line[BEND + i] += h * change * change


@kernel
def _add_gradient(T: Any, chunks: int, groups: int, state: Any, vectors: Any) -> None:
    """gradient += Zᵀ pull."""
    for c in range(chunks):
        s = state[c]
        for q in range(groups):
            z, g = T[c, q], vectors[q]
            for n in range(16):
                s0 = s1 = s2 = s3 = np.float32(0)
                for r in range(0, 128, 16):
                    u = s[PULL + n + r]
                    s0 += u * z[n + r]
                    s1 += u * z[n + r + 128]
                    s2 += u * z[n + r + 256]
                    s3 += u * z[n + r + 384]
                g[n] += s0
                g[n + 16] += s1
                g[n + 32] += s2
                g[n + 48] += s3


@kernel
def _note_telling(T: Any, chunks: int, groups: int, state: Any, lanes: Any, room: Any) -> None:
    """How large an entry the gradient at 0 could have had: max ½ Σ w |z|."""
    for q in range(groups):
        for n in range(64):
            room[n] = np.float32(0)
        for c in range(chunks):
            z, s = T[c, q], state[c]
            for n in range(16):
                for r in range(0, 128, 16):
                    for e in range(4):
                        room[n + 16 * e] += np.float32(0.5) * s[WEIGHT + n + r] * abs(z[n + r + 128 * e])
        for n in range(16):
            for e in range(0, 64, 16):
                lanes[TELLING + n] = max(lanes[TELLING + n], room[n + e])


@kernel
def _curvature(T: Any, chunks: int, groups: int, state: Any, ridge: Any, scaled: Any, A: Any) -> None:
    """A = Zᵀ diag(slope) Z + ridge I, two rows in one, from each row's own group of features on."""
    for j in range(2 * groups):
        for q in range(groups):
            a = A[j, q]
            for n in range(128):
                a[n] = np.float32(0)
        a = A[j, j // 2][j % 2 * 32 :]
        for n in range(16):
            a[n] = a[n + 80] = ridge
    for c in range(chunks):
        s = state[c]
        for q in range(groups):
            z, x = T[c, q], scaled[q]
            for i in range(128):
                for e in range(0, 512, 128):
                    x[i + e] = z[i + e] * s[SLOPE + i]
        for j in range(2 * groups):
            x = scaled[j // 2][j % 2 * 256 :]
            for q in range(j // 2, groups):
                z, a = T[c, q], A[j, q]
                for n in range(16):
                    for e in range(0, 128, 64):
                        s0 = s1 = s2 = s3 = np.float32(0)
                        for r in range(0, 128, 16):
                            u = x[n + r + 2 * e]
                            s0 += u * z[n + r]
                            s1 += u * z[n + r + 128]
                            s2 += u * z[n + r + 256]
                            s3 += u * z[n + r + 384]
                        a[n + e] += s0
                        a[n + e + 16] += s1
                        a[n + e + 32] += s2
                        a[n + e + 48] += s3


@kernel
def _factor(A: Any, groups: int, lanes: Any, fresh: Any, F: Any, pivots: Any) -> None:
    """Cholesky factors of A, in the lanes where that is wanted: below the diagonal in F, 1 / diagonal in `pivots`.

    F has four rows in one. It is 0 elsewhere, and so is a fresh row where it is not computed yet.
    """
    total = aligned(64)
    for i in range(4 * groups):
        for q in range(groups):
            a = fresh[q]
            for n in range(64):
                a[n] = np.float32(0)
        for block in range(i // 4 + 1):  # of four columns
            one, two = A[2 * block, i // 4][i % 4 * 16 :], A[2 * block + 1, i // 4][i % 4 * 16 :]
            for n in range(16):
                total[n], total[n + 16], total[n + 32], total[n + 48] = one[n], one[n + 64], two[n], two[n + 64]
            for q in range(block):
                a, b = fresh[q], F[block, q]
                for n in range(16):
                    for e in range(0, 64, 16):
                        total[n + e] -= a[n] * b[n + 4 * e] + a[n + 16] * b[n + 4 * e + 16]
                        total[n + e] -= a[n + 32] * b[n + 4 * e + 32] + a[n + 48] * b[n + 4 * e + 48]
            a, b = fresh[block], F[block, block]
            for e in range(4):
                j, t, c = 4 * block + e, total[16 * e :], b[64 * e :]
                if j == i:
                    c = a
                for n in range(16):
                    t[n] -= a[n] * c[n] + a[n + 16] * c[n + 16] + a[n + 32] * c[n + 32] + a[n + 48] * c[n + 48]
                pivot, target = pivots[j], a[16 * e :]
                if j < i:
                    for n in range(16):
                        target[n] = t[n] * pivot[n]
                else:
                    for n in range(16):
                        root = np.float32(1) / np.sqrt(max(t[n], np.float32(1e-30)))
                        pivot[n] = root if lanes[WANTED + n] > 0 else pivot[n]
                    break
            kept = F[i // 4, block][i % 4 * 64 :]
            for n in range(16):
                for e in range(0, 64, 16):
                    kept[n + e] = a[n + e] if lanes[WANTED + n] > 0 else kept[n + e]


@kernel
def _solve(F: Any, pivots: Any, groups: int, vectors: Any, x: Any) -> None:
    """x = (F Fᵀ)⁻¹ gradient."""
    now = aligned(16)
    for q in range(groups):
        a = x[q]
        for n in range(64):
            a[n] = np.float32(0)
    for i in range(4 * groups):
        g, pivot, out = vectors[i // 4][i % 4 * 16 :], pivots[i], x[i // 4][i % 4 * 16 :]
        for n in range(16):
            now[n] = g[n]
        for q in range(i // 4 + 1):
            a, b = F[i // 4, q][i % 4 * 64 :], x[q]
            for n in range(16):
                now[n] -= a[n] * b[n] + a[n + 16] * b[n + 16] + a[n + 32] * b[n + 32] + a[n + 48] * b[n + 48]
        for n in range(16):
            out[n] = now[n] * pivot[n]
    for i in range(4 * groups - 1, -1, -1):
        pivot, out = pivots[i], x[i // 4][i % 4 * 16 :]
        for n in range(16):
            now[n] = out[n] * pivot[n]
        for q in range(i // 4 + 1):
            a, b = F[i // 4, q][i % 4 * 64 :], x[q]
            for n in range(16):
                for e in range(0, 64, 16):
                    b[n + e] -= a[n + e] * now[n]
        for n in range(16):
            out[n] = now[n]


@kernel
def _turn(vectors: Any, groups: int, solved: Any, lanes: Any) -> None:
    """The next directions: Polak-Ribière, and from the gradient again where that is not downhill."""
    for n in range(16):
        for place in (SIZE, MIXED, INCLINE, OWN, ALONG):
            lanes[place + n] = np.float32(0)
    for q in range(groups):
        v, x = vectors[q], solved[q]
        for n in range(16):
            for e in range(0, 64, 16):
                g = v[n + e]
                lanes[MIXED + n] += g * v[CONDITIONED + n + e]  # that of the former gradient
                c = x[n + e] if lanes[READY + n] > 0 else lanes[UNIT + n] * g
                v[CONDITIONED + n + e] = c
                lanes[SIZE + n] += g * c
                lanes[INCLINE + n] += g * v[DIRECTION + n + e]
    for n in range(16):
        size, before, incline = lanes[SIZE + n], lanes[BEFORE + n], lanes[INCLINE + n]
        keep = max(np.float32(0), (size - lanes[MIXED + n]) / before) if before > 0 else np.float32(0)
        keep = keep if keep * incline < size else np.float32(0)
        lanes[KEEP + n], lanes[INCLINE + n], lanes[BEFORE + n] = keep, keep * incline - size, size
    for q in range(groups):
        v = vectors[q]
        for n in range(16):
            for e in range(0, 64, 16):
                p = lanes[KEEP + n] * v[DIRECTION + n + e] - v[CONDITIONED + n + e]
                p = p if lanes[GOING + n] > 0 else np.float32(0)
                v[DIRECTION + n + e] = p
                lanes[OWN + n] += p * p
                lanes[ALONG + n] += v[ESTIMATE + n + e] * p


@kernel
def _folded(line: Any, place: int, out: Any) -> None:
    """Sums over the 8 rows of a chunk."""
    part = line[place:]
    for n in range(16):
        total = np.float32(0)
        for r in range(0, 128, 16):
            total += part[n + r]
        out[n] = total


@kernel
def _largest(vectors: Any, groups: int, lanes: Any, place: int) -> None:
    """max|gradient| of each lane to its `place`; infinite when one is not a number."""
    out = lanes[place:]
    for n in range(16):
        out[n] = np.float32(0)
    for q in range(groups):
        g = vectors[q]
        for n in range(16):
            for e in range(0, 64, 16):
                size = abs(g[n + e])
                out[n] = out[n] if size <= out[n] else size
    for n in range(16):
        out[n] = out[n] if out[n] < np.inf else np.float32(np.inf)


@kernel
def _search(chunks: int, ridge: Any, state: Any, line: Any, lanes: Any) -> None:
    """Lengths of the steps: Newton's along the line, until its slope has fallen to a part; pulls and slopes there."""
    now, bend, low, high, moving = aligned(16), aligned(16), aligned(16), aligned(16), aligned(16)
    _folded(line, BEND, bend)
    for n in range(16):
        now[n], low[n], high[n], moving[n] = lanes[INCLINE + n], np.float32(0), np.float32(np.inf), lanes[GOING + n]
        lanes[LENGTH + n] = np.float32(0)
    for _ in range(LINE_STEPS):
        for n in range(16):
            length = lanes[LENGTH + n]
            step = -now[n] / (bend[n] + ridge * lanes[OWN + n])
            if not (low[n] < length + step < high[n]):
                step = (low[n] + high[n]) / np.float32(2) - length if high[n] < np.inf else max(np.float32(1), length)
            step = step if moving[n] > 0 else np.float32(0)
            lanes[LENGTH + n] = length + step
            for r in range(0, 128, 16):
                line[n + r] = step
        _move(chunks, state, line)
        _folded(line, NOW, now)
        _folded(line, BEND, bend)
        left = np.float32(0)
        for n in range(16):
            now[n] += ridge * (lanes[ALONG + n] + lanes[LENGTH + n] * lanes[OWN + n])
            if abs(now[n]) <= np.float32(LINE_SLOPE) * -lanes[INCLINE + n]:
                moving[n] = np.float32(0)
            left += moving[n]
            if now[n] > 0:
                high[n] = lanes[LENGTH + n]
            else:
                low[n] = lanes[LENGTH + n]
        if left == 0:
            return


@kernel
def _want_factors(turn: int, tol: float, lanes: Any) -> tuple[bool, bool]:
    """Who wants a factorisation: does anybody, and has anybody one then?

    At the speed so far, would the steps still to go cost more?
    """
    wanted = ready = False
    for n in range(16):
        lanes[WANTED + n] = np.float32(0)
        if turn in FACTOR_AFTER and lanes[GOING + n] > 0:
            speed = np.log(lanes[BEGUN + n] / lanes[LARGEST + n]) / turn
            if np.log(lanes[LARGEST + n] / (tol * lanes[WHOLE + n])) > lanes[COST + n] * speed:
                lanes[WANTED + n] = lanes[READY + n] = np.float32(1)
                lanes[BEFORE + n] = np.float32(0)
        wanted |= lanes[WANTED + n] > 0
        ready |= lanes[READY + n] > 0
    return wanted, ready


@kernel
def _still_going(tol: float, lanes: Any) -> bool:
    left = False
    for n in range(16):
        here = (
            np.float32(0.7 * tol) * lanes[WHOLE + n] < lanes[LARGEST + n] < np.inf
        )  # float32 may be wrong by the rest
        lanes[GOING + n] = lanes[GOING + n] if here else np.float32(0)
        left |= lanes[GOING + n] > 0
    return left


@kernel
def descend_together(
    Z: Any,
    y: Any,
    weights: Any,
    first: Any,
    last: Any,
    pointer: Any,
    order: Any,
    ridge: float,
    tol: float,
    theta: Any,
    work: Any,
) -> None:
    """Estimates of the sets in `order`, sixteen at a time, by the method of `small_users.descend`, and like it."""
    d = Z.shape[1]
    groups, little = (d + 3) // 4, np.float32(ridge)
    sizes = np.zeros(len(order), np.int64)
    for o in range(len(order)):
        for k in range(pointer[order[o]], pointer[order[o] + 1]):
            sizes[o] += last[k] - first[k]
    most = max((sizes.max() + 7) // 8, 1)
    rows, T = (
        aligned(16 * (most * 8 * d + 16)).reshape((16, -1)),
        aligned(most * groups * 512).reshape((-1, groups, 512)),
    )
    state, line, lanes = aligned(most * 640).reshape((-1, 640)), aligned(384), aligned(16 * LANE_NUMBERS)
    vectors, solved = aligned(groups * 256).reshape((groups, 256)), aligned(groups * 64).reshape((groups, 64))
    A = aligned(groups * groups * 256).reshape((2 * groups, groups, 128))
    F = aligned(groups * groups * 256).reshape((groups, groups, 256))
    scaled, pivots = aligned(groups * 512).reshape((groups, 512)), aligned(groups * 64).reshape((4 * groups, 16))
    exact, exact_pull, exact_slope, gradient = np.empty(8 * most), np.empty(8 * most), np.empty(8 * most), np.empty(d)
    steps = np.empty(16, np.int64)
    for begin in range(0, len(order), 16):
        users = order[begin : begin + 16]
        chunks = (sizes[begin : begin + 16].max() + 7) // 8
        _fill(Z, y, weights, first, last, pointer, users, chunks, rows, T, state)
        vectors[:], F[:], lanes[:] = np.float32(0), np.float32(0), np.float32(0)
        started = False
        for lane in range(len(users)):
            lanes[COST + lane] = 5.0 + 0.15 * d + d * d / (12.0 * max(sizes[begin + lane], 1))
            for j in range(d):
                vectors[j // 4, ESTIMATE + j % 4 * 16 + lane] = theta[users[lane], j]
                started |= theta[users[lane], j] != 0.0
        for c in range(chunks):
            part = state[c]
            for i in range(128):
                part[PULL + i], part[SLOPE + i] = (
                    np.float32(-0.5) * part[WEIGHT + i],
                    np.float32(0.25) * part[WEIGHT + i],
                )
        _add_gradient(T, chunks, groups, state, vectors)
        _largest(vectors, groups, lanes, WHOLE)
        _note_telling(T, chunks, groups, state, lanes, line)
        if started:
            _along(T, chunks, groups, vectors, ESTIMATE, state, line)
            line[:128] = np.float32(1)
            _move(chunks, state, line)
            vectors[:, :64] = little * vectors[:, ESTIMATE:]
            _add_gradient(T, chunks, groups, state, vectors)
        _largest(vectors, groups, lanes, BEGUN)
        for n in range(16):
            whole = lanes[WHOLE + n]
            usual = np.float32(1e-15) < whole < np.float32(1e15)  # so that steps are neither huge nor tiny in float32
            lanes[UNIT + n] = np.float32(1) / (whole * whole) if usual else np.float32(1)
            lanes[LARGEST + n], lanes[GOING + n], steps[n] = lanes[BEGUN + n], np.float32(1), 0
        turn = 0
        while _still_going(tol, lanes) and turn < MOST_STEPS:
            for n in range(16):
                steps[n] += lanes[GOING + n] > 0
            wanted, ready = _want_factors(turn, tol, lanes)
            if wanted:
                _curvature(T, chunks, groups, state, little, scaled, A)
                _factor(A, groups, lanes, solved, F, pivots)
            if ready:
                _solve(F, pivots, groups, vectors, solved)
            _turn(vectors, groups, solved, lanes)
            _along(T, chunks, groups, vectors, DIRECTION, state, line)
            _search(chunks, little, state, line, lanes)
            for q in range(groups):
                v = vectors[q]
                for n in range(16):
                    for e in range(0, 64, 16):
                        v[ESTIMATE + n + e] += lanes[LENGTH + n] * v[DIRECTION + n + e]
                        v[n + e] = little * v[ESTIMATE + n + e]
            _add_gradient(T, chunks, groups, state, vectors)
            _largest(vectors, groups, lanes, LARGEST)
            turn += 1
        for lane in range(len(users)):
            s = users[lane]
            estimate = theta[s]
            for j in range(d):
                estimate[j] = vectors[j // 4, ESTIMATE + j % 4 * 16 + lane]
                gradient[j] = ridge * estimate[j]
            for k in range(pointer[s], pointer[s + 1]):
                add_gradient(Z, y, weights, first[k], last[k], estimate, exact, exact_pull, exact_slope, gradient)
            reached, whole = largest_of(gradient, d), 1.0 * lanes[WHOLE + lane]
            done = reached <= tol * whole and CANCELLED * lanes[TELLING + lane] <= whole < np.inf
            if not (done or reached <= lanes[BEGUN + lane]):  # no better than it was: whoever tries next begins at 0
                estimate[:] = 0.0
            work[s, 0], work[s, 1], work[s, 2] = steps[lane], 2 * steps[lane] + 1 + 2 * started, lanes[READY + lane] > 0
            work[s, 3] = done
