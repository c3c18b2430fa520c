"""Is it worth it on my data? Held-out performance of every method, on the same splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.comparisons import Comparisons
from prefkin.data.folds import held_out_folds
from prefkin.errors import InvalidComparisons
from prefkin.evaluate.metrics import Reliability, given_probabilities, reliability, scores, user_means
from prefkin.execution.progress import tell
from prefkin.models.base import PreferenceModel
from prefkin.models.baselines import BASELINES
from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["METHODS", "Comparison", "compare", "splits"]

METHODS: dict[str, Callable[[], PreferenceModel]] = {"PrefKin": PrefKin, **BASELINES}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Held-out log-loss and accuracy of several methods: mean over users, standard error over users."""

    names: list[str]
    log_loss: FloatArray  # (methods, users)
    accuracy: FloatArray  # (methods, users)
    given: FloatArray  # (methods, n) probability that each method gave to each held-out answer
    weights: FloatArray  # (n,) of those answers
    parts: int  # that were held out, one after the other
    folds: int  # of so many

    def reliability(self, name: str = "PrefKin") -> Reliability:
        """Whether the held-out probabilities of one method can be taken at face value."""
        return reliability(self.given[self.names.index(name)], self.weights)

    def rows(self) -> list[tuple[str, float, float, float, float, float]]:
        """Per method: name, log-loss, its error, accuracy, its error, and the error of the difference to the best."""
        mean = self.log_loss.mean(axis=1)
        best = int(np.argmin(mean))
        root = np.sqrt(self.log_loss.shape[1])
        return [
            (
                name,
                float(mean[i]),
                float(self.log_loss[i].std(ddof=1) / root),
                float(self.accuracy[i].mean()),
                float(self.accuracy[i].std(ddof=1) / root),
                float((self.log_loss[i] - self.log_loss[best]).std(ddof=1) / root),
            )
            for i, name in enumerate(self.names)
        ]

    @property
    def best(self) -> str:
        """The method with the least held-out log-loss."""
        return min(self.rows(), key=lambda row: row[1])[0]

    @property
    def how(self) -> str:
        """What was held out."""
        n, parts = len(self.weights), f"{self.parts} of {self.folds} parts" if self.parts < self.folds else "all parts"
        return f"{n:,} answers, {parts} held out in turn"

    @property
    def verdict(self) -> str:
        """Which one to trust: the best, or PrefKin where the difference is within two standard errors."""
        rows = self.rows()
        name, loss, *_ = min(rows, key=lambda row: row[1])
        ours = next((row for row in rows if row[0] == "PrefKin"), None)
        if ours is None or name == "PrefKin":
            return f"{name} predicts best here"
        if ours[1] - loss <= 2 * ours[5]:
            return (
                f"{name} is ahead of PrefKin by {ours[1] - loss:.4f}, within its error ({ours[5]:.4f}): either will do"
            )
        return f"{name} predicts better than PrefKin here, by {ours[1] - loss:.4f} ± {ours[5]:.4f}; trust it"


Split = tuple[IntArray, IntArray]
ENOUGH = 1500  # answers that are held out, after which no further fold is


def splits(data: Comparisons, folds: int = 4, predict_for: str = "auto", held_out: int = ENOUGH) -> list[Split]:
    """Rows to learn from and rows to predict, in turn; or one line that says why nothing can be compared.

    >>> from prefkin.data.synthetic import make_population
    >>> data = make_population(np.random.default_rng(0), n_users=3, n_groups=1, dim=2, n_comparisons=8).data
    >>> [(len(learnt), len(asked)) for learnt, asked in splits(data)]
    [(18, 6), (18, 6), (18, 6), (18, 6)]
    """
    alone = np.bincount(data.who)[data.who] < 2  # one row cannot be both learnt from and predicted
    if len(np.unique(data.who[~alone])) < 2:
        raise InvalidComparisons("comparing methods needs at least two users with at least two comparisons each")
    rows = np.flatnonzero(~alone)
    part = data if len(rows) == len(data) else data.take(rows)
    order, found, n = rows[np.argsort(part.who, kind="stable")], list[Split](), 0
    for learnt, asked in held_out_folds(part.by_user(), folds, predict_for):
        train, test = np.sort(order[learnt]), np.sort(order[asked])
        test = test[np.isin(data.who[test], data.who[train])]
        if len(test) and n < held_out:
            found.append((train, test))
            n += len(test)
    if not found:
        raise InvalidComparisons("nothing could be held out of these comparisons; give more of them, on more items")
    return found


def compare(
    data: Comparisons,
    methods: dict[str, Callable[[], PreferenceModel]] | None = None,
    folds: int = 4,
    predict_for: str = "auto",
    held_out: int = ENOUGH,
) -> Comparison:
    """Fit each method on all but one of `folds` parts, predict the rest, in turn.

    Parts are held out until `held_out` answers were: the first part of a large set is enough to tell methods apart, and
    costs one fit of each; small sets are held out part by part, all of them. `predict_for` says what is held out
    together (`prefkin.data.folds.held_out_folds`), here and where a method with a parameter of this name chooses by
    held-out answers: contexts when they are known, and what shares items when those are. Users of whom nothing is
    predicted, such as those with a single comparison, are left out.

    >>> from prefkin.data.synthetic import make_population
    >>> from prefkin.models.baselines import per_user, pooled
    >>> data = make_population(np.random.default_rng(0), n_users=6, n_groups=2, dim=2, n_comparisons=20).data
    >>> [row[0] for row in compare(data, {"pooled": pooled, "per user": per_user}, folds=2).rows()]
    ['pooled', 'per user']
    """
    chosen = METHODS if methods is None else methods
    parts = splits(data, folds, predict_for, held_out)
    given = np.full((len(chosen), len(data)), np.nan)
    work = [(train, test, i, make) for train, test in parts for i, make in enumerate(chosen.values())]
    for done, (train, test, i, make) in enumerate(work):
        tell("comparing methods", done, len(work))
        method = make()
        if "predict_for" in method.get_params():
            method.set_params(predict_for=predict_for)
        given[i, test] = given_probabilities(method.fit(data.take(train)), data.take(test))
    tell("comparing methods", len(work), len(work))
    told = np.flatnonzero(np.isfinite(given[0]))
    given, weights = given[:, told], data.held_out_weights[told]
    _, who = np.unique(data.who[told], return_inverse=True)
    loss, right = (np.array([user_means(one, who, weights) for one in values]) for values in scores(given))
    return Comparison(list(chosen), loss, right, given, weights, len(parts), folds)
