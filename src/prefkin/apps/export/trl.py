"""Preference sets for TRL: the answers of those who belong together, and pairs that their model is sure of."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.votes import Votes

__all__ = ["preference_set"]


def preference_set(
    model: Any, votes: Votes, share: FloatArray, speakers: IntArray, *, least: float, surer_than: float | None
) -> dict[str, list[Any]]:
    """Columns prompt, chosen, rejected, weight, source and annotator.

    Parameters
    ----------
    share : (U,) how surely everybody belongs here
    speakers : positions of those whose models label further pairs
    least : answers of people who belong here with at least this probability are kept; it is their weight
    surer_than : pairs about which only others were asked are labelled by the speakers' models where these are surer
        than that, on average; None: none are
    """
    place = {label: u for u, label in enumerate(model.users_.tolist())}
    owner = np.array([place.get(label, -1) for label in votes.data.users.tolist()])
    belongs = np.where(owner < 0, 0.0, share[owner])
    kept = np.flatnonzero((belongs >= least) & (belongs > 0))
    found: dict[str, list[Any]] = {name: [values[row] for row in kept] for name, values in votes.texts.items()}
    found["weight"] = (belongs * votes.data.weights)[kept].tolist()
    found["source"] = ["answer"] * len(kept)
    found["annotator"] = [str(label) for label in votes.data.users[kept].tolist()]
    if surer_than is not None:
        _label(model, votes, kept, speakers, surer_than, found)
    return found


def _label(
    model: Any, votes: Votes, kept: IntArray, speakers: IntArray, surer_than: float, found: dict[str, list[Any]]
) -> None:
    """Add the pairs that nobody here was asked about, each once, as those who speak would most likely answer."""
    seen, rows = {votes.pair(row) for row in kept}, list[int]()
    for row in range(len(votes.data)):
        if (pair := votes.pair(row)) not in seen:
            seen.add(pair)
            rows.append(row)
    if not rows:
        return
    Z, names = votes.differences[rows], model.users_[speakers]
    first = model.classes_.tolist().index(model.positive_)
    chances = [model.predict_proba(Z, users=np.repeat(names[k : k + 1], len(Z)))[:, first] for k in range(len(names))]
    chance = np.mean(chances, axis=0)
    for row, agrees in zip(rows, chance.tolist(), strict=True):
        sure = max(agrees, 1.0 - agrees)
        if sure <= surer_than:
            continue
        sides = ("chosen", "rejected") if agrees > 0.5 else ("rejected", "chosen")
        for side, texts in zip(("chosen", "rejected"), sides, strict=True):
            found[side].append(votes.texts[texts][row])
        if "prompt" in found:
            found["prompt"].append(votes.texts["prompt"][row])
        found["weight"].append(sure)
        found["source"].append("model")
        found["annotator"].append(None)
