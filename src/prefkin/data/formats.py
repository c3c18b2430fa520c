"""Files and frames as columns by name, and columns as arrays. A new file format is one entry in `FORMATS`."""

from __future__ import annotations

import csv
import gzip
import io
import json
import mmap
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from prefkin.data.arrays import FloatArray, LabelArray
from prefkin.data.checks import as_number, is_missing, is_number, plain_array
from prefkin.data.exports import exported_rows
from prefkin.data.json_lines import once_each, read_json_lines
from prefkin.errors import InvalidTable, PrefkinError

__all__ = [
    "FORMATS",
    "WRITABLE",
    "as_csv",
    "as_file",
    "encoder_of",
    "holds_numbers",
    "holds_vectors",
    "is_text",
    "label_column",
    "matrix_column",
    "number_column",
    "read_columns",
    "untouched",
    "with_vectors",
]

Source = Path | bytes  # a file, or what stood in a compressed one
Columns = Mapping[str, Any]  # a numpy array or a narwhals series each; numpy arrays may have more dimensions
ENCODER_NOTE = "prefkin.encoder"  # key in a Parquet file's metadata
MISSING_WORDS = ("", "na", "n/a", "nan", "null", "none")


def read_columns(source: Any, as_text: Collection[str] = ()) -> Columns:
    """The columns of a file or frame; those in `as_text` hold labels, which a CSV file does not say (007 is not 7).

    Columns that were read before stay as they are.
    """
    if type(source) is dict:
        return source
    if not isinstance(source, str | Path):
        return _of_frame(source)
    path = Path(source)
    suffix, packed = _suffixes(path)
    with _readable(suffix + packed):
        if not path.exists():
            raise InvalidTable("no such file")
        if path.is_dir():
            return _of_frame(_folder(path))
        if not path.is_file():
            raise InvalidTable("this is no ordinary file; give a file")
        if suffix not in FORMATS:
            *most, last = FORMATS
            raise InvalidTable(f"files ending in {suffix or 'nothing'} are not read; use {', '.join(most)} or {last}")
        if path.stat().st_size == 0:
            raise InvalidTable("the file is empty")
        if not packed:
            return FORMATS[suffix](path, as_text)
        if suffix not in PACKED:
            raise InvalidTable(f"{suffix} files are compressed inside; unpack it")
        return FORMATS[suffix](_unpacked(path, packed), as_text)


def _suffixes(path: Path) -> tuple[str, str]:
    """What it is, and how it is compressed: votes.csv.gz is (.csv, .gz)."""
    last = path.suffix.lower()
    return (path.with_suffix("").suffix.lower(), last) if last in (".gz", ".zst") else (last, "")


def _unpacked(path: Path, packed: str) -> bytes:
    if packed == ".gz":
        with gzip.open(path) as file:
            content = file.read()
    else:  # by polars, which brings zstd along
        content = "\n".join(pl.read_lines(_for_polars(path)).to_series()).encode()
    if not content.strip():
        raise InvalidTable("the file is empty")
    return content


def _folder(path: Path) -> pl.DataFrame:
    """Parquet files, or what `save_to_disk` of Hugging Face's datasets wrote: Arrow streams and a list of them."""
    if (path / "dataset_dict.json").is_file():
        splits = json.loads((path / "dataset_dict.json").read_bytes())["splits"]
        raise InvalidTable(f"this folder holds the splits {', '.join(splits)}; give one of them, {path / splits[0]}")
    if (path / "state.json").is_file():
        parts = json.loads((path / "state.json").read_bytes())["_data_files"]
        return pl.concat([pl.read_ipc_stream(path / part["filename"]) for part in parts])
    files = sorted(path.glob("*.parquet"))
    if not files:
        raise InvalidTable("this is a folder without Parquet files and no saved dataset; give a file")
    splits = sorted({re.sub(r"-?\d+(-of-\d+)?$", "", file.stem) for file in files})
    if len(splits) > 1:
        raise InvalidTable(
            f"this folder holds files of several tables ({', '.join(splits[:4])}); give one of them a folder of its own"
        )
    frames = [pl.read_parquet(_for_polars(file)) for file in files]
    for file, frame in zip(files, frames, strict=True):
        if frame.schema != frames[0].schema:
            raise InvalidTable(f"{file.name} has other columns than {files[0].name}; write all with the same ones")
    return pl.concat(frames)


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
    if type(source).__module__.split(".")[0] == "datasets":
        source = _of_hugging_face(source)
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


