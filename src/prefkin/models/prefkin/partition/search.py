"""Search for a partition: rounds of merging, reassignment and EP; the round with the highest evidence is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.inference.ep import Convergence, Fit, Sites, run
from prefkin.inference.hierarchy import log_evidence as of_answers
from prefkin.inference.hierarchy import messages_of, user_factors
from prefkin.inference.model import Design, Population
from prefkin.models.prefkin.partition.agglomerate import agglomerate
from prefkin.models.prefkin.partition.prior import ChineseRestaurant, PartitionPrior
from prefkin.models.prefkin.partition.reassign import labels_of, one_hot, reassign
from prefkin.models.prefkin.scales import MacKayStep
from prefkin.models.prefkin.settings import SEARCH

__all__ = ["Partitioned", "log_evidence", "possible_evidence", "search"]


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
    evidence = of_answers(messages_of(rows, *fit.sites, fit.spread, share, population), population)
    if not population.clustered:
        return evidence
    sizes = np.concatenate([share[:, :-1].sum(axis=0), np.ones(int(share[:, -1].sum()))])
    return evidence + float(population.partition.log_prob(sizes))


def possible_evidence(design: Design, fit: Fit) -> float:
    """Log evidence, and −∞ for a number that no answers have: above 0, or none."""
    evidence = log_evidence(design, fit)
    return evidence if evidence <= 0.0 else -np.inf


def search(design: Design, start: Fit, prior: PartitionPrior = ChineseRestaurant()) -> Partitioned:  # noqa: B008
    """Clusters of users by evidence, from the fit of continuous heterogeneity in the same metric.

    Users are weighed by the sites of that fit. Sites matched to a cluster would speak for it: answers that it finds
    unlikely become uninformative.
    """
    rows, m_step = design.with_root(start.population.root), MacKayStep
    factors, size, spread = user_factors(rows, *start.sites), rows.size, start.population.within
    population = replace(
        start.population, within=SEARCH.start * spread, between=(1.0 - SEARCH.start) * spread,
        top=start.population.between, m0=start.groups.means[0], clustered=True, partition=prior,
    )  # fmt: skip

    def learn(sites: Sites, share: FloatArray, population: Population, max_iter: int) -> Fit:
        rules = Convergence(max_iter=max_iter)
        return run(design, sites, share, population, m_step=m_step(size), spread=start.spread, rules=rules)

    best, sites, before = None, start.sites, None
    for _ in range(SEARCH.rounds):
        messages = factors.marginalise(population.within * start.spread)
        labels = agglomerate(messages, population, np.arange(design.n_users))
        population = replace(population, partition=population.partition.fitted(np.bincount(labels)))
        fit = learn(sites, one_hot(labels), population, SEARCH.sweeps)
        share = reassign(factors, one_hot(labels), fit.population)
        fit = learn(fit.sites, share, fit.population, SEARCH.sweeps)
        found = Partitioned(fit, possible_evidence(design, fit))
        best = found if best is None or found.evidence > best.evidence else best
        if found is not best or (before is not None and np.array_equal(labels, before)):
            break
        before, population, sites = labels, fit.population, fit.sites
    assert best is not None
    fit = learn(best.fit.sites, best.fit.share, best.fit.population, SEARCH.last_sweeps)
    return Partitioned(fit, possible_evidence(design, fit))
