"""Tasks of Label Studio and records of Argilla: written from pairs that are shown, and read as rows of a table.

What is read: a task or record becomes one row for each answer to it: what was shown, `user`, and `label`, left or
right. What else stands beside the texts (a context, features of both sides) stays, under its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prefkin.data.arrays import FloatArray
from prefkin.data.checks import is_missing
from prefkin.errors import InvalidTable

__all__ = ["TOOLS", "Given", "Shown", "exported_rows"]

SIDES = ("left", "right")
RESPONSES = ("response_1", "response_2")


@dataclass(frozen=True)
class Given:
    """One answer: whose, which side was taken, and after how long."""

    user: str
    side: int  # 0: the first
    seconds: float | None = None


@dataclass(frozen=True, eq=False)
class Shown:
    """Two texts side by side: the person to ask, or answers that were given."""

    context: str
    prompt: str
    names: tuple[str, str]  # of both actions
    texts: tuple[str, str]
    features: tuple[FloatArray, FloatArray]
    asked: str | None = None
    answers: tuple[Given, ...] = ()

    @property
    def _prompt(self) -> dict[str, str]:
        return {"prompt": self.prompt} if self.prompt else {}

    @property
    def _asked(self) -> dict[str, str]:
        return {} if self.asked is None else {"asked": self.asked}


def _task(shown: Shown) -> dict[str, Any]:
    """For Label Studio. The features come back with the answers, so that these can be fitted as they are."""
    data = {
        **shown._prompt,
        **dict(zip(SIDES, shown.texts, strict=True)),
        **shown._asked,
        "context": shown.context,
        **{f"{side}_action": name for side, name in zip(SIDES, shown.names, strict=True)},
        **{side: phi.tolist() for side, phi in zip(("first", "second"), shown.features, strict=True)},
    }
    return {"data": data} | ({"annotations": [_annotation(each) for each in shown.answers]} if shown.answers else {})


def _annotation(given: Given) -> dict[str, Any]:
    value = {"selected": SIDES[given.side]}
    result = {"type": "pairwise", "from_name": "comparison", "to_name": "left,right", "value": value}
    note: dict[str, Any] = {"result": [result], "completed_by": {"email": given.user}}
    return note if given.seconds is None else note | {"lead_time": given.seconds}


def _record(shown: Shown) -> dict[str, Any]:
    """For Argilla, whose metadata hold no features: texts are encoded when the answers are back."""
    owner = "" if shown.asked is None else f"{shown.asked}/"
    record: dict[str, Any] = {
        "id": f"{owner}{shown.context}/{shown.names[0]}-{shown.names[1]}",
        "fields": {**shown._prompt, **dict(zip(RESPONSES, shown.texts, strict=True))},
        "metadata": {
            **shown._asked,
            "context": shown.context,
            **dict(zip(("first_action", "second_action"), shown.names, strict=True)),
        },
    }
    if not shown.answers:
        return record
    given = [{"value": RESPONSES[each.side], "user_id": each.user, "status": "submitted"} for each in shown.answers]
    return record | {"responses": {"preference": given}}


def _written(form: Callable[[Shown], dict[str, Any]]) -> Callable[[Iterable[Shown]], bytes]:
    return lambda pairs: json.dumps([form(each) for each in pairs], ensure_ascii=False, indent=1).encode()


TOOLS: dict[str, Callable[[Iterable[Shown]], bytes]] = {"labelstudio": _written(_task), "argilla": _written(_record)}
"""How each tool takes in pairs, as a file of JSON."""


def exported_rows(content: Any) -> list[dict[str, Any]]:
    """Rows out of a list of tasks, of records, or of rows as they are.

    >>> shown = {"prompt": "Tea?", "left": "green", "right": "black"}
    >>> note = {"completed_by": 7, "result": [{"type": "pairwise", "value": {"selected": "left"}}]}
    >>> exported_rows([{"data": shown, "annotations": [note]}])
    [{'prompt': 'Tea?', 'left': 'green', 'right': 'black', 'user': 7, 'label': 'left'}]
    """
    if content == []:
        raise InvalidTable("there are no rows: the list is empty")
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        raise InvalidTable("a list of JSON objects is needed: rows, tasks of Label Studio, or records of Argilla")
    if all("data" in entry and "annotations" in entry for entry in content):
        rows = [row for number, task in enumerate(content) for row in _of_task(task, number)]
    elif all("fields" in entry and "responses" in entry for entry in content):
        rows = [row for number, record in enumerate(content) for row in _of_record(record, number)]
    else:
        return content
    if not rows:
        raise InvalidTable(f"nobody has answered any of the {len(content)} entries; export them when somebody has")
    return rows


def _of_task(task: Mapping[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """The answers to one task of Label Studio."""
    for note in task["annotations"] or ():
        if note.get("was_cancelled"):
            continue
        chosen = [part["value"]["selected"] for part in note.get("result") or () if part.get("type") == "pairwise"]
        if len(chosen) != 1 or chosen[0] not in SIDES:
            raise InvalidTable(
                f"task {task.get('id', number)!r:.60} (entry {number}, counted from 0) has an annotation without one "
                "pairwise answer, left or right; export a project that compares pairs"
            )
        by = note.get("completed_by")
        user = (
            next((by[key] for key in ("email", "id") if by.get(key) is not None), None) if isinstance(by, dict) else by
        )
        yield dict(task["data"]) | {"user": user, _answer(task["data"]): chosen[0]}


def _of_record(record: Mapping[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """The answers to one record of Argilla: its two last fields are what was compared."""
    fields, responses = record["fields"], record["responses"] or ()
    if len(fields) < 2:
        raise InvalidTable(f"record {number} (counted from 0) has {len(fields)} fields; two to compare are needed")
    names = list(fields)[-2:]
    about = {name: value for name, value in fields.items() if name not in names}
    beside = {name: value for name, value in (record.get("metadata") or {}).items() if not is_missing(value)}
    shown = beside | about | dict(zip(SIDES, (fields[name] for name in names), strict=True))
    if isinstance(responses, Mapping):  # by question, as Argilla writes them
        responses = [given for answers in responses.values() for given in answers]
    for given in responses:
        if given.get("status") in ("discarded", "draft"):
            continue
        user = next((given[key] for key in ("user", "user_id") if given.get(key) is not None), None)
        yield shown | {"user": user, _answer(shown): _side(given.get("value"), names, number)}


def _side(value: Any, names: list[str], number: int) -> str:
    """Which of two fields an answer names: by its name, as first of a ranking, or as left or right."""
    if isinstance(value, list) and value:
        ranks = [part.get("rank", place) if isinstance(part, dict) else place for place, part in enumerate(value)]
        if len(set(ranks)) < len(ranks):
            return "tie"
        best = value[ranks.index(min(ranks))]
        value = best["value"] if isinstance(best, dict) else best
    for side, name in zip(SIDES, names, strict=True):
        if value in (name, side):
            return side
    if value == "tie":
        return "tie"
    raise InvalidTable(
        f"record {number} (counted from 0) was answered {value!r:.60}, which names neither of its fields "
        f"{' and '.join(names)}; ask for one of them"
    )


def _answer(shown: Mapping[str, Any]) -> str:
    """The column of the answer: y where the features of both sides stand there, label where only names or texts do."""
    return "y" if "first" in shown and "second" in shown else "label"
