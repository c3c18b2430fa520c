"""Jester: which of two jokes did a person rate higher? (Goldberg et al. 2001.)

Original ratings: https://eigentaste.berkeley.edu/dataset. Expected in a folder `jester` under $PREFKIN_DATA:
`ratings.npz` (ratings: people × 100 jokes, NaN where unrated). Nearly every question has a real answer, and the worth
of a joke is its rating.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.data.comparisons import Comparisons
from prefkin.errors import InvalidTable
from prefkin.reproduce.worlds.world import NO_ANSWER, Pool, World

__all__ = ["jester_world", "read_jester"]


def read_jester(folder: Path) -> FloatArray:
    """Ratings of the people who rated every joke, shape (people, jokes)."""
    path = folder / "jester" / "ratings.npz"
    if not path.exists():
        raise InvalidTable(f"{path}: no such file; see docs/experiments.md and set PREFKIN_DATA")
    with np.load(path) as stored:
        ratings = stored["ratings"].astype(np.float64)
    return ratings[np.isfinite(ratings).all(axis=1)]


def jester_world(
    ratings: FloatArray,
    rng: np.random.Generator,
    *,
    users: int,
    rows: int,
    dim: int,
    held_share: float = 0.3,
    contexts: int = 300,
    actions: int = 4,
    held_out: int = 150,
    asked: int = 0,
    pool_contexts: int = 400,
) -> World:
    """Some people are the users; jokes are described by the leading directions of *other* people's ratings.

    Jokes are split in two: comparisons and questions are about one part, recommendations and
    predictions about the other.
    """
    order = rng.permutation(len(ratings))
    people, others = ratings[order[:users]], ratings[order[users:]]
    _, size, right = np.linalg.svd(others - others.mean(axis=0), full_matrices=False)
    features = right[:dim].T * size[:dim] / size[0] * np.sqrt(ratings.shape[1])
    shuffled = rng.permutation(ratings.shape[1])
    n_held = round(held_share * len(shuffled))
    new, known = shuffled[:n_held], shuffled[n_held:]
    data, advantage = _pairs(rng, people, features, known, rows)
    judged, _ = _pairs(rng, people, features, new, held_out)
    shown = np.array([rng.choice(new, actions, replace=False) for _ in range(contexts)])
    fresh = Candidates(features[shown])
    pools = tuple(_pool(rng, person, features, known, pool_contexts) for person in people[:asked])
    return World(data, advantage, judged, fresh, people[:, shown.ravel()], None, None, pools)


def _pairs(
    rng: np.random.Generator, people: FloatArray, features: FloatArray, jokes: IntArray, n: int
) -> tuple[Comparisons, FloatArray]:
    """Pairs of each person, ties left out; rows of a person in random order."""
    owner = np.repeat(np.arange(len(people)), n)
    first = rng.integers(len(jokes), size=len(owner))
    second = (first + rng.integers(1, len(jokes), size=len(owner))) % len(jokes)
    a, b = jokes[first], jokes[second]
    better = people[owner, a] - people[owner, b]
    keep = better != 0
    a, b, owner, better = a[keep], b[keep], owner[keep], better[keep]
    return Comparisons.from_sides(features[a], features[b], better > 0, owner), better


def _pool(rng: np.random.Generator, person: FloatArray, features: FloatArray, jokes: IntArray, contexts: int) -> Pool:
    """Pairs of jokes, answered by what the person really rated; no answer where the ratings are equal."""
    shown = np.array([rng.choice(jokes, 2, replace=False) for _ in range(contexts)])
    worth = person[shown]
    answers = np.full((contexts, 2, 2), NO_ANSWER, dtype=np.intp)
    differ = worth[:, 0] != worth[:, 1]
    answers[differ, 0, 1] = (worth[:, 0] > worth[:, 1])[differ]
    answers[differ, 1, 0] = 1 - answers[differ, 0, 1]
    return Pool(Candidates(features[shown]), answers)
