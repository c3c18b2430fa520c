"""Telling whoever wants to know how far long work is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

__all__ = ["holding", "reporting", "tell"]

Value = TypeVar("Value")
Listener = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("prefkin_listener", default=None)


@contextmanager
def holding(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Let a variable of the context have this value inside the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def reporting(listener: Listener) -> AbstractContextManager[None]:
    """Call `listener(label, done, total)` as work inside the block goes on.

    >>> seen = []
    >>> with reporting(lambda label, done, total: seen.append((label, done, total))):
    ...     tell("squares", 1, 2)
    >>> seen
    [('squares', 1, 2)]
    """
    return holding(_listener, listener)


def tell(label: str | None, done: int, total: int) -> None:
    """Say that so much of some work is done, unless it has no label."""
    listener = _listener.get()
    if listener is not None and label is not None:
        listener(label, done, total)
