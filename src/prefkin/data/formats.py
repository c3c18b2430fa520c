"""Files and frames as columns by name, and columns as arrays. A new file format is one entry in `FORMATS`."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from prefkin.data.arrays import FloatArray, LabelArray
from prefkin.data.checks import is_missing
from prefkin.errors import InvalidTable

__all__ = [
    "FORMATS",
    "as_csv",
    "as_file",
    "holds_vectors",
    "label_column",
    "matrix_column",
    "number_column",
    "read_columns",
]

Columns = Mapping[str, Any]  # a numpy array or a narwhals series each; numpy arrays may have more dimensions
MISSING_WORDS = ("", "na", "n/a", "nan", "null", "none")


def read_columns(source: Any, as_text: Collection[str] = ()) -> Columns:
    """The columns of a file or frame; those in `as_text` hold labels, which a CSV file does not say (007 is not 7)."""
    if not isinstance(source, str | Path):
        return _of_frame(source)
    path = Path(source)
    if not path.is_file():
        raise InvalidTable("this is a folder; give a file" if path.is_dir() else "no such file")
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        *most, last = FORMATS
        raise InvalidTable(f"files ending in {suffix or 'nothing'} are not read; use {', '.join(most)} or {last}")
    if path.stat().st_size == 0:
        raise InvalidTable("the file is empty")
    try:
        return FORMATS[suffix](path, as_text)
    except InvalidTable:
        raise
    except (pl.exceptions.PolarsError, OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise InvalidTable(f"not a readable {suffix} file: {reason:.160}".removesuffix(": ")) from None


def _of_frame(source: Any) -> Columns:
    try:
        frame = nw.from_native(source, eager_only=True)
    except nw.exceptions.NarwhalsError as error:
        raise InvalidTable(f"the frame cannot be read: {str(error).splitlines()[0]:.120}") from None
    except TypeError:
        raise InvalidTable(
            f"cannot read a {type(source).__name__}; give a file path or a pandas, polars or pyarrow frame"
        ) from None
    if any(not isinstance(name, str) for name in frame.columns):
        raise InvalidTable(f"column names must be text; got {frame.columns[:5]!r:.80}")
    return {name: frame[name] for name in frame.columns}


def _parquet(path: Path, _as_text: Collection[str]) -> Columns:
    return _of_frame(pl.read_parquet(path))


def _csv(path: Path, as_text: Collection[str]) -> Columns:
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        header = next(csv.reader(file), [])
    for column in header:
        if header.count(column) > 1:
            raise InvalidTable(f"column {column!r} stands twice in the header; rename one of them")
    texts = {column: pl.String for column in header if column in as_text}
    return _of_frame(pl.read_csv(path, infer_schema_length=None, schema_overrides=texts))


def _jsonl(path: Path, _as_text: Collection[str]) -> Columns:
    return _of_frame(pl.read_ndjson(path, infer_schema_length=None))


def _npz(path: Path, _as_text: Collection[str]) -> Columns:
    if not zipfile.is_zipfile(path):
        raise InvalidTable("not a readable .npz file")
    with np.load(path, allow_pickle=False) as archive:
        try:
            return {name: archive[name] for name in archive.files}
        except ValueError as error:
            if "allow_pickle" in str(error):
                raise InvalidTable("it holds Python objects; save labels as text or numbers") from None
            raise


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
    if column.null_count() == 0:
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
            values[row] = np.nan if gap else float(value)
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
    frame, content = pl.DataFrame({name: list(values) for name, values in columns.items()}, strict=False), BytesIO()
    if suffix == ".jsonl":
        frame.write_ndjson(content)
    elif suffix == ".parquet":
        frame.write_parquet(content)
    else:
        raise InvalidTable(f"files ending in {suffix or 'nothing'} are not written; use .parquet, .csv or .jsonl")
    return content.getvalue()
