"""In which directions a preference is known, and in which it is not, named by the features that make them up.

What is left of the prior's doubt is a matrix L = P^{-1/2} C P^{-1/2}, P the covariance before any answer and C the one
after: its eigenvalues are near 0 where answers decided and 1 where nothing was learnt. They do not depend on units.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from prefkin.data.arrays import FloatArray, above_zero

__all__ = ["CoverageMap", "Direction", "coverage_map", "feature_name"]

SHOWN = 5
MOST_NAMED = 3  # features in the name of a direction
DOMINANT = 0.8  # share of a direction that its named features make up, if `MOST_NAMED` are enough for that
SAME = 1e-6  # eigenvalues closer than that share a plane, in which any axes would do
UNKNOWN = 0.9


@dataclass(frozen=True, eq=False)
class Direction:
    """A contrast of features and how much doubt about it is left, as a share of the doubt before any answer."""

    name: str
    vector: FloatArray  # (d,) length 1, in features divided by their scale
    doubt: float  # standard deviation after everything that was used, over the one before
    own_doubt: float  # the same with the user's own answers only


@dataclass(frozen=True, eq=False)
class CoverageMap:
    """What is known about a user, weakest direction first; `print` shows a small table."""

    user: Hashable
    directions: tuple[Direction, ...]  # the weakest few
    doubt: FloatArray  # (d,) of all directions, weakest first
    feature_doubt: FloatArray  # (d,) of each feature's weight by itself
    feature_names: tuple[str, ...]

    @property
    def strongest(self) -> float:
        """Doubt left in the best-known direction."""
        return float(self.doubt[-1])

    @property
    def n_unknown(self) -> int:
        """Directions in which hardly anything was learnt."""
        return int((self.doubt > UNKNOWN).sum())

    def __str__(self) -> str:
        width = max(9, *(len(direction.name) for direction in self.directions))
        lines = [
            f"what is known about {self.user!r}: doubt left, of 100 % before any answer",
            f"{'direction':{width}}  own answers  with others  × strongest",
        ]
        for one in self.directions:
            ratio = one.doubt / above_zero(self.strongest)
            lines.append(f"{one.name:{width}}  {one.own_doubt:>11.0%}  {one.doubt:>11.0%}  {ratio:>11.1f}")
        rest = len(self.doubt) - len(self.directions)
        if rest > 0:
            best = f"{self.strongest:.0%} in the strongest"
            lines.append(f"({rest} more directions are better known: {best})")
        return "\n".join(lines)


def coverage_map(
    user: Hashable, own: FloatArray, pooled: FloatArray, names: Sequence[str] | None = None, n: int = SHOWN
) -> CoverageMap:
    """From the matrices L of what is left, after own answers and after everybody's.

    >>> print(coverage_map("ann", np.diag([1.0, 0.25]), np.diag([0.64, 0.04]), ["salt", "sugar"]))
    what is known about 'ann': doubt left, of 100 % before any answer
    direction  own answers  with others  × strongest
    salt              100%          80%          4.0
    sugar              50%          20%          1.0
    """
    left, axes = np.linalg.eigh(pooled)
    left, axes = left[::-1], _readable(left[::-1], axes[:, ::-1])
    shown = min(n, len(left))
    own_left = np.einsum("ij,ik,kj->j", axes[:, :shown], own, axes[:, :shown])
    doubt = _root(left)
    directions = tuple(
        Direction(name_direction(axes[:, k], names), axes[:, k], float(doubt[k]), float(_root(own_left)[k]))
        for k in range(shown)
    )
    every = tuple(feature_name(names, i) for i in range(len(left)))
    return CoverageMap(user, directions, doubt, _root(np.diag(pooled)), every)


def feature_name(names: Sequence[str] | None, i: int) -> str:
    """A feature's name, or its number.

    >>> feature_name(None, 3), feature_name(["salt"], 0)
    ('feature 3', 'salt')
    """
    return f"feature {i}" if names is None else str(names[i])


def name_direction(vector: FloatArray, names: Sequence[str] | None) -> str:
    """The features that dominate a direction, the largest first, those that count against it with a minus.

    >>> name_direction(np.array([0.1, -0.7, 0.7]), ["salt", "sugar", "fat"])
    'sugar − fat'
    """
    order = np.argsort(-np.abs(vector).round(9), kind="stable")
    share = np.cumsum(vector[order] ** 2) / above_zero(vector @ vector)
    few = order[: min(MOST_NAMED, int(np.searchsorted(share, DOMINANT)) + 1)]
    facing = np.sign(vector[few[0]])
    text = feature_name(names, int(few[0]))
    for i in few[1:]:
        text += f" {'+' if facing * vector[i] > 0 else '−'} {feature_name(names, int(i))}"
    return text


def _readable(left: FloatArray, axes: FloatArray) -> FloatArray:
    """Where eigenvalues are equal, axes that point along single features as far as they can."""
    axes = axes.copy()
    ends: list[int] = (np.flatnonzero(np.append(-np.diff(left) > SAME, True)) + 1).tolist()
    start = 0
    for end in ends:
        if end - start > 1:
            turn, _, _ = qr(axes[:, start:end].T, pivoting=True)
            axes[:, start:end] = axes[:, start:end] @ turn
        start = end
    largest = axes[np.argmax(np.abs(axes).round(9), axis=0), np.arange(axes.shape[1])]
    return axes * np.where(largest < 0, -1.0, 1.0)


def _root(values: FloatArray) -> FloatArray:
    return np.sqrt(np.maximum(values, 0.0))
