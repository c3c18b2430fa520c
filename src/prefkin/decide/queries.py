"""Which pair to ask about next. A rule looks at the candidates as actions per context, never at a list of all pairs.

| rule     | the next pair maximises                               | reads answers |
|----------|-------------------------------------------------------|---------------|
| coverage | ‖z‖_{M⁻¹}: the paper's rule  [paper: query]           | no            |
| fisher   | σ′(θᵀz) zᵀH⁻¹z, H the Hessian at the current estimate | yes           |
| posterior | the same with the posterior covariance for H⁻¹       | yes           |
| random   | nothing: uniform over the pairs not asked yet         | no            |
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.blas import strmm
from scipy.linalg.lapack import dpotri, dtrtri
from scipy.special import expit

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.data.rows import Rows
from prefkin.errors import InvalidParameter
from prefkin.inference.spectrum import gram

__all__ = ["RULES", "Fisher", "Known", "LeastCovered", "Pairs", "QueryRule", "Question", "Random", "widest_pair"]

ROWS_KEPT = 1024  # pairs asked about before M⁻¹ is written out again
LEADERS = 16  # contexts of two actions scored together
NEWCOMERS = 256  # contexts scored together for the first time
ROUGHLY = -1  # a context whose score is a bound only
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

    def touched(self) -> IntArray:
        """Contexts with a closed pair."""
        return np.fromiter(self._of, dtype=np.intp)


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

    M⁻¹ is kept as P − VᵀV, a row of V for each pair asked about. A context of two actions has one score, which is
    brought up to date by the rows of V since it was last looked at, for several such contexts in one product. Until a
    context leads for the first time, a rough bound of its score stands for it.
    """

    reads_answers: ClassVar[bool] = False

    def __init__(self, candidates: Candidates, information: FloatArray, rng: np.random.Generator) -> None:  # noqa: ARG002
        self.candidates = candidates
        factor = cholesky(information, lower=True)
        self.inverse: FloatArray = _inverse(factor)  # P
        self.asked: FloatArray = np.empty((0, candidates.dim))  # V, the first rows of the next
        self.room: FloatArray = np.empty((0, candidates.dim))
        self.pending: list[FloatArray] = []  # asked about, and not yet in V
        self.flushed = 0  # pairs that P knows about already
        n_contexts = len(self.candidates)
        self.pair: IntArray = np.zeros((n_contexts, 2), dtype=np.intp)
        self.seen: IntArray = np.full(n_contexts, ROUGHLY)  # pairs asked about when a context was scored
        self.scored = 0  # contexts scored so far: the work done
        self.rough = self._first_look(dtrtri(factor, lower=1)[0])
        self.waiting: IntArray = np.argsort(-self.rough, kind="stable")  # best first
        self.looked_at = 0  # so many of those waiting are in the heap
        self.heap: list[tuple[float, int]] = []  # by bound, best first

    def copy(self) -> Self:
        """A rule of its own; only what is never changed is shared."""
        other = copy(self)
        other.inverse, other.pair, other.seen = self.inverse.copy(), self.pair.copy(), self.seen.copy()
        other.heap, other.pending = self.heap.copy(), self.pending.copy()
        other.room = other.asked = self.asked.copy()
        return other

    def pick(self, closed: Pairs, known: Known) -> Question | None:  # noqa: ARG002
        """Score stale contexts in the order of their bounds until a fresh one leads."""
        self._settle()
        now = self.flushed + len(self.asked)
        while True:
            self._let_in(closed, now)
            if not self.heap:
                return None
            stale: list[tuple[float, int]] = []
            while self.heap and len(stale) < LEADERS:
                bound, x = self.heap[0]
                question = Question(x, int(self.pair[x, 0]), int(self.pair[x, 1]), float(np.sqrt(max(-bound, 0.0))))
                if self.seen[x] == now and question not in closed:
                    if stale:
                        break
                    return question
                stale.append(heappop(self.heap))
                if self.candidates.sizes[x] != 2:
                    break
            self._enter(self._scores(stale, closed), now)

    def _let_in(self, closed: Pairs, now: int) -> None:
        """Score those waiting whose rough bound is not below the best in the heap, and some more."""
        while self.looked_at < len(self.waiting):
            if self.heap and self.rough[self.waiting[self.looked_at]] < -self.heap[0][0]:
                return
            some: list[int] = self.waiting[self.looked_at : self.looked_at + NEWCOMERS].tolist()
            self.looked_at += len(some)
            two = [(0.0, x) for x in some if self.candidates.sizes[x] == 2]
            more = [[(0.0, x)] for x in some if self.candidates.sizes[x] != 2]
            for stale in [two, *more] if two else more:
                self._enter(self._scores(stale, closed), now)

    def _enter(self, scored: list[tuple[float, int]], now: int) -> None:
        for score, x in scored:
            self.seen[x] = now
            if score > 0.0:  # else an action and its copy, or nothing left: never to be asked about
                heappush(self.heap, (-score, x))

    def heard(self, z: FloatArray) -> None:
        """M ← M + zzᵀ, on its inverse, before the next question."""
        self.pending.append(z)

    def _settle(self) -> None:
        """Rows of V for what is pending: L⁻¹ Z M⁻¹ with L Lᵀ = I + Z M⁻¹ Zᵀ (Sherman-Morrison-Woodbury)."""
        if not self.pending:
            return
        if len(self.asked) >= ROWS_KEPT:  # let P take V up
            self.inverse -= self.asked.T @ self.asked
            self.flushed, self.asked = self.flushed + len(self.asked), self.room[:0]
        Z = np.array(self.pending)
        image = self._image(Z)
        inner = image @ Z.T
        inner[np.diag_indices(len(Z))] += 1.0
        before, after = len(self.asked), len(self.asked) + len(Z)
        if after > len(self.room):
            self.room = np.vstack([self.asked, np.empty((after, Z.shape[1]))])
        self.room[before:after] = solve_triangular(cholesky(inner, lower=True), image, lower=True)
        self.asked, self.pending = self.room[:after], []

    def _image(self, rows: FloatArray) -> FloatArray:
        """rows M⁻¹."""
        image: FloatArray = rows @ self.inverse - (rows @ self.asked.T) @ self.asked
        return image

    def _first_look(self, root: FloatArray) -> FloatArray:
        """A bound for each context: of two actions from ‖root z‖² in float32, with room for its error; else none."""
        bound = np.full(len(self.candidates), np.inf)
        two = np.flatnonzero(self.candidates.sizes == 2)
        self.pair[two] = 0, 1
        light = np.asfortranarray(root, dtype=np.float32)
        largest = float(np.diag(self.inverse).max())
        for start in range(0, len(two), ROWS_AT_ONCE):
            some = two[start : start + ROWS_AT_ONCE]
            z = self._differences(some).astype(np.float32)
            square = np.einsum("ij,ij->i", z, z)
            z = strmm(1.0, light, z.T, lower=1, overwrite_b=1).T
            score = np.einsum("ij,ij->i", z, z)
            safe = (score > 1e-25) & np.isfinite(score)  # neither too small nor too large for float32
            bound[some] = np.where(safe, 1.0001 * score + 1e-5 * largest * square, np.inf)
        return bound

    def _differences(self, contexts: IntArray) -> FloatArray:
        at, features = self.candidates.starts[contexts], self.candidates.features
        return features[at] - features[at + 1]

    def _scores(self, stale: list[tuple[float, int]], closed: Pairs) -> list[tuple[float, int]]:
        """The best scores of these contexts as they are now: one of any size last, all others of two actions."""
        self.scored += len(stale)
        found = []
        if self.candidates.sizes[stale[-1][1]] != 2:
            x = stale.pop()[1]
            best, *self.pair[x] = _widest(self.candidates.of(x), self._image, closed.of(x))
            found.append((best, x))
        stale = [(bound, x) for bound, x in stale if (0, 1) not in closed.of(x)]
        if not stale:
            return found
        contexts = np.array([x for _, x in stale])
        z, score = self._differences(contexts), -np.array([bound for bound, _ in stale])
        seen = self.seen[contexts]
        old = np.flatnonzero(seen < self.flushed)  # P has changed since, or the score is only rough
        score[old] = np.einsum("ij,ij->i", z[old] @ self.inverse, z[old])
        known = np.maximum(seen - self.flushed, 0)  # rows of V that each score has heard of
        gain = (self.asked[known.min() :] @ z.T) ** 2
        gain[np.arange(len(gain))[:, None] < known - known.min()] = 0.0
        score -= gain.sum(axis=0)
        return found + list(zip(score.tolist(), contexts.tolist(), strict=True))


