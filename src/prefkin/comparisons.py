"""Who saw which pair and what they chose. Every check of comparison data lives here.

Row i of a data set says: user `users[i]` was shown two actions in one context, whose features differ by
`Z[i] = φ(x, a) − φ(x, a′)`, and answered `y[i]`: 1 when `a` was preferred, 0 when `a′` was.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prefkin.errors import InvalidComparisons, UnknownUser

__all__ = ["Comparisons", "Rows", "UserRows", "distinct_labels", "label_array"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]
LabelArray = NDArray[Any]

DROPPABLE = ("ties", "missing")
LARGEST_FEATURE = 1e100  # squares and sums of squares must not overflow
ROWS_AT_ONCE = 2**16


class Rows(NamedTuple):
    """Comparisons without their owners: what an estimate is computed from."""

    Z: FloatArray  # (n, d)
    y: FloatArray  # (n,)
    weights: FloatArray  # (n,)

    @classmethod
    def join(cls, parts: Sequence[Rows]) -> Rows:
        """Rows of several origins, one after the other."""
        return parts[0] if len(parts) == 1 else cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def signed(self) -> FloatArray:
        """(2y − 1) z: every row as if its first action had been preferred, (n, d)."""
        return (2.0 * self.y - 1.0)[:, None] * self.Z


@dataclass(frozen=True, eq=False)
class UserRows:
    """Comparisons sorted by user, so that one user's rows are one slice."""

    rows: Rows
    starts: IntArray  # (U + 1,) user u owns rows starts[u]:starts[u + 1]
    labels: LabelArray  # (U,)
    contexts: IntArray | None = None  # (n,) which context a row is about, as a number

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.rows.Z.shape[1]

    @cached_property
    def counts(self) -> FloatArray:
        """N_u: comparisons per user, each counted by its weight."""
        owner = np.repeat(np.arange(len(self)), np.diff(self.starts))
        return np.bincount(owner, self.rows.weights, len(self)).astype(np.float64)

    def of(self, user: int) -> Rows:
        """One user's rows, as views."""
        own = slice(self.starts[user], self.starts[user + 1])
        return Rows(*(part[own] for part in self.rows))

    def of_many(self, users: Iterable[int]) -> Rows:
        """Several users' rows, in the order given."""
        return Rows.join([self.of(user) for user in users])

    @cached_property
    def _position(self) -> dict[Hashable, int]:
        return {label: i for i, label in enumerate(self.labels.tolist())}

    def index(self, label: Hashable) -> int:
        """Position of a user's label, or one line that says what is known."""
        try:
            return self._position[label]
        except (KeyError, TypeError):
            known = ", ".join(repr(name) for name in self.labels[:5].tolist())
            more = ", ..." if len(self) > 5 else ""
            raise UnknownUser(
                f"user {label!r} is not among the {len(self)} fitted users ({known}{more}); "
                "fit again with this user's rows, or use fold_in(Z, y)"
            ) from None

    def indices(self, labels: ArrayLike | Sequence[Hashable]) -> IntArray:
        """Positions of many labels."""
        distinct, codes = distinct_labels(label_array(labels, "users"))
        return np.array([self.index(label) for label in distinct.tolist()], dtype=np.intp)[codes]


