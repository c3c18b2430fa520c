"""Each user's log-likelihood as a quadratic, from the sites of expectation propagation.

1. signed      users' rows, as if the first action had always been preferred
2. forms       what quadratics have to tell: terms in a prior's mean
3. evidence    of somebody under a prior, or of a set around its centre
4. matrices    kept as a matrix a user
5. directions  kept along the directions that a user's few rows span
"""

from __future__ import annotations

from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics.directions import ByDirections
from prefkin.inference.quadratics.forms import DENSE, Terms
from prefkin.inference.quadratics.matrices import SHORT, STACKED_UP_TO, ByMatrices, mirrored
from prefkin.inference.quadratics.signed import SINGLE_FROM, Signed, per_user_sum

__all__ = [
    "DENSE",
    "SHORT",
    "SINGLE_FROM",
    "STACKED_UP_TO",
    "ByDirections",
    "ByMatrices",
    "Quadratics",
    "Signed",
    "Terms",
    "expand",
    "mirrored",
    "per_user_sum",
]

Quadratics = ByMatrices | ByDirections
"""Many users' quadratics: both have the same methods."""

FULL = 0.6  # rows per feature from which a matrix takes less time than as many directions


def expand(data: Signed, sites: Sites) -> Quadratics:
    """Everybody's quadratic from the sites of their rows, in the form that takes less time.

    >>> import numpy as np
    >>> one = Signed(np.array([[1.0, 0.0]]), np.ones(1), np.array([0, 1]))
    >>> terms = expand(one, Sites.start(one.weights)).at(4.0)
    >>> terms.posterior_means(np.zeros((1, 2)), 4.0).round(9).tolist()
    [[1.0, 0.0]]
    """
    thin = data.dim > STACKED_UP_TO and len(data.X) < FULL * len(data) * data.dim
    return (ByDirections if thin else ByMatrices).of(data, sites)
