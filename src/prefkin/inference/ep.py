"""Expectation propagation (Minka, 2001): each answer's likelihood becomes a Gaussian site in its margin.

`run` is the only loop: an E-step given the sites, an M-step where hyperparameters are learnt, and a parallel sweep over
all sites. An answer of weight w ≥ 1 counts as w answers with a site each, so that weight 2 is two rows; one of weight
w < 1 has the likelihood p(y | m)ʷ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.inference.factors import Factors
from prefkin.inference.hierarchy import Moments, group_posterior, messages_of, user_moments
from prefkin.inference.likelihood import Laplace
from prefkin.inference.model import Design, Gaussian, Groups, Population

__all__ = ["Convergence", "Fit", "MStep", "Sites", "cavities", "run", "sweep"]

MStep = Callable[[Moments, Groups, Population], tuple[Population, float]]


@dataclass(frozen=True)
class Convergence:
    """When expectation propagation stops, and how it is damped."""

    max_iter: int = 60
    tol: float = 0.01  # largest change of a margin by its site, in posterior standard deviations, and of log scales
    damping: float = 0.7  # factor on the step length when changes grow,
    least_damping: float = 0.1  # down to this
    diverged: float = 1.0  # change after `max_iter` from which Laplace's approximation takes over
    least_cavity: float = 0.1  # share of a margin's precision that the cavity keeps at least


class Sites(NamedTuple):
    """exp(level + nu m − tau m²/2) of every row, all copies of an answer together."""

    tau: FloatArray  # (n,)
    nu: FloatArray
    level: FloatArray

    @classmethod
    def start(cls, design: Design, variance: float) -> Sites:
        """Matched to margins of this variance about which nothing else is known."""
        zero = np.zeros(len(design.y))
        return sweep(design, cls(zero, zero, zero), zero, zero + variance)[0]

    def take(self, rows: Any) -> Sites:
        """Of some rows."""
        return Sites(*(each[rows] for each in self))


class Fit(NamedTuple):
    """Sites, and the posterior that they give under the hyperparameters."""

    sites: Sites
    share: FloatArray  # (U, C) responsibilities
    population: Population
    groups: Groups
    messages: Factors  # to the group means; none where these are given
    moments: Moments
    spread: FloatArray  # (U,)
    n_iter: int
    converged: bool


def cavities(
    design: Design, sites: Sites, mean: FloatArray, variance: FloatArray, least: float = 0.1
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of each margin without one copy of its answer.

    Under a mixture a margin's variance may exceed that of its site; then only a part is taken out.
    """
    copies = np.maximum(design.weight, 1.0)
    tau, nu, precision = sites.tau / copies, sites.nu / copies, 1.0 / variance
    most = (1.0 - least) * precision
    part = most / np.maximum(tau, most)
    left = precision - part * tau
    return (precision * mean - part * nu) / left, 1.0 / left


def sweep(
    design: Design,
    sites: Sites,
    mean: FloatArray,
    variance: FloatArray,
    damping: float = 1.0,
    least: float = 0.1,
) -> tuple[Sites, float]:
    """All sites matched to their tilted moments at once; the largest change of a margin in standard deviations."""
    copies, power = np.maximum(design.weight, 1.0), np.minimum(design.weight, 1.0)
    c, s = cavities(design, sites, mean, variance, least)
    log_mass, first, second = design.likelihood.tilted(design.y, power, c + design.offset, s)
    left = np.maximum(1.0 + s * second, 1e-9)
    tau, nu = -second / left, (first - c * second) / left
    old_tau, old_nu = sites.tau / copies, sites.nu / copies
    tau, nu = old_tau + damping * (tau - old_tau), old_nu + damping * (nu - old_nu)
    wide = 1.0 + tau * s
    mass = 0.5 * ((2.0 * nu * c + nu * nu * s - tau * c * c) / wide - np.log(wide))
    change = np.abs(nu - old_nu - mean * (tau - old_tau)) * np.sqrt(variance)
    return Sites(copies * tau, copies * nu, copies * (log_mass - mass)), float(change.max(initial=0.0)) / damping


def run(
    design: Design,
    sites: Sites,
    share: FloatArray,
    population: Population,
    *,
    m_step: MStep | None = None,
    learn: int = 1,
    groups: Groups | None = None,
    spread: FloatArray | None = None,
    rules: Convergence = Convergence(),  # noqa: B008
) -> Fit:
    """Sites, and hyperparameters with an `m_step`, until neither changes; `groups` whose means are known stay as given.

    `learn` says what the M-step needs (`_ep_kernels.margins`); `spread` is where users' factors start.
    """
    rows, damping, before = design.with_root(population.root), 1.0, np.inf
    spread = np.ones(design.n_users) if spread is None else spread
    law, normal = population.law, isinstance(population.law, Gaussian)
    learn, messages = learn if m_step is not None else 0 if normal else 1, Factors.none(design.dim)
    for n_iter in range(1, rules.max_iter + 1):
        if groups is None:
            messages = messages_of(rows, *sites, spread, share, population)
        found = groups or group_posterior(messages, population)
        moments = user_moments(rows, sites.tau, sites.nu, spread, share, found, population, learn)
        new_sites, change = sweep(rows, sites, moments.mean, moments.variance, damping, rules.least_cavity)
        new_population, moved = (population, 0.0) if m_step is None else m_step(moments, found, population)
        converged = change < rules.tol and moved < rules.tol
        if converged or n_iter == rules.max_iter:
            break
        if change > before:
            damping = max(rules.damping * damping, rules.least_damping)
        if not normal:
            spread = law.spread(_deviation(moments, spread, population), design.dim)
        if new_population.root is not population.root:
            rows = design.with_root(new_population.root)
        sites, population, before = new_sites, new_population, change
    fit = Fit(sites, share, population, found, messages, moments, spread, n_iter, converged)
    if change > rules.diverged or not np.isfinite(change):
        return _laplace(design, fit, groups, rules)
    return fit


def _deviation(moments: Moments, spread: FloatArray, population: Population) -> FloatArray:
    """E|t_u − m_k|² of each user over its variance, τ² or τ² + ρ²."""
    off = moments.scores[:, :, 0] - moments.scores[:, :, 1]
    variances = np.array([population.within, population.within + population.between])
    return spread * (off @ variances + moments.t.shape[1])


def _laplace(design: Design, fit: Fit, groups: Groups | None, rules: Convergence) -> Fit:
    """The fit by Laplace's approximation under its hyperparameters, where expectation propagation diverged."""
    if isinstance(design.likelihood, Laplace) or not hasattr(design.likelihood, "log_likelihood"):
        return fit
    design = replace(design, likelihood=Laplace(design.likelihood))
    start = Sites.start(design, fit.population.within * design.with_root(fit.population.root).size)
    return run(design, start, fit.share, fit.population, groups=groups, rules=rules)
