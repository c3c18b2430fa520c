"""Inner loops of expectation propagation in the hierarchical model, compiled by numba.

Row i of user u has the Gaussian site exp(nu_i m − tau_i m²/2) in its margin m = xᵢᵀt. Under component c the user's
preference is t ~ N(m_c, v I), v = spread_u variance_c, so that with Λ = Σ tau xxᵀ, η = Σ nu x and G = (I + vΛ)⁻¹

    E[t | m_c] = G (m_c + v η),     cov[t | m_c] = v G,     message to m_c: A = ΛG, a = Gη.

Where a user has fewer rows than features everything is computed in the space of the rows: with C = XXᵀ and
W = T^½ (I + v T^½ C T^½)⁻¹ T^½ the message is A = XᵀWX and a = Xᵀ(ν − vWCν).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

__all__ = ["logistic_tilted", "margins", "messages", "pair_evidences", "sum_sites"]

# sums may be reordered, so that they vectorise; not-a-number and infinity keep their meaning
OPTIONS: Any = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy"}
kernel: Callable[[Callable[..., Any]], Any] = njit(cache=True, **OPTIONS)
part: Callable[[Callable[..., Any]], Any] = njit(forceinline=True, **OPTIONS)

BY_HAND = 40  # matrices up to this size are inverted by elimination, larger ones by LAPACK
NEGLIGIBLE = 1e-6  # responsibility below which a component is left out
MOST_NODES = 700  # of the quadrature, to either side: with more, the answer is as good as certain
ROOT_2, ROOT_TWO_PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)
FARTHEST = -37.0  # standard deviations beyond which the normal distribution function underflows

# σ(x) ≈ Σ p Φ(s x), to 1e-6 (Monahan and Stefanski, 1992)
SHARES = np.array(
    [0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818,
     0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354]
)  # fmt: skip
SLOPES = np.array(
    [1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391,
     0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306]
)  # fmt: skip


@part
def invert(P: Any) -> Any:
    """Replace a symmetric positive definite matrix by its inverse; the logarithm of its determinant."""
    n, log_det = len(P), 0.0
    if n > BY_HAND:
        L = np.linalg.cholesky(P)
        for k in range(n):
            log_det += 2.0 * math.log(L[k, k])
        P[:, :] = np.linalg.inv(P).T
        return log_det
    for k in range(n):
        pivot = P[k, k]
        log_det += math.log(pivot)
        P[k, k] = 1.0
        row = P[k]
        for j in range(n):
            row[j] /= pivot
        for i in range(n):
            if i != k:
                other, factor = P[i], P[i, k]
                other[k] = 0.0
                for j in range(n):
                    other[j] -= factor * row[j]
    return log_det


@part
def weighted_square(x: Any, weights: Any, Lam: Any) -> None:
    """Lam = Σ weights xxᵀ over the rows of x."""
    n, d = x.shape
    if n * d > 4 * BY_HAND * BY_HAND and d > 8:
        scaled = np.empty((n, d))
        for i in range(n):
            for j in range(d):
                scaled[i, j] = weights[i] * x[i, j]
        np.dot(x.T, scaled, Lam)
        return
    Lam[:, :] = 0.0
    for i in range(n):
        row = x[i]
        for j in range(d):
            times, out = weights[i] * row[j], Lam[j]
            for k in range(d):
                out[k] += times * row[k]


@kernel
def sum_sites(X: Any, starts: Any, tau: Any, nu: Any, Lam: Any, eta: Any) -> None:
    """Each user's likelihood as a Gaussian factor: Λ = Σ tau xxᵀ, η = Σ nu x."""
    for u in range(len(eta)):
        first, end = starts[u], starts[u + 1]
        x = X[first:end]
        weighted_square(x, tau[first:end], Lam[u])
        eta[u] = np.dot(nu[first:end], x)


@part
def fewer_rows(n: int, d: int) -> Any:
    """Is a user's algebra cheaper in the space of the rows?"""
    return n < d if d > BY_HAND else 2 * n <= d


@part
def in_rows(x: Any, tau: Any, nu: Any, v: Any) -> Any:
    """C = XXᵀ, W and w = ν − vWCν of a user with fewer rows than features, and log|I + vΛ|."""
    n = len(x)
    C, root = np.dot(x, x.T), np.sqrt(tau)
    W = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            W[i, j] = v * root[i] * C[i, j] * root[j]
        W[i, i] += 1.0
    log_det = invert(W)
    for i in range(n):
        for j in range(n):
            W[i, j] *= root[i] * root[j]
    w = nu - v * np.dot(W, np.dot(C, nu))
    return C, W, w, log_det


