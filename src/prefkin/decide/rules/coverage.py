"""Rule "coverage", the paper's: ask where the information matrix is weakest  [paper: query]."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from heapq import heappop, heappush
from typing import ClassVar, Self

import numpy as np
from scipy.linalg.blas import strmm

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.decide.belief import Belief, absorb
from prefkin.decide.rules.pairs import Pairs, Question, widest_pair

__all__ = ["LeastCovered"]

LEADERS = 4  # contexts of two actions scored again in one product; often the first of them leads
NEWCOMERS = 256  # contexts scored together for the first time
ROWS_AT_ONCE = 512  # pairs whose rough bound is computed in one product
FLOAT32_ERROR = 1e-4, 1e-5  # more than float32 can be off: of the square itself, and of the largest it could be
FLOAT32_TINY = 1e-25  # squares below have too few digits in float32
NEVER = -1  # when a context was scored of which only a rough bound is known


class LeastCovered:
    """The pair with the largest ‖z‖_{M⁻¹}, M the information from all rows and from every pair asked about.

    Adding rows to M only lowers ‖z‖_{M⁻¹}, so the best score a context had in an earlier round bounds the one it has
    now: contexts are scored again only while such a bound is the largest. The choice is exact. Until a context of two
    actions leads for the first time, a rough bound in float32 stands for it.

    M⁻¹ is kept as a root, which hears of each pair by a reflection (`belief.absorb`): scores are sums of squares, and
    keep their digits however far they fall.
    """

    reads_answers: ClassVar[bool] = False

    def __init__(self, candidates: Candidates, start: Belief, rng: np.random.Generator) -> None:  # noqa: ARG002
        self.candidates = candidates
        self.root: FloatArray = np.array(start.root, order="C")
        self.pending: list[FloatArray] = []  # asked about, and not yet in the root
        self.asked = 0  # pairs that the root knows about
        self.pair: IntArray = np.zeros((len(candidates), 2), dtype=np.intp)  # the best one of each context
        self.seen: IntArray = np.full(len(candidates), NEVER)  # `asked` when a context was scored
        self.scored = 0  # contexts scored so far: the work done
        self.rough = self._first_look()
        self.waiting: IntArray = np.argsort(-self.rough, kind="stable")  # best first
        self.looked_at = 0  # so many of those waiting are in the heap
        self.heap: list[tuple[float, int]] = []  # by bound, best first

    def copy(self) -> Self:
        """A rule of its own; only what is never changed is shared."""
        other = copy(self)
        other.root, other.pair, other.seen = self.root.copy(), self.pair.copy(), self.seen.copy()
        other.heap, other.pending = self.heap.copy(), self.pending.copy()
        return other

    def pick(self, closed: Pairs, now: Callable[[], Belief]) -> Question | None:  # noqa: ARG002
        """Score stale contexts in the order of their bounds until a fresh one leads."""
        while self.pending:
            absorb(self.root, self.pending.pop(0))
            self.asked += 1
        while True:
            self._let_in(closed)
            if not self.heap:
                return None
            stale: list[int] = []
            while self.heap and len(stale) < LEADERS:
                bound, x = self.heap[0]
                question = Question(x, int(self.pair[x, 0]), int(self.pair[x, 1]), float(np.sqrt(-bound)))
                if self.seen[x] == self.asked and question not in closed:
                    if stale:
                        break
                    return question
                stale.append(heappop(self.heap)[1])
            self._score(stale, closed)

    def heard(self, z: FloatArray) -> None:
        """M ← M + zzᵀ, before the next question."""
        self.pending.append(z)

    def _let_in(self, closed: Pairs) -> None:
        """Score those waiting whose rough bound is not below the best in the heap, and some more."""
        while self.looked_at < len(self.waiting):
            if self.heap and self.rough[self.waiting[self.looked_at]] < -self.heap[0][0]:
                return
            some: list[int] = self.waiting[self.looked_at : self.looked_at + NEWCOMERS].tolist()
            self.looked_at += len(some)
            self._score(some, closed)

    def _score(self, contexts: list[int], closed: Pairs) -> None:
        """Put contexts into the heap with their best scores as they are now."""
        self.scored += len(contexts)
        self.seen[contexts] = self.asked
        sizes = self.candidates.sizes
        two = np.array([x for x in contexts if sizes[x] == 2 and (0, 1) not in closed.of(x)], dtype=np.intp)
        white = self._differences(two) @ self.root
        scores = list(zip(np.einsum("ij,ij->i", white, white).tolist(), two.tolist(), strict=True))
        for x in contexts:
            if sizes[x] != 2:
                best, *self.pair[x] = widest_pair(self.candidates.of(x), self.root, closed.of(x))
                scores.append((best, x))
        for score, x in scores:
            if score > 0.0:  # else an action and its copy, or nothing left: never to be asked about
                heappush(self.heap, (-score, x))

    def _first_look(self) -> FloatArray:
        """A bound for each context: of two actions ‖rootᵀz‖² in float32, with room for its error; else none."""
        bound = np.full(len(self.candidates), np.inf)
        two = np.flatnonzero(self.candidates.sizes == 2)
        self.pair[two] = 0, 1
        light = np.asfortranarray(self.root.T, dtype=np.float32)
        triangular = not np.triu(light, 1).any()
        largest = float(np.einsum("ij,ij->i", self.root, self.root).max())
        relative, absolute = FLOAT32_ERROR
        for start in range(0, len(two), ROWS_AT_ONCE):
            some = two[start : start + ROWS_AT_ONCE]
            z = self._differences(some).astype(np.float32)
            square = np.einsum("ij,ij->i", z, z)
            z = strmm(1.0, light, z.T, lower=1, overwrite_b=1).T if triangular else z @ light.T
            score = np.einsum("ij,ij->i", z, z)
            safe = (score > FLOAT32_TINY) & np.isfinite(score)
            bound[some] = np.where(safe, (1.0 + relative) * score + absolute * largest * square, np.inf)
        return bound

    def _differences(self, contexts: IntArray) -> FloatArray:
        at, features = self.candidates.starts[contexts], self.candidates.features
        return features[at] - features[at + 1]
