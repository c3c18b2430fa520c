"""Gaussian integrals and posteriors by dense matrices, for comparison with the factored formulas."""

import numpy as np
from scipy.special import expit


def dense(users, u):
    """H and c of one user, in whichever form they are kept."""
    if hasattr(users, "H"):
        return users.H[u], users.c[u]
    own = slice(users.starts[u], users.starts[u + 1])
    return users.V[own].T @ np.diag(users.h[own]) @ users.V[own], users.V[own].T @ users.b[own]


def log_integral(H, c, const, mean, covariance):
    """log ∫ exp(const + cᵀθ − θᵀHθ/2) N(θ; mean, covariance) dθ, by completing the square in full matrices."""
    prior = np.linalg.inv(covariance)
    precision = H + prior
    linear = c + prior @ mean
    value = const + 0.5 * linear @ np.linalg.solve(precision, linear) - 0.5 * mean @ prior @ mean
    return value - 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * np.linalg.slogdet(covariance)[1]


def posterior(H, c, mean, covariance):
    prior = np.linalg.inv(covariance)
    C = np.linalg.inv(H + prior)
    return C @ (c + prior @ mean), C


def joint_log_integral(parts, m0, within, between):
    """Users θ_u ~ N(m, τ²I) of one block, m ~ N(m0, ρ²I): integrate all of them at once in one big Gaussian."""
    n, d = len(parts), len(m0)
    H = np.zeros((n * d, n * d))
    c = np.concatenate([part[1] for part in parts])
    for u, (Hu, _, _) in enumerate(parts):
        H[u * d : (u + 1) * d, u * d : (u + 1) * d] = Hu
    covariance = np.kron(np.eye(n), within * np.eye(d)) + np.kron(np.ones((n, n)), between * np.eye(d))
    return log_integral(H, c, sum(part[2] for part in parts), np.tile(m0, n), covariance)


def joint_posterior(parts, m0, within, between):
    n, d = len(parts), len(m0)
    H = np.zeros((n * d, n * d))
    for u, (Hu, _, _) in enumerate(parts):
        H[u * d : (u + 1) * d, u * d : (u + 1) * d] = Hu
    c = np.concatenate([part[1] for part in parts])
    covariance = np.kron(np.eye(n), within * np.eye(d)) + np.kron(np.ones((n, n)), between * np.eye(d))
    mean, C = posterior(H, c, np.tile(m0, n), covariance)
    return mean.reshape(n, d), C.reshape(n, d, n, d)


def tilted_moments(mean, variance, copies=1.0):
    """log mass, mean and variance of σ(m) N(m; mean, variance), on a fine grid."""
    sd = np.sqrt(variance)
    m = np.linspace(mean - 12 * sd, mean + 12 * sd, 200_001)
    density = expit(m) * np.exp(-0.5 * (m - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)
    step = m[1] - m[0]
    mass = density.sum() * step
    middle = (m * density).sum() * step / mass
    return np.log(mass), middle, ((m - middle) ** 2 * density).sum() * step / mass


def log_evidence_by_quadrature(X, variance):
    """log ∫ Π σ(xᵀθ) N(θ; 0, τ² I) dθ for two features, on a grid."""
    at = np.linspace(-8, 8, 801) * np.sqrt(variance)
    a, b = np.meshgrid(at, at)
    log = -0.5 * (a**2 + b**2) / variance - np.log(2 * np.pi * variance)
    for x in X:
        log += np.log(expit(x[0] * a + x[1] * b))
    return float(np.log(np.exp(log - log.max()).sum()) + log.max() + 2 * np.log(at[1] - at[0]))
