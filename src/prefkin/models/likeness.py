"""Who is like whom: people ranked by how alike their preferences are, and groups in a few words.

Two people are as far apart as the log odds they give to pairs like those that were asked, √E (zᵀ(θ_u − θ_v))² over the
pairs z of everybody and, where a model has a posterior, over what is not known about both: free of units, and nobody is
close for being unknown. How sure it is that somebody is close: the probability of being closer than somebody picked at
random, by draws from what is known about them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree

from prefkin.data.arrays import FloatArray, IntArray, LabelArray
from prefkin.data.rows import Rows, spread
from prefkin.decide.belief import Belief
from prefkin.models.coverage import feature_name
from prefkin.models.reports import counted

__all__ = ["Closest", "Group", "Likeness", "groups_of", "in_words", "liked_features"]

PAIRS = 2000  # of the log, that stand for all
PICKED = 20  # people with whom the closest are compared
DRAWS = 400
AXES = 6  # in which everybody's nearest is looked for
NEAR = 12  # of those who are near in these, the nearest in all features
WORDS, SMALLEST = 3, 0.3  # features named, and their part of what the strongest one does


@dataclass(frozen=True, eq=False)
class Closest:
    """The people most like somebody, closest first; `print` shows a small table."""

    user: Hashable
    labels: LabelArray  # (n,)
    agreement: FloatArray  # (n,) share of pairs like those asked in which both would rather take the same
    distance: FloatArray  # (n,) in log odds of such a pair, with what is not known about both
    probability: FloatArray  # (n,) of being closer than somebody picked at random

    def __len__(self) -> int:
        return len(self.labels)

    def __str__(self) -> str:
        if not len(self):
            return f"there is nobody beside {self.user!r}"
        names = [str(label) for label in self.labels.tolist()]
        width = max(7, *map(len, names))
        lines = [f"closest to {self.user!r}", f"{'':{width}}  would choose alike  log odds apart  closer than others"]
        for name, alike, apart, sure in zip(names, self.agreement, self.distance, self.probability, strict=True):
            lines.append(f"{name:{width}}  {alike:18.0%}  {apart:14.2f}  {sure:18.2f}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Group:
    """People who want the same; `print` says what in a few words."""

    label: int  # column of `membership_`
    members: LabelArray  # labels of those likeliest in it, surest first
    probability: FloatArray  # of each belonging there
    centre: FloatArray  # (d,) what they have in common
    likes: tuple[str, ...]  # features, strongest first
    dislikes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.members)

    def __str__(self) -> str:
        return f"group {self.label}, {counted(len(self), 'person')}: {in_words(self.likes, self.dislikes)}"


def in_words(likes: Sequence[str], dislikes: Sequence[str]) -> str:
    """What somebody wants, in a few words.

    >>> in_words(("salt", "fat"), ("acid",)), in_words((), ())
    ('likes salt, fat; dislikes acid', 'likes nothing in particular')
    """
    parts = [f"{verb} {', '.join(names)}" for verb, names in (("likes", likes), ("dislikes", dislikes)) if names]
    return "; ".join(parts) or "likes nothing in particular"


class Likeness:
    """How far people are apart, by what they would answer to pairs like those of the log.

    >>> rows = Rows(np.array([[2.0], [-2.0]]), np.ones(2), np.ones(2))
    >>> known = Likeness(rows, np.array([[0.0], [3.0], [1.0]]))
    >>> known.from_(0).tolist(), known.nearest().tolist()
    ([0.0, 6.0, 2.0], [2, 2, 0])
    """

    def __init__(self, rows: Rows, theta: FloatArray) -> None:
        some = spread(len(rows.Z), PAIRS)
        self.pairs = rows.Z[some].astype(np.float64)
        _, size, axes = np.linalg.svd(self.pairs, full_matrices=False)
        self.root: FloatArray = axes.T * (size / np.sqrt(len(some)))  # of the pairs' second moments
        self.theta, self.place = theta, theta @ self.root
        self.doubt = np.zeros(len(theta))  # (U,) E (zᵀ(θ_u − E θ_u))², where it is known

    def from_(self, user: int) -> FloatArray:
        """Distances of everybody from one person, (U,): √E over pairs, and over what is not known about both."""
        square = ((self.place - self.place[user]) ** 2).sum(axis=1) + self.doubt + self.doubt[user]
        square[user] = 0.0
        return np.sqrt(square)

    def nearest(self) -> IntArray:
        """Everybody's nearest other person, (U,), in about linear time: by the axes in which people differ most."""
        n = len(self.place)
        _, _, axes = np.linalg.svd(np.cov(self.place.T).reshape(self.place.shape[1], -1))
        light = self.place @ axes[:AXES].T
        tree = KDTree(np.column_stack([light, np.sqrt(self.doubt)]))  # doubt is an axis on which nobody looks from
        _, near = tree.query(np.column_stack([light, np.zeros(n)]), k=min(NEAR, n))
        square = ((self.place[near] - self.place[:, None]) ** 2).sum(axis=2) + self.doubt[near]
        square[near == np.arange(n)[:, None]] = np.inf
        return near[np.arange(n), np.argmin(square, axis=1)].astype(np.intp)

    def pairs_of_people(self, n: int) -> list[tuple[int, int]]:
        """The `n` pairs of people that are closest, as far as each is the other's nearest, closest first."""
        if len(self.place) < 2:
            return []
        other = self.nearest()
        square = ((self.place[other] - self.place) ** 2).sum(axis=1) + self.doubt + self.doubt[other]
        order = np.argsort(square, kind="stable")
        mutual = order[(other[other[order]] == order) & (order < other[order])]
        return [(int(u), int(other[u])) for u in mutual[:n]]

    def agreement(self, user: int, others: IntArray) -> FloatArray:
        """Share of pairs in which both would rather take the same side."""
        mine, theirs = self.pairs @ self.theta[user], self.pairs @ self.theta[others].T
        return np.asarray((np.sign(theirs) == np.sign(mine)[:, None]).mean(axis=0))

    def closest(self, user: int, n: int, labels: LabelArray, difference: Callable[[int, int], Belief]) -> Closest:
        """The `n` nearest; `difference(u, v)` is what is believed about θ_u − θ_v."""
        apart, rng = self.from_(user), np.random.default_rng(0)
        order = np.argsort(apart, kind="stable")
        order = order[order != user]
        picked = order[spread(len(order), PICKED)]

        def drawn(other: int) -> FloatArray:
            return np.linalg.norm(difference(user, other).draws(DRAWS, rng).T @ self.root, axis=1)

        some, anybody = order[:n], np.sort([distance for v in picked for distance in drawn(v)])
        sure = [1.0 - float(np.searchsorted(anybody, drawn(v)).mean()) / len(anybody) for v in some]
        who = labels[[user]].tolist()[0]
        return Closest(who, labels[some], self.agreement(user, some), apart[some], np.array(sure))


