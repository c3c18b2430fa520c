"""What evidence cannot settle alone, held-out answers do: units of features, spread of users, trust in probabilities.

Features are "isotropic" (all may matter alike) or "diagonal" (some matter more). Real answers are noisier than the
model takes them to be, so that evidence finds people too different, and what they share too strong: both variances are
what evidence says, times a factor. Judged are users who differ by degrees: whether there are groups, evidence says
better.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.folds import held_out_folds, only, probe_users, split_rows
from prefkin.data.rows import UserRows
from prefkin.inference.propagation import Sites, above_zero
from prefkin.inference.quadratics import STACKED_UP_TO, Signed, per_user_sum
from prefkin.models.prefkin.degrees import bounded, fit_degrees
from prefkin.models.prefkin.mixture import Mixture, Prior, covariances, pieces, solved
from prefkin.models.prefkin.settings import CALIBRATION, LIMITS, affordable

__all__ = ["METRICS", "Fitted", "Verdict", "fitted_in", "judge", "with_spread"]

METRICS = ("isotropic", "diagonal")
TEMPERATURES = np.array(CALIBRATION.temperatures)
TEMPERED = CALIBRATION.stiffness * np.log(TEMPERATURES) ** 2  # held-out log-likelihood against a temperature


@dataclass(frozen=True, eq=False)
class Fitted:
    """A mixture in scaled features: x/scale, so θ = θ′/scale."""

    mixture: Mixture
    scale: FloatArray  # (d,)
    wide: Mixture | None = None  # what is believed when users are not taken to be exactly alike
    temperature: float = 1.0  # factor on the moderated margins that made held-out probabilities honest

    def covariance(self, user: int) -> FloatArray:
        """Posterior covariance in the features as given, (d, d).

        Where held-out answers spoke for less spread between users than evidence does, that is no proof: the doubt is
        still that of evidence, and the distance between both answers on top.
        """
        believed = self.mixture if self.wide is None else self.wide
        off = self.mixture.mean[user] - believed.mean[user]
        return (believed.person(user).covariance() + np.outer(off, off)) / np.outer(self.scale, self.scale)

    def margins(self, Z: FloatArray, owner: IntArray) -> FloatArray:
        """Moderated margins of rows of some users, drawn towards 0 by doubt, so that probabilities are honest."""
        X, d = Z / self.scale, Z.shape[1]
        mean, variance = np.einsum("ij,ij->i", X, self.mixture.mean[owner]), np.empty(len(X))
        order = np.argsort(owner, kind="stable")
        users, first, counts = np.unique(owner[order], return_index=True, return_counts=True)
        if d > STACKED_UP_TO:
            for u, start, n in zip(users, first, counts, strict=True):
                mine = order[start : start + n]
                variance[mine] = self.mixture.person(int(u)).variance(X[mine])
            return self.temperature * _moderated(mean, variance)
        for piece in pieces(len(users), d * d):
            C = self._covariances[users[piece]] if self._kept else covariances(self.mixture, users[piece])
            for n in np.unique(counts[piece]):  # users with as many rows at once
                some = np.flatnonzero(counts[piece] == n)
                rows = order[first[piece][some, None] + np.arange(n)]
                x = X[rows]
                variance[rows] = np.einsum("uij,uij->ui", np.matmul(x, C[some]), x)
        return self.temperature * _moderated(mean, np.maximum(variance, 0.0))

    @property
    def _kept(self) -> bool:
        return len(self.mixture) * len(self.scale) ** 2 <= LIMITS.kept

    @cached_property
    def _covariances(self) -> FloatArray:
        """Everybody's, in scaled features: what they are does not depend on when or for whom they are asked."""
        return covariances(self.mixture, slice(None))


