"""Trials on processes. Rows do not depend on how many there are, nor on what was finished before."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from prefkin.errors import ExperimentError
from prefkin.reproduce.store import Store
from prefkin.reproduce.trial import Trial, run_trial

__all__ = ["run_all"]

Tell = Callable[[float, float], None]  # work done, work in all


def run_all(trials: list[Trial], store: Store, *, processes: int = 1, tell: Tell = lambda _done, _all: None) -> int:
    """Run what is not in the store yet; how many were run. Each finished trial is stored at once."""
    known = store.finished()
    todo = list({trial.key: trial for trial in trials if trial.key not in known}.values())
    total = sum(trial.weight for trial in todo)
    done = 0.0
    tell(done, total)

    def keep(trial: Trial, rows: list[dict[str, Any]]) -> None:
        nonlocal done
        store.add(trial, rows)
        done += trial.weight
        tell(done, total)

    if processes <= 1 or len(todo) <= 1:
        for trial in todo:
            keep(trial, run_trial(trial))
        return len(todo)
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"), initializer=_quietly) as pool:
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


def _quietly() -> None:
    """Ctrl-C ends a process without a word; the parent says what is kept."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
