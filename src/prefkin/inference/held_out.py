"""What held-out answers choose."""

from __future__ import annotations

import numpy as np

from prefkin.data.folds import FOLDS, content_folds, probe_users, split_rows
from prefkin.data.rows import UserRows
from prefkin.execution.executor import for_each
from prefkin.inference.estimate import fit_preference, log_loss

__all__ = ["RIDGES", "ridge_by_held_out"]

RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


def ridge_by_held_out(users: UserRows, *, n_jobs: int | None = None) -> float:
    """The one of `RIDGES` with which each user's own estimate predicts held-out answers best; ties go to the smaller.

    >>> from prefkin.data.rows import Rows
    >>> rows = Rows(np.eye(2)[[0, 1] * 6], np.ones(12), np.ones(12))       # certain answers need little ridge
    >>> ridge_by_held_out(UserRows(rows, np.array([0, 12]), np.array(["ann"])))
    0.1
    """
    fold_of, some = content_folds(users, FOLDS), probe_users(users)
    loss = np.zeros(len(RIDGES))
    for fold in range(FOLDS):
        train, test = split_rows(users, fold_of != fold)

        def losses(user: int, train: UserRows = train, test: UserRows = test) -> list[float]:
            own = [fit_preference(train.of(user), ridge=ridge) for ridge in RIDGES]
            return [log_loss(theta, test.of(user)) for theta in own]

        loss += np.sum(for_each(losses, some, label="ridge", n_jobs=n_jobs), axis=0)
    return RIDGES[int(np.argmin(loss.round(9)))]
