"""One draw of people for an experiment: what methods may learn from, and what they are judged by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray, above_zero
from prefkin.data.candidates import Candidates
from prefkin.data.comparisons import Comparisons
from prefkin.data.rows import UserRows

__all__ = ["NO_ANSWER", "Pool", "World", "relative_gap"]

NO_ANSWER = -1


@dataclass(frozen=True, eq=False)
class Pool:
    """What one user may be asked about, and what the answer would be."""

    candidates: Candidates
    answers: IntArray  # (X, A, A) 1: the first is preferred, 0: the second, −1: nobody knows; contexts have A actions


@dataclass(frozen=True, eq=False)
class World:
    """Users 0..U−1; rows of a user in the order in which a growing budget takes them."""

    data: Comparisons
    advantage: FloatArray  # (n,) what the first action of each logged pair is worth more than the second
    held_out: Comparisons  # comparisons about other contexts
    contexts: Candidates  # other contexts, to recommend for
    reward: FloatArray  # (U, rows of contexts) what each action is worth to each user
    group: IntArray | None  # (U,) true group, where there is one
    least_gap: float | None = None  # γ: smallest distance between the preferences of two groups, where known
    pools: tuple[Pool, ...] = ()  # per user who may be asked

    @property
    def n_users(self) -> int:
        """U, how many people there are."""
        return len(self.reward)

    def budget(self, n: int) -> BoolArray:
        """The first `n` rows of each user, as a mask."""
        order, sizes = np.argsort(self.data.who, kind="stable"), np.bincount(self.data.who)
        rank = np.empty(len(order), dtype=np.intp)
        rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return rank < n

    def fresh_gap(self, theta: FloatArray) -> FloatArray:
        """Relative gap of each user's greedy policy on the fresh contexts: 0 optimal, 1 as good as choosing blindly."""
        scores = self.contexts.features @ theta.T
        chosen = [self.contexts.argmax(scores[:, u]) for u in range(self.n_users)]
        return np.array([relative_gap(self.contexts, self.reward[u], chosen[u]) for u in range(self.n_users)])

    def logged_gap(self, theta: FloatArray, rows: UserRows, advantage: FloatArray) -> FloatArray:
        """The same on each user's own logged pairs: what the paper's published numbers look like.

        `advantage` is in the order of `rows`, which are sorted by user.
        """
        gaps = np.zeros(self.n_users)
        for u in range(self.n_users):
            margin, worth = rows.of(u).Z @ theta[u], advantage[rows.starts[u] : rows.starts[u + 1]]
            lost = np.where(margin == 0, 0.5, (margin > 0) != (worth > 0)) * np.abs(worth)
            gaps[u] = lost.sum() / above_zero(np.abs(worth).sum() / 2.0)
        return gaps


def relative_gap(contexts: Candidates, reward: FloatArray, actions: IntArray) -> float:
    """(best − chosen) / (best − blind choice), each the mean over contexts.

    >>> contexts = Candidates([[[1.0], [3.0]]])
    >>> relative_gap(contexts, np.array([1.0, 3.0]), np.array([1])), relative_gap(
    ...     contexts, np.array([1.0, 3.0]), np.array([0]))
    (0.0, 2.0)
    """
    best = np.maximum.reduceat(reward, contexts.starts[:-1])
    blind = np.add.reduceat(reward, contexts.starts[:-1]) / contexts.sizes
    got = reward[contexts.starts[:-1] + actions]
    possible = float(contexts.weights @ (best - blind))
    return float(contexts.weights @ (best - got)) / possible if possible > 0 else 0.0
