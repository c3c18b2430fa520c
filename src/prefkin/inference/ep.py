"""Expectation propagation (Minka, 2001): each answer's likelihood becomes a Gaussian site in its margin.

`run` is the only loop: an E-step given the sites, an M-step where hyperparameters are learnt, and a parallel sweep over
all sites. An answer of weight w ≥ 1 counts as w answers with a site each, so that weight 2 is two rows; one of weight
w < 1 has the likelihood p(y | m)ʷ.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray
from prefkin.inference.factors import Factors
from prefkin.inference.hierarchy import Moments, group_posterior, log_evidence, messages_of, user_moments
from prefkin.inference.likelihood import Laplace
from prefkin.inference.model import Design, Gaussian, Groups, Population

__all__ = ["Convergence", "Each", "Fit", "MStep", "Sites", "cavities", "run", "run_each", "sweep"]

LINE_STEPS = 30  # halvings of a step in the search for the mode

MStep = Callable[[Moments, Groups, Population], tuple[Population, float]]


@dataclass(frozen=True)
class Convergence:
    """When expectation propagation stops, and how it is damped."""

    max_iter: int = 60
    tol: float = 0.01  # largest change of a margin by its site, in posterior standard deviations, and of log scales
    damping: float = 0.7  # factor on the step length when changes grow,
    least_damping: float = 0.1  # down to this
    diverged: float = 1.0  # change after `max_iter` from which Laplace's approximation takes over
    least_newton: int = 30  # iterations at least of Laplace's approximation
    least_cavity: float = 0.1  # share of a margin's precision that the cavity keeps at least


class Sites(NamedTuple):
    """exp(level + nu m − tau m²/2) of every row, all copies of an answer together."""

    tau: FloatArray  # (n,)
    nu: FloatArray
    level: FloatArray

    @classmethod
    def start(cls, design: Design, variance: FloatArray | float) -> Sites:
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
    laplace: bool = False  # are the sites Laplace's approximation?


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
    damping: FloatArray | float = 1.0,
    least: float = 0.1,
) -> tuple[Sites, FloatArray]:
    """All sites matched to their tilted moments at once; the change of each margin in standard deviations."""
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
    return Sites(copies * tau, copies * nu, copies * (log_mass - mass)), change / damping


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

    `learn` says what the M-step needs (`_ep_kernels.margins`); `spread` is where users' factors start. Where
    expectation propagation diverged, or claims evidence that no answers have, Laplace's approximation at the mode takes
    over from the beginning; with the likelihood `Laplace` it is used in the first place.
    """
    again = copy.deepcopy(m_step)
    spread = np.ones(design.n_users) if spread is None else spread
    rest: dict[str, Any] = {"learn": learn, "groups": groups, "spread": spread, "rules": rules}
    try:
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            fit, change = _iterate(design, sites, share, population, m_step, **rest)
            good = change <= rules.diverged and (
                groups is not None or log_evidence(fit.messages, fit.population) <= 0.0
            )
    except np.linalg.LinAlgError:
        good = False
    if good or isinstance(design.likelihood, Laplace) or not hasattr(design.likelihood, "log_likelihood"):
        return fit
    design, zero = replace(design, likelihood=Laplace(design.likelihood)), np.zeros(len(design.y))
    rest["rules"] = replace(rules, max_iter=max(rules.max_iter, rules.least_newton))
    return _iterate(design, Sites(zero, zero, zero), share, population, again, **rest)[0]


def _iterate(
    design: Design, sites: Sites, share: FloatArray, population: Population, m_step: MStep | None, *, learn: int,
    groups: Groups | None, spread: FloatArray, rules: Convergence,
) -> tuple[Fit, float]:  # fmt: skip
    """The loop, and the largest change of a margin at its end."""
    rows, damping, before = design.with_root(population.root), 1.0, np.inf
    law, normal, laplace = population.law, isinstance(population.law, Gaussian), isinstance(design.likelihood, Laplace)
    learn, messages = learn if m_step is not None else 0 if normal else 1, Factors.none(design.dim)
    for n_iter in range(1, rules.max_iter + 1):
        if groups is None:
            messages = messages_of(rows, *sites, spread, share, population)
        found = groups or group_posterior(messages, population)
        moments = user_moments(rows, sites.tau, sites.nu, spread, share, found, population, learn)
        if laplace:
            new_sites, changes = _newton(rows, sites, moments, share, population, groups, spread)
        else:
            new_sites, changes = sweep(rows, sites, moments.mean, moments.variance, damping, rules.least_cavity)
        change = float(changes.max(initial=0.0))
        if not np.isfinite(change):
            break
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
    converged = bool(np.isfinite(change)) and converged
    fit = Fit(sites, share, population, found, messages, moments, spread, n_iter, converged, laplace)
    return fit, change if np.isfinite(change) else np.inf


