"""Rows of a user brought together: Parquet files in any order become shards, each with all rows of its users.

A user's shard follows from a hash of the label. First, stretches of rows are sorted by shard, one file each; then
every shard is collected from these files, checked, and written with one row per user whose comparisons are blobs, which
are read ten times as fast as lists. Both steps leave finished files behind, so that a run that was killed goes on.
Where the disk has no room for all sorted rows beside the shards, some of the shards are made at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from prefkin.data.arrays import IntArray, LabelArray
from prefkin.data.comparisons import Comparisons
from prefkin.data.formats import is_text
from prefkin.data.rows import UserRows
from prefkin.data.shards import MANIFEST, Table, checksum, code_of, shard_name
from prefkin.data.storage import held_alone, write_atomically
from prefkin.errors import InvalidTable, PrefkinError, ShardError
from prefkin.execution.progress import tell

__all__ = ["Sources", "blobs", "bucket", "read_table", "write_table"]

FORMAT = 1  # of shards, by which older ones are made anew
SHARD_BYTES = 1 << 26  # of features in a shard: some thousand users, and a worker holds about ten times as much
ROW_BYTES = 32  # of a sorted row beside its features
ROOM = 0.8  # of what the disk has left beside the shards, for sorted rows
MOST_TURNS = 16  # each reads all files again
USERS_AT_ONCE = 64  # in a Parquet row group: what is read to find one user
FIELDS = ("user", "y", "z", "first", "second", "weight", "context")


# -- tables on disk ----------------------------------------------------------------------------------------------------


def write_table(path: Path, columns: Table) -> None:
    """Columns of labels, numbers, vectors (2-d arrays) or blobs as a Parquet file, there as a whole or not at all."""
    frame = pl.DataFrame({name: _series(name, values) for name, values in columns.items()})
    with _as_a_whole(path) as fresh:
        frame.write_parquet(fresh, compression="uncompressed", row_group_size=USERS_AT_ONCE)


def _series(name: str, values: np.ndarray[Any, Any] | list[bytes]) -> pl.Series:
    if isinstance(values, list):
        return pl.Series(name, values, dtype=pl.Binary)
    return pl.Series(name, values.tolist() if values.dtype.kind == "O" else values)


def read_table(
    path: Path,
    columns: Sequence[str] | None = None,
    only: LabelArray | slice | None = None,
    among: IntArray | None = None,
) -> Table:
    """What `write_table` wrote: all of it, or the rows of some users, by label or by position.

    `among` says which of those at consecutive positions are wanted, counted from the first of them.
    """
    with _readable(path):
        found = pl.scan_parquet(path, glob=False)
        if isinstance(only, slice):
            found = found.slice(only.start, only.stop - only.start)
        elif only is not None:
            found = _around(found, wanted := pl.col("user").is_in(pl.Series(only.tolist()).implode())).filter(wanted)
        frame = (found if columns is None else found.select(columns)).collect()
        frame = frame if among is None else frame[among]
        return {
            name: frame[name].to_list() if frame[name].dtype == pl.Binary else frame[name].to_numpy()
            for name in frame.columns
        }


def _around(table: pl.LazyFrame, wanted: pl.Expr) -> pl.LazyFrame:
    """The row groups in which anybody `wanted` is: a filter alone would read all blobs to find a few."""
    here = table.select(wanted.alias("here")).collect()["here"].to_numpy()
    groups = np.unique(np.flatnonzero(here) // USERS_AT_ONCE)
    if 2 * len(groups) * USERS_AT_ONCE >= len(here) or not len(groups):
        return table
    return pl.concat([table.slice(int(group) * USERS_AT_ONCE, USERS_AT_ONCE) for group in groups])


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except PrefkinError:
        raise
    except FileNotFoundError:
        raise ShardError(f"{path}: this shard is gone; put it back, or remove its folder and run again") from None
    except (Exception, pl.exceptions.PanicException):  # libraries fail in ways they do not announce
        raise ShardError(f"{path}: this shard is damaged; delete it and run again") from None


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    """What polars says of damaged files, in a line that names them; it also fails in ways it does not announce."""
    try:
        yield
    except (PrefkinError, OSError):
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        what = "readable as comparisons" if path.is_dir() else "a readable .parquet file"
        raise InvalidTable(f"{path}: not {what}: {reason:.160}") from None


@contextmanager
def _as_a_whole(path: Path) -> Iterator[Path]:
    """A name to write to; what is there when the block ends becomes `path`."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield fresh
        fresh.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None
    except pl.exceptions.ComputeError as error:  # a full disk, too
        raise ShardError(f"{path}: cannot be written: {str(error).splitlines()[0]:.120}") from None
    finally:
        fresh.unlink(missing_ok=True)


