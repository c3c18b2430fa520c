"""Whose preferences: one user's, each group's, or everybody's."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.errors import InvalidParameter

__all__ = ["Groups", "Preferences", "everybody", "groups_of", "one_user"]

PAIRS = 200  # by which it is found how doubt draws answers to one half
SPEAKERS = 20  # of a group


@dataclass(frozen=True, eq=False)
class Preferences:
    """Preferences side by side, each under the name of whoever has it."""

    names: tuple[str, ...]
    theta: FloatArray  # (names, d)
    log_odds: (
        FloatArray  # (names,) of an answer, on average, for each unit by which rewards differ: 1, or less by doubt
    )


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of people who want the same, and how surely everybody belongs to each."""

    names: tuple[str, ...]
    share: FloatArray  # (U, groups)
    theta: FloatArray  # (groups, d) mean of the members' preferences, by how surely they belong

    def surest(self, model: Any, group: int) -> IntArray:
        """Those who speak for a group: the surest members with the most answers, shape (at most 20,)."""
        told = self.share[:, group] * model.n_comparisons_
        return np.argsort(-told, kind="stable")[: min(SPEAKERS, int((self.share[:, group] > 0.5).sum()))]

    def preferences(self, model: Any) -> Preferences:
        """One for each group."""
        speakers = [self.surest(model, group) for group in range(len(self.names))]
        each = np.array([_log_odds(model, some).mean() for some in speakers])
        return Preferences(self.names, self.theta, each)


def one_user(model: Any, user: Hashable) -> Preferences:
    """The preference of one user."""
    u = model.position(user)
    return Preferences((str(model.users_.tolist()[u]),), model.theta_[[u]], _log_odds(model, np.array([u])))


def everybody(model: Any) -> Preferences:
    """The preference of each user."""
    names = tuple(map(str, model.users_.tolist()))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidParameter(f"two users read as {twice!r}, and names are all that is written; give --user")
    return Preferences(names, model.theta_, _log_odds(model, np.arange(len(names))))


def groups_of(model: Any) -> Groups:
    """The groups that were found, largest first; one with everybody where people differ by degrees or want the same.

    >>> import numpy as np
    >>> from prefkin import PrefKin
    >>> from prefkin.data.synthetic import demo_population
    >>> model = PrefKin().fit(demo_population(np.random.default_rng(0))[0].data)
    >>> found = groups_of(model)
    >>> found.names, found.theta.shape
    (('group 0', 'group 1', 'group 2'), (3, 6))
    """
    owners = sorted((some for some, members in model.neighbourhoods() if len(members) > 1), key=_size, reverse=True)
    if not owners:
        raise InvalidParameter("this model found no groups: everybody stands alone; leave out --groups")
    share = np.column_stack([_share(model, some) for some in owners])
    theta = share.T @ model.theta_ / share.sum(axis=0)[:, None]
    return Groups(tuple(f"group {k}" for k in range(len(owners))), share, theta)


def _log_odds(model: Any, users: IntArray) -> FloatArray:
    """The slope of what `decision_function` says, which knows how unsure it is, on differences of rewards: one number
    for each of these users, from pairs spread over all that were asked about.
    """
    every = model.comparisons().Z
    pairs = every[np.unique(np.linspace(0, len(every) - 1, min(len(every), PAIRS)).astype(int))]
    sign = 1.0 if model.classes_[1] == model.positive_ else -1.0
    found = np.ones(len(users))
    for k, u in enumerate(users.tolist()):
        plain = pairs @ model.theta_[u]
        said = sign * model.decision_function(pairs, users=np.repeat(model.users_[u : u + 1], len(pairs)))
        if (scale := float(plain @ plain)) > 0:
            found[k] = plain @ said / scale
    return found


def _size(members: IntArray) -> int:
    return len(members)


def _share(model: Any, owners: IntArray) -> FloatArray:
    """How surely everybody belongs to the group of these users: by its posterior where a model has one, else 0 or 1."""
    if hasattr(model, "membership_"):
        group = int(np.argmax(model.membership_[owners[0]]))
        return np.asarray(model.membership_[:, group])
    belongs = np.zeros(len(model.users_))
    belongs[owners] = 1.0
    return belongs
