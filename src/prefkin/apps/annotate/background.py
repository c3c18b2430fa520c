"""Work that nobody waits for, done by one thread in the order of its importance while nobody is being served."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Background"]

LONGEST_WAIT = 0.05  # seconds for which work stands back behind people who are being served
MOST_WAITING = 20  # jobs
log = logging.getLogger("prefkin.annotate")


class Background:
    """Jobs by priority, the smallest number first; a job that fails is one line in the log.

    >>> work, done = Background(), threading.Event()
    >>> work.add(0, done.set)
    >>> done.wait(5)
    True
    >>> work.stop()
    """

    def __init__(self) -> None:
        self._jobs: queue.PriorityQueue[tuple[int, int, Callable[[], None] | None]] = queue.PriorityQueue()
        self._turn = itertools.count()
        self._served = 0  # people who are waiting for a response now
        self._thread = threading.Thread(target=self._work, name="background", daemon=True)
        self._thread.start()

    def add(self, priority: int, job: Callable[[], None]) -> None:
        """Do this some time."""
        self._jobs.put((priority, next(self._turn), job))

    @property
    def behind(self) -> bool:
        """Is there more to do than can be done? Then what is only worth doing in time is left undone."""
        return self._jobs.qsize() > MOST_WAITING

    @contextmanager
    def serving(self) -> Iterator[None]:
        """While somebody is being served."""
        self._served += 1
        try:
            yield
        finally:
            self._served -= 1

    def stop(self) -> None:
        """Begin nothing more."""
        self._jobs.put((-1, next(self._turn), None))
        self._thread.join(timeout=10)

    def _work(self) -> None:
        while True:
            _, _, job = self._jobs.get()
            if job is None:
                return
            until = time.monotonic() + LONGEST_WAIT
            while self._served > 0 and time.monotonic() < until:
                time.sleep(0.001)
            try:
                job()
            except Exception as error:
                log.warning("background work failed: %s: %.200s", type(error).__name__, error)
