"""The public results of a fit as arrays, and how far two such results are from each other."""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.problems import Problem

Results = dict[str, np.ndarray]

COVARIANCES, MARGINS = 3, 8  # users whose covariance is stored, as the covariance of so many margins
THETA, THETA_AFTER, PAIRED = 1500, 900, 24  # numbers stored of theta_, of theta_ after update; users of co-membership

# One word for each structure, whatever a version calls it.
STRUCTURE = {"by degrees": "continuous", "complete pooling": "one group", "no pooling": "unrelated"}


def estimator(**settings: Any) -> Any:
    """prefkin.PrefKin, or the estimator that PREFKIN_ESTIMATOR names as module:Class."""
    module, _, name = os.environ.get("PREFKIN_ESTIMATOR", "prefkin:PrefKin").partition(":")
    return getattr(import_module(module), name)(n_jobs=1, **settings)


def structure_of(model: Any) -> str:
    """The structure in the words of `STRUCTURE`."""
    return STRUCTURE.get(str(model.structure_), str(model.structure_))


def evidence_of(model: Any) -> dict[str, float]:
    """Log evidence of each structure in the words of `STRUCTURE`."""
    return {STRUCTURE.get(name, name): float(value) for name, value in model.evidence_.items()}


def temperature_of(model: Any) -> float:
    """The factor on the moderated margins."""
    return float(model.temperature_ if hasattr(model, "temperature_") else model.fold_in().temperature)


def position_bias_of(model: Any) -> np.ndarray:
    """Log odds for the first side of each user; zeros where the model has none."""
    for name in ("position_bias_", "habit_"):
        if hasattr(model, name):
            return np.asarray(getattr(model, name))
    return np.zeros(len(model.users_))


def spread_out(n: int, most: int) -> np.ndarray:
    """At most `most` positions out of n, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, max(most, 1))).round().astype(int))


def results(problem: Problem, folder: Path) -> Results:
    """Fit, and call what the problem has arguments for. Users are in the order of their labels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator(**problem.settings).fit(problem.opened(folder))
        users, evidence, membership = np.asarray(model.users_), evidence_of(model), np.asarray(model.membership_)
        order = np.argsort(users)  # shards may have another order
        users, theta = users[order], np.asarray(model.theta_)[order]
        chosen, paired = users[spread_out(len(users), COVARIANCES)], order[spread_out(len(users), PAIRED)]
        margins = problem.asked[:MARGINS]
        covariances = np.array([model.covariance(user) for user in chosen.tolist()])
        new, anybody = model.fold_in(problem.new_rows, problem.new_y), model.fold_in()
        bias = position_bias_of(model)
        found = {
            "structure": np.array(structure_of(model)),
            "evidence": np.array([evidence["continuous"], evidence["groups"]]),
            "temperature": np.array(temperature_of(model)),
            "position_bias": np.array([bias.mean(), bias.std()]),
            "theta": theta[spread_out(len(users), THETA // theta.shape[1])],
            "radius": np.asarray(model.radius_)[order],
            "together": membership[paired, :-1] @ membership[paired, :-1].T,
            "singleton": membership[order, -1],
            "covariance_of_margins": margins @ covariances @ margins.T,
            "predicted": model.predict_proba(problem.asked, users=problem.asked_users)[:, 1],
            "fold_in_theta": new.theta,
            "fold_in_radius": np.array(new.radius),
            "fold_in_predicted": new.predict_proba(problem.new_asked)[:, 1],
            "unknown_theta": anybody.theta,
            "unknown_radius": np.array(anybody.radius),
            "unknown_predicted": anybody.predict_proba(problem.new_asked)[:, 1],
        }
        model.update(problem.more)
        users = np.asarray(model.users_)
        after = np.asarray(model.theta_)[np.argsort(users)]
        found["updated_theta"] = after[_of_update(np.sort(users), np.unique(problem.more.users), theta.shape[1])]
    return {name: value if value.dtype.kind == "U" else value.astype(np.float64) for name, value in found.items()}


def _of_update(users: np.ndarray, answered: np.ndarray, d: int) -> np.ndarray:
    """Positions of the users with new answers, then of some others; THETA_AFTER numbers in all where that suffices."""
    again = np.flatnonzero(np.isin(users, answered))
    room = max(THETA_AFTER // d - len(again), 0)
    return np.concatenate([again, spread_out(len(users), room)[:room]])


# -- differences -------------------------------------------------------------------------------------------------------


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of the rows of two matrices; 1 where both rows are 0."""
    product = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    inner = (one * other).sum(axis=-1)
    both_zero = (np.abs(one) < 1e-9).all(axis=-1) & (np.abs(other) < 1e-9).all(axis=-1)
    return np.where(both_zero, 1.0, inner / np.maximum(product, 1e-300))


def log_ratio(found: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """Absolute log ratio of positive numbers."""
    return np.abs(np.log(np.maximum(found, 1e-300) / np.maximum(stored, 1e-300)))


def differences(stored: Results, found: Results) -> dict[str, float]:
    """Numbers that are 0 where two results agree."""

    def size(results: Results, name: str) -> np.ndarray:
        return np.linalg.norm(results[name], axis=-1)

    def apart(name: str) -> np.ndarray:
        return np.abs(found[name] - stored[name])

    theta, after = (1.0 - cosines(found[name], stored[name]) for name in ("theta", "updated_theta"))
    covariance = np.linalg.norm(found["covariance_of_margins"] - stored["covariance_of_margins"], axis=(1, 2))
    return {
        "predicted, mean": float(apart("predicted").mean()),
        "predicted, largest": float(apart("predicted").max()),
        "theta, mean 1 - cos": float(theta.mean()),
        "theta, largest 1 - cos": float(theta.max()),
        "theta, log ratio of norms": float(log_ratio(size(found, "theta"), size(stored, "theta")).mean()),
        "radius, log ratio": float(log_ratio(found["radius"], stored["radius"]).mean()),
        "covariance": float((covariance / np.linalg.norm(stored["covariance_of_margins"], axis=(1, 2))).max()),
        "together, mean": float(apart("together").mean()),
        "singleton, mean": float(apart("singleton").mean()),
        "temperature, log ratio": float(log_ratio(found["temperature"], stored["temperature"])),
        "position bias": float(apart("position_bias")[0]),
        "fold_in, 1 - cos": float(1.0 - cosines(found["fold_in_theta"], stored["fold_in_theta"])),
        "fold_in, predicted": float(apart("fold_in_predicted").mean()),
        "fold_in, log ratio of radius": float(log_ratio(found["fold_in_radius"], stored["fold_in_radius"])),
        "unknown, predicted": float(apart("unknown_predicted").mean()),
        "unknown, log ratio of radius": float(log_ratio(found["unknown_radius"], stored["unknown_radius"])),
        "update, mean 1 - cos": float(after.mean()),
        "update, log ratio of norms": float(
            log_ratio(size(found, "updated_theta"), size(stored, "updated_theta")).mean()
        ),
    }


def preference_for_groups(results: Results) -> float:
    """Log evidence of groups over continuous heterogeneity."""
    continuous, groups = results["evidence"]
    return float(groups - continuous)
