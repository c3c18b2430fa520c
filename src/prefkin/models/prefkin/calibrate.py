"""What evidence cannot settle alone, held-out answers do: the metric, how far people differ, trust in probabilities.

Real answers are noisier than the model takes them to be, so that evidence finds people too different, and what they
share too strong: both variances are moved from what evidence says to where held-out answers are predicted best. Among
the options are everybody pooled (no variance between people) and everybody alone (none of what they share), and all in
between. Judged are users who differ by degrees: whether there are groups, evidence says better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray, above_zero
from prefkin.data.folds import held_out_folds, leverage
from prefkin.data.rows import UserRows, split_rows
from prefkin.execution.blas import in_one_order
from prefkin.inference.loss import moderated
from prefkin.inference.modes import Around, matched
from prefkin.inference.propagation import Sites, cavities
from prefkin.inference.quadratics import STACKED_UP_TO, Signed, Terms, expand, per_user_sum
from prefkin.models.prefkin.beliefs import centred_beliefs, kept_rows, row_beliefs
from prefkin.models.prefkin.degrees import fit_degrees
from prefkin.models.prefkin.metric import Learnt, Metric, Unit, learn_metric, sizes
from prefkin.models.prefkin.mixture import Apart, Mixture, Prior, covariances, pieces, solved
from prefkin.models.prefkin.scales import common_mean
from prefkin.models.prefkin.settings import CALIBRATION, LIMITS, METRIC, affordable, bounded

__all__ = [
    "Fit",
    "Fitted",
    "Verdict",
    "best_temperature",
    "fitted_in",
    "judge",
    "loss_of_groups",
    "losses_by_temperature",
    "temperature_of_groups",
    "with_scales",
]

TEMPERATURES = np.array(CALIBRATION.temperatures)
TEMPERED = CALIBRATION.surprise * np.log1p(CALIBRATION.loosely / CALIBRATION.surprise * np.log(TEMPERATURES) ** 2)
# held-out log-likelihood against a temperature
NONE = -99  # half decades: marks no variance at all, far from those that are tried


@dataclass(frozen=True, eq=False)
class Fitted:
    """A mixture in a metric."""

    mixture: Mixture
    metric: Metric
    wide: Mixture | None = None  # what is believed when users are not taken to be exactly alike
    temperature: float = 1.0  # factor on the moderated margins that made held-out probabilities honest

    @property
    def believed(self) -> Mixture:
        """The mixture by which doubt is judged: the wider one, where there is one."""
        return self.mixture if self.wide is None else self.wide

    def covariances(self, users: slice) -> FloatArray:
        """Posterior covariances in the features as given, of users at consecutive positions, (n, d, d).

        Where held-out answers spoke for less spread between users than evidence does, that is no proof: the doubt is
        still that of evidence, and the distance between both answers on top.
        """
        believed, who = self.believed, range(*users.indices(len(self.mixture)))
        stacked = self.metric.dim <= STACKED_UP_TO
        C = covariances(believed, users) if stacked else np.array([believed.person(u).covariance() for u in who])
        off = self.mixture.mean[users] - believed.mean[users]
        return self.metric.covariance(C + off[:, :, None] * off[:, None, :])

    def covariance(self, user: int) -> FloatArray:
        """Posterior covariance of one user in the features as given, (d, d)."""
        return self.covariances(slice(user, user + 1))[0]

    def margins(self, Z: FloatArray, owner: IntArray) -> FloatArray:
        """Moderated margins of rows of some users, drawn towards 0 by doubt, so that probabilities are honest."""
        X, d = self.metric.rows(Z), self.metric.dim
        mean, variance = np.einsum("ij,ij->i", X, self.mixture.mean[owner]), np.empty(len(X))
        order = np.argsort(owner, kind="stable")
        users, first, counts = np.unique(owner[order], return_index=True, return_counts=True)
        if d > STACKED_UP_TO:
            for u, start, n in zip(users, first, counts, strict=True):
                mine = order[start : start + n]
                variance[mine] = self.mixture.person(int(u)).variance(X[mine])
            return self.temperature * moderated(mean, variance)
        for piece in pieces(len(users), d * d):
            C = self._covariances[users[piece]] if self._kept else covariances(self.mixture, users[piece])
            for n in np.unique(counts[piece]):  # users with as many rows at once
                some = np.flatnonzero(counts[piece] == n)
                rows = order[first[piece][some, None] + np.arange(n)]
                x = X[rows]
                variance[rows] = np.einsum("uij,uij->ui", np.matmul(x, C[some]), x)
        return self.temperature * moderated(mean, np.maximum(variance, 0.0))

    @property
    def _kept(self) -> bool:
        return len(self.mixture) * self.metric.dim**2 <= LIMITS.kept

    @cached_property
    def _covariances(self) -> FloatArray:
        """Everybody's, in the metric: what they are does not depend on when or for whom they are asked."""
        return covariances(self.mixture, slice(None))


