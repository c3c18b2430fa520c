"""JSON lines as polars reads them, where that is what stands there; rows of which it is not sure are read by Python.

polars is quick, but takes the first of two keys with the same name, makes 1 and "1" one text where a column has both,
and leaves out keys that it did not meet in the rows it looked at. So keys are counted in the bytes: outside of texts a
colon follows a key and nothing else, and inside of a text no quote stands before a colon without a backslash. A row
with as many keys, and as many of them with a text behind, as its values have in the frame is what polars says it is.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from prefkin.data.arrays import BoolArray, IntArray, LabelArray
from prefkin.data.checks import plain_array
from prefkin.errors import InvalidTable

__all__ = ["once_each", "plain_labels", "read_json_lines"]

QUOTE, COLON, BACKSLASH, NEWLINE, SPACE = (ord(sign) for sign in '":\\\n ')
BOM = b"\xef\xbb\xbf"
UNEQUAL = "lines and JSON objects do not match; put one object on each line"
BYTES_AT_ONCE = 2**20  # fits the second cache
FIRST_LOOK = 1000  # rows from which types are taken; all of them where a later row is of another type
HALF_A_CHARACTER = re.compile(rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])")  # becomes NUL in polars


def read_json_lines(
    content: bytes | mmap, as_text: Collection[str], path: Path | None = None
) -> tuple[pl.DataFrame, dict[str, LabelArray]]:
    """The frame, and those columns of `as_text` in which polars and JSON differ, as JSON has them.

    `path`: where the content stands as it is, which spares polars a copy.

    >>> frame, labels = read_json_lines(b'{"user": 1, "y": 1}\\n{"user": "1", "y": 0}\\n', ["user"])
    >>> frame["y"].to_list(), labels["user"].tolist()
    ([1, 0], [1, '1'])
    """
    if content[: len(BOM)] == BOM:
        content, path = content[len(BOM) :], None
    marks = _marks(content)
    for look_at in (FIRST_LOOK, None):
        try:
            frame = pl.read_ndjson(path or io.BytesIO(content), infer_schema_length=look_at)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            if look_at is None:
                return _mixed(content, as_text)
            continue
        sure = _is_what_it_seems(frame, marks, as_text)
        if sure.all():
            return frame, {}
    return _with_labels(frame, content, as_text, sure)


def _lines(content: bytes | mmap) -> list[tuple[int, bytes]]:
    """Lines with something in them, and which line of the file each is, counted from 1."""
    return [(number, line) for number, line in enumerate(content[:].split(b"\n"), 1) if line.strip()]


def _mixed(content: bytes | mmap, as_text: Collection[str]) -> tuple[pl.DataFrame, dict[str, LabelArray]]:
    """Labels of kinds that polars cannot hold in one column are texts to it, and come from Python."""
    labels = _labels_by_python(_lines(content), as_text)
    texts = {name: pl.String for name, values in labels.items() if not any(isinstance(v, list | dict) for v in values)}
    frame = pl.read_ndjson(io.BytesIO(content), infer_schema_length=None, schema_overrides=texts)
    for values in labels.values():
        if len(values) != len(frame):
            raise InvalidTable(UNEQUAL)
    return frame, {name: plain_labels(values) for name, values in labels.items()}


def _with_labels(
    frame: pl.DataFrame, content: bytes | mmap, as_text: Collection[str], sure: BoolArray
) -> tuple[pl.DataFrame, dict[str, LabelArray]]:
    """Labels by polars where a row is sure, by Python elsewhere."""
    lines = _lines(content)
    if len(lines) != len(frame):
        raise InvalidTable(UNEQUAL)
    doubtful = np.flatnonzero(~sure).tolist()
    read = _labels_by_python([lines[row] for row in doubtful], as_text)
    labels = {}
    for name in read.keys() & set(frame.columns):
        values = frame[name].to_list()
        for row, value in zip(doubtful, read[name], strict=True):
            values[row] = value
        labels[name] = plain_labels(values)
    return frame, labels


def _labels_by_python(lines: list[tuple[int, bytes]], as_text: Collection[str]) -> dict[str, list[Any]]:
    """The columns in `as_text`, but for those of vectors; every line is checked for keys that stand twice."""
    found: dict[str, list[Any]] = {}
    vectors = set()
    for number, (at, line) in enumerate(lines):
        row = _row(line, at)
        for name in as_text:
            if name in row and name not in found:
                found[name] = [None] * number
            if name in found:
                value = row.get(name)
                if isinstance(value, list) and any(isinstance(part, int | float) for part in value[:1]):
                    vectors.add(name)
                found[name].append(None if name in vectors else value)
    return {name: values for name, values in found.items() if name not in vectors}


def _row(line: bytes, at: int) -> dict[str, Any]:
    """The object on a line of a file, or one line that says which line is none."""
    try:
        row = json.loads(line, object_pairs_hook=once_each, parse_constant=_no_constant)
    except InvalidTable as error:
        raise InvalidTable(f"line {at}: {error}") from None
    except ValueError as error:
        where = f", column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidTable(f"line {at}{where} is no JSON: {getattr(error, 'msg', error)}; mend it") from None
    if not isinstance(row, dict):
        raise InvalidTable(f"line {at} is not a JSON object; put one on each line")
    return row


def _no_constant(name: str) -> Any:
    """Python reads NaN and Infinity, JSON has none of them."""
    raise InvalidTable(f"{name} is no JSON; write null where a value is missing")


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, whose keys must differ."""
    row = dict(pairs)
    if len(row) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise InvalidTable(f"key {twice!r:.60} stands twice in one JSON object; keep one of them")
    return row


