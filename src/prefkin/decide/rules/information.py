"""Rule "information": the answer that is expected to tell most about the preference, and about whose it is like.

That is the mutual information of answer and preference. With p_k the probability of an answer in group k, p that in all
and H the entropy of an answer,

    I = H(p) − Σ_k chance_k H(p_k) + Σ_k chance_k I_k :

which group it is, and what is special about the person in it. I_k of a margin N(m, v) is close to
H(p_k) (1 − (1 + v p_k (1 − p_k) / H(p_k))^−½): within .025 of quadrature everywhere and right where v is small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.data.candidates import Candidates
from prefkin.decide.belief import Belief, Margins
from prefkin.decide.rules.pairs import Pairs, QueryRule, Question
from prefkin.decide.rules.pool import Pool
from prefkin.inference.loss import moderated

__all__ = ["Information", "information_of"]

SURE = 30.0  # log odds beyond which single precision takes an answer for certain
TINY = np.float32(1e-30)  # probability whose logarithm is still taken, in single precision


class Information(QueryRule):
    """The pair whose answer tells most; of more than 20,000 pairs so many are looked at."""

    reads_answers: ClassVar[bool] = True

    def __init__(self, candidates: Candidates, start: Belief, rng: np.random.Generator) -> None:  # noqa: ARG002
        self.pool = Pool.of(candidates)

    def pick(self, closed: Pairs, now: Callable[[], Belief]) -> Question | None:
        """Score all pairs by what is believed now."""
        if not len(self.pool):
            return None
        score = information_of(now().margins(self.pool))
        score[~self.pool.open(closed)] = -np.inf
        best = int(np.argmax(score))
        return self.pool.question(best, float(score[best])) if score[best] > -np.inf else None


def information_of(margins: Margins) -> FloatArray:
    """I of the answer about each pair, in nats.

    >>> clear = Margins(np.array([0.5, 0.5]), np.array([[9.0], [-9.0]]), np.zeros((2, 1)))  # it tells the group
    >>> vague = Margins(np.array([0.5, 0.5]), np.array([[0.1], [-0.1]]), np.zeros((2, 1)))
    >>> information_of(clear).round(2).tolist(), information_of(vague).round(2).tolist()
    ([0.69], [0.0])
    """
    p = 1.0 / (1.0 + np.exp(-np.clip(moderated(margins.mean, margins.variance), -SURE, SURE)))
    entropy = _entropy(p)
    within = entropy * (1.0 - 1.0 / np.sqrt(1.0 + margins.variance * p * (1.0 - p) / np.maximum(entropy, TINY)))
    found: FloatArray = _entropy(margins.chance @ p) + margins.chance @ (within - entropy)
    return found


def _entropy(p: FloatArray) -> FloatArray:
    q = 1.0 - p
    return -p * np.log(np.maximum(p, TINY)) - q * np.log(np.maximum(q, TINY))
