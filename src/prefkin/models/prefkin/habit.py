"""A habit of taking the first side, whatever is on it.

Somebody with such a habit prefers the first with log odds zᵀθ + b. What a row's margin zᵀθ would be without its own
answer, expectation propagation knows; what is left in the answers is the habit. Each person's b with its doubt, from
one step of Newton's, is a measurement; people's habits are N(mean, spread²), by evidence. Where there is no habit,
evidence says so, and nothing else is done. Where there is one, preferences are learnt again beside it.

Rows in which nearly always the first was preferred were written with the winner first: then sides mean nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from prefkin.data.arrays import FloatArray, IntArray, above_zero
from prefkin.data.rows import UserRows, only
from prefkin.inference.loss import widening
from prefkin.inference.propagation import cavities
from prefkin.inference.quadratics import Signed
from prefkin.models.prefkin.calibrate import Fit, fitted_in
from prefkin.models.prefkin.mixture import Mixture
from prefkin.models.prefkin.settings import HABIT
from prefkin.models.prefkin.settling import settle

__all__ = ["Habits", "find_habits", "sides_mean_something", "with_habits"]


class Habits(NamedTuple):
    """Log odds of taking the first side."""

    each: FloatArray  # (U,)
    mean: float
    spread: float  # standard deviation between people
    evidence: float  # log evidence over no habit at all


def with_habits(rows: UserRows, known: IntArray, fit: Fit) -> tuple[UserRows, Fit]:
    """Rows that know people's habits, where there are any, and a fit to some of the people (`known`) beside them."""
    if not sides_mean_something(rows):
        return rows, fit
    if find_habits(only(rows, known), fit.degrees, fit.data).evidence < HABIT.clearly:
        return rows, fit
    for _ in range(HABIT.rounds):
        data = fit.data if len(known) == len(rows) else fit.metric.signed(rows)
        people = fit.degrees if len(known) == len(rows) else settle(fit.degrees, known, data)
        rows = replace(rows, habits=find_habits(rows, people, data).each)
        fit = fitted_in(only(rows, known), "isotropic")
    return rows, fit


def find_habits(rows: UserRows, people: Mixture, data: Signed) -> Habits:
    """Everybody's habit, preferences being as they are in `people`; `data` are the rows in their metric.

    >>> from prefkin.data.comparisons import Comparisons
    >>> rng = np.random.default_rng(0)
    >>> first, second, users = rng.normal(size=(600, 2)), rng.normal(size=(600, 2)), np.repeat(np.arange(10), 60)
    >>> y = rng.random(600) < expit((first - second) @ [1.0, -1.0] + 0.8)
    >>> rows = Comparisons.from_sides(first, second, y, users).by_user()
    >>> fit = fitted_in(rows, "isotropic")
    >>> found = find_habits(rows, fit.degrees, fit.data)
    >>> round(found.mean, 1), found.evidence > 10
    (0.9, True)
    """
    middle, spread = cavities(people.sites, data.weights, *people.margins(data))
    sign, keep, owner = 2.0 * rows.rows.y - 1.0, 1.0 / widening(spread), rows.owner

    def measured(habits: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Habits, and their precision, as answers tell."""
        miss = expit(-keep * (middle + sign * habits[owner]))
        pull = np.bincount(owner, rows.rows.weights * keep * sign * miss, len(rows))
        known = np.bincount(owner, rows.rows.weights * keep**2 * miss * (1.0 - miss), len(rows)).astype(np.float64)
        return habits + pull / above_zero(known), known

    habits = np.zeros(len(rows))
    _, _, evidence = _population(*measured(habits))
    for _ in range(HABIT.steps):
        seen, known = measured(habits)
        mean, variance, _ = _population(seen, known)
        habits = np.clip((known * variance * seen + mean) / (known * variance + 1.0), -HABIT.most, HABIT.most)
    return Habits(habits, mean, float(np.sqrt(variance)), evidence)


def _population(seen: FloatArray, known: FloatArray) -> tuple[float, float, float]:
    """Mean and variance of what was measured with these precisions, and the log evidence over both being 0."""
    told = known > 0
    seen, known = seen[told], known[told]
    best = (0.0, 0.0, 0.0)
    for variance in HABIT.variances:
        weight = known / (1.0 + variance * known)
        mean = float(weight @ seen / above_zero(weight.sum()))
        off = weight * (seen - mean) ** 2
        gain = 0.5 * float(np.sum(known * seen**2 - off - np.log1p(variance * known)))
        best = max(best, (mean, variance, gain), key=lambda one: one[2])
    return best


def sides_mean_something(rows: UserRows) -> bool:
    """Are sides known, and not written with the winner on the same one?"""
    share = float(np.average(rows.rows.y, weights=rows.rows.weights))
    return rows.sided and len(rows.rows.y) >= HABIT.least_rows and min(share, 1.0 - share) >= HABIT.least_share
