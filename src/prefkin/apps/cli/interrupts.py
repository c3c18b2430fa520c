"""Ctrl-C: one line and exit code 130, at whatever moment.

While commands are being imported nothing has been written, and libraries turn a KeyboardInterrupt into errors of
their own: the program ends there and then. A command that runs is interrupted as usual, so that it can clean up; should
the interrupt get lost on the way, it is raised again at the next sign of progress, and no file is put in its place.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["INTERRUPTED", "Stopped", "check", "ignore", "keep", "leave_if_asked", "listen", "not_now", "running"]

INTERRUPTED = 130
_asked = _running = _busy = False
_kept = "nothing was written"


class Stopped(SystemExit):
    """Ctrl-C after which what was finished is kept; the command has said so itself."""


def listen() -> None:
    """From here on an interrupt ends the program with one line."""
    signal.signal(signal.SIGINT, _on_interrupt)
    sys.unraisablehook = _on_unraisable


def running() -> None:
    """Imports are over and a command runs: from here on an interrupt is an exception, so that it can clean up."""
    global _running
    _running = True


def _on_interrupt(_number: int, _frame: Any) -> None:
    global _asked
    _asked = True
    if not _running:
        _leave()
    if not _busy:
        raise KeyboardInterrupt


def _on_unraisable(what: Any) -> None:
    """What an interrupt leaves behind where no exception can be raised is not worth a traceback: `check` comes later.

    It may be the interrupt itself, or another error of something that it left half made.
    """
    if not _asked:
        sys.__unraisablehook__(what)


def check() -> None:
    """Raise an interrupt that somebody swallowed."""
    if _asked and not _busy:
        raise KeyboardInterrupt


@contextmanager
def not_now(kept: str) -> Iterator[None]:
    """Put finished files in their places, all of them: an interrupt meanwhile comes too late, a later one says so."""
    global _busy
    check()
    _busy = True
    try:
        yield
        keep(kept)
    finally:
        _busy = False


def keep(what: str) -> None:
    """What an interrupt from here on does not undo, in words."""
    global _kept
    _kept = what


def ignore() -> None:
    """Nothing is left that could be interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def leave_if_asked(error: BaseException) -> None:
    """End here if this is what became of an interrupt."""
    if (_asked or isinstance(error, KeyboardInterrupt)) and not isinstance(error, Stopped):
        _leave()


def _leave() -> None:
    ignore()
    with suppress(OSError, ValueError, RuntimeError):  # a closed pipe, or a print that was interrupted
        sys.stdout.flush()
    with suppress(OSError):
        os.write(2, f"prefkin: interrupted; {_kept}\n".encode(errors="backslashreplace"))
    os._exit(INTERRUPTED)
