"""Work through many users: on several threads with one BLAS thread each, telling whoever wants to know.

Each item is computed by one thread alone, so results do not depend on how many threads there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["for_each", "in_one_order", "reporting", "single_threaded", "threads"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
Listener = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("prefkin_listener", default=None)


_threads: ContextVar[int | None] = ContextVar("prefkin_threads", default=None)


@contextmanager
def threads(n_jobs: int | None) -> Iterator[None]:
    """Let `for_each` inside the block use so many threads where it is not told otherwise.

    >>> with threads(1):
    ...     for_each(abs, [-1, 2], label="sizes")
    [1, 2]
    """
    token = _threads.set(n_jobs)
    try:
        yield
    finally:
        _threads.reset(token)


@contextmanager
def reporting(listener: Listener) -> Iterator[None]:
    """Call `listener(label, done, total)` as work inside the block goes on.

    >>> seen = []
    >>> with reporting(lambda label, done, total: seen.append((label, done, total))):
    ...     squares = for_each(lambda x: x * x, [1, 2], label="squares")
    >>> squares, seen[-1]
    ([1, 4], ('squares', 2, 2))
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@cache
def _blas() -> Any:
    return ThreadpoolController()


class _OneThread:
    """Limit BLAS to one thread while anybody is inside; threads may overlap, so the last one out restores."""

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0
        self.limit: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self.lock:
            if self.inside == 0:
                self.limit = _blas().limit(limits=1)
                self.limit.__enter__()
            self.inside += 1
        try:
            yield
        finally:
            with self.lock:
                self.inside -= 1
                if self.inside == 0:
                    self.limit.__exit__(None, None, None)


single_threaded = _OneThread()
"""A context in which numpy and scipy use one thread, so that sums have one order."""


def in_one_order(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function whose sums have one order, however many threads numpy may use elsewhere."""

    @wraps(function)
    def ordered(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with single_threaded():
            return function(*args, **kwargs)

    return ordered


def for_each(
    work: Callable[[Item], Result], items: Sequence[Item], *, label: str, n_jobs: int | None = None
) -> list[Result]:
    """`[work(item) for item in items]`, on `n_jobs` threads (None or -1: one per core)."""
    listener = _listener.get()
    total = len(items)
    n_jobs = _threads.get() if n_jobs is None else n_jobs
    workers = min(total, os.cpu_count() or 1 if n_jobs in (None, -1) else int(n_jobs or 1))
    tell = listener if listener is not None else lambda _label, _done, _total: None
    tell(label, 0, total)
    with single_threaded():
        if workers <= 1:
            results = []
            for done, item in enumerate(items, 1):
                results.append(work(item))
                tell(label, done, total)
            return results
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                for done, future in enumerate(as_completed(futures), 1):
                    future.result()
                    tell(label, done, total)
            except BaseException:  # an error or Ctrl-C: do not start what is still waiting
                pool.shutdown(cancel_futures=True)
                raise
            return [future.result() for future in futures]
