"""Comparisons sorted by user, so that one user's rows are one slice: what every estimate is computed from."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from prefkin.data.arrays import BoolArray, FloatArray, IntArray, LabelArray
from prefkin.data.checks import distinct_labels, label_array
from prefkin.data.digest import fingerprints
from prefkin.data.triangles import topics_of_differences
from prefkin.errors import UnknownUser

__all__ = ["Grown", "Rows", "UserRows", "consecutive", "grown", "only", "split_rows", "spread", "with_weight"]

FEW_FEATURES = 8  # by which rows are told apart first


class Rows(NamedTuple):
    """Comparisons without their owners: what an estimate is computed from."""

    Z: FloatArray  # (n, d)
    y: FloatArray  # (n,)
    weights: FloatArray  # (n,)

    @classmethod
    def join(cls, parts: Sequence[Rows]) -> Rows:
        """Rows of several origins, one after the other."""
        return parts[0] if len(parts) == 1 else cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def signed(self) -> FloatArray:
        """(2y − 1) z: every row as if its first action had been preferred, (n, d)."""
        return (2.0 * self.y - 1.0)[:, None] * self.Z


@dataclass(frozen=True, eq=False)
class UserRows:
    """Comparisons sorted by user, so that one user's rows are one slice."""

    rows: Rows
    starts: IntArray  # (U + 1,) user u owns rows starts[u]:starts[u + 1]
    labels: LabelArray  # (U,)
    contexts: IntArray | None = None  # (n,) which context a row is about, as a number
    items: IntArray | None = None  # (n, 2) which items were compared, as numbers
    sided: bool = False  # is known which side was the first?
    habits: FloatArray | None = None  # (U,) log odds of taking the first side, whatever is on it
    judged: FloatArray | None = None  # (n,) what a row counts when it is held out, where that is not its weight

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.rows.Z.shape[1]

    @cached_property
    def counts(self) -> FloatArray:
        """N_u: comparisons per user, each counted by its weight."""
        return np.bincount(self.owner, self.rows.weights, len(self)).astype(np.float64)

    @cached_property
    def owner(self) -> IntArray:
        """(n,) the position of each row's user."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @cached_property
    def repeated(self) -> FloatArray | None:
        """(n,) how often a user gave each answer, in all rows that say the same; None where no row says it again.

        >>> rows = Rows(np.array([[1.0], [2.0], [-1.0]]), np.array([1.0, 1.0, 0.0]), np.array([1.0, 1.0, 3.0]))
        >>> UserRows(rows, np.array([0, 3]), np.array(["ann"])).repeated.tolist()
        [4.0, 1.0, 4.0]
        """
        for features in sorted({min(FEW_FEATURES, self.dim), self.dim}):  # a few tell most rows apart
            code = self._answers(features)
            in_order = np.sort(code)
            if (in_order[1:] != in_order[:-1]).all():
                return None
        _, which = np.unique(code, return_inverse=True)
        return np.bincount(which, self.rows.weights)[which].astype(np.float64)

    def _answers(self, features: int) -> Any:
        """A number of 64 bits for each row: the same where the first so many features, answer and user are the same."""
        Z, y, _ = self.rows
        code = fingerprints(Z[:, :features], 2.0 * y - 1.0)
        if self.habits is not None:  # who takes the first side by habit says less by doing so
            code ^= (y > 0.5).astype(np.uint64)
        code ^= self.owner.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return code

    @cached_property
    def topics(self) -> IntArray | None:
        """(n,) which rows hang together by what they are about, where differences alone say so."""
        return topics_of_differences(self.rows.Z)

    @cached_property
    def recurring(self) -> bool:
        """Are some rows about the same thing as others?"""
        if self.contexts is not None or self.items is None:
            return self.contexts is not None or self.topics is not None
        return len(np.unique(self.items)) < self.items.size

    def of(self, user: int) -> Rows:
        """One user's rows, as views."""
        own = slice(self.starts[user], self.starts[user + 1])
        return Rows(*(part[own] for part in self.rows))

    def of_many(self, users: Iterable[int]) -> Rows:
        """Several users' rows, in the order given."""
        return Rows.join([self.of(user) for user in users])

    @cached_property
    def _position(self) -> dict[Hashable, int]:
        return {label: i for i, label in enumerate(self.labels.tolist())}

    def index(self, label: Hashable) -> int:
        """Position of a user's label, or one line that says what is known."""
        try:
            return self._position[label]
        except (KeyError, TypeError):
            known = ", ".join(f"{name!r:.60}" for name in self.labels[:5].tolist())
            more = ", ..." if len(self) > 5 else ""
            raise UnknownUser(
                f"user {label!r:.60} is not among the {len(self)} fitted users ({known}{more}); "
                "fit again with this user's rows, or use fold_in(Z, y)"
            ) from None

    def indices(self, labels: ArrayLike | Sequence[Hashable]) -> IntArray:
        """Positions of many labels."""
        distinct, codes = distinct_labels(label_array(labels, "users"))
        return np.array([self.index(label) for label in distinct.tolist()], dtype=np.intp)[codes]