class Fisher:
    """The pair whose answer carries most Fisher information about what is least known.

    Estimate and Hessian change with every answer, so nothing is kept. Two products in float32 bound what each context
    can offer; contexts are scored from the largest bound downwards until no bound is above the best score. The choice
    is exact.
    """

    reads_answers: ClassVar[bool] = True

    def __init__(self, candidates: Candidates, information: FloatArray, rng: np.random.Generator) -> None:  # noqa: ARG002
        self.candidates = candidates
        self.size = max(float(np.abs(candidates.features).max()), 1e-300)

    def copy(self) -> Self:
        """It has no state of its own."""
        return self

    def pick(self, closed: Pairs, known: Known) -> Question | None:
        """Score contexts at the current estimate."""
        (Z, y, weights), theta, precision = known
        candidates, p = self.candidates, expit(Z @ theta)
        inverse = _inverse(cholesky(precision + gram(Rows(Z, y, weights * p * (1.0 - p))), lower=True))
        bound = self._bounds(inverse, theta)
        done = closed.touched()
        bound[done[candidates.sizes[done] == 2]] = -np.inf  # their only pair
        best = Question(-1, -1, -1, -np.inf)
        for x in np.argsort(-bound, kind="stable").tolist():
            if bound[x] < best.score or bound[x] == -np.inf:
                break
            score, i, j = widest_pair(candidates.of(x), inverse, closed.of(x), theta)
            if score > best.score or (score == best.score > -np.inf and x < best.context):
                best = Question(x, i, j, score)
        return best if best.context >= 0 else None

    def _bounds(self, inverse: FloatArray, theta: FloatArray) -> FloatArray:
        """At least the best score of each context.

        In the norm of the inverse two actions are no further apart than the sum of their distances from the middle of
        their context, and for a context of two actions just that.
        """
        candidates, sizes, first = self.candidates, self.candidates.sizes, self.candidates.starts[:-1]
        reach = self._reach(inverse)
        far, farthest = np.maximum.reduceat(reach, first), first + candidates.argmax(reach)
        reach[farthest] = 0.0
        reward = candidates.features @ theta
        margin = np.maximum.reduceat(reward, first) - np.minimum.reduceat(reward, first)
        steepest = np.where(sizes == 2, expit(margin) * expit(-margin), 0.25)
        apart = far + np.maximum.reduceat(reach, first)
        top = np.where(np.isinf(apart), np.inf, steepest * np.where(np.isinf(apart), 0.0, apart) ** 2)
        return np.where(sizes > 1, top, -np.inf)

    def _reach(self, inverse: FloatArray) -> FloatArray:
        """At least the distance of each action from the middle of its context, many contexts at a time."""
        candidates, largest = self.candidates, float(np.diag(inverse).max())
        light = (inverse / largest).astype(np.float32)
        starts, begin = candidates.starts, 0
        square = np.empty(len(candidates.features))
        while begin < len(candidates):
            end = max(begin + 1, int(np.searchsorted(starts, starts[begin] + ROWS_AT_ONCE, side="right")) - 1)
            here, size = slice(starts[begin], starts[end]), candidates.sizes[begin:end]
            rows = candidates.features[here]
            middle = np.add.reduceat(rows, starts[begin:end] - starts[begin]) / size[:, None]
            rows = ((rows - np.repeat(middle, size, axis=0)) / self.size).astype(np.float32)
            square[here] = 1.0001 * np.einsum("ij,ij->i", rows @ light, rows, dtype=np.float64)
            square[here] += 1e-5 * np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
            begin = end
        # what is too small for float32 has no bound
        return np.sqrt(np.where(square > 1e-25, square, np.inf)) * (np.sqrt(largest) * self.size)

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


