"""Online mirror descent as printed: an explicit H, a linear solve per row, the projection by a general optimiser."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit


def one_pass(Z, y, *, ridge, rate, ball):
    dim = Z.shape[1]
    theta, H = np.zeros(dim), ridge * np.eye(dim)
    for z, answer in zip(Z, y):
        p = expit(theta @ z)
        local = H + rate * p * (1 - p) * np.outer(z, z)
        theta = theta - rate * np.linalg.solve(local, (p - answer) * z)
        if np.linalg.norm(theta) > ball:
            theta = project(theta, local, ball)
        p = expit(theta @ z)
        H = H + p * (1 - p) * np.outer(z, z)
    return theta


def project(theta, metric, ball):
    found = minimize(
        lambda x: (x - theta) @ metric @ (x - theta),
        theta * ball / np.linalg.norm(theta),
        jac=lambda x: 2 * metric @ (x - theta),
        constraints={"type": "ineq", "fun": lambda x: ball**2 - x @ x, "jac": lambda x: -2 * x},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return found.x
