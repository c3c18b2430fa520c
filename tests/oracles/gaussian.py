"""Gaussian integrals and posteriors by dense matrices, for comparison with the factored formulas."""

import numpy as np
from scipy.special import expit
from scipy.stats import multivariate_normal


def dense(quadratic):
    """H, c, const."""
    return quadratic.V @ np.diag(quadratic.h) @ quadratic.V.T, quadratic.V @ quadratic.b, quadratic.const


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


def expected_log_likelihood(X, theta, T, C, rng, draws=200_000):
    """E log p(answers | θ) under N(T, C), by simulation."""
    sample = multivariate_normal(T, C, allow_singular=True).rvs(draws, random_state=rng)
    return float(np.mean(np.log(expit(sample @ X.T)).sum(axis=1)))
