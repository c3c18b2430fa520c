"""How much memory the process has held, where the system tells."""

from __future__ import annotations

import sys
from importlib import import_module

__all__ = ["peak_memory_gb"]


def peak_memory_gb() -> float:
    """The most this process has held so far, in GB; NaN where nobody knows (Windows has no `resource`).

    >>> not peak_memory_gb() <= 0
    True
    """
    try:
        resource = import_module("resource")
    except ImportError:
        return float("nan")
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(held / (1e9 if sys.platform == "darwin" else 1e6))  # bytes there, kilobytes elsewhere
