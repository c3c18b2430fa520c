"""Fixed points x = g(x) in fewer rounds: Anderson's acceleration (Walker and Ni, 2011).

The next x is the mixture of the last g(x), with shares that sum to 1, whose residuals g(x) − x add up to least.
"""

from __future__ import annotations

import numpy as np

from prefkin.data.arrays import FloatArray

__all__ = ["Anderson"]

GROWN = 2.0  # times the last residual: what was seen before does not hold here
ROUNDING = 1e-8  # of the squared changes of residuals: below, they are one


class Anderson:
    """The last rounds of an iteration.

    >>> rounds, x = Anderson(memory=3), np.array([5.0, -3.0])
    >>> for _ in range(5):
    ...     x = rounds.next(x, np.array([[0.9, 0.1], [0.0, 0.5]]) @ x + 1.0, 1.0)
    >>> x.round(4).tolist()
    [12.0, 2.0]
    """

    def __init__(self, memory: int) -> None:
        self.memory, self.size = memory, np.inf
        self._residuals: list[FloatArray] = []
        self._images: list[FloatArray] = []

    def next(self, x: FloatArray, image: FloatArray, scale: FloatArray | float) -> FloatArray:
        """Where to go from x, which g takes to `image`; `size` is then that of the residual, measured by `scale`."""
        residual = image - x
        size = float(np.linalg.norm(scale * residual))
        if size > GROWN * self.size:
            self._residuals, self._images = [], []
        self.size = size
        changes = np.array([(residual - each) * scale for each in self._residuals])
        further = image.copy()
        if len(changes):
            gram = changes @ changes.T
            gram[np.diag_indices_from(gram)] += ROUNDING * np.trace(gram) + np.finfo(np.float64).tiny
            for share, each in zip(np.linalg.solve(gram, changes @ (scale * residual)), self._images, strict=True):
                further -= share * (image - each)
        self._residuals = [*self._residuals, residual][-self.memory :]
        self._images = [*self._images, image][-self.memory :]
        return further
