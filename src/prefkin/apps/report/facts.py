"""What a report says about a fitted model, as plain values; nothing here knows about pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefkin import __version__
from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
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
) -> Report:
    """The facts; `texts` are one for each row of the candidates, `methods` as in summary.json of a fit."""
    names, labels = _feature_names(model), [str(user) for user in model.users_.tolist()]
    dots, axes = _map(model, labels, names)
    order = np.argsort(-np.nan_to_num(model.radius_, posinf=1e300), kind="stable")[:LEAST_SURE]
    return Report(
        tuple(str(model.summary()).splitlines()),
        dots,
        axes,
        tuple(_groups(model, labels, names, candidates, texts)),
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
) -> list[Group]:
    common = model.theta_.mean(axis=0)
    if not model.groups_:
        size = np.sqrt(np.mean(model.comparisons().Z ** 2, axis=0))
        likes, dislikes = liked_features(common * size, names)
        best, worst = _texts(common, candidates, texts)
        return [Group("Everybody, on average", tuple(labels[:NAMED]), len(labels), likes, dislikes, best, worst)]
    found = []
    for group in model.groups_[:MOST_GROUPS]:
        best, worst = _texts(group.centre - common, candidates, texts)
        members = tuple(str(user) for user in group.members[:NAMED].tolist())
        found.append(Group(f"Group {group.label}", members, len(group), group.likes, group.dislikes, best, worst))
    return found


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