def consecutive(users: UserRows, at: slice) -> UserRows:
    """Users at consecutive positions, as views; contexts, items and habits go.

    >>> both = UserRows(Rows(np.eye(2), np.ones(2), np.ones(2)), np.array([0, 1, 2]), np.array(["ann", "cy"]))
    >>> consecutive(both, slice(1, 2)).labels.tolist()
    ['cy']
    """
    starts = users.starts[at.start : at.stop + 1]
    rows = slice(int(starts[0]), int(starts[-1]))
    return UserRows(Rows(*(part[rows] for part in users.rows)), starts - starts[0], users.labels[at])


def split_rows(users: UserRows, training: BoolArray, test: BoolArray | None = None) -> tuple[UserRows, UserRows]:
    """Training and test rows (all others, unless given); everybody stays, perhaps with no rows."""

    def part(chosen: BoolArray) -> UserRows:
        before = np.concatenate([[0], np.cumsum(chosen)]).astype(np.intp)
        rows = Rows(*(column[chosen] for column in users.rows))
        contexts, items = (None if about is None else about[chosen] for about in (users.contexts, users.items))
        return UserRows(rows, before[users.starts], users.labels, contexts, items, users.sided, users.habits)

    return part(training), part(~training if test is None else test)


def with_weight(users: UserRows) -> UserRows:
    """Rows of weight above 0; all users stay."""
    counted = users.rows.weights > 0
    if counted.all():
        return users
    judged = None if users.judged is None else users.judged[counted]
    return replace(split_rows(users, counted)[0], judged=judged)


def only(rows: UserRows, users: IntArray) -> UserRows:
    """Some of the users, with all that is known of them."""
    if np.array_equal(users, np.arange(len(rows))):
        return rows
    parts = [rows.of(int(u)) for u in users]
    starts = np.concatenate([[0], np.cumsum([len(part.y) for part in parts])]).astype(np.intp)

    def about(each: Any) -> Any:
        return None if each is None else np.concatenate([each[rows.starts[u] : rows.starts[u + 1]] for u in users])

    habits = None if rows.habits is None else rows.habits[users]
    joined, labels, judged = Rows.join(parts), rows.labels[users], about(rows.judged)
    return UserRows(joined, starts, labels, about(rows.contexts), about(rows.items), rows.sided, habits, judged)


def spread(n: int, most: int) -> IntArray:
    """At most so many of n positions, evenly spread.

    >>> spread(10, 4).tolist(), spread(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return np.linspace(0, n - 1, min(n, most)).astype(np.intp)


class Grown(NamedTuple):
    """Comparisons with more of them: who stands where."""

    rows: UserRows
    before: IntArray  # (users before,) where each of them is now
    who: IntArray  # (n,) positions of those who said something new, and
    was: IntArray  # (n,) where they were before; −1: nowhere
    silent: BoolArray  # (rows before,) which are of somebody else


def _together(labels: LabelArray, others: LabelArray) -> LabelArray:
    """One after the other, each as it was given: numpy would make texts of numbers beside texts."""
    if labels.dtype.kind == others.dtype.kind != "O":
        return np.concatenate([labels, others])
    return label_array([*labels.tolist(), *others.tolist()], "users")


def grown(old: UserRows, new: UserRows) -> Grown:
    """Each user's new rows behind the old ones; contexts and items, whose numbers are those of one reading, go.

    >>> one = UserRows(Rows(np.eye(2), np.ones(2), np.ones(2)), np.array([0, 1, 2]), np.array(["ann", "cy"]))
    >>> two = UserRows(Rows(np.eye(2), np.zeros(2), np.ones(2)), np.array([0, 1, 2]), np.array(["bo", "cy"]))
    >>> both = grown(one, two)
    >>> both.rows.labels.tolist(), both.rows.starts.tolist(), both.rows.rows.y.tolist()
    (['ann', 'bo', 'cy'], [0, 1, 2, 4], [1.0, 0.0, 1.0, 0.0])
    >>> both.before.tolist(), both.who.tolist(), both.was.tolist()
    ([0, 2], [1, 2], [-1, 1])
    """
    n = len(old)
    labels, place = distinct_labels(_together(old.labels, new.labels))
    before, who = place[:n], place[n:]
    was = np.full(len(labels), -1)
    was[before] = np.arange(n)
    owner = np.concatenate([before[old.owner], who[new.owner]])
    from_old = np.argsort(owner, kind="stable") < len(old.rows.y)
    parts = [np.empty((len(owner), *one.shape[1:]), dtype=one.dtype) for one in old.rows]
    for part, one, other in zip(parts, old.rows, new.rows, strict=True):
        part[from_old], part[~from_old] = one, other  # each in its order: both are sorted by user
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(labels)))]).astype(np.intp)
    who = np.sort(who)
    again = was[who]
    silent = ~np.isin(np.arange(n), again)
    return Grown(UserRows(Rows(*parts), starts, labels, sided=old.sided), before, who, again, silent[old.owner])
