"""What this process and those it started have used, where the system tells."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["children_seconds", "free_memory", "keep_freed_memory", "peak_memory_gb"]


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

    The C library of Linux gives back what is free above twice the largest piece of up to 32 MB that it saw freed, and
    new pages cost more than what is computed in them: a fifth of the time of a shard. So it is shown a large one.
    """
    bytearray(31 << 20)
