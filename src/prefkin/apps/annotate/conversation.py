"""One person's session: which pair to ask about next.

Every question is chosen among a pool of contexts, all of them or so many that a question is chosen in milliseconds.
There are a few such pools, so that people see different parts of the items and still share what is computed once for a
pool. A conversation is never changed after its next pair is known; what comes
after an answer is a copy, so that both possible answers can be prepared while the person reads.
"""

from __future__ import annotations

from copy import copy
from functools import lru_cache

import numpy as np

from prefkin.apps.annotate.history import Answer, Asked
from prefkin.apps.annotate.items import Items
from prefkin.apps.annotate.knowledge import Knowledge
from prefkin.apps.annotate.store import Person
from prefkin.data.arrays import IntArray, above_zero
from prefkin.data.candidates import Candidates
from prefkin.decide.rules.pairs import Question
from prefkin.errors import SessionError

__all__ = ["Conversation", "Pair"]

POOL_NUMBERS = 50_000  # pairs × features of a pool: its pairs are scored in a millisecond
SMALLEST_POOL = 150  # contexts
POOLS = 8

Pair = tuple[int, int, int]  # context and two actions, positions in the items


class Conversation:
    """A session over a pool of the items, with everything a person has answered."""

    def __init__(
        self, knowledge: Knowledge, items: Items, person: Person, closed: list[Answer], wider: int = 1
    ) -> None:
        self.knowledge, self.items, self.person, self.wider = knowledge, items, person, wider
        self.closed = list(closed)
        self.seen: set[Pair] = set()
        self.pool, candidates = _pool(items.candidates, person.id % POOLS, wider)
        if not {answer.question.context for answer in closed} <= set(self.pool.tolist()):
            self.pool, candidates = np.arange(len(items.candidates)), items.candidates
        self.place = {context: i for i, context in enumerate(self.pool.tolist())}
        self.session = knowledge.session(person.name, candidates, np.random.default_rng(person.id))
        self._hear(closed)
        self.pair = self._next()

    @classmethod
    def begin(cls, knowledge: Knowledge, items: Items, person: Person, closed: list[Answer]) -> Conversation:
        """From what was answered up to now, with a pool that is wide enough."""
        talk = cls(knowledge, items, person, closed)
        while talk.pair is None and len(talk.pool) < len(items.candidates):
            talk = cls(knowledge, items, person, closed, 2 * talk.wider)
        return talk

    def after(self, asked: Asked, choice: str) -> Conversation:
        """What comes after this answer (or "skip"); this conversation stays as it is."""
        later = copy(self)
        later.session = self.session.copy()
        later.seen, later.closed = set(self.seen), [*self.closed, Answer(asked, choice, None, 0.0)]
        later._close(asked, choice)
        later.pair = later._next()
        if later.pair is None and len(self.pool) < len(self.items.candidates):
            return self.begin(self.knowledge, self.items, self.person, later.closed)
        return later

    def _hear(self, closed: list[Answer]) -> None:
        """Everything up to now; answers that the model was fitted on are only not asked about again."""
        answers = [answer for answer in closed if answer.choice != "skip"]
        new = iter(self.knowledge.fitted.unheard(self.person.name, self.items, answers))
        heard: list[tuple[Question, bool]] = []
        for answer in closed:
            asked, taught = answer.question, answer.choice != "skip" and next(new)
            if taught and asked.pair not in self.seen:
                self.seen.add(asked.pair)
                heard.append((self._question(asked), answer.choice == "left"))
            else:
                self._close(asked, "skip")
        self.session.tell_all([question for question, _ in heard], [answer for _, answer in heard])

    def _question(self, asked: Asked) -> Question:
        return Question(self.place[asked.context], asked.left, asked.right)

    def _close(self, asked: Asked, choice: str) -> None:
        """Hear an answer; a pair that is asked again tells how sure a person is, and is not learnt from twice."""
        if asked.pair in self.seen:
            return
        self.seen.add(asked.pair)
        question = self._question(asked)
        if choice == "skip":
            self.session.skip(question)
        else:
            self.session.tell(question, choice == "left")

    def _next(self) -> Pair | None:
        try:
            question = self.session.ask()
        except SessionError:  # every pair has been asked
            return None
        return int(self.pool[question.context]), question.first, question.second

    def doubt(self) -> float:
        """The radius of what is believed, as a share of that of what is believed about somebody unknown."""
        return self.session.belief.radius / above_zero(self.knowledge.stranger(self.items.candidates))


@lru_cache(maxsize=4 * POOLS)
def _pool(candidates: Candidates, number: int, wider: int) -> tuple[IntArray, Candidates]:
    """Some contexts and their actions, another selection for each number; all where these are few.

    >>> pool, some = _pool(Candidates(np.ones((1000, 2, 768))), 1, 1)
    >>> len(pool), some
    (150, Candidates(150 contexts, 2 to 2 actions each, 768 features))
    """
    pairs = float(np.mean(candidates.sizes * (candidates.sizes - 1) / 2)) or 1.0
    size = wider * max(SMALLEST_POOL, int(POOL_NUMBERS / (pairs * candidates.dim)))
    if size >= len(candidates):
        return np.arange(len(candidates)), candidates
    pool = np.sort(np.random.default_rng(number).permutation(len(candidates))[:size])
    return pool, Candidates([candidates.of(x) for x in pool], candidates.weights[pool])