def groups_of(
    labels: LabelArray, membership: FloatArray, centres: FloatArray, rows: Rows, names: Sequence[str] | None
) -> tuple[Group, ...]:
    """Everybody in their likeliest group, where that is one of those with a centre; the rest stands alone."""
    if not len(centres):
        return ()
    place, scale, found = np.argmax(membership, axis=1), np.sqrt(np.mean(rows.Z**2, axis=0, dtype=np.float64)), []
    for k, centre in enumerate(centres):
        chance = membership[:, k]
        members = np.flatnonzero(place == k)
        members = members[np.argsort(-chance[members], kind="stable")]
        if len(members):
            found.append(Group(k, labels[members], chance[members], centre, *liked_features(centre * scale, names)))
    return tuple(found)


def liked_features(worth: FloatArray, names: Sequence[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Features that do most for and against what is chosen, strongest first.

    >>> liked_features(np.array([2.0, -1.0, 0.01]), ("salt", "acid", "fat"))
    (('salt',), ('acid',))
    """
    least = SMALLEST * np.abs(worth).max()

    def strongest(side: FloatArray) -> tuple[str, ...]:
        first = np.argsort(-side, kind="stable")[:WORDS]
        return tuple(feature_name(names, j) for j in first if side[j] > 0 and side[j] >= least)

    return strongest(worth), strongest(-worth)
