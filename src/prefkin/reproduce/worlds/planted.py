"""The paper's synthetic people (section 6) as a world: θ_u = θ^j + ε_u, z ~ N(0, I), answers by σ(β θ_uᵀz)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.data.comparisons import Comparisons
from prefkin.data.synthetic import coverage, tastes
from prefkin.reproduce.worlds.world import Pool, World

__all__ = ["answer_table", "planted_rows", "planted_world", "synthetic_world"]


def synthetic_world(
    rng: np.random.Generator,
    *,
    users: int,
    groups: int,
    dim: int,
    rows: int,
    strength: float,
    spread: float,
    scarce: float = 0.0,  # share of the features that are hardly covered (a tenth of the scale)
    contexts: int = 500,
    actions: int = 4,
    held_out: int = 100,
    asked: int = 0,
    pool_contexts: int = 800,
    pool_actions: int = 2,
) -> World:
    """`asked` users have pools of questions; feature differences are N(0, I) everywhere, so actions are N(0, I/2).

    With the same generator and fewer rows, each user has the first ones of the rows there would have been.

    >>> world = synthetic_world(np.random.default_rng(0), users=4, groups=2, dim=3, rows=5, strength=2.0, spread=0.1)
    >>> world.data, world.fresh_gap(np.zeros((4, 3))).shape
    (Comparisons(20 comparisons by 4 users, 3 features), (4,))
    """
    theta, group = tastes(rng, users, groups, dim, strength, spread)
    scale = coverage(dim, scarce)
    data, advantage = _answers(rng, theta, rows, scale)
    judged, _ = _answers(rng, theta, held_out, np.ones(dim))
    fresh = Candidates(rng.standard_normal((contexts, actions, dim)) / np.sqrt(2.0))
    pools = [_pool(rng, theta[u], pool_contexts, pool_actions) for u in range(asked)]
    return planted_world(theta, group, data=data, advantage=advantage, held_out=judged, contexts=fresh, pools=pools)


def planted_world(
    theta: FloatArray,
    group: IntArray | None,
    *,
    data: Comparisons,
    advantage: FloatArray,
    held_out: Comparisons,
    contexts: Candidates,
    pools: Sequence[Pool],
) -> World:
    """A world in which everybody's preference, and maybe who wants the same, is known."""
    apart = np.empty(0)
    if group is not None:
        apart = np.linalg.norm(theta[:, None] - theta[None], axis=2)[group[:, None] != group[None]]
    return World(
        data=data,
        advantage=advantage,
        held_out=held_out,
        contexts=contexts,
        reward=theta @ contexts.features.T,
        group=group,
        least_gap=float(apart.min()) if apart.size else None,
        pools=tuple(pools),
    )


def _answers(rng: np.random.Generator, theta: FloatArray, n: int, scale: FloatArray) -> tuple[Comparisons, FloatArray]:
    """`n` rows of each user and what the first action is worth more; the first ones do not depend on `n`."""
    Z, worth, y = [], [], []
    for one, streams in zip(theta, rng.spawn(len(theta)), strict=True):
        features, chance = streams.spawn(2)
        Z.append(features.standard_normal((n, len(one))) * scale)
        worth.append(Z[-1] @ one)
        y.append(chance.random(n) < expit(worth[-1]))
    owner = np.repeat(np.arange(len(theta)), n)
    return Comparisons.from_arrays(np.concatenate(Z), np.concatenate(y), owner), np.concatenate(worth)


def _pool(rng: np.random.Generator, theta: FloatArray, contexts: int, actions: int) -> Pool:
    candidates = Candidates(rng.standard_normal((contexts, actions, len(theta))) / np.sqrt(2.0))
    return Pool(candidates, answer_table(rng, (candidates.features @ theta).reshape(contexts, actions)))


def answer_table(rng: np.random.Generator, worth: FloatArray) -> np.ndarray:
    """The answer to every question, drawn once, so that all methods hear the same; worth has shape (X, A)."""
    chance = expit(worth[:, :, None] - worth[:, None, :])
    drawn = rng.random(chance.shape)
    upper = np.triu(drawn < chance, 1)
    return (upper + np.tril(1 - upper.swapaxes(1, 2).astype(int), -1)).astype(np.intp)


def planted_rows(rng: np.random.Generator, Z: FloatArray, users: np.ndarray, theta: FloatArray) -> Comparisons:
    """Answers of planted preferences to given pairs."""
    chance = expit(np.einsum("ij,ij->i", Z, theta[users]))
    return Comparisons.from_arrays(Z, rng.random(len(Z)) < chance, users)
