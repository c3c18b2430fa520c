"""Whose preferences: one user's, each group's, or everybody's."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.errors import InvalidParameter

__all__ = ["Groups", "Preferences", "everybody", "groups_of", "one_user"]


@dataclass(frozen=True, eq=False)
class Preferences:
    """Preferences side by side, each under the name of whoever has it."""

    names: tuple[str, ...]
    theta: FloatArray  # (names, d)


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of people who want the same, and how surely everybody belongs to each."""

    names: tuple[str, ...]
    share: FloatArray  # (U, groups)
    theta: FloatArray  # (groups, d) mean of the members' preferences, by how surely they belong

    @property
    def preferences(self) -> Preferences:
        """One for each group."""
        return Preferences(self.names, self.theta)


def one_user(model: Any, user: Hashable) -> Preferences:
    """The preference of one user."""
    u = model.position(user)
    return Preferences((str(model.users_.tolist()[u]),), model.theta_[[u]])


def everybody(model: Any) -> Preferences:
    """The preference of each user."""
    names = tuple(map(str, model.users_.tolist()))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidParameter(f"two users read as {twice!r}, and names are all that is written; give --user")
    return Preferences(names, model.theta_)


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
