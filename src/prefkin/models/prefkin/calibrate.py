"""What evidence cannot settle alone, held-out answers do: units of features, spread of users, trust in probabilities.

Features are "isotropic" (all may matter alike) or "diagonal" (some matter more). Real answers are noisier than the
model takes them to be, so that evidence finds people too different, and what they share too strong: both variances are
what evidence says, times a factor. Judged are users who differ by degrees: whether there are groups, evidence says
better.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.data.folds import content_folds, only, probe_users, split_rows
from prefkin.data.rows import UserRows
from prefkin.inference.quadratics import Signed, per_user_sum
from prefkin.models.prefkin.degrees import LARGE, LEAST, fit_cloud
from prefkin.models.prefkin.mixture import Blocks, Person, Prior, covariances, solved

__all__ = ["METRICS", "Fitted", "Verdict", "feature_scale", "judge", "with_spread"]

METRICS = ("isotropic", "diagonal")
HEATS = np.round(np.arange(0.6, 1.45, 0.05), 2)
FACTORS = (1.0, 0.3, 0.1, 0.0, 3.0)  # on the variance between users; 0: everybody is taken to want the same
COMMON = (1.0, 0.3, 0.1)  # on the variance of what users share
CLEARLY = 1.0  # held-out log-likelihood, beside half a standard error, by which an option must beat the plain one
COLD = 50.0 * np.log(HEATS) ** 2  # held-out log-likelihood against a heat other than 1: about 10 % is expected
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
    return _drawn_to_zero(rows @ person.mean, person.variance(rows))


def _drawn_to_zero(mean: FloatArray, variance: FloatArray) -> FloatArray:
    return mean / np.sqrt(1.0 + np.pi * variance / 8.0)


class Verdict(NamedTuple):
    """What held-out answers speak for."""

    metric: str = "isotropic"
    factor: float = 1.0  # on the variance between users that evidence finds
    common: float = 1.0  # on the variance of what they share
    heat: float = 1.0  # on the moderated margins


def judge(rows: UserRows, folds: int = 3) -> Verdict:
    """The options that predict held-out answers best, each with the heat that makes it honest.

    The plain one, isotropic with the variances that evidence finds, stands unless another is clearly better. With very
    many features, so many fits would cost too much: the plain one.
    """
    if len(rows) == 1 or rows.dim == 1 or rows.dim >= LARGE:
        return Verdict()
    fold_of, some = content_folds(rows, folds), probe_users(rows)
    loss = {option: np.zeros((len(rows), len(HEATS))) for option in product(METRICS, FACTORS, COMMON)}
    for fold in range(folds):
        parts = split_rows(rows, fold_of != fold)
        heard = np.array([u for u in some if len(parts[0].of(u).y)], dtype=np.intp)
        if not len(heard):  # with all rows in one fold nothing is left to learn from
            return Verdict()
        train, test = (only(part, heard) for part in parts)
        for metric in METRICS:
            scale = feature_scale(train, metric)
            cloud, unseen = fit_cloud(Signed.of_users(train, scale), rounds=6), Signed.of_users(test, scale)
            for factor, common in product(FACTORS, COMMON):
                loss[metric, factor, common][heard] += _held_out_loss(with_spread(cloud, factor, common), unseen)
    heat = {option: int(np.argmin((each.sum(axis=0) + COLD).round(9))) for option, each in loss.items()}
    best = {option: each[:, heat[option]] for option, each in loss.items()}
    plain = ("isotropic", 1.0, 1.0)

    def cost(option: tuple[str, float, float]) -> float:
        total = float(best[option].sum() + COLD[heat[option]])
        if option != plain:
            gain = (best[plain] - best[option])[some]
            total += CLEARLY + 0.5 * float(np.std(gain) * np.sqrt(len(gain)))
        return round(total, 9)

    option = min(best, key=cost)
    return Verdict(*option, float(HEATS[heat[option]]))


def with_spread(cloud: Blocks, factor: float, common: float) -> Blocks:
    """The same people and sites, with so many times the variance between users, and of what they share."""
    within, top = max(factor * cloud.prior.within, LEAST), max(common * cloud.prior.top, LEAST)
    return solved(cloud.users, cloud.sites, cloud.share, Prior(cloud.prior.m0, within, top, top))


def _held_out_loss(blocks: Blocks, unseen: Signed) -> FloatArray:
    """Of each user, for each of `HEATS`, (U, H)."""
    mean, variance = blocks.margins(unseen)
    margin = _drawn_to_zero(mean, variance)
    return per_user_sum(unseen.weights[:, None] * np.logaddexp(0.0, -np.outer(margin, HEATS)), unseen.starts)


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
