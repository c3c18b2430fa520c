"""Work on many items, on several threads with one BLAS thread each; work over shards, wherever it may be done.

Each item is computed by one thread alone, so results do not depend on how many threads there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TypeVar

from prefkin.execution.blas import single_threaded
from prefkin.execution.progress import tell

__all__ = ["for_each", "on_executor", "over_shards", "threads"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_threads: ContextVar[int | None] = ContextVar("prefkin_threads", default=None)
_executor: ContextVar[Executor | None] = ContextVar("prefkin_executor", default=None)


@contextmanager
def threads(n_jobs: int | None) -> Iterator[None]:
    """Let `for_each` inside the block use so many threads; None or -1 for one per core.

    Models enter it with their `n_jobs`; nothing below them is told how many threads there are.

    >>> with threads(1):
    ...     for_each(abs, [-1, 2], label="sizes")
    [1, 2]
    """
    token = _threads.set(n_jobs)
    try:
        yield
    finally:
        _threads.reset(token)


def for_each(work: Callable[[Item], Result], items: Sequence[Item], *, label: str) -> list[Result]:
    """`[work(item) for item in items]`, on as many threads as `threads` allows.

    Work that is itself divided runs on the thread it is on: the others are busy with its like.
    """
    total = len(items)
    wanted = _threads.get()
    workers = min(total, os.cpu_count() or 1 if wanted in (None, -1) else int(wanted or 1))
    tell(label, 0, total)
    with single_threaded():
        if workers <= 1:
            results = []
            for done, item in enumerate(items, 1):
                results.append(work(item))
                tell(label, done, total)
            return results
        with ThreadPoolExecutor(workers) as pool, threads(1):
            futures = [pool.submit(copy_context().run, work, item) for item in items]
            try:
                for done, future in enumerate(as_completed(futures), 1):
                    future.result()
                    tell(label, done, total)
            except BaseException:  # an error or Ctrl-C: do not start what is still waiting
                pool.shutdown(cancel_futures=True)
                raise
            return [future.result() for future in futures]


@contextmanager
def on_executor(executor: Executor) -> Iterator[None]:
    """Let work over shards inside the block be done by this executor: processes, or `client.get_executor()` of Dask.

    >>> with ThreadPoolExecutor(2) as pool, on_executor(pool):
    ...     over_shards(abs, [-1, 2], label="sizes")
    """
    token = _executor.set(executor)
    try:
        yield
    finally:
        _executor.reset(token)


def over_shards(work: Callable[[Item], object], items: Sequence[Item], *, label: str, done: int = 0) -> None:
    """`work(item)` for each item, by the executor of `on_executor`, or on as many threads as `threads` allows.

    What it finds it leaves in files, so that nothing depends on who did it; `done` items were finished before.
    """
    if not items:
        return
    wanted, given = _threads.get(), _executor.get()
    workers = min(len(items), os.cpu_count() or 1 if wanted in (None, -1) else int(wanted or 1))
    total = done + len(items)
    tell(label, done, total)
    pool = ThreadPoolExecutor(workers) if given is None else given
    futures = [pool.submit(work, item) for item in items]
    try:
        for finished, future in enumerate(as_completed(futures), done + 1):
            future.result()
            tell(label, finished, total)
    finally:  # after an error or Ctrl-C: do not start what is still waiting
        for future in futures:
            future.cancel()
        if given is None:
            pool.shutdown()
