"""What evidence cannot settle alone, held-out answers do: units of features, spread of users, trust in probabilities.

Features are "isotropic" (all may matter alike) or "diagonal" (some matter more). Real answers are noisier than the
model takes them to be, so that evidence finds people too different: the spread between users is what evidence says,
times a factor. Judged are users who differ by degrees: whether there are groups, evidence says better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from prefkin.blocks import Blocks, Person, covariances, solved
from prefkin.cloud import LARGE, LEAST, fit_cloud
from prefkin.comparisons import FloatArray, IntArray, Rows, UserRows
from prefkin.gamma import content_folds, judges, split_rows
from prefkin.quadratics import Signed

__all__ = ["METRICS", "Fitted", "Verdict", "feature_scale", "judge", "only"]

METRICS = ("isotropic", "diagonal")
HEATS = np.round(np.arange(0.6, 1.45, 0.05), 2)
FACTORS = (1.0, 0.3, 0.1, 0.0, 3.0)  # on the variance between users; 0: everybody is taken to want the same
CLEARLY = 2.0  # held-out log-likelihood, beside a standard error, by which an option must beat the plain one
IMAGINARY = 4.0  # users to whom all features matter alike, so that few real ones do not decide alone


@dataclass(frozen=True, eq=False)
class Fitted:
    """Blocks in scaled features: x/scale, so θ = θ′/scale."""

    blocks: Blocks
    scale: FloatArray  # (d,)
    wide: Blocks | None = None  # what is believed when users are not taken to be exactly alike
    heat: float = 1.0  # factor on the moderated margins that made held-out probabilities honest

    def covariance(self, user: int) -> FloatArray:
        """Posterior covariance in the features as given, (d, d).

        Where held-out answers spoke for less spread between users than evidence does, that is no proof: the doubt is
        still that of evidence, and the distance between both answers on top.
        """
        believed = self.blocks if self.wide is None else self.wide
        off = self.blocks.mean[user] - believed.mean[user]
        return (believed.person(user).covariance() + np.outer(off, off)) / np.outer(self.scale, self.scale)

    def margins(self, user: int, Z: FloatArray) -> FloatArray:
        """Moderated margins of a user, drawn towards 0 by doubt, so that probabilities are honest."""
        return self.heat * moderated(self.blocks.person(user), Z / self.scale)


def moderated(person: Person, rows: FloatArray) -> FloatArray:
    """rowᵀEθ / √(1 + π rowᵀC row / 8)."""
    return (rows @ person.mean) / np.sqrt(1.0 + np.pi * person.variance(rows) / 8.0)


class Verdict(NamedTuple):
    """What held-out answers speak for."""

    metric: str = "isotropic"
    factor: float = 1.0  # on the variance between users that evidence finds
    heat: float = 1.0  # on the moderated margins


def judge(rows: UserRows, folds: int = 3) -> Verdict:
    """The options that predict held-out answers best, each with the heat that makes it honest.

    The plain one, isotropic with the spread that evidence finds, stands unless another is clearly better; that
    everybody wants the same is plainer still. With very many features, so many fits would cost too much: the plain one.
    """
    if len(rows) == 1 or rows.dim == 1 or rows.dim >= LARGE:
        return Verdict()
    fold_of, some = content_folds(rows, folds), judges(rows)
    loss = {(metric, factor): np.zeros((len(rows), len(HEATS))) for metric in METRICS for factor in FACTORS}
    for fold in range(folds):
        parts = split_rows(rows, fold_of != fold)
        heard = np.array([u for u in some if len(parts[0].of(u).y)], dtype=np.intp)
        if not len(heard):  # with all rows in one fold nothing is left to learn from
            return Verdict()
        train, test = (only(part, heard) for part in parts)
        for metric in METRICS:
            scale = feature_scale(train, metric)
            cloud = fit_cloud(Signed.of_users(train, scale), rounds=6)
            for factor in FACTORS:
                spread = with_spread(cloud, factor)
                people = [spread.person(u) for u in range(len(heard))]
                loss[metric, factor][heard] += _held_out_loss(people, test, scale)
    best = {option: each[:, int(np.argmin(each.sum(axis=0).round(9)))] for option, each in loss.items()}
    plain = best["isotropic", 1.0]

    def handicap(option: tuple[str, float]) -> float:
        if option in (("isotropic", 1.0), ("isotropic", 0.0)):
            return 0.0
        gain = (plain - best[option])[some]
        return CLEARLY + float(np.std(gain) * np.sqrt(len(gain)))

    option = min(best, key=lambda option: round(float(best[option].sum()) + handicap(option), 9))
    return Verdict(*option, float(HEATS[int(np.argmin(loss[option].sum(axis=0).round(9)))]))


def with_spread(cloud: Blocks, factor: float) -> Blocks:
    """The same people and sites, with so many times the variance between users."""
    within = max(factor * cloud.prior.within, LEAST)
    return solved(cloud.users, cloud.sites, cloud.share, cloud.prior._replace(within=within))


def _held_out_loss(people: list[Person], test: UserRows, scale: FloatArray) -> FloatArray:
    """Of each of the people, for each of `HEATS`, (U, H)."""
    total = np.zeros((len(people), len(HEATS)))
    for u, person in enumerate(people):
        Z, y, weights = test.of(u)
        margin = (1.0 - 2.0 * y) * moderated(person, Z / scale)
        total[u] = weights @ np.logaddexp(0.0, np.outer(margin, HEATS))
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
