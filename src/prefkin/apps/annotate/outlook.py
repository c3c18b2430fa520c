"""How much longer it will take: by how it goes for people who are made up and answer as people do.

The stopping rule looks at what somebody may lose by being given what seems best today (`session.enough`). How fast that
falls is played through: newcomers are drawn from what is known about people, asked what the server would ask, and
answer at random as their preference says. A person who may lose as much as they did after ten answers is where they
were after ten.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from prefkin.apps.annotate.conversation import Conversation
from prefkin.apps.annotate.history import Asked
from prefkin.apps.annotate.items import Items
from prefkin.apps.annotate.knowledge import NOBODY, Knowledge
from prefkin.apps.annotate.store import Person
from prefkin.data.arrays import FloatArray, IntArray

__all__ = ["Course", "Outlook", "look"]

DRAWS = 100  # preferences by which the stopping rule judges
LOOKS = (0, 2, 5, 10, 15, 20, 30, 40)  # answers after which made-up people are judged
TINY = 1e-9  # log odds
FURTHEST = 300  # no forecast is good enough to say more


class Outlook(NamedTuple):
    """What one person may lose by stopping now."""

    regret: float  # per context, in log odds, with probability 95 %
    closed: int  # questions answered or skipped until then


def look(talk: Conversation) -> Outlook:
    """Judge what is known about one person."""
    return Outlook(talk.session.enough(draws=DRAWS).regret, len(talk.closed))


@dataclass(frozen=True, eq=False)
class Course:
    """How what may be lost falls with answers, for some people who are made up.

    >>> course = Course(np.array([0, 10, 20]), np.array([[4.0, 2.0, 1.0], [4.0, 1.0, 0.5]]))
    >>> course.answers(1.0).tolist(), course.answers(0.25).tolist()
    ([20.0, 10.0], [80.0, 40.0])
    >>> course.about(None, 5, 1.0), course.about(Outlook(2.0, 5), 5, 1.0), course.about(Outlook(0.5, 5), 5, 1.0)
    (10, 8, 0)
    """

    n: IntArray
    regret: FloatArray  # (people, looks), never rising

    @classmethod
    def played(cls, knowledge: Knowledge, items: Items, people: int, upto: int) -> Course:
        """By so many imagined people who give so many answers each."""
        looks, lost = [n for n in LOOKS if n <= upto], []
        for seed in range(people):
            rng = np.random.default_rng(seed)
            talk = Conversation.begin(knowledge, items, Person(seed, NOBODY), [])
            theta = talk.session.belief.draws(1, rng)[:, 0]
            path: list[float] = []
            for n in range(upto + 1):
                if n in looks:
                    path.append(look(talk).regret)
                if talk.pair is not None:
                    context, left, right = talk.pair
                    actions = items.candidates.of(context)
                    prefers_left = rng.random() < expit((actions[left] - actions[right]) @ theta)
                    talk = talk.after(Asked("", context, left, right), "left" if prefers_left else "right")
            lost.append(path)
        return cls(np.array(looks), np.minimum.accumulate(np.array(lost), axis=1))

    def answers(self, regret: float) -> FloatArray:
        """After how many answers each is down to this; beyond what was played it falls in proportion."""
        wanted, found = max(regret, TINY), np.empty(len(self.regret))
        for i, path in enumerate(np.maximum(self.regret, TINY)):
            found[i] = np.interp(-np.log(wanted), -np.log(path), self.n)
            if wanted < path[-1]:
                found[i] = self.n[-1] * path[-1] / wanted
        return np.minimum(found, FURTHEST)

    def about(self, outlook: Outlook | None, closed: int, tolerance: float) -> int:
        """So many more answers, roughly, for somebody who has answered or skipped `closed`; 0 when it is enough."""
        if outlook is None:
            return max(1, round(_from_here(self, np.inf, tolerance) - closed))
        if outlook.regret <= tolerance:
            return 0
        return max(1, round(_from_here(self, outlook.regret, tolerance) - (closed - outlook.closed)))


@lru_cache(maxsize=4096)
def _from_here(course: Course, regret: float, tolerance: float) -> float:
    """Answers that lead from one loss to another; remembered, since it is asked for with every page."""
    return float(np.median(course.answers(tolerance) - course.answers(regret)))
