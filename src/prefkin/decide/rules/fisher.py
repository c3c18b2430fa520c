"""Rules "fisher" and "posterior": the answer that is expected to tell most, at the estimate of today."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from scipy.special import expit

from prefkin.data.arrays import FloatArray
from prefkin.data.candidates import Candidates
from prefkin.decide.belief import Belief
from prefkin.decide.rules.pairs import FLOAT32_ERROR, FLOAT32_TINY, Pairs, QueryRule, Question, widest_pair

__all__ = ["Fisher"]

ROWS_AT_ONCE = 512  # actions whose reach is computed in one product


class Fisher(QueryRule):
    """The pair with the largest σ′(θᵀz) ‖z‖²_C: most Fisher information about what is least known.

    Estimate and C change with every answer, so nothing is kept. Two products in float32 bound what each context can
    offer; contexts are scored from the largest bound downwards until no bound is above the best score. The choice is
    exact.
    """

    reads_answers: ClassVar[bool] = True

    def __init__(self, candidates: Candidates, start: Belief, rng: np.random.Generator) -> None:  # noqa: ARG002
        self.candidates = candidates
        self.size = float(np.abs(candidates.features).max()) or 1.0

    def pick(self, closed: Pairs, now: Callable[[], Belief]) -> Question | None:
        """Score contexts at the current estimate."""
        candidates, belief = self.candidates, now()
        bound = self._bounds(belief)
        done = closed.touched()
        bound[done[candidates.sizes[done] == 2]] = -np.inf  # their only pair
        best = Question(-1, -1, -1, -np.inf)
        for x in np.argsort(-bound, kind="stable").tolist():
            if bound[x] < best.score or bound[x] == -np.inf:
                break
            score, i, j = widest_pair(candidates.of(x), belief.root, closed.of(x), belief.mean)
            if score > best.score or (score == best.score > -np.inf and x < best.context):
                best = Question(x, i, j, score)
        return best if best.context >= 0 else None

    def _bounds(self, belief: Belief) -> FloatArray:
        """At least the best score of each context.

        In the norm of C two actions are no further apart than the sum of their distances from the middle of their
        context, and for a context of two actions just that.
        """
        candidates, sizes, first = self.candidates, self.candidates.sizes, self.candidates.starts[:-1]
        reach = self._reach(belief.root)
        far, farthest = np.maximum.reduceat(reach, first), first + candidates.argmax(reach)
        reach[farthest] = 0.0
        reward = candidates.features @ belief.mean
        margin = np.maximum.reduceat(reward, first) - np.minimum.reduceat(reward, first)
        steepest = np.where(sizes == 2, expit(margin) * expit(-margin), 0.25)
        apart = far + np.maximum.reduceat(reach, first)
        top = np.where(np.isinf(apart), np.inf, steepest * np.where(np.isinf(apart), 0.0, apart) ** 2)
        return np.where(sizes > 1, top, -np.inf)

    def _reach(self, root: FloatArray) -> FloatArray:
        """At least the distance of each action from the middle of its context, many contexts at a time."""
        candidates, largest = self.candidates, float(np.linalg.norm(root, axis=1).max())
        light = (root / largest).astype(np.float32)
        relative, absolute = FLOAT32_ERROR
        starts, begin = candidates.starts, 0
        square = np.empty(len(candidates.features))
        while begin < len(candidates):
            end = max(begin + 1, int(np.searchsorted(starts, starts[begin] + ROWS_AT_ONCE, side="right")) - 1)
            here, size = slice(starts[begin], starts[end]), candidates.sizes[begin:end]
            rows = candidates.features[here]
            middle = np.add.reduceat(rows, starts[begin:end] - starts[begin]) / size[:, None]
            rows = ((rows - np.repeat(middle, size, axis=0)) / self.size).astype(np.float32)
            white = rows @ light
            square[here] = (1.0 + relative) * np.einsum("ij,ij->i", white, white, dtype=np.float64)
            square[here] += absolute * np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
            begin = end
        # what is too small for float32 has no bound
        return np.sqrt(np.where(square > FLOAT32_TINY, square, np.inf)) * (largest * self.size)
