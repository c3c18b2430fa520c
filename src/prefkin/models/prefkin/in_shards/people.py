"""People in shards: what a fitted `PrefKin` offers, asked of a row on disk.

What is known about a user is a row in a Parquet shard (`Posteriors`); a question about some users is asked of a model
in memory that holds these users alone, with everybody else known by the sums over them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prefkin.data.arrays import FloatArray, IntArray, LabelArray
from prefkin.data.comparisons import Comparisons
from prefkin.data.digest import digest
from prefkin.data.rows import UserRows
from prefkin.data.shards import ShardedComparisons, Table, replaced, shard_name
from prefkin.execution.blas import single_threaded
from prefkin.inference.information import ball_radius
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Signed, per_user_sum
from prefkin.models.files import LATER, PEOPLE, read_in_shards, write_in_shards
from prefkin.models.prefkin.calibrate import Fitted, losses_by_temperature
from prefkin.models.prefkin.in_shards.files import Arrays, as_groups, of_groups
from prefkin.models.prefkin.metric import Metric
from prefkin.models.prefkin.mixture import Mixture, alone_in, finished
from prefkin.models.prefkin.settings import TRUST
from prefkin.models.prefkin.settling import State, finish

if TYPE_CHECKING:
    from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["PeopleInShards", "Posteriors", "by_label", "load_in_shards"]


class Posteriors(NamedTuple):
    """What is known about some people in the end, as it is looked up later: a row each."""

    counts: FloatArray  # (n,) comparisons, by weight
    theta: FloatArray  # (n, d)
    size: FloatArray  # (n,) tr C, of which radii are made
    square: FloatArray  # (n,) tr C²
    weights: FloatArray  # (n, K + 1)
    from_others: FloatArray  # (n,)
    sites: FloatArray  # (3, rows), or 6 of them where there is a wider mixture
    loss: FloatArray  # at each temperature

    @classmethod
    def of(cls, fitted: Fitted, data: Signed, judged: IntArray) -> Posteriors:
        """What is known about the people of `data`; the temperature is `judged` by some of them."""
        mixture, C, loss = fitted.mixture, fitted.covariances(slice(None)), np.zeros(1)
        if len(judged):
            loss = losses_by_temperature(mixture.some(data, judged), data.some(judged))
        own = np.einsum("uii->u", mixture.terms_of(np.arange(len(data))).A, dtype=np.float64)
        from_others = 1.0 - mixture.prior.within * own / data.dim
        return cls(
            per_user_sum(data.weights, data.starts),
            fitted.metric.preferences(mixture.mean),
            np.einsum("uii->u", C),
            np.einsum("uij,uij->u", C, C),
            mixture.weights,
            np.where(mixture.share.max(axis=1, initial=0.0) > 0.5, from_others, 0.0),
            np.array([site for each in (mixture, fitted.wide) if each is not None for site in each.sites[:3]]),
            loss,
        )

    @classmethod
    def joined(cls, parts: Sequence[Posteriors]) -> Posteriors:
        """The people of several parts, in their order."""
        found = {name: [getattr(part, name) for part in parts] for name in cls._fields}
        sites, loss = np.concatenate(found.pop("sites"), axis=1), sum(found.pop("loss"), start=np.zeros(1))
        return cls(**{name: np.concatenate(each) for name, each in found.items()}, sites=sites, loss=loss)

    def table(self, labels: LabelArray, starts: IntArray, level: float) -> Table:
        """Columns of a shard of people, with a row for each."""
        place, (n, columns) = np.argmax(self.weights, axis=1), self.weights.shape
        thin = csr_array(self.weights[:, :-1])
        begins = thin.indptr.tolist()
        return {
            "user": labels,
            "comparisons": self.counts,
            "theta": self.theta,
            "radius": TRUST.caution * ball_radius(self.size, self.square, level),
            "group": np.where(place == columns - 1, -1, place),
            "probability": self.weights[np.arange(n), place],
            "groups": [thin.indices[a:b].astype("<i4").tobytes() for a, b in pairwise(begins)],
            "shares": [thin.data[a:b].astype("<f8").tobytes() for a, b in pairwise(begins)],
            "sites": [np.ascontiguousarray(self.sites[:, a:b]).tobytes() for a, b in pairwise(starts.tolist())],
        }

    @property
    def told(self) -> Arrays:
        """Sums over them: likeliest members; how many are uncertain, what comes from others, comparisons."""
        counts = np.bincount(np.argmax(self.weights, axis=1), minlength=self.weights.shape[1])
        uncertain = float((self.weights.max(axis=1) < TRUST.certain_place).sum())
        return {"counts": counts, "sums": np.array([uncertain, self.from_others.sum(), self.counts.sum()])}


def by_label(tables: Sequence[Table]) -> Table:
    """The people of all tables in one, sorted."""
    order = np.argsort(np.concatenate([np.asarray(table["user"]) for table in tables]), kind="stable")

    def column(name: str) -> np.ndarray | list[bytes]:
        parts = [table[name] for table in tables]
        if isinstance(parts[0], list):
            whole = [blob for part in parts for blob in part]
            return [whole[i] for i in order]
        return np.concatenate([np.asarray(part) for part in parts])[order]

    return {name: column(name) for name in tables[0]}


@dataclass(eq=False)
class PeopleInShards:
    """Everybody, on disk: behind every method of a fitted `PrefKin` whose people are not in memory."""

    data: ShardedComparisons
    people: Path
    parameters: dict[str, Any]
    metric: Metric
    groups: tuple[Mixture, ...]
    temperature: float
    structure: str
    evidence: dict[str, float]
    own_variance: float
    counts: IntArray  # likeliest members of each group, and last those alone
    sums: FloatArray  # people whose place is uncertain, what comes from others, comparisons
    later: Path | None = None  # where those are who answered more since; they and what all share are no longer the same
    read: dict[str, Any] = field(default_factory=dict)  # once for all who ask

    def _tables(self, columns: list[str], only: LabelArray | None = None) -> list[Table]:
        """Shard after shard: those who did not answer since, and those who did."""
        from prefkin.data.buckets import read_table

        columns, found = list(dict.fromkeys(["user", *columns])), list[Table]()
        shard = np.arange(self.data.n_shards) if only is None else self.data.shard_of(only)
        for number in np.unique(shard).tolist():
            name, some = shard_name(number), None if only is None else only[shard == number]
            tables = [read_table(self.people / name, columns, some)] if self.data.users[number] else []
            if self.later is not None and (file := self.later / PEOPLE / name).exists():
                tables = replaced(tables, read_table(file, columns, some))
            found += tables
        return found

    def _anew(self, name: str) -> list[FloatArray]:
        """An attribute of everybody, shard after shard, as it is now that groups have changed."""
        labels = self.column("users_")
        shards = np.split(labels, np.flatnonzero(np.diff(self.data.shard_of(labels))) + 1)
        models = ((self.only(each.tolist()), each.tolist()) for each in shards)
        return [getattr(model, name)[[model._users.index(label) for label in each]] for model, each in models]

    def column(self, name: str) -> Any:
        """An attribute of everybody, shard after shard; read once."""
        if name not in self.read:
            if name == "membership_":
                share = np.concatenate([self._shares(table) for table in self._tables(["groups", "shares"])])
                self.read[name] = np.column_stack([share, alone_in(share)])
            elif self.later is not None and name in ("theta_", "radius"):
                self.read[name] = np.concatenate(self._anew({"radius": "_radii"}.get(name, name)))
            else:
                stored = {"users_": "user", "theta_": "theta", "n_comparisons_": "comparisons"}.get(name, name)
                self.read[name] = np.concatenate([np.asarray(table[stored]) for table in self._tables([stored])])
        return self.read[name]

    def position(self, user: Hashable) -> int:
        """Where somebody stands in what `column` reads."""
        if "positions" not in self.read:
            self.read["positions"] = {label: at for at, label in enumerate(self.column("users_").tolist())}
        self.data.refuse_strangers([user])
        return int(self.read["positions"][user])

    def _shares(self, table: Table) -> FloatArray:
        share = np.zeros((len(table["groups"]), len(self.groups[0].sizes)))
        for row, (groups, values) in enumerate(zip(table["groups"], table["shares"], strict=True)):
            share[row, np.frombuffer(groups, "<i4")] = np.frombuffer(values, "<f8")
        return share

    def only(self, users: Sequence[Hashable]) -> PrefKin:
        """A model in memory that holds these users alone; everybody else is known by the sums over them."""
        from prefkin.models.prefkin.estimator import PrefKin

        self.data.refuse_if_changed()
        rows = self.data.of(users)
        rows = UserRows(rows.rows._replace(Z=rows.rows.Z.astype(np.float64)), rows.starts, rows.labels, rows.contexts)
        model = PrefKin(**self.parameters)
        model._read_shards(self.data)
        model._hold(rows)
        model.habit_, model._own_variance = np.zeros(len(rows)), self.own_variance
        model.structure_, model.evidence_ = self.structure, self.evidence
        mixtures = self.groups
        if len(rows):
            known, data = by_label(self._tables(["groups", "shares", "sites"], rows.labels)), self.metric.signed(rows)
            blobs = zip(known["sites"], np.diff(rows.starts).tolist(), strict=True)
            sites = np.concatenate([np.frombuffer(blob, "<f8").reshape(-1, n) for blob, n in blobs], axis=1)
            shares = self._shares(known), np.ones((len(rows), 1))
            with single_threaded():
                mixtures = tuple(
                    finished(finish(data, State.settled(share, Sites.kept(*part)), groups))
                    for share, part, groups in zip(shares, np.split(sites, len(sites) // 3), self.groups, strict=False)
                )
        mixture, *wide = mixtures
        model._keep(Fitted(mixture, self.metric, wide[0] if wide else None, self.temperature))
        model.__dict__["_digest"] = self.digest
        return model

    @property
    def digest(self) -> str:
        """A digest of what was learnt, by which a session knows its model."""
        if "digest" not in self.read:
            learnt = [array for groups in self.groups for array in of_groups(groups).values()]
            self.read["digest"] = digest("PrefKin", self.data.fingerprint, self.metric.root, *learnt)
        return str(self.read["digest"])

    def log_odds(self, features: FloatArray, users: Any) -> FloatArray:
        """Positive where the first action is preferred; users of one shard are read together."""
        labels = self.data.whose(users, len(features))
        self.data.refuse_strangers(labels.tolist())
        shard, found = self.data.shard_of(labels), np.empty(len(features))
        for number in np.unique(shard).tolist():
            mine = np.flatnonzero(shard == number)
            found[mine] = self.only(labels[mine].tolist())._log_odds(features[mine], labels[mine])
        return found

    def comparisons(self, user: Hashable) -> Comparisons:
        """One user's; those of everybody are where they were."""
        self.data.refuse_everybody(user)
        return self.only([user]).comparisons()

    # -- on disk -----------------------------------------------------------------------------------------------------

    def save(self, folder: Any, past: dict[str, Any]) -> None:
        """A folder with a small file and the shards of people, linked where the file system can."""
        about = {
            "past": past,
            "parameters": self.parameters,
            "temperature": self.temperature,
            "structure": self.structure,
            "evidence": {name: value if np.isfinite(value) else None for name, value in self.evidence.items()},
            "own_variance": self.own_variance,
            "groups": len(self.groups),
        }
        arrays = {"root": self.metric.root, "counts": self.counts.astype(np.int64), "sums": self.sums}
        for k, groups in enumerate(self.groups):
            arrays |= {f"{k}.{name}": values for name, values in of_groups(groups).items()}
        write_in_shards(folder, "PrefKin", self.data, about, arrays, self.people, self.later)


def load_in_shards(folder: Path) -> PrefKin:
    """The model in a folder that `save` wrote."""
    from prefkin.models.prefkin.estimator import PrefKin

    about, arrays, data = read_in_shards(folder)
    groups = []
    for k in range(about["groups"]):
        parts = {name.removeprefix(f"{k}."): values for name, values in arrays.items() if name.startswith(f"{k}.")}
        groups.append(as_groups(parts))
    model = PrefKin(**about["parameters"])
    model._in_shards = PeopleInShards(
        data,
        folder / PEOPLE,
        about["parameters"],
        Metric(arrays["root"]),
        tuple(groups),
        float(about["temperature"]),
        str(about["structure"]),
        {name: -np.inf if value is None else float(value) for name, value in about["evidence"].items()},
        float(about["own_variance"]),
        arrays["counts"],
        arrays["sums"],
        folder / LATER if data.later is not None else None,
    )
    model._past = dict(about.get("past", {}))
    model._read_shards(data)
    model.structure_, model.evidence_ = model._in_shards.structure, model._in_shards.evidence
    return model
