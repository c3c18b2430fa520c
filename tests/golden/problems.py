"""Small seeded problems: comparisons with known true preferences, and the data for each public call on the fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.special import expit

import prefkin
from prefkin import Comparisons

ASKED, NEW_ANSWERS, NEW_ASKED, MORE = 50, 12, 10, 6


@dataclass(frozen=True, eq=False)
class Problem:
    """Training data, and the arguments of `predict_proba`, `fold_in` and `update`."""

    data: Comparisons
    asked: np.ndarray  # (50, d) feature differences to predict
    asked_users: np.ndarray  # (50,) labels of fitted users
    new_rows: np.ndarray  # (12, d) answers of a new user, for fold_in
    new_y: np.ndarray  # (12,)
    new_asked: np.ndarray  # (10, d) feature differences to predict for the new user
    more: Comparisons  # for update: 6 rows each of two fitted users and of one new user
    settings: dict[str, Any] = field(default_factory=dict)  # arguments of the estimator
    rows_a_shard: int | None = None  # given: the data are fitted out of core

    def opened(self, folder: Path) -> Any:
        """The argument of `fit`: the comparisons, or shards of them that are made in `folder`."""
        if self.rows_a_shard is None:
            return self.data
        folder.mkdir(parents=True, exist_ok=True)
        half = len(self.data) // 2
        for name, rows in (("one", slice(0, half)), ("two", slice(half, None))):
            columns = {"user": self.data.users[rows].tolist(), "y": self.data.y[rows].astype(int).tolist()}
            features = {f"z{j}": column for j, column in enumerate(self.data.Z[rows].T)}
            pl.DataFrame(columns | features).write_parquet(folder / f"{name}.parquet")
        return prefkin.open_comparisons(folder, cache=folder.with_name("shards"), rows_a_shard=self.rows_a_shard)


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1."""
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def answers(rng: np.random.Generator, Z: np.ndarray, theta: np.ndarray, bias: float = 0.0) -> np.ndarray:
    """Bradley-Terry-Luce answers to feature differences Z, (n, d), under preferences theta, (d,) or (n, d)."""
    return (rng.random(len(Z)) < expit((Z * theta).sum(axis=1) + bias)).astype(int)


def completed(
    rng: np.random.Generator, data: Comparisons, theta: np.ndarray, drawn: Callable[[int], np.ndarray], **more: Any
) -> Problem:
    """The problem with rows to predict, answers of a new user, and rows for update.

    theta, (U + 2, d): true preferences of the users in the order of their labels, of a new user for fold_in and of a
    new user for update. `drawn(n)` gives n feature differences.
    """
    labels = np.unique(data.users)
    asked_users = labels[rng.integers(0, len(labels), ASKED)]
    new_rows = drawn(NEW_ANSWERS)
    stranger = "zz" if labels.dtype.kind in "OU" else int(labels.max()) + 1
    who = np.repeat([0, len(labels) // 2, len(labels) + 1], MORE)
    names = [labels[u] if u < len(labels) else stranger for u in who.tolist()]
    more_Z = drawn(3 * MORE)
    return Problem(
        data,
        drawn(ASKED),
        asked_users,
        new_rows,
        answers(rng, new_rows, theta[len(labels)]),
        drawn(NEW_ASKED),
        Comparisons.from_arrays(more_Z, answers(rng, more_Z, theta[who]), np.array(names)),
        **more,
    )


def plain(rng: np.random.Generator, theta: np.ndarray, n: int, scale: float = 1.0, **more: Any) -> Problem:
    """n Gaussian feature differences for each user; the last two rows of theta are new users."""
    users, d = np.repeat(np.arange(len(theta) - 2), n), theta.shape[1]

    def drawn(n: int) -> np.ndarray:
        return scale * rng.standard_normal((n, d))

    Z = drawn(len(users))
    data = Comparisons.from_arrays(Z, answers(rng, Z, theta[users]), users)
    return completed(rng, data, theta, drawn, **more)


def in_groups(rng: np.random.Generator, users: int, groups: int, d: int, beta: float, spread: float = 0.0) -> Any:
    """(users + 2, d): group means of length beta, users in turns; `spread`: of users around them, over beta."""
    means = beta * unit(rng.standard_normal((groups, d)))
    theta = means[np.arange(users + 2) % groups]
    return theta + beta * spread / np.sqrt(d) * rng.standard_normal(theta.shape)


def varied(rng: np.random.Generator, users: int, d: int, mean: float = 1.0, sd: float = 0.8) -> Any:
    """(users + 2, d): one normal population with a correlated covariance."""
    root = np.linalg.cholesky(0.6 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d))))
    scales = sd * np.geomspace(0.5, 2.0, d)
    return mean * unit(rng.standard_normal(d)) + rng.standard_normal((users + 2, d)) @ root.T * scales


def items_of(rng: np.random.Generator, n_items: int, users: np.ndarray) -> np.ndarray:
    """(n, 2) positions of two different items for each row."""
    first = rng.integers(0, n_items, len(users))
    return np.column_stack([first, (first + rng.integers(1, n_items, len(users))) % n_items])


# -- the problems ------------------------------------------------------------------------------------------------------


def heterogeneity() -> Problem:
    """Continuous heterogeneity with a correlated covariance, 30 users."""
    rng = np.random.default_rng(101)
    return plain(rng, varied(rng, 30, 6), 40)


def groups() -> Problem:
    """Three groups of equals, 24 users."""
    rng = np.random.default_rng(102)
    return plain(rng, in_groups(rng, 24, 3, 5, 2.5), 40)


