"""Ridge and pull by held-out answers: what the tuned methods share.

As in `prefkin.models.baselines`: three folds, a grid, one choice for everybody, and a factor on the margins that makes
held-out probabilities honest. Fits run together (`many_fits`); as many users are asked as give about `ANSWERS` held-out
answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.reproduce.contracts import FOLDS, Study
from prefkin.reproduce.many_fits import fit_many

__all__ = ["ANSWERS", "PULLS", "RIDGES", "best_of", "held_out_margins", "judges", "tuned_pull"]

RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
PULLS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
HEATS = np.geomspace(0.4, 1.6, 13)
ANSWERS = 3000


def judges(study: Study) -> IntArray:
    """The first users in the order of the table, as many as give ANSWERS held-out answers."""
    reach = np.cumsum(np.diff(study.rows.starts))
    return np.arange(min(study.n_users, int(np.searchsorted(reach, ANSWERS)) + 1))


def held_out_margins(study: Study, user: int, fold: int, theta: FloatArray) -> FloatArray:
    """side · θᵀz of a user's rows in a fold, for each row of `theta`, shape (rows, fits)."""
    p = user * FOLDS + fold
    return study.parcels.side[p][:, None] * (study.parcels.Z[p] @ np.atleast_2d(theta).T)


def best_of(margins: Sequence[FloatArray]) -> tuple[int, float]:
    """Which option predicts best, each heated as suits it, and that heat; ties go to the first."""
    losses = np.array([[np.logaddexp(0.0, -heat * m).mean() for heat in HEATS] for m in margins]).round(9)
    option, heat = np.unravel_index(int(np.argmin(losses)), losses.shape)
    return int(option), float(HEATS[heat])


def tuned_pull(
    study: Study, centre_without: FloatArray, centre: FloatArray, pulls: Sequence[float]
) -> tuple[FloatArray, float, float]:
    """Users drawn from a centre by their own rows: estimates (U, d), the pull chosen (∞ to stay), and the heat.

    `centre_without` (FOLDS, U, d) are the centres without each fold, `centre` (U, d) those of all rows.
    """
    some = judges(study)
    cases = [(u, f) for u in some for f in range(FOLDS)]
    member = np.array([study.uses([u], without=f) for u, f in cases for _ in pulls])
    towards = np.array([centre_without[f, u] for u, f in cases for _ in pulls])
    penalty = np.tile(np.asarray(pulls, dtype=np.float64), len(cases))
    start = np.array([study.own[u] for u, _ in cases for _ in pulls])
    fits = fit_many(study.parcels, member, penalty, centre=towards, start=start)
    fits = fits.reshape(len(cases), len(pulls), -1)
    margins = [
        np.hstack([held_out_margins(study, u, f, fits[i]), held_out_margins(study, u, f, centre_without[f, u])])
        for i, (u, f) in enumerate(cases)
    ]
    option, heat = best_of(list(np.concatenate(margins).T))
    if option == len(pulls):
        return centre, np.inf, heat
    member = np.array([study.uses([u]) for u in range(study.n_users)])
    theta = fit_many(study.parcels, member, np.full(study.n_users, pulls[option]), centre=centre, start=study.own)
    return theta, pulls[option], heat
