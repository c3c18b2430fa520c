"""Models on disk: arrays as safetensors, everything else as JSON in its header. Loading runs no code.

One file holds the parameters, what was learnt, and the comparisons themselves (information matrices, sessions and
folding in new users need them): keep it where you would keep the data.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save as to_safetensors

from prefkin.data.arrays import FloatArray
from prefkin.data.checks import LARGEST_FEATURE, in_file, largest_entry
from prefkin.data.shards import ShardedComparisons, shard_name
from prefkin.data.storage import label_from_json, label_to_json, linked_folder, write_atomically
from prefkin.errors import InvalidParameter, ModelFileError, PrefkinError, ShardError
from prefkin.models.reports import SAYING

__all__ = [
    "ENCODER_FILE",
    "IN_SHARDS",
    "KINDS",
    "LATER",
    "MODEL_FILE",
    "PEOPLE",
    "ROWS",
    "load",
    "read_archive",
    "read_in_shards",
    "read_model_file",
    "write_in_shards",
    "write_model_file",
]

FORMAT_VERSION = 1
MODEL_FILE = "model.safetensors"
"""Name of the model inside a folder that `prefkin fit --out` wrote."""
ENCODER_FILE = "encoder.json"
"""Beside it, if the features came from an encoder: which one."""

IN_SHARDS = "crowd.safetensors"
"""Likewise of a model whose people are in shards beside it."""
PEOPLE = "people"  # the folder of their shards
LATER = "later"  # the folder of those who answered more since: their people and rows
ROWS = "rows"

Arrays = dict[str, np.ndarray[Any, Any]]


def write_model_file(
    path: str | Path | BinaryIO, kind: str, about: dict[str, Any], labels: Any, arrays: Arrays
) -> None:
    """Write a model to a path, where the file is replaced as a whole or not at all, or into an open binary file."""
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
    content = _in_one_order(to_safetensors(tensors, {"prefkin": header, "digest": _digest(header, tensors)}))
    if isinstance(path, str | Path):
        write_atomically(Path(path), content)
    else:
        path.write(content)


def _in_one_order(content: bytes) -> bytes:
    """The same file with its metadata sorted by name: safetensors writes them in another order every time."""
    end = 8 + int.from_bytes(content[:8], "little")
    names = json.dumps(json.loads(content[8:end]), sort_keys=True, separators=(",", ":")).encode()
    names += b" " * (-len(names) % 8)
    return len(names).to_bytes(8, "little") + names + content[end:]


def read_model_file(path: str | Path) -> tuple[str, dict[str, Any], np.ndarray[Any, Any], Arrays]:
    """Kind, parameters, labels and arrays of a saved model, or one line that says why not."""
    file = Path(path)
    if file.is_dir():
        file = file / MODEL_FILE
    if not file.is_file():
        raise ModelFileError(f"{file}: no such model file; save one with model.save(path) or prefkin fit --out DIR")
    header, arrays = read_archive(file)
    with _fitting_together(file):
        labels = _labels(header["labels"], header["labels_dtype"])
        _refuse_misfits(len(labels), arrays)
        return str(header["kind"]), dict(header["about"]), labels, arrays


def read_archive(file: Path) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a file of ours, as they were written."""
    try:
        with file.open("rb") as opened, safe_open(_for_safetensors(file, opened), framework="numpy") as archive:
            metadata = archive.metadata() or {}
            tensors = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
        header = json.loads(metadata["prefkin"])
        version = header["format"]
    except OSError as error:
        raise ModelFileError(f"{file}: cannot be read: {error.strerror or error}") from None
    except Exception:  # safetensors and JSON fail in many ways on what is none
        raise ModelFileError(f"{file}: not a prefkin model, or a damaged one; save it again") from None
    if version != FORMAT_VERSION:
        raise ModelFileError(
            f"{file}: written in format {version!r:.40}, this prefkin reads format {FORMAT_VERSION}; "
            "fit again, or load it with the version that wrote it"
        )
    if metadata.get("digest") != _digest(metadata["prefkin"], tensors):
        raise ModelFileError(f"{file}: the contents do not match their checksum: the file is damaged; save it again")
    with _fitting_together(file):
        narrowed = header.get("narrowed", tensors)  # not said in older files: all of them
        return header, {name: _wide(tensor) if name in narrowed else tensor for name, tensor in tensors.items()}


