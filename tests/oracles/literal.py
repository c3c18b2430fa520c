"""The paper's formulas, written again: slow, literal, with loops, sharing no code with the package."""

import itertools
import math
from fractions import Fraction

import numpy as np
from scipy.optimize import minimize


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def optimum(Z, y, ridge, weights=None):
    """argmin of the regularised negative log-likelihood, by a trust-region method."""
    Z, y, weights = np.asarray(Z, float), np.asarray(y, float), np.ones(len(y)) if weights is None else weights

    def chance(t):
        return np.exp(-np.logaddexp(0, -(Z @ t)))

    def value(t):
        return float(np.sum(weights * (np.logaddexp(0, Z @ t) - y * (Z @ t)))) + ridge / 2 * float(t @ t)

    def slope(t):
        return Z.T @ (weights * (chance(t) - y)) + ridge * t

    def curvature(t):
        p = chance(t)
        return Z.T @ ((weights * p * (1 - p))[:, None] * Z) + ridge * np.eye(len(t))

    found = minimize(
        value, np.zeros(Z.shape[1]), jac=slope, hess=curvature, method="trust-exact", options={"gtol": 1e-11}
    )
    for _ in range(3):  # polish what the trust region leaves
        found.x = found.x - np.linalg.solve(curvature(found.x), slope(found.x))
    return found.x


def information(Z, ridge, kappa, weights=None):
    weights = np.ones(len(Z)) if weights is None else weights
    M = (ridge / kappa) * np.eye(Z.shape[1])
    for w, z in zip(weights, Z):
        M = M + w * np.outer(z, z)
    return M


def numerator(n, d, ridge, kappa, n_users, delta):
    inside = d * math.log(1 + 4 * kappa * n / (ridge * d)) + 2 * math.log(2 * n_users / delta)
    return math.sqrt(ridge * kappa) + 2 * math.sqrt(inside)


def radius(Z, ridge, kappa, n_users, delta, weights=None):
    n = len(Z) if weights is None else float(np.sum(weights))
    least = np.linalg.eigvalsh(information(Z, ridge, kappa, weights))[0]
    return numerator(n, Z.shape[1], ridge, kappa, n_users, delta) / (kappa * math.sqrt(least))


def regular_radius(n, d, smoothed, ridge, kappa, n_users, delta):
    return numerator(n, d, ridge, kappa, n_users, delta) / (kappa * math.sqrt(smoothed * n / 2))


def width(n, d, ridge, kappa, n_users, delta):
    return numerator(n, d, ridge, kappa, n_users, delta) / kappa


def edges(theta, radii, gamma, alpha):
    """Set of connected pairs for one threshold."""
    found = set()
    for u, v in itertools.combinations(range(len(theta)), 2):
        distance = math.sqrt(sum((a - b) ** 2 for a, b in zip(theta[u], theta[v])))
        if distance < gamma - alpha * (radii[u] + radii[v]) - 1e-9:  # strict, also where rounding blurs equality
            found |= {(u, v), (v, u)}
    return found


def appendix_gamma(theta, radii, alpha, user, over):
    chosen = []
    for v in range(len(theta)):
        if v != user:
            distance = np.linalg.norm(theta[user] - theta[v])
            if distance - alpha * (radii[user] + radii[v]) > 0:
                sign = 1 if over else -1
                chosen.append(distance + sign * alpha * (radii[user] + radii[v]))
    return min(chosen) if chosen else 0.0


def smoothed_regularity(lambda_a, sigma, size, steps=400_000):
    """Midpoint rule."""
    x = (np.arange(steps) + 0.5) * lambda_a / steps
    return float(np.mean((1 - np.exp(-((lambda_a - x) ** 2) / (2 * sigma**2))) ** size) * lambda_a)


def pessimistic(mean, theta, M, beta, w):
    s = mean - w
    return float(s @ theta - beta * math.sqrt(max(float(s @ np.linalg.inv(M) @ s), 0.0)))


def best_policy_value(features, weights, theta, M, beta, w):
    """Over all deterministic policies."""
    best = -math.inf
    for actions in itertools.product(*(range(len(part)) for part in features)):
        mean = sum(p * part[a] for p, part, a in zip(weights, features, actions))
        best = max(best, pessimistic(mean, theta, M, beta, w))
    return best


def squared_inverse_norm(z, M):
    """zᵀM⁻¹z without any rounding: Gaussian elimination in fractions."""
    rows = [[*map(Fraction, row), Fraction(entry)] for row, entry in zip(M, z)]
    for k in range(len(z)):
        for below in range(k + 1, len(z)):
            ratio = rows[below][k] / rows[k][k]
            rows[below] = [a - ratio * b for a, b in zip(rows[below], rows[k])]
    solution = [Fraction(0)] * len(z)
    for k in reversed(range(len(z))):
        known = sum((rows[k][j] * solution[j] for j in range(k + 1, len(z))), Fraction(0))
        solution[k] = (rows[k][-1] - known) / rows[k][k]
    return float(sum(Fraction(a) * b for a, b in zip(z, solution)))


def widest_pair(features, inverse, closed=(), theta=None):
    best, pair = -math.inf, None
    for i, j in itertools.combinations(range(len(features)), 2):
        z = features[i] - features[j]
        score = float(z @ inverse @ z)
        if theta is not None:
            p = sigmoid(float(z @ theta))
            score *= p * (1 - p)
        if (i, j) not in closed and score > best:
            best, pair = score, (i, j)
    return best, pair
