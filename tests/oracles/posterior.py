"""A user's posterior under N(0, τ² I) by brute force: sums over a fine grid of preferences, in two dimensions."""

import itertools
import math

import numpy as np
from scipy.stats import gamma


def on_a_grid(Z, y, weights, variance, steps=241, reach=7.0):
    """Log evidence, mean and covariance."""
    ticks = np.linspace(-reach, reach, steps) * math.sqrt(variance)
    cell = (ticks[1] - ticks[0]) ** 2
    theta = np.array(list(itertools.product(ticks, ticks)))
    log = -(theta**2).sum(axis=1) / (2 * variance) - math.log(2 * math.pi * variance)
    for z, answer, weight in zip(Z, y, weights):
        margin = theta @ z
        log = log - weight * np.logaddexp(0, -margin if answer == 1 else margin)
    mass = np.exp(log - log.max())
    total = mass.sum()
    mean = mass @ theta / total
    off = theta - mean
    return math.log(total * cell) + log.max(), mean, (off * mass[:, None]).T @ off / total


def radius(parts, weights, centre, level):
    """Quantile of ‖θ − centre‖ for a mixture of normal laws (mean, covariance), by one Gamma law with its moments."""
    draws_mean = draws_second = 0.0
    for (mean, C), weight in zip(parts, weights):
        off = mean - centre
        first = sum(C[i, i] for i in range(len(C))) + sum(o * o for o in off)
        variance = 2 * np.trace(C @ C) + 4 * off @ C @ off
        draws_mean += weight * first
        draws_second += weight * (variance + first**2)
    variance = draws_second - draws_mean**2
    return math.sqrt(gamma.ppf(level, draws_mean**2 / variance, scale=variance / draws_mean))


def informed_distance(one, other, variance):
    """Square root of the squared difference in units of both covariances, over its mean when both want the same.

    That mean by the law of m − n in the linear Gaussian model: m = (I − C/τ²)θ + noise with covariance (I − C/τ²)C.
    """
    (m, C), (n, D) = one, other
    weight, unit = np.linalg.inv(C + D), np.eye(len(m))
    keep, kept = unit - C / variance, unit - D / variance
    law = variance * (keep - kept) @ (keep - kept).T + keep @ C + kept @ D
    return math.sqrt(float((m - n) @ weight @ (m - n)) / np.trace(weight @ law))