@part
def in_features(x: Any, tau: Any, nu: Any, v: Any) -> Any:
    """Λ, η, G, a = Gη and log|I + vΛ| of a user."""
    d = x.shape[1]
    Lam, G = np.empty((d, d)), np.empty((d, d))
    weighted_square(x, tau, Lam)
    for i in range(d):
        for j in range(d):
            G[i, j] = v * Lam[i, j]
        G[i, i] += 1.0
    log_det = invert(G)
    eta = np.dot(nu, x)
    return Lam, eta, G, np.dot(G, eta), log_det


@part
def message_matrix(Lam: Any, G: Any, v: Any) -> Any:
    """A = ΛG = (I − G) / v, by the form that does not cancel."""
    d, trace = len(G), 0.0
    for i in range(d):
        trace += v * Lam[i, i]
    if trace < 1e-3:
        return np.dot(Lam, G)
    A = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            A[i, j] = -0.5 * (G[i, j] + G[j, i]) / v
        A[i, i] += 1.0 / v
    return A


@kernel
def messages(
    X: Any, starts: Any, tau: Any, nu: Any, level: Any, spread: Any, share: Any, variance: Any, Lam: Any, eta: Any,
    log_norm: Any,
) -> None:  # fmt: skip
    """Add each user's message about the means of the components, times its share in them, to Lam, eta and log_norm.

    level, spread: (U,); share: (U, C); variance: (C,); Lam: (C, d, d); eta: (C, d); log_norm: (C,)
    """
    d = X.shape[1]
    for u in range(len(spread)):
        first, end = starts[u], starts[u + 1]
        x, t, n = X[first:end], tau[first:end], nu[first:end]
        last = -1.0
        A, a, norm = np.empty((0, 0)), np.empty(0), 0.0
        for c in range(len(variance)):
            r, v = share[u, c], variance[c] * spread[u]
            if r < NEGLIGIBLE or first == end:
                continue
            if v != last and fewer_rows(len(x), d):
                C, W, w, log_det = in_rows(x, t, n, v)
                A, a = np.dot(x.T, np.dot(W, x)), np.dot(w, x)
                norm, last = level[u] + 0.5 * (v * np.dot(n, np.dot(C, w)) - log_det), v
            elif v != last:
                L, e, G, a, log_det = in_features(x, t, n, v)
                A, norm, last = message_matrix(L, G, v), level[u] + 0.5 * (v * np.dot(e, a) - log_det), v
            for i in range(d):
                out, row = Lam[c, i], A[i]
                for j in range(d):
                    out[j] += r * row[j]
                eta[c, i] += r * a[i]
            log_norm[c] += r * norm


@part
def row_sums(one: Any, other: Any, out: Any) -> None:
    """out = Σ_j one_ij other_ij."""
    for i in range(len(one)):
        total = 0.0
        for j in range(one.shape[1]):
            total += one[i, j] * other[i, j]
        out[i] = total


@part
def score_statistics(A: Any, S: Any, s: Any, r: float, learn: int, D: Any, K: Any) -> Any:
    """|s|² and tr(A − A S A); with learn = 2 also D += r ssᵀ and K += r (A − A S A)."""
    d = len(s)
    AS, square, trace = np.dot(A, S), np.dot(s, s), 0.0
    for i in range(d):
        trace += A[i, i]
        for j in range(d):
            trace -= AS[i, j] * A[i, j]
    if learn == 2:
        ASA = np.dot(AS, A)
        for i in range(d):
            for j in range(d):
                D[i, j] += r * s[i] * s[j]
                K[i, j] += r * (A[i, j] - ASA[i, j])
    return square, trace


@part
def score_statistics_in_rows(x: Any, C: Any, W: Any, S: Any, s: Any, r: float, learn: int, D: Any, K: Any) -> Any:
    """`score_statistics` for A = XᵀWX, where A − A S A = Xᵀ(W − W Q W)X with Q = XSXᵀ."""
    n, d, trace = len(x), len(s), 0.0
    M = W - np.dot(W, np.dot(np.dot(np.dot(x, S), x.T), W))
    for i in range(n):
        for j in range(n):
            trace += M[i, j] * C[j, i]
    if learn == 2:
        image = np.dot(M, x)
        for i in range(d):
            for j in range(d):
                D[i, j] += r * s[i] * s[j]
        for k in range(n):
            for i in range(d):
                for j in range(d):
                    K[i, j] += r * x[k, i] * image[k, j]
    return np.dot(s, s), trace


