"""Work on many items, on several threads with one BLAS thread each; work over shards, wherever it may be done.

Each item is computed by one thread alone, so results do not depend on how many threads there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, ThreadPoolExecutor, as_completed, wait
from contextlib import AbstractContextManager
from contextvars import ContextVar, copy_context
from functools import partial
from itertools import islice
from typing import TypeVar

from prefkin.execution.blas import in_one_order, single_threaded
from prefkin.execution.progress import holding, tell
from prefkin.execution.usage import keep_freed_memory

__all__ = ["for_each", "on_executor", "over_shards", "threads"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_threads: ContextVar[int | None] = ContextVar("prefkin_threads", default=None)
_executor: ContextVar[tuple[Executor | None, bool]] = ContextVar("prefkin_executor", default=(None, True))


def threads(n_jobs: int | None) -> AbstractContextManager[None]:
    """Let `for_each` inside the block use so many threads; None or -1 for one per core.

    Models enter it with their `n_jobs`; nothing below them is told how many threads there are.

    >>> with threads(1):
    ...     for_each(abs, [-1, 2], label="sizes")
    [1, 2]
    """
    return holding(_threads, n_jobs)


def _allowed() -> int:
    wanted = _threads.get()
    return os.cpu_count() or 1 if wanted is None or wanted == -1 else wanted or 1


def for_each(work: Callable[[Item], Result], items: Sequence[Item], *, label: str | None = None) -> list[Result]:
    """`[work(item) for item in items]`, on as many threads as `threads` allows; nobody is told without a label.

    Work that is itself divided runs on the thread it is on: the others are busy with its like.
    """
    total = len(items)
    workers = min(total, _allowed())
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


def on_executor(executor: Executor, *, here: bool = False) -> AbstractContextManager[None]:
    """Let work over shards inside the block be done by this executor: processes, or `client.get_executor()` of Dask.

    `here` says that its workers share the memory of this machine.

    >>> with ThreadPoolExecutor(2) as pool, on_executor(pool):
    ...     over_shards(abs, [-1, 2], label="sizes")
    """
    return holding(_executor, (executor, here))


def _alone(work: Callable[[Item], object], item: Item) -> None:
    """Work on one shard, wherever it is done: the other threads, or processes, are busy with other shards."""
    keep_freed_memory()
    with threads(1), single_threaded():
        work(item)


@in_one_order  # here as well: there are builds of BLAS that take a limit from the main thread alone
def over_shards(
    work: Callable[[Item], object], items: Sequence[Item], *, label: str, done: int = 0, room: int | None = None
) -> None:
    """`work(item)` for each item, by the executor of `on_executor`, or on as many threads as `threads` allows.

    Each item is done by one thread, BLAS included.
    What it finds it leaves in files, so that nothing depends on who did it; `done` items were finished before. The
    memory of this machine has `room` for so many at once.
    """
    if not items:
        return
    given, here = _executor.get()
    workers = min(len(items), _allowed(), room or len(items))
    most = len(items) if room is None or (given is not None and not here) else room
    finished, total = done, done + len(items)
    tell(label, done, total)
    pool = ThreadPoolExecutor(workers) if given is None else given
    alone = partial(_alone, work)
    waiting = {pool.submit(alone, item) for item in items[:most]}
    later = iter(items[most:])
    try:
        while waiting:
            ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ready:
                future.result()
                finished += 1
                tell(label, finished, total)
            waiting |= {pool.submit(alone, item) for item in islice(later, len(ready))}
    finally:  # after an error or Ctrl-C: do not start what is still waiting
        for future in waiting:
            future.cancel()
        if given is None:
            pool.shutdown()