def _newton(
    rows: Design, sites: Sites, moments: Moments, share: FloatArray, population: Population, groups: Groups | None,
    spread: FloatArray,
) -> tuple[Sites, FloatArray]:  # fmt: skip
    """Laplace's sites after a step of Newton's method to the joint mode, and the changes of margins without limits.

    The margins m are the posterior mean under the sites, so that the prior pulls by tau m − nu there. On the line to
    the new margins this pull is linear, and the log posterior concave: its maximum is found by bisection, for all users
    together or, where `groups` are given, for each.
    """
    laplace: Any = rows.likelihood
    likelihood, m = laplace.likelihood, moments.mean
    _, slope, bend = likelihood.log_likelihood(rows.y, m + rows.offset)
    tau = rows.weight * np.maximum(-bend, 0.0)
    nu = rows.weight * slope + tau * m
    if groups is None:
        messages = messages_of(rows, tau, nu, np.zeros_like(tau), spread, share, population)
        found, line, n_lines = group_posterior(messages, population), np.zeros_like(rows.owner), 1
    else:
        found, line, n_lines = groups, rows.owner, rows.n_users
    move = user_moments(rows, tau, nu, spread, share, found, population).mean - m
    pull, bend_of_pull = sites.nu - sites.tau * m, nu - tau * (m + move) - (sites.nu - sites.tau * m)
    low, high = np.zeros(n_lines), np.full(n_lines, 2.0)
    for _ in range(LINE_STEPS):
        step = 0.5 * (low + high)
        s = step[line]
        slope = rows.weight * likelihood.log_likelihood(rows.y, m + s * move + rows.offset)[1]
        uphill = np.bincount(line, move * (slope - pull - s * bend_of_pull), n_lines) > 0
        low, high = np.where(uphill, step, low), np.where(uphill, high, step)
        if (low >= 0.9).all() and (high <= 1.1).all():
            break
    s = np.minimum(0.5 * (low + high), 1.0)[line]
    m = m + s * move
    nu = pull + s * bend_of_pull + tau * m  # with which m is the posterior mean
    level = rows.weight * likelihood.log_likelihood(rows.y, m + rows.offset)[0] - (nu - 0.5 * tau * m) * m
    return Sites(tau, nu, level), np.abs(move) / np.sqrt(moments.variance)


class Each(NamedTuple):
    """What `run_each` finds."""

    sites: Sites
    spread: FloatArray  # (U,)
    moved: FloatArray  # (U,) largest change of a margin in the first sweep, in standard deviations
    converged: BoolArray  # (U,)


def run_each(
    design: Design,
    sites: Sites,
    share: FloatArray,
    population: Population,
    groups: Groups,
    spread: FloatArray,
    rules: Convergence = Convergence(),  # noqa: B008
) -> Each:
    """Sites of users who do not depend on each other, since `groups` are given: each stops when its own converged.

    What is found of a user does not depend on who else is in the design, nor on the order of users.
    """
    rows, U, law = design.with_root(population.root), design.n_users, population.law
    sites, spread = Sites(*(each.copy() for each in sites)), spread.copy()
    damping, before, moved = np.ones(U), np.full(U, np.inf), np.zeros(U)
    active, learn = np.flatnonzero(np.diff(design.starts) > 0), 0 if isinstance(law, Gaussian) else 1
    asked, answers = share.copy(), replace(rows, X=rows.X[:, :0])
    for n_iter in range(rules.max_iter):
        moments = user_moments(rows, *sites[:2], spread, asked, groups, population, learn)  # of users with a share
        index, starts = rows.rows_of(active)
        some, pace = answers.users(active), np.repeat(damping[active], np.diff(starts))
        new, changes = sweep(
            some, sites.take(index), moments.mean[index], moments.variance[index], pace, rules.least_cavity
        )
        change = np.maximum.reduceat(changes, starts[:-1]) if len(active) else np.empty(0)
        change = np.where(np.isfinite(change), change, np.inf)
        for target, values in zip(sites, new, strict=True):
            target[index] = values
        if learn:
            spread[active] = law.spread(_deviation(moments, spread, population), design.dim)[active]
        if n_iter == 0:
            moved[active] = change
        slower = active[change > before[active]]
        damping[slower] = np.maximum(rules.damping * damping[slower], rules.least_damping)
        before[active] = change
        asked[active[change < rules.tol]] = 0.0
        active = active[change >= rules.tol]
        if not len(active):
            break
    converged = before < rules.tol
    converged[np.diff(design.starts) == 0] = True
    diverged = np.flatnonzero(~converged & (before > rules.diverged))
    if len(diverged) and hasattr(design.likelihood, "log_likelihood"):
        again, index = rows.users(diverged), rows.rows_of(diverged)[0]
        again = replace(again, likelihood=Laplace(design.likelihood))
        start = Sites.start(again, population.within * np.einsum("ij,ij->i", again.X, again.X))
        found = run_each(again, start, share[diverged], replace(population, root=None), groups, spread[diverged], rules)
        for target, values in zip(sites, found.sites, strict=True):
            target[index] = values
    return Each(sites, spread, moved, converged)


def _deviation(moments: Moments, spread: FloatArray, population: Population) -> FloatArray:
    """E|t_u − m_k|² of each user over its variance, τ² or τ² + ρ²."""
    off = moments.scores[:, :, 0] - moments.scores[:, :, 1]
    variances = np.array([population.within, population.within + population.between])
    return spread * (off @ variances + moments.t.shape[1])
