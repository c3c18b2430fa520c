"""Comparisons larger than memory: a folder of Parquet files, read a shard of users at a time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from prefkin.data.arrays import IntArray, LabelArray
from prefkin.data.checks import label_array
from prefkin.data.digest import mixed
from prefkin.data.rows import Rows, UserRows, only, spread
from prefkin.errors import InvalidComparisons, InvalidParameter, ShardError, UnknownUser
from prefkin.execution.executor import for_each
from prefkin.execution.usage import free_memory

__all__ = [
    "MANIFEST",
    "ShardedComparisons",
    "Table",
    "checksum",
    "code_of",
    "open_comparisons",
    "replaced",
    "shard_name",
]

MANIFEST = "shards.json"
HELD = 6  # times its features that a shard takes in memory while it is worked on

Table = dict[str, np.ndarray[Any, Any] | list[bytes]]  # a row for each user


def code_of(labels: LabelArray) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """A number of 64 bits for each label (integers or texts), the same on every machine and in every version.

    >>> code_of(np.array([1, 2])).tolist() == code_of(np.array([1, 2], dtype=np.int8)).tolist()
    True
    """
    if labels.dtype.kind in "iu":
        return mixed(labels.astype(np.int64).view(np.uint64))
    texts = (hashlib.blake2b(str(label).encode(), digest_size=8).digest() for label in labels.tolist())
    return np.frombuffer(b"".join(texts), dtype=np.uint64)


def shard_name(number: int) -> str:
    """The name of a shard's file.

    >>> shard_name(7)
    'shard-000007.parquet'
    """
    return f"shard-{number:06d}.parquet"


def checksum(blobs: Sequence[bytes]) -> int:
    """CRC-32 of one user's comparisons."""
    found = 0
    for blob in blobs:
        found = zlib.crc32(blob, found)
    return found


def open_comparisons(
    folder: str | Path,
    columns: Mapping[str, str] | None = None,
    *,
    drop: str | Sequence[str] = (),
    cache: str | Path | None = None,
    memory: int | None = None,
    rows_a_shard: int | None = None,
) -> ShardedComparisons:
    """Comparisons in a folder of Parquet files, which need not fit in memory.

    The files, in any number and row order, are read once: all rows of a user are brought together in one of many
    shards, with features in single precision. Killed, the same call goes on. It is done again when files changed.

    Parameters
    ----------
    folder : of .parquet files with columns user, y, and z0, z1, ... or a list column z (or both sides, as first and
        second), and perhaps weight and context
    columns : our name → the files' name
    drop : "ties", "missing" or both: leave such rows out instead of refusing them
    cache : folder for the shards, about as large as the data; beside `folder` unless given, with `.shards` added
    memory : bytes to use at most, roughly; half of what is free unless given
    rows_a_shard : about; as many as take 64 MB unless given

    >>> import tempfile
    >>> import polars as pl
    >>> from prefkin import PrefKin
    >>> with tempfile.TemporaryDirectory() as home:
    ...     folder = Path(home, "votes")
    ...     folder.mkdir()
    ...     votes = pl.DataFrame({"user": ["bo", "ann", "bo"], "y": [1, 0, 1], "z": [[1.0], [2.0], [0.5]]})
    ...     votes.write_parquet(folder / "monday.parquet")
    ...     data = open_comparisons(folder)
    ...     data, [rows.labels.tolist() for rows in data]
    (ShardedComparisons(3 comparisons by 2 users, 1 features, 1 shards), [['ann', 'bo']])
    """
    from prefkin.data.buckets import Sources, bucket  # frames are imported when files are read

    if rows_a_shard is not None and not rows_a_shard > 0:
        raise InvalidParameter(f"rows_a_shard must be above 0; got {rows_a_shard!r}")
    wanted = (drop,) if isinstance(drop, str) else tuple(drop)
    sources = Sources(Path(folder), dict(columns or {}), tuple(sorted(set(wanted))))
    beside = sources.folder.resolve()
    place = beside.with_name(f"{beside.name}.shards") if cache is None else Path(cache)
    home = place / (sources.fingerprint if rows_a_shard is None else f"{sources.fingerprint}-{rows_a_shard}")
    room = free_memory() // 2 if memory is None else memory
    if not (home / MANIFEST).exists():
        bucket(sources, home, rows_a_shard, room)
        _remove_outdated(place, home)
    return replace(ShardedComparisons.at(home), memory=room)


def _remove_outdated(place: Path, fresh: Path) -> None:
    """Shards of the same files as they were before they changed: nobody can use them any more."""
    source = ShardedComparisons.at(fresh).source
    for home in place.iterdir():
        if home != fresh and (home / MANIFEST).is_file():
            with suppress(ShardError):
                old = ShardedComparisons.at(home)
                if old.source == source and old.changed:
                    shutil.rmtree(home, ignore_errors=True)


