"""What the kernels share: how they are compiled, probabilities that vectorise, sums over rows and short vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# sums may be reordered, so that they vectorise; not-a-number and infinity keep their meaning
FAST = {"reassoc", "contract", "nsz", "arcp"}
kernel = njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")


@kernel
def aligned(size: int) -> Any:
    """Room for float32 numbers at the start of a cache line: vectors across two lines are read at half the speed."""
    raw = np.empty(size + 16, np.float32)
    skip = (-(raw.ctypes.data // 4)) % 16
    return raw[skip : skip + size]


@kernel
def answer_slopes(margin: Any, weight: Any, pull: Any, slope: Any, n: int) -> None:
    """For margins of the given answers: pull = −w σ(−m), slope = w σ(m) σ(−m), by an exponential that vectorises."""
    for i in range(n):
        m = margin[i]
        x = -abs(m)
        if x < -700.0:
            x = -700.0
        k = int(x * 1.4426950408889634 - 0.5)  # nearest integer, x being negative
        f = x - k * 0.6931471805599453
        high = 1 / 720 + f * (1 / 5040 + f * (1 / 40320 + f * (1 / 362880 + f * (1 / 3628800 + f / 39916800))))
        e = 1.0 + f * (1.0 + f * (0.5 + f * (1 / 6 + f * (1 / 24 + f * (1 / 120 + f * high)))))
        e *= np.int64((np.int64(k) + 1023) << 52).view(np.float64)
        p = e / (1.0 + e)  # the smaller of the two probabilities
        wrong = p if m > 0 else 1.0 - p
        pull[i] = -weight[i] * wrong
        slope[i] = weight[i] * p * (1.0 - p)


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
def dot(a: Any, b: Any, n: int) -> float:
    """Σ a b over the first n."""
    s = 0.0
    for i in range(n):
        s += a[i] * b[i]
    return s


@kernel
def largest_of(a: Any, n: int) -> float:
    """max |a| over the first n; infinite when one of them is not a number."""
    s = bad = 0.0
    for i in range(n):
        s = max(s, abs(a[i]))
        bad += 0.0 * a[i]
    return s if bad == 0.0 else np.inf


@kernel
def add_rows(Z: Any, side: Any, pull: Any, out: Any) -> None:
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
