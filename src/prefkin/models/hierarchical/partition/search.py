"""Search for a partition: rounds of merging, reassignment and EP; the round with the highest evidence is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.inference.ep import Convergence, Fit, Sites, run
from prefkin.inference.hierarchy import messages_of, user_factors
from prefkin.inference.model import Design, Population
from prefkin.models.hierarchical.partition.agglomerate import agglomerate
from prefkin.models.hierarchical.partition.prior import ChineseRestaurant, PartitionPrior
from prefkin.models.hierarchical.partition.reassign import labels_of, one_hot, reassign
from prefkin.models.hierarchical.scales import MacKayStep
from prefkin.models.hierarchical.settings import SEARCH

__all__ = ["Partitioned", "log_evidence", "search"]


class Partitioned(NamedTuple):
    """A fit with its log evidence."""

    fit: Fit
    evidence: float


def log_evidence(design: Design, fit: Fit) -> float:
    """Log evidence of continuous heterogeneity, or of the likeliest partition, m_0 integrated out."""
    population, share = fit.population, fit.share
    if population.clustered:
        share = one_hot(labels_of(share))
    rows = design.with_root(population.root)
    messages = messages_of(rows, *fit.sites, fit.spread, share, population)
    if not population.clustered:
        return float(messages.log_integral(population.m0, population.between)[0])
    top = messages[:-1].marginalise(population.between).summed(np.ones((len(messages) - 1, 1))) + messages[-1:]
    sizes = np.concatenate([share[:, :-1].sum(axis=0), np.ones(int(share[:, -1].sum()))])
    evidence = float(top.log_integral(np.zeros(design.dim), population.top)[0])
    return evidence + population.partition.log_prob(sizes)


def search(design: Design, start: Fit, prior: PartitionPrior = ChineseRestaurant()) -> Partitioned:  # noqa: B008
    """Clusters of users by evidence, from the fit of continuous heterogeneity in the same metric."""
    rows = design.with_root(start.population.root)
    size = rows.size
    spread = start.population.within
    population = replace(
        start.population, within=SEARCH.start * spread, between=(1.0 - SEARCH.start) * spread,
        top=start.population.between, m0=start.groups.means[0], clustered=True, partition=prior,
    )  # fmt: skip

    def learn(sites: Sites, share: FloatArray, population: Population, max_iter: int) -> Fit:
        return run(design, sites, share, population, m_step=MacKayStep(size), rules=Convergence(max_iter=max_iter))

    labels, fit, best = np.arange(design.n_users), start, None
    for _ in range(SEARCH.rounds):
        factors = user_factors(rows, *fit.sites)
        proposed = agglomerate(factors.marginalise(population.within), population, labels)
        fit = learn(fit.sites, one_hot(proposed), population, 4)
        factors = user_factors(rows, *fit.sites)
        share = reassign(factors, one_hot(proposed), fit.population)
        fit = learn(fit.sites, share, fit.population, 4)
        evidence = log_evidence(design, fit)
        improved = best is None or evidence > best.evidence
        best = Partitioned(fit, evidence) if improved else best
        now = labels_of(fit.share)
        if np.array_equal(now, labels):
            break
        labels, population = now, fit.population
    assert best is not None
    fit = learn(best.fit.sites, best.fit.share, best.fit.population, 15)
    return Partitioned(fit, log_evidence(design, fit))
