"""Rankings and choices among several as pairs that count for what they tell.

The best of A options is one answer, not A − 1. It is heard as the best one against each other option, and these pairs
count less than pairs that were asked about one by one. Near indifference a weight w of 2/A gives them the information
of the exact conditional logit,

    Σ_j w/4 (φ_c − φ_j)(φ_c − φ_j)ᵀ averaged over c  =  the covariance of the options' features   ⇔   w = 2/A;

where preferences are strong the two best options compete alone, and w = 1. Rankings, as sequences of choices (the best
of all, the best of the rest, ...: Plackett and Luce), predicted best with 2/A, choices of real people with 4/A, at most
1: docs/method.md, Rankings and choices, has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.checks import feature_matrix
from prefkin.errors import InvalidComparisons

__all__ = ["Pairs", "choice_weight", "pairs_of_choices", "pairs_of_rankings", "ranking_weight"]


class Pairs:
    """Pairs in the making: which of two, of which set, how much it counts. The first side is the one listed earlier."""

    def __init__(self) -> None:
        self.first: list[int] = []
        self.second: list[int] = []
        self.y: list[float] = []
        self.weights: list[float] = []
        self.sets: list[int] = []

    def add(self, number: int, winner: int, losers: Sequence[int], weight: float) -> None:
        """`winner` was the best of itself and `losers`."""
        for loser in losers:
            self.first.append(min(winner, loser))
            self.second.append(max(winner, loser))
            self.y.append(float(winner < loser))
            self.weights.append(weight)
            self.sets.append(number)


def ranking_weight(n_left: int | IntArray) -> FloatArray:
    """What each pair counts that says which of so many items of a ranking is the best.

    >>> ranking_weight(np.array([2, 4])).tolist()
    [1.0, 0.5]
    """
    return 2.0 / np.asarray(n_left, dtype=np.float64)


def choice_weight(n_options: int) -> float:
    """What each pair of a choice among so many options counts.

    >>> [choice_weight(n) for n in (2, 4, 5, 10)]
    [1.0, 1.0, 0.8, 0.4]
    """
    return min(1.0, 4.0 / n_options)


def pairs_of_rankings(rankings: Any, n_items: int) -> Pairs:
    """Each item against all that stand below it; items of a nested list are tied, and not compared."""
    pairs = Pairs()
    for number, ranking in enumerate(rankings):
        levels = [[level] if np.ndim(level) == 0 else list(level) for level in ranking]
        every = [_position(item, number, n_items) for level in levels for item in level]
        if len(set(every)) < len(every):
            twice = next(item for item in every if every.count(item) > 1)
            raise InvalidComparisons(f"ranking {number} (counted from 0) has item {twice} twice; an item has one place")
        at = 0
        for level in levels:
            here, at = every[at : at + len(level)], at + len(level)
            for item in here:
                pairs.add(number, item, every[at:], float(ranking_weight(1 + len(every[at:]))))
    return pairs


def _position(item: Any, number: int, n_items: int) -> int:
    try:
        position = int(item)
    except (TypeError, ValueError):
        position = -1
    if position != item or not 0 <= position < n_items:
        raise InvalidComparisons(
            f"ranking {number} (counted from 0) has {item!r:.30}, which is no row of features; "
            f"name items by their rows, 0 to {n_items - 1}, best first"
        )
    return position


def pairs_of_choices(options: Any, chosen: Any) -> tuple[FloatArray, Pairs]:
    """Features of all options, one after the other, and each choice against every other option of its set."""
    sets = [feature_matrix(some, f"options[{number}]") for number, some in enumerate(options)]
    picks = np.asarray(chosen)
    if picks.shape != (len(sets),) or picks.dtype.kind not in "iu":
        raise InvalidComparisons(
            f"chosen must be one position for each of the {len(sets)} choice sets, a whole number; got {chosen!r:.60}"
        )
    pairs, begin = Pairs(), 0
    for number, (some, pick) in enumerate(zip(sets, picks.tolist(), strict=True)):
        if some.shape[1] != sets[0].shape[1]:
            raise InvalidComparisons(
                f"options[{number}] has {some.shape[1]} features, options[0] has {sets[0].shape[1]}; describe all alike"
            )
        if not 0 <= pick < len(some):
            raise InvalidComparisons(
                f"chosen is {pick} in set {number} (counted from 0), which has {len(some)} options; count them from 0"
            )
        others = [begin + a for a in range(len(some)) if a != pick and (some[a] != some[pick]).any()]
        pairs.add(number, begin + pick, others, choice_weight(1 + len(others)))
        begin += len(some)
    return np.concatenate(sets) if sets else np.empty((0, 1)), pairs
