"""A trial: a specification in, rows out. A pure function, so that order, processes and restarts do not matter."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.special import expit
from sklearn.metrics import adjusted_rand_score

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.data.comparisons import Comparisons
from prefkin.decide.policy import best_policy
from prefkin.errors import PrefkinWarning
from prefkin.evaluate.metrics import pair_precision_recall, scores, user_means
from prefkin.execution.blas import in_one_order
from prefkin.execution.usage import peak_memory_gb
from prefkin.inference.information import confidence_width
from prefkin.models.off_c2pl.radius import KAPPA_UNIT_BALL
from prefkin.reproduce.contracts import Estimate, Method, Study, Truth, method, seed_of
from prefkin.reproduce.talk import converse
from prefkin.reproduce.worlds import WORLDS
from prefkin.reproduce.worlds.pairs import data_folder
from prefkin.reproduce.worlds.world import World, relative_gap

__all__ = ["NOT_COMPARED", "Trial", "run_trial"]

NOT_COMPARED = ("seconds", "memory_gb", "trial_seconds")  # columns that differ from run to run and machine to machine


@dataclass(frozen=True)
class Trial:
    """One cell of one experiment, one run; all methods meet the same data."""

    experiment: str
    data: str
    kind: str  # "offline" or "active"
    cell: tuple[tuple[str, Any], ...]
    run: int
    settings: tuple[tuple[str, Any], ...]
    methods: tuple[str, ...]

    @property
    def key(self) -> str:
        """Names the trial by everything that decides its rows."""
        text = json.dumps([self.experiment, self.data, self.kind, self.cell, self.run, self.settings, self.methods])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def all_settings(self) -> dict[str, Any]:
        """Settings with those of the cell on top."""
        return {**dict(self.settings), **dict(self.cell)}

    @property
    def weight(self) -> float:
        """Roughly how much work it is, for the estimate of the time left."""
        s = self.all_settings
        return float(s.get("dim", 10)) * float(s.get("budget", s.get("rounds", 100))) + 2000.0


@in_one_order
def run_trial(trial: Trial) -> list[dict[str, Any]]:
    """The rows of a trial, one per method (offline) or per method and number of questions (active)."""
    settings, begun = trial.all_settings, time.perf_counter()
    world = _world(trial.data, settings, seed_of(trial.experiment, trial.data, trial.run))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefkinWarning)
        rows = (_offline if trial.kind == "offline" else _active)(trial, world, settings)
    about = {"trial": trial.key, "experiment": trial.experiment, "data": trial.data, "run": trial.run}
    spent = {"trial_seconds": round(time.perf_counter() - begun, 3)}
    return [{**about, **dict(trial.cell), **row, **spent} for row in rows]


def _world(data: str, settings: Mapping[str, Any], seed: np.random.SeedSequence) -> World:
    (draw, read), rng = WORLDS[data], np.random.default_rng(seed)
    given = {name: settings[name] for name in signature(draw).parameters if name in settings}
    if read is None:
        given["rows"] = settings.get("budget", settings["rows"])  # the first rows of what more would be
        return draw(rng, **given)
    return draw(_original(read), rng, **given)


@lru_cache(maxsize=1)
def _original(read: Callable[[Path], Any]) -> Any:
    return read(data_folder())


# -- offline -----------------------------------------------------------------------------------------------------------


def _offline(trial: Trial, world: World, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    seen = np.flatnonzero(world.budget(int(settings["budget"])))
    data = world.data.take(seen)
    advantage = world.advantage[seen][np.argsort(data.who, kind="stable")]
    study = _study(trial, data, settings)
    truth = Truth(world, lambda theta: world.logged_gap(theta, study.rows, advantage))
    chosen = [method(key) for key in trial.methods]
    _, own_seconds = _seconds(lambda: study.own)
    estimates: dict[str, tuple[Estimate, float]] = {}
    _pool_groupings(study, truth, [m for m in chosen if m.kind == "grouping"], estimates)
    for one in chosen:
        if one.kind == "estimator":
            estimates[one.key] = _seconds(_call, one, study, truth)
    test_user = trial.run % world.n_users
    n_shown = int(settings["policy_contexts"])
    shown = Candidates(list(world.contexts)[:n_shown]) if n_shown else None
    rows = []
    for one in chosen:
        estimate, seconds = estimates[one.key]
        judged = _judge(world, truth, estimate)
        judged["gap_pessimistic"] = (
            None if shown is None else _pessimistic_gap(study, world, estimate, test_user, shown)
        )
        rows.append(
            {
                "method": one.key,
                **judged,
                "note": estimate.note,
                "seconds": round(seconds + own_seconds, 4),
                "memory_gb": round(peak_memory_gb(), 3),
            }
        )
    return rows


def _study(trial: Trial, data: Comparisons, settings: Mapping[str, Any]) -> Study:
    return Study(data.by_user(), settings, (trial.experiment, trial.data, str(trial.cell), trial.run))


def _seconds(work: Callable[..., Any], *given: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = work(*given)
    return result, time.perf_counter() - start


def _call(one: Method, study: Study, truth: Truth) -> Any:
    return one.run(study, truth) if one.told else one.run(study)


def _pool_groupings(
    study: Study, truth: Truth, groupings: list[Method], estimates: dict[str, tuple[Estimate, float]]
) -> None:
    """All groupings are pooled in one go; the time of that is shared out by the rows each of them uses."""
    members, seconds = {}, {}
    for one in groupings:
        members[one.key], seconds[one.key] = _seconds(_call, one, study, truth)
    every = [some for parts in members.values() for some in parts]
    pooled, spent = _seconds(study.pool, every)
    used = {key: sum(len(s) for s in {p.tobytes(): p for p in parts}.values()) for key, parts in members.items()}
    total, at = max(sum(used.values()), 1), 0
    for key, parts in members.items():
        theta, at = pooled[at : at + len(parts)], at + len(parts)
        estimates[key] = Estimate(theta, parts), seconds[key] + spent * used[key] / total


def _judge(world: World, truth: Truth, estimate: Estimate) -> dict[str, float | None]:
    loss, right = _predicted(world.held_out, estimate)
    graph: dict[str, float | None] = {"precision": None, "recall": None, "rand": None}
    if world.group is not None:
        precision, recall = pair_precision_recall(estimate.members, world.group)
        graph = {"precision": precision, "recall": recall, "rand": _rand(estimate.members, world.group)}
    return {
        "gap": float(world.fresh_gap(estimate.theta).mean()),
        "gap_logged": float(truth.logged(estimate.theta).mean()),
        "log_loss": loss,
        "accuracy": right,
        **graph,
    }


def _predicted(data: Comparisons, estimate: Estimate) -> tuple[float, float]:
    """Mean over users of the mean −log probability of held-out answers, and of the share predicted right."""
    users: IntArray = data.users
    if estimate.probability is not None:
        p = estimate.probability(data.Z, users)
    else:
        p = expit(np.einsum("ij,ij->i", data.Z, estimate.theta[users]))
    loss, right = (float(user_means(values, users).mean()) for values in scores(np.where(data.y == 1, p, 1.0 - p)))
    return loss, right


def _rand(members: list[IntArray], group: IntArray) -> float:
    """Adjusted Rand index of the connected components."""
    one = np.repeat(np.arange(len(members)), [len(some) for some in members])
    graph = csr_matrix((np.ones(len(one)), (one, np.concatenate(members))), shape=(len(members),) * 2)
    return float(adjusted_rand_score(group, connected_components(graph, directed=False)[1]))


def _pessimistic_gap(study: Study, world: World, estimate: Estimate, user: int, shown: Candidates) -> float:
    """The paper's policy with its literal width, for the test user of the run, on the first contexts."""
    members, theta = estimate.members[user], estimate.theta[user]

    def actions() -> IntArray:
        kappa, ridge, dim = KAPPA_UNIT_BALL, study.ridge, study.rows.dim
        failure = float(study.settings["delta"]) / (2 * study.n_users)
        n = float(study.rows.counts[members].sum())
        width = confidence_width(n, dim, ridge=ridge, kappa=kappa, failure=failure)
        M = ridge / kappa * np.eye(dim) + sum(study.gram(u) for u in members)
        return best_policy(shown, theta, M, beta=float(study.settings["pessimism"]) * width).actions

    name = f"policy {hashlib.sha256(members.tobytes() + theta.tobytes()).hexdigest()}"
    chosen = study.once(name, actions)  # many methods leave the test user alone
    return relative_gap(shown, world.reward[user][: len(shown.features)], chosen)


