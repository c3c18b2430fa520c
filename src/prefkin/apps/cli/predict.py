"""`prefkin predict DIR --pairs FILE --out FILE`: how probable each answer is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import typer

from prefkin.apps.cli.console import (
    as_fitted,
    check_file,
    column_map,
    err,
    features_for,
    file_format,
    known_as,
    out,
    without_panics,
    working,
    write_file,
)
from prefkin.data.arrays import FloatArray
from prefkin.data.checks import distinct_labels, label_array
from prefkin.data.formats import as_file, untouched
from prefkin.data.tables import Unanswered, read_pairs
from prefkin.errors import InvalidParameter, InvalidTable, UnknownUser
from prefkin.models.files import load
from prefkin.models.reports import counted

PROBABILITY = "p"


def predict(
    folder: Path = typer.Argument(metavar="DIR", help="Folder written by prefkin fit, or a model file."),
    pairs: Path = typer.Option(..., help="Pairs: comparisons, with or without answers."),
    out_file: Path = typer.Option(..., "--out", help="File to write: .parquet, .csv or .jsonl."),
    mapping: list[str] = typer.Option([], "--map", help="Other column names: OURS=THEIRS, repeatable."),
    features: str | None = typer.Option(None, help="Columns that hold a feature each, separated by commas."),
    items: Path | None = typer.Option(None, help="Features of items, for tables that name items."),
    newcomers: bool = typer.Option(
        False, "--newcomers", help="Predict for users the model does not know as for people in general."
    ),
) -> None:
    """The probability of each answer: the pairs as they were given, with a column p.

    p is the probability that the first of the two is preferred; of pairs that name a winner or a chosen one, that one.

    Example: prefkin predict kin --pairs pairs.csv --out predicted.csv
    """
    check_file("--out", out_file, [pairs, folder, items])
    model = load(folder)
    with without_panics(pairs):
        named = features_for(model, pairs if items is None else items, features)
        asked = read_pairs(pairs, column_map(mapping), features=named, items=items)
        own = untouched(asked.columns, pairs, file_format(out_file))
    if PROBABILITY in own:
        raise InvalidTable(f"{pairs}: there is a column {PROBABILITY} already; rename it")
    asked = as_fitted(model, pairs, asked)
    with working():
        chance = _chance(model, asked, pairs, newcomers)
    written: dict[str, list[Any]] = {
        name: values.tolist() if isinstance(values, np.ndarray) else values.to_list()
        for name, values in own.items()
        if len(values) == len(chance)  # NPZ may hold others
    }
    written[PROBABILITY] = chance.tolist()
    try:
        content = as_file(written, file_format(out_file))
    except InvalidTable as error:
        raise InvalidTable(f"--out {out_file}: {error}") from None
    write_file(out_file, content)
    out.print(f"{counted(len(chance), 'pair')}: {PROBABILITY} from {chance.min():.2f} to {chance.max():.2f}")
    out.print(f"written to {out_file}")


def _chance(model: Any, asked: Unanswered, file: Path, newcomers: bool) -> FloatArray:
    """Probability that the first is preferred, of users the model knows, and of others if that is wanted."""
    labels, codes = distinct_labels(asked.users)
    fitted = model.users_.tolist()
    found = known_as(fitted, labels.tolist())
    unknown = np.array([label is None for label in found])[codes]
    if unknown.any() and not newcomers:
        row = int(np.argmax(unknown))
        who = labels.tolist()[codes[row]]
        raise UnknownUser(
            f"{file}: user {who!r:.60} in row {row} (counted from 0) is not among the {len(fitted)} fitted "
            "users; leave such rows out, or predict them as people in general with --newcomers"
        )
    first, chance = int(model.classes_[1] == model.positive_), np.empty(len(codes))
    if not unknown.all():
        users = label_array(found, "users")
        chance[~unknown] = model.predict_proba(asked.Z[~unknown], users=users[codes[~unknown]])[:, first]
    if unknown.any():
        if not model.has_posterior:
            raise InvalidParameter(
                f"--newcomers needs a model that knows people in general: fit PrefKin, not {type(model).__name__}"
            )
        strangers = len(set(codes[unknown].tolist()))
        err.print(f"note: {counted(strangers, 'unknown user')} predicted as people in general")
        chance[unknown] = model.fold_in().predict_proba(asked.Z[unknown])[:, 1]
    return chance
