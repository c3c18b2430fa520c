"""Rule "random": what every other rule is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np

from prefkin.data.candidates import Candidates
from prefkin.decide.belief import Belief
from prefkin.decide.rules.pairs import Pairs, QueryRule, Question

__all__ = ["Random"]


class Random(QueryRule):
    """Any pair, each with the same chance."""

    reads_answers: ClassVar[bool] = False

    def __init__(self, candidates: Candidates, start: Belief, rng: np.random.Generator) -> None:
        self.candidates, self.start, self.rng = candidates, start, rng

    def copy(self, rng: np.random.Generator) -> Self:
        """The same rule, which draws by another generator."""
        return type(self)(self.candidates, self.start, rng)

    def pick(self, closed: Pairs, now: Callable[[], Belief]) -> Question | None:  # noqa: ARG002
        """Draw a context by the number of its open pairs, then one of them."""
        sizes = self.candidates.sizes
        left = sizes * (sizes - 1) // 2
        for x in closed.touched().tolist():
            left[x] -= len(closed.of(x))
        if left.sum() == 0:
            return None
        x = int(np.searchsorted(np.cumsum(left), self.rng.integers(left.sum()), side="right"))
        while True:
            i, j = sorted(self.rng.choice(sizes[x], size=2, replace=False).tolist())
            if (i, j) not in closed.of(x):
                return Question(x, i, j)
