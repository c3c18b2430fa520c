"""Gaussian integrals and posteriors by dense matrices, for comparison with the factored formulas."""

import numpy as np


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


def joint_posterior(parts, m0, within, between):
    n, d = len(parts), len(m0)
    H = np.zeros((n * d, n * d))
    for u, (Hu, _, _) in enumerate(parts):
        H[u * d : (u + 1) * d, u * d : (u + 1) * d] = Hu
    c = np.concatenate([part[1] for part in parts])
    covariance = np.kron(np.eye(n), within * np.eye(d)) + np.kron(np.ones((n, n)), between * np.eye(d))
    mean, C = posterior(H, c, np.tile(m0, n), covariance)
    return mean.reshape(n, d), C.reshape(n, d, n, d)
