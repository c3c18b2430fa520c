"""Finished trials, each stored once: one JSON line per trial, only ever appended to, so that a killed run can go on."""

from __future__ import annotations

import io
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from prefkin.data.storage import write_atomically
from prefkin.errors import InvalidTable
from prefkin.reproduce.trial import NOT_COMPARED, Trial

__all__ = ["Store", "as_frame", "keep_frame", "read_frame", "replaced"]


class Store:
    """The trials in one file. A line that was cut off by a crash is not a trial.

    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()) / "trials.jsonl")
    >>> trial = Trial("exp1", "synthetic", "offline", (("budget", 10),), 0, (), ("per_user",))
    >>> store.add(trial, [{"method": "per_user", "gap": 0.5}])
    >>> trial.key in store.finished()
    True
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def finished(self) -> dict[str, list[dict[str, Any]]]:
        """Rows by trial key."""
        found: dict[str, list[dict[str, Any]]] = {}
        if not self.path.exists():
            return found
        for line in self.path.read_text().splitlines():
            try:
                kept = json.loads(line)
                found.setdefault(kept["trial"], kept["rows"])
            except (ValueError, KeyError, TypeError):
                continue  # cut off
        return found

    def add(self, trial: Trial, rows: list[dict[str, Any]]) -> None:
        """Append a finished trial; it is on disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"trial": trial.key, "rows": rows}) + "\n"
        with self.path.open("a+b") as file:
            before = file.tell()
            try:
                if before:
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        file.write(b"\n")
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:  # a full disk: half a line is none
                with suppress(OSError):
                    os.truncate(self.path, before)
                raise OSError(error.errno, error.strerror, str(self.path)) from None


TEXT = ("trial", "experiment", "data", "method", "note")
WHOLE = ("run", "budget", "dim", "asked")


def as_frame(trials: list[Trial], finished: dict[str, list[dict[str, Any]]]) -> pl.DataFrame:
    """Rows of these trials, in their order, as one table."""
    rows = [row for trial in trials for row in finished.get(trial.key, [])]
    names = list(dict.fromkeys(name for row in rows for name in row))
    names = [n for n in names if n not in NOT_COMPARED] + [n for n in NOT_COMPARED if n in names]
    kinds = {n: pl.String if n in TEXT else pl.Int64 if n in WHOLE else pl.Float64 for n in names}
    return pl.DataFrame({n: pl.Series(n, [row.get(n) for row in rows], dtype=kinds[n]) for n in names})


def keep_frame(rows: pl.DataFrame, path: Path) -> None:
    """Rows as a Parquet file, written as a whole."""
    buffer = io.BytesIO()
    rows.write_parquet(buffer)
    write_atomically(path, buffer.getvalue())


def read_frame(path: Path) -> pl.DataFrame:
    """Rows that `keep_frame` wrote."""
    if not path.exists():
        raise InvalidTable(f"{path}: no rows are kept there yet; run the whole experiment with --paper first")
    return pl.read_parquet(path)


def replaced(old: pl.DataFrame, new: pl.DataFrame, trials: list[Trial]) -> pl.DataFrame:
    """`old` rows with those of the methods in `new` in their place, as rows of these trials.

    >>> trial = Trial("exp1", "synthetic", "offline", (("budget", 10),), 0, (), ("a", "b"))
    >>> about = {"trial": ["", ""], "run": [0, 0], "budget": [10, 10]}
    >>> old = pl.DataFrame({**about, "method": ["a", "b"], "gap": [0.1, 0.2]})
    >>> replaced(old, old.filter(pl.col("method") == "b").with_columns(gap=pl.lit(0.3)), [trial])["gap"].to_list()
    [0.1, 0.3]
    """
    order = {method: i for trial in trials for i, method in enumerate(trial.methods)}
    cells = [name for name, _ in trials[0].cell]
    places = pl.DataFrame(
        [{**dict(trial.cell), "run": trial.run, "key": trial.key, "place": i} for i, trial in enumerate(trials)]
    )
    kept = old.filter(~pl.col("method").is_in(new["method"].unique().to_list()))
    both = pl.concat([kept, new], how="diagonal_relaxed").join(places, on=[*cells, "run"], how="inner")
    both = both.with_columns(trial=pl.col("key"), rank=pl.col("method").replace_strict(order, return_dtype=pl.Int64))
    by = ["place", "rank", *(["asked"] if "asked" in both.columns else [])]
    return both.sort(by, maintain_order=True).select(old.columns)
