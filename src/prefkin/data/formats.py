"""Files and frames as columns by name, and columns as arrays. A new file format is one entry in `FORMATS`."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from prefkin.data.arrays import FloatArray, LabelArray
from prefkin.data.checks import as_number, is_missing
from prefkin.errors import InvalidTable, PrefkinError

__all__ = [
    "FORMATS",
    "as_csv",
    "as_file",
    "encoder_note",
    "holds_vectors",
    "label_column",
    "matrix_column",
    "number_column",
    "read_columns",
]

Columns = Mapping[str, Any]  # a numpy array or a narwhals series each; numpy arrays may have more dimensions
ENCODER_NOTE = "prefkin.encoder"  # key in a Parquet file's metadata
MISSING_WORDS = ("", "na", "n/a", "nan", "null", "none")


def read_columns(source: Any, as_text: Collection[str] = ()) -> Columns:
    """The columns of a file or frame; those in `as_text` hold labels, which a CSV file does not say (007 is not 7)."""
    if not isinstance(source, str | Path):
        return _of_frame(source)
    path = Path(source)
    suffix = path.suffix.lower()
    with _readable(suffix):
        if not path.exists():
            raise InvalidTable("no such file")
        if not path.is_file():
            raise InvalidTable(f"this is {'a folder' if path.is_dir() else 'no ordinary file'}; give a file")
        if suffix not in FORMATS:
            *most, last = FORMATS
            raise InvalidTable(f"files ending in {suffix or 'nothing'} are not read; use {', '.join(most)} or {last}")
        if path.stat().st_size == 0:
            raise InvalidTable("the file is empty")
        return FORMATS[suffix](path, as_text)


@contextmanager
def _readable(suffix: str) -> Iterator[None]:
    """Whatever a reader makes of a damaged file becomes one line: libraries fail in ways they do not announce."""
    try:
        yield
    except PrefkinError:
        raise
    except OSError as error:
        raise InvalidTable(f"cannot be read: {error.strerror or error}") from None
    except (Exception, pl.exceptions.PanicException) as error:  # a panic is no Exception
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise InvalidTable(f"not a readable {suffix} file: {reason:.160}") from None


def _of_frame(source: Any) -> Columns:
    try:
        frame = nw.from_native(source, eager_only=True)
    except nw.exceptions.NarwhalsError as error:
        raise InvalidTable(f"the frame cannot be read: {str(error).splitlines()[0]:.120}") from None
    except TypeError:
        raise InvalidTable(
            f"cannot read a {type(source).__name__}; give a file path or a pandas, polars or pyarrow frame"
        ) from None
    if not len(frame):
        raise InvalidTable("there are no rows: the table is empty")
    if any(not isinstance(name, str) for name in frame.columns):
        raise InvalidTable(f"column names must be text; got {frame.columns[:5]!r:.80}")
    return {name: frame[name] for name in frame.columns}


def _parquet(path: Path, _as_text: Collection[str]) -> Columns:
    return _of_frame(pl.read_parquet(_for_polars(path)))


def encoder_note(path: Path) -> str | None:
    """What `prefkin embed` wrote into a Parquet file about the encoder of its features, as JSON; None elsewhere."""
    if path.suffix.lower() != ".parquet":
        return None
    with _readable(".parquet"):
        return pl.read_parquet_metadata(_for_polars(path)).get(ENCODER_NOTE)


def _csv(path: Path, as_text: Collection[str]) -> Columns:
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        header = next(csv.reader(file), [])
    for column, times in Counter(header).items():
        if times > 1:
            raise InvalidTable(f"column {column!r:.60} stands twice in the header; rename one of them")
    texts = {column: pl.String for column in header if column in as_text}
    return _of_frame(pl.read_csv(_for_polars(path), infer_schema_length=None, schema_overrides=texts))


def _for_polars(path: Path) -> Path | io.BytesIO:
    """polars knows only file names that are text."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return io.BytesIO(path.read_bytes())
    return path


def _jsonl(path: Path, as_text: Collection[str]) -> Columns:
    """Numbers by polars, labels as JSON has them: in one column polars would make 1 and "1" one person."""
    labels = _json_labels(path, as_text)
    plain = [name for name, values in labels.items() if not any(isinstance(value, list | dict) for value in values)]
    frame = pl.read_ndjson(
        _for_polars(path), infer_schema_length=None, schema_overrides=dict.fromkeys(plain, pl.String)
    )
    columns = dict(_of_frame(frame))
    for name, values in labels.items():
        if len(values) != len(columns[name]):
            raise InvalidTable("lines and JSON objects do not match; put one object on each line")
        columns[name] = values
    return columns


def _json_labels(path: Path, as_text: Collection[str]) -> dict[str, LabelArray]:
    """The columns in `as_text`, but for those of vectors; every line is checked for keys that stand twice."""
    found: dict[str, list[Any]] = {}
    vectors = set()
    with path.open("rb") as file:
        for number, line in enumerate(line for line in file if line.strip()):
            row = json.loads(line.decode("utf-8-sig" if number == 0 else "utf-8"), object_pairs_hook=_once_each)
            if not isinstance(row, dict):
                raise InvalidTable(f"row {number} (counted from 0) is not a JSON object; put one on each line")
            for name in as_text:
                if name in row and name not in found:
                    found[name] = [None] * number
                if name in found:
                    value = row.get(name)
                    if isinstance(value, list) and any(isinstance(part, int | float) for part in value[:1]):
                        vectors.add(name)
                    found[name].append(None if name in vectors else value)
    return {name: _labels(values) for name, values in found.items() if name not in vectors}


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise InvalidTable(f"key {twice!r:.60} stands twice in one JSON object; keep one of them")
    return row


