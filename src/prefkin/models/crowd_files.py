"""A model whose people are in shards, as a folder: a small file, and the shards beside it, linked where possible."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prefkin.data.shards import ShardedComparisons, shard_name
from prefkin.data.storage import linked_folder
from prefkin.errors import InvalidParameter, ShardError
from prefkin.models.files import CROWD_FILE, Arrays, read_archive, write_model_file

__all__ = ["LATER", "PEOPLE", "ROWS", "read_crowd", "write_crowd"]

PEOPLE = "people"  # the folder of their shards
LATER = "later"  # the folder of those who answered more since: their people and rows
ROWS = "rows"


def write_crowd(
    folder: Any,
    kind: str,
    data: ShardedComparisons,
    about: dict[str, Any],
    arrays: Arrays,
    people: Path,
    later: Path | None = None,
) -> None:
    """Everything as a whole; `people` is where shards of people are now, `later` of those who came since."""
    if not isinstance(folder, str | Path):
        raise InvalidParameter("people in shards are saved to a folder; give its path")
    where = {"shards": str(data.home.resolve()), "fingerprint": data.fingerprint, "more": data.more}
    content = io.BytesIO()
    write_model_file(content, kind, where | about, np.empty(0), arrays)
    links = {f"{PEOPLE}/{shard_name(k)}": people / shard_name(k) for k in data.inhabited}
    if later is not None:
        links |= {f"{LATER}/{file.parent.name}/{file.name}": file for file in sorted(later.glob("*/*.parquet"))}
    linked_folder(Path(folder), {CROWD_FILE: content.getvalue()}, links)


def read_crowd(folder: Path) -> tuple[dict[str, Any], Arrays, ShardedComparisons]:
    """What was written, and the comparisons it is about, which must be the same as then."""
    header, arrays = read_archive(folder / CROWD_FILE)
    about = header["about"]
    data = ShardedComparisons.at(Path(about["shards"]))
    if data.fingerprint != about["fingerprint"]:
        raise ShardError(f"{folder}: its comparisons in {data.source} changed since they were fitted; fit again")
    if (later := folder / LATER).is_dir():
        data = replace(data, later=later / ROWS, more=tuple(about["more"]))
    return about, arrays, data