# -- what there is to read ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sources:
    """The Parquet files of a folder, under our names."""

    folder: Path
    columns: Mapping[str, str]
    drop: tuple[str, ...]

    @cached_property
    def files(self) -> list[Path]:
        """Every Parquet file below the folder, ordered by name."""
        if not self.folder.is_dir():
            raise ShardError(f"{self.folder}: no such folder; give one that holds Parquet files")
        found = sorted(self.folder.rglob("*.parquet"))
        if not found:
            raise ShardError(f"{self.folder}: there is no .parquet file in it; write comparisons as Parquet first")
        for file in found:
            if not is_text(file):
                raise ShardError(f"{file}: this name is not UTF-8, and polars could not open it; rename it")
        return found

    @cached_property
    def fingerprint(self) -> str:
        """A digest of names, sizes and times of the files, and of how they are read."""
        about = [(str(f.relative_to(self.folder)), (s := f.stat()).st_size, s.st_mtime_ns) for f in self.files]
        told = json.dumps([FORMAT, about, sorted(self.columns.items()), self.drop])
        return hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    @cached_property
    def schema(self) -> pl.Schema:
        """Columns and types that all files have; one that differs is named."""
        first: pl.Schema | None = None
        for file in self.files:
            with _understood(file):
                found = pl.scan_parquet(file, glob=False).collect_schema()
            if first is not None and found != first:
                other = next(iter(set(first.items()) ^ set(found.items())), ("", ""))[0]
                raise InvalidTable(
                    f"{file}: its columns are not those of {self.files[0].name} (see {other!r}); write all files alike"
                )
            first = found
        assert first is not None
        return first

    @cached_property
    def counts(self) -> IntArray:
        """Rows of each file."""
        assert self.schema  # all of them can be read
        each = []
        for file in self.files:
            with _understood(file):
                each.append(int(pl.scan_parquet(file, glob=False).select(pl.len()).collect().item()))
        if not sum(each):
            raise InvalidTable(f"{self.folder}: there are no comparisons: the files are empty")
        return np.array(each)

    def scan(self) -> pl.LazyFrame:
        """All rows: user, y, z (fixed-size, single precision), row, and weight and context where there are any."""
        source = pl.scan_parquet(self.files, glob=False, row_index_name="row")
        kind = self.schema[self._named("user")]
        if kind.is_integer():
            user = pl.col(self._named("user")).cast(pl.Int64)
        elif kind in (pl.String, pl.Categorical, pl.Enum):
            user = pl.col(self._named("user")).cast(pl.String)
        else:
            raise InvalidTable(f"{self.folder}: user labels are of type {kind}; make them integers or text")
        if (kind := self.schema[self._named("y")]) in (pl.String, pl.Categorical, pl.Enum):
            raise InvalidTable(
                f"{self.folder}: answers in column {self._named('y')} are of type {kind}; code 1 where the first was "
                "preferred, 0 where the second was"
            )
        chosen = [user.alias("user"), pl.col(self._named("y")).cast(pl.Float32).alias("y"), self._features.alias("z")]
        if self._has("weight"):
            chosen.append(pl.col(self._named("weight")).cast(pl.Float64).alias("weight"))
        if self._has("context"):
            chosen.append(pl.col(self._named("context")).alias("context"))
        return source.select("row", *chosen)

    @cached_property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of features that have columns of their own."""
        return tuple(self._numbered("z")) or None if not self._has("z") else None

    @cached_property
    def dim(self) -> int:
        """Number of features."""
        for name in ("z", "first"):
            if self._has(name):
                self._refuse_other_vectors(name)
                with _understood(self.folder):
                    first = pl.scan_parquet(self.files, glob=False).select(self._named(name)).head(1).collect().item()
                if first is None:
                    raise InvalidTable(f"{self.folder}: {name} is missing in {self.place(0)}; give a list of numbers")
                return len(first)
            if self._numbered(name):
                return len(self._numbered(name))
        raise self._lacks("the features: z0, z1, ... or a list column z, or first0, ... and second0, ...")

    @property
    def _features(self) -> pl.Expr:
        if self._has("z") or self._numbered("z"):
            return self._vector("z", pl.Float32)
        difference = self._vector("first", pl.Float64) - self._vector("second", pl.Float64)
        return difference.cast(pl.Array(pl.Float32, self.dim))

    def _vector(self, name: str, kind: type[pl.DataType]) -> pl.Expr:
        if self._has(name):
            self._refuse_other_vectors(name)
            return pl.col(self._named(name)).cast(pl.List(kind)).list.to_array(self.dim)
        if not (numbered := self._numbered(name)):
            raise self._lacks(f"the features of {name}")
        return pl.concat_arr([pl.col(each).cast(kind) for each in numbered])

    def _refuse_other_vectors(self, name: str) -> None:
        """Before polars says it in words of its own."""
        kind = self.schema[self._named(name)]
        if not (isinstance(kind, pl.List | pl.Array) and kind.inner.is_numeric()):
            raise InvalidTable(f"{self.folder}: column {self._named(name)} holds {kind}; make it lists of numbers")

    def _numbered(self, name: str) -> list[str]:
        """Columns name0, name1, ..., without a gap."""
        pattern = re.compile(re.escape(self._named(name)) + r"(\d+)$")
        found = sorted((int(match[1]), each) for each in self.schema if (match := pattern.match(each)))
        if [number for number, _ in found] != list(range(len(found))):
            raise InvalidTable(f"{self.folder}: {name}0, {name}1, ... have a gap; features are numbered from 0 without")
        return [each for _, each in found]

    def _named(self, field: str) -> str:
        return self.columns.get(field, field)

    def _has(self, field: str) -> bool:
        return self._named(field) in self.schema

    def refuse_what_is_missing(self) -> None:
        """An error about a field that is unknown or not there, before any row is read."""
        for field in self.columns:
            if field not in FIELDS:
                raise InvalidTable(f"unknown field {field!r} in the column mapping; known: {', '.join(FIELDS)}")
        for field in ("user", "y"):
            if not self._has(field):
                raise self._lacks(f"column {field}")
        if not self.dim:
            raise InvalidTable(f"{self.folder}: comparisons have no features; give at least one")

    def _lacks(self, what: str) -> InvalidTable:
        names = list(self.schema)
        shown = ", ".join(names[:12]) + (f", ... ({len(names)} in all)" if len(names) > 12 else "")
        return InvalidTable(
            f"{self.folder}: the files lack {what}; they have: {shown}; folders are read with columns user, y and "
            "z or first and second: name others with columns={...} (on the command line: --map OURS=THEIRS)"
        )

    def place(self, row: int) -> str:
        """Where a row is, for people."""
        before = np.concatenate([[0], np.cumsum(self.counts)])
        file = int(np.searchsorted(before, row, side="right")) - 1
        return f"row {row - before[file]} (counted from 0) of {self.files[file].name}"


# -- the two steps -----------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """How rows are cut."""

    shards: int
    stretch: int  # rows sorted at once
    turns: int = 1  # in each of which some of the shards are made

    def made_in(self, turn: int) -> range:
        """The shards of a turn."""
        return range(self.shards * turn // self.turns, self.shards * (turn + 1) // self.turns)


def bucket(sources: Sources, home: Path, rows_a_shard: int | None, memory: int) -> None:
    """Write the shards of these files to `home`; what a former run finished is taken as it is."""
    new = not home.parent.exists()
    home.mkdir(parents=True, exist_ok=True)
    with held_alone(home):
        if (home / MANIFEST).exists():
            return
        try:
            _written(sources, home, rows_a_shard, memory)
        except ShardError:  # once the disk has room, what is finished is taken as it is
            raise
        except PrefkinError:  # once the files are mended, they have another home
            shutil.rmtree(home, ignore_errors=True)
            if new:
                with suppress(OSError):  # others have come
                    home.parent.rmdir()
            raise


def _written(sources: Sources, home: Path, rows_a_shard: int | None, memory: int) -> None:
    """Both steps, and last what says that they are done."""
    rows = int(sources.counts.sum())
    sources.refuse_what_is_missing()
    plan = _plan(rows, sources.dim, rows_a_shard, memory, home / "plan.json")
    about = [made for turn in range(plan.turns) for made in _turn(sources, plan, turn, home, rows)]
    users, counts = (list(each) for each in zip(*about, strict=True))
    told = {
        "format": FORMAT,
        "fingerprint": sources.fingerprint,
        "source": str(sources.folder.resolve()),
        "columns": dict(sources.columns),
        "drop": list(sources.drop),
        "features": sources.dim,
        "feature_names": sources.feature_names,
        "weighted": "weight" in (kinds := sources.scan().collect_schema()),
        "integers": kinds["user"].is_integer(),
        "users": users,
        "rows": counts,
    }
    write_atomically(home / MANIFEST, json.dumps(told).encode())


def _plan(rows: int, dim: int, rows_a_shard: int | None, memory: int, file: Path) -> Plan:
    """The one of a former run, if there is one: its files are cut that way."""
    if file.exists():
        return Plan(*json.loads(file.read_text()))
    shards, size = -(-rows // (rows_a_shard or max(SHARD_BYTES // (4 * dim), 1))), rows * (4 * dim + ROW_BYTES)
    spare = shutil.disk_usage(file.parent).free - size
    turns = min(max(-(-size // max(int(ROOM * spare), 1)), 1), MOST_TURNS, shards)
    plan = Plan(int(shards), min(max(memory // (32 * dim), 1 << 14), 1 << 24), int(turns))
    write_atomically(file, json.dumps(plan).encode())
    return plan


def _turn(sources: Sources, plan: Plan, turn: int, home: Path, rows: int) -> list[tuple[int, int]]:
    """Some of the shards: rows of all files that belong there sorted, then collected; users and rows of each shard."""
    shards, sorted_rows = plan.made_in(turn), home / f"sorted-{turn}"
    before, each = 2 * rows * shards.start // plan.shards, rows // plan.turns

    def say(share: float, of: int) -> None:
        tell("rows brought together", min(int(before + of * each + share * each), 2 * rows), 2 * rows)

    if not all((home / shard_name(shard)).exists() for shard in shards):
        sorted_rows.mkdir(exist_ok=True)
        for start in range(0, rows, plan.stretch):
            say(start / rows, 0)
            _sort(sources, plan, start, shards, sorted_rows / f"{start}.parquet")
    made = []
    for done, shard in enumerate(shards):
        say(done / len(shards), 1)
        made.append(_collect(sources, shard, home, sorted_rows))
    shutil.rmtree(sorted_rows, ignore_errors=True)
    return made


def _sort(sources: Sources, plan: Plan, start: int, shards: range, target: Path) -> None:
    """Rows of a stretch that belong in these shards, sorted by shard."""
    if target.exists():
        return

    def shard_of(users: pl.Series) -> pl.Series:
        code = code_of(users.to_numpy()) % np.uint64(plan.shards)
        return pl.Series(code.astype(np.uint32))

    rows = sources.scan().slice(start, plan.stretch)
    if "missing" in sources.drop:
        rows = rows.filter(pl.col("user").is_not_null())
    with _understood(sources.folder):
        unnamed = rows.filter(pl.col("user").is_null()).select("row").head(1).collect()
    if len(unnamed):
        raise InvalidTable(
            f"{sources.folder}: the user is missing in {sources.place(unnamed.item())}; leave such rows out with "
            "drop='missing' (on the command line: --drop missing)"
        )
    number = pl.col("user").map_batches(shard_of, return_dtype=pl.UInt32, is_elementwise=True).alias("shard")
    group = max(min(plan.stretch, 1 << 20) // plan.shards // 2, 256)
    mine = pl.col("shard").is_between(shards.start, shards.stop - 1)
    found = rows.with_columns(number).filter(mine).sort("shard", "user", "row")
    with _as_a_whole(target) as fresh, _understood(sources.folder):
        found.sink_parquet(fresh, compression="uncompressed", row_group_size=group, engine="streaming")


def _collect(sources: Sources, shard: int, home: Path, sorted_rows: Path) -> tuple[int, int]:
    """One shard out of all sorted stretches: how many users and rows it has."""
    target = home / shard_name(shard)
    if target.exists():
        done = read_table(target, ["user", "rows"])
        return len(done["user"]), int(np.sum(done["rows"]))
    parts = sorted(sorted_rows.glob("*.parquet"), key=lambda file: int(file.stem))
    found = pl.scan_parquet(parts, glob=False).filter(pl.col("shard") == shard)
    frame = found.sort("user", "row").collect(engine="streaming")
    if not len(frame):
        write_table(target, {"user": np.empty(0, np.int64), "rows": np.empty(0, np.int64)})
        return 0, 0
    data = _checked(sources, frame)
    users = data.by_user(copy=False)
    write_table(target, blobs(users, data.weighted, data.contexts))
    return len(users), len(data)


def _checked(sources: Sources, frame: pl.DataFrame) -> Comparisons:
    """The rows of a shard; faults are told with file and row."""
    contexts = None
    if "context" in frame.columns:
        given = frame["context"]
        contexts = code_of(given.to_numpy() if given.dtype.is_integer() else given.cast(pl.String).to_numpy())
    try:
        return Comparisons.from_arrays(
            frame["z"].to_numpy(),
            frame["y"].to_numpy(),
            frame["user"].to_numpy() if frame["user"].dtype == pl.Int64 else np.array(frame["user"].to_list()),
            weights=frame["weight"].to_numpy() if "weight" in frame.columns else None,
            contexts=contexts,
            drop=sources.drop,
        )
    except PrefkinError as error:

        def place(found: re.Match[str]) -> str:
            return sources.place(int(frame["row"][int(found[1])]))

        told = re.sub(r"row (\d+) \(counted from 0\)", place, str(error))
        raise type(error)(f"{sources.folder}: {told}") from None


def blobs(users: UserRows, weighted: bool, contexts: np.ndarray[Any, Any] | None = None) -> Table:
    """A row for each user: what was compared, answered, and how often it counts, as bytes, with a checksum.

    Contexts, in the order of users' rows, are numbers that mean the same in all shards.
    """
    Z, y, weights = users.rows
    starts = users.starts.tolist()
    columns: dict[str, list[bytes]] = {}
    parts = {"z": Z.astype("<f4", copy=False), "y": y.astype("u1")}
    if weighted:
        parts["weight"] = weights.astype("<f8", copy=False)
    if contexts is not None:
        parts["context"] = contexts.astype("<u8")
    for name, values in parts.items():
        whole = np.ascontiguousarray(values)
        columns[name] = [whole[a:b].tobytes() for a, b in pairwise(starts)]
    checks = np.array([checksum(each) for each in zip(*columns.values(), strict=True)], dtype=np.uint32)
    return {"user": users.labels, "rows": np.diff(users.starts), "check": checks, **columns}
