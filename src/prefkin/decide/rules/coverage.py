"""Rule "coverage", the paper's: ask where the information matrix is weakest  [paper: query]."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from heapq import heappop, heappush
from typing import ClassVar, Self

import numpy as np
from scipy.linalg.blas import dsymv, strmm

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.decide.belief import Belief, absorb
from prefkin.decide.rules.pairs import FLOAT32_ERROR, FLOAT32_TINY, Pairs, QueryRule, Question, widest_pair

__all__ = ["LeastCovered"]

LEADERS = 8  # contexts scored again together
KEPT = 1024  # rows of V before P takes them up
TRUSTED = 1e-6  # of the largest entry of M⁻¹ times ‖z‖²: a score above it loses at most six digits to differences
NEWCOMERS = 256  # contexts scored together for the first time
ROWS_AT_ONCE = 512  # pairs whose rough bound is computed in one product
IMAGES = 2**20  # numbers in products Pz kept, beside as many in z, for when z is asked about: P would not stay cached
NEVER = -1  # when a context was scored of which only a rough bound is known


class LeastCovered(QueryRule):
    """The pair with the largest ‖z‖_{M⁻¹}, M the information from all rows and from every pair asked about.

    Adding rows to M only lowers ‖z‖_{M⁻¹}, so the best score a context had in an earlier round bounds the one it has
    now: contexts are scored again only while such a bound is the largest. The choice is exact. Until a context of two
    actions leads for the first time, a rough bound in float32 stands for it.

    M⁻¹ = P − VᵀV, a row of V for each pair asked about: by so much, (Vz)², the score of a context of two actions has
    fallen since it was seen last. Where that would be a small difference of large numbers, and for contexts of more
    actions, M⁻¹ is also kept as a root that hears of each pair by a reflection (`belief.absorb`): scores are then sums
    of squares, and keep their digits however far they fall. It is brought up to date when it is needed.
    """

    reads_answers: ClassVar[bool] = False

    def __init__(self, candidates: Candidates, start: Belief, rng: np.random.Generator) -> None:  # noqa: ARG002
        self.candidates = candidates
        self.root: FloatArray = np.array(start.root, order="C")
        self.unheard: list[FloatArray] = []  # asked about, and not yet in the root
        self.inverse: FloatArray = np.asfortranarray(start.covariance)  # P
        self.images: dict[bytes, FloatArray] = {}  # Pz by z, of some that were scored
        self.V: FloatArray = np.empty((0, candidates.dim))  # with room for more rows
        self.pending: list[FloatArray] = []  # asked about, and not yet in V
        self.asked = 0  # pairs that were asked about and are in V, or in P by now
        self.pair: IntArray = np.zeros((len(candidates), 2), dtype=np.intp)  # the best one of each context
        self.seen: IntArray = np.full(len(candidates), NEVER)  # `asked` when a context was scored
        self.scored = 0  # contexts scored so far: the work done
        self.only_pairs = bool(candidates.sizes.max() <= 2)
        self.largest = float(np.einsum("ij,ij->i", self.root, self.root).max())  # entry of M⁻¹
        self.rough, self.bulk = self._first_look()
        self.waiting: IntArray = np.argsort(-self.rough, kind="stable")  # best first
        self.looked_at = 0  # so many of those waiting are in the heap
        self.heap: list[tuple[float, int]] = []  # by bound, best first

    def copy(self, rng: np.random.Generator) -> Self:  # noqa: ARG002
        """A rule of its own; only what is never changed is shared."""
        other = copy(self)
        for name in ("root", "unheard", "inverse", "images", "V", "pending", "pair", "seen", "heap"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def pick(self, closed: Pairs, now: Callable[[], Belief]) -> Question | None:  # noqa: ARG002
        """Score stale contexts in the order of their bounds until a fresh one leads."""
        self._settle()
        while True:
            self._let_in(closed)
            if not self.heap:
                return None
            stale: list[tuple[float, int]] = []
            while self.heap and len(stale) < LEADERS:
                bound, x = self.heap[0]
                question = Question(x, int(self.pair[x, 0]), int(self.pair[x, 1]), float(np.sqrt(-bound)))
                if self.seen[x] == self.asked and question not in closed:
                    if stale:
                        break
                    return question
                stale.append(heappop(self.heap))
            self._score(stale, closed)

    def heard(self, z: FloatArray) -> None:
        """M ← M + zzᵀ, before the next question."""
        self.pending.append(z)

    def _settle(self) -> None:
        """Rows of V for what is pending."""
        for z in self.pending:
            at = self.asked % KEPT
            if at == 0 and self.asked:  # let P take V up
                self.inverse -= self.V.T @ self.V
                self.images = {}
            if at == len(self.V):
                self.V = np.concatenate([self.V, np.empty((min(at + 16, KEPT - at), len(z)))])
            self.V[at] = self._drop(z, self.V[:at])
            self.asked += 1
        self.pending = []

    def _drop(self, z: FloatArray, V: FloatArray) -> FloatArray:
        """g = M⁻¹z / √(1 + zᵀM⁻¹z): with z asked about, M⁻¹ is less by ggᵀ  (Sherman-Morrison)."""
        if self.only_pairs:
            known = self.images.get(z.tobytes())
            image: FloatArray = (dsymv(1.0, self.inverse, z, lower=1) if known is None else known) - (V @ z) @ V
            score = float(z @ image)
            if score > TRUSTED * self.largest * float(z @ z):
                self.unheard.append(z)
                return image / np.sqrt(1.0 + score)
        return absorb(self._current_root(), z)

    def _current_root(self) -> FloatArray:
        """The root, with everything in it that was asked about."""
        for z in self.unheard:
            absorb(self.root, z)
        self.unheard = []
        return self.root

    def _let_in(self, closed: Pairs) -> None:
        """Score those waiting whose rough bound is not below the best in the heap, and some more."""
        while self.looked_at < len(self.waiting):
            if self.heap and self.rough[self.waiting[self.looked_at]] < -self.heap[0][0]:
                return
            some: list[int] = self.waiting[self.looked_at : self.looked_at + NEWCOMERS].tolist()
            self.looked_at += len(some)
            self._score([(-np.inf, x) for x in some], closed)

    def _score(self, stale: list[tuple[float, int]], closed: Pairs) -> None:
        """Put contexts, each with minus its bound, into the heap with their best scores as they are now."""
        self.scored += len(stale)
        sizes = self.candidates.sizes
        scores: list[tuple[float, int]] = []
        two = [(bound, x) for bound, x in stale if sizes[x] == 2 and (0, 1) not in closed.of(x)]
        if two:
            contexts = np.array([x for _, x in two])
            now = self._pair_scores(contexts, -np.array([bound for bound, _ in two]))
            scores += zip(now.tolist(), contexts.tolist(), strict=True)
        for _, x in stale:
            self.seen[x] = self.asked
            if sizes[x] != 2:
                best, *self.pair[x] = widest_pair(self.candidates.of(x), self._current_root(), closed.of(x))
                scores.append((best, x))
        for score, x in scores:
            if score > 0.0:  # else an action and its copy, or nothing left: never to be asked about
                heappush(self.heap, (-score, x))

    def _pair_scores(self, contexts: IntArray, score: FloatArray) -> FloatArray:
        """‖z‖²_{M⁻¹} of contexts of two actions, from what it was when they were seen last."""
        z = self._differences(contexts)
        in_P = (self.asked - 1) // KEPT * KEPT if self.asked else 0  # pairs asked about that P knows of
        known = self.seen[contexts] - in_P  # rows of V that each score has heard of
        old = known < 0
        if old.any():
            images = z[old] @ self.inverse
            score[old], known[old] = np.einsum("ij,ij->i", images, z[old]), 0
            if self.only_pairs and len(self.images) * z.shape[1] < IMAGES:
                self.images |= {one.tobytes(): image for one, image in zip(z[old], images, strict=True)}
        first, last = int(known.min()), self.asked - in_P
        fall = self.V[first:last] @ z.T
        fall[np.arange(first, last)[:, None] < known] = 0.0
        score -= np.einsum("ij,ij->j", fall, fall)
        blurred = ~(score > TRUSTED * self.bulk[contexts])
        if blurred.any():
            white = z[blurred] @ self._current_root()
            score[blurred] = np.einsum("ij,ij->i", white, white)
        return score

    def _first_look(self) -> tuple[FloatArray, FloatArray]:
        """A bound for each context: of two actions ‖rootᵀz‖² in float32, with room for its error; else none.

        Beside it, how large it could be at most for a z of this length.
        """
        bound, bulk = np.full((2, len(self.candidates)), np.inf)
        two = np.flatnonzero(self.candidates.sizes == 2)
        self.pair[two] = 0, 1
        light = np.asfortranarray(self.root.T, dtype=np.float32)
        triangular = not np.triu(light, 1).any()
        relative, absolute = FLOAT32_ERROR
        for start in range(0, len(two), ROWS_AT_ONCE):
            some = two[start : start + ROWS_AT_ONCE]
            z = self._differences(some).astype(np.float32)
            square = np.einsum("ij,ij->i", z, z)
            z = strmm(1.0, light, z.T, lower=1, overwrite_b=1).T if triangular else z @ light.T
            score = np.einsum("ij,ij->i", z, z)
            safe = (score > FLOAT32_TINY) & np.isfinite(score)
            bulk[some] = self.largest * square
            bound[some] = np.where(safe, (1.0 + relative) * score + absolute * bulk[some], np.inf)
        return bound, bulk

    def _differences(self, contexts: IntArray) -> FloatArray:
        at, features = self.candidates.starts[contexts], self.candidates.features
        return features[at] - features[at + 1]
