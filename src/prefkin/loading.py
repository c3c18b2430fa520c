"""Saved models back into memory: the kind written in the file decides which class reads it."""

from __future__ import annotations

from pathlib import Path

from prefkin.errors import ModelFileError
from prefkin.kin import PrefKin
from prefkin.model_file import read_model_file
from prefkin.offline import OffC2PL

__all__ = ["load"]

KINDS: dict[str, type[OffC2PL] | type[PrefKin]] = {"OffC2PL": OffC2PL, "PrefKin": PrefKin}


def load(path: str | Path) -> OffC2PL | PrefKin:
    """A model written by `model.save(path)`, or the one in a folder written by `prefkin fit --out`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     OffC2PL(gamma=0.0).fit([[0.5], [1.0]], [1, 0], users=["ann", "bo"]).save(f"{folder}/kin")
    ...     load(f"{folder}/kin").users_.tolist()
    ['ann', 'bo']
    """
    kind, about, labels, arrays = read_model_file(path)
    if kind not in KINDS:
        raise ModelFileError(f"{path}: holds a model of kind {kind!r}, which this prefkin does not know")
    return KINDS[kind].from_file(about, labels, arrays)
