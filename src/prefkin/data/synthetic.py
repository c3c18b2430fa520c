"""Data with known truth: the paper's synthetic users, and the small population of the demo."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.data.comparisons import Comparisons
from prefkin.errors import InvalidParameter

__all__ = ["Population", "demo_population", "make_population"]

DEMO_FEATURES = ("short", "detailed", "funny", "formal", "hopeful", "technical")
DEMO_TASTES = {
    "brief": (0.9, -0.5, 0.1, 0.0, 0.6, -0.6),
    "thorough": (-0.6, 0.9, -0.2, 0.3, -0.7, 0.8),
    "light": (0.2, -0.2, 1.0, -0.6, 0.8, -0.5),
}
DEMO_NAMES = (
    *("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana"),
    *("Ida", "Jon", "Kira", "Leo", "Mia", "Noor", "Olaf", "Pia"),
    *("Quin", "Rosa", "Sam", "Tess", "Ugo", "Vera", "Wim", "Yara"),
)


@dataclass(frozen=True, eq=False)
class Population:
    """Comparisons of users whose preferences are known."""

    data: Comparisons
    held_out: Comparisons  # fresh comparisons of the same users
    theta: FloatArray  # (U, d) true preference of data.labels[u]
    group: IntArray  # (U,) true group


def make_population(
    rng: np.random.Generator,
    *,
    n_users: int = 40,
    n_groups: int = 8,
    dim: int = 50,
    n_comparisons: int = 200,
    strength: float = 2.0,
    spread: float = 0.0,
    scarce: float = 0.0,
    n_held_out: int = 50,
) -> Population:
    """The paper's recipe (section 6): θ_u = θ^j + ε_u, z ~ N(0, I), answers by σ(β θ_uᵀz).

    Parameters
    ----------
    strength : β, on group vectors θ^j of norm 1
    spread : E‖ε_u‖ relative to the group vector
    scarce : fraction of the features that are hardly covered (a tenth of the scale)

    >>> people = make_population(np.random.default_rng(0), n_users=6, n_groups=2, dim=3, n_comparisons=10)
    >>> people.data, people.theta.shape
    (Comparisons(60 comparisons by 6 users, 3 features), (6, 3))
    """
    if not 0 <= scarce < 1:
        raise InvalidParameter(f"scarce must be at least 0 and below 1; got {scarce!r}")
    theta, group = tastes(rng, n_users, n_groups, dim, strength, spread)

    def answers(n: int, scale: FloatArray) -> Comparisons:
        owner = np.repeat(np.arange(n_users), n)
        Z = rng.standard_normal((n_users * n, dim)) * scale
        y = rng.random(len(Z)) < expit(np.einsum("ij,ij->i", Z, theta[owner]))
        return Comparisons.from_arrays(Z, y, owner)

    return Population(answers(n_comparisons, coverage(dim, scarce)), answers(n_held_out, np.ones(dim)), theta, group)


def tastes(
    rng: np.random.Generator, n_users: int, n_groups: int, dim: int, strength: float, spread: float
) -> tuple[FloatArray, IntArray]:
    """θ_u, (U, d), and the group of each user, of the paper's recipe."""
    centres = rng.standard_normal((n_groups, dim))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    group = rng.integers(n_groups, size=n_users)
    return strength * (centres[group] + spread / np.sqrt(dim) * rng.standard_normal((n_users, dim))), group


def coverage(dim: int, scarce: float) -> FloatArray:
    """The scale of each feature: a tenth for a share `scarce` of them."""
    scale = np.ones(dim)
    scale[: int(scarce * dim)] = 0.1
    return scale


def demo_population(rng: np.random.Generator) -> tuple[Population, Candidates]:
    """24 readers, three tastes, 40 choices each between summaries described by six qualities; and 30 new stories.

    Nobody was shown many hopeful or technical summaries, so what they think of those is hardly known.

    >>> people, stories = demo_population(np.random.default_rng(0))
    >>> people.data, len(stories)
    (Comparisons(960 comparisons by 24 users, 6 features), 30)
    """
    n_users, dim = len(DEMO_NAMES), len(DEMO_FEATURES)
    tastes = np.array(list(DEMO_TASTES.values()))
    group = np.arange(n_users) % len(tastes)
    theta = 3.0 * (tastes[group] + 0.06 * rng.standard_normal((n_users, dim)))
    rare = np.array([1.0, 1.0, 1.0, 1.0, 0.15, 0.15])

    def summaries(shape: tuple[int, ...], scale: FloatArray) -> FloatArray:
        drawn = rng.standard_normal((*shape, dim))
        return scale * drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)

    def choices(n: int, scale: FloatArray) -> Comparisons:
        owner = np.repeat(np.arange(n_users), n)
        first, second = summaries((len(owner),), scale), summaries((len(owner),), scale)
        y = rng.random(len(owner)) < expit(np.einsum("ij,ij->i", first - second, theta[owner]))
        names = np.array(DEMO_NAMES)[owner]
        return Comparisons.from_sides(first, second, y, names, feature_names=DEMO_FEATURES)

    people = Population(choices(40, rare), choices(60, np.ones(dim)), theta, group)
    return people, Candidates(summaries((30, 4), np.ones(dim)))
