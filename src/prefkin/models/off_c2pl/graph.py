"""Who may be pooled with whom: the connection test, one row of the graph at a time.

Neighbourhoods are one hop, not transitive: u may be pooled with v and v with w without u being pooled with w.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.models.off_c2pl.pairs import Census, census_by_rows, census_by_tiles, nearest_pair
from prefkin.models.off_c2pl.posterior import Beliefs

__all__ = ["Graph"]

PAIRS_AT_ONCE = 2**19  # looked at together: their distances stay in the cache
ROUNDING = 1e-9  # of squared lengths, thresholds, radii: far more than what is computed from them is off by


@dataclass(frozen=True, eq=False)
class Graph:
    """Users as points with radii; edges are computed when asked for, never stored  [paper: connect].

    >>> pair = Graph(np.array([[0.0], [1.0]]), np.array([0.1, 0.1]), np.array([1.3, 1.3]), 1.0, np.ones(2, bool))
    >>> pair.neighbours(0).tolist()
    [0, 1]
    """

    theta: FloatArray  # (U, d)
    radius: FloatArray  # (U,)
    gamma: FloatArray  # (U,) the threshold for each user's own neighbourhood
    alpha: float
    enough: BoolArray  # (U,) who has the comparisons that the coverage assumption asks for
    beliefs: Beliefs | None = None  # when given, distances are weighted by what is known, and radii take nothing away

    def __len__(self) -> int:
        return len(self.theta)

    @classmethod
    def together(cls, parts: Sequence[Graph]) -> Graph:
        """The users of several graphs, one after the other, under the same test."""
        names = ("theta", "radius", "gamma", "enough")
        theta, radius, gamma, enough = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
        beliefs = [part.beliefs for part in parts if part.beliefs is not None]
        return cls(theta, radius, gamma, parts[0].alpha, enough, reduce(Beliefs.joined, beliefs) if beliefs else None)

    def under(self, gamma: float) -> Graph:
        """With one threshold for everybody."""
        return replace(self, gamma=np.full(len(self), gamma))

    def distances(self, user: int) -> FloatArray:
        """‖θ̂_u − θ̂_v‖ to every v; with beliefs, `Beliefs.distances`."""
        if self.beliefs is not None:
            return self.beliefs.distances(user)
        return np.linalg.norm(self.theta - self.theta[user], axis=1)

    def allowances(self, user: int) -> FloatArray:
        """α (CI_u + CI_v) for every v: what the radii take away from the threshold."""
        if self.beliefs is not None:  # they are in the distance already
            return np.zeros(len(self))
        return self.alpha * (self.radius[user] + self.radius)

    def connected(self, user: int) -> BoolArray:
        """‖θ̂_u − θ̂_v‖ < γ̂ − α (CI_u + CI_v) and enough comparisons on both sides; and always oneself."""
        # written as a sum: the "over" threshold of Appendix A is such a sum, and its own pair must not pass by rounding
        near = self.distances(user) + self.allowances(user) < self.gamma[user]
        near &= self.enough[user] & self.enough
        near[user] = True
        return near

    def neighbours(self, user: int) -> IntArray:
        """V(u): positions of those connected with `user`, itself included."""
        return np.flatnonzero(self.connected(user))

    def neighbourhoods(self, users: IntArray) -> Iterator[IntArray]:
        """V(u) of each of these users: most others are too far by a matrix product, the rest is tested exactly."""
        if self.beliefs is not None:
            yield from map(self.neighbours, users.tolist())
            return
        square = np.einsum("ij,ij->i", self.theta, self.theta)
        for some in np.array_split(users, len(users) * len(self) // PAIRS_AT_ONCE + 1):
            with np.errstate(over="ignore", invalid="ignore"):  # what is not a number is tested exactly
                taken = (1.0 - ROUNDING) * self.alpha * (self.radius[some, None] + self.radius)
                left = (1.0 + ROUNDING) * self.gamma[some, None] - taken
                apart = (1.0 - ROUNDING) * (square[some, None] + square) - 2.0 * (self.theta[some] @ self.theta.T)
            row, other = np.nonzero(~(left <= 0.0) & ~(apart > left**2) & self.enough & self.enough[some, None])
            near = self.joined(some[row], other) & (some[row] != other)
            row, other = np.append(row[near], np.arange(len(some))), np.append(other[near], some)  # always oneself
            order = np.lexsort([other, row])
            yield from np.split(other[order], np.cumsum(np.bincount(row))[:-1])

    def joined(self, users: IntArray, others: IntArray) -> BoolArray:
        """`connected` for pairs, bit for bit."""
        distance = np.linalg.norm(self.theta[others] - self.theta[users], axis=1)
        return distance + self.alpha * (self.radius[users] + self.radius[others]) < self.gamma[users]

    @cached_property
    def census(self) -> Census:
        """For each user how many neighbours it has, and a key that is equal for equal neighbourhoods."""
        if self.beliefs is not None:
            return census_by_rows(self.connected, len(self))
        take = np.where(self.enough, self.alpha * self.radius, np.inf)
        reach = self.gamma - self.alpha * self.radius
        mutual = bool((self.gamma == self.gamma[0]).all())
        return census_by_tiles(self.theta, reach, take, self.joined, mutual)

    @cached_property
    def distinct(self) -> tuple[IntArray, IntArray]:
        """A user for each distinct neighbourhood, and for each user which of these it has.

        >>> theta, radius = np.array([[0.0], [0.1], [5.0]]), np.full(3, 0.1)
        >>> users, which = Graph(theta, radius, np.ones(3), 1.0, np.ones(3, bool)).distinct
        >>> users.tolist(), which.tolist()
        ([0, 2], [0, 0, 1])
        """
        counted = self.census
        _, first, which = np.unique(
            np.column_stack([counted.key, counted.degree]), axis=0, return_index=True, return_inverse=True
        )
        rank = np.argsort(np.argsort(first))
        return np.sort(first), rank[which.ravel()]

    def first_edge(self) -> tuple[int, int] | None:
        """The pair that the smallest threshold would join; None when nobody has enough comparisons."""
        if self.beliefs is None:
            return nearest_pair(self.theta, np.where(self.enough, self.alpha * self.radius, np.inf))
        best, pair = np.inf, None
        for user in map(int, np.flatnonzero(self.enough)):
            needed = np.where(self.enough, self.distances(user), np.inf)
            needed[user] = np.inf
            other = int(np.argmin(needed))
            if needed[other] < best:
                best, pair = float(needed[other]), (user, other)
        return pair