def _of_hugging_face(source: Any) -> Any:
    if isinstance(source, Mapping):
        some = next(iter(source), "train")
        raise InvalidTable(f"the dataset holds the splits {', '.join(source)}; give one of them: dataset[{some!r}]")
    if not hasattr(source, "with_format") or not hasattr(source, "__len__"):
        raise InvalidTable("a dataset that is streamed cannot be read; give one that is loaded (streaming=False)")
    return source.with_format("arrow")[:]


def _parquet(source: Source, _as_text: Collection[str]) -> Columns:
    return _of_frame(pl.read_parquet(_for_polars(source)))


def _csv(source: Source, as_text: Collection[str]) -> Columns:
    content = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
    with io.TextIOWrapper(content, "utf-8-sig", "replace", newline="") as text:
        header = next(csv.reader(text), [])
    for column, times in Counter(header).items():
        if times > 1:
            raise InvalidTable(f"column {column!r:.60} stands twice in the header; rename one of them")
    if len(header) == 1 and (mark := next((mark for mark in ";\t|" if mark in header[0]), None)):
        raise InvalidTable(f"columns are separated by {mark!r} there; save it with commas, and numbers with points")
    texts = {column: pl.String for column in header if column in as_text}
    try:
        frame = pl.read_csv(_for_polars(source), infer_schema_length=None, schema_overrides=texts)
    except pl.exceptions.ComputeError:
        _refuse_faulty_rows(source if isinstance(source, bytes) else source.read_bytes(), len(header))
        raise
    return _of_frame(frame)


def _refuse_faulty_rows(content: bytes, columns: int) -> None:
    """What polars says without a row: texts in another encoding, or more fields than the header has."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        kind = "UTF-16" if b"\0" in content[:100] else f"Latin-1 (see line {line})"
        raise InvalidTable(f"the text is not in UTF-8 but maybe in {kind}; save it as UTF-8") from None
    with suppress(csv.Error):
        for row, fields in enumerate(csv.reader(io.StringIO(text, newline="")), -1):
            if len(fields) > columns:
                raise InvalidTable(
                    f"row {row} (counted from 0) has {len(fields)} fields, but there are {columns} columns; mend it, "
                    "and put texts with commas between double quotes"
                )


def _for_polars(source: Source) -> Path | io.BytesIO:
    """polars knows only file names that are text."""
    if isinstance(source, bytes):
        return io.BytesIO(source)
    return source if is_text(source) else io.BytesIO(source.read_bytes())


def is_text(path: Path) -> bool:
    """Is a file's name text? Systems take any bytes, polars does not."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _jsonl(source: Source, as_text: Collection[str]) -> Columns:
    """Numbers by polars, labels as JSON has them: in one column polars would make 1 and "1" one person."""
    if isinstance(source, bytes):
        frame, labels = read_json_lines(source, as_text)
    else:
        with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            frame, labels = read_json_lines(content, as_text, source if is_text(source) else None)
    return dict(_of_frame(frame)) | labels


def _json(source: Source, as_text: Collection[str]) -> Columns:
    """A list of rows, or what an annotation tool exported."""
    content = source if isinstance(source, bytes) else source.read_bytes()
    rows = exported_rows(json.loads(content.decode("utf-8-sig"), object_pairs_hook=once_each))
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    return _jsonl(lines.encode(), as_text)


def _npz(source: Source, _as_text: Collection[str]) -> Columns:
    if isinstance(source, bytes) or not zipfile.is_zipfile(source):
        raise InvalidTable("not a readable .npz file")
    return _Archive(source)


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


FORMATS: dict[str, Callable[[Source, Collection[str]], Columns]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".json": _json,
    ".npz": _npz,
}
PACKED = (".csv", ".jsonl", ".json")
"""Formats whose files may also end in .gz or .zst."""


def label_column(column: Any) -> LabelArray:
    """Values as they are: integers stay integers even where some are missing."""
    if isinstance(column, np.ndarray):
        return column
    wide = column.dtype in (nw.Int128, nw.UInt128)  # numpy has no such integers
    if column.null_count() == 0 and not (wide or column.dtype.is_nested()):
        return np.asarray(column.to_numpy())
    return plain_array(column.to_list(), "labels")