@kernel
def margins(
    X: Any, starts: Any, tau: Any, nu: Any, spread: Any, share: Any, variance: Any, kind: Any, means: Any, covs: Any,
    learn: int, mean: Any, var: Any, theta: Any, scores: Any, D: Any, K: Any,
) -> None:  # fmt: skip
    """Posterior mean and variance of each row's margin, E t of each user, and what the M-step needs.

    means, covs: m_c and S_c, (C, d) and (C, d, d). learn: 0 nothing; 1 scores (U, 2, 2): Σ share |s|² and
    Σ share tr(A − A S A) with s = a − A m_c, over components of each kind (0 or 1); 2 also D += Σ share ssᵀ and
    K += Σ share (A − A S A), both (d, d). Shares are multiplied by the user's spread.
    """
    d = X.shape[1]
    for u in range(len(spread)):
        first, end = starts[u], starts[u + 1]
        x, t, n = X[first:end], tau[first:end], nu[first:end]
        m, v_m = mean[first:end], var[first:end]
        rows = fewer_rows(len(x), d)
        C, W, w, A, a = np.empty((0, 0)), np.empty((0, 0)), np.empty(0), np.empty((0, 0)), np.empty(0)
        Y, own, last, total = np.empty((0, 0)), np.empty(0), -1.0, 0.0
        diagonal, through = np.empty(len(x)), np.empty(len(x))
        for c in range(len(variance)):
            r, v = share[u, c], variance[c] * spread[u]
            if r < NEGLIGIBLE:
                continue
            if first == end:
                theta[u] += r * means[c]
                continue
            if v != last and rows:
                C, W, w, _ = in_rows(x, t, n, v)
                Y, own = x - v * np.dot(np.dot(C, W), x), v * np.dot(C, w)
            elif v != last:
                L, _e, G, a, _ = in_features(x, t, n, v)
                Y, own, A = np.dot(x, G), v * np.dot(x, a), message_matrix(L, G, v)
            if v != last:
                row_sums(Y, x, diagonal)
                last = v
            row_sums(np.dot(Y, covs[c]), Y, through)
            now = np.dot(Y, means[c]) + own
            total += r
            for i in range(len(x)):  # moments of a mixture, component by component
                off = now[i] - m[i]
                m[i] += off * r / total
                v_m[i] += r * (v * diagonal[i] + through[i]) + off * off * r * (total - r) / total
            s = np.dot(w - np.dot(W, np.dot(x, means[c])), x) if rows else a - np.dot(A, means[c])
            theta[u] += r * (means[c] + v * s)
            if learn > 0:
                counts = r * spread[u]
                if rows:
                    square, trace = score_statistics_in_rows(x, C, W, covs[c], s, counts, learn, D, K)
                else:
                    square, trace = score_statistics(A, covs[c], s, counts, learn, D, K)
                scores[u, kind[c], 0] += counts * square
                scores[u, kind[c], 1] += counts * trace
        if total > 0.0:
            for i in range(len(x)):
                v_m[i] /= total


@part
def eliminate(M: Any, pivots: int) -> Any:
    """Gaussian elimination of the first rows of a symmetric matrix, upper triangle; log of their determinant."""
    log_det = 0.0
    for k in range(pivots):
        top = M[k]
        if not top[k] > 0.0:
            return np.nan
        log_det += math.log(top[k])
        for i in range(k + 1, len(M)):
            row, factor = M[i], top[i] / top[k]
            for j in range(i, len(M)):
                row[j] -= factor * top[j]
    return log_det


