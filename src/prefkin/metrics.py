"""How good an estimate, a graph or a policy is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from prefkin.candidates import Candidates
from prefkin.comparisons import Comparisons, FloatArray, IntArray
from prefkin.model import PreferenceModel

__all__ = ["HeldOut", "held_out", "pair_precision_recall", "suboptimality_gap"]


class HeldOut(NamedTuple):
    """Performance on comparisons that were not fitted, with standard errors over users."""

    log_loss: float
    log_loss_error: float
    accuracy: float
    accuracy_error: float


def held_out(model: PreferenceModel, data: Comparisons) -> HeldOut:
    """Mean −log probability of the answers, and the share predicted right: the mean over users of each user's mean.

    >>> import numpy as np
    >>> from prefkin import OffC2PL
    >>> data = Comparisons.from_arrays([[1.0], [2.0]], [1, 1], ["ann", "bo"])
    >>> held_out(OffC2PL(gamma=0).fit(data), data).accuracy
    1.0
    """
    p = model.predict_proba(data.Z, users=data.users)
    loss = -np.log(np.maximum(np.where(data.y == 1, p[:, 1], p[:, 0]), 1e-300))
    right = (p[:, 1] > 0.5) == (data.y == 1)
    per_user = np.bincount(data.who, data.weights)
    heard = per_user > 0
    means = [np.bincount(data.who, data.weights * values)[heard] / per_user[heard] for values in (loss, right)]
    error = np.sqrt(heard.sum())
    spread = [float(mean.std(ddof=1) / error) if len(mean) > 1 else 0.0 for mean in means]
    return HeldOut(float(means[0].mean()), spread[0], float(means[1].mean()), spread[1])


def suboptimality_gap(theta: FloatArray, candidates: Candidates, actions: IntArray) -> float:
    """What the best policy for preference `theta` earns more than the one that takes `actions`  [paper: gap].

    >>> suboptimality_gap(np.array([1.0]), Candidates([[[1.0], [3.0]]]), np.array([0]))
    2.0
    """
    best = candidates.argmax(candidates.features @ theta)
    return float((candidates.mean(best) - candidates.mean(actions)) @ theta)


def pair_precision_recall(neighbourhoods: Sequence[IntArray], group: IntArray) -> tuple[float, float]:
    """Of the ordered pairs (u, neighbour of u): how many are in one group; and how many of those in one are joined.

    >>> pair_precision_recall([np.array([0, 1]), np.array([0, 1]), np.array([2])], np.array([0, 0, 0]))
    (1.0, 0.3333333333333333)
    """
    joined = right = 0
    for user, members in enumerate(neighbourhoods):
        others = members[members != user]
        joined += len(others)
        right += int(np.sum(group[others] == group[user]))
    together = int(np.sum(np.bincount(group) ** 2) - len(group))
    return right / joined if joined else 1.0, right / together if together else 1.0
