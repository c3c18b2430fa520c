"""Names for the arrays that pass between functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BoolArray", "FloatArray", "IntArray", "LabelArray", "above_zero"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]
LabelArray = NDArray[Any]

LEAST = np.finfo(np.float64).tiny  # of normal numbers: of those below, 1/x may be infinite


def above_zero(values: Any) -> Any:
    """A number of 0 and more, or an array of them, to divide by: 0 over it is 0, where there is nothing to share."""
    return np.maximum(values, LEAST)