def number_column(column: Any, name: str, otherwise: str = "") -> FloatArray:
    """Numbers, NaN where missing."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return column.astype(np.float64)
    if not isinstance(column, np.ndarray) and (column.dtype.is_numeric() or column.dtype == nw.Boolean):
        return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
    values = np.empty(len(column))
    for row, value in enumerate(column.tolist() if isinstance(column, np.ndarray) else column.to_list()):
        try:
            values[row] = np.nan if _no_number(value) else as_number(value)
        except (TypeError, ValueError):
            raise InvalidTable(
                f"column {name} is not a number in row {row} (counted from 0): {value!r:.40}; mend it{otherwise}"
            ) from None
    return values


def _no_number(value: Any) -> bool:
    """Is it missing, or a word for that?"""
    return is_missing(value) or (isinstance(value, str) and value.strip().lower() in MISSING_WORDS)


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


def holds_numbers(column: Any) -> bool:
    """Is each entry one number? Where others stand among more numbers, it was meant to be one.

    A column of nothing but digits that whoever made the table took for texts is one of texts: postcodes, sessions.
    """
    if isinstance(column, np.ndarray):
        if column.ndim > 1 or column.dtype.kind not in "UO":
            return column.ndim == 1 and column.dtype.kind in "iuf"
    elif column.dtype not in (nw.String, nw.Object):
        return bool(column.dtype.is_numeric())
    given = [value for value in label_column(column).tolist() if not _no_number(value)]
    numbers = [is_number(value) if isinstance(value, str) else _is_real(value) for value in given]
    digits = all(numbers) and all(isinstance(value, str) for value in given)
    return not digits and 2 * sum(numbers) > len(given)


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def untouched(columns: Columns, source: Any, suffix: str) -> Columns:
    """The columns of a table to be written out again, with others beside them, as a file ending in `suffix`.

    From CSV to CSV all of them are text: 007 stays what it was.
    """
    if suffix == ".csv" and isinstance(source, str | Path) and Path(source).suffix.lower() == ".csv":
        return _of_frame(pl.read_csv(_for_polars(Path(source)), infer_schema=False))
    return columns


WRITABLE = (".parquet", ".csv", ".jsonl")


def as_csv(columns: Mapping[str, Iterable[Any]]) -> bytes:
    """Columns as the bytes of a CSV file.

    >>> as_csv({"user": ["ann"], "y": [1]})
    b'user,y\\nann,1\\n'
    """
    return as_file(columns, ".csv")


def as_file(columns: Mapping[str, Iterable[Any]], suffix: str) -> bytes:
    """Columns as the bytes of a .csv, .jsonl or .parquet file.

    >>> as_file({"user": ["ann"], "y": [1]}, ".jsonl")
    b'{"user":"ann","y":1}\\n'
    """
    frame, content = pl.DataFrame({name: list(values) for name, values in columns.items()}, strict=False), io.BytesIO()
    if suffix == ".csv":
        if nested := next((name for name, kind in frame.schema.items() if kind.is_nested()), None):
            raise InvalidTable(f"column {nested} holds lists, which CSV has no place for; write .parquet or .jsonl")
        frame.write_csv(content)
    elif suffix == ".jsonl":
        frame.write_ndjson(content)
    elif suffix == ".parquet":
        frame.write_parquet(content)
    else:
        raise InvalidTable(f"files ending in {suffix or 'nothing'} are not written; use .parquet, .csv or .jsonl")
    return content.getvalue()


def with_vectors(
    columns: Columns, vectors: Mapping[str, FloatArray], y: FloatArray | None, about: Mapping[str, str]
) -> bytes:
    """Columns as they are, vectors and answers beside them, as the bytes of a Parquet file with notes in its header."""
    series = [_polars_series(name, column) for name, column in columns.items() if name not in {*vectors, "y"}]
    series += [pl.Series(name, matrix, dtype=pl.Array(pl.Float32, matrix.shape[1])) for name, matrix in vectors.items()]
    frame = pl.DataFrame(series).with_columns(pl.col(name).arr.to_list() for name in vectors)
    if y is not None:
        frame = frame.with_columns(pl.Series("y", y))
    elif "y" in columns:
        frame = frame.with_columns(_polars_series("y", columns["y"]))
    content = io.BytesIO()
    frame.write_parquet(content, metadata=dict(about))
    return content.getvalue()


def _polars_series(name: str, column: Any) -> pl.Series:
    """Labels of several kinds cannot stand in one column of a Parquet file; as texts they would merge."""
    if isinstance(column, np.ndarray):
        values = column.tolist()
        if len({type(value) for value in values if value is not None}) > 1:
            raise InvalidTable(f"column {name} holds values of different kinds; make all of them texts, or numbers")
        return pl.Series(name, values)
    native = nw.to_native(column)
    return native if isinstance(native, pl.Series) else pl.Series(name, column.to_list())


def encoder_of(path: Path) -> dict[str, Any] | None:
    """The encoder that made the features of a Parquet file, as `prefkin embed` noted it; None where it did not.

    >>> encoder_of(Path("votes.csv")) is None
    True
    """
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return None
    with _readable(".parquet"):
        noted = pl.read_parquet_metadata(_for_polars(path)).get(ENCODER_NOTE)
    return None if noted is None else json.loads(noted)
