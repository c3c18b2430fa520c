"""Whose preferences: one user's, each group's, or everybody's."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.rows import spread
from prefkin.errors import InvalidParameter

__all__ = ["Groups", "Preferences", "everybody", "groups_of", "one_user"]

PAIRS = 200  # by which it is found how doubt draws answers to one half
NUMBERS_AT_ONCE = 2**22
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
    theta: FloatArray  # (groups, d)

    def surest(self, model: Any, group: int) -> IntArray:
        """Those who speak for a group: the surest members with the most answers, shape (at most 20,)."""
        told = self.share[:, group] * model.n_comparisons_
        return np.argsort(-told, kind="stable")[: min(SPEAKERS, int((self.share[:, group] > 0.5).sum()))]

    def only(self, name: str) -> Groups:
        """The group of this name alone."""
        k = self.names.index(name)
        return Groups((name,), self.share[:, [k]], self.theta[[k]])

    def preferences(self, model: Any) -> Preferences:
        """The centre of each group, with the log odds of those who speak for it."""
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
    """The groups that were found (`model.groups_`), largest first.

    Where there are none: neighbourhoods of the paper's algorithm, or one group with everybody, whose preference is the
    mean of its members'.

    >>> import numpy as np
    >>> from prefkin import PrefKin
    >>> from prefkin.data.synthetic import demo_population
    >>> model = PrefKin().fit(demo_population(np.random.default_rng(0))[0].data)
    >>> found = groups_of(model)
    >>> found.names, found.theta.shape
    (('group 0', 'group 1', 'group 2'), (3, 6))
    """
    if found := model.groups_:
        share = np.column_stack([model.membership_[:, group.label] for group in found])
        return Groups(tuple(f"group {group.label}" for group in found), share, np.array([g.centre for g in found]))
    owners = sorted((some for some, members in model.neighbourhoods() if len(members) > 1), key=len, reverse=True)
    if not owners:
        raise InvalidParameter("this model found no groups: everybody stands alone; leave out --groups")
    people = np.arange(len(model.users_))
    share = np.column_stack([np.isin(people, some).astype(np.float64) for some in owners])
    theta = share.T @ model.theta_ / share.sum(axis=0)[:, None]
    return Groups(tuple(f"group {k}" for k in range(len(owners))), share, theta)


def _log_odds(model: Any, users: IntArray) -> FloatArray:
    """The slope of what `decision_function` says, which knows how unsure it is, on differences of rewards: one number
    for each of these users, from pairs spread over all that were asked about.
    """
    every = model.comparisons().Z
    pairs = every[spread(len(every), PAIRS)]
    sign = 1.0 if model.classes_[1] == model.positive_ else -1.0
    found, at_once = np.ones(len(users)), max(NUMBERS_AT_ONCE // pairs.size, 1)
    for start in range(0, len(users), at_once):
        some = users[start : start + at_once]
        shown, owners = np.tile(pairs, (len(some), 1)), np.repeat(model.users_[some], len(pairs))
        said = sign * model.decision_function(shown, users=owners).reshape(len(some), -1)
        plain = model.theta_[some] @ pairs.T
        scale = (plain**2).sum(axis=1)
        np.divide((plain * said).sum(axis=1), scale, out=found[start : start + at_once], where=scale > 0)
    return found
