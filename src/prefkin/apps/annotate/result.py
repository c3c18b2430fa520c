"""What it was for: what a person seems to want, with doubt; who is like-minded, as a share; what to recommend."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from prefkin.apps.annotate.conversation import Conversation
from prefkin.apps.annotate.items import Items
from prefkin.models.prefkin.estimator import PrefKin

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
    """Those who likelier than not are of the same group: their share, how likely on average, and their names."""
    model, name, labels = talk.knowledge.model, talk.person.name, talk.knowledge.labels
    if not isinstance(model, PrefKin) or model.structure_ != "groups":
        return None, None, ()
    groups = model.membership_[:, :-1]  # the last column: of standing alone
    belief = talk.session.belief
    own = model.membership_[model.position(labels[name])] if name in labels else belief.chance  # type: ignore[attr-defined]
    chance = groups @ own[: groups.shape[1]]
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
