"""Files that are written as a whole or not at all, and user labels as JSON."""

from __future__ import annotations

import os
import secrets
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np

from prefkin.errors import ModelFileError

__all__ = ["label_from_json", "label_to_json", "write_atomically"]


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all; what is no regular file (a pipe, a device) is written into."""
    if path.exists() and not path.is_file():
        if path.is_dir():
            raise ModelFileError(f"{path}: this is a folder; give the name of a file")
        path.write_bytes(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def label_to_json(label: Hashable) -> Any:
    """A user label as a JSON value that can be told apart from its text.

    >>> label_to_json(("group", 1))
    {'tuple': ['group', 1]}
    """
    if isinstance(label, np.generic):
        label = label.item()
    if label is None or isinstance(label, str | bool | int | float):
        return label
    if isinstance(label, tuple):
        return {"tuple": [label_to_json(part) for part in label]}
    raise ModelFileError(
        f"a user label of type {type(label).__name__} ({label!r:.40}) cannot be stored; "
        "use text, numbers, or tuples of them"
    )


def label_from_json(value: Any) -> Any:
    """The label that `label_to_json` wrote."""
    return tuple(label_from_json(part) for part in value["tuple"]) if isinstance(value, dict) else value
