"""Ratings as pairs: which of two items somebody rated clearly higher, and what items are like where nobody says.

A person with m ratings has m (m − 1) / 2 pairs, but has not given as many answers. A bounded number of pairs is kept,
and together they count as much as a ranking of the same m items would (`choices`): Σ 2 (A − 1) / A for A = m, ..., 2,
about 2 m.

Items without features get factors learnt from the ratings themselves: the mean rating, and the leading directions (a
truncated singular value decomposition) of what is left when people's and items' means are taken away.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from prefkin.data.arrays import BoolArray, FloatArray, IntArray, LabelArray
from prefkin.data.checks import distinct_labels, feature_matrix, label_array, missing_labels, number_array
from prefkin.errors import InvalidComparisons

__all__ = ["RatedPairs", "Ratings", "factor_names", "pairs_of_ratings"]

CLEARLY = 0.5  # of the standard deviation within people: a difference that is hardly an accident of the day
LITTLE_KNOWN = 5.0  # ratings that an item's mean is shrunk by


def factor_names(n: int) -> tuple[str, ...]:
    """What `n` features are called that were learnt from ratings.

    >>> factor_names(3)
    ('mean rating', 'factor 1', 'factor 2')
    """
    return ("mean rating", *(f"factor {k}" for k in range(1, n)))


@dataclass(frozen=True)
class Ratings:
    """Who rated what how, checked; `who` and `what` are positions in `people` and `items`."""

    people: LabelArray
    items: LabelArray
    who: IntArray
    what: IntArray
    values: FloatArray

    @classmethod
    def checked(cls, users: Any, items: Any, ratings: Any) -> Ratings:
        """Arrays of equal length without gaps, and nobody rated an item twice."""
        owners, things = label_array(users, "users"), label_array(items, "items")
        values = number_array(ratings, "ratings")
        for name, part in (("users", owners), ("items", things)):
            if len(part) != len(values):
                raise InvalidComparisons(
                    f"{name} has {len(part)} rows but ratings has {len(values)}; give one per rating"
                )
        if not len(values):
            raise InvalidComparisons("there are no ratings; give at least two of one person")
        faults: tuple[tuple[str, BoolArray], ...] = (
            ("the user is missing", missing_labels(owners)),
            ("the item is missing", missing_labels(things)),
            ("the rating is missing or not finite", ~np.isfinite(values)),
        )
        for message, bad in faults:
            if bad.any():
                raise InvalidComparisons(f"{message} in row {int(bad.argmax())} (counted from 0); leave such rows out")
        people, who = distinct_labels(owners)
        kinds, what = distinct_labels(things)
        cells = who.astype(np.int64) * len(kinds) + what
        order = np.argsort(cells, kind="stable")
        again = order[1:][cells[order][1:] == cells[order][:-1]]
        if len(again):
            row = int(again.min())
            raise InvalidComparisons(
                f"user {owners[row]!r:.40} rated item {things[row]!r:.40} twice, again in row {row} (counted from 0); "
                "keep one of them"
            )
        return cls(people, kinds, who, what, values)

    def spread(self) -> float:
        """The standard deviation within people."""
        return float(np.sqrt(np.mean((self.values - _means(self.who, self.values)[self.who]) ** 2)))

    def factors(self, n: int) -> tuple[FloatArray, tuple[str, ...]]:
        """What items are like by the ratings alone, (items, 1 + n), and the names of that; n as far as data allow."""
        left = self.values - _means(self.who, self.values)[self.who]
        count = np.bincount(self.what)
        mean = np.bincount(self.what, left) / (count + LITTLE_KNOWN)
        left = left - mean[self.what]
        shape = (len(self.people), len(self.items))
        n = min(n, min(shape) - 1)
        parts = [mean[:, None] / max(float(mean.std()), 1e-12)]
        if n > 0 and left.any():
            table = csr_array((left, (self.who, self.what)), shape=shape)
            _, size, right = svds(table, k=n, v0=np.ones(min(shape)))
            order = np.argsort(-size)
            right = right[order] * np.sign(right[order, np.abs(right[order]).argmax(axis=1)])[:, None]
            parts.append(right.T * (size[order] / size.max()) * np.sqrt(shape[1]))
        X = np.column_stack(parts)
        return X, factor_names(X.shape[1])

    def features(self, known: Mapping[Hashable, Any]) -> FloatArray:
        """Features of the items, in their order, from those that are known."""
        for row, code in enumerate(self.what.tolist()):
            if self.items[code] not in known:
                raise InvalidComparisons(
                    f"item {self.items[code]!r:.60} of row {row} (counted from 0) has no features; "
                    f"{len(known)} items are known: add it, or leave such rows out"
                )
        return feature_matrix([known[item] for item in self.items.tolist()], "features")


def _means(codes: IntArray, values: FloatArray) -> FloatArray:
    return np.bincount(codes, values) / np.maximum(np.bincount(codes), 1)


@dataclass(frozen=True)
class RatedPairs:
    """Positions of rows of `Ratings`, two of one person: the first was rated higher where `y` is 1."""

    first: IntArray
    second: IntArray
    y: FloatArray
    weights: FloatArray


def pairs_of_ratings(ratings: Ratings, margin: float | None, at_most: int, rng: np.random.Generator) -> RatedPairs:
    """Pairs that differ by at least `margin`, at most so many a person; which side is first is left to chance.

    >>> rated = Ratings.checked(["ann"] * 3, ["p", "q", "r"], [5, 1, 1])
    >>> pairs = pairs_of_ratings(rated, 1.0, 10, np.random.default_rng(0))
    >>> len(pairs.y), pairs.weights.round(2).tolist()        # together as much as a ranking of three: 4/3 + 1
    (2, [1.0, 1.0])
    """
    clear = CLEARLY * ratings.spread() if margin is None else margin
    order = np.argsort(ratings.who, kind="stable")
    ends = np.cumsum(np.bincount(ratings.who, minlength=len(ratings.people)))
    higher, lower, weights = [], [], []
    for own in np.split(order, ends[:-1]):
        one, other = _some_pairs(len(own), at_most, rng)
        difference = ratings.values[own[one]] - ratings.values[own[other]]
        kept = np.flatnonzero((np.abs(difference) >= clear) & (difference != 0))[:at_most]
        swap = difference[kept] < 0
        higher.append(own[np.where(swap, other[kept], one[kept])])
        lower.append(own[np.where(swap, one[kept], other[kept])])
        worth = 2.0 * (1.0 - 1.0 / np.arange(2, len(own) + 1)).sum()
        weights.append(np.full(len(kept), min(1.0, worth / max(len(kept), 1))))
    won, lost = np.concatenate(higher), np.concatenate(lower)
    first_won = rng.random(len(won)) < 0.5
    first, second = np.where(first_won, won, lost), np.where(first_won, lost, won)
    return RatedPairs(first, second, first_won.astype(np.float64), np.concatenate(weights))


def _some_pairs(m: int, at_most: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Pairs of m things in random order: all of them where they are few, otherwise more than are needed."""
    if m * (m - 1) // 2 <= 8 * at_most:
        one, other = np.triu_indices(m, 1)
        order = rng.permutation(len(one))
        return one[order], other[order]
    one = rng.integers(m, size=8 * at_most)
    other = (one + rng.integers(1, m, size=len(one))) % m
    code = np.minimum(one, other) * m + np.maximum(one, other)
    fresh = np.sort(np.unique(code, return_index=True)[1])
    return one[fresh], other[fresh]
