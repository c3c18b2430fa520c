"""Answers that many estimates miss."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefkin.inference.kernels.arithmetic import kernel, smaller_chance


@kernel
def misses(margin: Any, y: Any, weights: Any) -> None:
    """margin (rows, sets) in float32 → w (σ(margin) − y), in place."""
    n, sets = margin.shape
    for i in range(n):
        row, answer, weight = margin[i], np.float32(y[i]), np.float32(weights[i])
        for s in range(sets):
            m = row[s]
            p = smaller_chance(m)
            row[s] = weight * ((np.float32(1) - p if m > 0 else p) - answer)
