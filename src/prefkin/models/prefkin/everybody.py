"""Everybody, where hyperparameters and groups were learnt from a sample: passes of the E-step over all users.

    1  users among the groups as the sample knows them; singletons who belong together become new clusters
    2  users among the groups as everybody knows them, their own answers taken out first; then the M-step
    3  the same under the hyperparameters by everybody's statistics

Users come in parts that need not be in memory together: blocks here, shards in `out_of_core`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.rows import spread
from prefkin.inference.factors import Factors
from prefkin.inference.hierarchy import user_factors
from prefkin.inference.model import Design
from prefkin.models.prefkin.e_step import (
    NUMBERS,
    Shared,
    State,
    Statistics,
    e_step_in_blocks,
    m_step,
    statistics_of,
)
from prefkin.models.prefkin.partition.agglomerate import agglomerate, sums_by_label
from prefkin.models.prefkin.posterior import Posterior
from prefkin.models.prefkin.settings import PASSES, SEARCH

__all__ = [
    *("Parts", "Sample", "Singletons", "everybody", "kept_components"),
    *("likely_singletons", "most_singletons", "passes", "sample_of", "singletons_of"),
]


class Singletons(NamedTuple):
    """Some users who are most likely in no cluster."""

    part: IntArray  # (n,)
    position: IntArray  # (n,) in their part
    messages: Factors  # (n) to the mean of a cluster
    cluster: IntArray  # (n,) the new cluster of each; −1: none

    def some(self, which: IntArray) -> Singletons:
        """Some of them."""
        return Singletons(self.part[which], self.position[which], self.messages[which], self.cluster[which])


class Parts(Protocol):
    """All users, in parts."""

    def e_step(self, name: str, shared: Shared, united: Singletons | None = None, *, scores: bool) -> Statistics:
        """The E-step of all parts, which keep the users' states; the sum of their statistics.

        Users who are `united` are in new clusters, which come before the last component.
        """

    def singletons(self, shared: Shared) -> Singletons:
        """At most about `most_singletons`, evenly spread."""


class Sample(NamedTuple):
    """What was learnt from a sample of users."""

    shared: Shared
    statistics: Statistics
    size: float  # mean square length of the rows, in the units of t


def sample_of(posterior: Posterior) -> Sample:
    """What is told to everybody of a fit to a sample."""
    shared = Shared(posterior.population, posterior.messages, posterior.sizes)
    rows = posterior.design.with_root(posterior.population.root)
    state = State(posterior.sites, posterior.share, posterior.spread)
    return Sample(shared, statistics_of(rows, state, shared, scores=True), rows.size)


def passes(parts: Parts, sample: Sample) -> Shared:
    """What everybody has in common in the end; clusters without members stay, and are dropped by `kept_components`."""
    shared = sample.shared.followed(parts.e_step("first", sample.shared, scores=False))
    shared, united = _with_new_clusters(parts, shared)
    statistics = parts.e_step("second", shared, united, scores=True)
    population = m_step(statistics, sample.statistics, shared, sample.size)
    shared = shared.followed(statistics, population)
    return shared.followed(parts.e_step("third", shared, scores=False))


def _with_new_clusters(parts: Parts, shared: Shared) -> tuple[Shared, Singletons | None]:
    """Clusters of which the sample had too few members to see: sought among singletons, by agglomeration."""
    population = shared.population
    alone = parts.singletons(shared) if population.clustered else None
    if alone is None or len(alone.part) < 2:
        return shared, None
    labels = agglomerate(alone.messages, population, np.arange(len(alone.part)))
    several = np.flatnonzero(np.bincount(labels) > 1)
    chosen = np.flatnonzero(np.isin(labels, several))
    if not len(chosen):
        return shared, None
    united = alone.some(chosen)._replace(cluster=np.searchsorted(several, labels[chosen]))
    added, sizes = sums_by_label(united.messages, united.cluster), np.bincount(united.cluster)
    parts_of = (shared.messages[:-1], added, shared.messages[-1:])
    messages = Factors(*(np.concatenate([getattr(each, name) for each in parts_of]) for name in NUMBERS))
    singles = np.maximum(shared.sizes[-1:] - sizes.sum(), 0.0)
    return Shared(population, messages, np.concatenate([shared.sizes[:-1], sizes, singles])), united


def kept_components(shared: Shared) -> IntArray:
    """Components that have members; singletons always."""
    kept = shared.sizes > SEARCH.least_share
    kept[-1] = True
    return np.flatnonzero(kept)


def everybody(design: Design, learnt: Posterior) -> Posterior:
    """The posterior of all users, from that of a sample of them."""
    parts = _InMemory(design)
    shared = passes(parts, sample_of(learnt))
    assert parts.state is not None
    kept, (sites, share, factors) = kept_components(shared), parts.state
    return Posterior(
        design, sites, share[:, kept], factors, shared.population, shared.messages[kept], shared.sizes[kept]
    )


class _InMemory:
    """All users in memory: one part."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.state: State | None = None

    def e_step(self, name: str, shared: Shared, united: Singletons | None = None, *, scores: bool) -> Statistics:
        """In blocks."""
        del name  # there are no files
        state = self.state
        if state is not None and united is not None:
            state = state.united(united.position, united.cluster, len(shared) - state.share.shape[1])
        self.state, statistics = e_step_in_blocks(self.design, state, shared, scores=scores, sure_stay=True)
        return statistics

    def singletons(self, shared: Shared) -> Singletons:
        """Of all users."""
        assert self.state is not None
        who = likely_singletons(self.state.share)
        who = who[spread(len(who), most_singletons(self.design.dim))]
        return singletons_of(self.design, self.state, who, shared)


def most_singletons(d: int) -> int:
    """So many are looked at: as memory and time allow."""
    return min(PASSES.singletons, SEARCH.most_numbers // (4 * d**2))


def likely_singletons(share: FloatArray) -> IntArray:
    """Positions of users who are most likely in no cluster."""
    return np.flatnonzero(np.argmax(share, axis=1) == share.shape[1] - 1)


def singletons_of(design: Design, state: State, who: IntArray, shared: Shared, part: int = 0) -> Singletons:
    """These users of one part, with their messages."""
    rows, some = design.users(who).with_root(shared.population.root), state.some(design, who)
    messages = user_factors(rows, *some.sites).marginalise(shared.population.within * some.spread)
    return Singletons(np.full(len(who), part), who, messages, np.full(len(who), -1))
