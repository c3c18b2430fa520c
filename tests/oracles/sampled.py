"""The exact posterior of a few people around a common mean, by importance sampling: mean, covariance, evidence.

    θ_u = c + δ_u,   c ~ N(0, σ² I),   δ_u ~ N(0, τ² I),   an answer with signed row x and weight w: σ(xᵀθ_u)^w.

Draws come from a multivariate t law around the mode; nothing is taken from the package.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln


class Posterior(NamedTuple):
    mean: np.ndarray  # (U, d)
    covariance: np.ndarray  # (U, d, d)
    error: np.ndarray  # (U, d) standard error of the mean
    doubt: np.ndarray  # (U, d) standard error of the variance
    log_evidence: float
    effective: float  # draws that independent ones would have to be as many as


def by_importance(people, within, top, rng, draws=40_000, freedom=6.0):
    """`people` are (X, weights) each, rows signed as if the first had always been preferred."""
    U, d = len(people), people[0][0].shape[1]
    spread = np.kron(within * np.eye(U) + top, np.eye(d))
    rows = np.zeros((sum(len(X) for X, _ in people), U * d))
    at = 0
    for u, (X, _) in enumerate(people):
        rows[at : at + len(X), u * d : (u + 1) * d] = X
        at += len(X)
    weights, prior = np.concatenate([w for _, w in people]), np.linalg.inv(spread)

    def log_density(theta):
        return -(np.logaddexp(0.0, -(theta @ rows.T)) @ weights) - 0.5 * np.einsum("ni,ij,nj->n", theta, prior, theta)

    mode = np.zeros(U * d)
    for _ in range(200):
        miss = 1.0 / (1.0 + np.exp(np.clip(rows @ mode, -700, 700)))
        precision = (rows.T * (weights * miss * (1.0 - miss))) @ rows + prior
        step = np.linalg.solve(precision, rows.T @ (weights * miss) - prior @ mode)
        size = 1.0
        while size > 1e-8 and log_density((mode + size * step)[None])[0] < log_density(mode[None])[0] - 1e-12:
            size /= 2.0
        mode = mode + size * step
        if np.linalg.norm(step) < 1e-10 * (1.0 + np.linalg.norm(mode)):
            break
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    normal = rng.standard_normal((draws, U * d))
    normal *= np.sqrt(freedom / rng.chisquare(freedom, draws))[:, None]
    theta = mode + normal @ factor.T
    n, square = U * d, (normal**2).sum(axis=1)
    log_t = gammaln((freedom + n) / 2) - gammaln(freedom / 2) - n / 2 * np.log(freedom * np.pi)
    log_t = log_t - np.log(np.diag(factor)).sum() - (freedom + n) / 2 * np.log1p(square / freedom)
    log = log_density(theta) - 0.5 * np.linalg.slogdet(spread)[1] - n / 2 * np.log(2 * np.pi) - log_t
    share = np.exp(log - log.max())
    evidence = float(np.log(share.mean()) + log.max())
    share /= share.sum()
    mean = share @ theta
    off = theta - mean
    error = np.sqrt((share**2) @ off**2)
    doubt = np.sqrt((share**2) @ (off**2 - share @ off**2) ** 2)
    covariance = np.array([(off[:, u * d : (u + 1) * d].T * share) @ off[:, u * d : (u + 1) * d] for u in range(U)])
    mean, error, doubt = (each.reshape(U, d) for each in (mean, error, doubt))
    return Posterior(mean, covariance, error, doubt, evidence, float(1.0 / (share**2).sum()))


def small_problem(rng, kind):
    """Up to three people of up to three features and 14 rows each: (X, weights) of each, rows signed."""
    d = int(rng.integers(1, 4))
    common, people = rng.standard_normal(d), []
    for _ in range(int(rng.integers(1, 4))):
        theta = (common + rng.standard_normal(d)) * (6.0 if kind == "certain" else 1.0)
        Z = rng.standard_normal((int(rng.integers(1, 15)), d))
        Z = np.repeat(Z, 4, axis=0) if kind == "repeats" else Z
        weights = 10.0 ** rng.uniform(-1, 3, len(Z)) if kind == "weights" else np.ones(len(Z))
        side = np.where(rng.random(len(Z)) < 1.0 / (1.0 + np.exp(-(Z @ theta))), 1.0, -1.0)
        people.append((Z * side[:, None], weights))
    return people
