"""The next questions, for those who collect answers in Label Studio or Argilla."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefkin.data.candidates import Candidates
from prefkin.data.checks import in_file, is_missing
from prefkin.data.exports import Shown
from prefkin.data.formats import label_column, read_columns
from prefkin.errors import InvalidTable

__all__ = ["next_questions", "planned_questions"]


def next_questions(model: Any, users: Iterable[Hashable], items: Any, each: int) -> list[Shown]:
    """So many for everybody: those that cover most of what is not known about them, whatever the answers will be."""
    return [
        replace(items.pair(question.context, question.first, question.second), asked=str(user))
        for user in users
        for question in model.session(user, items.candidates, rule="coverage").plan(each)
    ]


def planned_questions(path: Path, items: Any) -> list[Shown]:
    """Those of a file with columns user, context, first and second, as `prefkin plan` writes it."""
    names = ("user", "context", "first", "second")
    with in_file(path):
        table = read_columns(path, names)
    for name in names:
        if name not in table:
            raise InvalidTable(f"{path}: lacks column {name}; it needs {', '.join(names)}, as prefkin plan writes them")
    candidates: Candidates = items.candidates
    places = {
        (str(candidates.contexts[x]), str(candidates.actions[row])): (x, row - int(candidates.starts[x]))
        for row, x in enumerate(candidates.owner.tolist())
    }
    found = []
    labels = {name: label_column(table[name]).tolist() for name in names}
    for row, user in enumerate(labels["user"]):
        if is_missing(user):
            raise InvalidTable(f"{path}: the user is missing in row {row} (counted from 0); fill it in")
    columns = (map(str, labels[name]) for name in names)
    for row, (user, context, first, second) in enumerate(zip(*columns, strict=True)):
        for action in (first, second):
            if (context, action) not in places:
                raise InvalidTable(
                    f"{path}: action {action!r:.60} of context {context!r:.60} (row {row}, counted from 0) "
                    "is not among the candidates; give those that were planned with"
                )
        if first == second:
            raise InvalidTable(f"{path}: row {row} (counted from 0) compares {first!r:.60} with itself; leave it out")
        (x, one), (_, other) = places[context, first], places[context, second]
        found.append(replace(items.pair(x, one, other), asked=user))
    return found
