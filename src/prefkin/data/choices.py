"""Rankings and choices among several as pairs that count for what they tell.

The best of A options is one answer, not A − 1. It is heard as the best one c against each other option j, and these
pairs count less than pairs that were asked about one by one. With p the chances of the options, the slope of the exact
conditional logit in the utility of j is that of the pair (c, j) times

    p_c + p_j,

the chance that the choice was between these two: 2/A near indifference, where the pairs have the information of the
exact logit, too; 1 where the two best options compete alone, and always where there are but two. For choices it is
estimated (`weights_of_choices`). Rankings are sequences of choices (the best of all, the best of the rest, ...:
Plackett and Luce), and predicted best with 2/A. docs/method.md, Rankings and choices, has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.checks import feature_matrix
from prefkin.errors import InvalidComparisons

__all__ = ["Pairs", "judged_weight", "pairs_of_choices", "pairs_of_rankings", "ranking_weight", "weights_of_choices"]

SHARED, OWN = 0.1, 1.0  # ridges of what all want and of what is each one's own, features in standard deviations
DIGITS = 4  # of a weight: beyond, the order shows in which numbers were added up


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


def judged_weight(n_options: int) -> float:
    """What each pair of a choice among so many options counts when it is held out.

    >>> [judged_weight(n) for n in (2, 4, 5, 10)]
    [1.0, 1.0, 0.8, 0.4]
    """
    return min(1.0, 4.0 / n_options)


def weights_of_choices(ahead: FloatArray, sets: IntArray, who: IntArray) -> FloatArray:
    """What each pair of a choice counts: the chance that the choice was between these two.

    Row by row: features of the chosen option less those of another, the number of the choice (those of one stand
    together) and whose it was. Chances are those of the conditional logit, one for all and then everybody's own, drawn
    to it.

    >>> ahead = np.array([[1.0], [-1.0], [1.0], [-2.0], [0.5], [3.0], [0.1]])
    >>> weights_of_choices(ahead, np.array([0, 0, 1, 1, 2, 2, 3]), np.zeros(7, dtype=int)).tolist()
    [0.5874, 0.7401, 0.5305, 0.7652, 0.7908, 0.6274, 1.0]
    """
    size = np.sqrt(np.mean(ahead**2, axis=0) / 2.0)  # options vary half as much as their differences
    X = ahead / np.where(size > 0, size, 1.0)
    starts = np.flatnonzero(np.diff(sets, prepend=-1))
    place = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(sets)))

    def chances(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of the options that were not chosen, (n,), and minus the logarithm of the chosen one's, (choices,)."""
        odds = -np.einsum("ij,ij->i", X, theta)
        most = np.maximum(np.maximum.reduceat(odds, starts), 0.0)
        part = np.exp(odds - most[place])
        total = np.exp(-most) + np.add.reduceat(part, starts)
        return part / total[place], np.log(total) + most

    def fitted(owner: IntArray, centre: FloatArray, ridge: float) -> FloatArray:
        n = int(owner.max()) + 1
        adding = csr_array((np.ones(len(X)), (owner, np.arange(len(X)))), shape=(n, len(X)))

        def value(step: FloatArray) -> tuple[float, FloatArray]:
            chance, loss = chances((centre + step.reshape(n, -1))[owner])
            slope = ridge * step - (adding @ (chance[:, None] * X)).ravel()
            return float(loss.sum() + ridge / 2.0 * step @ step), slope

        options = {"maxiter": 500, "ftol": 1e-13, "gtol": 1e-6}
        found: FloatArray = minimize(value, np.zeros(n * X.shape[1]), jac=True, method="L-BFGS-B", options=options).x
        return centre + found.reshape(n, -1)

    shared = fitted(np.zeros_like(who), np.zeros(X.shape[1]), SHARED)
    chance, loss = chances(fitted(who, shared, OWN)[who])
    return (chance + np.exp(-loss)[place]).round(DIGITS)


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
    """Features of all options, one after the other, and each choice against every other option of its set.

    Weights are those of held-out pairs: what is learnt from depends on whose choices they are (`weights_of_choices`).
    """
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
        pairs.add(number, begin + pick, others, judged_weight(1 + len(others)))
        begin += len(some)
    return np.concatenate(sets) if sets else np.empty((0, 1)), pairs
