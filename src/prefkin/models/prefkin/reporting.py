"""What a fitted `PrefKin` says of itself: its summary, and warnings where results rest on little."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from prefkin.data.arrays import FloatArray
from prefkin.errors import CalibrationWarning, ConvergenceWarning, SeparationWarning
from prefkin.models.prefkin.settings import REPORTING
from prefkin.models.prefkin.shares import own_share
from prefkin.models.reports import Summary

if TYPE_CHECKING:
    from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["summary_of", "warn_of_miscalibration", "warn_of_the_fit"]


def summary_of(model: PrefKin) -> Summary:
    """How alike users are, and how sure that is."""
    grouped, more = model.structure_ == "groups", dict[str, Any]()
    if model._in_shards is not None:
        n, places, sums = model._in_shards.data.n_users, model._in_shards.counts, model._in_shards.sums
    else:
        n, membership = len(model._users), model.membership_
        places = np.bincount(np.argmax(membership, axis=1), minlength=membership.shape[1])
        uncertain = (membership.max(axis=1) < REPORTING.certain_place).sum()
        sums = np.array([uncertain, from_others(model).sum(), model._users.counts.sum()])
        more = model._who_is_like_whom(model.structure_) | {"over_pooled": model._learnt.over_pooled}
        if model.habit_.any():
            more["first_side"] = float(np.mean(model.habit_)), float(np.std(model.habit_))
    return Summary(
        model.structure_,
        n,
        float(sums[2]),
        model.n_features_in_,
        tuple(sorted((int(size) for size in places[:-1] if size), reverse=True)) if grouped else (),
        int(places[-1]) if grouped else 0,
        int(sums[0]) if grouped else None,
        float(sums[1]) / n,
        None if n == 1 else model.evidence_["groups"] - model.evidence_["by degrees"],
        temperature=model.temperature_,
        **more,
    )


def from_others(model: PrefKin) -> FloatArray:
    """Share of each estimate that others decide, (U,); 0 where nobody is likely in the same group."""
    groups, n = model.membership_[:, :-1], len(model._users)
    if n < 2 or not groups.shape[1]:
        return np.zeros(n)
    top, everybody = np.argmax(groups, axis=1), np.arange(n)
    first, second = np.argsort(-groups, axis=0, kind="stable")[:2, top]  # the likeliest members of each one's group
    other = np.where(first == everybody, second, first)
    joined = np.einsum("uk,uk->u", groups, groups[other]) > 0.5
    own = [own_share(model._learnt.posterior, u) if joined[u] else 1.0 for u in range(n)]
    return 1.0 - np.array(own)


def warn_of_the_fit(model: PrefKin, margin: FloatArray) -> None:
    """Where the fit did not converge, and where probabilities rest on the temperature or on the prior.

    margin: zᵀθ of the rows that were learnt from.
    """
    if not model.converged_:
        warnings.warn(
            f"expectation propagation has not converged in {model.n_iter_} iterations: estimates are near, not at, the "
            "fixed point; look for features or weights of very different sizes, and scale them",
            ConvergenceWarning,
            stacklevel=4,
        )
    if not 1.0 / REPORTING.usual_temperature <= model.temperature_ <= REPORTING.usual_temperature:
        warnings.warn(
            f"the temperature is {model.temperature_:.2g}: held-out answers are predicted best with log odds "
            "multiplied by that; look for rows that were entered twice, weights that are not counts, and too few items "
            "(prefkin audit), and check probabilities on answers of your own",
            CalibrationWarning,
            stacklevel=4,
        )
    users = model._users
    agreement = ((2.0 * users.rows.y - 1.0) * margin)[(users.rows.weights > 0) & users.rows.Z.any(axis=1)]
    if len(agreement) > users.dim and agreement.min() > 0 and float(np.median(agreement)) > REPORTING.confident:
        warnings.warn(
            "every answer agrees with the fit, so that nothing tells how strong preferences are: their directions "
            "stand, but probabilities near 0 and 1 rest on the prior; repeated or closer comparisons would tell",
            SeparationWarning,
            stacklevel=4,
        )


def warn_of_miscalibration(model: PrefKin, margin: FloatArray) -> None:
    """Where benchmarks/coverage.py found radii too small: few rows, or answers that are nearly certain."""
    users = model._users
    typical, d, chance = float(np.median(users.counts)), users.dim, expit(margin)
    slope = float(np.average(chance * (1.0 - chance), weights=users.rows.weights))
    if typical < REPORTING.thin * d:
        reason = f"users have {typical:.3g} comparisons each for {d} features (median)"
    elif slope < REPORTING.certain and typical < 10 * REPORTING.thin * d:
        reason = "answers are nearly certain, so that little tells how strong preferences are"
    else:
        return
    warnings.warn(
        f"radius_ may be too small: {reason}; directions and probabilities suffer less, more comparisons help",
        CalibrationWarning,
        stacklevel=5,
    )
