"""Telling whoever wants to know how far long work is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["reporting", "tell"]

Listener = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("prefkin_listener", default=None)


@contextmanager
def reporting(listener: Listener) -> Iterator[None]:
    """Call `listener(label, done, total)` as work inside the block goes on.

    >>> seen = []
    >>> with reporting(lambda label, done, total: seen.append((label, done, total))):
    ...     tell("squares", 1, 2)
    >>> seen
    [('squares', 1, 2)]
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(label: str | None, done: int, total: int) -> None:
    """Say that so much of some work is done, unless it has no label."""
    listener = _listener.get()
    if listener is not None and label is not None:
        listener(label, done, total)
