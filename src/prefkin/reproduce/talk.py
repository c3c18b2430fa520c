"""Conversations of Experiment 2: a start, a query rule, and a way to listen.

| key             | starts from                   | asks                   | listens by                     |
|-----------------|-------------------------------|------------------------|--------------------------------|
| a2_off_c2pl     | Off-C²PL's neighbourhood      | least covered          | refit, θ̄ of Algorithm 2        |
| off_c2pl_random | the same                      | any pair               | the same                       |
| apo             | nothing                       | least covered          | refit, plain average (APO)     |
| own_coverage    | the user's own rows           | least covered          | refit, θ̄                       |
| pdc_coverage    | the user's own rows, one pass | least covered          | one-pass update, constant time |
| prefkin         | PrefKin's posterior           | most informative       | posterior mode                 |
| prefkin_random  | PrefKin's posterior           | any pair               | posterior mode                 |

The threshold γ̂ of Off-C²PL is chosen by held-out answers, as in Experiment 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from prefkin.data.arrays import FloatArray
from prefkin.data.rows import Rows
from prefkin.decide.belief import Belief
from prefkin.decide.rules.coverage import LeastCovered
from prefkin.decide.rules.pairs import Pairs
from prefkin.decide.session import ActiveSession
from prefkin.errors import InvalidParameter, SessionError
from prefkin.inference.information import information_matrix
from prefkin.inference.loss import moderated
from prefkin.models.off_c2pl.radius import KAPPA_UNIT_BALL
from prefkin.models.prefkin.estimator import PrefKin
from prefkin.reproduce.contracts import Estimate, Study, method
from prefkin.reproduce.methods.pdc import OnePass, constants
from prefkin.reproduce.worlds.world import NO_ANSWER, Pool

__all__ = ["TALKERS", "Talker", "converse"]

Heard = tuple[FloatArray, Callable[[FloatArray], FloatArray]]  # estimate, and probability of "first" for rows Z


@dataclass(frozen=True)
class Talker:
    """A row of Experiment 2's tables."""

    label: str
    origin: str
    start: str  # "off_c2pl", "own", "nothing", "prefkin"
    rule: str
    listens: str  # "average", "plain average", "one pass", "posterior"


TALKERS = {
    "a2_off_c2pl": Talker("A²-Off-C²PL, γ̂ by held-out answers", "paper", "off_c2pl", "coverage", "average"),
    "off_c2pl_random": Talker("Off-C²PL start, random pairs", "paper", "off_c2pl", "random", "average"),
    "apo": Talker("APO (no offline data)", "paper", "nothing", "coverage", "plain average"),
    "own_coverage": Talker("own rows, least covered pairs", "rival", "own", "coverage", "average"),
    "pdc_coverage": Talker("PDC, constant-time updates", "paper", "own", "coverage", "one pass"),
    "prefkin": Talker("PrefKin, its own questions", "ours", "prefkin", "posterior", "posterior"),
    "prefkin_random": Talker("PrefKin, random pairs", "ours", "prefkin", "random", "posterior"),
}


def converse(key: str, study: Study, user: int, pool: Pool, stops: list[int]) -> Iterator[tuple[int, Heard]]:
    """Ask until the last stop; at each stop what is known by then. A pool that runs dry leaves the last state."""
    if key not in TALKERS:
        raise InvalidParameter(f"no talker {key!r}; there are {', '.join(TALKERS)}")
    talker = TALKERS[key]
    if talker.listens == "one pass":
        listener: _OnePassListener | _SessionListener = _OnePassListener(study, user, pool)
    else:
        listener = _SessionListener(talker, study, user, pool, study.rng(f"{key} {user}"))
    asked, dry = 0, False
    for stop in stops:
        while asked < stop and not dry:
            try:
                listener.question(pool)
            except SessionError:
                dry = True
            asked += 1
        yield stop, listener.known()


class _SessionListener:
    """An `ActiveSession`, whose answers come from the pool."""

    def __init__(self, talker: Talker, study: Study, user: int, pool: Pool, rng: np.random.Generator) -> None:
        self.talker, self.answered, self.total = talker, 0, np.zeros(study.rows.dim)
        self.session = _session(talker, study, user, pool, rng)

    def question(self, pool: Pool) -> None:
        """Until somebody knows an answer."""
        while True:
            question = self.session.ask()
            answer = int(pool.answers[question.context, question.first, question.second])
            if answer != NO_ANSWER:
                break
            self.session.skip(question)
        self.session.tell(question, bool(answer))
        self.answered += 1
        self.total += self.session.theta

    def known(self) -> Heard:
        """APO averages plainly; Algorithm 2 weighs; a posterior moderates its probabilities."""
        if self.talker.listens == "plain average" and self.answered:
            theta = self.total / self.answered
        else:
            theta = self.session.preference
        if self.talker.listens != "posterior":
            return theta, lambda Z: expit(Z @ theta)
        covariance = self.session.belief.covariance
        return theta, lambda Z: expit(moderated(Z @ theta, np.einsum("ij,ij->i", Z @ covariance, Z)))


def _session(talker: Talker, study: Study, user: int, pool: Pool, rng: np.random.Generator) -> ActiveSession:
    if talker.start == "prefkin":
        model: PrefKin = study.once("prefkin", lambda: PrefKin(n_jobs=1, random_state=0).fit(study.data))
        return model.session(user, pool.candidates, rule=talker.rule, random_state=rng)
    own = study.rows.of(user)
    if talker.start == "nothing":
        rows_known, theta = Rows(own.Z[:0], own.y[:0], own.weights[:0]), np.zeros(study.rows.dim)
    elif talker.start == "own":
        rows_known, theta = own, study.own[user]
    else:
        estimate: Estimate = study.once("off_c2pl", lambda: method("off_c2pl").run(study))
        rows_known, theta = study.rows.of_many(estimate.members[user]), estimate.theta[user]
    return ActiveSession(
        rows_known,
        pool.candidates,
        theta=theta,
        ridge=study.ridge,
        kappa=KAPPA_UNIT_BALL,
        rule=talker.rule,
        rng=rng,
        user=user,
    )


class _OnePassListener:
    """The paper's rule for questions, PDC's update for answers: nothing is refitted."""

    def __init__(self, study: Study, user: int, pool: Pool) -> None:
        own = study.rows.of(user)
        self.listener = OnePass(study.rows.dim, **constants(study))
        self.listener.hear_all(own.Z, own.y)
        information = information_matrix(own, ridge=study.ridge, kappa=KAPPA_UNIT_BALL)
        self.start = Belief.from_information(self.listener.theta, information)
        self.rule = LeastCovered(pool.candidates, self.start, np.random.default_rng(0))
        self.closed = Pairs()

    def question(self, pool: Pool) -> None:
        """Until somebody knows an answer."""
        while True:
            found = self.rule.pick(self.closed, lambda: self.start)
            if found is None:
                raise SessionError("all pairs have been asked")
            self.closed.add(found)
            answer = int(pool.answers[found.context, found.first, found.second])
            if answer != NO_ANSWER:
                break
        actions = pool.candidates.of(found.context)
        z = actions[found.first] - actions[found.second]
        self.rule.heard(z)
        self.listener.hear(z[None], np.array([float(answer)]))

    def known(self) -> Heard:
        """The last iterate."""
        theta = self.listener.theta.copy()
        return theta, lambda Z: expit(Z @ theta)
