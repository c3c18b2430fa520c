"""Whom to ask what: a number of questions spread over all people together.

People of a group share a centre m, known as N(·, S), and each one's preference is θ_u = G_u m + what is their own, of
covariance τ²G_u. So C_u = τ²G_u + G_u S G_u, and what is learnt about u tells about v through G_v S G_u. An answer of u
about x, which carries the information w = E σ′(θ_uᵀx), takes from Σ_v tr(C_v M), the log-loss that doubt costs people
(M = mean of σ′ x xᵀ over the candidates),

    w xᵀ(C_u M C_u + G_u S N S G_u) x / (1 + w xᵀC_u x),    N = Σ_{v ≠ u} G_v M G_v.

The question that takes most for its cost is planned, as if answered: with α = w / (1 + τ² w xᵀG_u x) and g = G_u x,
G_u loses τ²α ggᵀ and S loses α S ggᵀS / (1 + α gᵀSg). Gains fall as more is known, so that somebody whose last known
gain is below another's present one need not be looked at (lazy greedy; Minoux, 1978).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.inference.loss import widening

__all__ = ["Panel", "Planned", "planned"]

LOOK = 3e8  # multiplications of one look at everybody: with more people, fewer pairs decide who is asked
LEAST_PAIRS = 200
TIRED = 0.02  # of a gain is lost with each question to the same person: among equals, who was asked less comes first


@dataclass(frozen=True, eq=False)
class Panel:
    """People to ask: what is known about them, who belong to groups, or (group −1) to none."""

    mean: FloatArray  # (U, d)
    keep: FloatArray  # (U, d, d) G_u; for those in no group their covariance over `spread`
    spread: FloatArray  # (U,) τ²
    group: IntArray  # (U,)
    doubt: FloatArray  # (K, d, d) S of each group


class Planned(NamedTuple):
    """One question: who, about which pair, and what it is expected to take from everybody's loss."""

    person: int
    pair: int
    gain: float


def planned(
    people: Panel, X: FloatArray, budget: float, *, most: FloatArray | None = None, costs: FloatArray | None = None
) -> list[Planned]:
    """Questions about pairs with differences X (n, d), in the order in which to ask, as long as `budget` pays for them.

    `most` is how many each may be asked (0: away), `costs` what a question of each costs, 1 unless given.

    >>> both = Panel(np.zeros((2, 1)), np.full((2, 1, 1), 0.5), np.ones(2), np.zeros(2, dtype=int), np.ones((1, 1, 1)))
    >>> [(one.person, one.pair) for one in planned(both, np.array([[1.0], [2.0]]), 3)]
    [(0, 1), (1, 1), (0, 0)]
    """
    if not len(X):
        return []
    U, d = people.mean.shape
    most = np.full(U, np.inf) if most is None else most
    costs = np.ones(U) if costs is None else costs
    few = X[:: max(1, int(np.ceil(len(X) / max(LEAST_PAIRS, LOOK / (U * d * d)))))]
    state = _State(people, X)
    asked: list[set[int]] = [set() for _ in range(U)]

    def entry(u: int) -> tuple[float, int, tuple[int, int]]:
        worth = state.best(u, few, ()).gain / (costs[u] * (1.0 + TIRED * len(asked[u])))
        return -worth, u, state.age(u)

    queue = [entry(u) for u in np.flatnonzero(most > 0).tolist()]
    heapq.heapify(queue)
    found: list[Planned] = []
    while queue:
        _, u, age = heapq.heappop(queue)
        if costs[u] > budget or len(asked[u]) >= min(most[u], len(X)):
            continue
        if age == state.age(u):
            one = state.best(u, X, asked[u])
            if not one.gain > 0:
                continue
            found.append(one)
            asked[u].add(one.pair)
            state.hear(u, X[one.pair])
            budget -= costs[u]
        heapq.heappush(queue, entry(u))
    return found


class _State:
    """What will be known once the questions so far are answered."""

    def __init__(self, people: Panel, X: FloatArray) -> None:
        K = len(people.doubt)
        self.people, self.keep, self.doubt = people, people.keep.copy(), people.doubt.copy()
        self.loss = np.empty((K + 1, *self.keep.shape[1:]))  # M of each group, and last of those in none
        self.shared = np.zeros((K, *self.keep.shape[1:]))  # Σ G M G over a group
        for k in range(K + 1):
            members = people.group == (k if k < K else -1)
            slope = expit(X @ people.mean[members].mean(axis=0)) if members.any() else np.full(len(X), 0.5)
            self.loss[k] = (X * (slope * (1.0 - slope))[:, None]).T @ X / len(X)
            if k < K and members.any():
                G = self.keep[members]
                self.shared[k] = np.matmul(np.matmul(G, self.loss[k]), G).sum(axis=0)
        self.ages = np.zeros(K, dtype=int)
        self.own_ages = np.zeros(len(self.keep), dtype=int)

    def age(self, u: int) -> tuple[int, int]:
        """Changes whenever something was learnt that matters for u."""
        k = int(self.people.group[u])
        return int(self.own_ages[u]), int(self.ages[k]) if k >= 0 else 0

    def best(self, u: int, X: FloatArray, closed: set[int] | tuple[()]) -> Planned:
        """The pair about which u's answer takes most from everybody's loss."""
        k, G, spread = int(self.people.group[u]), self.keep[u], self.people.spread[u]
        M, C = self.loss[k], spread * G
        told = np.zeros_like(G)
        if k >= 0:
            reach = self.doubt[k] @ G
            C = C + G @ reach
            told = reach.T @ (self.shared[k] - G @ M @ G) @ reach
        rows = X.astype(np.float32)
        variance = np.einsum("ij,ij->i", rows @ C.astype(np.float32), rows)
        taken = np.einsum("ij,ij->i", rows @ (C @ M @ C + told).astype(np.float32), rows)
        w = _slope(X @ self.people.mean[u], variance)
        gain = w * taken / (1.0 + w * variance)
        gain[list(closed)] = -np.inf
        at = int(np.argmax(gain))
        return Planned(u, at, float(gain[at]))

    def hear(self, u: int, x: FloatArray) -> None:
        """An answer of u about x, whichever it is."""
        k, G, spread = int(self.people.group[u]), self.keep[u].copy(), float(self.people.spread[u])
        g = G @ x
        own = float(x @ g)
        reach = self.doubt[k] @ g if k >= 0 else np.zeros_like(g)
        variance = spread * own + float(g @ reach)
        w = float(_slope(np.array([x @ self.people.mean[u]]), np.array([variance]))[0])
        alpha = w / (1.0 + spread * w * own)
        self.keep[u] = G - spread * alpha * np.outer(g, g)
        self.own_ages[u] += 1
        if k >= 0:
            M = self.loss[k]
            self.doubt[k] -= alpha / (1.0 + alpha * float(g @ reach)) * np.outer(reach, reach)
            self.shared[k] += self.keep[u] @ M @ self.keep[u] - G @ M @ G
            self.ages[k] += 1


def _slope(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """E σ′ of margins N(mean, variance), as of a normal distribution function."""
    narrow = 1.0 / widening(np.maximum(variance, 0.0))
    p = expit(narrow * mean)
    slope: FloatArray = narrow * p * (1.0 - p)
    return slope
