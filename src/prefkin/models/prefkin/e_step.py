"""E-step and M-step over blocks of users, with sufficient statistics that are added up.

Under given hyperparameters and group means users do not depend on each other. So the E-step of a block of users needs
nothing of the others but `Shared`, and all that the others need of the block is `Statistics`. The same function places
everybody under hyperparameters learnt from a sample, takes in new answers, and works through the shards of out-of-core
data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import add
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.execution.executor import for_each
from prefkin.inference.ep import Convergence, Sites, run_each, sweep
from prefkin.inference.factors import Factors
from prefkin.inference.hierarchy import group_posterior, messages_of, user_factors, user_moments
from prefkin.inference.model import Design, Groups, Population
from prefkin.models.prefkin.partition.reassign import log_weights
from prefkin.models.prefkin.scales import bounded, mackay_factors, ratio
from prefkin.models.prefkin.settings import PASSES

__all__ = [
    *("Shared", "State", "Statistics", "blocks_of_users"),
    *("e_step", "e_step_in_blocks", "m_step", "new_users", "statistics_of"),
]

RULES = Convergence(max_iter=PASSES.max_iter, tol=PASSES.tol)
ONCE = Convergence(max_iter=1, diverged=np.inf)
ROUGHLY = Convergence(max_iter=PASSES.contender_sweeps, tol=PASSES.contender_tol)


class State(NamedTuple):
    """What is known of some users between two E-steps."""

    sites: Sites
    share: FloatArray  # (U, C) responsibilities
    spread: FloatArray  # (U,) factors on variances, from the population law

    def of(self, design: Design, users: slice) -> State:
        """Of consecutive users."""
        rows = slice(int(design.starts[users.start]), int(design.starts[users.stop]))
        return State(self.sites.take(rows), self.share[users], self.spread[users])

    def some(self, design: Design, who: IntArray) -> State:
        """Of some users."""
        return State(self.sites.take(design.rows_of(who)[0]), self.share[who], self.spread[who])

    def united(self, who: IntArray, cluster: IntArray, n_new: int) -> State:
        """With new clusters before the last component, and some users in them."""
        share = np.insert(self.share, [self.share.shape[1] - 1] * n_new, 0.0, axis=1)
        share[who] = 0.0
        share[who, self.share.shape[1] - 1 + cluster] = 1.0
        return self._replace(share=share)

    def copy(self) -> State:
        """The same, in arrays of its own."""
        return State(Sites(*(each.copy() for each in self.sites)), self.share.copy(), self.spread.copy())

    def put(self, design: Design, who: IntArray, found: State) -> None:
        """Write what was found of some users into it."""
        rows, _ = design.rows_of(who)
        for target, values in zip(self.sites, found.sites, strict=True):
            target[rows] = values
        self.share[who], self.spread[who] = found.share, found.spread

    @classmethod
    def join(cls, parts: Sequence[State]) -> State:
        """Users of several blocks, one block after the other."""
        sites = Sites(*(np.concatenate(each) for each in zip(*(part.sites for part in parts), strict=True)))
        return cls(sites, *(np.concatenate([part[i] for part in parts]) for i in (1, 2)))


class Statistics(NamedTuple):
    """Sufficient statistics of some users: the sum of two is that of all their users."""

    messages: Factors  # (C) products of the messages to each group mean
    sizes: FloatArray  # (C,) sums of the responsibilities
    scores: FloatArray  # (2, 2) as in `mackay_factors`; 0 where they were not asked for

    def __add__(self, other: Statistics) -> Statistics:  # type: ignore[override]
        messages, sizes, scores = self.messages + other.messages, self.sizes + other.sizes, self.scores + other.scores
        return Statistics(messages, sizes, scores)

    def __sub__(self, other: Statistics) -> Statistics:
        messages, sizes, scores = self.messages - other.messages, self.sizes - other.sizes, self.scores - other.scores
        return Statistics(messages, sizes, scores)


NUMBERS = ("Lam", "eta", "level")  # of `Factors`


@dataclass(frozen=True, eq=False)
class Shared:
    """All that users have in common: hyperparameters, and sums over everybody from which group means follow."""

    population: Population
    messages: Factors  # (C)
    sizes: FloatArray  # (C,)

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def groups(self) -> Groups:
        """Posterior of the group means."""
        return group_posterior(self.messages, self.population)

    @property
    def statistics(self) -> Statistics:
        """The sums over everybody."""
        return Statistics(self.messages, self.sizes, np.zeros((2, 2)))

    def followed(self, statistics: Statistics, population: Population | None = None) -> Shared:
        """With these sums over everybody."""
        return Shared(population or self.population, statistics.messages, statistics.sizes)


def e_step(
    block: Design, state: State | None, shared: Shared, *, scores: bool = False, sure_stay: bool = False
) -> tuple[State, Statistics]:
    """Responsibilities and EP sites of a block of users, and their sufficient statistics.

    `state` is as it was when the block's statistics went into `shared`; None: the block is no part of it. Members of a
    cluster who are sure of it are not weighed again where they `sure_stay`: their answers are the same as then.
    """
    rows = block.with_root(shared.population.root)
    population = replace(shared.population, root=None)
    given = replace(shared, population=population)
    given.__dict__["groups"] = shared.groups
    if state is None:
        state = new_users(rows, given)
        own = np.zeros_like(state.share)
    else:
        own = state.share
    if population.clustered:
        unsure = own[:, :-1].max(axis=1, initial=0.0) < (PASSES.sure if sure_stay else np.inf)
        who = np.flatnonzero(unsure)
        if len(who) == len(own):
            state = _weighed(rows, state, own, given)
        elif len(who):
            state = state.copy()
            state.put(rows, who, _weighed(rows.users(who), state.some(rows, who), own[who], given))
    each = run_each(rows, state.sites, state.share, population, given.groups, state.spread, RULES)
    state = State(each.sites, state.share, each.spread)
    return state, statistics_of(rows, state, given, scores=scores)


def new_users(rows: Design, shared: Shared) -> State:
    """New users under the population distribution."""
    population, C = shared.population, len(shared)
    variance = float(population.variances(C)[-1]) * np.einsum("ij,ij->i", rows.X, rows.X)
    share, spread, zero = np.zeros((rows.n_users, C)), np.ones(rows.n_users), np.zeros(len(rows.y))
    share[:, -1] = 1.0
    sites, _ = sweep(rows, Sites(zero, zero, zero), rows.X @ shared.groups.means[-1], np.maximum(variance, 1e-300))
    if population.clustered:
        sites = run_each(rows, sites, share, population, shared.groups, spread, ONCE).sites
    return State(sites, share, spread)


def _weighed(rows: Design, state: State, own: FloatArray, shared: Shared) -> State:
    """Responsibilities by log evidence of the contenders; `own` is what each user has a share in now.

    Contenders are weighed with a user's sites matched to each of them: sites matched to one cluster take answers that
    another cluster finds most unlikely to be nearly uninformative. The state holds the sites matched to the likeliest.
    """
    population, clusters = shared.population, shared.messages[:-1]
    factors = user_factors(rows, *state.sites)
    messages = factors.marginalise(population.within)
    found = log_weights(factors, messages, own, clusters, shared.sizes, population)
    near = found > found.max(axis=1, keepdims=True) - PASSES.near
    near[near.sum(axis=1) < 2] = False
    u, c = np.nonzero(near)
    if not len(u):
        return state._replace(share=softmax(found, axis=1))
    index, starts = rows.rows_of(u)
    one = np.zeros((len(u), len(shared)))
    one[np.arange(len(u)), c] = 1.0
    each = run_each(rows.users(u), state.sites.take(index), one, population, shared.groups, state.spread[u], ROUGHLY)
    found[u, c] = _evidence(user_factors(rows.users(u), *each.sites), messages, own[u, c], u, c, shared)
    best = c == np.argmax(found[u], axis=1)  # their sites are the best start
    theirs = np.repeat(best, np.diff(starts))
    sites = Sites(*(each.copy() for each in state.sites))
    for target, values in zip(sites, each.sites, strict=True):
        target[index[theirs]] = values[theirs]
    return state._replace(share=softmax(found, axis=1), sites=sites)


def _evidence(factors: Factors, told: Factors, own: FloatArray, u: IntArray, c: IntArray, shared: Shared) -> FloatArray:
    """Log evidence of user u[p] in component c[p], with this likelihood, where messages `told` are in the sums."""
    population, K = shared.population, len(shared) - 1
    found = factors.log_integral(population.m0, population.within + population.between) + population.partition.singleton
    p = np.flatnonzero(c < K)
    mine, before, k = factors[p].marginalise(population.within), told[u[p]], c[p]
    change = Factors(*(getattr(mine, name) - _times(own[p], getattr(before, name)) for name in NUMBERS))
    every, one, prior, clusters = np.arange(len(p)), np.ones(len(p)), population.partition, shared.messages[:-1]
    with_user = clusters.joint_log_integral(k, change, every, one, population.m0, population.between)
    without = clusters.joint_log_integral(k, before, every, -own[p], population.m0, population.between)
    left = shared.sizes[k] - own[p]
    found[p] = np.where(left > 1e-3, with_user - without + prior.log_weights(left), -np.inf)
    return found


def _times(power: FloatArray, values: FloatArray) -> FloatArray:
    return power.reshape(-1, *(1,) * (values.ndim - 1)) * values


def statistics_of(rows: Design, state: State, shared: Shared, *, scores: bool = False) -> Statistics:
    """Sufficient statistics of users as they are; `rows` are in the units of t."""
    population = replace(shared.population, root=None)
    messages = messages_of(rows, *state.sites, state.spread, state.share, population)
    found = np.zeros((2, 2))
    if scores:
        groups = shared.groups
        moments = user_moments(rows, *state.sites[:2], state.spread, state.share, groups, population, 1)
        found = moments.scores.sum(axis=0)
    return Statistics(messages, state.share.sum(axis=0), found)


def blocks_of_users(n_users: int, d: int, n_components: int, most: int = 1 << 20) -> list[slice]:
    """Consecutive users, at most so many, so few that a matrix for each fits into `PASSES.numbers`."""
    at_once = min(max(PASSES.numbers // d**2, min(n_components, 1024)), most)
    cuts = np.linspace(0, n_users, -(-n_users // at_once) + 1).astype(int)
    return [slice(int(a), int(b)) for a, b in pairwise(cuts)]


def e_step_in_blocks(
    design: Design, state: State | None, shared: Shared, *, scores: bool = False, sure_stay: bool = False
) -> tuple[State, Statistics]:
    """`e_step` of any number of users."""
    _ = shared.groups  # once for all blocks

    def some(users: slice) -> tuple[State, Statistics]:
        some = None if state is None else state.of(design, users)
        return e_step(design.between(users), some, shared, scores=scores, sure_stay=sure_stay)

    states, statistics = zip(*for_each(some, blocks_of_users(design.n_users, design.dim, len(shared))), strict=True)
    return State.join(states), reduce(add, statistics)


def m_step(statistics: Statistics, reference: Statistics, shared: Shared, size: float) -> Population:
    """Hyperparameters by everybody's statistics, for rows of mean square length `size`.

    `reference` are the statistics of the sample from which hyperparameters were learnt: held-out answers have moved
    these from where evidence is highest, and so far they stay from there.
    """
    population = shared.population
    now, then = (group_posterior(each.messages, population) for each in (statistics, reference))
    factors = mackay_factors(statistics.scores, now) / mackay_factors(reference.scores, then)
    new = replace(
        population,
        within=bounded(population.within * factors[0], size),
        between=bounded(population.between * factors[1], size),
    )
    if not population.clustered:
        return new
    known = len(population.m0) - np.trace(now.m0_cov) / population.top
    top = ratio(now.m0 @ now.m0 / population.top + 1.0, known + 1.0)
    return replace(new, m0=now.m0, top=bounded(population.top * top, size))