def singletons() -> Problem:
    """Two groups of eight, and six users in no group."""
    rng = np.random.default_rng(103)
    members, alone = in_groups(rng, 16, 2, 6, 2.5), 2.5 * unit(rng.standard_normal((7, 6)))
    return plain(rng, np.concatenate([members[:16], alone[:6], members[16:17], alone[6:]]), 50)


def few_answers() -> Problem:
    """60 users with 4 answers each about 8 features."""
    rng = np.random.default_rng(104)
    return plain(rng, varied(rng, 60, 8, mean=1.5, sd=0.4), 4)


def nearly_certain() -> Problem:
    """Preferences so strong that most answers are certain."""
    rng = np.random.default_rng(105)
    return plain(rng, in_groups(rng, 24, 3, 5, 8.0, spread=0.3), 30)


def weights() -> Problem:
    """Weights 1 to 5, weights that are not whole numbers, and rows of weight 0."""
    rng = np.random.default_rng(106)
    whole = plain(rng, varied(rng, 25, 5), 24)
    n = len(whole.data)
    weight = np.where(rng.random(n) < 0.6, rng.integers(1, 6, n), rng.uniform(0.1, 3.0, n))
    weight[rng.random(n) < 0.1] = 0.0
    data = Comparisons.from_arrays(whole.data.Z, whole.data.y, whole.data.users, weights=weight)
    return Problem(**{**vars(whole), "data": data})


def _both_sides(seed: int, bias: float) -> Problem:
    rng = np.random.default_rng(seed)
    features, theta = rng.standard_normal((40, 5)), varied(rng, 30, 5)
    users = np.repeat(np.arange(30), 30)

    def drawn(n: int) -> np.ndarray:
        one, other = items_of(rng, 40, np.empty(n)).T
        return features[one] - features[other]

    one, other = items_of(rng, 40, users).T
    y = answers(rng, features[one] - features[other], theta[users], bias)
    data = Comparisons.from_sides(features[one], features[other], y, users)
    return completed(rng, data, theta, drawn)


def both_sides() -> Problem:
    """Both sides are known; no position bias."""
    return _both_sides(107, 0.0)


def position_bias() -> Problem:
    """Both sides are known; the first one has log odds of 0.8 on top."""
    return _both_sides(108, 0.8)


def known_items() -> Problem:
    """Items have names; users have text labels."""
    rng = np.random.default_rng(109)
    features, theta = rng.standard_normal((30, 5)), in_groups(rng, 20, 2, 5, 1.5, spread=0.5)
    users = np.repeat(np.arange(20), 35)

    def drawn(n: int) -> np.ndarray:
        one, other = items_of(rng, 30, np.empty(n)).T
        return features[one] - features[other]

    pairs = items_of(rng, 30, users)
    Z = features[pairs[:, 0]] - features[pairs[:, 1]]
    names, labels = np.array([f"item {i}" for i in range(30)]), np.array([f"u{u:02d}" for u in range(20)])
    data = Comparisons.from_arrays(Z, answers(rng, Z, theta[users]), labels[users], items=names[pairs])
    return completed(rng, data, theta, drawn)


def contexts() -> Problem:
    """Rows of a context share a part that no feature describes; contexts are held out as a whole."""
    rng = np.random.default_rng(110)
    theta, users = varied(rng, 24, 5), np.repeat(np.arange(24), 36)
    about = rng.integers(0, 20, len(users))
    shift = 0.7 * rng.standard_normal((20, 5))

    def drawn(n: int) -> np.ndarray:
        return rng.standard_normal((n, 5))

    Z = drawn(len(users))
    y = answers(rng, Z, theta[users] + shift[about])
    return completed(rng, Comparisons.from_arrays(Z, y, users, contexts=about), theta, drawn)


def choices() -> Problem:
    """Choices among four options (from_choices): weights of pairs, and other weights for held-out answers."""
    rng = np.random.default_rng(111)
    theta, users = varied(rng, 30, 4), np.repeat(np.arange(30), 12)
    options = rng.standard_normal((len(users), 4, 4))
    chosen = (np.einsum("tad,td->ta", options, theta[users]) + rng.gumbel(size=(len(users), 4))).argmax(axis=1)
    data = Comparisons.from_choices(options, chosen, users)
    return completed(rng, data, theta, lambda n: rng.standard_normal((n, 4)))


def thin() -> Problem:
    """70 features and 35 answers each: fewer answers than features."""
    rng = np.random.default_rng(112)
    return plain(rng, in_groups(rng, 20, 2, 70, 3.0), 35)


def many_features() -> Problem:
    """260 features."""
    rng = np.random.default_rng(113)
    return plain(rng, in_groups(rng, 8, 2, 260, 4.0, spread=0.3), 60)


def many_users() -> Problem:
    """260 users: hyperparameters come from some of them."""
    rng = np.random.default_rng(114)
    return plain(rng, in_groups(rng, 260, 4, 6, 3.0, spread=0.1), 16)


def unrelated() -> Problem:
    """Users have nothing in common."""
    rng = np.random.default_rng(115)
    return plain(rng, 2.0 * unit(rng.standard_normal((16, 4))), 60)


def one_group() -> Problem:
    """All users have the same preference."""
    rng = np.random.default_rng(116)
    return plain(rng, in_groups(rng, 20, 1, 5, 2.0), 20)


def out_of_core() -> Problem:
    """240 users in Parquet files, fitted from shards."""
    rng = np.random.default_rng(117)
    return plain(rng, in_groups(rng, 240, 3, 5, 2.5, spread=0.1), 12, rows_a_shard=700)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    make.__name__: make
    for make in (
        *(heterogeneity, groups, singletons, few_answers, nearly_certain, weights, both_sides, position_bias),
        *(known_items, contexts, choices, thin, many_features, many_users, unrelated, one_group, out_of_core),
    )
}
