"""Arrays, answers and labels, checked where they enter: an error names the row and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Number
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prefkin.data.arrays import BoolArray, FloatArray, IntArray, LabelArray
from prefkin.errors import InvalidComparisons, PrefkinError

__all__ = [
    "LARGEST_FEATURE",
    "SMALLEST_FEATURE",
    "any_in_row",
    "as_number",
    "distinct_labels",
    "feature_matrix",
    "in_file",
    "is_missing",
    "is_number",
    "label_array",
    "largest_entry",
    "missing_labels",
    "number_array",
    "plain_array",
    "refuse_bad_rows",
    "refuse_gaps",
    "refuse_vanishing",
]

LARGEST_FEATURE = 1e75  # fourth powers and sums of them must not overflow
SMALLEST_FEATURE = 1e-75  # nor vanish: the largest feature is beyond this
LARGEST_WEIGHT = 1e9  # how often a row counts: beside it, a row that counts once must not vanish
ROWS_AT_ONCE = 2**16  # tested, so that no array as large as the features is made on the way


class NotNumbers(InvalidComparisons, TypeError):
    """Features of another kind: scikit-learn expects a TypeError, and some words of its message."""


@contextmanager
def in_file(source: Any) -> Iterator[None]:
    """Put the file's name before the message of any error raised inside."""
    try:
        yield
    except PrefkinError as error:
        if not isinstance(source, str | Path):
            raise
        raise type(error)(f"{source}: {error}") from None


def any_in_row(Z: FloatArray, test: Callable[[FloatArray], BoolArray]) -> BoolArray:
    """Rows with an entry that passes the test, some rows at a time, so that little memory is needed."""
    found = np.empty(len(Z), dtype=bool)
    for at in range(0, len(Z), ROWS_AT_ONCE):
        found[at : at + ROWS_AT_ONCE] = test(Z[at : at + ROWS_AT_ONCE]).any(axis=1)
    return found


def largest_entry(Z: FloatArray) -> float:
    """max |Z|, in one look; NaN where one entry is."""
    return max(float(Z.max()), -float(Z.min())) if Z.size else 0.0


def _too_large(Z: FloatArray) -> BoolArray:
    limit = min(LARGEST_FEATURE, float(np.finfo(Z.dtype).max))
    return np.abs(Z) > Z.dtype.type(limit)


def refuse_bad_rows(
    Z: FloatArray,
    answers: FloatArray,
    weights: FloatArray,
    gaps: Mapping[str, BoolArray],
    keep: BoolArray,
    largest: float,
    names: Sequence[str] | None = None,
) -> None:
    """Name the first offending row of the first kind of fault, and the remedy; `gaps`: what is missing where."""
    drop_missing = (
        "leave such rows out, for example by Comparisons.from_arrays(..., drop='missing') "
        "(on the command line: --drop missing)"
    )
    faults: tuple[tuple[BoolArray, str, str], ...] = (
        (
            answers == 0.5,
            "y must be 0 or 1, but {row} is a tie",
            "the model has no ties: leave them out, for example by Comparisons.from_arrays(..., drop='ties') "
            "(on the command line: --drop ties), or hear each as half an answer for each side by ties='half' "
            "(--ties half)",
        ),
        (gaps["y"], "y is missing in {row}", drop_missing),
        (
            (answers != 0) & (answers != 1),
            "y must be 0 or 1, but {row} is {value:g}",
            "code 1 when the first action was preferred, 0 when the second was",
        ),
        *((rows, f"{what} is missing in {{row}}", drop_missing) for what, rows in gaps.items() if what != "y"),
        (
            ~np.isfinite(weights) | (weights < 0),
            "weights must be finite and at least 0, but {row} is not",
            "mend it",
        ),
        (weights > LARGEST_WEIGHT, "a weight is beyond 1e9 in {row}", "divide all weights by the same number"),
    )
    if not largest <= LARGEST_FEATURE:
        for test, what, remedy in (
            (np.isnan, "missing (NaN)", drop_missing),
            (np.isinf, "infinite (inf)", "clip or remove it"),
            (_too_large, "beyond 1e75", "scale the features down"),
        ):
            bad = any_in_row(Z, test) & keep
            which = int(np.argmax(test(Z[np.argmax(bad)])))
            feature = "a feature" if names is None else f"feature {{names[{which}]}}"
            faults += ((bad, f"{feature} is {what} in {{row}}", remedy),)
    for bad, message, remedy in faults:
        if (at := np.flatnonzero(bad & keep)).size:
            row = f"row {at[0]} (counted from 0)"
            more = f"; {at.size} such rows" if at.size > 1 else ""
            raise InvalidComparisons(f"{message.format(row=row, value=answers[at[0]], names=names)}{more}; {remedy}")