def _moderated(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """m / √(1 + π v / 8): drawn towards 0 by doubt."""
    return mean / np.sqrt(1.0 + np.pi * variance / 8.0)


class Verdict(NamedTuple):
    """What held-out answers speak for."""

    metric: str = "isotropic"
    factor: float = 1.0  # on the variance between users that evidence finds
    common: float = 1.0  # on the variance of what they share
    temperature: float = 1.0  # on the moderated margins


def judge(rows: UserRows, plain: Mixture, predict_for: str = "auto") -> Verdict:
    """The options that predict held-out answers best, each with the temperature that makes it honest.

    `plain`, isotropic with the variances that evidence finds, fitted to the same rows, stands unless another is clearly
    better; fits to parts of the rows start from it. `predict_for` decides what is held out together. Where features and
    rows are so many that a dozen users could not be asked in reasonable time, nobody is.
    """
    folds, n_asked = CALIBRATION.folds, affordable(Signed(rows.rows.Z, rows.rows.weights, rows.starts)).probe_users
    if len(rows) == 1 or rows.dim == 1 or n_asked == 0:
        return Verdict()
    some = np.array(probe_users(rows, n_asked))
    theirs = np.flatnonzero(np.isin(rows.owner, some))
    asked = only(rows, some)
    even = fit_degrees(Signed.of_users(asked, _each_by_its_size(asked)))
    starts = {"isotropic": (plain.prior, plain.sites.of(theirs)), "diagonal": (even.prior, even.sites)}
    options = list(product(METRICS, CALIBRATION.factors, CALIBRATION.common))
    loss = {option: np.zeros((len(asked), len(TEMPERATURES))) for option in options}
    for learnt, judged in held_out_folds(rows, folds, predict_for):
        parts = split_rows(asked, learnt[theirs], judged[theirs])
        heard = np.flatnonzero(np.diff(parts[0].starts))
        if not len(heard):  # with all rows in one fold nothing is left to learn from
            return Verdict()
        train, test = (only(part, heard) for part in parts)
        for metric, (prior, sites) in starts.items():
            scale, _, fit = fitted_in(train, metric, prior, sites.of(learnt[theirs]))
            unseen = Signed.of_users(test, scale)
            for factor in CALIBRATION.factors:
                spread = with_spread(fit, factor, 1.0)
                for common in CALIBRATION.common:
                    loss[metric, factor, common][heard] += _held_out_loss(with_spread(spread, 1.0, common), unseen)
    at = {option: int(np.argmin((each.sum(axis=0) + TEMPERED).round(9))) for option, each in loss.items()}
    best = {option: each[:, at[option]] for option, each in loss.items()}
    simple = ("isotropic", 1.0, 1.0)

    def cost(option: tuple[str, float, float]) -> float:
        total = float(best[option].sum() + TEMPERED[at[option]])
        if option != simple:
            gain = best[simple] - best[option]
            total += CALIBRATION.clearly + 0.5 * float(np.std(gain) * np.sqrt(len(gain)))
        return round(total, 9)

    option = min(best, key=cost)
    return Verdict(*option, float(TEMPERATURES[at[option]]))


def with_spread(fit: Mixture, factor: float, common: float) -> Mixture:
    """The same people and sites, with so many times the variance between users, and of what they share."""
    prior, top = fit.prior, bounded(common * fit.prior.top)
    within = bounded(factor * prior.within)
    terms = fit.terms if within == prior.within else None
    return solved(fit.users, fit.sites, fit.share, Prior(prior.m0, within, top, top), terms=terms)


def _held_out_loss(fit: Mixture, unseen: Signed) -> FloatArray:
    """Of each user, at each temperature, (U, T)."""
    margin = _moderated(*fit.margins(unseen))
    return per_user_sum(unseen.weights[:, None] * np.logaddexp(0.0, -np.outer(margin, TEMPERATURES)), unseen.starts)


def fitted_in(
    rows: UserRows, metric: str, prior: Prior | None = None, sites: Sites | None = None
) -> tuple[FloatArray, Signed, Mixture]:
    """What features are divided by, the rows so divided, and users who differ by degrees in these units.

    One number for all features, or for each the size and importance it has among users: which that is, and how users
    differ, are found in turns. `prior` and `sites` are those of another fit to these rows.
    """
    if metric == "isotropic":
        scale = np.full(rows.dim, above_zero(np.sqrt(np.mean(_sizes(rows) ** 2))))
        data = Signed.of_users(rows, scale)
        return scale, data, fit_degrees(data, 16 if prior is None else 4, prior, sites)
    scale, cold = _each_by_its_size(rows), prior is None
    for _ in range(2):
        fit = fit_degrees(Signed.of_users(rows, scale), 8 if prior is None else 2, prior, sites)
        prior, sites, n_users, imaginary = fit.prior, fit.sites, len(fit), CALIBRATION.imaginary
        spread = ((fit.mean - fit.centres.mean[0]) ** 2).sum(axis=0)
        for piece in pieces(n_users, rows.dim**2):
            spread += np.einsum("uii->i", covariances(fit, piece))
        share = (spread + imaginary * spread.mean() / n_users) / (n_users + imaginary)
        scale = scale / np.sqrt(share / share.mean())
    data = Signed.of_users(rows, scale)
    return scale, data, fit_degrees(data, 16 if cold else 4, prior, sites)


def _sizes(rows: UserRows) -> FloatArray:
    """Typical size of each feature, (d,); 0 where there is nothing of it."""
    weights = above_zero(rows.rows.weights)
    return np.sqrt(np.einsum("i,ij,ij->j", weights, rows.rows.Z, rows.rows.Z) / weights.sum())


def _each_by_its_size(rows: UserRows) -> FloatArray:
    size = _sizes(rows)
    return np.where(size > 0, size, 1.0)
