"""A²-Off-C²PL for one user (Algorithm 2): ask about a pair, hear the answer, know more.

The session is a conversation: a simulation, the command line and a page can drive the same object, and its state can
be written down after every answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import islice
from numbers import Integral
from operator import index
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

import numpy as np
from scipy.linalg import eigvalsh
from scipy.special import expit

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.data.digest import digest
from prefkin.data.rows import Rows
from prefkin.data.storage import label_to_json
from prefkin.decide.belief import Belief
from prefkin.decide.forecast import Enough, Forecast, forecast, posterior_regrets
from prefkin.decide.listeners import Likelihood, Listener, Mixture, Posterior
from prefkin.decide.population import Population
from prefkin.decide.rules import QueryRule, rule_named
from prefkin.decide.rules.pairs import Pairs, Question
from prefkin.decide.states import STATE_VERSION, UNDO, answers_of, fingerprint, read_state, sealed, write_state
from prefkin.errors import InvalidParameter, SessionError
from prefkin.execution.blas import in_one_order, single_threaded

__all__ = ["ActiveSession", "Settings"]

PLAYS = 6  # people who rehearse a newcomer's session
LONGEST_PLAY = 40  # questions
PLAYED_CONTEXTS = 200
_ANY_SEED = np.random.SeedSequence(0)


class Settings(TypedDict, total=False):
    """How a session is held, whatever it starts from."""

    repeat: bool  # may a pair that was answered be asked again? Not unless it is said
    rng: np.random.Generator  # from which rule "random" draws
    user: Hashable  # None: a newcomer
    label: Hashable  # what to call a newcomer
    model: str  # by which a saved session recognises where it came from


class ActiveSession:
    """Questions for one user, starting from what the user's neighbours already answered.

    Made by `model.session(user, candidates)`.

    >>> import numpy as np
    >>> from prefkin import Candidates, OffC2PL
    >>> Z, y = np.array([[1.0, 0.0], [0.5, 0.1], [1.0, 0.1]]), [1, 1, 0]
    >>> model = OffC2PL(gamma=0.0).fit(Z, y, users=["ann"] * 3)
    >>> session = model.session("ann", Candidates([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]))
    >>> question = session.ask()                       # the second feature is the one nobody covered
    >>> (question.first, question.second)
    (1, 2)
    >>> session.tell(question, True)
    >>> session.n_answers
    1
    """

    def __init__(
        self,
        rows: Rows,
        candidates: Candidates,
        *,
        theta: FloatArray,
        ridge: float,
        kappa: float,
        rule: str = "coverage",
        **settings: Unpack[Settings],
    ) -> None:
        with single_threaded():
            self._open(Likelihood(rows, theta, ridge=ridge, kappa=kappa), candidates, rule, **settings)

    @classmethod
    def from_belief(
        cls,
        prior: Belief,
        candidates: Candidates,
        *,
        habit: float = 0.0,
        rule: str = "posterior",
        **settings: Unpack[Settings],
    ) -> Self:
        """A session that starts from a posterior instead of rows, and follows the posterior from there.

        habit : log odds by which this user takes the first side, whatever is on it
        """
        return cls._of(Posterior(prior, habit), candidates, rule, **settings)

    @classmethod
    def of_newcomer(
        cls, population: Population, candidates: Candidates, *, rule: str = "information", **settings: Unpack[Settings]
    ) -> Self:
        """A session with somebody of whom nothing is known but that they are one of this population."""
        return cls._of(Mixture(population), candidates, rule, **settings)

    @classmethod
    def _of(cls, listener: Listener, candidates: Candidates, rule: str, **settings: Unpack[Settings]) -> Self:
        session = cls.__new__(cls)
        session._open(listener, candidates, rule, **settings)
        return session

    @in_one_order
    def _open(
        self,
        listener: Listener,
        candidates: Candidates,
        rule: str,
        repeat: bool = False,
        rng: np.random.Generator | None = None,
        user: Hashable = None,
        label: Hashable = None,
        model: str = "",
    ) -> None:
        if candidates.dim != (dim := len(listener.start.mean)):
            raise SessionError(f"the candidates have {candidates.dim} features, the model has {dim}")
        self.user, self.label = user, user if label is None else label
        self.candidates, self.rule, self.repeat = candidates, rule, repeat
        self.listener = listener
        self.log: list[tuple[Question, bool | None]] = []  # None: skipped
        self._history: list[Any] = []  # the same as plain values, and what was taken back
        self._model = model
        self._closed = Pairs()
        self._pending: Question | None = None
        self._rng = np.random.default_rng() if rng is None else rng
        if not isinstance(self._rng.bit_generator, np.random.PCG64):  # whose state is plain numbers, as a file needs
            self._rng = np.random.default_rng(int(self._rng.integers(2**63)))
        self._rule: QueryRule = rule_named(rule)(candidates, listener.start, self._rng)

    def __repr__(self) -> str:
        left = "" if self.repeat else ", no pair twice"
        who = f"newcomer {self.label!r}" if self.user is None else f"user {self.user!r}"
        return f"ActiveSession({who}, {self.n_answers} answers, rule {self.rule!r}{left})"

    # -- the conversation ------------------------------------------------------------------------------------------

    @in_one_order
    def ask(self) -> Question:
        """The next question; the same one until it is answered or skipped  [paper: query]."""
        if (question := self._next()) is None:
            n = len(self.candidates)
            if not self.log:
                raise SessionError(f"none of the {n} contexts has two different actions; give more candidates")
            more = "" if self.repeat else ", or allow repeats with repeat=True"
            raise SessionError(f"all pairs of the {n} contexts have been asked; give more candidates{more}")
        return question

    def _next(self) -> Question | None:
        """The question that is open, or the next one of the rule."""
        if self._pending is None:
            self._pending = self._rule.pick(self._closed, lambda: self.belief)
        return self._pending

    @in_one_order
    def tell(self, question: Question, prefers_first: bool) -> None:
        """Take an answer: True when the first action was preferred. Refits on all that is known  [paper: theta_n]."""
        _refuse_other_answers([prefers_first])
        question = self._check(question)
        z = self.difference(question)
        self.listener.hear(z, float(prefers_first))  # interrupted, it leaves everything as it was
        self._note(question, z, bool(prefers_first))

    @in_one_order
    def tell_all(self, questions: Sequence[Question], answers: Sequence[bool]) -> None:
        """Take the answers to several questions, such as those of `plan`: checked together, then heard."""
        if len(questions) != len(answers):
            raise SessionError(f"{len(answers)} answers to {len(questions)} questions; give one for each")
        _refuse_other_answers(answers)
        asked = [self._check(question) for question in questions]
        if not self.repeat and len({(q.context, q.pair) for q in asked}) < len(asked):
            raise SessionError(
                "a pair occurs twice among the questions; ask it once, or allow repeats with repeat=True"
            )
        if isinstance(self.listener, Mixture) and asked:
            Z = np.array([self.difference(question) for question in asked])
            self.listener.hear_all(Z, np.array(answers, dtype=np.float64))
            for question, z, answer in zip(asked, Z, answers, strict=True):
                self._note(question, z, bool(answer))
            return
        for question, answer in zip(asked, answers, strict=True):
            self.tell(question, answer)

    def skip(self, question: Question) -> None:
        """No answer: nothing is learnt, and this pair is not asked again."""
        question = self._check(question)
        self._closed.add(question)
        self._record(question, None)

    @in_one_order
    def undo(self) -> Question:
        """Take back the last answer or skip, as if it had not been given; its question is the next one.

        >>> from prefkin import Candidates, OffC2PL
        >>> model = OffC2PL(gamma=0.0).fit(np.eye(2), [1, 0])
        >>> session = model.session(0, Candidates([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]))
        >>> session.tell(session.ask(), True)
        >>> session.undo() == session.ask(), session.n_answers
        (True, 0)
        """
        if not self.log:
            raise SessionError("there is no answer to take back")
        kept, (question, undone) = self.log[:-1], self.log[-1]
        listener = self.listener if undone is None else self.listener.without_last()
        rule, closed = rule_named(self.rule)(self.candidates, listener.start, self._rng), Pairs()
        for past, answer in kept:
            if answer is None or not self.repeat:
                closed.add(past)
            if answer is not None:
                rule.heard(self.difference(past))
        self.listener, self._rule, self._closed, self.log, self._pending = listener, rule, closed, kept, question
        self._history.append(UNDO)
        return question

    @in_one_order
    def plan(self, n: int) -> list[Question]:
        """The next `n` questions, as asking one at a time would give them; fewer when pairs run out.

        Only for rules that read no answers: the whole questionnaire is then known beforehand.
        """
        if self._rule.reads_answers:
            raise SessionError(
                f"rule {self.rule!r} reads the answers, so its questions cannot be planned; ask() instead"
            )
        if not isinstance(n, Integral) or n < 0:
            raise InvalidParameter(f"n must be a whole number of at least 0; got {n!r}")
        return list(islice(self._upcoming(lambda: self.belief), int(n)))

    def _upcoming(self, now: Callable[[], Belief]) -> Iterator[Question]:
        """Questions that the rule would ask, as long as pairs are left; `now()` is what is known by then."""
        rule, closed, question = self._rule.copy(_same_stream(self._rng)), self._closed.copy(), self._pending
        while question := question or rule.pick(closed, now):
            yield question
            if not self.repeat:
                closed.add(question)
            rule.heard(self.difference(question))
            question = None

    def difference(self, question: Question) -> FloatArray:
        """z = φ(x, a) − φ(x, a′) of a question."""
        actions = self.candidates.of(question.context)
        return actions[question.first] - actions[question.second]

    # -- what is known -----------------------------------------------------------------------------------------------

    @property
    def n_answers(self) -> int:
        """N: answers heard so far, without those skipped."""
        return self.listener.n_answers

    @property
    def theta(self) -> FloatArray:
        """θ̃ᴺ: the estimate from neighbours' rows and all answers  [paper: theta_n]."""
        return self.listener.theta.copy()

    @property
    @in_one_order
    def information(self) -> FloatArray:
        """M̃ᴺ, shape (d, d); with a posterior to start from, the precision of the posterior now."""
        return self.listener.information[1]

    @property
    @in_one_order
    def eigenvalues(self) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues of the information before the first question and now, each from the smallest."""
        before, now = self.listener.information
        return eigvalsh(before), eigvalsh(now)

    @property
    @in_one_order
    def belief(self) -> Belief:
        """N(theta, H⁻¹): where the preference lies by now, H the Hessian of prior or ridge, rows and answers.

        Of a newcomer a mixture over groups (`chance`, `means`), and as mean and covariance those of the mixture.
        """
        return self.listener.belief

    @property
    @in_one_order
    def preference(self) -> FloatArray:
        """θ̄: the last estimate weighted by d·λ_min(M̃ᴺ), every estimate on the way by 1  [paper: theta_bar].

        With a posterior to start from, the last estimate: it forgets nothing, so there is nothing to average.
        """
        return self.listener.preference

    def best_actions(self, candidates: Candidates | None = None) -> IntArray:
        """The greedy action of θ̄ in each context: Algorithm 2's output."""
        shown = self.candidates if candidates is None else candidates
        return shown.argmax(shown.features @ self.preference)

    # -- how much longer -----------------------------------------------------------------------------------------------

    @in_one_order
    def forecast(self, share: float = 0.5, cap: int = 200) -> Forecast:
        """About how many more answers bring the radius √tr C down to `share` of what it is now.

        Plays the questions that this session's rule would ask if the estimate stayed where it is, each adding the
        information expected of its answer; at most `cap` of them, the rest is extrapolated. While somebody may belong
        to several groups, a few people who may be them answer instead.

        >>> from prefkin import Candidates, OffC2PL
        >>> model = OffC2PL(gamma=0.0).fit(np.eye(2), [1, 0])
        >>> session = model.session(0, Candidates([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]), repeat=True)
        >>> print(session.forecast())
        about 37 more answers bring the radius from 1.27 to 0.635
        """
        if not 0 < share < 1:
            raise SessionError(f"share must be between 0 and 1, for example 0.5 to halve; got {share!r}")
        if isinstance(self.listener, Mixture):
            return forecast(self._rehearsed(), share, min(cap, LONGEST_PLAY))
        return forecast(self._expected(), share, cap)

    def _expected(self) -> Iterator[float]:
        """The radius, and after each question that the rule would ask, with the information expected of its answer."""
        known = self.belief
        questions = self._upcoming(lambda: known)
        yield known.radius
        for question in questions:
            z = self.difference(question)
            known = known.heard(z, known.expected_slope(z))
            yield known.radius

    def _rehearsed(self) -> Iterator[float]:
        """The same from people who may be the one of this session, and answer: the root mean square of their radii."""
        rng = np.random.default_rng(0)
        likely = self.listener.belief.draws(PLAYS, rng).T
        for radii in zip(*(self._played(theta, rng) for theta in likely), strict=False):  # until one has no pair left
            yield float(np.sqrt(np.mean(np.square(radii))))

    def _played(self, theta: FloatArray, rng: np.random.Generator) -> Iterator[float]:
        """Somebody with this preference answers, about some of the contexts left: the radius before and after each."""
        shown, touched = self.candidates, self._closed.touched()
        left = np.setdiff1d(np.flatnonzero(shown.sizes > 1), [] if self.repeat else touched)
        left = left if len(left) else np.arange(len(shown))
        some = np.sort(rng.choice(left, min(len(left), PLAYED_CONTEXTS), replace=False))
        few = Candidates([shown.of(x) for x in some])
        play = self._of(self.listener.copy(), few, self.rule, repeat=self.repeat, rng=rng)
        yield play.belief.radius
        for question in iter(play._next, None):
            likely = expit(float(play.difference(question) @ theta))
            play.tell(question, bool(rng.random() < likely))
            yield play.belief.radius

    @in_one_order
    def enough(self, tolerance: float = 0.1, level: float = 0.95, draws: int = 1000, random_state: Any = 0) -> Enough:
        """Is what is known good enough to stop asking?

        Yes when, with posterior probability `level`, taking the action that looks best in each context loses at most
        `tolerance` per context against knowing the preference. Losses are in log odds: an action that loses 0.1 would
        be preferred to the best one with probability 0.475. The posterior is N(theta, H⁻¹), by `draws` from it.

        >>> from prefkin import Candidates, OffC2PL
        >>> model = OffC2PL(gamma=0.0).fit(np.eye(2), [1, 0])
        >>> session = model.session(0, Candidates([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]), repeat=True)
        >>> bool(session.enough(tolerance=0.1)), bool(session.enough(tolerance=10.0))
        (False, True)
        """
        if not tolerance > 0:
            raise SessionError(f"tolerance must be above 0; got {tolerance!r}")
        if not 0 < level < 1:
            raise SessionError(f"level must be between 0 and 1; got {level!r}")
        rng = np.random.default_rng(random_state)
        lost = posterior_regrets(self.candidates, self.belief, draws, rng)
        regret = float(np.quantile(lost, level))
        return Enough(regret <= tolerance, regret, float(lost.mean()), float(tolerance), float(level))

    def copy(self) -> Self:
        """A session that goes on from here without changing this one: to look ahead at what an answer would do.

        >>> from prefkin import Candidates, OffC2PL
        >>> model = OffC2PL(gamma=0.0).fit(np.eye(2), [1, 0])
        >>> session = model.session(0, Candidates([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]))
        >>> ahead = session.copy()
        >>> ahead.tell(ahead.ask(), True)
        >>> session.n_answers, ahead.n_answers
        (0, 1)
        """
        other = copy(self)
        other._rng = _same_stream(self._rng)
        other.listener, other._rule = self.listener.copy(), self._rule.copy(other._rng)
        other.log, other._history, other._closed = list(self.log), list(self._history), self._closed.copy()
        return other

    # -- writing it down ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that is needed to go on later, as plain JSON values."""
        return sealed(
            {
                "prefkin_session": STATE_VERSION,
                "user": label_to_json(self.user),
                "label": label_to_json(self.label),
                "rule": self.rule,
                "repeat": self.repeat,
                "log": list(self._history),
                "pending": self._pending and [self._pending.context, self._pending.first, self._pending.second],
                "rng": self._rng.bit_generator.state,
                "fingerprint": self._fingerprint,
                **self.listener.state(),
            }
        )

    def save(self, path: str | Path) -> None:
        """Write the state as JSON; the file is replaced as a whole or not at all.

        A file with answers that this session has not heard, because another program went on with it, is not replaced.
        """
        write_state(Path(path), self.state())

    @in_one_order
    def restore(self, state: dict[str, Any]) -> None:
        """Bring a session that has heard nothing yet to a saved state."""
        if self.log:
            raise SessionError("this session has already begun; restore into a new one")
        state = read_state(state)
        old = state["prefkin_session"] != STATE_VERSION
        if not old and state.get("fingerprint") != self._fingerprint:
            raise SessionError(
                "the saved session was about another user, or other candidates, data or parameters; "
                "open it with the same ones"
            )
        try:
            self._replay(state, old)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
            raise SessionError(f"the saved session is damaged ({error!r:.80}); it cannot be continued") from None

    def _replay(self, state: dict[str, Any], old: bool) -> None:
        answered: list[tuple[FloatArray, float]] = []
        for context, first, second, answer in answers_of(state["log"]):
            question = self._check(Question(context, first, second))
            if answer is None:
                self.skip(question)
            elif answer in (True, False):
                answered.append((self.difference(question), float(answer)))
                if old:
                    self.listener.hear(*answered[-1])
                self._note(question, answered[-1][0], bool(answer))
            else:
                raise ValueError(f"an answer is {answer!r}")
        if old:  # they do not say about whom they are: what they learnt does
            self.listener.compare(state)
        else:
            Z = np.array([z for z, _ in answered]).reshape(-1, self.candidates.dim)
            self.listener.restore(Z, np.array([answer for _, answer in answered]), state)
        self._rng.bit_generator.state = state["rng"]
        if state["pending"]:
            self._pending = self._check(Question(*state["pending"]))
        self._history = list(state["log"])

    # -- inside ------------------------------------------------------------------------------------------------------

    @cached_property
    def _fingerprint(self) -> str:
        """About whom and what this session is, and by which model."""
        model = self._model or digest(*self.listener.identity())
        return fingerprint(model, self.user, self.label, self.candidates)

    def _note(self, question: Question, z: FloatArray, answer: bool) -> None:
        if not self.repeat:
            self._closed.add(question)
        self._rule.heard(z)
        self._record(question, answer)

    def _record(self, question: Question, answer: bool | None) -> None:
        self.log.append((question, answer))
        self._history.append([question.context, question.first, question.second, answer])
        pending = self._pending
        if pending is not None and (pending.context, pending.pair) == (question.context, question.pair):
            self._pending = None

    def _check(self, question: Question) -> Question:
        """The question in plain integers, if it can be asked here."""
        try:
            x, i, j = index(question.context), index(question.first), index(question.second)
        except (AttributeError, TypeError):
            raise SessionError(f"{question!r:.60} is not a question; answer what ask() or plan() returned") from None
        if not (0 <= x < len(self.candidates) and i != j and min(i, j) >= 0 and max(i, j) < self.candidates.sizes[x]):
            raise SessionError(f"{question} is not about two different actions of one of the candidates' contexts")
        if question in self._closed:
            raise SessionError(f"{question} has been answered or skipped already")
        return Question(x, i, j, question.score)


def _same_stream(rng: np.random.Generator) -> np.random.Generator:
    """A generator that will draw the same; a fifth of what a deep copy takes."""
    bits: np.random.BitGenerator = np.random.PCG64(_ANY_SEED)
    bits.state = rng.bit_generator.state
    return np.random.Generator(bits)


def _refuse_other_answers(answers: Sequence[Any]) -> None:
    for answer in answers:
        if not isinstance(answer, bool | np.bool_ | int) or answer not in (True, False):
            raise SessionError(f"an answer is True or False; got {answer!r} (to pass, use skip)")