def _for_safetensors(file: Path, opened: BinaryIO) -> str:
    """safetensors knows only file names that are text."""
    try:
        str(file).encode()
    except UnicodeEncodeError:
        return f"/dev/fd/{opened.fileno()}"
    return str(file)


@contextmanager
def _fitting_together(file: str | Path) -> Iterator[None]:
    """A checksum says that a file is as it was written, not that it was written by us: whatever fails is a misfit."""
    try:
        yield
    except (ModelFileError, ShardError):
        raise
    except Exception as error:
        reason = f" ({error})" if isinstance(error, PrefkinError | _Misfit) else ""
        raise ModelFileError(
            f"{file}: its contents do not fit together{reason}: not written by prefkin, or damaged; save it again"
        ) from None


class _Misfit(Exception):
    """What does not fit."""


def _labels(given: list[Any], kind: str) -> np.ndarray[Any, Any]:
    """User labels in the type in which they were fitted."""
    values = [label_from_json(label) for label in given]
    labels = np.empty(len(values), dtype=object)
    labels[:] = values
    if np.dtype(kind).kind in "biufU":
        typed = np.array(values) if np.dtype(kind).kind == "U" else labels.astype(kind)
        if typed.tolist() != values:
            raise _Misfit("labels")
        labels = typed
    if not values or len(set(values)) < len(values):
        raise _Misfit("labels")
    return labels


def _refuse_misfits(n_users: int, arrays: Arrays) -> None:
    """Arrays whose shapes or values no fit gives."""
    Z, starts = arrays["Z"], arrays["starts"]
    (n, d), own, each = Z.shape, (n_users, Z.shape[1]), (n_users,)
    shapes: dict[str, tuple[int, ...]] = {"y": (n,), "weights": (n,), "starts": (n_users + 1,), "own_theta": own}
    shapes |= {"radius": each}
    shapes |= {name: each for name in ("gamma", "enough", "seats") if name in arrays}
    shapes |= {name: own for name in ("theta", "believed") if name in arrays}
    shapes |= {name: (n,) for name in arrays if name.startswith(("site_", "wide_")) or name == "sites"}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise _Misfit(f"{name} has shape {arrays[name].shape} instead of {shape}")
    for name, array in arrays.items():
        if array.dtype.kind not in {"starts": "iu", "enough": "b", "seats": "iu"}.get(name, "f"):
            raise _Misfit(f"{name} is of type {array.dtype}")
        unbounded = name in ("radius", "gamma")
        if array.dtype.kind == "f" and (np.isnan(array).any() if unbounded else not np.isfinite(array).all()):
            raise _Misfit(f"{name} is not finite")
    if starts[0] != 0 or starts[-1] != n or (np.diff(starts) < 1).any() or d == 0:
        raise _Misfit("starts")
    if not np.isin(arrays["y"], (0, 1)).all() or (arrays["weights"] < 0).any() or largest_entry(Z) > LARGEST_FEATURE:
        raise _Misfit("comparisons")
    for name in ("own_theta", "theta", "believed"):
        if name in arrays and _overflowing(arrays[name], Z):
            raise _Misfit(f"{name} is too large")
    share = arrays.get("share", np.ones((n_users, 1)))
    if share.ndim != 2 or len(share) != n_users or (share < 0).any() or share.sum(axis=1).max() > 1 + 1e-6:
        raise _Misfit("share")


def _overflowing(theta: FloatArray, Z: FloatArray) -> bool:
    """Are there estimates whose squares, or those of the margins that follow, are not numbers any more?"""
    most, reach = np.abs(theta).max(axis=0), np.abs(theta).max(axis=0) * np.maximum(Z.max(axis=0), -Z.min(axis=0))
    return not (most.max() <= LARGEST_FEATURE**2 and reach.max() <= LARGEST_FEATURE)


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


# -- people in shards ------------------------------------------------------------------------------------------------