# -- by evidence -------------------------------------------------------------------------------------------------------


class Fit(NamedTuple):
    """Users who differ by degrees, in a metric, as evidence says."""

    metric: Metric
    data: Signed
    degrees: Mixture

    @property
    def learnt(self) -> Learnt:
        """Metric, scales and sites, from which a fit of another kind may start."""
        return Learnt(self.metric, self.degrees.prior, self.degrees.sites)

    def for_others(self, rows: UserRows) -> Learnt:
        """Likewise, for other rows: sites that do not agree with it yet would lead a covariance away first."""
        data, prior = self.metric.signed(rows), self.degrees.prior
        sites = Sites.start(data.weights, (prior.within + prior.top) * data.sizes)
        return Learnt(self.metric, prior, _matched(data, sites, prior.within, prior.top, CALIBRATION.acquainted))


def fitted_in(rows: UserRows, kind: str, start: Learnt | None = None, rounds: int = METRIC.rounds) -> Fit:
    """Users who differ by degrees in a metric of this kind; `start` is of another kind, or was learnt from others."""
    if kind == "isotropic":
        size = above_zero(np.sqrt(np.mean(sizes(rows) ** 2)))
        metric = Metric(np.full(rows.dim, 1.0 / size))
        data = metric.signed(rows)
        return Fit(metric, data, fit_degrees(data))
    metric, prior, sites = learn_metric(rows, kind, Unit.of(rows, kind), start, rounds)
    data = metric.signed(rows)
    return Fit(metric, data, fit_degrees(data, METRIC.scales, prior, sites))


def with_scales(fit: Fit, times: tuple[float, float]) -> Mixture:
    """The same people with `times` the variances, between them and of what they share, and sites that agree."""
    within, top = _scales(fit.degrees.prior, times)
    prior, everybody = Prior(np.zeros(fit.data.dim), within, top, top), fit.degrees.share
    mixture = solved(fit.degrees.users, fit.degrees.sites, everybody, prior)
    for _ in range(CALIBRATION.matching):
        sites = mixture.refined(fit.data)
        mixture = solved(expand(fit.data, sites), sites, everybody, prior)
    return mixture


# -- by held-out answers -----------------------------------------------------------------------------------------------


class Option(NamedTuple):
    """A kind of metric, and half decades by which both variances differ from what evidence says."""

    kind: str = "isotropic"
    apart: int = 0  # of people from what they share
    common: int = 0  # of what they share

    @property
    def times(self) -> tuple[float, float]:
        """What both variances are, over what evidence says."""
        return 0.0 if self.apart == NONE else 10.0 ** (self.apart / 2.0), 10.0 ** (self.common / 2.0)

    @property
    def distance(self) -> float:
        """From what evidence says, in units of held-out log-likelihood: answers that tell nothing move nothing."""
        return CALIBRATION.farther * (max(self.apart, -CALIBRATION.moves) ** 2 + self.common**2)


class Verdict(NamedTuple):
    """What held-out answers speak for."""

    kind: str = "isotropic"
    times: tuple[float, float] | None = None  # variance between people, and of what they share, over what evidence says
    temperature: float = 1.0  # on the moderated margins
    loss: float | None = None  # of held-out answers, where they were asked
    over_pooled: tuple[float, float] | None = None  # log-loss gained on everybody pooled, a held-out answer; its error


