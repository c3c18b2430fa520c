"""How methods of models are called: on the model's threads, about people who may be in shards, with what is checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from functools import wraps
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

from prefkin.data.candidates import Candidates
from prefkin.errors import InvalidParameter
from prefkin.execution.blas import single_threaded
from prefkin.execution.executor import threads

__all__ = [
    "about_users",
    "as_fitted",
    "generator",
    "on_its_threads",
    "refuse_a_second_label",
    "refuse_other_random_state",
    "refuse_other_threads",
]

Method = TypeVar("Method", bound=Callable[..., Any])


def on_its_threads(method: Method) -> Method:
    """A method that works on as many threads as the model's `n_jobs` says, with sums in one order."""

    @wraps(method)
    def working(self: Any, *args: Any, **kwargs: Any) -> Any:
        with threads(self.n_jobs), single_threaded():
            return method(self, *args, **kwargs)

    return working  # type: ignore[return-value]


def about_users(*names: str) -> Callable[[Method], Method]:
    """`on_its_threads`, about the users that these arguments name: where people are in shards, they alone are read."""

    def decorated(method: Method) -> Method:
        signature, working = inspect.signature(method), on_its_threads(method)

        @wraps(method)
        def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self._in_shards is None:
                return working(self, *args, **kwargs)
            given = signature.bind(self, *args, **kwargs).arguments
            labels = [given[name] for name in names if given.get(name) is not None]
            return working(self._in_shards.only(labels), *args, **kwargs)

        return asked  # type: ignore[return-value]

    return decorated


def as_fitted(model: Any, candidates: Any) -> Candidates:
    """Candidates with features in the order of the fit; arrays and lists say nothing about contexts."""
    if not isinstance(candidates, Candidates):
        raise InvalidParameter(f"candidates must be prefkin.Candidates(features); got a {type(candidates).__name__}")
    return candidates.described_by(model.feature_names_)


def refuse_a_second_label(user: Hashable, label: Hashable) -> None:
    """Somebody who is known has a label already."""
    if user is not None and label is not None:
        raise InvalidParameter(f"label names a newcomer (user None); {user!r} is known by that name, got {label!r}")


def refuse_other_threads(n_jobs: int | None) -> None:
    """`n_jobs` means what it means to scikit-learn: None and −1 are all cores, other numbers so many threads."""
    if not (n_jobs is None or (isinstance(n_jobs, Integral) and (n_jobs > 0 or n_jobs == -1))):
        raise InvalidParameter(f"n_jobs must be None, -1 or a number of threads; got {n_jobs!r}")


def refuse_other_random_state(random_state: Any) -> None:
    """Told before a fit that may not need it; a generator of scikit-learn's is not drawn from."""
    if not isinstance(random_state, np.random.RandomState):
        generator(random_state)


def generator(random_state: Any) -> np.random.Generator:
    """scikit-learn's random_state (None, a seed, an old or new generator) as a numpy Generator."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise InvalidParameter(f"random_state must be None, a seed or a generator; got {random_state!r}") from None
