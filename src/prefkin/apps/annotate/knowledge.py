"""What is known of people at one moment: a model, replaced as a whole when it has learnt more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from functools import partial

import numpy as np

from prefkin.apps.annotate.history import Answer, History
from prefkin.apps.annotate.items import Items
from prefkin.apps.annotate.store import Person
from prefkin.data.arrays import FloatArray
from prefkin.data.candidates import Candidates
from prefkin.data.comparisons import Comparisons
from prefkin.decide.belief import Belief
from prefkin.decide.population import Population
from prefkin.decide.session import ActiveSession
from prefkin.errors import InvalidComparisons, InvalidParameter
from prefkin.models.base import PreferenceModel

__all__ = ["NOBODY", "Fitted", "Knowledge", "answers_of", "difference"]

NOBODY = "\0"  # a name that nobody has
USUAL_MARGIN = 2.0  # before anything is known: log odds of a usual pair, so that seven of ten answers can be foreseen


class Knowledge:
    """A model, or none yet; sessions start from it, and each answer counts once whether or not it was fitted.

    >>> Knowledge(None).session("Zoe", Candidates([[[0.0], [1.0]]]), np.random.default_rng(0)).label
    'Zoe'
    """

    def __init__(self, model: PreferenceModel | None) -> None:
        self.model = model
        self._stranger: float | None = None
        users = [] if model is None else model.users_.tolist()
        self.fitted = Fitted({str(user): user for user in users}, None if model is None else model.comparisons)

    @property
    def labels(self) -> dict[str, Hashable]:
        """Whom the model knows, by their names as text."""
        return self.fitted.labels

    def session(self, name: str, candidates: Candidates, rng: np.random.Generator) -> ActiveSession:
        """Questions for somebody: as for anybody if they are not known, and otherwise from what is known of them.

        All follow a mixture, which keeps what it hears in rows and no d × d matrix for a person.
        """
        known = self.labels.get(name)
        if self.model is not None and self.model.has_posterior:
            label = name if known is None else None
            return self.model.session(known, candidates, rule="information", random_state=rng, label=label)
        belief = _anything(candidates) if self.model is None or known is None else self.model.belief(known)
        people = Population(np.ones(1), belief.mean[None], belief.covariance[None])
        return ActiveSession.of_newcomer(people, candidates, label=name, rng=rng)

    def stranger(self, candidates: Candidates) -> float:
        """The radius of what is believed about somebody who is not known."""
        if self._stranger is None:
            self._stranger = self.session(NOBODY, candidates, np.random.default_rng(0)).belief.radius
        return self._stranger


class Fitted:
    """The answers a model was fitted on: of one person, or (None) of everybody."""

    def __init__(self, labels: dict[str, Hashable], rows: Callable[[Hashable], Comparisons] | None = None) -> None:
        self.labels, self.rows = labels, rows

    def alone(self) -> Fitted:
        """The same without the model, which takes many times the memory."""
        if self.rows is None:
            return self
        try:
            return Fitted(self.labels, partial(_of_one, self.rows(None)))
        except InvalidParameter:
            return Fitted(self.labels, partial(_in_shards, self.rows))

    def unheard(self, name: str, items: Items, answers: Iterable[Answer]) -> list[bool]:
        """Of somebody's answers, which are new to the model? It may have been fitted on some of them."""
        known: Counter[bytes] = Counter()
        if self.rows is not None and name in self.labels:
            rows = self.rows(self.labels[name])
            known.update(_mark(row) for row in (2.0 * rows.y - 1.0)[:, None] * rows.Z)
        new = []
        for answer in answers:
            mark = _mark(difference(items, answer))
            new.append(known[mark] == 0)
            known[mark] -= known[mark] > 0
        return new

    def with_answers(self, items: Items, histories: dict[Person, History]) -> Comparisons | None:
        """Everything that can be learnt from by now: what the model was fitted on, and answers since."""
        old = None if self.rows is None else self.rows(None)
        Z, users = [], []
        for person, history in histories.items():
            answers = list(history.answers)
            for answer, new in zip(answers, self.unheard(person.name, items, answers), strict=True):
                if new:
                    Z.append(difference(items, answer))
                    users.append(person.name)
        if old is None and not Z:
            return None
        rows, weights = np.array(Z).reshape(-1, items.candidates.dim), np.ones(len(Z))
        won = np.arange(len(Z)) % 2  # sides by turns, so that "the first one always wins" is nothing to learn
        rows, who = np.where(won[:, None] == 1, rows, -rows), np.array(users, dtype=object)
        if old is not None:
            rows, won = np.concatenate([old.Z, rows]), np.concatenate([old.y, won])
            weights = np.concatenate([old.weights, weights])
            who = np.concatenate([np.array([str(label) for label in old.users], dtype=object), who])
        try:
            return Comparisons.from_arrays(rows, won, who.astype(str), weights=weights)
        except InvalidComparisons:  # nothing but pairs without a difference
            return None


def difference(items: Items, answer: Answer) -> FloatArray:
    """Features of what was chosen, minus those of the other."""
    actions, (chosen, other) = items.candidates.of(answer.question.context), answer.sides
    return actions[chosen] - actions[other]


def answers_of(histories: dict[Person, History]) -> int:
    """How many answers count, of everybody together."""
    return sum(history.answered for history in histories.values())


def _of_one(data: Comparisons, user: Hashable) -> Comparisons:
    """One user's rows, or with None all."""
    return data if user is None else data.take(data.users == user)


def _in_shards(rows: Callable[[Hashable], Comparisons], user: Hashable) -> Comparisons:
    if user is None:
        raise InvalidParameter(
            "a model of people in shards is not learnt again here; write the answers out (prefkin answers) and give "
            "them to prefkin update"
        )
    return rows(user)


def _mark(row: FloatArray) -> bytes:
    return (np.asarray(row, dtype=np.float64) + 0.0).tobytes()  # + 0: -0 and 0 are one number


def _anything(candidates: Candidates) -> Belief:
    """Before anything is known: any direction, as strong as preferences usually are about these pairs."""
    first = candidates.features[candidates.starts[:-1]]
    apart = candidates.features - np.repeat(first, candidates.sizes, axis=0)
    usual = float(np.sqrt(np.mean(np.sum(apart**2, axis=1)))) or 1.0
    return Belief(np.zeros(candidates.dim), USUAL_MARGIN / usual * np.eye(candidates.dim))
