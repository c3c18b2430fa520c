"""New answers, and new users: the E-step of those who gave them, beside the shards, whose files stay as they are."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from prefkin.data.arrays import LabelArray
from prefkin.data.rows import UserRows, grown, only
from prefkin.data.shards import replaced, shard_name
from prefkin.errors import InvalidComparisons
from prefkin.execution.blas import in_one_order
from prefkin.models.files import PEOPLE, ROWS
from prefkin.models.prefkin.e_step import Shared
from prefkin.models.prefkin.fitting import Learnt
from prefkin.models.prefkin.out_of_core.files import with_shared
from prefkin.models.prefkin.out_of_core.users import OutOfCore, UserTable, by_label
from prefkin.models.prefkin.update import gain_of_refit, updated

__all__ = ["with_new_answers"]


@in_one_order
def with_new_answers(everybody: OutOfCore, new: UserRows) -> tuple[OutOfCore, float]:
    """Everybody with these answers, under the hyperparameters as they are; and what a refit would gain.

    The users who gave them are in memory together, with all of their rows.
    """
    data, level = everybody.data, everybody.parameters["level"]
    data.refuse_if_changed()
    new = _as_stored(everybody, new)
    gain = gain_of_refit(everybody.learnt.posterior, new)
    before = everybody.only(_known(everybody, new.labels))
    more = grown(before._users, new)
    known = before._learnt.posterior
    rows, after = replace(more.rows, habits=None), updated(known, more)
    if (wide := known.wide) is not None:
        widening = everybody.learnt.widening
        wide = wide - known.messages_with(*widening) + after.messages_with(*widening)
        after = replace(after, wide=wide)
    counts, sums = everybody.counts.copy(), everybody.sums.copy()
    if len(before._users):
        said = UserTable.of(before._users, before._learnt, level)
        counts, sums = counts - said.counts, sums - said.sums
    held = TemporaryDirectory(dir=data.home, prefix="later-")
    later = Path(held.name)
    _carry_over(everybody.later, later)
    shard = data.shard_of(rows.labels)
    for number in np.unique(shard).tolist():
        who = np.flatnonzero(shard == number)
        learnt = replace(everybody.learnt, posterior=after.some(who))
        table = _write(only(rows, who), learnt, level, later, number, weighted=data.weighted)
        counts, sums = counts + table.counts, sums + table.sums
    users, comparisons = data.more
    strangers = len(rows) - len(before._users)
    data = replace(data, later=later / ROWS, more=(users + strangers, comparisons + len(new.rows.y)))
    shared = Shared(after.population, after.messages, after.sizes)
    learnt, read = with_shared(everybody.learnt, shared, wide), {"held": held}  # removed with it, unless it is saved
    return replace(everybody, data=data, learnt=learnt, counts=counts, sums=sums, later=later, read=read), gain


def _as_stored(everybody: OutOfCore, new: UserRows) -> UserRows:
    """Labels, weights and single precision as in the shards."""
    data = everybody.data
    kind, kinds = (int, "integers") if data.integers else (str, "texts")
    for label in new.labels.tolist():
        if type(label) is not kind:
            raise InvalidComparisons(f"user {label!r} cannot be added: labels are {kinds} in {data.source}")
    if not data.weighted and (new.rows.weights != 1.0).any():
        raise InvalidComparisons(f"the comparisons in {data.source} have no weights; give new answers without")
    Z = new.rows.Z.astype(np.float32).astype(np.float64)
    labels = new.labels if data.integers else new.labels.astype(object)
    return UserRows(new.rows._replace(Z=Z), new.starts, labels)


def _known(everybody: OutOfCore, labels: LabelArray) -> list[object]:
    """Those who are in the shards."""
    data, found = everybody.data, list[object]()
    shard = data.shard_of(labels)
    for number in np.unique(shard).tolist():
        if data.users[number] or (data.later is not None and (data.later / shard_name(number)).exists()):
            mine = labels[shard == number]
            found += mine[np.isin(mine, data.labels(number))].tolist()
    return found


def _carry_over(former: Path | None, later: Path) -> None:
    """Link, or copy, the files of users who gave more answers earlier."""
    for kind in (ROWS, PEOPLE):
        (later / kind).mkdir()
        for file in sorted((former / kind).glob("*.parquet")) if former is not None else ():
            try:
                os.link(file, later / kind / file.name)
            except OSError:  # another file system, or one without links
                shutil.copyfile(file, later / kind / file.name)


def _write(rows: UserRows, learnt: Learnt, level: float, later: Path, number: int, *, weighted: bool) -> UserTable:
    """Rows and posteriors of users of one shard, beside those of others with later answers."""
    from prefkin.data.buckets import blobs, read_table, write_table

    users = UserTable.of(rows, learnt, level)
    for kind, table in ((ROWS, blobs(rows, weighted)), (PEOPLE, users.columns)):
        file = later / kind / shard_name(number)
        tables = replaced([read_table(file)], table) if file.exists() else [table]
        write_table(file, by_label(tables))  # in the place of a link, not into what it names
    return users