def refuse_gaps(Z: FloatArray) -> None:
    """Rows to predict for must be known in full."""
    if (gaps := any_in_row(Z, lambda rows: ~np.isfinite(rows))).any():
        raise InvalidComparisons(
            f"a feature of row {int(np.argmax(gaps))} (counted from 0) is missing (NaN) or infinite; "
            "leave such rows out"
        )


def refuse_vanishing(largest: float) -> None:
    """Features in units so large that their squares are 0; features that are 0 everywhere are another matter."""
    if 0.0 < largest < SMALLEST_FEATURE:
        raise InvalidComparisons(
            f"no feature differs by more than {largest:.0e}, where squares vanish; scale the features up"
        )


def feature_matrix(values: ArrayLike, name: str) -> FloatArray:
    """A float matrix with one row per comparison, or one line that says which row does not fit."""
    if isinstance(values, str | PathLike):
        raise InvalidComparisons(
            f"{name} is {str(values)!r:.60}, not features; read a file first: read_comparisons(path)"
        )
    light = getattr(values, "dtype", None) == np.float32  # float32 stays: half the memory; sums are float64
    try:
        matrix: Any = np.asarray(values)
    except ValueError:
        matrix = _ragged_matrix(values, name)
    if matrix.dtype.kind == "c":
        raise InvalidComparisons(
            f"Complex data not supported: no preference weighs complex numbers in {name}; give real ones"
        )
    if matrix.dtype.kind in "mM":
        raise InvalidComparisons(f"{name} holds dates or times, which are no features; give numbers, for example days")
    if matrix.dtype.kind in "biuf":
        matrix = matrix.astype(np.float32 if light else np.float64, copy=False)
    elif matrix.ndim > 0:
        matrix = _ragged_matrix(matrix, name)
    if matrix.ndim != 2:
        raise InvalidComparisons(
            f"{name} must be a table of shape (comparisons, features), got {matrix.ndim} dimension(s). "
            "Reshape your data: a single feature by Z.reshape(-1, 1)"
        )
    if matrix.shape[1] == 0:
        raise InvalidComparisons(
            f"{name} has no features: 0 feature(s) (shape={matrix.shape}) while a minimum of 1 is required."
        )
    return matrix


def _ragged_matrix(values: Any, name: str) -> FloatArray:
    """Rows given one by one: None rows become NaN; a row of another length is named."""
    rows = [None if _is_scalar(row) and is_missing(row) else row for row in values]
    sizes = [None if row is None else 1 if _is_scalar(row) else len(row) for row in rows]
    dim = next((size for size in sizes if size is not None), 0)
    for i, size in enumerate(sizes):
        if size is not None and size != dim:
            raise InvalidComparisons(
                f"{name} mixes dimensions: row {i} (counted from 0) has {size} features, earlier rows have {dim}; "
                "every action needs the same features"
            )
    matrix = np.full((len(rows), dim), np.nan)
    for i, row in enumerate(rows):
        if row is not None:
            try:
                matrix[i] = _numbers(row)
            except (TypeError, ValueError):
                shown = " ".join(repr(row).split())
                raise NotNumbers(
                    f"{name} holds something other than numbers in row {i} (counted from 0): {shown:.60}; features "
                    "must be numeric: an argument must be a number, or a string that reads as a number"
                ) from None
    return matrix


def _is_scalar(row: Any) -> bool:
    return (
        not hasattr(row, "__len__")
        or isinstance(row, str | bytes | dict)
        or (isinstance(row, np.ndarray) and not row.ndim)
    )


def _numbers(row: Any) -> FloatArray:
    """One row as numbers, NaN where one is missing."""
    given = np.asarray(row)
    if given.dtype.kind in "biuf":
        return given.astype(np.float64).ravel()
    if given.dtype.kind in "mM":
        raise TypeError("a date is not a number")
    entries = given.ravel().tolist()
    return np.array([np.nan if is_missing(value) else as_number(value) for value in entries], dtype=np.float64)


NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE)


def is_number(text: str | bytes) -> bool:
    """Does a text read as a number? Python takes 1_5 for 15, and digits of any script."""
    return bool(NUMBER.fullmatch((text.decode("latin-1") if isinstance(text, bytes) else text).strip()))


