"""What it was for: what a person seems to want, with doubt; who is like-minded, as a share; what to recommend."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from prefkin.apps.annotate.conversation import Conversation
from prefkin.apps.annotate.items import Items

__all__ = ["Result", "Want", "result_of"]

WANTS = 6  # qualities shown
SHOWN = 3  # recommendations


@dataclass(frozen=True)
class Want:
    """One quality."""

    name: str
    more: bool  # rather more of it, or rather less
    sure: float  # probability of that
    weight: float  # its size as a share of the largest


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


def result_of(talk: Conversation, items: Items) -> Result:
    """What is known about one person by now."""
    belief, names = talk.session.belief, items.candidates.feature_names
    wants = _wants(belief.mean, np.linalg.norm(belief.root, axis=1), names) if names else ()
    share, sure, alike = _like_minded(talk)
    return Result(len(talk.closed), wants, share, sure, alike, _recommended(talk, items))


def _wants(mean: np.ndarray, error: np.ndarray, names: tuple[str, ...]) -> tuple[Want, ...]:
    order = np.argsort(-np.abs(mean), kind="stable")[:WANTS]
    largest = max(float(np.abs(mean).max()), 1e-300)
    sure = ndtr(np.abs(mean) / np.maximum(error, 1e-300))
    return tuple(Want(names[i], bool(mean[i] > 0), float(sure[i]), float(abs(mean[i]) / largest)) for i in order)


def _like_minded(talk: Conversation) -> tuple[float | None, float | None, tuple[str, ...]]:
    model, name = talk.knowledge.model, talk.person.name
    if model is None:
        return None, None, ()
    if name in talk.knowledge.labels:
        alike = [str(label) for label in model.neighbours(talk.knowledge.labels[name]).tolist() if str(label) != name]
    else:
        rows = [talk.session.difference(q) for q, answer in talk.session.log if answer is not None]
        answers = [answer for _, answer in talk.session.log if answer is not None]
        if not rows:
            return None, None, ()
        alike = [str(label) for label in model.fold_in(np.array(rows), np.array(answers, dtype=int)).neighbours]
    others = len(talk.knowledge.labels) - (name in talk.knowledge.labels)
    return (len(alike) / others if others else None), None, tuple(alike)


def _recommended(talk: Conversation, items: Items) -> tuple[tuple[str, str, str], ...]:
    """The best action where it matters most: in contexts where the actions differ most for this person."""
    candidates = items.candidates
    reward = candidates.features @ talk.session.preference
    best, first = candidates.argmax(reward), candidates.starts[:-1]
    gain = np.maximum.reduceat(reward, first) - np.add.reduceat(reward, first) / candidates.sizes
    order = np.argsort(-gain, kind="stable")[:SHOWN].tolist()
    return tuple((items.prompts[x], items.text(x, int(best[x])), items.image(x, int(best[x]))) for x in order)
