"""Tables and files in: Parquet, CSV, JSON lines, NPZ, and pandas, polars or pyarrow frames.

A comparison table has one of these forms (other names through `columns={"user": "worker", ...}`):

| columns                                       | meaning                                                           |
|-----------------------------------------------|-------------------------------------------------------------------|
| user, y, z0, z1, ... or list column z         | feature difference and answer                                     |
| user, y, first0, ..., second0, ... (or lists) | features of both sides and answer                                 |
| user, winner, loser                           | item names, with `items`; or features winner0, ..., loser0, ...   |
| worker, left, right, label                    | item names, with `items`; label names the better one              |
| prompt, chosen, rejected and an annotator     | texts, with `embed`; or chosen_embedding, rejected_embedding      |

Tables that name the winner say nothing about sides. They get sides by their features (the difference's first non-zero
entry is positive), so that no method can profit from "the first one always wins".
"""

from __future__ import annotations

import csv
import difflib
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from prefkin.data.arrays import FloatArray, LabelArray
from prefkin.data.candidates import Candidates
from prefkin.data.checks import distinct_labels, feature_matrix, is_missing, missing_labels
from prefkin.data.comparisons import Comparisons
from prefkin.errors import InvalidTable, PrefkinError

__all__ = ["read_candidates", "read_comparisons"]

USER_NAMES = ("user", "worker", "annotator", "user_id", "annotator_id", "worker_id")
COMPARISON_FIELDS = (
    *("user", "y", "z", "first", "second", "context", "weight", "winner", "loser", "left", "right", "label"),
    *("prompt", "chosen", "rejected", "chosen_embedding", "rejected_embedding"),
)
CANDIDATE_FIELDS = ("context", "action", "phi", "weight")
ITEM_FIELDS = ("item", "phi")
FEATURE_FIELDS = ("z", "first", "second", "phi", "chosen_embedding", "rejected_embedding")
MISSING_WORDS = ("", "na", "n/a", "nan", "null", "none")

Embed = Callable[[list[str]], Any]


def read_comparisons(
    source: Any,
    columns: Mapping[str, str] | None = None,
    *,
    items: Any = None,
    embed: Embed | None = None,
    drop: str | Sequence[str] = (),
) -> Comparisons:
    """Comparisons from a file or frame.

    Parameters
    ----------
    source : path ending in .parquet, .csv, .jsonl or .npz; or a pandas, polars or pyarrow frame
    columns : our name → the table's name; for features also the part before the number (`{"z": "feature_"}`)
    items : for tables that name items: a dict item → features, or a table with columns item and phi0, phi1, ...
    embed : for tables of texts: a function from a list of texts to an array (texts, features)
    drop : "ties", "missing" or both: leave such rows out (counted in `.dropped`) instead of refusing them

    >>> import polars as pl
    >>> votes = pl.DataFrame({"worker": ["ann", "bo"], "left": ["p", "q"], "right": ["q", "r"], "label": ["p", "r"]})
    >>> data = read_comparisons(votes, items={"p": [1.0, 0.0], "q": [0.0, 0.0], "r": [0.0, 1.0]})
    >>> data.y.tolist(), data.Z.tolist()
    ([1.0, 0.0], [[1.0, 0.0], [0.0, -1.0]])
    """
    with _named(source):
        if _suffix(source) == ".npz":
            return _comparisons_from_npz(Path(source), columns, drop)
        table = _Table(source, columns, COMPARISON_FIELDS)
        users = table.labels(_user_column(table))
        context = table.labels("context") if table.has("context") else None
        weights = table.labels("weight") if table.has("weight") else None
        common: dict[str, Any] = {"weights": weights, "contexts": context, "drop": drop}
        if table.has("y"):
            if table.has_features("z"):
                names = table.feature_names("z")
                return Comparisons.from_arrays(
                    table.features("z"), table.labels("y"), users, feature_names=names, **common
                )
            if table.has_features("first") and table.has_features("second"):
                return Comparisons.from_sides(
                    table.features("first"), table.features("second"), table.labels("y"), users, **common
                )
            raise table.lacks("the features: z0, z1, ... or a list column z, or first0, ... and second0, ...", "z")
        if table.has("left") and table.has("right") and table.has("label"):
            first, second = (_items(table, side, items) for side in ("left", "right"))
            return Comparisons.from_sides(first, second, _left_right_answers(table), users, **common)
        if table.has_features("winner") and table.has_features("loser"):
            won, lost = (_items(table, side, items) for side in ("winner", "loser"))
        elif table.has("chosen") and table.has("rejected"):
            won, lost = (_texts(table, side, embed) for side in ("chosen", "rejected"))
            if context is None and table.has("prompt"):
                common["contexts"] = np.array([_text(value) for value in table.labels("prompt")], dtype=object)
        else:
            raise table.lacks(
                "the answer: y, or winner and loser, or left, right and label, or chosen and rejected", "y"
            )
        return Comparisons.from_sides(*_sides_by_features(won, lost), users, **common)