def write_in_shards(
    folder: Any,
    kind: str,
    data: ShardedComparisons,
    about: dict[str, Any],
    arrays: Arrays,
    people: Path,
    later: Path | None = None,
) -> None:
    """A model whose people are in shards, as a folder: a small file, and the shards beside it, linked where possible.

    It is written as a whole; `people` is where shards of people are now, `later` of those who came since."""
    if not isinstance(folder, str | Path):
        raise InvalidParameter("people in shards are saved to a folder; give its path")
    where = {"shards": str(data.home.resolve()), "fingerprint": data.fingerprint, "more": data.more}
    content = io.BytesIO()
    write_model_file(content, kind, where | about, np.empty(0), arrays)
    links = {f"{PEOPLE}/{shard_name(k)}": people / shard_name(k) for k in data.inhabited}
    if later is not None:
        links |= {f"{LATER}/{file.parent.name}/{file.name}": file for file in sorted(later.glob("*/*.parquet"))}
    linked_folder(Path(folder), {IN_SHARDS: content.getvalue()}, links)


def read_in_shards(folder: Path) -> tuple[dict[str, Any], Arrays, ShardedComparisons]:
    """What was written, and the comparisons it is about, which must be the same as then."""
    header, arrays = read_archive(folder / IN_SHARDS)
    about = header["about"]
    data = ShardedComparisons.at(Path(about["shards"]))
    if data.fingerprint != about["fingerprint"]:
        raise ShardError(f"{folder}: its comparisons in {data.source} changed since they were fitted; fit again")
    if (later := folder / LATER).is_dir():
        data = replace(data, later=later / ROWS, more=tuple(about["more"]))
    return about, arrays, data


# -- any of them -----------------------------------------------------------------------------------------------------


KINDS = {
    "OffC2PL": "prefkin.models.off_c2pl.estimator",
    "PrefKin": "prefkin.models.prefkin.estimator",
    "GroupShrinkage": "prefkin.models.baselines",
}
"""Where the class that reads a kind of model is: it is imported when a file of that kind is read."""
SHARDED = {"OffC2PL": "prefkin.models.off_c2pl.shards", "PrefKin": "prefkin.models.prefkin.out_of_core.users"}
"""Likewise of models whose people are in shards."""


def load(path: str | Path) -> Any:
    """A model written by `model.save(path)`, or the one in a folder written by `prefkin fit --out`.

    >>> import tempfile
    >>> from prefkin import OffC2PL
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     OffC2PL(gamma=0.0).fit([[0.5], [1.0]], [1, 0], users=["ann", "bo"]).save(f"{folder}/kin")
    ...     load(f"{folder}/kin").users_.tolist()
    ['ann', 'bo']
    """
    if not isinstance(path, str | PathLike):
        raise ModelFileError(f"load takes the path of a saved model, or of a folder of prefkin fit; got {path!r:.60}")
    if (file := Path(path) / IN_SHARDS).is_file():
        with _fitting_together(file):
            return import_module(SHARDED[read_archive(file)[0]["kind"]]).load_in_shards(Path(path))
    kind, about, labels, arrays = read_model_file(path)
    if kind not in KINDS:
        raise ModelFileError(f"{path}: holds a model of kind {kind!r:.40}, which this prefkin does not know")
    with _fitting_together(path), np.errstate(all="ignore"):
        with in_file(path):
            model = getattr(import_module(KINDS[kind]), kind).from_file(about, labels, arrays)
        model._check_parameters()
        names, classes = model.feature_names_, model.classes_.tolist()
        if names is not None and (len(names) != model.n_features_in_ or not all(isinstance(n, str) for n in names)):
            raise _Misfit("feature_names")
        if len(classes) != 2 or classes[0] == classes[1] or model.positive_ not in classes:
            raise _Misfit("classes")
        if getattr(model, "structure_", "groups") not in list(SAYING):
            raise _Misfit("structure")
        model.width(labels.tolist()[0])
        one = model.predict_proba(np.zeros((1, model.n_features_in_)), users=labels[:1])
        if _overflowing(model.theta_, arrays["Z"]) or not np.isfinite(one).all():
            raise _Misfit("estimates")
    return model