def as_number(value: Any) -> float:
    """`float(value)`, but a text is a number only where it reads as one.

    >>> as_number(" -2.5e3")
    -2500.0
    """
    if isinstance(value, str | bytes) and not is_number(value):
        raise ValueError(f"{value!r:.40} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("an integer beyond all floating-point numbers") from None


def number_array(values: ArrayLike, name: str) -> FloatArray:
    """A vector of floats, NaN where missing."""
    given = plain_array(values, name)
    if given.ndim != 1:
        raise InvalidComparisons(f"{name} must be one number per comparison, got shape {given.shape}")
    if given.dtype.kind in "biuf":
        return given.astype(np.float64)
    numbers = np.empty(len(given))
    for row, value in enumerate(given.tolist()):
        try:
            numbers[row] = np.nan if is_missing(value) else as_number(value)
        except (TypeError, ValueError):
            raise InvalidComparisons(
                f"{name} must be numbers, but row {row} (counted from 0) is {value!r:.40}; mend it"
            ) from None
    return numbers


def plain_array(values: Any, name: str) -> NDArray[Any]:
    """A numpy array of what was given: a Series becomes its values, a list keeps its own objects."""
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "__array__") and not (hasattr(values, "to_pylist") or hasattr(values, "to_numpy")):
        return np.asarray(values)
    if hasattr(values, "to_pylist") and not _has_missing(values):
        return np.asarray(values.to_numpy(zero_copy_only=False))  # pyarrow copies texts only when it is told to
    if hasattr(values, "to_numpy") and not _has_missing(values):
        return np.asarray(values.to_numpy())
    try:
        items = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    except TypeError:
        raise InvalidComparisons(f"{name} must be a sequence, one entry per comparison; got {values!r:.40}") from None
    kept = np.empty(len(items), dtype=object)
    kept[:] = items
    return kept


def _has_missing(series: Any) -> bool:
    """Does a pandas, polars or pyarrow column have gaps? Its integers would become floats on the way to numpy."""
    if hasattr(series, "isna"):
        return bool(series.isna().any())
    gaps = getattr(series, "null_count", 0)
    return bool(gaps() if callable(gaps) else gaps)


def label_array(values: ArrayLike | Sequence[Hashable], name: str) -> LabelArray:
    """One label per row, each as it was given (tuples stay tuples, 1 and "1" stay apart)."""
    if isinstance(values, str):
        raise InvalidComparisons(f"{name} must be one label per comparison, got the single text {values!r}")
    labels = plain_array(values, name)
    if labels.ndim != 1:
        raise InvalidComparisons(f"{name} must be one label per comparison, got an array of shape {labels.shape}")
    if labels.dtype.kind in "mM":  # numpy turns these into integers when asked for a list; as objects they stay
        return plain_array(list(labels), name)
    return labels


def is_missing(value: Any) -> bool:
    """None, NaN, NaT or pandas' NA: all that is not equal to itself, or refuses to say."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas.NA has no truth value; arrays are no labels
        return type(value).__name__ == "NAType"


def missing_labels(labels: LabelArray) -> BoolArray:
    """Where a label is missing."""
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind != "O":
        return np.zeros(len(labels), dtype=bool)
    return np.fromiter((is_missing(label) for label in labels), dtype=bool, count=len(labels))


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _refuse_truth_values_among_numbers(labels: LabelArray) -> None:
    """True is 1 to Python: as labels beside each other they would be one person."""
    truths = np.fromiter((isinstance(label, bool | np.bool_) for label in labels), dtype=bool, count=len(labels))
    if truths.any() and any(isinstance(label, Number) for label in labels[~truths]):
        raise InvalidComparisons(
            f"labels mix numbers and {labels[truths][0]!r}, which Python cannot tell from {int(labels[truths][0])}; "
            "use text for one of them"
        )


def distinct_labels(labels: LabelArray) -> tuple[LabelArray, IntArray]:
    """The distinct labels and, for each row, which one it is.

    Sorted where the labels can be compared, so that the order of rows does not matter; in order of appearance
    where they cannot (a mix of types).
    """
    if labels.dtype.kind != "O":
        if len(labels) and (labels[1:] >= labels[:-1]).all():  # sorted already: no need to sort
            new = np.concatenate([[True], labels[1:] != labels[:-1]])
            return labels[new], np.cumsum(new) - 1
        distinct, codes = np.unique(labels, return_inverse=True)
        return distinct, codes.astype(np.intp)
    _refuse_truth_values_among_numbers(labels)
    seen: dict[Hashable, int] = {}
    try:
        codes = np.fromiter((seen.setdefault(label, len(seen)) for label in labels), dtype=np.intp, count=len(labels))
    except TypeError:
        bad = next(i for i, label in enumerate(labels) if not _hashable(label))
        raise InvalidComparisons(
            f"the label in row {bad} (counted from 0) is a {type(labels[bad]).__name__}, which cannot be a label; "
            "use text, numbers or tuples of them"
        ) from None
    names: list[Hashable] = list(seen)
    try:
        order = sorted(range(len(names)), key=names.__getitem__)  # type: ignore[arg-type]
    except TypeError:
        order = list(range(len(names)))
    rank = np.empty(len(names), dtype=np.intp)
    rank[order] = np.arange(len(names))
    return plain_array([names[i] for i in order], "labels"), rank[codes]