@dataclass(frozen=True)
class ShardedComparisons:
    """Comparisons on disk, all of a user's in one shard; iterating gives the shards as rows sorted by user."""

    home: Path  # where the shards are
    fingerprint: str  # of the files they were made of
    source: Path  # the folder of these files
    columns: Mapping[str, str]
    drop: tuple[str, ...]
    dim: int
    feature_names: tuple[str, ...] | None
    weighted: bool
    integers: bool  # or texts are the labels
    users: tuple[int, ...]  # in each shard
    rows: tuple[int, ...]  # in each shard
    memory: int = field(default_factory=lambda: free_memory() // 2, compare=False)  # bytes a fit may use, roughly
    later: Path | None = None  # shards of those who answered more since, with all of their rows
    more: tuple[int, int] = (0, 0)  # users and comparisons that came with them

    @classmethod
    def at(cls, home: Path) -> ShardedComparisons:
        """The shards that `open_comparisons` made there."""
        try:
            about = json.loads((home / MANIFEST).read_text())
            names = about["feature_names"]
            return cls(
                home,
                str(about["fingerprint"]),
                Path(about["source"]),
                dict(about["columns"]),
                tuple(about["drop"]),
                int(about["features"]),
                None if names is None else tuple(names),
                bool(about["weighted"]),
                bool(about["integers"]),
                tuple(about["users"]),
                tuple(about["rows"]),
            )
        except FileNotFoundError:
            raise ShardError(f"{home}: the shards of the comparisons are gone; open the folder again") from None
        except (OSError, ValueError, KeyError, TypeError):
            raise ShardError(f"{home / MANIFEST}: damaged; delete its folder and run again") from None

    def __repr__(self) -> str:
        return (
            f"ShardedComparisons({self.n_comparisons} comparisons by {self.n_users} users, {self.dim} features, "
            f"{self.n_shards} shards)"
        )

    @property
    def n_users(self) -> int:
        """People in all shards, and those who came later."""
        return sum(self.users) + self.more[0]

    @property
    def n_comparisons(self) -> int:
        """Comparisons in all shards, and those that came later."""
        return sum(self.rows) + self.more[1]

    @property
    def room(self) -> int:
        """How many shards may be held at once with what is made of them."""
        return max(self.memory // (HELD * 4 * self.dim * max(self.rows)), 1)

    @property
    def n_shards(self) -> int:
        """How many shards there are, those in which nobody is among them."""
        return len(self.users)

    @property
    def inhabited(self) -> list[int]:
        """Numbers of the shards in which somebody is."""
        return [number for number, users in enumerate(self.users) if users]

    def __iter__(self) -> Iterator[UserRows]:
        return (self.shard(number) for number in self.inhabited)

    def shard(self, number: int) -> UserRows:
        """All users of one shard."""
        return self._rows(self._tables(number))

    def sizes(self, number: int) -> tuple[LabelArray, IntArray]:
        """Labels of the users of one shard as it was made, and how many rows each one has."""
        from prefkin.data.buckets import read_table

        table = read_table(self.home / shard_name(number), ["user", "rows"])
        return np.asarray(table["user"]), np.asarray(table["rows"])

    def expect(self, number: int) -> None:
        """Let the system read one shard ahead, while others think about its first people."""
        with suppress(AttributeError, OSError):  # where it is not there, nobody waits for it
            file = os.open(self.home / shard_name(number), os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(file)

    def between(self, number: int, users: slice, among: IntArray | None = None, *, checked: bool = False) -> UserRows:
        """Users at these positions of one shard as it was made, or some `among` them; nothing else is read.

        What was `checked` a moment ago need not be again: that takes as long as reading it.
        """
        return self._rows([_read(self.home / shard_name(number), users, among, checked)])

    def shards(self, numbers: Sequence[int]) -> UserRows:
        """All users of several shards, in memory together, sorted by label."""
        return self._rows([table for number in numbers for table in self._tables(number)])

    def sample(self, most: int) -> UserRows:
        """So many people of the first shards: a hash brought them there, so that they are anybody."""
        enough = int(np.searchsorted(np.cumsum(self.users), most)) + 1
        rows = self.shards(range(min(enough, self.n_shards)))
        return only(rows, spread(len(rows), most))

    def shard_of(self, labels: LabelArray) -> np.ndarray[Any, Any]:
        """In which shard each user would be."""
        return (code_of(labels) % np.uint64(self.n_shards)).astype(np.intp)

    def labels(self, number: int) -> LabelArray:
        """Of the users of one shard, in the order of their rows."""
        from prefkin.data.buckets import read_table

        files = [self.home / shard_name(number)] if self.users[number] else []
        if self.later is not None and (file := self.later / shard_name(number)).exists():
            files.append(file)
        return np.unique(np.concatenate([np.asarray(read_table(each, ["user"])["user"]) for each in files]))

    def of(self, users: Sequence[Hashable]) -> UserRows:
        """Some users' rows, sorted by label: nothing is read but what holds them."""
        given = dict.fromkeys(label_array(users, "users").tolist())
        self.refuse_strangers(given)
        wanted = np.array(sorted(given), dtype=np.int64 if self.integers else object)
        shard = self.shard_of(wanted)
        numbers = np.unique(shard).tolist()
        read = for_each(lambda number: self._tables(number, wanted[shard == number]), numbers)
        tables = [table for each in read for table in each]
        found = {label for table in tables for label in np.asarray(table["user"]).tolist()}
        for label in wanted.tolist():
            if label not in found:
                raise self._unknown(label)
        return self._rows(tables)

    def refuse_strangers(self, labels: Iterable[Hashable]) -> None:
        """Labels that nobody could have here."""
        for label in labels:
            if type(label) is not (int if self.integers else str):
                raise self._unknown(label)

    def whose(self, users: Any, n: int) -> LabelArray:
        """The labels of those whose answers to n rows are to be predicted."""
        if users is None:
            raise InvalidComparisons(
                f"the model knows {self.n_users} users; say whose answers to predict with users=[...]"
            )
        labels = label_array(users, "users")
        if len(labels) != n:
            raise InvalidComparisons(f"users has {len(labels)} labels for {n} rows; give one per row")
        return labels

    def refuse_everybody(self, user: Hashable) -> None:
        """Comparisons of all are where they were; they need not fit in memory."""
        if user is None:
            raise InvalidParameter(
                f"the comparisons of everybody are in {self.source}; say whose you want, comparisons(user)"
            )

    def _unknown(self, label: Hashable) -> UnknownUser:
        return UnknownUser(
            f"user {label!r:.60} is not among the {self.n_users} fitted users; "
            "fit again with this user's rows, or use fold_in(Z, y)"
        )

    @property
    def changed(self) -> bool:
        """Are the files no longer those of which the shards were made?"""
        from prefkin.data.buckets import Sources

        return Sources(self.source, self.columns, self.drop).fingerprint != self.fingerprint

    def refuse_if_changed(self) -> None:
        """What was learnt holds for the files as they were."""
        if self.changed:
            raise ShardError(f"{self.source}: the comparisons changed since they were fitted; fit again")

    def _tables(self, number: int, only: LabelArray | None = None) -> list[Table]:
        """Of those who did not answer since the shards were made, and of those who did."""
        tables = [_read(self.home / shard_name(number), only)] if self.users[number] else []
        if self.later is not None and (file := self.later / shard_name(number)).exists():
            return replaced(tables, _read(file, only))
        return tables

    def _rows(self, tables: Sequence[Table]) -> UserRows:
        tables = [table for table in tables if len(table["user"])]
        if not tables:
            none = np.empty(0)
            return UserRows(Rows(np.empty((0, self.dim)), none, none), np.zeros(1, np.intp), none.astype(np.int64))
        labels = np.concatenate([np.asarray(table["user"]) for table in tables])
        order = np.argsort(labels, kind="stable") if len(tables) > 1 else np.arange(len(labels))

        def joined(name: str, kind: str) -> np.ndarray[Any, Any]:
            blobs = [blob for table in tables for blob in table[name]]
            return np.frombuffer(b"".join([blobs[i] for i in order]), dtype=kind)

        counts = np.concatenate([np.asarray(table["rows"]) for table in tables])[order]
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.intp)
        y, every_context = joined("y", "u1").astype(np.float64), all("context" in table for table in tables)
        weights = joined("weight", "<f8") if self.weighted else np.ones(len(y))
        contexts = np.unique(joined("context", "<u8"), return_inverse=True)[1] if every_context else None
        return UserRows(Rows(joined("z", "<f4").reshape(-1, self.dim), y, weights), starts, labels[order], contexts)


def _read(file: Path, only: LabelArray | slice | None, among: IntArray | None = None, checked: bool = False) -> Table:
    """Users' comparisons, each with the checksum that it had."""
    from prefkin.data.buckets import read_table

    table = read_table(file, only=only, among=among)
    if checked:
        return table
    blobs = [table[name] for name in table if name not in ("user", "rows", "check")]
    for check, each in zip(np.asarray(table["check"]).tolist(), zip(*blobs, strict=True), strict=True):
        if check != checksum(each):
            raise ShardError(f"{file}: this shard is damaged; delete its folder, and run again")
    return table


def replaced(tables: Sequence[Table], new: Table) -> list[Table]:
    """Tables without those users whose rows are new, and the new ones."""
    again = np.asarray(new["user"])

    def others(table: Table) -> Table:
        kept = np.flatnonzero(~np.isin(np.asarray(table["user"]), again)).tolist()
        return {name: [each[i] for i in kept] if isinstance(each, list) else each[kept] for name, each in table.items()}

    return [*(others(table) for table in tables), new]