@in_one_order
def judge(rows: UserRows, fits: dict[str, Fit], predict_for: str = "auto") -> Verdict:
    """The option that predicts held-out answers best, with the temperature that makes it honest.

    Isotropic, with the variances that evidence finds, stands unless another is clearly better. Fits to parts of the
    rows start from `fits`, those to all of them. `predict_for` decides what is held out together.
    """
    if len(rows) == 1 or rows.dim == 1:
        return Verdict()
    simple, splits = Option(), _splits(rows, predict_for)
    if not all(split.known.any() and split.unseen.any() for split in splits):
        return Verdict()
    loss: dict[Option, FloatArray] = {}
    for kind, fit in fits.items():
        metric = _where_most_varies(rows, fit.metric)
        if metric is None:
            return Verdict()
        loss |= _Court(rows, kind, fit._replace(metric=metric), splits).losses()
    total = {option: _total(each) + option.distance for option, each in loss.items()}
    option = min(total, key=lambda each: total[each])
    gain = _at_best(loss[simple]) - _at_best(loss[option])
    doubt = CALIBRATION.clearly + 0.5 * float(np.std(gain) * np.sqrt(len(gain)))
    option = option if total[option] + doubt < total[simple] else simple
    times = option.times if (option.apart, option.common) != (0, 0) else None
    pooled = min((each for each in loss if each.apart == NONE), key=lambda each: total[each])
    over_pooled = _gained(_at_best(loss[pooled]) - _at_best(loss[option]), rows, splits)
    return Verdict(option.kind, times, best_temperature(loss[option].sum(axis=0)), _total(loss[option]), over_pooled)


@in_one_order
def loss_of_groups(rows: UserRows, metric: Metric, groups: Mixture, predict_for: str = "auto") -> float:
    """Held-out loss of people in these groups, as in `judge`.

    Who belongs where was found with the answers that are held out, which flatters groups: they may be refused by it,
    not chosen.
    """
    total, metric = np.zeros((1, 1)), _where_most_varies(rows, metric) or metric
    for split in _splits(rows, predict_for):
        train, test = split_rows(rows, split.known, split.unseen)
        data, sites = metric.signed(train), groups.sites.of(split.known)
        case = _Case(data, metric.signed(test), split.weights, sites, np.diff(train.starts) > 0)
        mixture = _learnt_from(data, sites, groups)
        for _ in range(CALIBRATION.matching):  # as the options that groups are compared with
            mixture = _learnt_from(data, mixture.refined(data), groups)
        total = total + _loss(case, moderated(*mixture.margins(case.unseen)))
    return _total(total)


def _learnt_from(data: Signed, sites: Sites, groups: Mixture) -> Mixture:
    """These people in these groups, around a mean that knows no other answers."""
    prior = groups.prior._replace(m0=np.zeros(data.dim))
    known = solved(expand(data, sites), sites, groups.share, prior)
    apart = Apart.of(known.users, known.share, prior)
    prior = prior._replace(m0=common_mean(known.centres, apart, prior)[0])
    return solved(known.users, sites, known.share, prior, terms=known.terms)


def temperature_of_groups(groups: Mixture, data: Signed, known: IntArray) -> float:
    """The temperature at which each answer of those who are `known` is foretold best by all others, groups as they are.

    Held-out answers would be foretold by groups that they helped to find; one answer finds no group. Those who taught
    the prior are enough to judge one number by.
    """
    if len(known) < len(data):
        groups, data = groups.some(data, known), data.some(known)
    return best_temperature(losses_by_temperature(groups, data))


def losses_by_temperature(groups: Mixture, data: Signed) -> FloatArray:
    """How badly each answer is foretold by all others, in sum, at each temperature, (T,)."""
    middle, spread = cavities(groups.sites, data.weights, *groups.margins(data))
    margin = moderated(middle, spread)
    smaller, wrong = -np.abs(margin), float(data.weights @ np.maximum(-margin, 0.0))
    room = np.empty_like(margin)
    return np.array([float(data.weights @ _softened(smaller, t, room)) + t * wrong for t in TEMPERATURES.tolist()])