@dataclass(frozen=True, eq=False, repr=False)
class Comparisons:
    """Checked comparisons; build them with `from_arrays`, `from_sides` or `prefkin.read_comparisons`.

    >>> data = Comparisons.from_arrays([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [1, 0, 1], ["ann", "ann", "bo"])
    >>> data
    Comparisons(3 comparisons by 2 users, 2 features)
    >>> data.users.tolist()
    ['ann', 'ann', 'bo']
    """

    Z: FloatArray  # (n, d)  φ(x, a) − φ(x, a′)
    y: FloatArray  # (n,)    1 when a was preferred, 0 when a′ was
    users: LabelArray  # (n,)    any hashable labels
    weights: FloatArray  # (n,)    how often a row counts; 1 unless given
    contexts: LabelArray | None = None  # (n,)    what was asked about, for grouped splits
    first: FloatArray | None = None  # (n, d)  φ(x, a), when both sides are known
    second: FloatArray | None = None  # (n, d)  φ(x, a′), likewise
    feature_names: tuple[str, ...] | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)  # rows left out on request, by reason

    @classmethod
    def from_arrays(
        cls,
        Z: ArrayLike,
        y: ArrayLike,
        users: ArrayLike | Sequence[Hashable],
        *,
        weights: ArrayLike | None = None,
        contexts: ArrayLike | Sequence[Hashable] | None = None,
        feature_names: Sequence[str] | None = None,
        drop: str | Sequence[str] = (),
    ) -> Comparisons:
        """Check and hold feature differences, answers and who gave them.

        `drop="ties"` or `drop="missing"` (or both) leaves such rows out and counts them in `dropped`;
        otherwise they are refused.

        >>> Comparisons.from_arrays([[1.0], [2.0]], [1, 0.5], ["ann", "bo"], drop="ties").dropped
        {'ties': 1}
        """
        return cls._checked(feature_matrix(Z, "Z"), None, None, y, users, weights, contexts, feature_names, drop)

    @classmethod
    def from_sides(
        cls,
        first: ArrayLike,
        second: ArrayLike,
        y: ArrayLike,
        users: ArrayLike | Sequence[Hashable],
        *,
        weights: ArrayLike | None = None,
        contexts: ArrayLike | Sequence[Hashable] | None = None,
        feature_names: Sequence[str] | None = None,
        drop: str | Sequence[str] = (),
    ) -> Comparisons:
        """As `from_arrays`, from the features of both actions.

        >>> Comparisons.from_sides([[3.0, 1.0]], [[1.0, 1.0]], [1], ["ann"]).Z.tolist()
        [[2.0, 0.0]]
        """
        one, other = feature_matrix(first, "first"), feature_matrix(second, "second")
        if one.shape != other.shape:
            raise InvalidComparisons(
                f"first has shape {one.shape} but second has {other.shape}; "
                "both sides of a pair need one row each and the same features"
            )
        with np.errstate(invalid="ignore"):
            difference = one - other
        difference[np.isinf(one) | np.isinf(other)] = np.inf  # also inf − inf: infinite, not missing
        return cls._checked(difference, one, other, y, users, weights, contexts, feature_names, drop)

    @classmethod
    def _checked(
        cls,
        Z: FloatArray,
        first: FloatArray | None,
        second: FloatArray | None,
        y: ArrayLike,
        users: ArrayLike | Sequence[Hashable],
        weights: ArrayLike | None,
        contexts: ArrayLike | Sequence[Hashable] | None,
        feature_names: Sequence[str] | None,
        drop: str | Sequence[str],
    ) -> Comparisons:
        wanted = {drop} if isinstance(drop, str) else set(drop)
        if unknown := sorted(wanted - set(DROPPABLE)):
            raise InvalidComparisons(f"drop must be among {', '.join(DROPPABLE)}; got {unknown[0]!r}")
        answers, owners = answer_array(y), label_array(users, "users")
        scale = np.ones(len(Z)) if weights is None else number_array(weights, "weights")
        where = None if contexts is None else label_array(contexts, "contexts")
        for name, part in (("y", answers), ("users", owners), ("weights", scale), ("contexts", where)):
            if part is not None and len(part) != len(Z):
                raise InvalidComparisons(
                    f"{name} has {len(part)} rows but the features have {len(Z)}; give one per comparison"
                )
        if len(Z) == 0:
            raise InvalidComparisons("there are no comparisons: the table is empty; give at least one row")
        if feature_names is not None and len(feature_names) != Z.shape[1]:
            raise InvalidComparisons(
                f"{len(feature_names)} feature_names for {Z.shape[1]} features; give one name per feature"
            )

        missing = np.isnan(answers) | missing_labels(owners) | np.isnan(scale) | _any_in_row(Z, np.isnan)
        if where is not None:
            missing |= missing_labels(where)
        ties = answers == 0.5
        keep = np.ones(len(Z), dtype=bool)
        dropped = {}
        for reason, rows in (("ties", ties), ("missing", missing & ~ties)):
            if reason in wanted:
                keep &= ~rows
                dropped[reason] = int(rows.sum())
        _refuse_bad_rows(Z, answers, owners, scale, where, keep)
        if not keep.any():
            raise InvalidComparisons(
                f"no comparison is left after dropping {' and '.join(sorted(wanted))} ({len(Z)} rows read)"
            )
        if not keep.all():
            Z, answers, owners, scale = Z[keep], answers[keep], owners[keep], scale[keep]
            where = None if where is None else where[keep]
            first, second = (None if side is None else side[keep] for side in (first, second))
        if not scale.any():
            raise InvalidComparisons("all weights are 0, so nothing was compared; give some row a weight above 0")
        names = None if feature_names is None else tuple(str(name) for name in feature_names)
        data = cls(Z, answers, owners, scale, where, first, second, names, dropped)
        data._coded  # noqa: B018 - labels that cannot be told apart are refused here, not later
        return data

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"Comparisons({len(self)} comparisons by {len(self.labels)} users, {self.dim} features)"

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.Z.shape[1]

    @cached_property
    def _coded(self) -> tuple[LabelArray, IntArray]:
        return distinct_labels(self.users)

    @property
    def labels(self) -> LabelArray:
        """The distinct users: sorted where they can be, in order of appearance otherwise."""
        return self._coded[0]

    @property
    def who(self) -> IntArray:
        """Position of each row's user in `labels`."""
        return self._coded[1]

    def take(self, rows: ArrayLike) -> Comparisons:
        """Some of the rows, chosen by position or mask.

        >>> Comparisons.from_arrays([[1.0], [2.0]], [1, 0], ["ann", "bo"]).take([1]).users.tolist()
        ['bo']
        """
        pick = np.asarray(rows)
        return Comparisons(
            self.Z[pick],
            self.y[pick],
            self.users[pick],
            self.weights[pick],
            None if self.contexts is None else self.contexts[pick],
            None if self.first is None else self.first[pick],
            None if self.second is None else self.second[pick],
            self.feature_names,
        )

    def by_user(self, *, copy: bool = True) -> UserRows:
        """Sorted by user, each user's rows in their order. Without `copy`, rows already in order are shared."""
        sizes = np.bincount(self.who, minlength=len(self.labels))
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        sorted_already = not copy and bool((self.who[1:] >= self.who[:-1]).all())
        order = slice(None) if sorted_already else np.argsort(self.who, kind="stable")
        rows = Rows(self.Z[order], self.y[order], self.weights[order])
        contexts = None if self.contexts is None else distinct_labels(self.contexts)[1][order]
        return UserRows(rows, starts, self.labels, contexts)


