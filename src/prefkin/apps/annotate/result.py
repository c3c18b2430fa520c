"""What it was for: what a person seems to want, with doubt; who is like-minded, as a share; what to recommend."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from prefkin.apps.annotate.conversation import Conversation
from prefkin.apps.annotate.items import Items
from prefkin.data.arrays import above_zero

__all__ = ["Result", "Want", "result_of"]

WANTS = 6  # qualities shown
SHOWN = 3  # recommendations
CLEAR = 0.9  # probability from which on a wish is told as one
WIDE = 1.96  # standard errors: 95 %


@dataclass(frozen=True)
class Want:
    """One quality; sizes as shares of the largest that is shown."""

    name: str
    sure: float  # probability that it is rather more of it that is wanted, or rather less
    size: float  # below 0: less of it
    low: float
    high: float

    @property
    def words(self) -> str:
        """The quality, and whether more or less of it is wanted."""
        return f"{'more' if self.size > 0 else 'less'} {self.name}"


@dataclass(frozen=True)
class Result:
    """What can be told to a person about themselves."""

    answers: int
    wants: tuple[Want, ...]  # where features have names
    like_minded: float | None  # share of the other people known; None: nobody is known yet
    sure: float | None  # probability of belonging with them
    names: tuple[str, ...]  # of the like-minded, for the demo, where nobody is real
    recommended: tuple[tuple[str, str, str], ...]  # prompt, text, image

    @property
    def certainty(self) -> str:
        """How sure, in words."""
        level = 0.0 if self.sure is None else self.sure
        return "almost certainly" if level > 0.95 else "very likely" if level > 0.8 else "perhaps"

    @property
    def clear(self) -> list[str]:
        """What can be said by now."""
        return [want.words for want in self.wants if want.sure >= CLEAR]

    @property
    def open(self) -> list[str]:
        """Qualities of which it cannot be said yet."""
        return [want.name for want in self.wants if want.sure < CLEAR]


def result_of(talk: Conversation, items: Items) -> Result:
    """What is known about one person by now."""
    belief, names = talk.session.belief, items.candidates.feature_names
    wants = _wants(belief.mean, np.linalg.norm(belief.root, axis=1), names) if names else ()
    share, sure, alike = _like_minded(talk)
    answers = sum(answer.choice != "skip" for answer in talk.closed)
    return Result(answers, wants, share, sure, alike, _recommended(talk, items))


def _wants(mean: np.ndarray, error: np.ndarray, names: tuple[str, ...]) -> tuple[Want, ...]:
    order = np.argsort(-np.abs(mean), kind="stable")[:WANTS]
    mean, error = mean[order], above_zero(error[order])
    largest = float(np.max(np.abs(mean) + WIDE * error))
    parts = ndtr(np.abs(mean) / error), mean / largest, (mean - WIDE * error) / largest, (mean + WIDE * error) / largest
    return tuple(Want(names[i], *map(float, part)) for i, part in zip(order, np.array(parts).T, strict=True))


def _like_minded(talk: Conversation) -> tuple[float | None, float | None, tuple[str, ...]]:
    """Those who likelier than not are of the same group: their share, how likely on average, and their names."""
    model, name, labels = talk.knowledge.model, talk.person.name, talk.knowledge.labels
    if model is None or not model.has_posterior or model.structure_ != "groups":
        return None, None, ()
    if name in labels:
        chance = model.together(labels[name])
    else:  # the last column is of standing alone
        chance = model.membership_[:, :-1] @ talk.session.belief.chance[:-1]  # type: ignore[attr-defined]
    alike = [u for u, label in enumerate(labels) if chance[u] > 0.5 and label != name]
    sure = float(np.mean(chance[alike])) if alike else None
    names = tuple(label for u, label in enumerate(labels) if u in alike)
    return len(alike) / max(len(labels) - (name in labels), 1), sure, names


def _recommended(talk: Conversation, items: Items) -> tuple[tuple[str, str, str], ...]:
    """The best action where it matters most: in contexts where the actions differ most for this person."""
    candidates = items.candidates
    reward = candidates.features @ talk.session.preference
    best, first = candidates.argmax(reward), candidates.starts[:-1]
    gain = np.maximum.reduceat(reward, first) - np.add.reduceat(reward, first) / candidates.sizes
    order = np.argsort(-gain, kind="stable")[:SHOWN].tolist()
    return tuple((items.prompts[x], items.text(x, int(best[x])), items.image(x, int(best[x]))) for x in order)