def read_candidates(source: Any, columns: Mapping[str, str] | None = None) -> Candidates:
    """Candidates from a file or frame: columns context, action, and phi0, phi1, ... or a list column phi.

    >>> import polars as pl
    >>> table = pl.DataFrame({"context": ["q", "q"], "action": ["a", "b"], "phi": [[1.0, 0.0], [0.0, 1.0]]})
    >>> read_candidates(table).actions.tolist()
    ['a', 'b']
    """
    with _named(source):
        if _suffix(source) == ".npz":
            arrays = _npz(Path(source))
            if columns:
                raise InvalidTable("columns of an .npz file cannot be mapped; its arrays are features and weights")
            if "features" not in arrays:
                raise InvalidTable(f"array features is missing; the file has: {', '.join(arrays) or 'nothing'}")
            return Candidates(arrays["features"], arrays.get("weights"))
        table = _Table(source, columns, CANDIDATE_FIELDS)
        for name in ("context", "action"):
            if not table.has(name):
                raise table.lacks(f"column {name}", name)
        if not table.has_features("phi"):
            raise table.lacks("the features: phi0, phi1, ... or a list column phi", "phi")
        features, actions = feature_matrix(table.features("phi"), "phi"), table.labels("action")
        for name in ("context", "action"):
            if (gaps := np.flatnonzero(missing_labels(table.labels(name)))).size:
                raise InvalidTable(
                    f"column {table.names[name]} is missing in row {gaps[0]} (counted from 0); fill it in"
                )
        contexts, codes = distinct_labels(table.labels("context"))
        seen: set[Hashable] = set()
        for row, pair in enumerate(zip(codes.tolist(), actions.tolist(), strict=True)):
            if pair in seen:
                raise InvalidTable(
                    f"action {pair[1]!r} stands twice in its context (row {row}, counted from 0); drop one"
                )
            seen.add(pair)
        first_seen = np.unique(codes, return_index=True)[1]
        by_appearance = np.argsort(first_seen, kind="stable")  # contexts stay in the order of the file
        contexts, codes = contexts[by_appearance], np.argsort(by_appearance)[codes]
        order = np.argsort(codes, kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(codes, minlength=len(contexts)))[:-1])
        weights = None
        if table.has("weight"):
            every = table.numbers("weight")
            weights = np.array([every[part[0]] for part in parts])
            if (every != weights[codes]).any():
                row = int(np.flatnonzero(every != weights[codes])[0])
                raise InvalidTable(f"column weight differs within a context (row {row}, counted from 0); give one each")
        return Candidates([features[part] for part in parts], weights, contexts=contexts, actions=actions[order])


# -- sources ---------------------------------------------------------------------------------------------------------


class _named:  # noqa: N801 - used like a function
    """Put the file's name before the message of any error raised inside."""

    def __init__(self, source: Any) -> None:
        self.path = source if isinstance(source, str | Path) else None

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.path is not None and isinstance(error, PrefkinError):
            raise type(error)(f"{self.path}: {error}") from None


def _suffix(source: Any) -> str | None:
    return Path(source).suffix.lower() if isinstance(source, str | Path) else None


def _refuse_no_file(path: Path) -> None:
    if not path.is_file():
        raise InvalidTable("this is a folder; give a file" if path.is_dir() else "no such file")


def _text_columns(path: Path, names: Collection[str]) -> dict[str, Any]:
    """Columns of labels in a CSV file, to be read as text (007 is not 7). A column named twice is refused."""
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        header = next(csv.reader(file), [])
    for column in header:
        if header.count(column) > 1:
            raise InvalidTable(f"column {column!r} stands twice in the header; rename one of them")
    return {column: pl.String for column in header if column in names}


