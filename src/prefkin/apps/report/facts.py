"""What a report says about a fitted model, as plain values; nothing here knows about pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefkin import __version__
from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.data.tables import plain_text
from prefkin.data.votes import Votes
from prefkin.evaluate.audit import Finding, audit
from prefkin.models.base import PreferenceModel
from prefkin.models.likeness import liked_features
from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["Group", "Report", "report_of"]

MOST_ON_MAP = 400  # people drawn
MOST_GROUPS = 8
NAMED = 12  # members of a group
TEXTS = 2  # texts shown on either side
QUESTIONS = 10
LEAST_SURE = 8

Words = tuple[tuple[str, ...], tuple[str, ...]]  # features liked, and disliked


@dataclass(frozen=True, eq=False)
class Dot:
    """Somebody on the map."""

    name: str
    x: float
    y: float
    doubt: float  # standard deviation, in units of the map
    group: int  # −1: none


@dataclass(frozen=True)
class Group:
    """Some people who want the same, or everybody."""

    title: str
    members: tuple[str, ...]
    size: int
    likes: tuple[str, ...]
    dislikes: tuple[str, ...]
    chose: tuple[tuple[str, str], ...]  # what was chosen over what, in answers of theirs
    best: tuple[str, ...]  # candidates
    worst: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Report:
    """Everything on the page."""

    summary: tuple[str, ...]
    dots: tuple[Dot, ...]
    axes: tuple[str, str]
    groups: tuple[Group, ...]
    least_sure: tuple[tuple[str, float, float], ...]  # name, comparisons, radius
    methods: tuple[dict[str, Any], ...]  # held-out performance, where it was measured
    findings: tuple[Finding, ...]
    questions: tuple[tuple[str, str, str, str], ...]  # user, context, first, second
    computed: tuple[tuple[str, str], ...]


def report_of(
    model: PreferenceModel,
    candidates: Candidates | None = None,
    texts: Sequence[str] | None = None,
    methods: Sequence[dict[str, Any]] = (),
    votes: Votes | None = None,
) -> Report:
    """The facts; `texts` are one for each row of the candidates, `methods` as in summary.json of a fit.

    `votes` are answers with the texts they were about.
    """
    names, labels = _feature_names(model), [str(user) for user in model.users_.tolist()]
    dots, axes = _map(model, labels, names)
    order = np.argsort(-np.nan_to_num(model.radius_, posinf=1e300), kind="stable")[:LEAST_SURE]
    return Report(
        tuple(line for line in str(model.summary()).splitlines() if not line.startswith("group ")),  # cards say it
        dots,
        axes,
        tuple(_groups(model, labels, names, candidates, texts, votes)),
        tuple((labels[u], float(model.n_comparisons_[u]), float(model.radius_[u])) for u in order),
        tuple(methods),
        tuple(audit(model.comparisons())),
        tuple(_questions(model, candidates, texts)),
        tuple(_computed(model)),
    )


def _feature_names(model: PreferenceModel) -> tuple[str, ...]:
    return model.feature_names_ or tuple(f"feature {i}" for i in range(model.n_features_in_))


def _places(model: PreferenceModel) -> IntArray:
    """For everybody the place of their group among those that are shown; −1: none of them."""
    place = np.full(len(model.users_), -1)
    for k, group in enumerate(model.groups_[:MOST_GROUPS]):
        place[[model.position(user) for user in group.members.tolist()]] = k
    return place


def _map(model: PreferenceModel, labels: list[str], names: tuple[str, ...]) -> tuple[tuple[Dot, ...], tuple[str, str]]:
    """People along the two directions in which they differ most, by what features are worth to them."""
    size = np.sqrt(np.mean(model.comparisons().Z ** 2, axis=0))
    worth = model.theta_ * size
    axes = np.linalg.svd(worth - worth.mean(axis=0), full_matrices=False)[2][:2]
    axes = np.vstack([axes, np.zeros((2 - len(axes), worth.shape[1]))])
    at, place = (worth - worth.mean(axis=0)) @ axes.T, _places(model)
    who = np.unique(np.linspace(0, len(labels) - 1, min(len(labels), MOST_ON_MAP)).astype(int))
    dots = []
    for u in who.tolist():
        doubt = 0.0
        if isinstance(model, PrefKin):
            C = model.covariance(model.users_.tolist()[u]) * np.outer(size, size)
            doubt = float(np.sqrt(max(np.einsum("ad,de,ae->", axes, C, axes) / 2.0, 0.0)))
        dots.append(Dot(labels[u], float(at[u, 0]), float(at[u, 1]), doubt, int(place[u])))
    return tuple(dots), (_direction(axes[0], names), _direction(axes[1], names))


def _direction(axis: FloatArray, names: tuple[str, ...]) -> str:
    """What a direction stands for: its two largest features."""
    if not axis.any():
        return ""
    top = np.argsort(-np.abs(axis), kind="stable")[:2]
    return ", ".join(f"{'more' if axis[i] > 0 else 'less'} {names[i]}" for i in top) + " →"


def _groups(
    model: PreferenceModel,
    labels: list[str],
    names: tuple[str, ...],
    candidates: Candidates | None,
    texts: Sequence[str] | None,
    votes: Votes | None,
) -> list[Group]:
    common = model.theta_.mean(axis=0)
    logged = None if votes is None else _Logged(votes)
    in_words = model.feature_names_ is not None or (votes is None and texts is None)  # numbers say less than texts

    def described(title: str, members: Sequence[str], theta: FloatArray, words: Words) -> Group:
        best, worst = _texts(theta, candidates, texts)
        chose = () if logged is None else logged.typical(theta, members)
        likes, dislikes = words if in_words else ((), ())
        return Group(title, tuple(members[:NAMED]), len(members), likes, dislikes, chose, best, worst)

    if not model.groups_:
        size = np.sqrt(np.mean(model.comparisons().Z ** 2, axis=0))
        return [described("Everybody, on average", labels, common, liked_features(common * size, names))]
    return [
        described(
            f"Group {group.label}",
            [str(user) for user in group.members.tolist()],
            group.centre - common,
            (group.likes, group.dislikes),
        )
        for group in model.groups_[:MOST_GROUPS]
    ]


class _Logged:
    """Answers that were given, by the pair of texts that they are about."""

    def __init__(self, votes: Votes) -> None:
        self.votes, self.differences = votes, votes.differences
        self.users = np.array([str(user) for user in votes.data.users.tolist()], dtype=object)
        place: dict[str, int] = {}
        self.pair = np.array([place.setdefault(votes.pair(row), len(place)) for row in range(len(votes.data))])

    def typical(self, theta: FloatArray, people: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """What these people chose over what: pairs that tell most of `theta`, and on which they agree, each text once.

        The mean over the answers to a pair, drawn to 0 where there are few, of how strongly an answer speaks for it.
        """
        rows = np.flatnonzero(np.isin(self.users, np.array(people, dtype=object)))
        speaks = self.differences[rows] @ theta
        n_pairs = int(self.pair.max()) + 1
        asked = np.bincount(self.pair[rows], minlength=n_pairs)
        worth = np.bincount(self.pair[rows], weights=speaks, minlength=n_pairs) / (asked + 1.0)
        found, seen = list[tuple[str, str]](), set[str]()
        for at in np.argsort(-worth[self.pair[rows]], kind="stable").tolist():
            chosen, rejected = (plain_text(self.votes.texts[side][rows[at]]) or "" for side in ("chosen", "rejected"))
            if speaks[at] <= 0 or worth[self.pair[rows[at]]] <= 0 or {chosen, rejected} & seen:
                continue
            seen |= {chosen, rejected}
            found.append((chosen, rejected))
            if len(found) == TEXTS:
                break
        return tuple(found)


def _texts(
    theta: FloatArray, candidates: Candidates | None, texts: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What these people would take, and leave, more than others would."""
    if candidates is None or texts is None:
        return (), ()
    order = np.argsort(-(candidates.features @ theta), kind="stable")
    return tuple(texts[i] for i in order[:TEXTS]), tuple(texts[i] for i in order[::-1][:TEXTS])


def _questions(
    model: PreferenceModel, candidates: Candidates | None, texts: Sequence[str] | None
) -> list[tuple[str, str, str, str]]:
    if candidates is None or not isinstance(model, PrefKin):
        return []
    shown = [str(action) for action in candidates.actions.tolist()] if texts is None else texts
    found = []
    for user, q in model.plan_questions(candidates, QUESTIONS):
        row, context = int(candidates.starts[q.context]), str(candidates.contexts.tolist()[q.context])
        found.append((str(user), context, shown[row + q.first], shown[row + q.second]))
    return found


def _computed(model: PreferenceModel) -> list[tuple[str, str]]:
    settings = ", ".join(f"{name}={value!r}" for name, value in sorted(model.get_params(deep=False).items()))
    found = [("prefkin", __version__), ("method", type(model).__name__), ("settings", settings)]
    if isinstance(model, PrefKin):
        gap = model.evidence_["groups"] - model.evidence_["by degrees"]
        found.append(("log evidence of groups over degrees", f"{gap:+.1f}" if np.isfinite(gap) else "not weighed"))
        if np.isfinite(model.refit_gain_):
            found.append(("since the fit", f"answers were added; log evidence for a refit {model.refit_gain_:+.1f}"))
    return found
