"""Tomorrow's answers of people in shards: those who gave them are placed anew, and nobody else is read.

Each shard's people with new answers are a small model of their own, in which everybody else is known by the sums over
them; so they are placed as in memory (`update`), shard after shard, and the changes of the sums are added up. Rows and
posteriors of these people are written beside the shards, whose files stay as they are.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.data.rows import UserRows, grown, only
from prefkin.data.shards import replaced, shard_name
from prefkin.errors import InvalidComparisons
from prefkin.inference.quadratics import Terms
from prefkin.models.files import PEOPLE, ROWS
from prefkin.models.prefkin.calibrate import Fitted
from prefkin.models.prefkin.in_shards.files import Arrays
from prefkin.models.prefkin.in_shards.people import PeopleInShards, Posteriors, by_label
from prefkin.models.prefkin.mixture import Centres, Mixture, Others, nobody
from prefkin.models.prefkin.settling import State, finish
from prefkin.models.prefkin.update import gain_of_refit, taken_in

__all__ = ["with_new_answers"]

NOBODY = np.empty(0, dtype=np.intp)  # by whom the temperature is judged: it stays


class Renewed(NamedTuple):
    """What new answers of the people of one shard came to."""

    rows: UserRows  # all of theirs
    states: tuple[State, ...]  # of the mixture, and of a wider one where there is one
    sums: tuple[Terms, ...]  # by which those of the groups changed
    sizes: tuple[FloatArray, ...]  # likewise
    said: Arrays  # sums over them for summaries, which are not said any more
    strangers: int


def with_new_answers(everybody: PeopleInShards, new: UserRows) -> tuple[PeopleInShards, float]:
    """Everybody with these answers, under the prior as it is; and what a refit would gain."""
    everybody.data.refuse_if_changed()
    new = _as_stored(everybody, new)
    gain = gain_of_refit(everybody.only([])._fitted, new)
    shard = everybody.data.shard_of(new.labels)
    found = {k: _renewed(everybody, only(new, np.flatnonzero(shard == k)), k) for k in np.unique(shard).tolist()}
    groups = tuple(_followed(each, k, list(found.values())) for k, each in enumerate(everybody.groups))
    counts, sums = everybody.counts.copy(), everybody.sums.copy()
    held = TemporaryDirectory(dir=everybody.data.home, prefix="later-")
    later = Path(held.name)
    _carry_over(everybody.later, later)
    for number, each in found.items():
        told = _write(everybody, groups, each, later, number)
        counts += told["counts"] - each.said["counts"]
        sums += told["sums"] - each.said["sums"]
    users, rows = everybody.data.more
    more = users + sum(each.strangers for each in found.values()), rows + len(new.rows.y)
    data = replace(everybody.data, later=later / ROWS, more=more)
    read = {"held": held}  # removed with it, unless it is saved
    return replace(everybody, data=data, groups=groups, counts=counts, sums=sums, later=later, read=read), gain


def _as_stored(everybody: PeopleInShards, new: UserRows) -> UserRows:
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


def _renewed(everybody: PeopleInShards, new: UserRows, number: int) -> Renewed:
    """The people of one shard, placed with all of their answers."""
    data = everybody.data
    anybody = bool(data.users[number]) or (data.later is not None and (data.later / shard_name(number)).exists())
    known = np.isin(new.labels, data.labels(number)) if anybody else np.zeros(len(new), dtype=bool)
    before = everybody.only(new.labels[known].tolist())
    more, fitted = grown(before._users, new), before._fitted
    after = taken_in(fitted, more)
    said = {"counts": np.zeros_like(everybody.counts), "sums": np.zeros_like(everybody.sums)}
    if known.any():
        said = Posteriors.of(fitted, everybody.metric.signed(before._users), NOBODY).told
    pairs = [(a, b) for a, b in ((fitted.mixture, after.mixture), (fitted.wide, after.wide)) if a is not None and b]
    return Renewed(
        replace(more.rows, habits=None),
        tuple(State.settled(mixture.share, mixture.sites) for _, mixture in pairs),
        tuple(b.centres.sums - a.centres.sums for a, b in pairs),
        tuple(b.sizes - a.sizes for a, b in pairs),
        said,
        int((~known).sum()),
    )


def _followed(groups: Mixture, k: int, found: list[Renewed]) -> Mixture:
    """Groups with the sums of those who answered."""
    sums, sizes = groups.centres.sums, groups.sizes
    for each in found:
        sums, sizes = sums + each.sums[k], sizes + each.sizes[k]
    return nobody(Centres.of(sums, groups.prior), groups.prior, Others(sizes, groups.by_degrees), groups.evidence)


def _carry_over(former: Path | None, later: Path) -> None:
    """Link, or copy, the files of those who answered earlier."""
    for kind in (ROWS, PEOPLE):
        (later / kind).mkdir()
        for file in sorted((former / kind).glob("*.parquet")) if former is not None else ():
            try:
                os.link(file, later / kind / file.name)
            except OSError:  # another file system, or one without links
                shutil.copyfile(file, later / kind / file.name)


def _write(everybody: PeopleInShards, groups: tuple[Mixture, ...], each: Renewed, later: Path, number: int) -> Arrays:
    """Rows and posteriors of those who answered, beside those of others who did so before; sums over them."""
    from prefkin.data.buckets import blobs, read_table, write_table

    data = everybody.metric.signed(each.rows)
    mixture, *wide = (finish(data, state, around) for state, around in zip(each.states, groups, strict=True))
    fitted = Fitted(mixture, everybody.metric, wide[0] if wide else None)
    posteriors = Posteriors.of(fitted, data, NOBODY)
    people = posteriors.table(each.rows.labels, each.rows.starts, everybody.parameters["level"])
    for kind, table in ((ROWS, blobs(each.rows, everybody.data.weighted)), (PEOPLE, people)):
        file = later / kind / shard_name(number)
        tables = replaced([read_table(file)], table) if file.exists() else [table]
        write_table(file, by_label(tables))  # in the place of a link, not into what it names
    return posteriors.told