def plain_labels(values: list[Any]) -> LabelArray:
    """Integers as integers where all are; otherwise each as it is."""
    if {type(value) for value in values} == {int} and all(-(2**63) <= value < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    return plain_array(values, "labels")


# -- what stands in the bytes ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Marks:
    """Places of keys (of the colons behind them), of those with a text behind, and of what makes a line doubtful."""

    content: bytes | mmap
    keys: IntArray
    texts: IntArray
    doubtful: IntArray

    def by_line(self) -> tuple[IntArray, IntArray, BoolArray]:
        """Of each line with something in it: keys, those with a text behind, and whether nothing is doubtful."""
        ends = np.append(np.flatnonzero(np.frombuffer(self.content, dtype=np.uint8) == NEWLINE), len(self.content))
        filled = np.diff(ends, prepend=-1) > 2  # one of spaces alone is no row, and makes the numbers of rows differ
        keys, texts, doubts = (
            np.diff(np.searchsorted(places, ends), prepend=0)[filled]
            for places in (self.keys, self.texts, self.doubtful)
        )
        return keys, texts, doubts == 0


def _marks(content: bytes | mmap) -> _Marks:
    signs, last = np.frombuffer(content, dtype=np.uint8), len(content) - 1
    keys, texts, doubtful, halves = [], [], [], False
    for at in range(0, len(signs), BYTES_AT_ONCE):
        block = signs[at : at + BYTES_AT_ONCE]
        colons = np.flatnonzero(block == COLON) + at
        before = signs[np.maximum(colons - 1, 0)]
        doubtful.append(colons[before <= SPACE])  # a key with space behind it, or part of a text: left to Python
        colons = colons[(before == QUOTE) & (signs[np.maximum(colons - 2, 0)] != BACKSLASH)]
        keys.append(colons)
        behind = signs[np.minimum(colons + 1, last)]
        behind = np.where(behind == SPACE, signs[np.minimum(colons + 2, last)], behind)
        texts.append(colons[behind == QUOTE])
        halves = halves or (signs[np.minimum(np.flatnonzero(block == BACKSLASH) + at + 1, last)] == ord("u")).any()
    if halves:
        doubtful.append(np.array([match.start() for match in HALF_A_CHARACTER.finditer(content)], dtype=np.intp))
    return _Marks(content, np.concatenate(keys), np.concatenate(texts), np.sort(np.concatenate(doubtful)))


def _is_what_it_seems(frame: pl.DataFrame, marks: _Marks, as_text: Collection[str]) -> BoolArray:
    """Rows that hold what polars says, labels being what JSON has.

    A value that is not null was read from its key, so no row has fewer keys than values, nor more texts than values
    that are texts: where the sums agree, all rows do.
    """
    changed = any(name in as_text and _is_changed(kind) for name, kind in frame.schema.items())
    if changed or any(name.endswith("\\") for name in _names(frame.schema)):
        return np.zeros(len(frame), dtype=bool)
    keys, texts, sure = _keys(frame.to_struct())
    if sure.all() and not len(marks.doubtful) and (keys.sum(), texts.sum()) == (len(marks.keys), len(marks.texts)):
        return sure
    keys_there, texts_there, plain = marks.by_line()
    if len(keys_there) != len(frame):
        return np.zeros(len(frame), dtype=bool)
    return sure & (keys == keys_there) & (texts == texts_there) & plain


def _names(kinds: Any) -> list[str]:
    """Names of keys at all depths."""
    found = []
    for name, kind in kinds.items():
        while kind.base_type() is pl.List:
            kind = kind.inner
        found += [name, *(_names(dict(kind)) if kind.base_type() is pl.Struct else [])]
    return found


def _is_changed(kind: Any) -> bool:
    """May polars have made a label another one? Whole numbers fractions, or numbers in a list texts."""
    if kind.base_type() is pl.List:
        return bool(kind.inner == pl.String or (_is_changed(kind.inner) and not kind.inner.is_numeric()))
    if kind.base_type() is pl.Struct:
        return any(_is_changed(field.dtype) for field in kind.fields)
    return bool(kind.is_float())


def _keys(values: pl.Series) -> tuple[IntArray, IntArray, BoolArray]:
    """Of each value: keys in it, those with a text behind, and whether every key is surely there."""
    n, kind = len(values), values.dtype
    keys, texts, sure = np.zeros(n, dtype=np.intp), np.zeros(n, dtype=np.intp), np.ones(n, dtype=bool)
    if kind.base_type() is pl.Struct:
        there = values.is_not_null().to_numpy()
        for name in values.struct.fields:
            field = values.struct.field(name)
            inner_keys, inner_texts, inner_sure = _keys(field)
            keys += np.where(there, 1 + inner_keys, 0)
            texts += np.where(there, inner_texts + (field.dtype == pl.String), 0)
            sure &= ~there | (inner_sure & field.is_not_null().to_numpy())
    elif kind.base_type() is pl.List and kind.inner == pl.Null:  # type: ignore[attr-defined]
        sure[:] = values.list.len().fill_null(0).to_numpy() == 0  # lists that were empty as far as polars looked
    elif kind.base_type() is pl.List and kind.inner.base_type() in (pl.List, pl.Struct):  # type: ignore[attr-defined]
        sizes = values.list.len().fill_null(0).to_numpy().astype(np.intp)
        inner = _keys(values.filter(sizes > 0).explode())
        owner = np.repeat(np.arange(n), sizes)
        keys, texts = (np.bincount(owner, part, n).astype(np.intp) for part in inner[:2])
        sure[owner[~inner[2]]] = False
    return keys, texts, sure
