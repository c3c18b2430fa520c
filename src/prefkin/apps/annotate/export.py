"""What people answered, as others read it: comparisons for `prefkin fit`, and three forms for annotation tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from prefkin.apps.annotate.history import Answer, History
from prefkin.apps.annotate.items import Items
from prefkin.apps.annotate.store import Person

__all__ = ["FORMS", "comparisons", "json_lines", "records"]

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
                "at": datetime.fromtimestamp(answer.at, UTC).isoformat(),
                "left": left,
                "right": right,
                "question": asked.id,
            }


def comparisons(items: Items, histories: Histories) -> dict[str, list[Any]]:
    """Columns that `prefkin fit` reads: first is what stood on the left."""
    dim = items.candidates.dim
    columns: dict[str, list[Any]] = {name: [] for name in ("user", "y", "context", "seconds", "at")}
    features = {side: [f"{side}{i}" for i in range(dim)] for side in ("first", "second")}
    columns |= {name: [] for names in features.values() for name in names}
    for person, answer in _answered(histories):
        asked, actions = answer.question, items.candidates.of(answer.question.context)
        columns["user"].append(person.name)
        columns["y"].append(int(answer.choice == "left"))
        columns["context"].append(items.context(asked.context))
        columns["seconds"].append(answer.seconds)
        columns["at"].append(datetime.fromtimestamp(answer.at, UTC).isoformat())
        for side, action in (("first", asked.left), ("second", asked.right)):
            for name, value in zip(features[side], actions[action].tolist(), strict=True):
                columns[name].append(value)
    return columns


def json_lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Each as one line of JSON."""
    return (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


# -- annotation tools ------------------------------------------------------------------------------------------------


def _answered(histories: Histories) -> Iterator[tuple[Person, Answer]]:
    return ((person, answer) for person, history in histories.items() for answer in history.answers)


def _trl(items: Items, histories: Histories) -> str:
    """JSON lines of prompt, chosen and rejected, as TRL's preference trainers read them."""

    def rows() -> Iterator[dict[str, Any]]:
        for person, answer in _answered(histories):
            asked = answer.question
            sides = (asked.left, asked.right) if answer.choice == "left" else (asked.right, asked.left)
            chosen, rejected = (_content(items, asked.context, action) for action in sides)
            prompt = items.prompts[asked.context]
            yield {"prompt": prompt, "chosen": chosen, "rejected": rejected, "annotator": person.name}

    return "".join(json_lines(rows()))


def _labelstudio(items: Items, histories: Histories) -> str:
    """Tasks with pairwise annotations, one task for each pair, as Label Studio imports them."""
    tasks: dict[tuple[int, int, int], dict[str, Any]] = {}
    for person, answer in _answered(histories):
        asked = answer.question
        context, one, other = asked.pair
        if asked.pair not in tasks:
            shown = {"left": _content(items, context, one), "right": _content(items, context, other)}
            tasks[asked.pair] = {"data": {"prompt": items.prompts[context], **shown}, "annotations": []}
        chosen = asked.left if answer.choice == "left" else asked.right
        side = "left" if chosen == one else "right"
        result = {
            "type": "pairwise",
            "from_name": "comparison",
            "to_name": "left,right",
            "value": {"selected": side},
        }
        note: dict[str, Any] = {"result": [result], "completed_by": {"email": person.name}}
        if answer.seconds is not None:
            note["lead_time"] = answer.seconds
        tasks[asked.pair]["annotations"].append(note)
    return json.dumps(list(tasks.values()), ensure_ascii=False, indent=1)


def _argilla(items: Items, histories: Histories) -> str:
    """Records with fields and responses, one for each pair, as Argilla logs them."""
    found: dict[tuple[int, int, int], dict[str, Any]] = {}
    for person, answer in _answered(histories):
        asked = answer.question
        context, one, other = asked.pair
        fields = {
            "prompt": items.prompts[context],
            "response_1": _content(items, context, one),
            "response_2": _content(items, context, other),
        }
        record = found.setdefault(
            asked.pair, {"id": f"{items.context(context)}/{one}-{other}", "fields": fields, "responses": []}
        )
        chosen = asked.left if answer.choice == "left" else asked.right
        value = "response_1" if chosen == one else "response_2"
        record["responses"].append(
            {"question_name": "preference", "value": value, "user": person.name, "status": "submitted"}
        )
    return json.dumps(list(found.values()), ensure_ascii=False, indent=1)


def _content(items: Items, context: int, action: int) -> str:
    return items.text(context, action) or items.image(context, action)


FORMS: dict[str, Callable[[Items, Histories], str]] = {
    "labelstudio": _labelstudio,
    "argilla": _argilla,
    "trl": _trl,
}
"""Forms of other tools by name."""
