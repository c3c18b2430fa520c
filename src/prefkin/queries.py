"""Which pair to ask about next. A rule looks at the candidates as actions per context, never at a list of all pairs.

| rule     | the next pair maximises                               | reads answers |
|----------|-------------------------------------------------------|---------------|
| coverage | ‖z‖_{M⁻¹}: the paper's rule  [paper: query]           | no            |
| fisher   | σ′(θᵀz) zᵀH⁻¹z, H the Hessian at the current estimate | yes           |
| posterior | the same with the posterior covariance for H⁻¹       | yes           |
| random   | nothing: uniform over the pairs not asked yet         | no            |
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from prefkin.candidates import Candidates
from prefkin.comparisons import FloatArray, IntArray, Rows
from prefkin.confidence import gram
from prefkin.errors import InvalidParameter

__all__ = ["RULES", "Fisher", "Known", "LeastCovered", "Pairs", "QueryRule", "Question", "Random", "widest_pair"]

ROWS_AT_ONCE = 512  # a context with more actions is searched block by block, in memory linear in its actions


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

    def add(self, question: Question) -> None:
        """Close a pair, whichever side comes first."""
        self._of.setdefault(question.context, set()).add(question.pair)

    def __contains__(self, question: Question) -> bool:
        return question.pair in self._of.get(question.context, ())

    def of(self, context: int) -> set[tuple[int, int]]:
        """Closed pairs of one context, smaller position first."""
        return self._of.get(context, set())


class Known(NamedTuple):
    """What has been learnt so far."""

    rows: Rows  # the neighbourhood's comparisons and the answers
    theta: FloatArray  # (d,) the current estimate
    precision: FloatArray  # (d, d) of what was known before any of the rows


class QueryRule(Protocol):
    """Chooses questions; `heard` tells it which differences have been asked about."""

    reads_answers: ClassVar[bool]

    def __init__(self, candidates: Candidates, information: FloatArray, rng: np.random.Generator) -> None: ...

    def pick(self, closed: Pairs, known: Known) -> Question | None:
        """The next question, or None when no pair is left."""

    def heard(self, z: FloatArray) -> None:
        """An answer about difference `z` has come in."""

    def copy(self) -> Self:
        """A rule that goes on from here without changing this one."""


class LeastCovered:
    """The pair that lies where the information matrix is weakest.

    Adding rows to M only lowers ‖z‖_{M⁻¹}, so the best score a context had in an earlier round bounds the one it has
    now: contexts are scored again only while such a bound is the largest. The choice is exact.
    """

    reads_answers: ClassVar[bool] = False

    def __init__(self, candidates: Candidates, information: FloatArray, rng: np.random.Generator) -> None:  # noqa: ARG002
        self.candidates = candidates
        self.inverse: FloatArray = cho_solve(cho_factor(information), np.eye(self.candidates.dim))
        n_contexts = len(self.candidates)
        self.bound = np.full(n_contexts, np.inf)
        self.pair: IntArray = np.zeros((n_contexts, 2), dtype=np.intp)
        self.fresh = np.zeros(n_contexts, dtype=bool)
        self.scored = 0  # contexts scored so far: the work done

    def copy(self) -> Self:
        """An independent copy of the matrices and bounds; the candidates are shared."""
        return deepcopy(self, {id(self.candidates): self.candidates})

    def pick(self, closed: Pairs, known: Known) -> Question | None:  # noqa: ARG002
        """Score stale contexts in the order of their bounds until a fresh one leads."""
        while True:
            x = int(np.argmax(self.bound))
            if self.bound[x] == -np.inf:
                return None
            i, j = int(self.pair[x, 0]), int(self.pair[x, 1])
            question = Question(x, i, j, float(np.sqrt(max(self.bound[x], 0.0))))
            if self.fresh[x] and question not in closed:
                return question
            score, i, j = widest_pair(self.candidates.of(x), self.inverse, closed.of(x))
            self.bound[x], self.pair[x], self.fresh[x] = score, (i, j), True
            self.scored += 1

    def heard(self, z: FloatArray) -> None:
        """M ← M + zzᵀ, on its inverse (Sherman-Morrison)."""
        image = self.inverse @ z
        self.inverse -= np.outer(image, image / (1.0 + float(z @ image)))
        self.fresh[:] = False


class Fisher:
    """The pair whose answer carries most Fisher information about what is least known."""

    reads_answers: ClassVar[bool] = True

    def __init__(self, candidates: Candidates, information: FloatArray, rng: np.random.Generator) -> None:  # noqa: ARG002
        self.candidates = candidates

    def copy(self) -> Self:
        """It has no state of its own."""
        return self

    def pick(self, closed: Pairs, known: Known) -> Question | None:
        """Score every context at the current estimate."""
        (Z, y, weights), theta, precision = known
        candidates, p = self.candidates, expit(Z @ theta)
        hessian = precision + gram(Rows(Z, y, weights * p * (1.0 - p)))
        inverse = cho_solve(cho_factor(hessian), np.eye(candidates.dim))
        best = Question(-1, -1, -1, -np.inf)
        for x in range(len(candidates)):
            score, i, j = widest_pair(candidates.of(x), inverse, closed.of(x), theta)
            if score > best.score:
                best = Question(x, i, j, score)
        return best if best.context >= 0 else None

    def heard(self, z: FloatArray) -> None:
        """Nothing to keep: estimate and Hessian come from the session."""


class Random:
    """Any pair, each with the same chance."""

    reads_answers: ClassVar[bool] = False

    def __init__(self, candidates: Candidates, information: FloatArray, rng: np.random.Generator) -> None:  # noqa: ARG002
        self.candidates, self.rng = candidates, rng

    def copy(self) -> Self:
        """With a generator that will draw the same numbers."""
        return deepcopy(self, {id(self.candidates): self.candidates})

    def pick(self, closed: Pairs, known: Known) -> Question | None:  # noqa: ARG002
        """Draw a context by the number of its open pairs, then one of them."""
        sizes = self.candidates.sizes
        left = sizes * (sizes - 1) // 2 - np.array([len(closed.of(x)) for x in range(len(self.candidates))])
        if left.sum() == 0:
            return None
        x = int(np.searchsorted(np.cumsum(left), self.rng.integers(left.sum()), side="right"))
        while True:
            i, j = sorted(self.rng.choice(sizes[x], size=2, replace=False).tolist())
            if (i, j) not in closed.of(x):
                return Question(x, i, j)

    def heard(self, z: FloatArray) -> None:
        """Nothing to keep."""


RULES: dict[str, type[QueryRule]] = {"coverage": LeastCovered, "fisher": Fisher, "posterior": Fisher, "random": Random}


def widest_pair(
    features: FloatArray, inverse: FloatArray, closed: set[tuple[int, int]], theta: FloatArray | None = None
) -> tuple[float, int, int]:
    """The open pair i < j of rows with the largest zᵀ P z (times σ′(θᵀz) when θ is given), and that score.

    Scores come from one product with P and inner products of rows. Rows are visited from the outermost inwards, in
    blocks, and the search ends when two rows cannot be far enough apart any more: memory stays linear in the rows.

    >>> widest_pair(np.array([[0.0], [3.0], [1.0]]), np.eye(1), {(0, 1)})
    (4.0, 1, 2)
    """
    centred = features - features.mean(axis=0)
    image = centred @ inverse
    square = np.einsum("ij,ij->i", image, centred)
    reach = np.sqrt(np.maximum(square, 0.0))
    reward = None if theta is None else centred @ theta
    order = np.argsort(-reach, kind="stable")
    blurred = 1e-8 * float(
        square.max()
    )  # below, differences of large numbers: compute from differences of rows instead
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
            score = square[rows][:, None] + square[some] - 2.0 * (image[rows] @ centred[some].T)
            for i in np.flatnonzero((score <= blurred).any(axis=1)):
                near = np.flatnonzero(score[i] <= blurred)
                apart = features[some[near]] - features[rows[i]]
                score[i, near] = np.einsum("ij,ij->i", apart @ inverse, apart)
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


def refuse_unknown_rule(rule: str) -> None:
    """One line for a rule that does not exist."""
    if rule not in RULES:
        raise InvalidParameter(f"rule must be one of {', '.join(RULES)}; got {rule!r}")