def _frame(source: Any, as_text: Collection[str] = ()) -> Any:
    """A narwhals frame of whatever was given."""
    if not isinstance(source, str | Path):
        try:
            frame = nw.from_native(source, eager_only=True)
            if any(not isinstance(name, str) for name in frame.columns):
                raise InvalidTable(f"column names must be text; got {frame.columns[:5]!r:.80}")
            return frame
        except nw.exceptions.NarwhalsError as error:
            raise InvalidTable(f"the frame cannot be read: {str(error).splitlines()[0]:.120}") from None
        except TypeError:
            raise InvalidTable(
                f"cannot read a {type(source).__name__}; give a file path or a pandas, polars or pyarrow frame"
            ) from None
    path = Path(source)
    _refuse_no_file(path)
    readers: dict[str, Callable[[Path], pl.DataFrame]] = {
        ".parquet": pl.read_parquet,
        ".csv": lambda p: pl.read_csv(p, infer_schema_length=None, schema_overrides=_text_columns(p, as_text)),
        ".jsonl": lambda p: pl.read_ndjson(p, infer_schema_length=None),
    }
    if path.suffix.lower() not in readers:
        raise InvalidTable(
            f"files ending in {path.suffix or 'nothing'} are not read; use .parquet, .csv, .jsonl or .npz"
        )
    if path.stat().st_size == 0:
        raise InvalidTable("the file is empty")
    try:
        return nw.from_native(readers[path.suffix.lower()](path), eager_only=True)
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidTable(f"not a readable {path.suffix} file: {reason:.160}") from None


def _npz(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    _refuse_no_file(path)
    if not zipfile.is_zipfile(path):
        raise InvalidTable("not a readable .npz file")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error):
            raise InvalidTable("it holds Python objects; save labels as text or numbers") from None
        raise InvalidTable("not a readable .npz file") from None


def _comparisons_from_npz(path: Path, columns: Mapping[str, str] | None, drop: str | Sequence[str]) -> Comparisons:
    arrays = _npz(path)
    names = {name: name for name in ("users", "y", "Z", "first", "second", "weights", "contexts")}
    for ours, theirs in (columns or {}).items():
        known = {"user": "users", "z": "Z", "weight": "weights", "context": "contexts"}.get(ours, ours)
        if known not in names:
            raise InvalidTable(f"unknown field {ours!r}; an .npz file has {', '.join(names)}")
        if theirs not in arrays:
            raise InvalidTable(f"array {theirs!r} (for {ours}) is missing; the file has: {', '.join(arrays)}")
        names[known] = theirs
    given = {ours: arrays[theirs] for ours, theirs in names.items() if theirs in arrays}
    for name in ("users", "y"):
        if name not in given:
            raise InvalidTable(f"array {name} is missing; the file has: {', '.join(arrays) or 'nothing'}")
    common: dict[str, Any] = {"weights": given.get("weights"), "contexts": given.get("contexts"), "drop": drop}
    if "Z" in given:
        return Comparisons.from_arrays(given["Z"], given["y"], given["users"], **common)
    if "first" in given and "second" in given:
        return Comparisons.from_sides(given["first"], given["second"], given["y"], given["users"], **common)
    raise InvalidTable(f"arrays Z, or first and second, are missing; the file has: {', '.join(arrays)}")


# -- columns ---------------------------------------------------------------------------------------------------------