def _inverse(factor: FloatArray) -> FloatArray:
    """Of the symmetric positive definite matrix with this lower Cholesky factor."""
    half, failed = dpotri(factor, lower=1)
    if failed:
        raise np.linalg.LinAlgError("information matrix is not positive definite")
    whole: FloatArray = half + np.tril(half, -1).T
    return whole


def widest_pair(
    features: FloatArray, inverse: FloatArray, closed: set[tuple[int, int]], theta: FloatArray | None = None
) -> tuple[float, int, int]:
    """The open pair i < j of rows with the largest zᵀ P z (times σ′(θᵀz) when θ is given), and that score.

    Scores come from one product with P and inner products of rows. Rows are visited from the outermost inwards, in
    blocks, and the search ends when two rows cannot be far enough apart any more: memory stays linear in the rows.

    >>> widest_pair(np.array([[0.0], [3.0], [1.0]]), np.eye(1), {(0, 1)})
    (4.0, 1, 2)
    """
    return _widest(features, lambda rows: rows @ inverse, closed, theta)


def _widest(
    features: FloatArray,
    image_of: Callable[[FloatArray], FloatArray],
    closed: set[tuple[int, int]],
    theta: FloatArray | None = None,
) -> tuple[float, int, int]:
    """`widest_pair` with P given by its products."""
    centred = features - features.mean(axis=0)
    image = image_of(centred)
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
                score[i, near] = np.einsum("ij,ij->i", image_of(apart), apart)
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
