"""Off-C²PL with more users than memory holds: own estimates of everybody, pooled ones of whoever is asked for.

Lines 2 to 3 of Algorithm 1 are one user at a time, so that they are done shard by shard. Who is connected with whom is
not kept: for a user who is asked about, the test runs over all shards, and the neighbours' rows are read and pooled.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray, LabelArray
from prefkin.data.comparisons import Comparisons
from prefkin.data.digest import digest
from prefkin.data.rows import Rows, UserRows
from prefkin.data.shards import ShardedComparisons, Table, shard_name
from prefkin.data.storage import held_alone
from prefkin.errors import InvalidParameter
from prefkin.execution.executor import for_each, over_shards, threads
from prefkin.inference.estimate import fit_preference
from prefkin.models.files import PEOPLE, read_in_shards, write_in_shards
from prefkin.models.off_c2pl.graph import Graph
from prefkin.models.off_c2pl.pooling import pool_estimates
from prefkin.models.off_c2pl.posterior import Scale
from prefkin.models.off_c2pl.radius import ItemRegularity
from prefkin.models.off_c2pl.threshold import APPENDIX, different_users
from prefkin.models.reports import FoldedIn

if TYPE_CHECKING:
    from prefkin.models.off_c2pl.estimator import OffC2PL

__all__ = ["UsersInShards", "fit_shards", "load_in_shards"]

FORMAT = 1  # of files of a run that goes on
SAMPLE = 2000  # users from whom λ, a threshold and the scale of preferences are learnt, where they are to be
POINTS = ["user", "comparisons", "theta", "radius", "enough"]


@dataclass(frozen=True, eq=False)
class Points:
    """Some users with their own estimates."""

    labels: LabelArray
    graph: Graph  # without thresholds

    @classmethod
    def of(cls, tables: Sequence[Table], alpha: float) -> Points:
        """The users of one table of `POINTS` after the other."""
        parts = (np.concatenate([np.asarray(table[name]) for table in tables]) for name in ("user", *POINTS[2:]))
        labels, theta, radius, enough = parts
        n = len(labels)
        return cls(labels, Graph(theta.reshape(n, -1), radius, np.zeros(n), alpha, enough.astype(bool)))

    def some(self, which: BoolArray | IntArray) -> Points:
        """A few of them."""
        every = self.graph
        some = every.theta[which], every.radius[which], every.gamma[which], every.alpha, every.enough[which]
        return Points(self.labels[which], Graph(*some))

    @classmethod
    def joined(cls, parts: Sequence[Points]) -> Points:
        """Each of them once, by label."""
        whole = cls(np.concatenate([part.labels for part in parts]), Graph.together([part.graph for part in parts]))
        return whole.some(np.unique(whole.labels, return_index=True)[1])


def locate_shard(model: OffC2PL, data: ShardedComparisons, people: Path, number: int) -> None:
    """Own estimates and radii of one shard's users."""
    from prefkin.data.buckets import write_table

    rows = data.shard(number)
    points = model._locate(rows, data.n_users)
    columns = (rows.labels, rows.counts, points.theta, points.radius, points.enough.astype(np.uint8))
    write_table(people / shard_name(number), dict(zip(POINTS, columns, strict=True)))


def fit_shards(model: OffC2PL, data: ShardedComparisons) -> UsersInShards:
    """Everybody's own estimates and radii; shards that a former run of the same fit finished are taken as they are."""
    if model.distance != "euclidean":
        raise InvalidParameter("with users in shards distance must be 'euclidean'; fit some of them in memory instead")
    data.refuse_if_changed()
    told = [data.fingerprint, FORMAT, repr(sorted(model.get_params().items(), key=lambda each: each[0]))]
    people = data.home / "own" / digest(json.dumps(told))
    people.mkdir(parents=True, exist_ok=True)
    with held_alone(people):
        gamma = _prepared(model, data)
        left = [k for k in data.inhabited if not (people / shard_name(k)).exists()]
        work = partial(locate_shard, model, data, people)
        done = len(data.inhabited) - len(left)
        over_shards(work, left, label="own estimates and radii", done=done, room=data.room)
    return UsersInShards(data, people, model, gamma)


def _prepared(model: OffC2PL, data: ShardedComparisons) -> float | str:
    """λ, the scale of preferences and the threshold, from some users where they are to be learnt."""
    wanted = model.gamma == "auto" or model.ridge == "auto" or model._needs_scale()
    if wanted:
        rows = data.sample(SAMPLE)
        model._prepare(rows)
        if model.gamma == "auto":
            return float(model._thresholds(rows, model._locate(rows, data.n_users))[0])
    else:
        model.ridge_, model._scale = float(model.ridge), None
    return model.gamma if model.gamma in APPENDIX else float(model.gamma)


