"""How alike these people are, in words: what was found, how sure that is, and what it means for an estimate."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from prefkin.data.arrays import FloatArray, LabelArray
from prefkin.data.checks import feature_matrix, refuse_gaps
from prefkin.errors import InvalidComparisons
from prefkin.inference.loss import moderated

__all__ = ["Alike", "Explanation", "FoldedIn", "Summary", "counted", "strength"]

SAYING = {
    "groups": "they form groups that want the same",
    "by degrees": "they differ by degrees: no groups; each leans on what all share, as far as own answers leave open",
    "one group": "they want the same, as far as these answers tell: everybody's comparisons are used for everybody",
    "unrelated": "they have little in common: each user's estimate rests on their own comparisons",
    "neighbourhoods": "they share comparisons with some others each",
}
GROUPS_NAMED = 8
NEARLY_ONE = 0.2  # log temperature that is not worth a line
STRENGTHS = ((1.0, "hardly any"), (3.0, "some"), (5.0, "strong"), (np.inf, "very strong"))


class Alike(NamedTuple):
    """Two people who are each other's closest."""

    one: Hashable
    other: Hashable
    agreement: float  # share of pairs like those asked in which both would rather take the same
    probability: float  # that they are closer than one of them is to somebody picked at random


@dataclass(frozen=True)
class Summary:
    """A fit in a few numbers; `print` says them in words."""

    structure: str
    n_users: int
    n_comparisons: float
    n_features: int
    sizes: tuple[int, ...]  # of the groups, largest first
    alone: int  # users who stand alone
    uncertain: int | None  # users whose place is less than 90 % sure; None: the method does not say
    from_others: float  # share of an estimate that comes from others, mean over users
    evidence: float | None  # log evidence of groups over differing by degrees, where it was weighed
    first_side: tuple[float, float] | None = None  # log odds of taking the first side: mean, and spread between users
    over_pooled: tuple[float, float] | None = None  # held-out log-loss below everybody pooled, its error; where asked
    groups: tuple[str, ...] = ()  # in a few words each, largest first
    alike: tuple[Alike, ...] = ()  # where there are no groups: the closest people, closest first
    temperature: float | None = None  # factor on log odds that held-out answers ask for, where a method has one

    @property
    def pooled_will_do(self) -> bool:
        """Did one model for everybody predict held-out answers as well, within two standard errors?"""
        return self.over_pooled is not None and bool(self.over_pooled[0] <= 2.0 * self.over_pooled[1])

    def __str__(self) -> str:
        lines = [
            f"{counted(self.n_users, 'user')}, {counted(self.n_comparisons, 'comparison')}, "
            f"{counted(self.n_features, 'feature')}: "
            f"{SAYING[self.structure] if self.n_users > 1 else 'nobody to lean on'}"
        ]
        if self.first_side is not None:
            mean, spread = self.first_side
            lines.append(
                f"the first side is taken whatever is on it with log odds {mean:+.2f} (+- {spread:.2f} between "
                "users); preferences are without that habit"
            )
        if self.n_users == 1:
            return "\n".join(lines)
        if self.evidence is not None and np.isfinite(self.evidence):
            words = f"{strength(self.evidence)} (log evidence over differing by degrees {self.evidence:+.1f})"
            lines.append(f"evidence: {words}")
        if self.over_pooled is not None:
            gain, error = self.over_pooled
            lines.append(
                "one model for everybody would do as well, and is simpler: on answers held out it loses "
                f"{gain:.4f} +- {error:.4f} of log-loss"
                if self.pooled_will_do
                else f"on answers held out, log-loss is {gain:.4f} +- {error:.4f} below that of one model for everybody"
            )
        if self.temperature is not None and abs(np.log(self.temperature)) > NEARLY_ONE:
            direction = "less" if self.temperature < 1.0 else "more"
            lines.append(
                f"held-out answers are {direction} predictable than the fit expects: log odds are multiplied by "
                f"{self.temperature:.2f} (temperature)"
            )
        if self.structure in ("groups", "neighbourhoods"):
            sure = "" if self.uncertain is None else f"; {self.uncertain} uncertain where they belong"
            what = counted(len(self.sizes), "group") if self.structure == "groups" else "neighbourhoods"
            lines.append(f"{what} of {listed(self.sizes)} users; {self.alone} alone{sure}")
        if self.structure != "unrelated":  # what they have in common is at most that preferences are small
            lines.append(f"on average {self.from_others:.0%} of an estimate comes from others")
        lines += self.groups[:GROUPS_NAMED]
        if self.alike:
            lines.append("closest (would choose alike in pairs like those asked; closer than others with probability):")
        lines += [f"  {two.one} and {two.other} ({two.agreement:.0%}; {two.probability:.2f})" for two in self.alike]
        return "\n".join(lines)