def _labels(values: list[Any]) -> LabelArray:
    """Integers as integers where all are; otherwise each as it is."""
    if {type(value) for value in values} == {int} and all(-(2**63) <= value < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    kept = np.empty(len(values), dtype=object)
    kept[:] = values
    return kept


def _npz(path: Path, _as_text: Collection[str]) -> Columns:
    if not zipfile.is_zipfile(path):
        raise InvalidTable("not a readable .npz file")
    return _Archive(path)


class _Archive(Mapping[str, Any]):
    """The arrays of an NPZ file, each read when it is asked for and only if it is as large as it says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            self.members = dict(zip(names, archive.infolist(), strict=True))
        if len(self.members) < len(names):
            twice = next(name for name, times in Counter(names).items() if times > 1)
            raise InvalidTable(f"array {twice!r:.60} stands twice; rename one of them")

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, name: str) -> Any:
        member = self.members[name]
        with _readable(".npz"), zipfile.ZipFile(self.path) as archive:
            with archive.open(member) as file:
                shape, dtype = _shape_and_dtype(file)
                bytes_there = member.file_size - file.tell()
            if dtype.hasobject:
                raise InvalidTable(f"array {name} holds Python objects; save labels as text or numbers")
            if (wanted := prod(shape) * dtype.itemsize) != bytes_there:
                raise InvalidTable(
                    f"array {name} should take {wanted} bytes by its shape {shape}, but there are {bytes_there}: "
                    "the file is damaged; save it again"
                )
            if not shape:
                raise InvalidTable(f"array {name} is a single value; give one entry per row")
            with archive.open(member) as file:
                return np.lib.format.read_array(file, allow_pickle=False)


def _shape_and_dtype(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


FORMATS: dict[str, Callable[[Path, Collection[str]], Columns]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".npz": _npz,
}


def label_column(column: Any) -> LabelArray:
    """Values as they are: integers stay integers even where some are missing."""
    if isinstance(column, np.ndarray):
        return column
    wide = column.dtype in (nw.Int128, nw.UInt128)  # numpy has no such integers
    if column.null_count() == 0 and not (wide or column.dtype.is_nested()):
        return np.asarray(column.to_numpy())
    kept = np.empty(len(column), dtype=object)
    kept[:] = column.to_list()
    return kept


def number_column(column: Any, name: str) -> FloatArray:
    """Numbers, NaN where missing."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return column.astype(np.float64)
    if not isinstance(column, np.ndarray) and (column.dtype.is_numeric() or column.dtype == nw.Boolean):
        return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
    values = np.empty(len(column))
    for row, value in enumerate(column.tolist() if isinstance(column, np.ndarray) else column.to_list()):
        try:
            gap = is_missing(value) or (isinstance(value, str) and value.strip().lower() in MISSING_WORDS)
            values[row] = np.nan if gap else as_number(value)
        except (TypeError, ValueError):
            raise InvalidTable(
                f"column {name} is not a number in row {row} (counted from 0): {value!r:.40}; mend it"
            ) from None
    return values


def matrix_column(column: Any) -> Any:
    """A column of vectors as a matrix; rows of unequal length are left for the data model to name."""
    if isinstance(column, np.ndarray):
        return column
    native = nw.to_native(column)
    if isinstance(native, pl.Series) and native.dtype.base_type() in (pl.List, pl.Array) and not native.has_nulls():
        lists = native.cast(pl.List(pl.Float64)) if native.dtype.base_type() is pl.Array else native
        sizes = lists.list.len()
        if sizes.min() == sizes.max() and lists.dtype.inner.is_numeric():  # type: ignore[attr-defined]
            return lists.explode().cast(pl.Float64).to_numpy().reshape(len(lists), -1)
    return column.to_list()


def holds_vectors(column: Any) -> bool:
    """Is each entry a list of numbers?"""
    if isinstance(column, np.ndarray):
        return column.ndim > 1
    first = next((value for value in column.head(50).to_list() if value is not None), None)
    return isinstance(first, list | tuple | np.ndarray) and not (len(first) and isinstance(first[0], dict))


def as_csv(columns: Mapping[str, Iterable[Any]]) -> bytes:
    """Columns as the bytes of a CSV file.

    >>> as_csv({"user": ["ann"], "y": [1]})
    b'user,y\\nann,1\\n'
    """
    return pl.DataFrame({name: list(values) for name, values in columns.items()}, strict=False).write_csv().encode()


def as_file(columns: Mapping[str, Iterable[Any]], suffix: str) -> bytes:
    """Columns as the bytes of a .csv, .jsonl or .parquet file.

    >>> as_file({"user": ["ann"], "y": [1]}, ".jsonl")
    b'{"user":"ann","y":1}\\n'
    """
    if suffix == ".csv":
        return as_csv(columns)
    frame, content = pl.DataFrame({name: list(values) for name, values in columns.items()}, strict=False), io.BytesIO()
    if suffix == ".jsonl":
        frame.write_ndjson(content)
    elif suffix == ".parquet":
        frame.write_parquet(content)
    else:
        raise InvalidTable(f"files ending in {suffix or 'nothing'} are not written; use .parquet, .csv or .jsonl")
    return content.getvalue()
