"""What rules have in common: questions, pairs that must not be asked again, and the widest pair of a context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from scipy.special import expit

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.decide.belief import Belief

__all__ = ["FLOAT32_ERROR", "FLOAT32_TINY", "Pairs", "QueryRule", "Question", "widest_pair"]

ROWS_AT_ONCE = 512  # a context with more actions is searched block by block, in memory linear in its actions
FLOAT32_ERROR = 1e-4, 1e-5  # more than float32 can be off: of the square itself, and of the largest it could be
FLOAT32_TINY = 1e-25  # squares below have too few digits in float32
BLURRED = 1e-8  # of the widest: a distance this small loses half its digits to ‖a‖² + ‖b‖² − 2aᵀb


@dataclass(frozen=True)
class Question:
    """In context number `context`, which is better: action number `first` or `second`?

    >>> Question(context=3, first=0, second=2)
    Question(context=3, first=0, second=2)
    """

    context: int
    first: int
    second: int
    score: float = field(default=np.nan, compare=False, repr=False)  # what the rule maximised

    @property
    def pair(self) -> tuple[int, int]:
        """The two actions, smaller position first, whichever way they are shown."""
        return min(self.first, self.second), max(self.first, self.second)


class Pairs:
    """The pairs of each context that must not be asked (again)."""

    def __init__(self) -> None:
        self._of: dict[int, set[tuple[int, int]]] = {}

    def copy(self) -> Pairs:
        """The same pairs, to go on from here."""
        other = Pairs()
        other._of = {context: set(pairs) for context, pairs in self._of.items()}
        return other

    def add(self, question: Question) -> None:
        """Close a pair, whichever side comes first."""
        self._of.setdefault(question.context, set()).add(question.pair)

    def __contains__(self, question: Question) -> bool:
        return question.pair in self._of.get(question.context, ())

    def of(self, context: int) -> set[tuple[int, int]]:
        """Closed pairs of one context, smaller position first."""
        return self._of.get(context, set())

    def touched(self) -> IntArray:
        """Contexts with a closed pair."""
        return np.fromiter(self._of, dtype=np.intp)


class QueryRule(ABC):
    """Chooses questions about `candidates`, of which `start` is what was known before the first one.

    As they stand here, `heard` and `copy` are those of a rule that keeps nothing.
    """

    reads_answers: ClassVar[bool]  # False: the questions can be planned

    @abstractmethod
    def __init__(self, candidates: Candidates, start: Belief, rng: np.random.Generator) -> None: ...

    @abstractmethod
    def pick(self, closed: Pairs, now: Callable[[], Belief]) -> Question | None:
        """The next question, or None when no pair is left; `now()` is what is known by now, computed when called."""

    def heard(self, z: FloatArray) -> None:  # noqa: B027
        """An answer about difference `z` has come in."""

    def copy(self, rng: np.random.Generator) -> Self:  # noqa: ARG002
        """A rule that goes on from here without changing this one, and draws from `rng`."""
        return self


def widest_pair(
    features: FloatArray, root: FloatArray, closed: set[tuple[int, int]], theta: FloatArray | None = None
) -> tuple[float, int, int]:
    """The open pair i < j of rows with the largest ‖rootᵀz‖² (times σ′(θᵀz) when θ is given), and that score.

    Rows are visited from the outermost inwards, in blocks, and the search ends when two rows cannot be far enough
    apart any more: memory stays linear in the rows.

    >>> widest_pair(np.array([[0.0], [3.0], [1.0]]), np.eye(1), {(0, 1)})
    (4.0, 1, 2)
    """
    centred = features - features.mean(axis=0)
    white = centred @ root
    square = np.einsum("ij,ij->i", white, white)
    reach = np.sqrt(square)
    reward = None if theta is None else centred @ theta
    order = np.argsort(-reach, kind="stable")
    blurred = BLURRED * float(square.max())
    steepest = 1.0 if theta is None else 0.25  # σ′ is at most 1/4
    best, pair = -np.inf, (-1, -1)
    for at in range(0, len(order), ROWS_AT_ONCE):
        rows = order[at : at + ROWS_AT_ONCE]
        others = order[at:]
        others = others[steepest * (reach[others] + reach[rows[0]]) ** 2 >= best]
        if len(others) < 2:
            break
        for start in range(0, len(others), ROWS_AT_ONCE):
            some = others[start : start + ROWS_AT_ONCE]
            score = square[rows][:, None] + square[some] - 2.0 * (white[rows] @ white[some].T)
            for i in np.flatnonzero((score <= blurred).any(axis=1)):  # from differences of rows instead
                near = np.flatnonzero(score[i] <= blurred)
                apart = (features[some[near]] - features[rows[i]]) @ root
                score[i, near] = np.einsum("ij,ij->i", apart, apart)
            same = score <= 0.0  # an action and its copy, or itself: nothing to ask
            if reward is not None:
                margin = reward[rows][:, None] - reward[some]
                score *= expit(margin) * expit(-margin)
            score[same] = -np.inf
            _shut(score, rows, some, closed)
            top = float(score.max())
            if top < best or top == -np.inf:
                continue
            for i, j in np.argwhere(score == top):
                found = int(min(rows[i], some[j])), int(max(rows[i], some[j]))
                if top > best or found < pair:
                    best, pair = top, found
    return best, *pair


def _shut(score: FloatArray, rows: IntArray, others: IntArray, closed: set[tuple[int, int]]) -> None:
    """Take closed pairs out of a block of scores."""
    if not closed:
        return
    row_at = {int(row): k for k, row in enumerate(rows)}
    other_at = {int(row): k for k, row in enumerate(others)}
    for pair in closed:
        for one, other in (pair, pair[::-1]):
            if one in row_at and other in other_at:
                score[row_at[one], other_at[other]] = -np.inf
