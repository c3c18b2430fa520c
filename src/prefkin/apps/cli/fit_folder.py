"""`prefkin fit FOLDER --out DIR`: the same for comparisons that need not fit in memory."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from prefkin.apps.cli.console import column_map, err, out, print_lines, without_panics, working
from prefkin.data.shards import open_comparisons
from prefkin.data.storage import refuse_foreign
from prefkin.errors import InvalidParameter
from prefkin.execution.cluster import on_cluster, on_workers
from prefkin.models.base import PreferenceModel
from prefkin.models.reports import counted

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def fit_folder(
    folder: Path,
    out_dir: Path,
    model: PreferenceModel,
    mapping: list[str],
    drop: list[str],
    memory: str | None,
    workers: int | None,
    scheduler: str | None,
) -> None:
    """Bring rows of users together, fit, say what was found, and save."""
    if workers is not None and scheduler is not None:
        raise InvalidParameter("--workers starts processes here, --scheduler uses those of a cluster; give one of them")
    refuse_foreign(out_dir)  # before the work
    room = None if memory is None else bytes_of(memory)
    place: AbstractContextManager[None] = nullcontext()
    if scheduler is not None:
        place = on_cluster(scheduler)
    elif workers is not None:
        place = on_workers(workers)
    with place, working():
        with without_panics(folder):
            data = open_comparisons(folder, column_map(mapping), drop=drop, memory=room)
        shards = counted(data.n_shards, "shard")
        err.print(f"{counted(data.n_comparisons, 'comparison')} by {counted(data.n_users, 'user')} in {shards}")
        model.fit(data)
        model.save(out_dir)
    everybody = f"own estimates and radii of {counted(data.n_users, 'user')}; whom to pool is found when asked for"
    print_lines(str(model.summary() if model.sums_up_shards else everybody))
    out.print(
        f"\nwritten to {out_dir}: what was learnt, and a row for each user in people/; comparisons stay where they are"
    )


def bytes_of(text: str) -> int:
    """A size of memory.

    >>> bytes_of("4GB"), bytes_of("500 mb")
    (4000000000, 500000000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?\s*", text.upper())
    if found is None or not float(found[1]) > 0:
        raise InvalidParameter(f"--memory takes a size such as 4GB; got {text!r}")
    return int(float(found[1]) * UNITS[found[2]])
