"""Users in shards: what a fitted `PrefKin` offers, asked of a row on disk.

What is known of a user is a row in a Parquet shard (`UserTable`). A question about some users is asked of a model in
memory that holds these users alone, with everybody else in the sums over the messages.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from prefkin.data.arrays import FloatArray, IntArray, LabelArray
from prefkin.data.comparisons import Comparisons
from prefkin.data.digest import digest
from prefkin.data.rows import UserRows
from prefkin.data.shards import ShardedComparisons, Table, replaced, shard_name
from prefkin.execution.blas import single_threaded
from prefkin.inference.ep import Sites
from prefkin.inference.information import ball_radius
from prefkin.models.files import LATER, PEOPLE, read_in_shards, write_in_shards
from prefkin.models.prefkin.file import PARAMETERS, VERSION, parameters_from, refuse_objects
from prefkin.models.prefkin.fitting import Learnt, design_of
from prefkin.models.prefkin.out_of_core.files import as_learnt, of_learnt
from prefkin.models.prefkin.parameters import specification_of
from prefkin.models.prefkin.posterior import Posterior
from prefkin.models.prefkin.settings import REPORTING

if TYPE_CHECKING:
    from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["OutOfCore", "UserTable", "by_label", "in_double", "load_in_shards"]


def in_double(rows: UserRows) -> UserRows:
    """Features in double precision."""
    return replace(rows, rows=rows.rows._replace(Z=rows.rows.Z.astype(np.float64)))


@dataclass(frozen=True, eq=False)
class UserTable:
    """What is known of some users, as it is looked up later, and sums over them for summaries."""

    columns: Table  # a row each
    counts: IntArray  # (C,) users by likeliest component
    sums: FloatArray  # users whose group is uncertain, shares of estimates that others decide, comparisons

    @classmethod
    def of(cls, rows: UserRows, learnt: Learnt, level: float) -> UserTable:
        """The users of a posterior."""
        posterior, share, population = learnt.posterior, learnt.posterior.share, learnt.posterior.population
        size, square = learnt.uncertainty.of_covariances(
            lambda C: np.array([np.einsum("uii->u", C), np.einsum("uij,uij->u", C, C)])
        )
        top, C = np.argmax(share, axis=1), share.shape[1]
        probability = share[np.arange(len(share)), top]
        singleton = population.clustered & (top == C - 1)
        thin, starts = csr_array(share), posterior.design.starts.tolist()
        begins, sites = thin.indptr.tolist(), np.array(posterior.sites)
        columns: Table = {
            "user": rows.labels,
            "comparisons": rows.counts,
            "theta": posterior.theta,
            "radius": REPORTING.caution * ball_radius(size, square, level),
            "group": np.where(singleton, -1, top),
            "probability": probability,
            "groups": [thin.indices[a:b].astype("<i4").tobytes() for a, b in pairwise(begins)],
            "shares": [thin.data[a:b].astype("<f8").tobytes() for a, b in pairwise(begins)],
            "spread": posterior.spread,
            "sites": [np.ascontiguousarray(sites[:, a:b]).tobytes() for a, b in pairwise(starts)],
        }
        joined = share[:, : C - int(population.clustered)].max(axis=1, initial=0.0) > 0.5
        own = posterior.factors(np.arange(len(share))).marginalise(population.within * posterior.spread)
        determined = population.within * posterior.spread * np.einsum("uii->u", own.Lam) / posterior.design.dim
        from_others = float(np.where(joined, 1.0 - determined, 0.0).sum())
        uncertain = float((probability < REPORTING.certain_place).sum())
        sums = np.array([uncertain, from_others, float(rows.counts.sum())])
        return cls(columns, np.bincount(top, minlength=C), sums)

    @classmethod
    def joined(cls, parts: Sequence[UserTable]) -> UserTable:
        """Users of several tables, in their order."""
        columns = {name: _one([part.columns[name] for part in parts]) for name in parts[0].columns}
        counts, sums = (np.sum([getattr(part, name) for part in parts], axis=0) for name in ("counts", "sums"))
        return cls(columns, counts, sums)


def _one(parts: Sequence[Any]) -> Any:
    """Columns of several tables as one."""
    if isinstance(parts[0], list):
        return [blob for part in parts for blob in part]
    return np.concatenate([np.asarray(part) for part in parts])


def by_label(tables: Sequence[Table]) -> Table:
    """The users of all tables in one, sorted."""
    order = np.argsort(np.concatenate([np.asarray(table["user"]) for table in tables]), kind="stable")
    whole = {name: _one([table[name] for table in tables]) for name in tables[0]}
    return {name: [each[i] for i in order] if isinstance(each, list) else each[order] for name, each in whole.items()}


@dataclass(eq=False)
class OutOfCore:
    """Everybody, on disk: behind every method of a fitted `PrefKin` whose users are not in memory."""

    data: ShardedComparisons
    people: Path
    parameters: dict[str, Any]
    learnt: Learnt  # with everybody's messages, and no single users
    counts: IntArray  # users by likeliest component
    sums: FloatArray  # as in `UserTable`
    later: Path | None = None  # where users are who gave more answers since
    read: dict[str, Any] = field(default_factory=dict)  # once for all who ask

    def _tables(self, columns: list[str], only: LabelArray | None = None) -> list[Table]:
        """Shard after shard: users without later answers, and those with them."""
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
        """An attribute of everybody, shard after shard, under the group means as they are since an update."""
        labels = self.column("users_")
        shards = np.split(labels, np.flatnonzero(np.diff(self.data.shard_of(labels))) + 1)
        models = ((self.only(each.tolist()), each.tolist()) for each in shards)
        return [getattr(model, name)[[model._users.index(label) for label in each]] for model, each in models]

    def column(self, name: str) -> Any:
        """An attribute of everybody, shard after shard; read once."""
        if name not in self.read:
            if name == "membership_":
                share = np.concatenate([self._share(table) for table in self._tables(["groups", "shares"])])
                clustered = self.learnt.posterior.population.clustered
                self.read[name] = share if clustered else np.column_stack([share, np.zeros(len(share))])
            elif self.later is not None and name in ("theta_", "radius"):
                self.read[name] = np.concatenate(self._anew({"radius": "_radii"}.get(name, name)))
            else:
                stored = {"users_": "user", "theta_": "theta", "n_comparisons_": "comparisons"}.get(name, name)
                self.read[name] = np.concatenate([np.asarray(table[stored]) for table in self._tables([stored])])
        return self.read[name]

    def position(self, user: Hashable) -> int:
        """Where a user stands in what `column` reads."""
        if "positions" not in self.read:
            self.read["positions"] = {label: at for at, label in enumerate(self.column("users_").tolist())}
        self.data.refuse_strangers([user])
        return int(self.read["positions"][user])

    def _share(self, table: Table) -> FloatArray:
        share = np.zeros((len(table["groups"]), len(self.learnt.posterior.sizes)))
        for row, (groups, values) in enumerate(zip(table["groups"], table["shares"], strict=True)):
            share[row, np.frombuffer(groups, "<i4")] = np.frombuffer(values, "<f8")
        return share

    def _posterior(self, rows: UserRows) -> Posterior:
        """Of these users; everybody else is in the sums."""
        everybody = self.learnt.posterior
        if not len(rows):
            return everybody
        known = by_label(self._tables(["groups", "shares", "spread", "sites"], rows.labels))
        design = design_of(rows, everybody.design.likelihood)
        blobs = zip(known["sites"], np.diff(design.starts).tolist(), strict=True)
        sites = Sites(*np.concatenate([np.frombuffer(blob, "<f8").reshape(-1, n) for blob, n in blobs], axis=1))
        return replace(
            everybody, design=design, sites=sites, share=self._share(known), spread=np.asarray(known["spread"])
        )

    def only(self, users: Sequence[Hashable]) -> PrefKin:
        """A model in memory that holds these users alone."""
        from prefkin.models.prefkin.estimator import PrefKin

        self.data.refuse_if_changed()
        rows = in_double(self.data.of(users))
        model = PrefKin(**self.parameters)
        model._read_shards(self.data)
        model._hold(rows)
        model.habit_, model.refit_gain_ = np.zeros(len(rows)), -np.inf
        with single_threaded():
            model._keep(replace(self.learnt, posterior=self._posterior(rows)))
        model.__dict__["_digest"] = self.digest
        return model

    @property
    def digest(self) -> str:
        """A digest of what was learnt, by which a session knows its model."""
        if "digest" not in self.read:
            self.read["digest"] = digest("PrefKin", self.data.fingerprint, *of_learnt(self.learnt).values())
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

    def updated(self, new: UserRows) -> tuple[OutOfCore, float]:
        """Everybody with these answers, and what a refit would gain."""
        from prefkin.models.prefkin.out_of_core.update import with_new_answers

        return with_new_answers(self, new)

    # -- on disk -------------------------------------------------------------------------------------------------------

    def save(self, folder: Any, past: dict[str, Any]) -> None:
        """A folder with a small file and the shards of users, linked where the file system can."""
        from prefkin.models.prefkin.estimator import PrefKin

        refuse_objects(PrefKin(**self.parameters))
        arrays = of_learnt(self.learnt)
        about = {name: self.parameters[name] for name in PARAMETERS}
        about |= {"version": VERSION, "past": past, "learnt": str(arrays.pop("about"))}
        arrays |= {"counts": self.counts.astype(np.int64), "sums": self.sums}
        write_in_shards(folder, "PrefKin", self.data, about, arrays, self.people, self.later)


def load_in_shards(folder: Path) -> PrefKin:
    """The model in a folder that `save` wrote."""
    from prefkin.models.prefkin.estimator import PrefKin

    about, arrays, data = read_in_shards(folder)
    model = PrefKin(**parameters_from(about))
    later = folder / LATER if data.later is not None else None
    learnt = as_learnt(arrays | {"about": np.array(about["learnt"])}, specification_of(model))
    counts, sums = arrays["counts"], arrays["sums"]
    model._past = dict(about.get("past", {}))
    model._keep_shards(OutOfCore(data, folder / PEOPLE, model.get_params(), learnt, counts, sums, later))
    return model
