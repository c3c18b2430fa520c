"""What people answered, as others read it: comparisons for `prefkin fit`, and three forms for annotation tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from prefkin.apps.annotate.history import Answer, History
from prefkin.apps.annotate.items import Items
from prefkin.apps.annotate.store import Person
from prefkin.data.exports import TOOLS, Given, Shown

__all__ = ["FORMS", "comparisons", "in_form", "json_lines", "records"]

Histories = dict[Person, History]


def records(items: Items, histories: Histories) -> Iterator[dict[str, Any]]:
    """One record for each question that was answered or skipped, in names; undone ones do not count."""
    for person, history in histories.items():
        for answer in history.closed:
            asked = answer.question
            left, right = items.label(asked.context, asked.left), items.label(asked.context, asked.right)
            chosen, other = {"left": (left, right), "right": (right, left)}.get(answer.choice, (None, None))
            yield {
                "user": person.name,
                "context": items.context(asked.context),
                "chosen": chosen,
                "other": other,
                "choice": answer.choice,
                "seconds": answer.seconds,
                "at": _when(answer),
                "left": left,
                "right": right,
                "question": asked.id,
            }


def comparisons(items: Items, histories: Histories) -> dict[str, list[Any]]:
    """Columns that `prefkin fit` reads: first is what stood on the left."""
    answered = list(_answered(histories))
    columns: dict[str, list[Any]] = {
        "user": [person.name for person, _ in answered],
        "y": [int(answer.choice == "left") for _, answer in answered],
        "context": [items.context(answer.question.context) for _, answer in answered],
        "seconds": [answer.seconds for _, answer in answered],
        "at": [_when(answer) for _, answer in answered],
    }
    for side, shown in (("first", "left"), ("second", "right")):
        rows = [items.row(answer.question.context, getattr(answer.question, shown)) for _, answer in answered]
        features = items.candidates.features[np.array(rows, dtype=np.intp)]
        columns |= {f"{side}{i}": column for i, column in enumerate(features.T.tolist())}
    return columns


def _when(answer: Answer) -> str:
    return datetime.fromtimestamp(answer.at, UTC).isoformat()


def json_lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Each as one line of JSON."""
    return (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


# -- annotation tools ------------------------------------------------------------------------------------------------


def _answered(histories: Histories) -> Iterator[tuple[Person, Answer]]:
    return ((person, answer) for person, history in histories.items() for answer in history.answers)


def _pairs(items: Items, histories: Histories) -> Iterator[Shown]:
    """Each pair that was answered once, with everybody's answers to it."""
    given: dict[tuple[int, int, int], list[Given]] = {}
    for person, answer in _answered(histories):
        pair, (chosen, _) = answer.question.pair, answer.sides
        given.setdefault(pair, []).append(Given(person.name, int(chosen != pair[1]), answer.seconds))
    for pair, answers in given.items():
        yield replace(items.pair(*pair), answers=tuple(answers))


def _trl(items: Items, histories: Histories) -> bytes:
    """JSON lines of prompt, chosen and rejected, as TRL's preference trainers read them."""

    def row(person: Person, answer: Answer) -> dict[str, str]:
        context = answer.question.context
        chosen, rejected = (items.content(context, action) for action in answer.sides)
        return {"prompt": items.prompts[context], "chosen": chosen, "rejected": rejected, "annotator": person.name}

    return "".join(json_lines(row(*each) for each in _answered(histories))).encode()


FORMS = {**dict.fromkeys(TOOLS, ".json"), "trl": ".jsonl"}
"""Forms of other tools by name, and how their files' names end."""


def in_form(form: str, items: Items, histories: Histories) -> bytes:
    """The file of another tool."""
    return _trl(items, histories) if form == "trl" else TOOLS[form](_pairs(items, histories))
