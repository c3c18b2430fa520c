"""Comparisons and candidates out of tables: files of any of the `formats`, and pandas, polars or pyarrow frames.

A comparison table has one of these forms (other names through `columns={"user": "worker", ...}`):

| columns                                       | meaning                                                           |
|-----------------------------------------------|-------------------------------------------------------------------|
| user, y, z0, z1, ... or list column z         | feature difference and answer                                     |
| user, y, first0, ..., second0, ... (or lists) | features of both sides and answer                                 |
| user, winner, loser                           | item names, with `items`; or features winner0, ..., loser0, ...   |
| worker, left, right, label                    | item names, with `items`, or texts, with `embed`; the better one  |
| judge, model_a, model_b, winner               | the same for votes of an arena: winner is model_a, model_b or tie |
| user, item, rating                            | pairs of clearly different ratings; features from `items`, or     |
|                                               | factors learnt from the ratings: `Comparisons.from_ratings`       |
| user, shown, taken                            | one of several items was taken, with `items`; shown is a list     |
| prompt, chosen, rejected and an annotator     | texts, with `embed`; or chosen_embedding, rejected_embedding      |

Tables that name the winner say nothing about sides. They get sides by their features (the difference's first non-zero
entry is positive), so that no method can profit from "the first one always wins".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from prefkin.data.answers import answer_array
from prefkin.data.arrays import FloatArray, LabelArray
from prefkin.data.candidates import Candidates
from prefkin.data.checks import distinct_labels, feature_matrix, in_file, is_missing, missing_labels
from prefkin.data.columns import CANDIDATE_FIELDS, COMPARISON_FIELDS, ITEM_FIELDS, Table
from prefkin.data.comparisons import Comparisons
from prefkin.data.described import places_of_features
from prefkin.errors import InvalidTable

__all__ = [
    "Texts",
    "Unanswered",
    "item_table",
    "plain_text",
    "read_candidates",
    "read_comparisons",
    "read_pairs",
    "read_texts",
]

TIES = ("tie", "tie (bothbad)", "tie(bothbad)", "bothbad", "both_bad")
COMPARED = (("left", "right", "label"), ("model_a", "model_b", "winner"))  # two items or texts, and the better one
EVERY_ITEM = "all"  # the one context of a table of items

Embed = Callable[[list[str]], Any]


def read_comparisons(
    source: Any,
    columns: Mapping[str, str] | None = None,
    *,
    features: Sequence[str] | None = None,
    items: Any = None,
    embed: Embed | None = None,
    drop: str | Sequence[str] = (),
    ties: str | None = None,
    positive: Any = None,
) -> Comparisons:
    """Comparisons from a file, a folder or a frame.

    Parameters
    ----------
    source : path ending in .parquet, .csv, .jsonl, .json or .npz (.csv, .jsonl and .json also compressed, .gz or
        .zst); a folder of Parquet files or one that `save_to_disk` wrote; a pandas, polars or pyarrow frame, or a
        Dataset of Hugging Face
    columns : our name → the table's name; for features also the part before the number (`{"z": "feature_"}`)
    features : names of the columns that hold a feature each, where they are not numbered; kept as `feature_names`.
        Where both sides are given, the columns are first_tone and second_tone for a feature tone (or left_tone and
        right_tone, a_tone and b_tone, option_a_tone and option_b_tone). Where a table with
        answers y has no other features either, every column of numbers without another use is one (`FeaturesWarning`)
    items : for tables that name items: a dict item → features, or a table with columns item and phi0, phi1, ...
    embed : for tables of texts: a function from a list of texts to an array (texts, features)
    drop : "ties", "missing" or both: leave such rows out (counted in `.dropped`) instead of refusing them
    ties : "half": a tie is half an answer for each side
    positive : the answer that means that the first was preferred, where answers are words of the table's own

    >>> import polars as pl
    >>> votes = pl.DataFrame({"worker": ["ann", "bo"], "left": ["p", "q"], "right": ["q", "r"], "label": ["p", "r"]})
    >>> data = read_comparisons(votes, items={"p": [1.0, 0.0], "q": [0.0, 0.0], "r": [0.0, 1.0]})
    >>> data.y.tolist(), data.Z.tolist()
    ([1.0, 0.0], [[1.0, 0.0], [0.0, -1.0]])
    """
    with in_file(source):
        table = Table(source, columns, COMPARISON_FIELDS, features)
        users = _users(table)
        contexts, weights = (table.labels(name) if table.has(name) else None for name in ("context", "weight"))
        common = {"weights": weights, "contexts": contexts, "drop": drop, "ties": ties, "feature_names": features}
        for fits, read in SHAPES:
            if fits(table):
                return read(_Reading(table, users, features, items, embed, positive, common))
        raise table.lacks(
            "the answer: y, or winner and loser, or left, right and label, or model_a, model_b and winner, or "
            "chosen and rejected, or item and rating, or shown and taken",
            "y",
        )


def _users(table: Table) -> LabelArray:
    if not table.has("user"):
        raise table.lacks("column user (or worker, annotator)", "user")
    return table.labels("user")


class Unanswered(NamedTuple):
    """Pairs that somebody could be asked about."""

    Z: FloatArray  # (n, d)  φ(x, a) − φ(x, a′)
    users: LabelArray  # (n,)  whose answer is wanted
    feature_names: tuple[str, ...] | None
    columns: Mapping[str, Any]  # the whole table, as it was read

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.Z.shape[1]

    def described_by(self, names: Sequence[str] | None) -> Unanswered:
        """With the features of these names in this order, as `Comparisons.described_by`."""
        places = places_of_features(self.feature_names, names, "the pairs", InvalidTable)
        if places is None or names is None:
            return self
        return self._replace(Z=np.ascontiguousarray(self.Z[:, places]), feature_names=tuple(names))


SIDES = (("first", "second"), ("left", "right"), ("winner", "loser"), ("chosen", "rejected"))


def read_pairs(
    source: Any,
    columns: Mapping[str, str] | None = None,
    *,
    features: Sequence[str] | None = None,
    items: Any = None,
) -> Unanswered:
    """Pairs to predict for: any table that `read_comparisons` reads, whose answers are not needed and not looked at.

    Of a table that says who won, the winner is the first side.

    >>> import polars as pl
    >>> pairs = read_pairs(pl.DataFrame({"user": ["ann", "bo"], "z0": [0.5, -1.0]}))
    >>> pairs.Z.tolist(), pairs.users.tolist()
    ([[0.5], [-1.0]], ['ann', 'bo'])
    """
    with in_file(source):
        table = Table(source, columns, COMPARISON_FIELDS, features)
        users = _users(table)
        nobody_answered = np.zeros(len(users))  # checks are the same as of comparisons
        unnamed = missing_labels(users)
        if unnamed.any():
            raise InvalidTable(f"the user is missing in row {int(np.argmax(unnamed))} (counted from 0); fill it in")
        sides = next((pair for pair in SIDES if all(map(table.has_features, pair))), None)
        if sides is None and not table.has_features("z"):
            table.take_numbers("z")
            sides = next((pair for pair in SIDES if all(map(table.has_features, pair))), None)
        if table.has_features("z"):
            named = table.feature_names()
            data = Comparisons.from_arrays(
                _given(table.features("z"), "z", named), nobody_answered, users, feature_names=named
            )
        else:
            if sides is None:
                raise table.lacks("the features: z0, z1, ... or a list column z, or first0, ... and second0, ...", "z")
            if sides == ("chosen", "rejected"):
                (one, other), named = (_texts(table, side, None) for side in sides), features
            else:
                (one, named), (other, _) = (_items(table, side, items, features) for side in sides)
            data = Comparisons.from_sides(
                _given(one, sides[0], named),
                _given(other, sides[1], named),
                nobody_answered,
                users,
                feature_names=named,
            )
        return Unanswered(data.Z, data.users, data.feature_names, table.columns)


def _given(values: Any, name: str, names: Sequence[str] | None) -> FloatArray:
    """Features of pairs, none of which is missing: nothing is left out of what is to be predicted."""
    features = feature_matrix(values, name)
    missing = np.argwhere(np.isnan(features))
    if len(missing):
        row, which = missing[0].tolist()
        raise InvalidTable(
            f"{'a feature' if names is None else f'feature {names[which]}'} is missing (NaN) in row {row} (counted "
            "from 0); fill it in, or leave such rows out of the file"
        )
    return features


@dataclass(frozen=True)
class Texts:
    """A table with texts: its columns, the texts of each side under the name of what they become, answers if needed."""

    columns: Mapping[str, Any]
    sides: dict[str, list[str]]
    y: FloatArray | None


def read_texts(source: Any, columns: Mapping[str, str] | None = None) -> Texts:
    """The texts of a table that are to become features: of both sides with their prompts, or of items (`text`).

    >>> import polars as pl
    >>> found = read_texts(pl.DataFrame({"prompt": ["Tea?"], "chosen": ["Yes."], "rejected": ["No."], "user": ["ann"]}))
    >>> found.sides
    {'chosen_embedding': ['Tea?\\n\\nYes.'], 'rejected_embedding': ['Tea?\\n\\nNo.']}
    """
    with in_file(source):
        table = Table(source, columns, (*COMPARISON_FIELDS, "text"), None)
        y = None
        if table.has("chosen") and table.has("rejected"):
            found = {"chosen_embedding": "chosen", "rejected_embedding": "rejected"}
        elif table.has("left") and table.has("right"):
            found = {"first": "left", "second": "right"}
            if table.has("label") and not table.has("y"):
                y = _left_right_answers(table, COMPARED[0])
        elif table.has("conversation_a") and table.has("conversation_b"):
            found = {"first": "conversation_a", "second": "conversation_b"}
            if all(map(table.has, COMPARED[1])):
                y = _left_right_answers(table, COMPARED[1])
        elif table.has("text"):
            found = {"phi": "text"}
        else:
            raise table.lacks("texts: chosen and rejected, or left and right, or text", "chosen")
        sides = {}
        for name, side in found.items():
            texts = _whole_texts(table, side)
            if None in texts:
                raise InvalidTable(
                    f"column {table.names[side]} is missing in row {texts.index(None)} (counted from 0); fill it in, "
                    "or leave such rows out"
                )
            sides[name] = [text for text in texts if text is not None]
        return Texts(table.columns, sides, y)


def read_candidates(
    source: Any, columns: Mapping[str, str] | None = None, *, features: Sequence[str] | None = None
) -> Candidates:
    """Candidates from a file or frame: columns context, action, and phi0, phi1, ..., a list column phi, or `features`.

    A table of items (column item instead of both) is one context with all of them.

    >>> import polars as pl
    >>> table = pl.DataFrame({"context": ["q", "q"], "action": ["a", "b"], "phi": [[1.0, 0.0], [0.0, 1.0]]})
    >>> read_candidates(table).actions.tolist()
    ['a', 'b']
    >>> read_candidates(pl.DataFrame({"item": ["p", "q", "r"], "phi0": [1.0, 0.0, 2.0]})).sizes.tolist()
    [3]
    """
    with in_file(source):
        table = Table(source, columns, CANDIDATE_FIELDS, features)
        if table.has("features") and table.holds_vectors("features"):
            return Candidates(table.features("features"), table.labels("weight") if table.has("weight") else None)
        only_items = table.has("item") and not (table.has("context") or table.has("action"))
        used = ("item",) if only_items else ("context", "action")
        if only_items:  # there is one context, which needs no weight: a column of that name is about the items
            del table.names["weight"]
        for name in used:
            if not table.has(name):
                raise table.lacks(f"column {name}", name)
        phi, actions = _features_of_items(table), table.labels(used[-1])
        for name in used:
            if (gaps := np.flatnonzero(missing_labels(table.labels(name)))).size:
                raise InvalidTable(
                    f"column {table.names[name]} is missing in row {gaps[0]} (counted from 0); fill it in"
                )
        contexts, codes = distinct_labels(np.full(len(phi), EVERY_ITEM) if only_items else table.labels("context"))
        seen: set[Hashable] = set()
        for row, pair in enumerate(zip(codes.tolist(), actions.tolist(), strict=True)):
            if not isinstance(pair[1], Hashable):
                raise InvalidTable(
                    f"column {table.names[used[-1]]} is no name in row {row} (counted from 0): {pair[1]!r:.40}"
                )
            if pair in seen:
                raise InvalidTable(
                    f"action {pair[1]!r} stands twice in its context (row {row}, counted from 0); drop one"
                )
            seen.add(pair)
        first_seen = np.unique(codes, return_index=True)[1]
        by_appearance = np.argsort(first_seen, kind="stable")  # contexts stay in the order of the file
        contexts, codes = contexts[by_appearance], np.argsort(by_appearance)[codes]
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(contexts)))
        weights = None
        if not only_items and table.has("weight"):
            every = table.numbers("weight")
            weights = every[order[np.append(0, ends[:-1])]]
            if (every != weights[codes]).any():
                row = int(np.flatnonzero(every != weights[codes])[0])
                raise InvalidTable(f"column weight differs within a context (row {row}, counted from 0); give one each")
        phi = phi if (np.diff(order) == 1).all() else phi[order]  # no copy where none is needed
        alike = len(phi) == len(ends) * ends[0] and (np.diff(ends) == ends[0]).all()
        return Candidates(
            phi.reshape(len(ends), ends[0], -1) if alike else np.split(phi, ends[:-1]),
            weights,
            contexts=contexts,
            actions=actions[order],
            feature_names=table.features_named or None,
        )


# -- shapes of tables ------------------------------------------------------------------------------------------------


class _Reading(NamedTuple):
    """A table of comparisons of any shape, and how it is to be read."""

    table: Table
    users: LabelArray
    features: Sequence[str] | None
    items: Any
    embed: Embed | None
    positive: Any
    common: dict[str, Any]  # what `Comparisons` is told of every shape with two sides

    def prompted(self) -> dict[str, Any]:
        """The same, with prompts as contexts where there are no others."""
        return self.common | ({"contexts": _prompts(self.table)} if self.common["contexts"] is None else {})


def _of_answers(given: _Reading) -> Comparisons:
    """Features of differences, or of both sides."""
    table, y = given.table, given.table.labels("y")
    if given.positive is not None:
        y = answer_array(y, given.positive)
    if not (table.has_features("z") or (table.has_features("first") and table.has_features("second"))):
        table.take_numbers("z")
    if table.has_features("z"):
        common = given.common | {"feature_names": table.feature_names()}
        return Comparisons.from_arrays(table.features("z"), y, given.users, **common)
    if table.has_features("first") and table.has_features("second"):
        common = given.common | {"feature_names": table.features_named or given.features}
        return Comparisons.from_sides(table.features("first"), table.features("second"), y, given.users, **common)
    raise table.lacks("the features: z0, z1, ... or a list column z, or first0, ... and second0, ...", "z")


def _of_ratings(given: _Reading) -> Comparisons:
    """Pairs of clearly different ratings."""
    known, names = (None, None) if given.items is None else item_table(given.items, given.features)
    things, ratings = given.table.labels("item"), given.table.numbers("rating")
    return Comparisons.from_ratings(given.users, things, ratings, known, feature_names=names)


def _of_choices(given: _Reading) -> Comparisons:
    """Which of the items shown was taken. In one column of text they are separated by |."""
    table = given.table
    known, names = _known_items(table, "shown", given.items, given.features)
    options, chosen = [], []
    for row, (shown, taken) in enumerate(
        zip(table.labels("shown").tolist(), table.labels("taken").tolist(), strict=True)
    ):
        listed = [name.strip() for name in shown.split("|")] if isinstance(shown, str) else shown
        if not isinstance(listed, list | tuple | np.ndarray):
            raise InvalidTable(
                f"column {table.names['shown']} is no list of items in row {row} (counted from 0): {shown!r:.40}"
            )
        if taken not in list(listed):
            raise InvalidTable(
                f"in row {row} (counted from 0) {taken!r:.60} was taken, which is not among the items shown; "
                "show what was taken, or leave such rows out"
            )
        options.append([_known(name, known, table, "shown", row) for name in listed])
        chosen.append(list(listed).index(taken))
    return Comparisons.from_choices(
        options, chosen, given.users, contexts=given.common["contexts"], feature_names=names
    )


def _of_two(given: _Reading) -> Comparisons:
    """Two items or texts, and the better one."""
    table, names = given.table, None
    *sides, label = compared = next(names for names in COMPARED if all(map(table.has, names)))
    if given.positive is None:
        y = _left_right_answers(table, compared)
    else:
        y = answer_array(table.labels(label), given.positive)
    if given.embed is None or given.items is not None or table.holds_vectors(sides[0]):
        (first, named), (second, _) = (_items(table, side, given.items, given.features) for side in sides)
        names = _names(table, *sides)
    else:
        spoken = ("conversation_a", "conversation_b") if table.has("conversation_a") else sides
        (first, second), named = (_texts(table, side, given.embed) for side in spoken), given.features
    return Comparisons.from_sides(
        first, second, y, given.users, items=names, **given.prompted() | {"feature_names": named}
    )


def _of_winners(given: _Reading) -> Comparisons:
    """Items or features of who won and who lost."""
    (won, named), (lost, _) = (_items(given.table, side, given.items, given.features) for side in ("winner", "loser"))
    names = _names(given.table, "winner", "loser")
    first, second, y = _sides_by_features(won, lost)
    items = None if names is None else np.where(y[:, None] == 1, names, names[:, ::-1])
    return Comparisons.from_sides(first, second, y, given.users, items=items, **given.common | {"feature_names": named})


def _of_texts(given: _Reading) -> Comparisons:
    """Texts that were chosen and rejected."""
    won, lost = (_texts(given.table, side, given.embed) for side in ("chosen", "rejected"))
    common = given.prompted()
    return Comparisons.from_sides(*_sides_by_features(won, lost), given.users, **common)


def _has(*names: str) -> Callable[[Table], bool]:
    return lambda table: all(map(table.has, names))


SHAPES: tuple[tuple[Callable[[Table], bool], Callable[[_Reading], Comparisons]], ...] = (
    (_has("y"), _of_answers),
    (_has("item", "rating"), _of_ratings),
    (_has("shown", "taken"), _of_choices),
    *((_has(*names), _of_two) for names in COMPARED),
    (lambda table: table.has_features("winner") and table.has_features("loser"), _of_winners),
    (_has("chosen", "rejected"), _of_texts),
)
"""How a table of comparisons is recognised, and what reads it; the first that fits."""


# -- tables that name items or hold texts ----------------------------------------------------------------------------


def _items(table: Table, side: str, items: Any, features: Sequence[str] | None) -> tuple[Any, Sequence[str] | None]:
    """Features of the items a column names, or the features that stand there; and their names, if they have any."""
    if not table.has(side) or table.holds_vectors(side):
        return table.features(side), table.features_named or None
    known, names = _known_items(table, side, items, features, "; of texts, make features first: prefkin embed")
    vectors = [
        None if is_missing(name) else _known(name, known, table, side, row)
        for row, name in enumerate(table.labels(side).tolist())
    ]
    return vectors, names or features


def _known_items(
    table: Table, side: str, items: Any, features: Sequence[str] | None, otherwise: str = ""
) -> tuple[dict[Hashable, Any], tuple[str, ...] | None]:
    if items is None:
        raise InvalidTable(
            f"column {table.names[side]} names items, whose features are not known; give items={{name: features}} "
            f"or a table with columns item and phi0, phi1, ... (on the command line: --items FILE){otherwise}"
        )
    return item_table(items, features)


def _known(name: Any, known: Mapping[Hashable, Any], table: Table, side: str, row: int) -> Any:
    if not (isinstance(name, Hashable) and name in known):
        raise InvalidTable(
            f"item {name!r:.60} of column {table.names[side]}, row {row} (counted from 0) has no features; "
            f"{len(known)} items are known"
        )
    return known[name]


def _names(table: Table, first: str, second: str) -> LabelArray | None:
    """The names of both items of each row, (n, 2), where columns name them."""
    if not (table.has(first) and table.has(second)) or table.holds_vectors(first) or table.holds_vectors(second):
        return None
    names = np.empty((len(table.labels(first)), 2), dtype=object)
    names[:, 0], names[:, 1] = table.labels(first), table.labels(second)
    return names


def item_table(items: Any, features: Sequence[str] | None) -> tuple[dict[Hashable, Any], tuple[str, ...] | None]:
    """Features by item, and their names where the table has any."""
    if isinstance(items, Mapping):
        return dict(items), None
    with in_file(items):
        table = Table(items, None, ITEM_FIELDS, features)
        if not table.has("item"):
            raise table.lacks("column item", "item")
        known: dict[Hashable, Any] = {}
        vectors = _features_of_items(table)
        for row, (name, vector) in enumerate(zip(table.labels("item").tolist(), vectors, strict=True)):
            if name in known:
                raise InvalidTable(f"item {name!r} stands twice (row {row}, counted from 0); drop one")
            known[name] = vector
        return known, table.features_named or None


def _features_of_items(table: Table) -> FloatArray:
    """phi0, phi1, ..., a list column phi, or all columns of numbers that have no other use."""
    if not table.has_features("phi"):
        table.take_numbers("phi")
    if not table.has_features("phi"):
        raise table.lacks("the features: phi0, phi1, ... or a list column phi", "phi")
    return feature_matrix(table.features("phi"), "phi")


def _left_right_answers(table: Table, names: tuple[str, str, str]) -> FloatArray:
    """1 where the label names the left item, 0 for the right one, 0.5 for a tie."""
    sides = [table.labels(name).tolist() for name in names]
    answers = np.full(len(sides[0]), np.nan)
    for row, (left, right, label) in enumerate(zip(*sides, strict=True)):
        if is_missing(label):
            continue
        word = label.strip().lower() if isinstance(label, str) else None
        if word in TIES:  # also where an arena's models are bad both of them
            answers[row] = 0.5
        elif _same(label, left) or word in ("left", "model_a"):
            answers[row] = 1.0
        elif _same(label, right) or word in ("right", "model_b"):
            answers[row] = 0.0
        else:
            raise InvalidTable(
                f"label {label!r:.60} in row {row} (counted from 0) is neither the left item {left!r:.60} nor the "
                f"right one {right!r:.60}; it must name one of them, or be 'left', 'right' or 'tie'"
            )
    return answers


def _same(label: Any, item: Any) -> bool:
    """Does a label name this item? Items that are features have no name."""
    return not isinstance(item, list | np.ndarray) and bool(label == item)


def _prompts(table: Table) -> LabelArray | None:
    """What was asked about, as text."""
    if not table.has("prompt"):
        return None
    return np.array([plain_text(value) for value in table.labels("prompt")], dtype=object)


def _texts(table: Table, side: str, embed: Embed | None) -> Any:
    """Features of texts: a column of embeddings, or the embedding function."""
    if side in ("chosen", "rejected") and table.has_features(f"{side}_embedding"):
        return table.features(f"{side}_embedding")
    if table.holds_vectors(side):
        return table.features(side)
    if embed is None:
        raise InvalidTable(
            f"column {table.names[side]} holds texts; give their embeddings as columns chosen_embedding and "
            "rejected_embedding, or a function embed=..."
        )
    whole = _whole_texts(table, side)
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


def _whole_texts(table: Table, side: str) -> list[str | None]:
    """Texts with their prompts before them."""
    answers = [plain_text(value) for value in table.labels(side)]
    prompts = [plain_text(value) for value in table.labels("prompt")] if table.has("prompt") else [""] * len(answers)
    return [None if a is None else f"{p}\n\n{a}" if p else a for p, a in zip(prompts, answers, strict=True)]


def plain_text(value: Any) -> str | None:
    """A text, or the contents of a chat's messages one after the other.

    >>> plain_text([{"role": "user", "content": "Tea?"}, {"role": "assistant", "content": "Yes."}])
    'Tea?\\nYes.'
    """
    if is_missing(value):
        return None
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple | np.ndarray):
        raise InvalidTable(f"a text is needed, or a list of messages; got {value!r:.40}")
    return "\n".join(_content(message) for message in value)


def _content(message: Any) -> str:
    """What a message says; of a content in parts, those that are text."""
    said = message.get("content") if isinstance(message, Mapping) else message
    if isinstance(said, list | tuple | np.ndarray):
        said = "\n".join(
            str(part["text"]) for part in said if isinstance(part, Mapping) and part.get("text") is not None
        )
    if isinstance(said, str):
        return said
    if isinstance(message, Mapping) and "content" in message and said is None:  # a call of a tool, for example
        return ""
    raise InvalidTable(f"a message needs its text under 'content'; got {message!r:.60}")


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
