"""What a report says about a fitted model, as plain values; nothing here knows about pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefkin import __version__
from prefkin.apps.shown import Shown
from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.rows import spread
from prefkin.data.tables import plain_text
from prefkin.data.votes import Votes
from prefkin.evaluate.audit import Finding, audit
from prefkin.evaluate.people_map import groups_on, plane_of
from prefkin.models.base import PreferenceModel
from prefkin.models.likeness import in_words, liked_features
from prefkin.models.reports import SAYING, Summary, counted, listed, strength

__all__ = ["Dot", "Fact", "Group", "Person", "Report", "report_of"]

MOST_ON_MAP = 400  # people drawn
MOST_GROUPS = 8
NAMED = 12  # members of a group
TEXTS = 2  # texts shown on either side
QUESTIONS = 10
LEAST_SURE = 5
PAIRS = 200  # of the log, on which is looked how much can be foreseen
EVERYBODY, GUESSING = "everybody pooled", 0.5

Words = tuple[tuple[str, ...], tuple[str, ...]]  # features liked, and disliked


@dataclass(frozen=True)
class Fact:
    """Something worth knowing first: a number or a word, and what it means."""

    figure: str
    meaning: str


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

    name: str
    words: str  # what they want
    members: tuple[str, ...]
    size: int
    unsure: int  # of them, whose place is less than 90 % sure
    chose: tuple[tuple[str, str], ...]  # what was chosen over what, in answers of theirs
    best: tuple[str, ...]  # candidates
    worst: tuple[str, ...]


@dataclass(frozen=True)
class Person:
    """Somebody about whom little is known."""

    name: str
    answers: float
    place: str  # their group, and how sure that is
    foreseen: float  # of their answers to pairs like those asked, by the model's own probabilities


@dataclass(frozen=True, eq=False)
class Report:
    """Everything on the page."""

    lead: str
    facts: tuple[Fact, ...]
    groups: tuple[Group, ...]
    dots: tuple[Dot, ...]
    axes: tuple[str, str]
    told_apart: bool  # are people further apart than what is not known about them?
    evidence: str  # for groups, in words; empty: not weighed
    typical: float  # answers of a typical person that the model expects to foresee
    least_known: tuple[Person, ...]
    method: str
    methods: tuple[Mapping[str, Any], ...]  # held-out performance, where it was measured
    verdict: str
    findings: tuple[Finding, ...]
    questions: tuple[tuple[str, str, str, str], ...]  # user, what is asked about, first, second
    computed: tuple[tuple[str, str], ...]


def report_of(
    model: PreferenceModel,
    shown: Shown | None = None,
    measured: Mapping[str, Any] | None = None,
    votes: Votes | None = None,
) -> Report:
    """The facts; `measured` as in summary.json of a fit, `votes` are answers with the texts they were about."""
    known, told = measured or {}, model.summary()
    labels, methods = [str(user) for user in model.users_.tolist()], tuple(known.get("comparison", ()))
    method = str(known.get("method", type(model).__name__))
    dots, axes = _map(model, labels)
    who, foreseen = _foreseen(model)
    typical, order = float(np.median(foreseen)), np.argsort(foreseen, kind="stable")[:LEAST_SURE]
    return Report(
        f"{counted(told.n_users, 'person')} compared "
        f"{counted(told.n_comparisons, 'pair')}: {SAYING[told.structure] if told.n_users > 1 else 'one taste'}.",
        tuple(_first_of_all(told, typical, method, methods)),
        tuple(_groups(model, labels, shown, votes)),
        dots,
        axes,
        bool(np.std([(dot.x, dot.y) for dot in dots], axis=0).max() > np.median([dot.doubt for dot in dots])),
        "" if told.evidence is None or not np.isfinite(told.evidence) else strength(told.evidence),
        typical,
        tuple(_person(model, labels, int(who[i]), float(foreseen[i])) for i in order),
        method,
        methods,
        str(known.get("verdict", "")),
        tuple(audit(model.comparisons())),
        tuple(_questions(model, shown)),
        tuple(_computed(model, told)),
    )


def _first_of_all(told: Summary, typical: float, method: str, methods: Sequence[Mapping[str, Any]]) -> list[Fact]:
    """What somebody reads who reads nothing else."""
    found = []
    if told.structure == "groups":
        alone = f", {told.alone} alone" if told.alone else ""
        found.append(Fact(counted(len(told.sizes), "group"), f"of {listed(told.sizes)} people{alone}"))
        if told.uncertain is not None:
            placed = told.n_users - told.uncertain
            found.append(Fact(f"{placed:,} of {told.n_users:,}", "are placed with a probability of 90 % or more"))
    else:
        found.append(Fact(f"{typical:.0%}", "of a typical person's answers the model expects to foresee"))
    if told.structure != "unrelated" and told.n_users > 1:
        found.append(
            Fact(f"{told.from_others:.0%}", "of what is known about a person comes from the answers of others")
        )
    right = {str(each["method"]): float(each["accuracy"]) for each in methods}
    if method in right:
        rival = f"; one description for all {right[EVERYBODY]:.0%}" if {EVERYBODY} & right.keys() - {method} else ""
        found.append(Fact(f"{right[method]:.0%} right", f"on answers it had not seen{rival}, guessing {GUESSING:.0%}"))
    return found


def _foreseen(model: PreferenceModel) -> tuple[IntArray, FloatArray]:
    """Some people, and how many of their answers to pairs like those asked the model expects to foresee."""
    who, Z = spread(len(model.users_), MOST_ON_MAP), model.comparisons().Z
    Z = Z[spread(len(Z), PAIRS)]
    chance = model.predict_proba(np.tile(Z, (len(who), 1)), users=model.users_[np.repeat(who, len(Z))])
    return who, chance.max(axis=1).reshape(len(who), len(Z)).mean(axis=1)


def _person(model: PreferenceModel, labels: list[str], u: int, foreseen: float) -> Person:
    group, sure = (each[u] for each in groups_on(model))
    certain = "over 99%" if sure > 0.99 else f"{sure:.0%}"
    place = f"group {model.groups_[group].label} ({certain} sure)" if group >= 0 else "none"
    return Person(labels[u], float(model.n_comparisons_[u]), place, foreseen)


def _map(model: PreferenceModel, labels: list[str]) -> tuple[tuple[Dot, ...], tuple[str, str]]:
    """People along the two directions in which they differ most."""
    plane, (place, _) = plane_of(model), groups_on(model, MOST_GROUPS)
    at, users, dots = plane.at(model.theta_), model.users_.tolist(), list[Dot]()
    for u in spread(len(users), MOST_ON_MAP).tolist():
        doubt = 0.0
        if model.has_posterior:
            doubt = float(np.sqrt(max(np.trace(plane.spread(model.covariance(users[u]))) / 2.0, 0.0)))
        dots.append(Dot(labels[u], float(at[u, 0]), float(at[u, 1]), doubt, int(place[u])))
    return tuple(dots), plane.names


def _groups(model: PreferenceModel, labels: list[str], shown: Shown | None, votes: Votes | None) -> list[Group]:
    common = model.theta_.mean(axis=0)
    logged = None if votes is None else _Logged(votes)
    texts = shown is not None and any(shown.texts)
    by_name = model.feature_names_ is not None or not (texts or logged)  # numbers say less than texts

    def described(name: str, members: Sequence[str], unsure: int, theta: FloatArray, words: Words) -> Group:
        best, worst = _texts(theta, shown) if texts and shown is not None else ((), ())
        chose = () if logged is None else logged.typical(theta, members)
        said = in_words(*words) if by_name else ""
        return Group(name, said, tuple(members[:NAMED]), len(members), unsure, chose, best, worst)

    if not model.groups_:
        size = np.sqrt(np.mean(model.comparisons().Z ** 2, axis=0))
        return [
            described("everybody, on average", labels, 0, common, liked_features(common * size, model.feature_names_))
        ]
    if len(model.groups_) == 1:
        common = np.zeros_like(common)  # nobody else from whom they differ
    return [
        described(
            "everybody" if len(group) == len(labels) else f"group {group.label}",
            [str(user) for user in group.members.tolist()],
            int((group.probability < 0.9).sum()),
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


def _texts(theta: FloatArray, shown: Shown) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What these people would take, and leave, more than others would."""
    order = np.argsort(-(shown.candidates.features @ theta), kind="stable")
    return tuple(shown.texts[i] for i in order[:TEXTS]), tuple(shown.texts[i] for i in order[::-1][:TEXTS])


def _questions(model: PreferenceModel, shown: Shown | None) -> list[tuple[str, str, str, str]]:
    if shown is None or not model.has_posterior:
        return []
    return [
        (str(user), shown.context(q.context), *shown.pair(q.context, q.first, q.second))
        for user, q in model.plan_questions(shown.candidates, QUESTIONS)
    ]


def _computed(model: PreferenceModel, told: Summary) -> list[tuple[str, str]]:
    settings = ", ".join(f"{name}={value!r}" for name, value in sorted(model.get_params(deep=False).items()))
    found = [("prefkin", __version__), ("method", type(model).__name__), ("settings", settings)]
    lines = [line for line in str(told).splitlines() if not line.startswith("group ")]  # cards say it
    found.append(("summary", "; ".join(lines)))
    if told.temperature is not None:
        found.append(("temperature", f"{told.temperature:.2f}: factor on log odds, by held-out answers"))
    if np.isfinite(model.refit_gain_):
        found.append(("since the fit", f"answers were added; log evidence for a refit {model.refit_gain_:+.1f}"))
    return found
