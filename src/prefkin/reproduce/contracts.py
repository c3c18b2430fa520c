"""What a method sees, what it returns, and how it is registered.

A *grouping* says who is pooled with whom; pooling is the same for all of them. An *estimator* returns estimates of its
own making. Both see a `Study`, never the truth; the few that may see it say so in their name ("true", "hindsight").
Query rules are those of `prefkin.decide.rules`; a *talker* joins a start, a rule and a way to listen (see `trial`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.data.folds import content_folds
from prefkin.data.rows import UserRows
from prefkin.errors import InvalidParameter
from prefkin.inference.spectrum import gram
from prefkin.reproduce.many_fits import Parcels, fit_many
from prefkin.reproduce.worlds.world import World

__all__ = ["METHODS", "Estimate", "Method", "Study", "Truth", "estimator", "grouping", "method", "seed_of"]

FOLDS = 3
Neighbourhoods = list[IntArray]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Every user's preference, and whose rows shaped it."""

    theta: FloatArray  # (U, d)
    members: Neighbourhoods
    heat: float = 1.0  # factor on margins that made held-out probabilities honest
    probability: Callable[[FloatArray, IntArray], FloatArray] | None = None  # P(first preferred) of (Z, users)
    note: str = ""  # what was chosen on the way


@dataclass(frozen=True, eq=False)
class Study:
    """The comparisons of one trial, and what several methods need of them, computed once."""

    rows: UserRows
    settings: Mapping[str, Any]
    entropy: tuple[int, ...] = ()
    _pooled: dict[bytes, FloatArray] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)  # what several methods computed, by name

    def rng(self, name: str) -> np.random.Generator:
        """A generator for one method, the same whoever ran before."""
        return np.random.default_rng(seed_of(*self.entropy, name))

    @property
    def n_users(self) -> int:
        """U."""
        return len(self.rows)

    @property
    def ridge(self) -> float:
        """λ."""
        return float(self.settings["ridge"])

    @cached_property
    def _cut(self) -> tuple[Parcels, IntArray]:
        """Parcels (user, fold), and the fold of each row."""
        fold_of = content_folds(self.rows, FOLDS)
        Z, side = [], []
        for user in range(self.n_users):
            own = self.rows.of(user)
            fold = fold_of[self.rows.starts[user] : self.rows.starts[user + 1]]
            for f in range(FOLDS):
                Z.append(np.ascontiguousarray(own.Z[fold == f]))
                side.append(2.0 * own.y[fold == f] - 1.0)
        return Parcels(Z, side), fold_of

    @property
    def parcels(self) -> Parcels:
        """Rows of user u in fold f are parcel u · FOLDS + f."""
        return self._cut[0]

    def uses(self, users: Sequence[int] | IntArray, without: int | None = None) -> BoolArray:
        """Which parcels belong to these users, one fold left out or none."""
        member = np.zeros((self.n_users, FOLDS), dtype=bool)
        member[np.asarray(users, dtype=np.intp)] = True
        if without is not None:
            member[:, without] = False
        return member.ravel()

    @cached_property
    def own(self) -> FloatArray:
        """θ̂_u with the paper's fixed ridge, shape (U, d)."""
        member = np.array([self.uses([u]) for u in range(self.n_users)])
        found = fit_many(self.parcels, member, np.full(self.n_users, self.ridge))
        self._pooled.update({np.array([u], dtype=np.intp).tobytes(): found[u] for u in range(self.n_users)})
        return found

    def gram(self, user: int) -> FloatArray:
        """Σ zzᵀ of a user's rows, kept for the trial."""
        name = f"gram {user}"
        if name not in self.shared:
            self.shared[name] = gram(self.rows.of(user))
        found: FloatArray = self.shared[name]
        return found

    def pool(self, sets: Sequence[IntArray]) -> FloatArray:
        """θ̃ of each set of users, shape (len(sets), d); each distinct set is fitted once in a trial, many together."""
        own = self.own
        new = {s.tobytes(): s for s in (np.asarray(one, dtype=np.intp) for one in sets)}
        new = {name: s for name, s in new.items() if name not in self._pooled}
        if new:
            member = np.array([self.uses(s) for s in new.values()])
            start = np.array([own[s].mean(axis=0) for s in new.values()])
            found = fit_many(self.parcels, member, np.full(len(new), self.ridge), start=start)
            self._pooled.update(zip(new, found, strict=True))
        return np.array([self._pooled[np.asarray(s, dtype=np.intp).tobytes()] for s in sets])


@dataclass(frozen=True, eq=False)
class Truth:
    """What only the experimenter knows."""

    world: World
    logged: Callable[[FloatArray], FloatArray]  # relative gap of each user on the logged pairs of this trial

    @property
    def group(self) -> IntArray:
        """True groups."""
        if self.world.group is None:
            raise InvalidParameter("these data have no true groups; leave methods that need them out of the plan")
        return self.world.group


@dataclass(frozen=True)
class Method:
    """A row of every table: its key, what it is called, where it comes from."""

    key: str
    label: str
    origin: str  # "paper", "rival" (left out by the paper), "ours", "oracle" (is told the truth)
    kind: str  # "grouping" or "estimator"
    run: Callable[..., Any] = field(repr=False)
    told: bool = False  # does it see what only the experimenter knows?


METHODS: dict[str, Method] = {}


Runs = Callable[..., Any]


def grouping(key: str, label: str, origin: str = "rival", *, told: bool = False) -> Callable[[Runs], Runs]:
    """Register a function of a study (and of the truth, if `told`) that returns neighbourhoods."""
    return _register(key, label, origin, "grouping", told)


def estimator(key: str, label: str, origin: str = "rival", *, told: bool = False) -> Callable[[Runs], Runs]:
    """Register a function of a study (and of the truth, if `told`) that returns an `Estimate`."""
    return _register(key, label, origin, "estimator", told)


def _register(key: str, label: str, origin: str, kind: str, told: bool) -> Callable[[Runs], Runs]:
    def keep(run: Runs) -> Runs:
        METHODS[key] = Method(key, label, origin, kind, run, told)
        return run

    return keep


def method(key: str) -> Method:
    """A registered method, or one line that lists them."""
    import prefkin.reproduce.methods  # noqa: F401 - importing the folder registers its files

    if key not in METHODS:
        raise InvalidParameter(f"no method {key!r}; there are {', '.join(sorted(METHODS))}")
    return METHODS[key]


def seed_of(*parts: object) -> np.random.SeedSequence:
    """A seed from names and numbers: the same for the same parts, whatever ran before and on which process."""
    return np.random.SeedSequence([zlib.crc32(str(part).encode()) for part in parts])
