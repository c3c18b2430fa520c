"""From sites to quadratics."""

from __future__ import annotations

from prefkin.inference.quadratics.directions import ByDirections
from prefkin.inference.quadratics.forms import Quadratics
from prefkin.inference.quadratics.matrices import ByMatrices
from prefkin.inference.quadratics.sites import SINGLE_FROM, Signed, Sites

__all__ = ["expand"]

FULL = 0.6  # answers per feature from which a matrix takes less time than as many directions


def expand(data: Signed, sites: Sites) -> Quadratics:
    """Everybody's quadratic from the sites of their rows.

    >>> import numpy as np
    >>> one = Signed(np.array([[1.0, 0.0]]), np.ones(1), np.array([0, 1]))
    >>> found = expand(one, Sites.start(one.weights))
    >>> found.one(0).posterior_mean(np.zeros(2), 4.0).tolist()
    [1.0, 0.0]
    """
    full = data.dim >= SINGLE_FROM and len(data.X) >= FULL * len(data) * data.dim
    return (ByMatrices if full else ByDirections).of(data, sites)