def _any_in_row(Z: FloatArray, test: Callable[[FloatArray], BoolArray]) -> BoolArray:
    """Rows with an entry that passes the test, some rows at a time, so that little memory is needed."""
    found = np.empty(len(Z), dtype=bool)
    for at in range(0, len(Z), ROWS_AT_ONCE):
        found[at : at + ROWS_AT_ONCE] = test(Z[at : at + ROWS_AT_ONCE]).any(axis=1)
    return found


def _too_large(Z: FloatArray) -> BoolArray:
    limit = min(LARGEST_FEATURE, float(np.finfo(Z.dtype).max))
    return np.abs(Z) > Z.dtype.type(limit)


def _refuse_bad_rows(
    Z: FloatArray,
    answers: FloatArray,
    owners: LabelArray,
    weights: FloatArray,
    contexts: LabelArray | None,
    keep: BoolArray,
) -> None:
    """Name the first offending row of the first kind of fault, and the remedy."""
    drop_missing = "drop such rows with drop='missing' (on the command line: --drop missing)"
    faults = (
        (
            answers == 0.5,
            "y must be 0 or 1, but {row} is a tie",
            "the model has no ties: drop them with drop='ties' (on the command line: --drop ties)",
        ),
        (np.isnan(answers), "y is missing in {row}", drop_missing),
        (
            (answers != 0) & (answers != 1),
            "y must be 0 or 1, but {row} is {value:g}",
            "code 1 when the first action was preferred, 0 when the second was",
        ),
        (missing_labels(owners), "the user is missing in {row}", drop_missing),
        (
            np.zeros(len(Z), dtype=bool) if contexts is None else missing_labels(contexts),
            "the context is missing in {row}",
            drop_missing,
        ),
        (np.isnan(weights), "the weight is missing in {row}", drop_missing),
        (
            ~np.isfinite(weights) | (weights < 0),
            "weights must be finite and at least 0, but {row} is not",
            "mend it",
        ),
        (_any_in_row(Z, np.isnan), "a feature is missing (NaN) in {row}", drop_missing),
        (_any_in_row(Z, np.isinf), "a feature is infinite (inf) in {row}", "clip or remove it"),
        (_any_in_row(Z, _too_large), "a feature is beyond 1e100 in {row}", "scale the features down"),
    )
    for bad, message, remedy in faults:
        if (at := np.flatnonzero(bad & keep)).size:
            row = f"row {at[0]} (counted from 0)"
            more = f"; {at.size} such rows" if at.size > 1 else ""
            raise InvalidComparisons(f"{message.format(row=row, value=answers[at[0]])}{more}; {remedy}")


