"""Answers that many estimates miss."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefkin.kernels.arithmetic import kernel, smaller_chance


@kernel
def misses(margin: Any, y: Any, weights: Any) -> None:
    """margin (sets, rows) in float32 → w (σ(margin) − y), in place."""
    sets, n = margin.shape
    for s in range(sets):
        row = margin[s]
        for i in range(n):
            m = row[i]
            p = smaller_chance(m)
            row[i] = np.float32(weights[i]) * ((np.float32(1) - p if m > 0 else p) - np.float32(y[i]))
