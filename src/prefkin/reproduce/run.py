"""Trials on processes. Rows do not depend on how many there are, nor on what was finished before."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefkin.errors import ExperimentError
from prefkin.reproduce.contracts import read_methods
from prefkin.reproduce.store import Store
from prefkin.reproduce.trial import Trial, run_trial

__all__ = ["run_all"]

Tell = Callable[[float, float, int], None]  # work done, work in all, trials finished


def run_all(
    trials: list[Trial],
    store: Store,
    *,
    processes: int = 1,
    tell: Tell = lambda *_: None,
    methods: Path | None = None,
) -> int:
    """Run what is not in the store yet; how many were run. Each finished trial is stored at once.

    `methods` is a file of further methods, which other processes have to read as this one did.
    """
    known = store.finished()
    todo = list({trial.key: trial for trial in trials if trial.key not in known}.values())
    total = sum(trial.weight for trial in todo)
    done, finished = 0.0, 0
    tell(done, total, finished)

    def keep(trial: Trial, rows: list[dict[str, Any]]) -> None:
        nonlocal done, finished
        store.add(trial, rows)
        done, finished = done + trial.weight, finished + 1
        tell(done, total, finished)

    if processes <= 1 or len(todo) <= 1:
        for trial in todo:
            keep(trial, run_trial(trial))
        return len(todo)
    spawn = multiprocessing.get_context("spawn")
    workers = min(processes, len(todo))
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_ready, initargs=(methods,)) as pool:
        with _interrupts_wait():  # processes that start are not to be interrupted in the middle of their imports
            futures = {pool.submit(run_trial, trial): trial for trial in todo}
        try:
            for future in as_completed(futures):
                keep(futures[future], future.result())
        except BrokenProcessPool:
            raise ExperimentError(
                f"a process died, perhaps for lack of memory; {len(store.finished())} trials are kept, and the same "
                "command goes on (with --processes 1 it needs less)"
            ) from None
        except BaseException:  # an error or Ctrl-C: do not start what is still waiting
            pool.shutdown(cancel_futures=True)
            raise
    return len(todo)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Ctrl-C comes when the block is over, and, for processes started in it, when they are ready."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _ready(methods: Path | None) -> None:
    """Ctrl-C ends a process without a word, the end of the parent too; the parent says what is kept."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if methods is not None:
        read_methods(methods)


def _end_with_parent() -> None:
    """Whatever ended it: nobody waits for these rows any more."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
