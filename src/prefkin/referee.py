"""What evidence cannot settle alone: the units of features and how far to trust probabilities. Held-out answers judge.

The options are "isotropic" (all features may matter alike), "diagonal" (some matter more) and "alike" (everybody wants
the same). Judged are users who differ by degrees: whether there are groups, evidence says better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prefkin.blocks import Blocks, Person, covariances
from prefkin.comparisons import FloatArray, IntArray, Rows, UserRows
from prefkin.gamma import content_folds, judges, split_rows
from prefkin.quadratics import Signed
from prefkin.seating import LARGE, MOST_SEATED, fit_cloud

__all__ = ["ALIKE", "METRICS", "Fitted", "choose_metric", "feature_scale", "only"]

METRICS = ("isotropic", "diagonal")
HEATS = np.round(np.arange(0.6, 1.45, 0.05), 2)
ALIKE = 1e-6  # variance between users when everybody is taken to want the same
IMAGINARY = 4.0  # users to whom all features matter alike, so that few real ones do not decide alone


@dataclass(frozen=True, eq=False)
class Fitted:
    """Blocks in scaled features: x/scale, so θ = θ′/scale."""

    blocks: Blocks
    scale: FloatArray  # (d,)
    wide: Blocks | None = None  # what is believed when users are not taken to be exactly alike
    heat: float = 1.0  # factor on the moderated margins that made held-out probabilities honest

    def margins(self, user: int, Z: FloatArray) -> FloatArray:
        """Moderated margins of a user, drawn towards 0 by doubt, so that probabilities are honest."""
        return self.heat * moderated(self.blocks.person(user), Z / self.scale)


def moderated(person: Person, rows: FloatArray) -> FloatArray:
    """rowᵀEθ / √(1 + π rowᵀC row / 8)."""
    return (rows @ person.mean) / np.sqrt(1.0 + np.pi * person.variance(rows) / 8.0)


def choose_metric(rows: UserRows, folds: int = 3) -> tuple[str, float]:
    """The option that predicts held-out answers best, and the factor on its margins that makes them honest.

    With very many features, nine fits would cost too much: isotropic then.
    """
    if len(rows) == 1 or rows.dim == 1 or rows.dim >= LARGE:
        return "isotropic", 1.0
    fold_of, some = content_folds(rows, folds), judges(rows)[:MOST_SEATED]
    loss = {option: np.zeros(len(HEATS)) for option in (*METRICS, "alike")}
    for fold in range(folds):
        parts = split_rows(rows, fold_of != fold)
        heard = np.array([u for u in some if len(parts[0].of(u).y)], dtype=np.intp)
        if not len(heard):  # with all rows in one fold nothing is left to learn from
            return "isotropic", 1.0
        train, test = (only(part, heard) for part in parts)
        for metric in METRICS:
            scale = feature_scale(train, metric)
            cloud = fit_cloud(Signed.of_users(train, scale), rounds=5)
            loss[metric] += _held_out_loss([cloud.person(u) for u in range(len(heard))], test, scale)
        together = Signed.of_users(train, scale := feature_scale(train, "isotropic"))
        one = Signed(together.X, together.weights, np.array([0, len(together.X)]))
        loss["alike"] += _held_out_loss([fit_cloud(one, rounds=5, within=ALIKE).person(0)] * len(heard), test, scale)
    cold = int(np.flatnonzero(HEATS == 1.0)[0])
    best = min(loss, key=lambda option: round(float(loss[option][cold]), 9))
    return best, float(HEATS[int(np.argmin(loss[best].round(9)))])


def _held_out_loss(people: list[Person], test: UserRows, scale: FloatArray) -> FloatArray:
    """For each of `HEATS`."""
    total = np.zeros(len(HEATS))
    for u, person in enumerate(people):
        Z, y, weights = test.of(u)
        margin = (1.0 - 2.0 * y) * moderated(person, Z / scale)
        total += weights @ np.logaddexp(0.0, np.outer(margin, HEATS))
    return total


def feature_scale(rows: UserRows, metric: str) -> FloatArray:
    """What features are divided by: one number for all, or for each the size and importance it has among users."""
    size = np.sqrt(np.average(rows.rows.Z**2, axis=0, weights=np.maximum(rows.rows.weights, 1e-300)))
    if metric == "isotropic":
        return np.full(rows.dim, max(float(np.sqrt(np.mean(size**2))), 1e-300))
    scale = np.where(size > 0, size, 1.0)
    prior = None
    for _ in range(2):
        cloud = fit_cloud(Signed.of_users(rows, scale), rounds=4, start=prior)
        prior, n_users = cloud.prior, len(cloud)
        off = cloud.mean - cloud.centres.mean[0]
        spread = (off**2).sum(axis=0) + np.einsum("uii->i", covariances(cloud))
        share = (spread + IMAGINARY * spread.mean() / n_users) / (n_users + IMAGINARY)
        scale = scale / np.sqrt(share / share.mean())
    return scale


def only(rows: UserRows, users: IntArray) -> UserRows:
    """Some of the users."""
    parts = [rows.of(int(u)) for u in users]
    starts = np.concatenate([[0], np.cumsum([len(part.y) for part in parts])]).astype(np.intp)
    contexts = None
    if rows.contexts is not None:
        contexts = np.concatenate([rows.contexts[rows.starts[u] : rows.starts[u + 1]] for u in users])
    return UserRows(Rows.join(parts), starts, rows.labels[users], contexts)