def _softened(smaller: FloatArray, temperature: FloatArray | float, out: FloatArray | None = None) -> FloatArray:
    """log(1 + exp(−t |m|)): a loss but for the t |m| of who was wrong, in half of the time of `logaddexp`."""
    out = np.multiply(smaller, temperature, out=out)
    return np.log1p(np.exp(out, out=out), out=out)


def best_temperature(loss: FloatArray) -> float:
    """Where these losses, and what speaks against a temperature, are least."""
    return float(TEMPERATURES[np.argmin((loss + TEMPERED).round(9))])


class _Split(NamedTuple):
    """Rows to learn from, and rows to be judged by."""

    known: BoolArray
    unseen: BoolArray
    weights: FloatArray  # of the latter: a row that is judged by several times counts once


def _splits(rows: UserRows, predict_for: str) -> list[_Split]:
    """Folds that match what will be asked."""
    order = leverage(rows) if rows.dim <= METRIC.full_up_to else None
    folds = held_out_folds(rows, CALIBRATION.folds, predict_for, order, CALIBRATION.deals)
    counts = rows.rows.weights if rows.judged is None else rows.judged
    weights = counts / np.maximum(np.sum([unseen for _, unseen in folds], axis=0), 1)
    return [_Split(known, unseen, weights[unseen]) for known, unseen in folds]


def _where_most_varies(rows: UserRows, metric: Metric) -> Metric | None:
    """The metric itself, or the directions in it along which rows vary most, which are enough to judge by.

    None where there are no such directions, and judging in all of them would take too long.
    """
    if metric.dim <= CALIBRATION.directions:
        return metric
    data = metric.signed(rows)
    values, axes = np.linalg.eigh((data.X.T @ data.X).astype(np.float64))
    if values[-CALIBRATION.directions :].sum() >= CALIBRATION.most_of_it * values.sum():
        axes = axes[:, -CALIBRATION.directions :]
        return Metric(metric.root[:, None] * axes if metric.root.ndim == 1 else metric.root @ axes)
    return metric if affordable(data).probe_users >= len(rows) else None


def _scales(prior: Prior, times: tuple[float, float]) -> tuple[float, float]:
    """Variances between people and of what they share, `times` what the prior says."""
    return bounded(times[0] * prior.within), bounded(times[1] * prior.top)


def _at_best(loss: FloatArray) -> FloatArray:
    """Of each user at the temperature that suits all, (U,)."""
    found: FloatArray = loss[:, np.argmin((loss.sum(axis=0) + TEMPERED).round(9))]
    return found


def _gained(each: FloatArray, rows: UserRows, splits: Sequence[_Split]) -> tuple[float, float]:
    """What users gained in all, as a mean over the answers that were held out of them, and its standard error."""
    heard = [np.bincount(rows.owner[split.known], minlength=len(rows)) > 0 for split in splits]
    asked = sum(float(split.weights @ of[rows.owner[split.unseen]]) for of, split in zip(heard, splits, strict=True))
    asked = float(above_zero(asked))
    return float(each.sum()) / asked, float(np.std(each) * np.sqrt(len(each))) / asked


def _total(loss: FloatArray) -> float:
    """At the temperature that suits, to a few digits."""
    return round(float((loss.sum(axis=0) + TEMPERED).min()), 9)


class _Case(NamedTuple):
    """One part of the rows to learn from, and another to predict."""

    known: Signed
    unseen: Signed
    weights: FloatArray  # of the latter's rows
    sites: Sites
    heard: BoolArray  # users of whom there is something to learn from


