"""What this process and those it started have used, where the system tells."""

from __future__ import annotations

import sys
from contextlib import suppress
from ctypes import CDLL
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["children_seconds", "free_memory", "keep_freed_memory", "peak_memory_gb"]

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def _used(whose: str) -> Any:
    """`resource.getrusage`, or None: Windows has no `resource`."""
    try:
        resource = import_module("resource")
    except ImportError:
        return None
    return resource.getrusage(getattr(resource, whose))


def peak_memory_gb() -> float:
    """The most this process has held so far, in GB; NaN where nobody knows.

    >>> not peak_memory_gb() <= 0
    True
    """
    used = _used("RUSAGE_SELF")
    if used is None:
        return float("nan")
    return float(used.ru_maxrss / (1e9 if sys.platform == "darwin" else 1e6))  # bytes there, kilobytes elsewhere


def children_seconds() -> float:
    """CPU seconds of finished processes that this one started; NaN where nobody knows."""
    used = _used("RUSAGE_CHILDREN")
    return float("nan") if used is None else float(used.ru_utime + used.ru_stime)


def free_memory() -> int:
    """Bytes that could be used without anybody else suffering; 4 GB where nobody knows.

    >>> free_memory() > 0
    True
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 4 << 30
    told = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return 4 << 30 if told is None else 1024 * int(told)


@cache
def keep_freed_memory() -> None:
    """Let this process use again what it frees, instead of asking the system for it over and over.

    The C library of Linux gives back what is free above some limit, and every larger piece at once; new pages cost more
    than what is computed in them. The limits grow by themselves, but not where somebody has set one, as Dask does for
    its workers.
    """
    with suppress(AttributeError, OSError, TypeError):  # there is no such thing elsewhere
        tuned = CDLL(None).mallopt
        tuned(M_MMAP_THRESHOLD, 32 << 20)
        tuned(M_TRIM_THRESHOLD, 256 << 20)
