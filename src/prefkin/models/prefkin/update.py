"""New answers, and new users, under the hyperparameters as they are.

The E-step runs for the users with new answers, with all of their rows: their former messages leave the sums, the new
ones enter. Sites and responsibilities of all others stay; their estimates follow the group means.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import logsumexp

from prefkin.data.arrays import FloatArray, above_zero
from prefkin.data.folds import probe_users
from prefkin.data.rows import Grown, UserRows, only
from prefkin.inference.ep import Sites, run_each
from prefkin.inference.hierarchy import user_factors
from prefkin.inference.model import GAUSSIAN, Design, Groups, Population
from prefkin.models.prefkin.covariance import STRUCTURES
from prefkin.models.prefkin.e_step import (
    RULES,
    Shared,
    State,
    e_step_in_blocks,
    new_users,
    statistics_of,
)
from prefkin.models.prefkin.fitting import design_of
from prefkin.models.prefkin.partition.reassign import log_weights
from prefkin.models.prefkin.partition.search import log_evidence
from prefkin.models.prefkin.posterior import Posterior
from prefkin.models.prefkin.selection import fit_continuous
from prefkin.models.prefkin.settings import PASSES

__all__ = ["clearly_better", "evidence_of_new_users", "gain_of_refit", "updated"]

IMPOSSIBLE = -1e9  # log probability of a user's answers where it is no number


def updated(known: Posterior, more: Grown) -> Posterior:
    """The posterior of everybody with their new answers; `more` are the rows of old and new."""
    design = design_of(more.rows, known.design.likelihood)
    state = _carried_over(known, design, more)
    old, new = (more.who[chosen] for chosen in (more.was >= 0, more.was < 0))
    shared = Shared(known.population, known.messages, known.sizes)
    rest = shared.statistics  # of users without new answers
    if len(old):
        rows = design.users(old).with_root(shared.population.root)
        rest = rest - statistics_of(rows, state.some(design, old), shared)
    for step in range(PASSES.updates):
        statistics = rest
        for who, begin in ((old, False), (new, step == 0)):
            if len(who):
                some = design.users(who)
                found, added = e_step_in_blocks(some, None if begin else state.some(design, who), shared)
                state.put(design, who, found)
                statistics = statistics + added
        shared = shared.followed(statistics)
    return Posterior(design, state.sites, state.share, state.spread, shared.population, shared.messages, shared.sizes)


def _carried_over(known: Posterior, design: Design, more: Grown) -> State:
    """What is known of everybody: the sites of new rows are 0."""
    counts = np.diff(known.design.starts)
    rows = np.repeat(design.starts[more.before] - known.design.starts[:-1], counts) + np.arange(len(known.sites.tau))
    sites = Sites(*(np.zeros(len(design.y)) for _ in Sites._fields))
    for target, values in zip(sites, known.sites, strict=True):
        target[rows] = values
    share, spread = np.zeros((design.n_users, known.share.shape[1])), np.ones(design.n_users)
    share[more.before], spread[more.before] = known.share, known.spread
    return State(sites, share, spread)


# -- should hyperparameters be learnt again? ---------------------------------------------------------------------------


def gain_of_refit(known: Posterior, new: UserRows) -> float:
    """Log evidence of new answers under a prior learnt from them alone, or of a coin, over that under the prior in use.

    Of a sample of the users who gave them, each as if it were not known who they are. A prior that fits knows the
    groups, and has learnt from more users: it is far ahead. It is behind where the new answers come from other people.
    """
    some = only(new, np.array(probe_users(new, PASSES.sampled)))
    design = design_of(some, known.design.likelihood)
    alone = fit_continuous(design, STRUCTURES["isotropic"], GAUSSIAN)
    coin = -np.log(2.0) * float(design.weight.sum())
    shared = Shared(known.population, known.messages, known.sizes)
    in_use = float(np.sum(evidence_of_new_users(design, shared)))
    by_themselves = float(_possible(np.array(log_evidence(design, alone))))
    return max(coin, by_themselves) - in_use


def evidence_of_new_users(design: Design, shared: Shared) -> FloatArray:
    """(U,) log probability of each user's answers, as of a new user: t ~ N(m_c, S_c + v I) in component c."""
    rows, population = design.with_root(shared.population.root), replace(shared.population, root=None)
    shared, groups, variances = replace(shared, population=population), shared.groups, population.variances(len(shared))
    weights = np.zeros((rows.n_users, len(shared)))
    if population.clustered:
        state = new_users(rows, shared)
        factors, none = user_factors(rows, *state.sites), np.zeros_like(weights)
        messages = factors.marginalise(population.within)
        roughly = log_weights(factors, messages, none, shared.messages[:-1], shared.sizes, population)
        prior = np.append(population.partition.log_weights(shared.sizes[:-1]), population.partition.singleton)
        weights = np.where(np.isfinite(roughly), prior - logsumexp(prior), -np.inf)
    for c in range(len(shared)):
        users = np.flatnonzero(weights[:, c] > -np.inf)
        L = np.linalg.cholesky(groups.covs[c] + variances[c] * np.eye(rows.dim))  # t = m_c + L s with s ~ N(0, I)
        weights[users, c] += _unit_evidence(rows.users(users), groups.means[c], L)
    return _possible(logsumexp(weights, axis=1))


def _unit_evidence(rows: Design, mean: FloatArray, L: FloatArray) -> FloatArray:
    """Log probability of each user's answers where t ~ N(mean, L Lᵀ)."""
    d, U = rows.dim, rows.n_users
    rows = replace(rows, X=rows.X @ L, offset=rows.offset + rows.X @ mean)
    unit = Population(1.0, 1.0, 1.0, np.zeros(d))
    groups = Groups(np.zeros((1, d)), np.zeros((1, d, d)), np.zeros(d), np.zeros((d, d)))
    start = Sites.start(rows, above_zero(np.einsum("ij,ij->i", rows.X, rows.X)))
    sites = run_each(rows, start, np.ones((U, 1)), unit, groups, np.ones(U), RULES).sites
    return user_factors(rows, *sites).log_integral(np.zeros(d), 1.0)


def _possible(evidence: FloatArray) -> FloatArray:
    """A log probability of answers is at most 0; what is no number is least likely."""
    return np.where(np.isfinite(evidence), np.minimum(evidence, 0.0), IMPOSSIBLE)


def clearly_better(gain: float, users: int) -> bool:
    """Is such a gain worth a refit?"""
    return gain > max(PASSES.clearly, min(users, PASSES.sampled) * PASSES.clearly_each)
