"""Which rows are held out, and which users are asked: decided by what the rows say, not by their place or a seed."""

from __future__ import annotations

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.data.rows import Rows, UserRows

__all__ = ["FOLDS", "by_content", "content_folds", "only", "probe_users", "split_rows"]

FOLDS = 3
LEAST_PROBES = 8
PROBE_USERS, PROBE_ANSWERS = 60, 10_000  # asked, and answers that are enough, where asking everybody takes long


def by_content(users: UserRows) -> IntArray:
    """Positions of users, ordered by what they answered."""
    share = np.add.reduceat(users.rows.weights * np.abs(_facing(users)), users.starts[:-1])
    return np.argsort(share, kind="stable")


def probe_users(users: UserRows, most: int = PROBE_USERS) -> list[int]:
    """Everybody, or a spread of users by what they answered (not by their place in the table)."""
    order = by_content(users)
    enough = int(np.ceil(PROBE_ANSWERS * len(users) / max(len(users.rows.y), 1)))
    n = min(len(order), most, max(enough, LEAST_PROBES))
    chosen = order[np.linspace(0, len(order) - 1, n).astype(int)]
    return sorted(int(user) for user in chosen)


def content_folds(users: UserRows, folds: int) -> IntArray:
    """A fold for each row, decided by what the row says: neither the order of rows nor a seed matters.

    Rows of one context stay together when contexts are known; otherwise each user's rows are spread evenly.
    """
    key = np.abs(_facing(users))  # the same for a pair and its mirror image, also where their last digits differ:
    key = np.round(key / max(float(key.max()), 1e-300), 10)
    if users.contexts is not None:
        largest = np.full(users.contexts.max() + 1, -np.inf)
        np.maximum.at(largest, users.contexts, key)
        return (np.argsort(np.argsort(largest, kind="stable"), kind="stable") % folds)[users.contexts]
    order = np.lexsort([key, users.owner])
    sorted_key, sorted_owner = key[order], users.owner[order]
    same_user = sorted_owner[1:] == sorted_owner[:-1]
    # a row's rank among its user's distinct keys: copies of a row stay together
    rank = np.concatenate([[0], np.cumsum(same_user & (sorted_key[1:] != sorted_key[:-1]))])
    first = np.concatenate([[True], ~same_user])
    rank -= np.maximum.accumulate(np.where(first, rank, 0))
    fold_of = np.empty(len(key), dtype=np.intp)
    fold_of[order] = rank % folds
    return fold_of


def _facing(users: UserRows) -> FloatArray:
    """Each row along one direction that tells rows apart."""
    Z = users.rows.Z
    along = Z @ np.cos(np.arange(1, users.dim + 1)).astype(Z.dtype)  # of one type: nothing is copied
    return along.astype(np.float64, copy=False)


def split_rows(users: UserRows, training: BoolArray, test: BoolArray | None = None) -> tuple[UserRows, UserRows]:
    """Training and test rows (all others, unless given); everybody stays, perhaps with no rows."""

    def part(chosen: BoolArray) -> UserRows:
        before = np.concatenate([[0], np.cumsum(chosen)]).astype(np.intp)
        rows = Rows(*(column[chosen] for column in users.rows))
        contexts, items = (None if about is None else about[chosen] for about in (users.contexts, users.items))
        return UserRows(rows, before[users.starts], users.labels, contexts, items)

    return part(training), part(~training if test is None else test)


def only(rows: UserRows, users: IntArray) -> UserRows:
    """Some of the users."""
    parts = [rows.of(int(u)) for u in users]
    starts = np.concatenate([[0], np.cumsum([len(part.y) for part in parts])]).astype(np.intp)

    def about(each: IntArray | None) -> IntArray | None:
        return None if each is None else np.concatenate([each[rows.starts[u] : rows.starts[u + 1]] for u in users])

    return UserRows(Rows.join(parts), starts, rows.labels[users], about(rows.contexts), about(rows.items))
