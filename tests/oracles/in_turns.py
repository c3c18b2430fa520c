"""People in shards, in memory: what `settling.settle` makes of them is what shards must find."""

from __future__ import annotations

import numpy as np

from prefkin.data.rows import Rows, UserRows
from prefkin.models.prefkin import shards


def in_turns(data, labels):
    """Everybody in the order in which shards take their turns, where these labels are, and how many are first."""
    early, *late = ([data.shard(k) for k in turn] for turn in shards._turns(data, labels))
    parts = [*early, *(each for turn in late for each in turn)]
    everybody = UserRows(
        Rows.join([part.rows for part in parts]),
        np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.starts) for part in parts]))]).astype(np.intp),
        np.concatenate([part.labels for part in parts]),
    )
    order = np.argsort(everybody.labels)
    who = order[np.searchsorted(everybody.labels, labels, sorter=order)]
    return everybody, who, sum(map(len, early)) if late else None
