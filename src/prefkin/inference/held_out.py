"""What held-out answers choose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.data.folds import FOLDS, held_out_folds, probe_users, split_rows
from prefkin.data.rows import UserRows
from prefkin.inference.loss import log_loss
from prefkin.inference.many import fit_sets
from prefkin.inference.sets import Sets

__all__ = ["RIDGES", "best_option", "ridge_by_held_out"]

RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
TEMPERATURES = np.geomspace(0.4, 1.6, 13)


def best_option(margins: Sequence[FloatArray], weights: FloatArray) -> tuple[int, float]:
    """Which margins of held-out answers predict best, each times the temperature that suits it, and that temperature.

    Without it, an estimate that is right but too sure of itself loses to one that is wrong and timid. Ties go to the
    first.

    >>> right, timid = np.array([5.0, 5.0, 5.0, -5.0]), np.array([0.1, 0.1, -0.1, -0.1])
    >>> best_option([timid, right], np.ones(4))[0]
    1
    """
    losses = [[weights @ np.logaddexp(0.0, -factor * margin) for factor in TEMPERATURES] for margin in margins]
    option, factor = np.unravel_index(int(np.argmin(np.round(losses, 6))), (len(losses), len(TEMPERATURES)))
    return int(option), float(TEMPERATURES[factor])


def ridge_by_held_out(users: UserRows) -> float:
    """The one of `RIDGES` with which each user's own estimate predicts held-out answers best; ties go to the smaller.

    >>> from prefkin.data.rows import Rows
    >>> rows = Rows(np.eye(2)[[0, 1] * 6], np.ones(12), np.ones(12))       # certain answers need little ridge
    >>> ridge_by_held_out(UserRows(rows, np.array([0, 12]), np.array(["ann"])))
    0.1
    """
    some = np.array(probe_users(users))
    loss = np.zeros(len(RIDGES))
    for fold in held_out_folds(users, FOLDS):
        train, test = split_rows(users, *fold)
        sets = Sets.of(train.starts, [np.array([user]) for user in np.tile(some, len(RIDGES))])
        own = fit_sets(train.rows, sets, ridge=np.repeat(RIDGES, len(some)), label="ridge")
        for k, theta in enumerate(own.reshape(len(RIDGES), len(some), -1)):
            loss[k] += sum(log_loss(one, test.of(user)) for one, user in zip(theta, some, strict=True))
    return RIDGES[int(np.argmin(loss.round(6)))]