class _Court:
    """The options of one kind of metric, before the same held-out answers."""

    def __init__(self, rows: UserRows, kind: str, fit: Fit, splits: Sequence[_Split]) -> None:
        self.kind, self.prior = kind, fit.degrees.prior
        self.cases = [self._case(rows, fit, split) for split in splits]
        self.missed = _missed(splits)

    def _case(self, rows: UserRows, fit: Fit, split: _Split) -> _Case:
        train, test = split_rows(rows, split.known, split.unseen)
        metric, sites = fit.metric, fit.degrees.sites.of(split.known)
        if self.kind != "isotropic":  # what was learnt from all rows knows the answers that are held out
            start = Learnt(metric, self.prior, sites)
            metric, _, sites = learn_metric(train, self.kind, Unit.of(rows, self.kind), start, METRIC.again)
        return _Case(metric.signed(train), metric.signed(test), split.weights, sites, np.diff(train.starts) > 0)

    def losses(self) -> dict[Option, FloatArray]:
        """(U, T) of each option; sites are matched to the best so far, until that stays the best of its neighbours."""
        found: dict[Option, FloatArray] = {}
        middle, seen = Option(self.kind), set[Option]()
        while middle not in seen and len(seen) < CALIBRATION.moves:
            seen.add(middle)
            found |= self._around(middle)
            best = min(found, key=lambda option: _total(found[option]) + option.distance)
            near = max(abs(best.apart - middle.apart) if best.apart != NONE else 0, abs(best.common - middle.common))
            if near <= 1:
                break
            middle = best
        return found

    def _around(self, middle: Option) -> dict[Option, FloatArray]:
        reach = range(-CALIBRATION.reach, CALIBRATION.reach + 1)
        apart = [NONE, *(middle.apart + step for step in reach if middle.apart != NONE)]
        if middle.apart == NONE:
            apart += CALIBRATION.from_none
        options = [[Option(self.kind, a, middle.common + step) for step in reach] for a in apart]
        loss = {option: np.zeros((1, 1)) for row in options for option in row}
        for k, case in enumerate(self.cases):
            sites = _matched(case.known, case.sites, *_scales(self.prior, middle.times), CALIBRATION.matching)
            self.cases[k] = case = case._replace(sites=sites)
            users = expand(case.known, case.sites)
            for row in options:
                within = _scales(self.prior, row[0].times)[0]
                terms = users.at(within)
                through, own = kept_rows(case.unseen, terms, within)
                for option in row:
                    centre = _centre(terms, _scales(self.prior, option.times)[1])
                    mean, spread = centred_beliefs(case.unseen, through, own, within, *centre)
                    margin = moderated(mean, self.missed * spread)
                    loss[option] = loss[option] + _loss(case, margin)
        return loss


def _matched(data: Signed, sites: Sites, within: float, top: float, rounds: int) -> Sites:
    """Sites that agree with these variances."""
    for _ in range(rounds):
        terms = expand(data, sites).at(within)
        beliefs = row_beliefs(data, terms, within, *_centre(terms, top))
        sites = matched(sites, data, *beliefs, partial(Around.one, centre=np.zeros(data.dim), variance=within + top))
    return sites


def _missed(splits: Sequence[_Split]) -> float:
    """Rows learnt from, over those that folds of rows would learn from.

    Where items are dealt to folds, rows between folds are neither learnt from nor judged by. With them doubt would be
    smaller, and errors hardly would: what is not known about new items follows from how many items were seen. So doubt
    counts as if they had been learnt from, else the temperature would be right for less sure predictions than are made.
    """
    known, unseen = (np.mean([split[side].mean() for split in splits]) for side in (0, 1))
    return float(known / (known + 0.5 * (1.0 - known - unseen)))  # of a row between folds one end is in each


def _centre(terms: Terms, top: float) -> tuple[FloatArray, FloatArray]:
    """What all share, N(mean, doubt)."""
    A = terms.A.sum(axis=0, dtype=np.float64)
    doubt = np.linalg.inv(A + np.eye(len(A)) / top)
    return doubt @ terms.a.sum(axis=0), doubt


def _loss(case: _Case, margin: FloatArray) -> FloatArray:
    """Of each user, at each temperature, (U, T)."""
    margin = margin if case.unseen.offset is None else margin + case.unseen.offset
    each = _softened(-np.abs(margin)[:, None], TEMPERATURES)
    each += np.outer(np.maximum(-margin, 0.0), TEMPERATURES)
    each *= case.weights[:, None]
    return per_user_sum(each, case.unseen.starts) * case.heard[:, None]
