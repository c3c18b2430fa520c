"""PDC of Table 1: one pass over a user's rows by online mirror descent (Li et al. 2025, arXiv 2502.07193).

    g = (σ(θᵀz) − y) z,     H̃ = H + η σ′(θᵀz) zzᵀ,     θ ← Π(θ − η H̃⁻¹ g),     H ← H + σ′(θᵀz) zzᵀ at the new θ,

where H starts at λI and Π projects on the ball ‖θ‖ ≤ B in the norm of H̃. Each row is read once, so an answer in a
conversation costs the same however many came before.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq
from scipy.special import expit

from prefkin.data.arrays import FloatArray
from prefkin.execution.blas import in_one_order
from prefkin.reproduce.contracts import Estimate, Study, estimator

AT_ONCE = 128


@estimator("pdc", "PDC (one pass)", origin="paper")
def pdc(study: Study) -> Estimate:
    """Everybody alone, each row once."""
    theta = [one_pass(study.rows.of(u).Z, study.rows.of(u).y, **constants(study)) for u in range(study.n_users)]
    return Estimate(np.array(theta), [np.array([u]) for u in range(study.n_users)])


def constants(study: Study) -> dict[str, float]:
    """λ, η and B from the settings."""
    settings = study.settings
    ridge = float(settings["pdc_ridge_per_feature"]) * study.rows.dim
    return {"ridge": ridge, "rate": float(settings["pdc_rate"]), "ball": float(settings["pdc_ball"])}


@in_one_order
def one_pass(Z: FloatArray, y: FloatArray, *, ridge: float, rate: float, ball: float) -> FloatArray:
    """θ after one pass. Rows are taken AT_ONCE: what H⁻¹ does to them is one product, corrected as the block goes on.

    >>> one_pass(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([1.0, 0.0]), ridge=1.0, rate=1.0, ball=10.0).round(3)
    array([ 0.4, -0.5])
    """
    listener = OnePass(Z.shape[1], ridge=ridge, rate=rate, ball=ball)
    listener.hear_all(Z, y)
    return listener.theta


class OnePass:
    """The state of the pass: θ and H⁻¹."""

    def __init__(self, dim: int, *, ridge: float, rate: float, ball: float) -> None:
        self.theta = np.zeros(dim)
        self.inverse = np.eye(dim) / ridge
        self.rate, self.ball = rate, ball

    def hear_all(self, Z: FloatArray, y: FloatArray) -> None:
        """Many answers, block by block."""
        for at in range(0, len(y), AT_ONCE):
            self.hear(Z[at : at + AT_ONCE], y[at : at + AT_ONCE])

    def hear(self, Z: FloatArray, y: FloatArray) -> None:
        """A block of answers, one after the other."""
        image = Z @ self.inverse  # H⁻¹z of every row, for the H before the block
        used = np.empty_like(image)  # H⁻¹ loses Σ u uᵀ
        for i, (z, answer, v) in enumerate(zip(Z, y, image, strict=True)):
            v -= (used[:i] @ z) @ used[:i]
            reach = float(z @ v)  # zᵀH⁻¹z
            p = float(expit(self.theta @ z))
            local = self.rate * p * (1.0 - p)
            self.theta = self.theta - self.rate * (p - answer) / (1.0 + local * reach) * v
            if self.theta @ self.theta > self.ball**2:
                self.theta = _project(self.theta, self.inverse - used[:i].T @ used[:i], local, z, self.ball)
            p = float(expit(self.theta @ z))
            weight = p * (1.0 - p)
            used[i] = v * np.sqrt(weight / (1.0 + weight * reach))
        self.inverse -= used.T @ used


def _project(theta: FloatArray, inverse: FloatArray, local: float, z: FloatArray, ball: float) -> FloatArray:
    """argmin over ‖x‖ ≤ ball of ‖x − θ‖ in the norm of H̃ = inverse⁻¹ + local zzᵀ: (H̃ + μI) x = H̃θ, μ by bisection."""
    v = inverse @ z
    local_inverse = inverse - np.outer(v, v) * (local / (1.0 + local * float(z @ v)))
    value, vector = eigh(local_inverse)
    part = vector.T @ theta

    def shrunk(mu: float) -> FloatArray:
        smaller: FloatArray = part / (1.0 + mu * value)  # H̃ has eigenvalues 1/value
        return smaller

    def excess(log_mu: float) -> float:
        return float(np.linalg.norm(shrunk(np.exp(log_mu))) - ball)

    low, high = -40.0, 0.0
    if excess(low) <= 0:  # outside by rounding only
        return theta * (ball / float(np.linalg.norm(theta)))
    while excess(high) > 0:
        high += 2.0
    mu = np.exp(brentq(excess, low, high, xtol=1e-12))
    return vector @ shrunk(mu)
