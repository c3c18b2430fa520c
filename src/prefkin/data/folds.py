"""Which rows are held out, and which users are asked: decided by what the rows say, not by their place or a seed."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from prefkin.data.arrays import BoolArray, FloatArray, IntArray, above_zero
from prefkin.data.rows import UserRows, split_rows, spread
from prefkin.errors import InvalidParameter

__all__ = [
    "FOLDS",
    "PREDICT_FOR",
    "Split",
    "by_content",
    "held_out_folds",
    "leverage",
    "probe_users",
    "splits_of",
]

FOLDS = 3
PREDICT_FOR = ("auto", "new items", "known items", "rows")
LARGEST = 0.36  # of all rows: what is held out at once when everything that hangs together is; about a third
EVERYWHERE = 0.5  # share of rows above which an item is in all that will be asked
ENOUGH = 0.2  # of the rows are judged by, else fewer folds are made of items
NOTICEABLE = 0.1  # share of rows about pairs that several people were asked about
IN_SPAN = 0.5  # share of held-out rows that must lie in the span of the training rows
OUTSIDE = 0.1  # share of a row's squared length outside of that span from which it does not lie in it
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
    chosen = order[spread(len(order), n)]
    return sorted(int(user) for user in chosen)


class Split(NamedTuple):
    """Rows to learn from, rows to be judged by, and what each of the latter counts."""

    train: BoolArray  # (n,)
    held: BoolArray  # (n,)
    weight: FloatArray  # (rows held,)

    def parts(self, users: UserRows) -> tuple[UserRows, UserRows]:
        """Training rows and held-out rows, the latter with this weight."""
        train, held = split_rows(users, self.train, self.held)
        return train, replace(held, rows=held.rows._replace(weights=self.weight))


def splits_of(
    users: UserRows,
    predict_for: str = "auto",
    *,
    folds: int = FOLDS,
    order: FloatArray | None = None,
    deals: int = 1,
    X: FloatArray | None = None,
    enough: float = np.inf,
) -> list[Split]:
    """Folds that judge what was learnt: those of `held_out_folds`, or else each person's rows spread evenly.

    The latter where most held-out rows lie outside of the span of the training rows: whatever was learnt, their margins
    are 0. Of the others, rows outside of the span do not judge. X, (n, r), holds the rows along fewer directions, if
    learning is along these. A row held out several times counts once in all. With `enough` held-out rows there are no
    more folds, unless rows share contexts or items, of which there are fewer.

    >>> from prefkin.data.comparisons import Comparisons
    >>> topics = np.arange(8) // 2  # a topic for each pair of rows, and a feature for each topic
    >>> data = Comparisons.from_arrays(np.eye(4)[topics], np.ones(8), [0, 1] * 4, contexts=topics)
    >>> [split.held.astype(int).tolist() for split in splits_of(data.by_user(), folds=2)]
    [[1, 0, 1, 0, 0, 1, 0, 1], [0, 1, 0, 1, 1, 0, 1, 0]]
    """
    X = users.rows.Z if X is None else X
    for way in (predict_for, "rows"):
        dealt = held_out_folds(users, folds, way, order, deals)
        found = [(train, held & _in_span(X, train)) for train, held in dealt]
        if sum(int(held.sum()) for _, held in found) >= IN_SPAN * sum(int(held.sum()) for _, held in dealt):
            break
    if users.contexts is None and users.items is None:
        judged = np.cumsum([int(held.sum()) for _, held in found])
        found = found[: int(np.searchsorted(judged, enough)) + 1]
    counts = users.rows.weights if users.judged is None else users.judged
    counts = counts / np.maximum(np.sum([held for _, held in found], axis=0), 1)
    return [Split(train, held, counts[held]) for train, held in found if train.any() and held.any()]


def _in_span(X: FloatArray, train: BoolArray) -> BoolArray:
    """Rows that lie in the span of the training rows, whatever the units of features."""
    scale = np.sqrt(np.maximum(np.einsum("ij,ij->j", X, X, dtype=np.float64) / len(X), 1e-300))
    known, squares = X[train] / scale, np.einsum("ij,ij->i", X / scale, X / scale)
    values, axes = np.linalg.eigh(known.T @ known)
    missing = axes[:, values <= 1e-8 * max(float(values.max(initial=0.0)), 1e-300)]
    inside: BoolArray = (((X / scale) @ missing) ** 2).sum(axis=1) <= OUTSIDE * np.maximum(squares, 1e-300)
    return inside


def held_out_folds(
    users: UserRows,
    folds: int = FOLDS,
    predict_for: str = "auto",
    order: FloatArray | None = None,
    deals: int = 1,
) -> list[tuple[BoolArray, BoolArray]]:
    """Rows to learn from and rows to be judged by, in turn: folds that match what will be asked.

    A choice made by answers about items that were learnt from is right for these items, and too bold for others. So:

    * contexts, where they are known, are held out whole;
    * "new items" (and "auto", where items are known): rows that share an item, directly or through others, are held out
      together. Where that would be too many at once, items are dealt to folds: judged are the rows with both items in
      the fold, learnt from those with neither, and rows between them do neither: so they are dealt `deals` times, each
      time otherwise. An item in more than half of the rows (such as "none of these") will be there again, and counts as
      known;
    * where only differences are known, rows whose differences add up (`triangles`) are about the same items, and held
      out together, unless that would be too many; else a pair that several people were asked about is held out for all
      of them: always for "new items", with "auto" where such rows are a tenth;
    * "known items": each person's rows are spread evenly, and different people's copies of a row over the folds.
    * "rows": the same, and contexts are not held out whole.

    Copies of a row of one person stay together in any case. What rows say decides (by `order`, a number for each row,
    where it is given), neither their order, nor that of users or sides, nor a seed. With too few items or contexts,
    fewer folds are made, or the next of these ways is taken.

    >>> from prefkin.data.comparisons import Comparisons
    >>> X, pairs = np.arange(6.0)[:, None], np.array([[0, 1], [2, 3], [4, 5], [1, 0], [2, 3], [5, 4]])
    >>> data = Comparisons.from_sides(X[pairs[:, 0]], X[pairs[:, 1]], np.ones(6), [0, 0, 0, 1, 1, 1])
    >>> [test.astype(int).tolist() for train, test in held_out_folds(data.by_user())]
    [[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1]]
    """
    if predict_for not in PREDICT_FOR:
        raise InvalidParameter(f"predict_for must be one of {', '.join(map(repr, PREDICT_FOR))}; got {predict_for!r}")
    key, n = _keys(users), len(users.rows.y)
    pair = np.unique(key, return_inverse=True)[1]
    order = key if order is None else order
    ways: list[list[tuple[BoolArray, BoolArray]]] = []
    if users.contexts is not None and predict_for != "rows" and _people_have_several(users, users.contexts):
        ways.append(_whole(users, users.contexts, order, folds))
    if not ways and predict_for not in ("known items", "rows"):
        if users.items is not None:
            ways.append(_sharing_no_item(users, users.items, pair, order, folds, deals))
        elif users.topics is not None and _can_be_held_out(users, users.topics):
            ways.append(_whole(users, users.topics, order, folds))
        shared = _shared(pair, users.owner)[pair] & (key > 0)
        if predict_for == "new items" or users.items is not None or shared.sum() >= NOTICEABLE * n:
            ways.append(_whole(users, pair, order, folds))
    own = np.unique(users.owner * (pair.max() + 1) + pair, return_inverse=True)[1]
    rows = _whole(users, own, order, folds, _turns(users, order is not key))
    return next((way for way in ways if way and all(train.any() for train, _ in way)), rows)


def _whole(
    users: UserRows, unit: IntArray, key: FloatArray, folds: int, turns: IntArray | None = None
) -> list[tuple[BoolArray, BoolArray]]:
    """Rows of a unit are held out together."""
    first = np.full(unit.max() + 1, -np.inf)
    np.maximum.at(first, unit, key)
    fold_of = _dealt(unit, users.owner, first, folds, turns)[unit]
    return [(fold_of != fold, fold_of == fold) for fold in range(folds) if (fold_of == fold).any()]


def _sharing_no_item(
    users: UserRows, items: IntArray, pair: IntArray, key: FloatArray, folds: int, deals: int
) -> list[tuple[BoolArray, BoolArray]]:
    """Folds whose rows share no item with those that are learnt from; none where items are too few for that."""
    n, known = len(items), np.unique(items, return_inverse=True)
    ends, n_items = known[1].reshape(n, 2), len(known[0])
    everywhere = np.bincount(ends.ravel(), minlength=n_items) > EVERYWHERE * n
    known_end = everywhere[ends]
    ends = np.where(known_end, ends[:, ::-1], ends)  # a row is about its other item,
    ends[known_end.all(axis=1)] = n_items + pair[known_end.all(axis=1), None]  # or about the pair
    size = n_items + int(pair.max()) + 1
    graph = coo_array((np.ones(n), (ends[:, 0], ends[:, 1])), shape=(size, size))
    component = connected_components(graph, directed=False)[1]
    least = np.full(size, size)
    np.minimum.at(least, component, np.arange(size))  # a component's number is its first item's
    unit = np.unique(least[component][ends[:, 0]], return_inverse=True)[1]
    if _can_be_held_out(users, unit):
        return _whole(users, unit, key, folds)
    both, owners = np.unique(ends.ravel(), return_inverse=True)[1], np.repeat(users.owner, 2)
    for some in range(folds, 1, -1):
        dealt = _dealt(both, owners, np.arange(both.max() + 1), some)
        found = [_between(dealt[both].reshape(n, 2), some)]
        judged = sum(int(test.sum()) for _, test in found[0])
        if judged >= ENOUGH * n and all(train.any() for train, _ in found[0]):
            place = np.empty_like(dealt)  # among the items of a fold, those in most rows first
            for fold in range(some):
                mine = np.flatnonzero(dealt == fold)
                place[mine[np.argsort(-np.bincount(both)[mine], kind="stable")]] = np.arange(len(mine))
            found += [_between(((dealt + turn * place) % some)[both].reshape(n, 2), some) for turn in range(1, deals)]
            return [split for deal in found for split in deal if split[0].any()]
    return []


def _between(fold_of: IntArray, folds: int) -> list[tuple[BoolArray, BoolArray]]:
    """Rows with neither end in a fold, and rows with both, for each fold with any."""
    found = [((fold_of != fold).all(axis=1), (fold_of == fold).all(axis=1)) for fold in range(folds)]
    return [(train, test) for train, test in found if test.any()]


def _turns(users: UserRows, free_of_units: bool) -> IntArray:
    """Where each user's rows begin to be dealt: different people's copies of a question come to different folds."""
    signed = users.rows.weights * (2.0 * users.rows.y - 1.0)
    if free_of_units:  # as in `leverage`
        Z, precision = _normed(users.rows.Z)
        total = np.array([np.bincount(users.owner, signed * column, len(users)) for column in Z.T]).T
        answers, size = np.einsum("ui,ui->u", total @ precision, total), np.zeros(len(users))
    else:
        facing = _facing(users)
        answers = np.bincount(users.owner, signed * facing, len(users)).astype(np.float64)
        size = np.bincount(users.owner, np.abs(facing), len(users)).astype(np.float64)
    order = np.lexsort([np.round(answers, 9), np.round(size, 9)])
    turns = np.empty(len(users), dtype=np.intp)
    turns[order] = np.arange(len(users))
    return turns


def _dealt(
    unit: IntArray, owner: IntArray, first: FloatArray | IntArray, folds: int, turns: IntArray | None = None
) -> IntArray:
    """A fold for each unit: those of one person evenly among that person's, others evenly among all rows.

    `first` says in which order; `unit` and `owner` have an entry for each row (or for each end of a row).
    """
    fold_of, size = np.empty(len(first), dtype=np.intp), np.bincount(unit, minlength=len(first))
    who = np.zeros(len(first), dtype=np.intp)
    who[unit] = owner
    shared = _shared(unit, owner)
    number, filled = np.arange(len(first)), [0] * folds
    largest_first = np.lexsort([number, first, -size])
    for one in largest_first[shared[largest_first]].tolist():
        fold = filled.index(min(filled))
        fold_of[one] = fold
        filled[fold] += int(size[one])
    order = np.lexsort([number, first, who])
    order = order[~shared[order]]
    begins = np.concatenate([[True], who[order][1:] != who[order][:-1]])
    rank = np.arange(len(order)) - np.maximum.accumulate(np.where(begins[: len(order)], np.arange(len(order)), 0))
    rank = rank if turns is None else rank + turns[who[order]]
    fold_of[order] = folds - 1 - rank % folds  # from the other end: the largest shared one is in the first fold
    return fold_of


def _shared(unit: IntArray, owner: IntArray) -> BoolArray:
    """Units in which more than one person has rows."""
    least, most = np.full(unit.max() + 1, owner.max() + 1), np.full(unit.max() + 1, -1)
    np.minimum.at(least, unit, owner)
    np.maximum.at(most, unit, owner)
    return least != most


def _can_be_held_out(users: UserRows, unit: IntArray) -> bool:
    """Is something left, of all and of each person, when a unit is held out?"""
    return bool(np.bincount(unit).max() <= LARGEST * len(unit)) and _people_have_several(users, unit)


def _people_have_several(users: UserRows, unit: IntArray) -> bool:
    """Do most rows belong to people with rows in several units, so that something is left of them in each fold?"""
    present = np.diff(users.starts) > 0
    starts = users.starts[:-1][present]
    several = np.minimum.reduceat(unit, starts) != np.maximum.reduceat(unit, starts)
    return bool(np.diff(users.starts)[present][several].sum() >= 0.5 * len(unit))


def _keys(users: UserRows) -> FloatArray:
    """The same number for a pair and its mirror image, also where their last digits differ; from 0 to 1."""
    key = np.abs(_facing(users))
    return np.round(key / above_zero(key.max()), 10)


def _facing(users: UserRows) -> FloatArray:
    """Each row along one direction that tells rows apart."""
    Z = users.rows.Z
    along = Z @ np.cos(np.arange(1, users.dim + 1)).astype(Z.dtype)  # of one type: nothing is copied
    return along.astype(np.float64, copy=False)


def leverage(users: UserRows) -> FloatArray:
    """zᵀ(Σ zzᵀ)⁻¹z of each row, in which neither units nor mixtures of features show.

    >>> from prefkin.data.comparisons import Comparisons
    >>> rows = Comparisons.from_arrays([[1.0, 0.0], [0.0, 3.0], [0.0, 4.0]], [1, 1, 0], ["a"] * 3).by_user()
    >>> leverage(rows).tolist()
    [1.0, 0.36, 0.64]
    """
    Z, precision = _normed(users.rows.Z)
    found: FloatArray = np.round(np.einsum("ij,ij->i", Z @ precision, Z), 10)
    return found


def _normed(Z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rows with columns of length 1, and the inverse of the sum of their squares."""
    size = np.sqrt(np.einsum("ij,ij->j", Z, Z, dtype=np.float64))
    Z = Z / np.where(size > 0, size, 1.0)
    return Z, np.asarray(np.linalg.pinv(Z.T @ Z, hermitian=True), dtype=np.float64)