class _Table:
    """Columns under our names; features as one list column or as numbered columns."""

    def __init__(self, source: Any, columns: Mapping[str, str] | None, fields: Sequence[str]) -> None:
        self.names = {name: name for name in fields}
        if not isinstance(columns or {}, Mapping):
            raise InvalidTable(f"columns must be a mapping from our names to the table's; got {columns!r:.60}")
        for ours, theirs in (columns or {}).items():
            if ours not in fields:
                raise InvalidTable(f"unknown field {ours!r} in the column mapping; known: {', '.join(fields)}")
            self.names[ours] = str(theirs)
        labelled = {self.names[name] for name in fields if name not in (*FEATURE_FIELDS, "y", "weight")}
        self.frame = _frame(source, labelled | set(USER_NAMES))
        self.present = list(self.frame.columns)
        for ours in columns or {}:
            if not (self.has(ours) or self.numbered(ours)):
                raise InvalidTable(
                    f"column {self.names[ours]!r} (for {ours}) is missing; the table has: {self.shown()}"
                )
        if len(self.frame) == 0:
            raise InvalidTable("there are no rows: the table is empty")
        self._refuse_doubtful(fields)

    def _refuse_doubtful(self, fields: Sequence[str]) -> None:
        """A column that looks like a misspelt one of ours, or features given in two ways."""
        missing = [name for name in fields if len(name) > 2 and not self.has_features(name)]
        used = {*self.names.values(), *USER_NAMES}
        for column in self.present:
            if column not in used and (near := difflib.get_close_matches(column, missing, 1, 0.8)):
                raise InvalidTable(
                    f"column {column!r} looks like {near[0]!r} misspelt; rename it, map it with "
                    f"columns={{'{near[0]}': '{column}'}} (on the command line: --map {near[0]}={column}), or drop it"
                )
        for name in fields:
            if self.has(name) and name in FEATURE_FIELDS and self.numbered(name):
                both = f"{self.names[name]} and {self.names[name]}0"
                raise InvalidTable(f"the features stand there twice, as {both}; drop one")

    def shown(self) -> str:
        """The columns there are, not all of a long list."""
        return ", ".join(self.present[:12]) + (f", ... ({len(self.present)} in all)" if len(self.present) > 12 else "")

    def lacks(self, what: str, field: str) -> InvalidTable:
        """The error for something that is not there."""
        return InvalidTable(
            f"the table lacks {what}; it has: {self.shown()}; name other columns with columns={{'{field}': ...}} "
            f"(on the command line: --map {field}=...)"
        )

    def has(self, name: str) -> bool:
        """Is there such a column?"""
        return self.names[name] in self.present

    def numbered(self, name: str) -> list[str]:
        """Columns name0, name1, ... in order; a gap is refused."""
        pattern = re.compile(re.escape(self.names[name]) + r"(\d+)$")
        found = sorted((int(match[1]), column) for column in self.present if (match := pattern.match(column)))
        for expected, (number, column) in enumerate(found):
            if number != expected:
                raise InvalidTable(
                    f"column {self.names[name]}{expected} is missing, but there is {column}; "
                    f"features are numbered from 0 without gaps"
                )
        return [column for _, column in found]

    def has_features(self, name: str) -> bool:
        """Are there features (or item names) under this name?"""
        return self.has(name) or bool(self.numbered(name))

    def feature_names(self, name: str) -> list[str] | None:
        """Names of numbered feature columns."""
        return None if self.has(name) else self.numbered(name)

    def labels(self, name: str) -> LabelArray:
        """A column's values as they are: integers stay integers even where some are missing."""
        series = self.frame[self.names[name]]
        if series.null_count() == 0:
            return np.asarray(series.to_numpy())
        kept = np.empty(len(series), dtype=object)
        kept[:] = series.to_list()
        return kept

    def numbers(self, name: str) -> FloatArray:
        """A column of numbers, NaN where missing."""
        return self._numeric(self.names[name])

    def _numeric(self, column: str) -> FloatArray:
        series = self.frame[column]
        if series.dtype.is_numeric() or series.dtype == nw.Boolean:
            return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
        values = np.empty(len(series))
        for row, value in enumerate(series.to_list()):
            try:
                gap = is_missing(value) or (isinstance(value, str) and value.strip().lower() in MISSING_WORDS)
                values[row] = np.nan if gap else float(value)
            except (TypeError, ValueError):
                raise InvalidTable(
                    f"column {column} is not a number in row {row} (counted from 0): {value!r:.40}; mend it"
                ) from None
        return values

    def features(self, name: str) -> Any:
        """The features under this name: numbered columns, or one list column."""
        if self.has(name):
            return _matrix(self.frame[self.names[name]])
        columns = self.numbered(name)
        return np.column_stack([self._numeric(column) for column in columns])

    def is_list(self, name: str) -> bool:
        """Does the column hold vectors?"""
        if not self.has(name):
            return False
        values = self.frame[self.names[name]].head(50).to_list()
        first = next((value for value in values if value is not None), None)
        return isinstance(first, list | tuple | np.ndarray) and not (len(first) and isinstance(first[0], dict))


def _matrix(series: Any) -> Any:
    """A list column as a matrix; rows of unequal length are left for the data model to name."""
    native = nw.to_native(series)
    if isinstance(native, pl.Series) and native.dtype.base_type() in (pl.List, pl.Array) and not native.has_nulls():
        lists = native.cast(pl.List(pl.Float64)) if native.dtype.base_type() is pl.Array else native
        sizes = lists.list.len()
        if sizes.min() == sizes.max() and lists.dtype.inner.is_numeric():  # type: ignore[attr-defined]
            return lists.explode().cast(pl.Float64).to_numpy().reshape(len(lists), -1)
    return series.to_list()


def _user_column(table: _Table) -> str:
    if table.has("user"):
        return "user"
    for name in USER_NAMES:
        if name in table.present:
            table.names["user"] = name
            return "user"
    raise table.lacks("column user (or worker, annotator)", "user")


# -- tables that name items or hold texts ----------------------------------------------------------------------------