def strength(log_evidence: float) -> str:
    """Log evidence for groups (negative: against them) in plain words, on Kass and Raftery's scale.

    >>> strength(7.0), strength(-2.0), strength(0.3)
    ('very strong for groups', 'some against groups', 'hardly any for groups')
    """
    word = next(word for most, word in STRENGTHS if abs(log_evidence) <= most)
    return f"{word} {'for' if log_evidence >= 0 else 'against'} groups"


def listed(sizes: Sequence[int], most: int = 8) -> str:
    """A few numbers as text.

    >>> listed([5, 3, 2]), listed(range(12), most=3)
    ('5, 3, 2', '0, 1, 2, ... (12)')
    """
    text = ", ".join(str(size) for size in sizes[:most])
    return text + (f", ... ({len(sizes)})" if len(sizes) > most else "")


def counted(number: float, noun: str) -> str:
    """A number of things.

    >>> counted(1, "user"), counted(1200, "comparison"), counted(2, "person")
    ('1 user', '1,200 comparisons', '2 people')
    """
    many = "people" if noun == "person" else f"{noun}s"
    return f"{number:,.0f} {noun if number == 1 else many}"


@dataclass(frozen=True)
class Explanation:
    """Why two users are joined or not, and what would change that: numbers, and one or two sentences.

    What a method does not know is NaN.
    """

    joined: bool
    distance: float  # ‖θ̂_u − θ̂_v‖
    margin: float  # what the connection test has to spare; negative: what it lacks
    sentence: str
    probability: float = np.nan  # of belonging together, where the method has one
    distance_error: float = np.nan  # standard error of the distance
    answers: float = np.nan  # log odds by the answers: positive for belonging together
    prior: float = np.nan  # log odds before the answers
    turning_comparisons: float = np.nan  # about how many more of the user's comparisons would change the verdict
    turning_threshold: float = np.nan  # the threshold at which it changes
    turning_radii: float = np.nan  # the sum of radii at which it changes; negative: no radii would do

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, eq=False)
class FoldedIn:
    """A new user, placed among those already known.

    >>> import numpy as np
    >>> sure = FoldedIn(np.array([2.0]), np.array([]), 0.1, np.array([2.0]))
    >>> unsure = FoldedIn(np.array([2.0]), np.array([]), 9.0, np.array([2.0]), covariance=np.array([[9.0]]))
    >>> [round(float(each.predict_proba([[1.0]])[0, 1]), 2) for each in (sure, unsure)]
    [0.88, 0.72]
    """

    theta: FloatArray  # (d,) the estimate to use
    neighbours: LabelArray  # labels of the fitted users whose data shape it
    radius: float  # of own_theta
    own_theta: FloatArray  # (d,) from the new user's rows alone
    covariance: FloatArray | None = None  # (d, d) of theta, where the model knows it
    temperature: float = 1.0  # factor on margins that makes probabilities honest

    def predict_proba(self, Z: ArrayLike) -> FloatArray:
        """Probability that the second and that the first side of each row is preferred, (n, 2); drawn to ½ by doubt."""
        rows = feature_matrix(Z, "Z")
        if rows.shape[1] != len(self.theta):
            raise InvalidComparisons(f"Z has {rows.shape[1]} features, but the model was fitted with {len(self.theta)}")
        refuse_gaps(rows)
        margin = rows @ self.theta
        if self.covariance is not None:
            variance = np.einsum("ij,ij->i", rows @ self.covariance, rows)
            margin = self.temperature * moderated(margin, variance)
        chance = expit(margin)
        return np.column_stack([1.0 - chance, chance])
