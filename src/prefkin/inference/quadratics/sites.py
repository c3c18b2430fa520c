"""Users' rows, and each row's likelihood as a site: a quadratic in its margin.

With rows x = (2y − 1) z, an answer's likelihood is σ(m) in its margin m = xᵀθ. Expectation propagation replaces it by a
site exp(level + pull·m − precision·m²/2) that gives the same mass, mean and variance of m under what all *other* rows
say about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.rows import UserRows

__all__ = ["SINGLE_FROM", "Signed", "Sites", "per_user_sum", "refine"]

# σ(x) ≈ Σ p Φ(s x), to 1e-6 (Monahan and Stefanski, 1992): moments of σ under a normal law in closed form
_SHARES = np.array(
    [0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818,
     0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354]
)  # fmt: skip
_SLOPES = np.array(
    [1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391,
     0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306]
)  # fmt: skip
SINGLE_FROM = 256  # features: from here single precision holds the rows; sums of scalars stay double
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class Signed:
    """Users' rows (2y − 1) z, as if the first action had always been preferred; one user's after another's."""

    X: FloatArray  # (n, d)
    weights: FloatArray  # (n,)
    starts: IntArray  # (U + 1,) user u owns rows starts[u]:starts[u + 1]

    @classmethod
    def of_users(cls, users: UserRows, scale: FloatArray | float = 1.0) -> Signed:
        """With features divided by `scale`."""
        kind = np.float32 if users.dim >= SINGLE_FROM else np.float64
        X = users.rows.signed()
        X /= scale
        return cls(X.astype(kind, copy=False), users.rows.weights, users.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.X.shape[1]

    @cached_property
    def owner(self) -> IntArray:
        """(n,) the user of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def own(self, user: int) -> slice:
        """Where a user's rows are."""
        return slice(int(self.starts[user]), int(self.starts[user + 1]))

    def some(self, users: Sequence[int] | IntArray) -> Signed:
        """A few of the users."""
        rows = np.concatenate([np.arange(self.starts[u], self.starts[u + 1]) for u in users])
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[np.asarray(users)])])
        return Signed(self.X[rows], self.weights[rows], starts.astype(np.intp))


class Sites(NamedTuple):
    """Each row's likelihood as level + pull·m − precision·m²/2 in its margin m."""

    precision: FloatArray  # (n,)
    pull: FloatArray  # (n,)
    level: FloatArray  # (n,)

    @classmethod
    def start(cls, weights: FloatArray) -> Sites:
        """log σ(m) around m = 0, for rows counted `weights` times."""
        return cls(weights / 4.0, weights / 2.0, -np.log(2.0) * weights)


def refine(sites: Sites, weights: FloatArray, mean: FloatArray, variance: FloatArray, step: float = 1.0) -> Sites:
    """Sites matched to margins believed to be N(mean, variance), one copy of the row itself taken out.

    All sites move at once, which overshoots when many rows say the same: `step` is the share of the way to go.

    >>> first = Sites.start(np.ones(1))
    >>> one = refine(first, np.ones(1), first.pull / 1.25, np.ones(1) / 1.25)  # one answer, before it m ~ N(0, 1)
    >>> round(float(one.level[0] + one.pull[0]**2 / 2 / (1 + one.precision[0]) - np.log1p(one.precision[0]) / 2), 6)
    -0.693147
    """
    found = tuple(np.empty(len(mean)) for _ in range(3))
    for start in range(0, len(mean), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        few = np.maximum(weights[rows], 1e-300)
        precision, pull = sites.precision[rows] / few, sites.pull[rows] / few
        # what others say; the mixture over blocks is no Gaussian, so that this might come out negative
        known = 1.0 / np.maximum(variance[rows], 1e-300)
        left = np.maximum(known - precision, 0.02 * known)
        spread, middle = 1.0 / left, (known * mean[rows] - pull) / left
        log_mass, new_precision, new_pull = _matched(middle, spread)
        precision = precision + step * (new_precision - precision)
        pull = pull + step * (new_pull - pull)
        # the site's own mass under what others say is that of σ
        level = log_mass + 0.5 * np.log1p(spread * precision)
        level -= 0.5 * (spread * pull**2 + 2.0 * pull * middle - precision * middle**2) / (1.0 + spread * precision)
        for target, values in zip(found, (precision, pull, level), strict=True):
            target[rows] = weights[rows] * values
    return Sites(*found)


def _matched(mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log mass of σ(m) when m ~ N(mean, variance); precision and pull of the site that gives the same moments."""
    widen = 1.0 / np.sqrt(1.0 + np.outer(variance, _SLOPES**2))
    at = np.maximum((mean[:, None] * _SLOPES) * widen, -37.0)
    mass = ndtr(at) @ _SHARES
    bell = np.exp(-0.5 * at**2) * widen / np.sqrt(2.0 * np.pi)
    slope = bell @ (_SHARES * _SLOPES) / mass  # d log mass / d mean
    curvature = slope**2 + (at * bell * widen) @ (_SHARES * _SLOPES**2) / mass  # −d² log mass / d mean²
    curvature = np.clip(curvature, 1e-10, (1.0 - 1e-9) / variance)
    precision = curvature / (1.0 - variance * curvature)
    return np.log(mass), precision, slope * (1.0 + variance * precision) + precision * mean


def per_user_sum(values: FloatArray, starts: IntArray) -> FloatArray:
    """Σ over each user's stretch of `values`; 0 for an empty stretch.

    >>> per_user_sum(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3])).tolist()
    [3.0, 0.0, 4.0]
    """
    total = np.zeros((len(starts) - 1, *values.shape[1:]))
    used = np.flatnonzero(np.diff(starts))
    if used.size:
        total[used] = np.add.reduceat(values, starts[used], axis=0)
    return total