def _items(table: _Table, side: str, items: Any) -> Any:
    """Features of the items a column names, or the features that stand there."""
    if not table.has(side) or table.is_list(side):
        return table.features(side)
    if items is None:
        raise InvalidTable(
            f"column {table.names[side]} names items, whose features are not known; give items={{name: features}} "
            "or a table with columns item and phi0, phi1, ... (on the command line: --items FILE)"
        )
    known = _item_features(items)
    vectors = []
    for row, name in enumerate(table.labels(side).tolist()):
        if not is_missing(name) and name not in known:
            raise InvalidTable(
                f"item {name!r} of column {table.names[side]}, row {row} (counted from 0) has no features; "
                f"{len(known)} items are known"
            )
        vectors.append(None if is_missing(name) else known[name])
    return vectors


def _item_features(items: Any) -> dict[Hashable, Any]:
    if isinstance(items, Mapping):
        return dict(items)
    with _named(items):
        table = _Table(items, None, ITEM_FIELDS)
        if not table.has("item"):
            raise table.lacks("column item", "item")
        if not table.has_features("phi"):
            raise table.lacks("the features: phi0, phi1, ... or a list column phi", "phi")
        names, features = table.labels("item").tolist(), feature_matrix(table.features("phi"), "phi")
        for row, name in enumerate(names):
            if name in names[:row]:
                raise InvalidTable(f"item {name!r} stands twice (row {row}, counted from 0); drop one")
        return dict(zip(names, features, strict=True))


def _left_right_answers(table: _Table) -> LabelArray:
    """1 where the label names the left item, 0 for the right one, 0.5 for a tie."""
    answers = np.full(len(table.frame), np.nan)
    sides = (table.labels(name).tolist() for name in ("left", "right", "label"))
    for row, (left, right, label) in enumerate(zip(*sides, strict=True)):
        if is_missing(label):
            continue
        word = label.strip().lower() if isinstance(label, str) else None
        if label == left or word == "left":
            answers[row] = 1.0
        elif label == right or word == "right":
            answers[row] = 0.0
        elif word == "tie":
            answers[row] = 0.5
        else:
            raise InvalidTable(
                f"label {label!r} in row {row} (counted from 0) is neither the left item {left!r} nor the right one "
                f"{right!r}; it must name one of them, or be 'tie'"
            )
    return answers


def _texts(table: _Table, side: str, embed: Embed | None) -> Any:
    """Features of chosen or rejected texts: a column of embeddings, or the embedding function."""
    if table.has_features(f"{side}_embedding"):
        return table.features(f"{side}_embedding")
    if table.is_list(side):
        return table.features(side)
    if embed is None:
        raise InvalidTable(
            f"column {table.names[side]} holds texts; give their embeddings as columns chosen_embedding and "
            "rejected_embedding, or a function embed=..."
        )
    answers = [_text(value) for value in table.labels(side)]
    prompts = [_text(value) for value in table.labels("prompt")] if table.has("prompt") else [""] * len(answers)
    whole = [None if a is None else f"{p}\n\n{a}" if p else a for p, a in zip(prompts, answers, strict=True)]
    distinct = sorted({text for text in whole if text is not None})
    try:
        vectors = np.asarray(embed(distinct), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTable(f"embed failed on {len(distinct)} texts: {str(error).splitlines()[0]:.100}") from None
    if vectors.ndim != 2 or len(vectors) != len(distinct):
        raise InvalidTable(
            f"embed returned shape {vectors.shape} for {len(distinct)} texts; one row per text is needed"
        )
    place = {text: i for i, text in enumerate(distinct)}
    return [None if text is None else vectors[place[text]] for text in whole]


def _text(value: Any) -> str | None:
    """A text, or the contents of a chat's messages one after the other."""
    if is_missing(value):
        return None
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple | np.ndarray):
        raise InvalidTable(f"a text is needed, or a list of messages; got {value!r:.40}")
    return "\n".join(str(message["content"]) if isinstance(message, dict) else str(message) for message in value)


def _sides_by_features(won: Any, lost: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """First side, second side, answer: whichever side the features put first, not the winner."""
    winner, loser = feature_matrix(won, "winner"), feature_matrix(lost, "loser")
    if winner.shape != loser.shape:
        raise InvalidTable(f"winners have {winner.shape[1]} features, losers {loser.shape[1]}; they need the same")
    with np.errstate(invalid="ignore"):
        difference = winner - loser
    leading = (difference != 0).argmax(axis=1)
    won_first = difference[np.arange(len(difference)), leading] >= 0
    swap = ~won_first[:, None]
    return np.where(swap, loser, winner), np.where(swap, winner, loser), won_first.astype(np.float64)
