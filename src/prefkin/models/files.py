"""Models on disk: arrays as safetensors, everything else as JSON in its header. Loading runs no code.

One file holds the parameters, what was learnt, and the comparisons themselves (information matrices, sessions and
folding in new users need them): keep it where you would keep the data.
"""

from __future__ import annotations

import hashlib
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from prefkin.data.storage import label_from_json, label_to_json, write_atomically
from prefkin.errors import ModelFileError

__all__ = ["MODEL_FILE", "load", "read_model_file", "write_model_file"]

FORMAT_VERSION = 1
MODEL_FILE = "model.safetensors"
"""Name of the model inside a folder that `prefkin fit --out` wrote."""

Arrays = dict[str, np.ndarray[Any, Any]]


def write_model_file(path: str | Path, kind: str, about: dict[str, Any], labels: Any, arrays: Arrays) -> None:
    """Write a model; the file is replaced as a whole or not at all."""
    tensors = {name: _compact(array) for name, array in arrays.items()}
    header = json.dumps(
        {
            "format": FORMAT_VERSION,
            "kind": kind,
            "about": about,
            "labels": [label_to_json(label) for label in np.asarray(labels, dtype=object).tolist()],
            "labels_dtype": np.asarray(labels).dtype.str,
            "narrowed": [name for name in tensors if tensors[name].dtype != arrays[name].dtype],
        }
    )
    metadata = {"prefkin": header, "digest": _digest(header, tensors)}
    write_atomically(Path(path), to_safetensors(tensors, metadata))


def read_model_file(path: str | Path) -> tuple[str, dict[str, Any], np.ndarray[Any, Any], Arrays]:
    """Kind, parameters, labels and arrays of a saved model, or one line that says why not."""
    file = Path(path)
    if file.is_dir():
        file = file / MODEL_FILE
    if not file.is_file():
        raise ModelFileError(f"{file}: no such model file; save one with model.save(path) or prefkin fit --out DIR")
    try:
        with safe_open(file, framework="numpy") as archive:
            metadata = archive.metadata() or {}
            tensors = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
        header = json.loads(metadata["prefkin"])
        version = header["format"]
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        raise ModelFileError(f"{file}: not a prefkin model, or a damaged one; save it again") from None
    if version != FORMAT_VERSION:
        raise ModelFileError(
            f"{file}: written in format {version!r}, this prefkin reads format {FORMAT_VERSION}; "
            "fit again, or load it with the version that wrote it"
        )
    if metadata.get("digest") != _digest(metadata["prefkin"], tensors):
        raise ModelFileError(f"{file}: the contents do not match their checksum: the file is damaged; save it again")
    given = [label_from_json(label) for label in header["labels"]]
    labels = np.empty(len(given), dtype=object)
    labels[:] = given
    dtype = np.dtype(header["labels_dtype"])
    narrowed = header.get("narrowed", tensors)  # not said in older files: all of them
    arrays = {name: _wide(tensor) if name in narrowed else tensor for name, tensor in tensors.items()}
    return header["kind"], header["about"], labels if dtype.kind == "O" else labels.astype(dtype), arrays


def _compact(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Half the bytes where nothing is lost: embeddings mostly come in single precision."""
    array = np.ascontiguousarray(array)
    if array.dtype == np.float64 and array.ndim == 2:
        with np.errstate(over="ignore"):
            single = array.astype(np.float32)
        if np.array_equal(single, array):
            return single
    return array


def _wide(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _digest(header: str, tensors: Arrays) -> str:
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


KINDS = {"OffC2PL": "prefkin.models.off_c2pl.estimator", "PrefKin": "prefkin.models.prefkin.estimator"}
"""Where the class that reads a kind of model is: it is imported when a file of that kind is read."""


def load(path: str | Path) -> Any:
    """A model written by `model.save(path)`, or the one in a folder written by `prefkin fit --out`.

    >>> import tempfile
    >>> from prefkin import OffC2PL
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     OffC2PL(gamma=0.0).fit([[0.5], [1.0]], [1, 0], users=["ann", "bo"]).save(f"{folder}/kin")
    ...     load(f"{folder}/kin").users_.tolist()
    ['ann', 'bo']
    """
    kind, about, labels, arrays = read_model_file(path)
    if kind not in KINDS:
        raise ModelFileError(f"{path}: holds a model of kind {kind!r}, which this prefkin does not know")
    return getattr(import_module(KINDS[kind]), kind).from_file(about, labels, arrays)
