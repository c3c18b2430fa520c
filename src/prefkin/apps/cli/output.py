"""Output that cannot be written does not stop the work: what was computed is kept first, and told of last.

A closed pipe means that nobody reads on, and is no error; anything else (a full disk) is one line at the end.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import Any

from rich.console import Console

__all__ = ["Voice", "any_character", "unsaid"]

_lost: list[OSError] = []


class Voice(Console):
    """A console that falls silent when it cannot be heard."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich's; after the first failure nothing is printed any more."""
        if self.quiet:
            return
        try:
            super().print(*objects, **options)
        except OSError as error:
            self.quiet = True
            if not self.stderr:
                _lost.append(error)

    def on_broken_pipe(self) -> None:
        """rich would end the program here."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def any_character() -> None:
    """Characters that a terminal lacks are written by their numbers; streams that are closed are not written to."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - for as long as the program runs
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def unsaid() -> str | None:
    """Why standard output could not be written, if that is worth telling; afterwards nothing is left to be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _lost.append(error)
    if not _lost:
        return None
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    first = _lost[0]
    _lost.clear()
    return None if first.errno == errno.EPIPE else f"standard output: {first.strerror}"
