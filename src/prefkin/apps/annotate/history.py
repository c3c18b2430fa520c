"""What one person was asked and answered, told by the events: the one thing that is stored is what happened.

| event    | what it does to the history                                                        |
|----------|------------------------------------------------------------------------------------|
| joined   | begins it                                                                          |
| asked    | this question is the one to answer, with these sides                               |
| answered | it is answered: the left or the right one                                          |
| skipped  | it is closed without an answer                                                     |
| undone   | the last answer or skip counts no more; its pair is asked again by the next event  |

The events of a person are numbered without gaps. Whoever adds one must have seen all before: that is what keeps two
tabs, two workers and a request sent twice from counting twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Answer", "Asked", "Event", "History"]


class Event(NamedTuple):
    """One thing that happened to one person."""

    person: int
    number: int  # from 0, without gaps for each person
    at: float  # seconds since 1970
    kind: str
    question: str = ""  # its id
    context: int | None = None  # positions in the items
    left: int | None = None
    right: int | None = None
    choice: str | None = None  # left or right
    seconds: float | None = None  # from showing the question to its answer


class Asked(NamedTuple):
    """A question as it was shown."""

    id: str
    context: int
    left: int
    right: int

    @property
    def pair(self) -> tuple[int, int, int]:
        """What it is about, whichever side is which."""
        return self.context, min(self.left, self.right), max(self.left, self.right)


class Answer(NamedTuple):
    """A question that is closed."""

    question: Asked
    choice: str  # left, right or skip
    seconds: float | None
    at: float

    @property
    def sides(self) -> tuple[int, int]:
        """What was chosen, and the other one."""
        left, right = self.question.left, self.question.right
        return (left, right) if self.choice == "left" else (right, left)


@dataclass
class History:
    """One person's events, taken together.

    >>> history = History.of([Event(1, 0, 0.0, "joined"), Event(1, 1, 0.0, "asked", "q", 3, 1, 0)])
    >>> history.pending
    Asked(id='q', context=3, left=1, right=0)
    >>> history.add(Event(1, 2, 5.0, "answered", "q", 3, 1, 0, "left", 5.0))
    >>> history.answered, history.pending
    (1, None)
    >>> history.add(Event(1, 3, 6.0, "undone", "q"))
    >>> history.answered, "q" in history.known
    (0, True)
    """

    closed: list[Answer] = field(default_factory=list)  # and not undone
    pending: Asked | None = None
    number: int = -1  # of the last event
    known: set[str] = field(default_factory=set)  # ids of all questions ever asked

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        """What these events, in their order, come to."""
        history = cls()
        for event in events:
            history.add(event)
        return history

    def add(self, event: Event) -> None:
        """Take in the event after the last one."""
        self.number = event.number
        if event.kind == "joined":
            return
        if event.kind == "undone":
            self.closed.pop()
            self.pending = None
            return
        assert event.context is not None
        assert event.left is not None
        assert event.right is not None
        question = Asked(event.question, event.context, event.left, event.right)
        if event.kind == "asked":
            self.pending = question
            self.known.add(question.id)
        else:
            self.closed.append(Answer(question, event.choice or "skip", event.seconds, event.at))
            self.pending = None

    @property
    def answers(self) -> Iterator[Answer]:
        """What counts: answered, neither skipped nor undone."""
        return (answer for answer in self.closed if answer.choice != "skip")

    @property
    def answered(self) -> int:
        """How many answers count."""
        return sum(1 for _ in self.answers)

    @property
    def skipped(self) -> int:
        """How many questions were skipped."""
        return len(self.closed) - self.answered

    def repeats(self) -> tuple[int, int]:
        """Pairs that were answered again, and how many of these in the same way."""
        first: dict[tuple[int, int, int], int] = {}
        again = same = 0
        for answer in self.answers:
            pair, (chosen, _) = answer.question.pair, answer.sides
            if pair in first:
                again, same = again + 1, same + (first[pair] == chosen)
            first.setdefault(pair, chosen)
        return again, same