def feature_matrix(values: ArrayLike, name: str) -> FloatArray:
    """A float matrix with one row per comparison, or one line that says which row does not fit."""
    if getattr(getattr(values, "dtype", None), "kind", "") == "c":
        raise InvalidComparisons(f"{name} holds complex data, which no preference can weigh; give real features")
    try:
        light = getattr(values, "dtype", None) == np.float32  # float32 stays: half the memory; sums are float64
        matrix: Any = np.asarray(values, dtype=np.float32 if light else np.float64)
    except (TypeError, ValueError):
        matrix = _ragged_matrix(values, name)
    if matrix.ndim != 2:
        raise InvalidComparisons(
            f"{name} must be a table of shape (comparisons, features), got {matrix.ndim} dimension(s); "
            "reshape a single feature with Z.reshape(-1, 1)"
        )
    if matrix.shape[1] == 0:
        raise InvalidComparisons(f"{name} has no features (0 columns); give at least one")
    return matrix


def _ragged_matrix(values: Any, name: str) -> FloatArray:
    """Rows given one by one: None rows become NaN; a row of another length is named."""
    rows = [None if np.ndim(row) == 0 and is_missing(row) else row for row in values]
    sizes = [None if row is None else np.size(row) for row in rows]
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
                matrix[i] = np.asarray(row, dtype=np.float64)
            except (TypeError, ValueError):
                raise InvalidComparisons(
                    f"{name} holds something other than numbers in row {i} (counted from 0): {row!r:.60}; "
                    "features must be numeric"
                ) from None
    return matrix


def answer_array(values: ArrayLike) -> FloatArray:
    """Answers as floats: NaN where missing, 0.5 for ties; words other than "tie" are refused by row."""
    raw = plain_array(values, "y")
    if raw.ndim != 1:
        raise InvalidComparisons(f"y must be one answer per comparison, got an array of shape {raw.shape}")
    if raw.dtype.kind in "biuf":
        return raw.astype(np.float64)
    return np.array([_answer(value, row) for row, value in enumerate(raw.tolist())], dtype=np.float64)


def _answer(value: Any, row: int) -> float:
    if is_missing(value):
        return np.nan
    words = {"tie": 0.5, "true": 1.0, "false": 0.0}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidComparisons(
            f"y must be 0 or 1, but row {row} (counted from 0) is {value!r}; "
            "code 1 when the first action was preferred, 0 when the second was"
        ) from None


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
            numbers[row] = np.nan if is_missing(value) else float(value)
        except (TypeError, ValueError):
            raise InvalidComparisons(
                f"{name} must be numbers, but row {row} (counted from 0) is {value!r:.40}; mend it"
            ) from None
    return numbers


def plain_array(values: Any, name: str) -> NDArray[Any]:
    """A numpy array of what was given: a Series becomes its values, a list keeps its own objects."""
    if isinstance(values, np.ndarray):
        return values
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
        kept = np.empty(len(labels), dtype=object)
        kept[:] = list(labels)
        return kept
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


def distinct_labels(labels: LabelArray) -> tuple[LabelArray, IntArray]:
    """The distinct labels and, for each row, which one it is.

    Sorted where the labels can be compared, so that the order of rows does not matter; in order of appearance
    where they cannot (a mix of types).
    """
    if labels.dtype.kind != "O":
        distinct, codes = np.unique(labels, return_inverse=True)
        return distinct, codes.astype(np.intp)
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
    distinct = np.empty(len(names), dtype=object)
    distinct[:] = [names[i] for i in order]
    rank = np.empty(len(names), dtype=np.intp)
    rank[order] = np.arange(len(names))
    return distinct, rank[codes]
