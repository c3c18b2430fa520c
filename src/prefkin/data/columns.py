"""A table's columns under our names, whatever their own are."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray, LabelArray
from prefkin.data.formats import holds_numbers, holds_vectors, label_column, matrix_column, number_column, read_columns
from prefkin.errors import FeaturesWarning, InvalidTable

__all__ = ["CANDIDATE_FIELDS", "COMPARISON_FIELDS", "ITEM_FIELDS", "Table"]

ALIASES = {
    "user": ("user", "worker", "annotator", "user_id", "annotator_id", "worker_id", "users", "judge"),
    "z": ("z", "Z"),
    "weight": ("weight", "weights"),
    "context": ("context", "contexts"),
}
COMPARISON_FIELDS = (
    *("user", "y", "z", "first", "second", "context", "weight", "winner", "loser", "left", "right", "label"),
    *("prompt", "chosen", "rejected", "chosen_embedding", "rejected_embedding"),
    *(ARENA := ("model_a", "model_b", "conversation_a", "conversation_b")),
    *(LOGGED := ("item", "rating", "shown", "taken")),
)
CANDIDATE_FIELDS = ("context", "action", "item", "phi", "weight", "features")  # the last one: (X, A, d) in an .npz file
ITEM_FIELDS = ("item", "phi")
BEFORE_FEATURES = (("first", "second"), ("left", "right"), ("a", "b"), ("option_a", "option_b"))  # of either side
SHOWN = ("text", "prompt", "image")  # to people, never features
MARKS = re.compile(  # of rows: when, in which place, about what
    r"(?i:|(.*[ _.-])?(id|uuid|timestamp|date|datetime)|index|idx|(created|updated|answered|submitted)_at|unnamed.*)"
    r"|.*[a-z]I[dD]"
)
CHOOSE = "features=[...] (--features A,B,C)"
FEATURE_FIELDS = ("z", "first", "second", "phi", "chosen_embedding", "rejected_embedding")


class Table:
    """Columns under our names; features as one column of vectors, as numbered columns, or as columns of given names."""

    def __init__(
        self, source: Any, columns: Mapping[str, str] | None, fields: Sequence[str], features: Sequence[str] | None
    ) -> None:
        self.names, self.taken = {name: name for name in fields}, False
        self.mapped = tuple(fields) != ITEM_FIELDS  # `columns` is about the other table
        given = columns or {}
        if not isinstance(given, Mapping):
            raise InvalidTable(f"columns must be a mapping from our names to the table's; got {columns!r:.60}")
        for ours, theirs in given.items():
            if re.fullmatch(rf"({'|'.join(FEATURE_FIELDS)})\d+", ours):
                raise InvalidTable(f"{ours} is one of the features, which need no mapping: name them, {CHOOSE}")
            if ours not in fields:
                raise InvalidTable(f"unknown field {ours!r} in the column mapping; known: {', '.join(fields)}")
            self.names[ours] = str(theirs)
        self.features_named = _names_of_features(features)
        labelled = {self.names[name] for name in fields if name not in (*FEATURE_FIELDS, "y", "weight", "rating")}
        self.columns = read_columns(source, (labelled | set(ALIASES["user"])) - set(self.features_named))
        for ours, others in ALIASES.items():
            if ours in fields and not self.has(ours) and ours not in given:
                self.names[ours] = next((name for name in others if name in self.columns), ours)
        if "first" in fields and not {"first", "second"} & set(given):
            self.names |= zip(("first", "second"), self._sides(), strict=True)
        for ours in given:
            if self.names[ours] in self.features_named:
                raise InvalidTable(
                    f"column {self.names[ours]!r} is given as {ours} and as a feature; it can be but one"
                )
            if not self.has_features(ours):
                raise InvalidTable(
                    f"column {self.names[ours]!r} (for {ours}) is missing; the table has: {self.shown()}"
                )
        self._refuse_doubtful(fields)

    def _sides(self) -> tuple[str, str]:
        """What stands before features of either side: first_tone and second_tone, left_tone and right_tone, ..."""
        for one, other in BEFORE_FEATURES:
            named = [column.removeprefix(one) for column in self.columns if column.startswith(f"{one}_")]
            if one not in self.columns and any(other + name in self.columns for name in named):
                return one, other
        return BEFORE_FEATURES[0]

    def _refuse_doubtful(self, fields: Sequence[str]) -> None:
        """A column that looks like a misspelt one of ours, or features given in two ways."""
        missing = [
            name
            for name in fields
            if len(name) > 2 and name not in (*ARENA, *LOGGED, "text") and not self.has_features(name)
        ]
        used = {*self.names.values(), *self.features_named, *ALIASES["user"]}
        for column in self.columns:
            if column not in used and (near := difflib.get_close_matches(column, missing, 1, 0.8)):
                mapped = (
                    f", map it with columns={{'{near[0]}': '{column}'}} (on the command line: --map {near[0]}={column})"
                )
                raise InvalidTable(
                    f"column {column!r} looks like {near[0]!r} misspelt; rename it{mapped if self.mapped else ''}, "
                    "or drop it"
                )
        for name in fields:
            if self.has(name) and name in FEATURE_FIELDS and self.in_columns(name):
                both = f"{self.names[name]} and {self.in_columns(name)[0]}"
                raise InvalidTable(f"the features stand there twice, as {both}; drop one")

    def shown(self) -> str:
        """The columns there are, not all of a long list."""
        names = list(self.columns)
        return ", ".join(names[:12]) + (f", ... ({len(names)} in all)" if len(names) > 12 else "") or "nothing"

    def lacks(self, what: str, field: str) -> InvalidTable:
        """The error for something that is not there."""
        remedy = f"name other columns with columns={{'{field}': ...}} (on the command line: --map {field}=...)"
        return InvalidTable(
            f"the table lacks {what}; it has: {self.shown()}; {remedy if self.mapped else 'rename a column'}"
            + (", features with features=[...] (--features A,B,C)" if field in FEATURE_FIELDS else "")
        )

    def has(self, name: str) -> bool:
        """Is there such a column? One that was named as a feature is nothing else."""
        return self.names[name] in self.columns and self.names[name] not in self.features_named

    def in_columns(self, name: str) -> list[str]:
        """The columns that hold one feature each: those named by the caller, or name0, name1, ... without a gap."""
        if self.features_named:
            return self._by_their_names(name)
        pattern = re.compile(re.escape(self.names[name]) + r"(\d+)$")
        found = sorted((int(match[1]), column) for column in self.columns if (match := pattern.match(column)))
        for expected, (number, column) in enumerate(found):
            if number != expected:
                raise InvalidTable(
                    f"column {self.names[name]}{expected} is missing, but there is {column}; "
                    f"features are numbered from 0 without gaps"
                )
        return [column for _, column in found]

    def _by_their_names(self, name: str) -> list[str]:
        """As named for differences, items and candidates; first_tone and second_tone where both sides are given."""
        prefix = "" if name in ("z", "phi") else f"{self.names[name]}_"
        wanted = [prefix + feature for feature in self.features_named]
        present = [column for column in wanted if column in self.columns]
        if present and len(present) < len(wanted):
            lost = next(column for column in wanted if column not in self.columns)
            raise InvalidTable(f"feature {lost!r} is not among the columns; the table has: {self.shown()}")
        return present

    def take_numbers(self, name: str) -> None:
        """Where nothing says what the features are: every column of numbers that has no other use."""
        if self.features_named:
            return
        used = {*self.names.values(), *(other for ours in self.names for other in ALIASES.get(ours, ())), *SHOWN}
        free = [column for column in self.columns if column not in used]
        numbers = [column for column in free if not MARKS.fullmatch(column) and holds_numbers(self.columns[column])]
        prefixes = [f"{self.names[side]}_" for side in ("first", "second")] if name == "z" else []
        names = [column.removeprefix(p) for p in prefixes for column in numbers if column.startswith(p)]
        # numbers on one side are meant to be on the other, too: a slip of the pen there is told by its row
        found = [name for name in dict.fromkeys(names) if all(p + name in self.columns for p in prefixes)]
        self.features_named, self.taken = tuple(found or numbers), True
        if self.features_named:
            taken = {p + name for p in prefixes for name in found} or set(numbers)
            left = [column for column in free if column not in taken]
            warnings.warn(
                f"features are the columns of numbers without another use: {_some(self.features_named)}; "
                + (f"left out: {_some(left)}; " if left else "")
                + f"to choose: {CHOOSE}",
                FeaturesWarning,
                stacklevel=4,
            )

    def has_features(self, name: str) -> bool:
        """Are there features (or item names) under this name?"""
        return self.has(name) or bool(self.in_columns(name))

    def feature_names(self) -> Sequence[str] | None:
        """Names of differences of features in columns of their own."""
        return self.features_named or (None if self.has("z") else self.in_columns("z"))

    def labels(self, name: str) -> LabelArray:
        """A column's values as they are."""
        return label_column(self.columns[self.names[name]])

    def numbers(self, name: str) -> FloatArray:
        """A column of numbers, NaN where missing."""
        return number_column(self.columns[self.names[name]], self.names[name])

    def features(self, name: str) -> Any:
        """The features under this name, one row per row of the table."""
        if self.has(name):
            column = self.columns[self.names[name]]
            if not isinstance(column, np.ndarray) and column.dtype.is_numeric():
                raise InvalidTable(
                    f"column {self.names[name]} (for {name}) holds a number in each row, not a list of all features; "
                    f"name the columns of features: {CHOOSE}"
                )
            return matrix_column(column)
        otherwise = f", or choose other features: {CHOOSE}" if self.taken else ""
        columns = self.in_columns(name)
        return np.column_stack([number_column(self.columns[column], column, otherwise) for column in columns])

    def holds_vectors(self, name: str) -> bool:
        """Does the column hold vectors?"""
        return self.has(name) and holds_vectors(self.columns[self.names[name]])


def _some(names: Sequence[str]) -> str:
    return ",".join(names[:8]) + (",..." if len(names) > 8 else "")


def _names_of_features(features: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(features, str):
        raise InvalidTable(f"features must be a list of column names; got the single text {features!r}")
    names = tuple(str(name) for name in features or ())
    for name in names:
        if names.count(name) > 1:
            raise InvalidTable(f"feature {name!r} is named twice; name each column once")
    return names