# -- active ------------------------------------------------------------------------------------------------------------


def _active(trial: Trial, world: World, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    data = world.data.take(np.flatnonzero(world.budget(int(settings["offline"]))))
    study = _study(trial, data, settings)
    stops = sorted(int(n) for n in settings["checkpoints"])
    rows = []
    for key in trial.methods:
        begun = time.perf_counter()
        found: dict[int, list[dict[str, float]]] = {stop: [] for stop in stops}
        for user, pool in enumerate(world.pools):
            for asked, talk in converse(key, study, user, pool, stops):
                found[asked].append(_judge_one(world, user, talk))
        for stop in stops:
            if found[stop]:
                mean = {name: float(np.mean([one[name] for one in found[stop]])) for name in found[stop][0]}
                rows.append({"method": key, "asked": stop, **mean, "note": ""})
        rows[-1]["seconds"] = round(time.perf_counter() - begun, 4)
        rows[-1]["memory_gb"] = round(peak_memory_gb(), 3)
    return rows


def _judge_one(
    world: World, user: int, talk: tuple[FloatArray, Callable[[FloatArray], FloatArray]]
) -> dict[str, float]:
    theta, probability = talk
    judged = world.held_out.take(np.flatnonzero(world.held_out.users == user))
    p = probability(judged.Z)
    loss, right = scores(np.where(judged.y == 1, p, 1.0 - p))
    actions = world.contexts.argmax(world.contexts.features @ theta)
    return {
        "gap": relative_gap(world.contexts, world.reward[user], actions),
        "log_loss": float(loss.mean()),
        "accuracy": float(right.mean()),
    }
