"""What held-out answers choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.data.folds import probe_users, splits_of
from prefkin.data.rows import UserRows
from prefkin.inference.loss import log_loss
from prefkin.inference.many import fit_sets
from prefkin.inference.sets import Sets

__all__ = ["RIDGES", "best_option", "least_on_grid", "ridge_by_held_out", "temperature"]

RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4)
TEMPERATURES = np.geomspace(0.4, 1.6, 13)  # at which options are compared
FACTORS = np.geomspace(0.1, 10.0, 41)  # 12 % apart, 1 among them
TIGHTLY = 200.0  # log-likelihood against log² temperature: 5 % off 1 is much, for margins of fewer rows
PATIENCE = 2  # options further along a grid that may be worse before no more are tried


def best_option(margins: Sequence[FloatArray], weights: FloatArray) -> tuple[int, float]:
    """Which margins of held-out answers predict best, each times the temperature that suits it, and that temperature.

    Without it, an estimate that is right but too sure of itself loses to one that is wrong and timid. Ties go to the
    first.

    >>> right, timid = np.array([5.0, 5.0, 5.0, -5.0]), np.array([0.1, 0.1, -0.1, -0.1])
    >>> best_option([timid, right], np.ones(4))[0]
    1
    """
    losses = [_losses(margin, weights, TEMPERATURES) for margin in margins]
    option, factor = np.unravel_index(int(np.argmin(np.round(losses, 6))), (len(losses), len(TEMPERATURES)))
    return int(option), float(TEMPERATURES[factor])


def temperature(margin: FloatArray, weights: FloatArray) -> float:
    """The factor on margins with which they predict best; held `TIGHTLY` to 1, to about 5 %.

    Margins of folds are those of fewer rows, and so more timid than what is fitted in the end: a factor that made up
    for that freely made a pooled model of 384 features overconfident (.009 of log-loss on one split of UKPConvArg).

    >>> temperature(np.repeat([5.0, -5.0], [3000, 1000]), np.ones(4000)) < 0.4    # three of four right, not 99 %
    True
    """
    losses = _losses(margin, weights, FACTORS) + TIGHTLY * np.log(FACTORS) ** 2
    return float(FACTORS[int(np.argmin(np.round(losses, 6)))])


def _losses(margin: FloatArray, weights: FloatArray, factors: FloatArray) -> FloatArray:
    return np.array([weights @ np.logaddexp(0.0, -factor * margin) for factor in factors])


def least_on_grid(loss: Callable[[int], float], start: int, size: int) -> int:
    """The position of least loss on a grid of so many options, sought to both sides of `start`; ties go to the first.

    A side is left when it got worse `PATIENCE` times in a row, so that a grid may be wide and cost little.

    >>> least_on_grid(lambda i: (i - 4) ** 2, start=2, size=100)
    4
    """
    seen = {start: round(loss(start), 6)}
    for step in (1, -1):
        at, best, worse = start, seen[start], 0
        while worse < PATIENCE and 0 <= (at := at + step) < size:
            seen[at] = round(loss(at), 6)
            worse = 0 if seen[at] < best else worse + 1
            best = min(best, seen[at])
    return min(sorted(seen), key=seen.__getitem__)


def ridge_by_held_out(users: UserRows, predict_for: str = "auto", *, pooled: bool = False) -> float:
    """The one of `RIDGES` with which each user's own estimate predicts held-out answers best; ties go to the smaller.

    With `pooled` whichever is better with this ridge: users' own estimates, or one estimate of everybody's rows.

    >>> from prefkin.data.rows import Rows
    >>> Z = np.random.default_rng(0).standard_normal((60, 2))
    >>> rows = Rows(Z, (Z[:, 0] > 0).astype(float), np.ones(60))           # certain answers need little ridge
    >>> ridge_by_held_out(UserRows(rows, np.array([0, 60]), np.array(["ann"])))
    0.01
    """
    some = np.array(probe_users(users))
    folds = [split.parts(users) for split in splits_of(users, predict_for)]
    members = [np.array([user]) for user in some] + [np.arange(len(users))] * pooled

    def loss(k: int) -> float:
        own = everybody = 0.0
        for train, test in folds:
            found = fit_sets(train.rows, Sets.of(train.starts, members), ridge=RIDGES[k], label="ridge")
            asked = [test.of(user) for user in some]
            own += sum(map(log_loss, found, asked))
            everybody += sum(log_loss(found[-1], rows) for rows in asked)
        return min(own, everybody) if pooled else own

    return RIDGES[least_on_grid(loss, RIDGES.index(1.0), len(RIDGES))]
