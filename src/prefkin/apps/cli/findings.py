"""What a fit found: as tables that a program can read, and as the things most worth doing next."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefkin.data.formats import as_csv
from prefkin.evaluate.compare import Comparison
from prefkin.evaluate.people_map import groups_on
from prefkin.models.base import PreferenceModel
from prefkin.models.coverage import feature_name
from prefkin.models.likeness import in_words
from prefkin.models.reports import Summary

__all__ = ["next_steps", "tables"]

STEPS = 3
NAMED = 3  # people in a piece of advice
NAMEABLE = 40  # features that somebody could name; more are an encoder's
SURE = 0.9  # of a place in a group


def tables(model: PreferenceModel) -> dict[str, bytes]:
    """`users.csv`: user, group and its probability, who is closest; `groups.csv`: size, words, centre of each group."""
    labels, groups = [str(user) for user in model.users_.tolist()], model.groups_
    place, sure = groups_on(model)
    closest, agreement = model.nearest()
    users: dict[str, list[Any]] = {
        "user": labels,
        "comparisons": model.n_comparisons_.tolist(),
        "group": [None if k < 0 else groups[k].label for k in place],
        "probability": [None if k < 0 else float(p) for k, p in zip(place, sure, strict=True)],
        "closest": [None if other is None else str(other) for other in closest.tolist()],
        "agreement": agreement.tolist(),
    }
    about: dict[str, list[Any]] = {
        "group": [group.label for group in groups],
        "users": [len(group) for group in groups],
        "words": [in_words(group.likes, group.dislikes) for group in groups],
    }
    for j in range(model.n_features_in_):
        about[f"centre {feature_name(model.feature_names_, j)}"] = [float(group.centre[j]) for group in groups]
    return {"users.csv": as_csv(users), "groups.csv": as_csv(about)}


def next_steps(
    model: PreferenceModel, known: Summary, folder: str, result: Comparison | None, candidates: str = "FILE"
) -> list[str]:
    """The three things most worth doing, those that change what is known before those that use it."""
    labels, found = np.array([str(user) for user in model.users_.tolist()], dtype=object), list[str]()
    ask = f"prefkin ask {folder} --user {{}} --candidates {candidates} --state FILE.json"
    if result is not None and result.best != "PrefKin" and "trust it" in result.verdict:
        found.append(f"{result.best} predicts better here: --method best keeps it")
    elif known.pooled_will_do:
        found.append("one model for everybody would do as well: --method 'everybody pooled' is simpler")
    elif known.structure == "unrelated" and known.n_users > 1 and result is None:
        found.append("own answers alone may do as well: --compare tells, --method 'per user' fits them")
    groups = model.groups_
    unsure = [str(user) for group in groups for user in group.members[group.probability < SURE].tolist()]
    if unsure:
        found.append(f"it is unsure where {_some(unsure)} belong: {ask.format(_quoted(unsure[0]))}")
    thin = labels[model.n_comparisons_ < min(model.n_features_in_, 20)]
    if len(thin):
        found.append(f"{_some(thin.tolist())} answered little; ask them first: {ask.format(_quoted(thin[0]))}")
    if known.first_side is not None:
        mean, _ = known.first_side
        found.append(f"the first side is taken by habit (log odds {mean:+.2f}): show sides in random order")
    if model.feature_names_ is None and model.n_features_in_ > NAMEABLE:
        found.append(f"prefkin report {folder} --votes FILE --out report.html: what they chose, in its own words")
    elif model.feature_names_ is None:
        found.append("--names a,b,... names the features, so that groups and doubts can be put into words")
    if result is None and not any("--compare" in step for step in found):
        found.append("--compare says whether simpler methods predict as well on held-out answers")
    found.append(f"prefkin rank {folder} --user {_quoted(labels[0])} --candidates {candidates}: what to recommend")
    found.append(f"prefkin predict {folder} --pairs FILE --out FILE: how probable answers are")
    found.append(f"{ask.format(_quoted(labels[int(np.argmax(model.radius_))]))}: who is known least")
    return found[:STEPS]


def _some(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _quoted(name: str) -> str:
    return name if name.isalnum() else f"'{name}'"
