"""Expectation propagation for one new user under each of several Gaussian priors.

Under prior k the margins of the user's answers are m = offset_k + L_k u with u ~ N(0, I). Each prior is a user of the
hierarchical model with rows L_k, a known mean of 0 and variance 1, so that `ep.run` finds the sites of all at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.execution.blas import in_one_order
from prefkin.inference.ep import Convergence, Fit, Sites, run
from prefkin.inference.likelihood import Logistic
from prefkin.inference.model import Design, Groups, Population

__all__ = ["Components", "propagate"]

CLOSE = Convergence(max_iter=300, tol=1e-8)
HOPELESS = 20.0  # log odds by which a prior that is left out is behind


class Components(NamedTuple):
    """The user's sites and posterior under each prior."""

    tau: FloatArray  # (K, n) sites exp(level + nu m − tau m²/2)
    nu: FloatArray  # (K, n)
    margin: FloatArray  # (K, n) posterior mean of each margin, without `offset`
    evidence: FloatArray  # (K,) log probability of the answers


@in_one_order
def propagate(
    L: FloatArray, offset: FloatArray, log_weights: FloatArray, before: Components | None = None
) -> Components:
    """Sites of every answer under every prior that is at most e²⁰ times less probable than another.

    L : (K, n, r); offset : (K, n); log_weights : (K,) of the priors, before any answer; all answers are positive.
    `before` holds the same for the first answers: its sites are the start, and since no answer has a probability above
    one, its evidence is a bound on what a prior can still reach.

    >>> one = propagate(np.ones((1, 1, 1)), np.zeros((1, 1)), np.zeros(1))  # an answer whose margin is N(0, 1)
    >>> round(float(one.evidence[0]), 6), round(float(one.margin[0, 0]), 3)
    (-0.693147, 0.413)
    """
    K, n, r = L.shape
    tau, nu, margin, evidence = np.zeros((K, n)), np.zeros((K, n)), np.zeros((K, n)), np.zeros(K)
    if before is not None:
        known = before.tau.shape[1]
        tau[:, :known], nu[:, :known], margin[:, :known], evidence[:] = before
    zero = Groups(np.zeros((1, r)), np.zeros((1, r, r)), np.zeros(r), np.zeros((r, r)))
    share, standard, reached = np.ones((K, 1)), Population(1.0, 1.0, 1.0, zero.m0), np.zeros(K, dtype=bool)
    while len(some := _hopeful(log_weights + evidence, reached)):
        ones, starts = np.ones(len(some) * n), n * np.arange(len(some) + 1)
        design = Design(Logistic(), L[some].reshape(-1, r), ones, ones, starts, offset[some].ravel())
        sites = Sites(tau[some].ravel(), nu[some].ravel(), 0.0 * ones)
        fit = run(design, sites, share[some], standard, groups=zero, rules=CLOSE)
        for found, values in zip((tau, nu, margin), (*fit.sites[:2], fit.moments.mean), strict=True):
            found[some] = values.reshape(-1, n)
        evidence[some], reached[some] = _log_evidence(L[some], fit), True
    return Components(tau, nu, margin, evidence)


def _hopeful(score: FloatArray, reached: BoolArray) -> IntArray:
    """Priors whose score is not `HOPELESS` behind and not computed yet."""
    return np.flatnonzero((score > score.max() - HOPELESS) & ~reached)


def _log_evidence(L: FloatArray, fit: Fit) -> FloatArray:
    """(K,) Σ level + (Σ ν E m − log|I + LᵀTL|) / 2."""
    K, n, r = L.shape
    tau = fit.sites.tau.reshape(K, n, 1)
    log_det = np.linalg.slogdet(np.eye(r) + L.swapaxes(1, 2) @ (tau * L))[1]
    found: FloatArray = (fit.sites.level + 0.5 * fit.sites.nu * fit.moments.mean).reshape(K, n).sum(
        axis=1
    ) - 0.5 * log_det
    return found
