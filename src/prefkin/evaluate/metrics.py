"""How good an estimate, a graph or a policy is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.utils.metadata_routing import MetadataRequest

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.data.comparisons import Comparisons
from prefkin.models.base import PreferenceModel

__all__ = [
    "HeldOut",
    "Reliability",
    "UserLogLoss",
    "given_probabilities",
    "held_out",
    "neg_log_loss",
    "pair_precision_recall",
    "reliability",
    "scores",
    "suboptimality_gap",
]

BINS = 10
LEAST = 1e-12  # an answer that was held for less likely costs no more than this one


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
    given = given_probabilities(model, data)
    means = [user_means(values, data.who, data.held_out_weights) for values in scores(given)]
    spread = [float(mean.std(ddof=1) / np.sqrt(len(mean))) if len(mean) > 1 else 0.0 for mean in means]
    return HeldOut(float(means[0].mean()), spread[0], float(means[1].mean()), spread[1])


def scores(given: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of the probabilities that answers were given: −log of each, and was the answer predicted? Undecided counts half.

    >>> [each.round(2).tolist() for each in scores(np.array([0.9, 0.5, 0.0]))]
    [[0.11, 0.69, 27.63], [1.0, 0.5, 0.0]]
    """
    return -np.log(np.maximum(given, LEAST)), 0.5 + 0.5 * np.sign(given - 0.5)


def user_means(values: NDArray[Any], who: IntArray, weights: FloatArray | None = None) -> FloatArray:
    """The mean of each user's values; users without any that count are left out."""
    counted = np.ones(len(values)) if weights is None else weights
    size = np.bincount(who, counted)
    heard = size > 0
    return np.asarray(np.bincount(who, counted * values)[heard] / size[heard])


class UserLogLoss:
    """A scikit-learn scorer, minus the log-loss, that passes `users` on to `predict_proba`; made once: `neg_log_loss`.

    Needs metadata routing, and folds that leave no user out of what is learnt from (shuffled ones, for example).

    >>> import sklearn
    >>> from sklearn.model_selection import StratifiedKFold, cross_val_score
    >>> from prefkin import OffC2PL
    >>> from prefkin.data.synthetic import demo_population
    >>> data = demo_population(np.random.default_rng(0))[0].data
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     model = OffC2PL(gamma=0.0).set_fit_request(users=True)
    ...     folds = StratifiedKFold(3, shuffle=True, random_state=0)
    ...     scores = cross_val_score(
    ...         model, data.Z, data.y, params={"users": data.users}, scoring=neg_log_loss, cv=folds
    ...     )
    >>> bool((scores < -0.3).all())
    True
    """

    def __call__(self, model: Any, Z: Any, y: Any, users: Any = None, sample_weight: Any = None) -> float:
        """Minus the mean −log probability of the answers."""
        from sklearn.metrics import log_loss  # takes long to load

        chance = model.predict_proba(Z, users=users)
        return -float(log_loss(y, chance, labels=model.classes_, sample_weight=sample_weight))

    def __repr__(self) -> str:
        return "neg_log_loss"

    def get_metadata_routing(self) -> MetadataRequest:
        """What scikit-learn has to hand over."""
        wanted = MetadataRequest(owner=self)
        wanted.score.add_request(param="users", alias=True)
        return wanted


neg_log_loss = UserLogLoss()


def given_probabilities(model: PreferenceModel, data: Comparisons) -> FloatArray:
    """The probability that a model gave to each answer, (n,).

    >>> from prefkin import OffC2PL
    >>> data = Comparisons.from_arrays([[1.0], [-1.0]], [1, 0], ["ann", "ann"])
    >>> given_probabilities(OffC2PL(gamma=0).fit(data), data).round(2).tolist()
    [0.66, 0.66]
    """
    p = model.predict_proba(data.Z, users=data.users)
    first = int(model.classes_[1] == model.positive_)
    return np.where(data.y == 1, p[:, first], p[:, 1 - first])


@dataclass(frozen=True, eq=False)
class Reliability:
    """Did what was called 80 % likely happen in 80 %? Predictions binned by how sure they were; empty bins left out."""

    predicted: FloatArray  # (bins,) mean probability of the likelier answer
    observed: FloatArray  # (bins,) how often it was the answer given
    low: FloatArray  # (bins,) 95 % interval of that share (Wilson's)
    high: FloatArray
    counts: FloatArray  # (bins,) answers

    @property
    def gap(self) -> float:
        """Mean distance between promised and observed share, over answers (expected calibration error)."""
        return float(np.average(np.abs(self.predicted - self.observed), weights=self.counts))

    @property
    def kept(self) -> int:
        """Bins whose promise lies within the interval of what was observed."""
        return int(np.sum((self.low <= self.predicted) & (self.predicted <= self.high)))

    def __str__(self) -> str:
        return (
            f"{self.kept} of {len(self.counts)} bins of held-out predictions kept their promise (within 95 % error); "
            f"promised and observed shares differ by {self.gap:.1%} on average"
        )


def reliability(given: FloatArray, weights: FloatArray | None = None, bins: int = BINS) -> Reliability:
    """Reliability of the probabilities that were given to the answers which came.

    Which of two actions comes first means nothing, so predictions are binned by the probability of the likelier answer,
    from a half to 1, in bins of equal width. An answer held for exactly as likely as not counts as half right.

    >>> result = reliability(np.array([0.9, 0.9, 0.9, 0.1, 0.6]), bins=2)
    >>> result.predicted.round(2).tolist(), result.observed.tolist(), result.counts.tolist()
    ([0.6, 0.9], [1.0, 0.75], [1.0, 4.0])
    """
    counted = np.ones(len(given)) if weights is None else weights
    sure, (_, right) = np.maximum(given, 1.0 - given), scores(given)
    at = np.minimum(((sure - 0.5) * 2 * bins).astype(np.intp), bins - 1)
    n = np.bincount(at, counted, bins).astype(np.float64)
    used = n > 0
    predicted, observed = (np.bincount(at, counted * values, bins)[used] / n[used] for values in (sure, right))
    n = n[used]
    z = float(norm.ppf(0.975))
    middle = (observed + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(observed * (1 - observed) / n + z**2 / (4 * n**2))
    return Reliability(predicted, observed, np.minimum(middle - half, observed), np.maximum(middle + half, observed), n)


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
