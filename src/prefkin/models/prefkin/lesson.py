"""What people teach about people: which metric, groups or degrees, and with how much trust.

Evidence decides between groups and degrees; where groups are not clear, held-out answers choose the metric, both scales
and the temperature. Everybody learns from it later (`settling`); those who teach are as many as can be afforded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from prefkin.data.arrays import IntArray
from prefkin.data.folds import by_content
from prefkin.data.rows import UserRows, only, spread
from prefkin.inference.quadratics import Signed
from prefkin.models.calls import generator
from prefkin.models.prefkin.calibrate import Fit, Verdict, fitted_in, judge, loss_of_groups, with_scales
from prefkin.models.prefkin.degrees import fit_degrees
from prefkin.models.prefkin.groups import find_groups
from prefkin.models.prefkin.habit import with_habits
from prefkin.models.prefkin.metric import KINDS, Metric, free_numbers
from prefkin.models.prefkin.mixture import Mixture
from prefkin.models.prefkin.modes import at_their_modes
from prefkin.models.prefkin.settings import (
    CALIBRATION,
    LIMITS,
    METRIC,
    SCALES,
    TRUST,
    is_crowd,
    largest_crowd,
    most_teachers,
)

__all__ = ["Lesson", "Teacher"]


class Lesson(NamedTuple):
    """What some people taught about all."""

    rows: UserRows  # of everybody, beside habits where there are any
    known: IntArray  # positions of those who taught it
    data: Signed  # their rows in the metric
    metric: Metric
    chosen: Mixture  # of those who taught it
    wide: Mixture | None  # likewise, where held-out answers spoke for less spread than evidence
    temperature: float
    tempered: bool  # is the temperature still to be found, with everybody placed?
    structure: str
    evidence: dict[str, float]
    own_variance: float  # of people, for estimates from own rows alone
    over_pooled: tuple[float, float] | None  # log-loss gained on everybody pooled, a held-out answer; its error


@dataclass(frozen=True)
class Teacher:
    """Learns about people, as `PrefKin` was asked to: its parameters of these names."""

    metric: str
    predict_for: str
    random_state: Any

    def lesson(self, rows: UserRows) -> Lesson:
        """What these people, or as many of them as can be afforded, teach about people."""
        each = len(rows.rows.y) / len(rows)
        known = self._sample(rows, most_teachers(rows.dim))
        crowd = self._sample(rows, max(largest_crowd(len(rows), each, rows.dim), len(known)))
        rows, plain = with_habits(rows, known, fitted_in(only(rows, known), "isotropic"))
        few, some = only(rows, known), search(plain, None)
        company = only(rows, crowd) if len(crowd) > len(known) else None
        verdict, found = Verdict(), some
        if self._clear(some, few):
            found = some if company is None else search(some.fit, company)
        else:
            known = self._sample(rows, most_teachers(rows.dim, each))
            people = only(rows, known)
            fit, verdict = self._in_a_metric(people, some.fit)
            if verdict.kind != "isotropic":
                found = search(fit, company)
            elif company is not None:
                found = search(some.fit, company)
                found = found if found.grouped else found._replace(fit=fit)
            if found.grouped and verdict.kind != "isotropic" and self.metric == "auto":
                # people in groups differ where the groups do, which looks like a covariance: evidence decides
                alike = search(some.fit, company, found)
                if alike.grouped and alike.beats(found.groups.evidence, verdict.kind):
                    found = alike
            asked = found.grouped and company is None
            # answers about items that recur depend on each other, which evidence takes for likeness
            if asked and verdict.loss is not None:
                loss = loss_of_groups(people, found.fit.metric, found.groups, self.predict_for)
                if loss > verdict.loss + CALIBRATION.clearly:
                    found = Search(fit, fit.data, fit.degrees, fit.degrees)
        grouped, metric, degrees = found.grouped, found.fit.metric, found.fit.degrees
        chosen, wide = found.groups if grouped else degrees, None
        if not grouped and verdict.times is not None:
            chosen, wide = with_scales(found.fit, verdict.times), degrees
        evidence = found.groups.evidence if len(rows) > 1 else -np.inf
        data = found.data if grouped else found.fit.data
        return Lesson(
            rows,
            crowd if grouped else known,
            data,
            metric,
            at_their_modes(chosen, data),
            None if wide is None else at_their_modes(wide, data),
            1.0 if grouped else verdict.temperature,
            grouped and not few.recurring,
            _structure(chosen, degrees, grouped),
            {"by degrees": found.everybody.evidence, "groups": evidence},
            degrees.prior.within + float((degrees.centres.mean[0] ** 2).sum()) / metric.dim,
            None if grouped else verdict.over_pooled,
        )

    def _clear(self, found: Search, rows: UserRows) -> bool:
        """Do groups explain these people's answers better than any covariance of people does?

        Then they need no held-out answers to be believed, unless answers are about items that recur.
        """
        if not found.grouped or self.metric not in ("auto", "isotropic"):
            return False
        if self.metric == "auto" and rows.recurring:
            return False
        if self.metric == "isotropic" or not 1 < rows.dim <= METRIC.full_up_to:
            return True
        rival = fitted_in(rows, "whitened", rounds=METRIC.again)
        return found.beats(rival.degrees.evidence + TRUST.clearly, "whitened")

    def _in_a_metric(self, rows: UserRows, plain: Fit) -> tuple[Fit, Verdict]:
        """Users who differ by degrees, in the metric asked for or the one that held-out answers speak for.

        Each kind is learnt from those who judge; the chosen one then, begun there, from all of these users.
        """
        some = self._sample(rows, max(LIMITS.most_users, CALIBRATION.answers * len(rows) // len(rows.rows.y)))
        few = only(rows, some)
        fits = {"isotropic": plain if len(plain.data) == len(rows) else fitted_in(few, "isotropic")}
        wanted = KINDS[1:] if self.metric == "auto" else () if self.metric == "isotropic" else (self.metric,)
        for kind in wanted if rows.dim > 1 and (self.metric != "auto" or rows.dim <= METRIC.full_up_to) else ():
            begin = fits["diagonal"].learnt if kind == "full" and "diagonal" in fits else None
            fits[kind] = fitted_in(few, kind, begin)
        verdict = judge(few, fits, self.predict_for) if self.metric == "auto" else Verdict(list(fits)[-1])
        fit = fits[verdict.kind]
        if len(few) < len(rows):
            fit = fitted_in(rows, verdict.kind, fit.for_others(rows))
        return fit, verdict

    def _sample(self, rows: UserRows, most: int) -> IntArray:
        """So many users: everybody, or some spread by what they answered, not by their place."""
        if len(rows) <= most:
            return np.arange(len(rows))
        order = by_content(rows)
        if self.random_state is None:
            return np.sort(order[spread(len(rows), most)])
        return np.sort(generator(self.random_state).permutation(order)[:most])


class Search(NamedTuple):
    """What was learnt in one metric."""

    fit: Fit  # of those from whom the metric is learnt
    data: Signed  # rows of those among whom groups were sought
    everybody: Mixture  # by degrees, too: the same people
    groups: Mixture

    @property
    def grouped(self) -> bool:
        """Do the answers speak for groups?"""
        if len(self.groups) == 1 or self.groups.share.shape[1] == 0:
            return False
        many = len(self.everybody) if is_crowd(len(self.everybody)) else 0
        return self.groups.evidence > self.everybody.evidence + max(TRUST.clearly, many * TRUST.clearly_each)

    def beats(self, evidence: float, kind: str) -> bool:
        """Is this isotropic one better than that of another metric, at half a unit for each of its free numbers?"""
        return self.groups.evidence + free_numbers(kind, len(self.fit.metric.root)) / 2.0 > evidence


def search(fit: Fit, company: UserRows | None, like: Search | None = None) -> Search:
    """Groups among the `company`, or those from whom the metric was learnt; `like` another search among them."""
    data, everybody = fit.data, fit.degrees
    if company is not None:
        data = fit.metric.signed(company)
        rounds, sites = (SCALES.crowd, None) if like is None else (SCALES.other_units, like.everybody.sites)
        everybody = fit_degrees(data, rounds, everybody.prior, sites)
    groups = find_groups(data, everybody, None if like is None else like.groups) if len(data) > 1 else everybody
    return Search(fit, data, everybody, groups)


def _structure(chosen: Mixture, degrees: Mixture, are_groups: bool) -> str:
    """What was seen, in two words."""
    if are_groups:
        sizes = np.bincount(np.argmax(chosen.weights, axis=1), minlength=chosen.share.shape[1] + 1)
        return "one group" if sizes[:-1].max(initial=0) == len(chosen) else "groups"
    if len(chosen) == 1:
        return "unrelated"
    common, apart = float((degrees.centres.mean[0] ** 2).sum()), len(degrees.prior.m0) * chosen.prior.within
    if apart <= TRUST.alike * common:
        return "one group"
    return "unrelated" if apart >= TRUST.unrelated * common else "by degrees"
