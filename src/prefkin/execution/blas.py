"""One BLAS thread, so that sums have one order, however many threads numpy would use elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["in_one_order", "single_threaded"]


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
"""A context in which numpy and scipy use one thread, so that sums have one order.

numpy's OpenBLAS takes a limit from the main thread alone: entered elsewhere for the first time, as by a fit in a thread
of yours, it does nothing. A program that fits in threads enters it once on the main thread, as `prefkin annotate` does,
or is started with OPENBLAS_NUM_THREADS=1.
"""

in_one_order = single_threaded()
"""Decorates a function whose sums have one order, however many threads numpy may use elsewhere."""
