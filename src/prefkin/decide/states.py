"""Sessions on disk: a state that knows whose it is, is whole or refused, and never takes the place of newer answers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from prefkin.data.candidates import Candidates
from prefkin.data.digest import digest
from prefkin.data.storage import label_from_json, label_to_json, write_atomically
from prefkin.errors import SessionError

__all__ = ["STATE_VERSION", "UNDO", "answers_of", "fingerprint", "read_state", "sealed", "write_state"]

STATE_VERSION = 2
UNDO = "undo"  # in a log: the entry before it was taken back, so that logs only ever grow


def sealed(state: dict[str, Any]) -> dict[str, Any]:
    """With a checksum of everything else.

    >>> read_state(sealed({"prefkin_session": 2, "user": "ann", "log": []}))["user"]
    'ann'
    """
    return {**state, "checksum": _checksum(state)}


def read_state(source: str | Path | dict[str, Any]) -> dict[str, Any]:
    """A session's state from a file or as it is; what was cut or edited is refused."""
    if isinstance(source, dict):
        return _checked(source, "the saved session")
    path = Path(source)
    with _alone_in(path.parent):
        state = _read(path)
        _sweep(path)
    return state


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Replace the file as a whole or not at all, unless it holds answers that this state has not heard."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone_in(path.parent):
            if path.is_file():
                _refuse_to_lose(path, state)
            write_atomically(path, json.dumps(state).encode())
            _sweep(path)
    except OSError as error:
        raise SessionError(f"{path}: the session cannot be saved ({error.strerror})") from None


def fingerprint(model: str, user: Hashable, label: Hashable, candidates: Candidates) -> str:
    """About whom and what a session is, and by which model."""
    return digest(model, json.dumps([label_to_json(user), label_to_json(label)]), candidates.digest)


def answers_of(log: list[Any]) -> list[Any]:
    """The entries of a log that were not taken back.

    >>> answers_of([[0, 0, 1, True], [1, 0, 1, False], "undo", [1, 0, 1, True]])
    [[0, 0, 1, True], [1, 0, 1, True]]
    """
    left: list[Any] = []
    for entry in log:
        if entry == UNDO:
            left.pop()
        else:
            left.append(entry)
    return left


def _refuse_to_lose(path: Path, state: dict[str, Any]) -> None:
    try:
        before = _read(path)
    except SessionError as error:
        raise SessionError(f"{error}; save under another name, or remove it first") from None
    if before["prefkin_session"] == STATE_VERSION and before["fingerprint"] != state["fingerprint"]:
        raise SessionError(f"{path}: this file holds another session; save under another name")
    if before["log"] != state["log"][: len(before["log"])]:
        raise SessionError(
            f"{path}: this file holds answers that this session has not heard: another program has gone on with it; "
            "resume from the file"
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise SessionError(f"{path}: no such session file") from None
    except OSError as error:
        raise SessionError(f"{path}: the session file cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise SessionError(f"{path}: not a session file, or a damaged one") from None
    return _checked(state, str(path))


def _checked(state: Any, name: str) -> dict[str, Any]:
    if not isinstance(state, dict) or "prefkin_session" not in state:
        raise SessionError(f"{name}: this is not the state of a prefkin session")
    version = state["prefkin_session"]
    if version not in (1, STATE_VERSION) or isinstance(version, bool):  # states of version 1 have no checksum
        raise SessionError(f"{name}: not a session state of version {STATE_VERSION}; it cannot be continued here")
    content = {key: value for key, value in state.items() if key != "checksum"}
    try:
        whole = version == 1 or state.get("checksum") == _checksum(content)
        label_from_json(state.get("user"))
        label_from_json(state.get("label"))
    except (KeyError, TypeError, ValueError, RecursionError):
        whole = False
    if not whole or not isinstance(state.get("log"), list):
        raise SessionError(f"{name}: the session does not match its checksum: it is damaged, cut or edited")
    return state


def _checksum(content: dict[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True))


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One program at a time; the lock is on the folder, ends with the program, and leaves nothing behind."""
    try:
        from fcntl import LOCK_EX, flock
    except ImportError:  # not on Windows: there two programs that save in the same instant are not kept apart
        yield
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # no such folder, or none that may be read: whoever reads or writes in it will say so
        yield
        return
    try:
        flock(handle, LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sweep(path: Path) -> None:
    """Remove what a program that was killed while it wrote has left beside the file."""
    left = re.compile(re.escape(f".{path.name}.") + "[0-9a-f]{8}")
    with suppress(OSError):
        for other in path.parent.iterdir():
            if left.fullmatch(other.name):
                other.unlink(missing_ok=True)
