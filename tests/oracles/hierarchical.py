"""The hierarchical model by quadrature and by dense matrices of everything at once, for comparison with the core."""

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import log_expit

from tests.oracles.gaussian import log_integral


def tilted(y, power, mean, variance):
    """log E σ(±m)^power under m ~ N(mean, variance), and its first two derivatives in the mean, by a fine grid.

    The derivatives follow from the moments of the tilted law: (E m − mean) / variance, (var m / variance − 1) / variance.
    """
    side, low, high = 2.0 * y - 1.0, mean - power * variance - 1.0, mean + power * variance + 1.0
    for _ in range(200):  # the mode, by bisection
        mode = 0.5 * (low + high)
        up = power * side / (1.0 + np.exp(np.clip(side * mode, -700, 700))) - (mode - mean) / variance > 0
        low, high = (mode, high) if up else (low, mode)
    m = mode + np.linspace(-14.0, 14.0, 40_001) * np.sqrt(variance)
    log = power * log_expit(side * m) - 0.5 * (m - mean) ** 2 / variance - 0.5 * np.log(2.0 * np.pi * variance)
    mass = np.exp(log - log.max())
    total, off = mass.sum(), m - mean
    first = mass @ off / total
    second = mass @ (off - first) ** 2 / total
    log_mass = np.log(total * (m[1] - m[0])) + log.max()
    return log_mass, first / variance, (second / variance - 1.0) / variance


class Joint(NamedTuple):
    """A Gaussian over stacked vectors."""

    mean: np.ndarray
    covariance: np.ndarray
    log_evidence: float

    def of(self, i, d):
        """Mean and covariance of the i-th vector of d numbers."""
        at = slice(i * d, (i + 1) * d)
        return self.mean[at], self.covariance[at, at]


def joint_gaussian(factors, mean, covariance):
    """The posterior of stacked vectors from Gaussian factors (position, Λ, η, level) and a normal prior."""
    d = len(factors[0][2])
    H, c, level = np.zeros_like(covariance), np.zeros(len(mean)), 0.0
    for i, Lam, eta, norm in factors:
        at = slice(i * d, (i + 1) * d)
        H[at, at] += Lam
        c[at] += eta
        level += norm
    prior = np.linalg.inv(covariance)
    C = np.linalg.inv(H + prior)
    return Joint(C @ (c + prior @ mean), C, log_integral(H, c, level, mean, covariance))


def users_and_means(labels, within, between, top, d):
    """Covariance of (t_1, ..., t_U, m_1, ..., m_K, m_0) around 0; label −1 is a singleton, without a mean of its own."""
    K = max(labels) + 1
    U = len(labels)
    member = np.zeros((U + K + 1, K + 1))
    for u, k in enumerate(labels):
        member[u, k if k >= 0 else K] = 1.0
    member[U:, :] = np.eye(K + 1)
    C = top * np.ones((U + K + 1, U + K + 1))
    C += between * member[:, :K] @ member[:, :K].T
    for u, k in enumerate(labels):
        C[u, u] += within if k >= 0 else within + between
    return np.kron(C, np.eye(d))


class Textbook(NamedTuple):
    """Expectation propagation to its fixed point."""

    mean: np.ndarray  # of each margin
    variance: np.ndarray
    log_evidence: float
    joint: Joint


def textbook_ep(X, y, power, mean, covariance, offset=None, sweeps=400):
    """Expectation propagation one site after another, the covariance inverted anew for each; X stacks all users."""
    n = len(X)
    offset = np.zeros(n) if offset is None else offset
    tau, nu, level = np.zeros(n), np.zeros(n), np.zeros(n)
    prior = np.linalg.inv(covariance)
    for _ in range(sweeps):
        before = np.concatenate([tau, nu])
        for i in range(n):
            C = np.linalg.inv(prior + (X.T * tau) @ X)
            at = C @ (prior @ mean + X.T @ nu)
            m, v = X[i] @ at, X[i] @ C @ X[i]
            s = 1.0 / (1.0 / v - tau[i])
            c = s * (m / v - nu[i])
            log_mass, first, second = tilted(y[i], power[i], c + offset[i], s)
            new_mean, new_variance = c + s * first, s + s * s * second
            tau[i], nu[i] = 1.0 / new_variance - 1.0 / s, new_mean / new_variance - c / s
            wide = 1.0 + tau[i] * s
            level[i] = log_mass - 0.5 * ((2 * nu[i] * c + nu[i] ** 2 * s - tau[i] * c * c) / wide - np.log(wide))
        if np.abs(np.concatenate([tau, nu]) - before).max() < 1e-11:
            break
    joint = joint_gaussian([(0, (X.T * tau) @ X, X.T @ nu, level.sum())], mean, covariance)
    return Textbook(X @ joint.mean, np.einsum("ij,jk,ik->i", X, joint.covariance, X), joint.log_evidence, joint)


def stacked(X, owner, n_users):
    """Rows of all users as rows about (t_1, ..., t_U)."""
    d = X.shape[1]
    out = np.zeros((len(X), n_users * d))
    for i, u in enumerate(owner):
        out[i, u * d : (u + 1) * d] = X[i]
    return out


def restaurant(partition, alpha):
    """log probability that n users sit down one after the other as in this partition (labels in order of appearance)."""
    total, sizes = 0.0, {}
    for n, label in enumerate(partition):
        weight = sizes.get(label, alpha)
        total += np.log(weight / (n + alpha))
        sizes[label] = sizes.get(label, 0) + 1
    return total


def partitions(n):
    """All partitions of n users, as labels in order of appearance."""
    for labels in product(range(n), repeat=n):
        if all(label <= max(labels[:i], default=-1) + 1 for i, label in enumerate(labels)):
            yield labels


def under_each_prior(X, y, means, covariances, log_weights):
    """One user under several normal priors, expectation propagation for each: weights, means and covariances."""
    found = [textbook_ep(X, y, np.ones(len(y)), m, C, sweeps=6) for m, C in zip(means, covariances)]
    log = np.array(log_weights) + [each.log_evidence for each in found]
    weights = np.exp(log - log.max())
    return weights / weights.sum(), [each.joint.mean for each in found], [each.joint.covariance for each in found]