class UsersInShards:
    """Everybody, on disk: behind every method of a fitted `OffC2PL` whose users are not in memory."""

    def __init__(self, data: ShardedComparisons, people: Path, model: OffC2PL, gamma: float | str) -> None:
        self.data, self.people, self.model, self.gamma = data, people, model, gamma

    def _tables(self, columns: list[str], only: LabelArray | None = None) -> list[Table]:
        from prefkin.data.buckets import read_table

        shard = np.empty(0, dtype=np.intp) if only is None else self.data.shard_of(only)
        numbers = self.data.inhabited if only is None else np.unique(shard).tolist()

        def read(k: int) -> Table:
            return read_table(self.people / shard_name(k), columns, None if only is None else only[shard == k])

        with threads(self.model.n_jobs):
            return for_each(read, numbers)

    def column(self, name: str) -> Any:
        """An attribute of everybody, shard after shard."""
        stored = {"users_": "user", "n_comparisons_": "comparisons", "own_theta_": "theta", "radius_": "radius"}[name]
        return np.concatenate([np.asarray(table[stored]) for table in self._tables([stored])])

    def position(self, user: Hashable) -> int:
        """Where somebody stands in what `column` reads."""
        self.data.of([user])
        return int(np.flatnonzero(self.column("users_") == user)[0])

    def _tested(self, one: Graph, own: Hashable) -> tuple[float, Points]:
        """The threshold for somebody, and whom the connection test joins, a shard at a time; `own` is not asked."""
        from prefkin.data.buckets import read_table

        def others(k: int) -> Points:
            points = Points.of([read_table(self.people / shard_name(k), POINTS)], one.alpha)
            return points if own is None else points.some(points.labels != own)

        def least(k: int) -> float:
            tile = Graph.together([one, others(k).graph])
            return APPENDIX[str(self.gamma)](tile, 0) if different_users(tile, 0).any() else np.inf

        def near(k: int) -> Points:
            points = others(k)
            return points.some(Graph.together([one, points.graph]).under(gamma).connected(0)[1:])

        with threads(self.model.n_jobs):
            if isinstance(self.gamma, str):
                lowest = min(for_each(least, self.data.inhabited))
                gamma = 0.0 if lowest == np.inf else lowest
            else:
                gamma = self.gamma
            return gamma, Points.joined(for_each(near, self.data.inhabited))

    def only(self, users: Sequence[Hashable]) -> OffC2PL:
        """A model in memory of these users and their neighbours, with pooled estimates of these users."""
        from prefkin.models.off_c2pl.estimator import OffC2PL

        self.data.refuse_if_changed()
        asked = self.data.of(users).labels
        own = Points.of(self._tables(POINTS, asked), self.model.alpha)
        gammas, everybody = dict[Hashable, float](), [own]
        for at, label in enumerate(own.labels.tolist()):
            gammas[label], members = self._tested(own.some(np.array([at])).graph, label)
            everybody.append(members)
        points = Points.joined(everybody)
        with threads(self.model.n_jobs):
            rows = self.data.of(points.labels.tolist())
        gamma = np.array([gammas.get(label, 0.0) for label in rows.labels.tolist()])
        graph, positions = replace(points.graph, gamma=gamma), [rows.index(label) for label in asked.tolist()]
        model = OffC2PL(**self.model.get_params())
        model.ridge_, model._scale, model._among = self.model.ridge_, self.model._scale, self.data.n_users
        model._read_shards(self.data)
        model._take(rows, graph, graph.theta.copy())
        with threads(model.n_jobs):
            sets = [graph.neighbours(u) for u in positions]
            model.theta_[positions] = pool_estimates(rows, sets, graph.theta, ridge=model.ridge_)
        model.__dict__["_digest"] = digest("OffC2PL", self.data.fingerprint, repr(self.model.get_params()))
        return model

    def log_odds(self, features: FloatArray, users: Any) -> FloatArray:
        """Positive where the first action is preferred."""
        labels = self.data.whose(users, len(features))
        return self.only(labels.tolist())._log_odds(features, labels)

    def comparisons(self, user: Hashable) -> Comparisons:
        """One user's; those of everybody are where they were."""
        self.data.refuse_everybody(user)
        rows = self.data.of([user])
        Z, y, weights = rows.rows
        names = self.data.feature_names
        return Comparisons.from_arrays(Z, y, rows.labels[rows.owner], weights=weights, feature_names=names)

    def fold_in(self, new: UserRows) -> FoldedIn:
        """A newcomer, by the same test."""
        alone = self.model._locate(new, n_users=self.data.n_users)
        theta, radius = alone.theta[0], float(alone.radius[0])
        members = self._tested(alone, None)[1].labels
        if len(members):
            known = self.data.of(members.tolist())
            joined = Rows.join([known.rows, new.rows])
            pooled = fit_preference(joined, ridge=self.model.ridge_, start=theta)
            return FoldedIn(pooled, known.labels, radius, theta)
        return FoldedIn(theta, np.empty(0, dtype=np.int64), radius, theta)

    def save(self, folder: Any, past: dict[str, Any]) -> None:  # noqa: ARG002 - nothing is taken in after a fit
        """A folder with a small file and the shards of users, linked where the file system can."""
        about = self.model.get_params()
        coverage = about["coverage"]
        about["coverage"] = asdict(coverage) if isinstance(coverage, ItemRegularity) else "measured"
        told = {"parameters": about, "ridge": float(self.model.ridge_), "gamma": self.gamma}
        arrays = {} if self.model._scale is None else {"scale": self.model._scale.table}
        write_in_shards(folder, "OffC2PL", self.data, told, {"none": np.zeros(1), **arrays}, self.people)


def load_in_shards(folder: Path) -> OffC2PL:
    """What `save` wrote."""
    from prefkin.models.off_c2pl.estimator import OffC2PL

    about, arrays, data = read_in_shards(folder)
    parameters = about["parameters"]
    if isinstance(parameters["coverage"], dict):
        parameters["coverage"] = ItemRegularity(**parameters["coverage"])
    model = OffC2PL(**parameters)
    model.ridge_, model._scale = float(about["ridge"]), Scale.of_table(arrays)
    model._read_shards(data)
    model._in_shards = UsersInShards(data, folder / PEOPLE, model, about["gamma"])
    return model
