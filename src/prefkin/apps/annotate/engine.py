"""The running project: who is being asked what, and what happens when they answer.

An answer and the question after it are committed together, then shown. Nothing here is needed to go on: whatever is
held in memory can be rebuilt from the store, and is when the server, or another worker, was in between.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from prefkin.apps.annotate.background import Background
from prefkin.apps.annotate.conversation import Conversation, Pair
from prefkin.apps.annotate.history import Asked, Event, History
from prefkin.apps.annotate.items import Items
from prefkin.apps.annotate.knowledge import Knowledge
from prefkin.apps.annotate.outlook import Course, Outlook, look
from prefkin.apps.annotate.store import Person, Store
from prefkin.errors import SessionError, StoreError

__all__ = ["FEWEST", "Engine", "State"]

SETTINGS_FOR = 2.0  # seconds for which settings are remembered: another worker may change them
OUTLOOK_EVERY = 2, 5  # answers, of the first ten and from then on
ROUGHLY, CAREFULLY = (3, 10), (7, 40)  # made-up people and their answers by which forecasts are made
REPEAT_AFTER = 5  # answers before a pair is asked again, and between the two times
FEWEST = 5  # answers before it can be enough: one that was a slip may persuade a model of tight groups
LARGEST_MEMORY = 300e6  # bytes for conversations; whoever was away longest is rebuilt when they come back
MATRICES = 6  # d × d, of a conversation and its two prepared followers
PREPARE, REBUILD, LOOK_AHEAD = range(3)
log = logging.getLogger("prefkin.annotate")


@dataclass(frozen=True)
class State:
    """What a person sees: a question, or that there is none."""

    answered: int
    question: Asked | None
    about: int = 0  # so many more answers, roughly
    enough: bool = False
    reason: str = ""  # why there is no question: paused, closed, or all asked
    can_undo: bool = False


@dataclass
class Live:
    """One person who is being asked."""

    person: Person
    lock: threading.Lock = field(default_factory=threading.Lock)  # one request at a time
    at_work: threading.RLock = field(default_factory=threading.RLock)  # one computation at a time
    history: History | None = None
    conversation: Conversation | None = None
    prepared: dict[tuple[str, str], Conversation] = field(default_factory=dict)  # by question and answer
    outlook: Outlook | None = None
    enough: bool = False  # once said it stays said, until answers are taken back or the model is another one
    shown: float = 0.0  # when the question was shown last, by a clock that nobody sets


class Engine:
    """A project that runs. Every method may be called by many threads at once."""

    def __init__(
        self,
        store: Store,
        items: Items,
        knowledge: Knowledge,
        *,
        repeat: float = 0.0,
        tolerance: float = 0.1,
        fewest: int = FEWEST,
        rng: random.Random | None = None,
    ) -> None:
        self.store, self.items, self.knowledge = store, items, knowledge
        self.repeat, self.tolerance, self.fewest = repeat, tolerance, fewest
        self.rng = random.Random() if rng is None else rng
        self.background = Background()
        self._live: OrderedDict[int, Live] = OrderedDict()
        self._lock = threading.Lock()
        self._settings: tuple[float, dict[str, Any]] = (0.0, {})
        self._most = max(32, int(LARGEST_MEMORY / (MATRICES * 8 * items.candidates.dim**2)))
        self.course = Course.played(knowledge, items, *ROUGHLY)
        self.background.add(LOOK_AHEAD, self._play)

    def stop(self) -> None:
        """Begin nothing more."""
        self.background.stop()

    # -- what people do ----------------------------------------------------------------------------------------------

    def question(self, person: Person) -> State:
        """The question to answer now; the same one until it is answered or skipped."""
        with self._served(person) as live:
            self._refresh(live)
            self._ask(live)
            return self._state(live)

    def answer(self, person: Person, question: str, choice: str) -> State:
        """Take an answer, "left", "right" or "skip"; one that was taken already changes nothing."""
        with self._served(person) as live:
            if live.history is None or live.history.pending is None or live.history.pending.id != question:
                self._refresh(live)
            if self.settings().get("closed"):
                return self._state(live)
            while (asked := self._history(live).pending) is not None and asked.id == question:
                if self._take(live, asked, choice):
                    break
            if question not in self._history(live).known:
                raise SessionError("this question was never asked here; ask for the next one")
            self._ask(live)
            return self._state(live)

    def undo(self, person: Person, question: str | None = None) -> State:
        """Take back the last answer or skip, and ask about it again.

        `question`, where it is given, says which question was shown, "" for none: if it is another one by now, nothing
        changes.
        """
        with self._served(person) as live:
            self._refresh(live)
            history = self._history(live)
            current = history.pending.id if history.pending else ""
            if history.closed and question in (None, current) and not self.settings().get("closed"):
                last, now = history.closed[-1].question, time.time()
                again = last._replace(id=secrets.token_hex(8))
                undone = Event(person.id, history.number + 1, now, "undone", last.id)
                if self._append(live, [undone, self._asked(person, history.number + 2, again, now)]):
                    live.conversation, live.outlook, live.prepared, live.enough = None, None, {}, False
                    self._look_ahead(live)
            self._ask(live)
            return self._state(live)

    # -- settings and replacing what is known ------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """What the organiser decided, at most two seconds ago."""
        read, settings = self._settings
        if time.monotonic() - read > SETTINGS_FOR:
            settings = self.store.settings()
            self._settings = time.monotonic(), settings
        return settings

    def set(self, **settings: Any) -> None:
        """Keep what the organiser decided, and read it anew."""
        self.store.set(**settings)
        self._settings = 0.0, {}

    def learn(self, knowledge: Knowledge) -> None:
        """Replace what is known of people; whoever is being asked goes on with the question they have."""
        self.knowledge = knowledge
        self.background.add(LOOK_AHEAD, self._play)
        for live in list(self._live.values()):
            if live.conversation is None:
                live.outlook, live.enough = None, False
            else:
                self.background.add(REBUILD, partial(self._rebuild, live))

    def about(self, person: Person, history: History) -> int | None:
        """So many more answers, roughly, of somebody who is being asked."""
        live = self._live.get(person.id)
        return None if live is None else self._about(live, history)

    def doubt(self, person: Person) -> float | None:
        """What is left of the doubt about somebody who is being asked."""
        live = self._live.get(person.id)
        return None if live is None or live.conversation is None else live.conversation.doubt()

    def conversation(self, person: Person) -> Conversation:
        """What is known about somebody by now."""
        with self._served(person) as live:
            self._refresh(live)
            return self._talk(live)

    # -- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _served(self, person: Person) -> Iterator[Live]:
        with self._lock:
            live = self._live.setdefault(person.id, Live(person))
            self._live.move_to_end(person.id)
            away = list(self._live.values())[: -self._most]
        for other in away:
            other.conversation = None
            other.prepared = {}
        with self.background.serving(), live.lock:
            yield live

    def _refresh(self, live: Live) -> None:
        """Read a history again if it went on elsewhere."""
        if live.history is None or self.store.last(live.person.id) != live.history.number:
            before, live.history = live.history, self.store.history(live.person.id)
            live.conversation, live.outlook, live.prepared = None, None, {}
            if before is not None and live.history.closed[: len(before.closed)] != before.closed:  # undone elsewhere
                live.enough = False
            if live.history.closed:
                self.background.add(LOOK_AHEAD, partial(self._look, live))

    @staticmethod
    def _history(live: Live) -> History:
        assert live.history is not None
        return live.history

    def _append(self, live: Live, events: list[Event]) -> bool:
        """Add events to the store and then to what is remembered; if others were faster, look at theirs."""
        try:
            taken = self.store.append(events)
        except StoreError:  # perhaps it was written, perhaps not
            live.history = None
            raise
        if not taken:
            self._refresh(live)
            return False
        for event in events:
            self._history(live).add(event)
        return True

    def _ask(self, live: Live) -> None:
        """See to it that there is a question, if there can be one."""
        while (history := self._history(live)).pending is None and not self._stopped():
            if (pair := self._pair(self._talk(live))) is None:
                return
            event = self._asked(live.person, history.number + 1, self._sides(pair), time.time())
            if self._append(live, [event]):
                self._look_ahead(live)

    def _take(self, live: Live, asked: Asked, choice: str) -> bool:
        """Store an answer and the question after it."""
        history, now = self._history(live), time.time()
        seconds = round(time.monotonic() - live.shown, 3) if live.shown else None
        kind, side = ("skipped", None) if choice == "skip" else ("answered", choice)
        person, number = live.person.id, history.number + 1
        events = [Event(person, number, now, kind, *asked, side, seconds)]
        with live.at_work:  # prepared, or computed now
            later = live.prepared.get((asked.id, choice)) or self._talk(live).after(asked, choice)
        if not self._stopped() and (pair := self._pair(later)) is not None:
            events.append(self._asked(live.person, number + 1, self._sides(pair), now))
        if not self._append(live, events):
            return False
        live.conversation, live.prepared = later, {}
        self._look_ahead(live)
        return True

    def _talk(self, live: Live) -> Conversation:
        """The conversation as it stands, rebuilt from the history where it was lost."""
        if live.conversation is None:
            with live.at_work:
                live.conversation = live.conversation or Conversation.begin(
                    self.knowledge, self.items, live.person, self._history(live).closed
                )
        return live.conversation

    def _pair(self, talk: Conversation) -> Pair | None:
        """What to ask next: what teaches most, or now and then what was asked before."""
        before = [answer.question.pair for answer in talk.closed if answer.choice != "skip"]
        if len(before) > REPEAT_AFTER and self.rng.random() < self.repeat:
            return self.rng.choice(before[:-REPEAT_AFTER])
        return talk.pair

    def _sides(self, pair: Pair) -> Asked:
        context, one, other = pair
        left, right = (one, other) if self.rng.random() < 0.5 else (other, one)
        return Asked(secrets.token_hex(8), context, left, right)

    @staticmethod
    def _asked(person: Person, number: int, asked: Asked, at: float) -> Event:
        return Event(person.id, number, at, "asked", *asked)

    def _stopped(self) -> str:
        settings = self.settings()
        return "closed" if settings.get("closed") else "paused" if settings.get("paused") else ""

    def _state(self, live: Live) -> State:
        history, reason = self._history(live), self._stopped()
        answered = history.answered
        if reason or history.pending is None:
            return State(answered, None, reason=reason or "all asked", can_undo=bool(history.closed) and not reason)
        live.shown = time.monotonic()
        about = self._about(live, history)
        return State(answered, history.pending, about, about == 0, can_undo=bool(history.closed))

    def _about(self, live: Live, history: History) -> int:
        if not live.enough:
            about = self.course.about(live.outlook, len(history.closed), self.tolerance)
            about = max(about, self.fewest - history.answered)
            live.enough = about == 0
            return about
        return 0

    # -- ahead of time -----------------------------------------------------------------------------------------------

    def _look_ahead(self, live: Live) -> None:
        """Prepare for both answers while the person reads; now and then, ask how much longer it will take.

        With more people than can be looked after so, followers are computed when they are needed: half the work.
        """
        if self.background.behind:
            return
        if (pending := self._history(live).pending) is not None:
            self.background.add(PREPARE, partial(self._prepare, live, pending))
        closed = len(self._history(live).closed)
        if closed - (live.outlook.closed if live.outlook else 0) >= OUTLOOK_EVERY[closed > 10]:
            self.background.add(LOOK_AHEAD, partial(self._look, live))

    def _prepare(self, live: Live, asked: Asked) -> None:
        for choice in ("left", "right"):
            with live.at_work:
                history = live.history
                if history is None or history.pending != asked or (asked.id, choice) in live.prepared:
                    return
                live.prepared[asked.id, choice] = self._talk(live).after(asked, choice)

    def _look(self, live: Live) -> None:
        if (talk := live.conversation) is not None:
            live.outlook = look(talk)

    def _play(self) -> None:
        self.course = Course.played(self.knowledge, self.items, *CAREFULLY)

    def _rebuild(self, live: Live) -> None:
        """Let somebody profit from what was learnt, unless they are answering just now: then later."""
        history = live.history
        if history is None or live.conversation is None or live.conversation.knowledge is self.knowledge:
            return
        talk = Conversation.begin(self.knowledge, self.items, live.person, history.closed)
        outlook = look(talk) if talk.closed else None
        with live.lock:
            if live.history is history and len(talk.closed) == len(live.conversation.closed):
                live.conversation, live.outlook, live.prepared, live.enough = talk, outlook, {}, False
                if history.pending is not None:
                    self.background.add(PREPARE, partial(self._prepare, live, history.pending))
            else:
                self.background.add(REBUILD, partial(self._rebuild, live))