@kernel
def pair_evidences(
    Lam: Any, eta: Any, one: Any, other_Lam: Any, other_eta: Any, other: Any, times: Any, m0: Any, variance: float,
    M: Any, out: Any,
) -> None:  # fmt: skip
    """log ∫ exp(ηᵀm − mᵀΛm/2) N(m; m0, variance I) dm for Λ = Lam[one] + times other_Lam[other], η likewise.

    With P = I + vΛ and b = vη + m0 it is (bᵀP⁻¹b − m0ᵀm0) / 2v − log|P|/2, by elimination in M, (d + 1, d + 1).
    """
    d = len(m0)
    for p in range(len(one)):
        mine, theirs, t = Lam[one[p]], other_Lam[other[p]], times[p]
        for i in range(d):
            row = M[i]
            for j in range(i, d):
                row[j] = variance * (mine[i, j] + t * theirs[i, j])
            row[i] += 1.0
            row[d] = variance * (eta[one[p], i] + t * other_eta[other[p], i]) + m0[i]
        M[d, d] = 0.0
        if d > BY_HAND:
            for i in range(d):
                for j in range(i):
                    M[i, j] = M[j, i]
            P, b = M[:d, :d].copy(), M[:d, d].copy()
            L = np.linalg.cholesky(P)
            log_det = 0.0
            for i in range(d):
                log_det += 2.0 * math.log(L[i, i])
            drawn = np.dot(b, np.linalg.solve(P, b))
        else:
            log_det = eliminate(M, d)
            drawn = -M[d, d]
        out[p] = 0.5 * ((drawn - np.dot(m0, m0)) / variance - log_det)


# -- tilted moments of the logistic likelihood -------------------------------------------------------------------------


@part
def tilted_sigmoid(c: Any, s: Any) -> Any:
    """log E σ(m) for m ~ N(c, s), and its first two derivatives in c."""
    tail = c < -0.5 * s  # E σ(m) = exp(c + s/2) E σ(m′), m′ ~ N(−c − s, s): exact far out
    at = -c - s if tail else c
    mass, first, second = 0.0, 0.0, 0.0
    for j in range(len(SHARES)):
        k = SLOPES[j] / math.sqrt(1.0 + SLOPES[j] * SLOPES[j] * s)
        z = max(k * at, FARTHEST)
        mass += SHARES[j] * 0.5 * math.erfc(-z / ROOT_2)
        bell = SHARES[j] * math.exp(-0.5 * z * z) / ROOT_TWO_PI * k
        first += bell
        second -= bell * z * k
    first /= mass
    second = min(second / mass - first * first, -1e-14)
    if tail:
        return c + 0.5 * s + math.log(mass), 1.0 - first, second
    return math.log(mass), first, second


@part
def tilted_power(c: Any, s: Any, power: Any) -> Any:
    """`tilted_sigmoid` of σ(m)ᵖ, 0 < p < 1, by the trapezoidal rule around the mode of the tilted law.

    The integrand is analytic up to ±iπ and log-concave, with curvature of at least 1/s.
    """
    low, high, mode = c, c + power * s, c + power * s / (1.0 + math.exp(c))
    for _ in range(40):
        miss = 1.0 / (1.0 + math.exp(mode))
        pull = power * miss - (mode - c) / s
        low, high = (mode, high) if pull > 0.0 else (low, mode)
        bend = power * miss * (1.0 - miss) + 1.0 / s
        if pull * pull < 0.01 * bend:  # a tenth of a standard deviation
            break
        mode = mode + pull / bend if low < mode + pull / bend < high else 0.5 * (low + high)
    width = 1.0 / math.sqrt(1.0 / s + 1.0)
    n, top = min(int(6.0 * math.sqrt(s) / width) + 1, MOST_NODES), power * log_sigmoid(mode) - 0.5 * (mode - c) ** 2 / s
    width = max(width, 6.0 * math.sqrt(s) / n)
    mass, first, second = 0.0, 0.0, 0.0
    for k in range(-n, n + 1):
        m = mode + width * k
        log_sigma = log_sigmoid(m)
        weight = math.exp(power * log_sigma - 0.5 * (m - c) ** 2 / s - top)
        miss = 1.0 - math.exp(log_sigma)
        slope = power * miss
        mass += weight
        first += weight * slope
        second += weight * (slope * slope - slope * (1.0 - miss))
    first /= mass
    second = min(second / mass - first * first, -1e-14 * power)
    return math.log(mass * width / (ROOT_TWO_PI * math.sqrt(s))) + top, first, second


@part
def log_sigmoid(m: Any) -> Any:
    """log σ(m)."""
    return min(m, 0.0) - math.log1p(math.exp(-abs(m)))


@kernel
def logistic_tilted(side: Any, power: Any, c: Any, s: Any, log_mass: Any, first: Any, second: Any) -> None:
    """log E σ(± m)ᵖ under m ~ N(c, s), and its first two derivatives in c, of each row."""
    for i in range(len(c)):
        at = side[i] * c[i]
        if power[i] == 1.0:
            log_mass[i], g, second[i] = tilted_sigmoid(at, s[i])
        else:
            log_mass[i], g, second[i] = tilted_power(at, s[i], power[i])
        first[i] = side[i] * g
