"""The next questions, as tasks for those who collect answers in Label Studio or Argilla."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefkin.data.arrays import FloatArray
from prefkin.data.candidates import Candidates
from prefkin.data.formats import label_column, read_columns
from prefkin.errors import InvalidTable

__all__ = ["FORMS", "Asked", "next_questions", "planned_questions"]


@dataclass(frozen=True, eq=False)
class Asked:
    """One question for one person."""

    user: str
    context: str
    prompt: str
    names: tuple[str, str]  # of both actions
    texts: tuple[str, str]
    features: tuple[FloatArray, FloatArray]


def next_questions(model: Any, users: Iterable[Hashable], items: Any, each: int) -> list[Asked]:
    """So many for everybody: those that cover most of what is not known about them, whatever the answers will be."""
    return [
        _asked(str(user), items, question.context, question.first, question.second)
        for user in users
        for question in model.session(user, items.candidates, rule="coverage").plan(each)
    ]


def planned_questions(path: Path, items: Any) -> list[Asked]:
    """Those of a file with columns user, context, first and second, as `prefkin plan` writes it."""
    names = ("user", "context", "first", "second")
    try:
        table = read_columns(path, names)
    except InvalidTable as error:
        raise InvalidTable(f"{path}: {error}") from None
    for name in names:
        if name not in table:
            raise InvalidTable(f"{path}: lacks column {name}; it needs {', '.join(names)}, as prefkin plan writes them")
    candidates: Candidates = items.candidates
    places = {
        (str(candidates.contexts[x]), str(candidates.actions[row])): (x, row - int(candidates.starts[x]))
        for row, x in enumerate(candidates.owner.tolist())
    }
    found = []
    columns = (map(str, label_column(table[name]).tolist()) for name in names)
    for row, (user, context, first, second) in enumerate(zip(*columns, strict=True)):
        for action in (first, second):
            if (context, action) not in places:
                raise InvalidTable(
                    f"{path}: action {action!r:.60} of context {context!r:.60} (row {row}, counted from 0) "
                    "is not among the candidates; give those that were planned with"
                )
        (x, one), (_, other) = places[context, first], places[context, second]
        found.append(_asked(user, items, x, one, other))
    return found


def _asked(user: str, items: Any, context: int, first: int, second: int) -> Asked:
    def both(of: Callable[[int, int], str]) -> tuple[str, str]:
        return of(context, first), of(context, second)

    shown = both(lambda x, a: items.text(x, a) or items.image(x, a))
    rows = items.candidates.of(context)
    names = both(items.label)
    return Asked(user, items.context(context), items.prompts[context], names, shown, (rows[first], rows[second]))


def _labelstudio(questions: list[Asked]) -> list[dict[str, Any]]:
    """Tasks. The features come back with the answers, so that these can be fitted as they are."""
    return [
        {
            "data": {
                **({"prompt": each.prompt} if each.prompt else {}),
                **dict(zip(("left", "right"), each.texts, strict=True)),
                "asked": each.user,
                "context": each.context,
                **dict(zip(("left_action", "right_action"), each.names, strict=True)),
                **{side: phi.tolist() for side, phi in zip(("first", "second"), each.features, strict=True)},
            }
        }
        for each in questions
    ]


def _argilla(questions: list[Asked]) -> list[dict[str, Any]]:
    """Records. Argilla's metadata hold no features: texts are encoded when the answers are back."""
    return [
        {
            "id": f"{each.user}/{each.context}/{each.names[0]}-{each.names[1]}",
            "fields": {
                **({"prompt": each.prompt} if each.prompt else {}),
                **dict(zip(("response_1", "response_2"), each.texts, strict=True)),
            },
            "metadata": {
                "asked": each.user,
                "context": each.context,
                **dict(zip(("first_action", "second_action"), each.names, strict=True)),
            },
        }
        for each in questions
    ]


def _as_json(entries: list[dict[str, Any]]) -> bytes:
    return json.dumps(entries, ensure_ascii=False, indent=1).encode()


FORMS: dict[str, Callable[[list[Asked]], bytes]] = {
    "labelstudio": lambda questions: _as_json(_labelstudio(questions)),
    "argilla": lambda questions: _as_json(_argilla(questions)),
}
"""Forms of other tools by name."""
