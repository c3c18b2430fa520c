"""What a method sees, what it returns, and how it is registered.

A *grouping* says who is pooled with whom; pooling is the same for all of them. An *estimator* returns estimates of its
own making. Both see a `Study`, never the truth; the few that may see it say so in their name ("true", "hindsight").
Query rules are those of `prefkin.decide.rules`; a *talker* joins a start, a rule and a way to listen (see `trial`).
"""

from __future__ import annotations

import runpy
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.comparisons import Comparisons
from prefkin.data.rows import UserRows
from prefkin.errors import InvalidParameter
from prefkin.inference.many import estimate_users
from prefkin.inference.spectrum import gram
from prefkin.models.base import PreferenceModel
from prefkin.models.off_c2pl.pooling import pool_estimates
from prefkin.reproduce.worlds.world import World

__all__ = [
    *("METHODS", "Estimate", "Method", "Study", "Truth", "estimator", "grouping", "method", "read_methods", "seed_of")
]

Neighbourhoods = list[IntArray]


@dataclass(frozen=True, eq=False)
class Estimate:
    """Every user's preference, and whose rows shaped it."""

    theta: FloatArray  # (U, d)
    members: Neighbourhoods
    probability: Callable[[FloatArray, IntArray], FloatArray] | None = None  # P(first preferred) of (Z, users)
    note: str = ""  # what was chosen on the way

    @classmethod
    def of(cls, model: PreferenceModel, note: str = "") -> Estimate:
        """What a fitted model of the library says."""

        def probability(Z: FloatArray, users: IntArray) -> FloatArray:
            return model.predict_proba(Z, users=users)[:, 1]

        return cls(model.theta_, [model.members(u) for u in range(len(model.users_))], probability, note)


@dataclass(frozen=True, eq=False)
class Study:
    """The comparisons of one trial, and what several methods need of them, computed once."""

    rows: UserRows
    settings: Mapping[str, Any]
    entropy: tuple[str | int, ...] = ()
    _pooled: dict[bytes, FloatArray] = field(default_factory=dict)
    _shared: dict[str, Any] = field(default_factory=dict)

    def rng(self, name: str) -> np.random.Generator:
        """A generator for one method, the same whoever ran before."""
        return np.random.default_rng(seed_of(*self.entropy, name))

    @property
    def n_users(self) -> int:
        """U, how many people there are."""
        return len(self.rows)

    @property
    def ridge(self) -> float:
        """λ, the ridge that is the same for all methods that do not choose theirs."""
        return float(self.settings["ridge"])

    @cached_property
    def data(self) -> Comparisons:
        """The same rows as a user of the library has them."""
        return Comparisons.from_arrays(self.rows.rows.Z, self.rows.rows.y, self.rows.owner)

    @cached_property
    def own(self) -> FloatArray:
        """θ̂_u with the paper's fixed ridge, shape (U, d)."""
        return estimate_users(self.rows, ridge=self.ridge)

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """What several methods need, computed by the first of them."""
        if name not in self._shared:
            self._shared[name] = compute()
        return self._shared[name]

    def gram(self, user: int) -> FloatArray:
        """Σ zzᵀ of a user's rows, kept for the trial."""
        found: FloatArray = self.once(f"gram {user}", lambda: gram(self.rows.of(user)))
        return found

    def pool(self, sets: Sequence[IntArray]) -> FloatArray:
        """θ̃ of each set of users, shape (len(sets), d); each distinct set is fitted once in a trial, many together."""
        new = {s.tobytes(): s for s in (np.asarray(one, dtype=np.intp) for one in sets)}
        new = {name: s for name, s in new.items() if name not in self._pooled}
        if new:
            found = pool_estimates(self.rows, new.values(), self.own, ridge=self.ridge)
            self._pooled.update(zip(new, found, strict=True))
        return np.array([self._pooled[np.asarray(s, dtype=np.intp).tobytes()] for s in sets])


@dataclass(frozen=True, eq=False)
class Truth:
    """What only the experimenter knows."""

    world: World
    logged: Callable[[FloatArray], FloatArray]  # relative gap of each user on the logged pairs of this trial

    @property
    def group(self) -> IntArray:
        """The true group of each user, (U,)."""
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


def read_methods(path: Path) -> list[Method]:
    """The methods that a Python file of the user's registers; it is run, as every process of an experiment does."""
    import prefkin.reproduce.methods  # noqa: F401 - so that keys which are taken are known

    before, problem = dict(METHODS), ""
    try:
        runpy.run_path(str(path))
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        problem = f"cannot be run ({type(error).__name__}: {reason:.120}); mend it"
    new = [found for key, found in METHODS.items() if key not in before]
    if taken := sorted(key for key, known in before.items() if METHODS[key] is not known):
        problem = problem or f"there is a method {taken[0]!r} already; give another key"
    if not new:
        problem = problem or "no method in it; decorate a function with @grouping or @estimator"
    if problem:
        METHODS.clear()
        METHODS.update(before)
        raise InvalidParameter(f"{path}: {problem}")
    return new


def method(key: str) -> Method:
    """A registered method, or one line that lists them."""
    import prefkin.reproduce.methods  # noqa: F401 - importing the folder registers its files

    if key not in METHODS:
        raise InvalidParameter(f"no method {key!r}; there are {', '.join(sorted(METHODS))}")
    return METHODS[key]


def seed_of(*parts: object) -> np.random.SeedSequence:
    """A seed from names and numbers: the same for the same parts, whatever ran before and on which process."""
    return np.random.SeedSequence([zlib.crc32(str(part).encode()) for part in parts])
