"""Everybody, where hyperparameters and groups were learnt from a sample: passes of the E-step over all users.

    1  users among the groups as the sample knows them
    2  users among the groups as everybody knows them, their own answers taken out first; then the M-step
    3  the same under the hyperparameters by everybody's statistics

Users come in parts that need not be in memory together: blocks here, shards in `out_of_core`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from prefkin.data.arrays import IntArray
from prefkin.inference.model import Design
from prefkin.models.hierarchical.e_step import (
    Shared,
    State,
    Statistics,
    e_step_in_blocks,
    m_step,
    statistics_of,
)
from prefkin.models.hierarchical.posterior import Posterior
from prefkin.models.hierarchical.settings import SEARCH

__all__ = ["Parts", "Sample", "everybody", "kept_components", "passes", "sample_of"]


class Parts(Protocol):
    """All users, in parts."""

    def e_step(self, name: str, shared: Shared, *, scores: bool = False) -> Statistics:
        """The E-step of all parts, which keep the users' states; the sum of their statistics."""


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
    shared = sample.shared.followed(parts.e_step("first", sample.shared))
    statistics = parts.e_step("second", shared, scores=True)
    population = m_step(statistics, sample.statistics, shared, sample.size)
    shared = shared.followed(statistics, population)
    return shared.followed(parts.e_step("third", shared))


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
    kept, (sites, share, spread) = kept_components(shared), parts.state
    return Posterior(
        design, sites, share[:, kept], spread, shared.population, shared.messages[kept], shared.sizes[kept]
    )


class _InMemory:
    """All users in memory."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.state: State | None = None

    def e_step(self, name: str, shared: Shared, *, scores: bool = False) -> Statistics:  # noqa: ARG002
        """In blocks."""
        self.state, statistics = e_step_in_blocks(self.design, self.state, shared, scores=scores)
        return statistics
