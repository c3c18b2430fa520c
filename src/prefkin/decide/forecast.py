"""How many more answers it takes, and when there are enough.

A forecast asks the questions the session would ask, without hearing answers: each one adds the information that is
expected of it; of a newcomer, people who may be them rehearse the session. The stopping rule looks at what the user may
lose by being given the actions that seem best today.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.data.candidates import Candidates
from prefkin.decide.belief import Belief

__all__ = ["Enough", "Forecast", "forecast", "posterior_regrets"]

DRAWS_AT_ONCE = 2_000_000  # numbers
MOST_CONTEXTS = 500  # whose mean regret stands for that of all, within some percent
ROUNDING = 1e-9  # a target missed by this share is reached
_chosen: WeakKeyDictionary[Candidates, Candidates] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Forecast:
    """About how many more answers bring the radius to a share of what it is now."""

    answers: float  # infinity: not with these candidates
    now: float  # √tr C, the typical distance between estimate and truth
    target: float
    simulated: int  # questions played through
    path: FloatArray  # the radius after 0, 1, ... simulated questions

    @property
    def extrapolated(self) -> bool:
        """Is the answer further away than what was played through?"""
        return bool(self.answers > self.simulated)

    def __str__(self) -> str:
        goal = f"bring the radius from {self.now:.3g} to {self.target:.3g}"
        if np.isinf(self.answers):
            return f"no number of answers about these candidates would {goal}"
        how = f", extrapolated from {self.simulated}" if self.extrapolated else ""
        return f"about {self.answers:.0f} more answers{how} {goal}"


@dataclass(frozen=True)
class Enough:
    """Whether to stop asking: true when the best actions of today are good enough with the wanted probability."""

    reached: bool
    regret: float  # quantile of what today's best actions lose per context
    mean_regret: float
    tolerance: float
    level: float

    def __bool__(self) -> bool:
        return self.reached

    def __str__(self) -> str:
        verdict = "enough" if self.reached else "not enough yet"
        return (
            f"{verdict}: with probability {self.level:.0%} the best actions of today lose at most {self.regret:.3g} "
            f"per context (on average {self.mean_regret:.2g}); tolerated: {self.tolerance:g}"
        )


def forecast(radii: Iterator[float], share: float, cap: int) -> Forecast:
    """Ask until the radius is down to `share` of what it is, at most `cap` questions.

    `radii` are those after 0, 1, ... questions, as long as there is one to ask. Beyond the cap 1/radius², which grows
    steadily once every direction is asked about, goes on as in the second half of what was played.
    """
    now = next(radii)
    target, path = share * now, [now]
    enough = target * (1.0 + ROUNDING)
    while path[-1] > enough and len(path) <= cap:
        if (radius := next(radii, None)) is None:
            return Forecast(np.inf, now, target, len(path) - 1, np.array(path))
        path.append(radius)
    simulated, more = len(path) - 1, 0.0
    if path[-1] > enough:
        precision, half = 1.0 / np.square(path), simulated // 2
        pace = (precision[-1] - precision[half]) / max(simulated - half, 1)
        more = (1.0 / target**2 - precision[-1]) / pace if pace > 0 else np.inf
    return Forecast(float(np.ceil(simulated + more)), now, target, simulated, np.array(path))


def posterior_regrets(candidates: Candidates, belief: Belief, draws: int, rng: np.random.Generator) -> FloatArray:
    """What the best actions for the mean lose per context, for `draws` preferences from the belief.

    Of many contexts some are looked at, each as often as it occurs.

    >>> sure = Belief.from_information(np.array([1.0]), np.eye(1) * 1e12)
    >>> posterior_regrets(Candidates([[[0.0], [1.0]]]), sure, 3, np.random.default_rng(0)).tolist()
    [0.0, 0.0, 0.0]
    """
    drawn, candidates = belief.draws(draws, rng), _some_of(candidates)
    chosen = candidates.starts[:-1] + candidates.argmax(candidates.features @ belief.mean)
    lost = np.empty(draws)
    piece = max(1, DRAWS_AT_ONCE // len(candidates.features))
    for at in range(0, draws, piece):
        reward = candidates.features @ drawn[:, at : at + piece]
        best = np.maximum.reduceat(reward, candidates.starts[:-1], axis=0)
        lost[at : at + piece] = candidates.weights @ (best - reward[chosen])
    return lost


def _some_of(candidates: Candidates) -> Candidates:
    """Contexts at equal steps of their weight, chosen once for the same candidates."""
    if len(candidates) <= MOST_CONTEXTS:
        return candidates
    if candidates not in _chosen:
        steps = (np.arange(MOST_CONTEXTS) + 0.5) / MOST_CONTEXTS
        some = np.searchsorted(np.cumsum(candidates.weights), steps * candidates.weights.sum())
        _chosen[candidates] = Candidates([candidates.of(int(x)) for x in some])
    return _chosen[candidates]
