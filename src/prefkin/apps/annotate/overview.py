"""What the organiser sees of everybody."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from prefkin.apps.annotate.engine import Engine
from prefkin.apps.annotate.history import History
from prefkin.apps.annotate.learning import Lesson
from prefkin.apps.annotate.store import Person

__all__ = ["Line", "overview"]


@dataclass(frozen=True)
class Line:
    """What the organiser sees of one person."""

    name: str
    answers: int
    skips: int
    seconds: float | None  # for an answer, median
    doubt: float | None  # as a share of what there is about somebody unknown
    about: int | None  # answers to come; 0: enough
    again: int  # pairs that were asked a second time
    same: int  # and answered in the same way
    careless: bool  # answers no better than chance by any model


def overview(engine: Engine, lesson: Lesson | None) -> list[Line]:
    """Everybody, in the order in which they joined; what takes long to compute is known of those who are here."""
    careless = frozenset() if lesson is None else lesson.careless
    return [_line(engine, person, history, careless) for person, history in engine.store.histories().items()]


def _line(engine: Engine, person: Person, history: History, careless: frozenset[str]) -> Line:
    took = [answer.seconds for answer in history.answers if answer.seconds is not None]
    again, same = history.repeats()
    return Line(
        person.name,
        history.answered,
        history.skipped,
        median(took) if took else None,
        engine.doubt(person),
        engine.about(person, history),
        again,
        same,
        person.name in careless,
    )
