"""Expectation propagation: each answer's likelihood as a site, a quadratic in its margin.

With rows x = (2y − 1) z, an answer's likelihood is σ(m) in its margin m = xᵀθ. A site exp(level + pull·m −
precision·m²/2) stands in for it that gives the same mass, mean and variance of m under what all *other* rows say about
it (the cavity). An answer that was given w times is one site, matched to σ(m)ʷ, whether it stands in one row of weight
w or in several: then the cavity is what other answers say. By quadrature, since that has no closed form.

Answers that count once are matched by one rule everywhere: σ as a mixture of normal distribution functions. Beside a
fine grid it is right to 1e-4, in a tenth of the time of quadrature. It never sees the far tail: since σ(m) = eᵐ σ(−m),
mass(μ, v) = exp(μ + v/2) mass(−μ − v, v), and an answer that nobody would expect is matched by way of one that
everybody would.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from prefkin.data.arrays import BoolArray, FloatArray, IntArray, above_zero
from prefkin.inference import _kernels

__all__ = ["FARTHEST", "LEAST_CAVITY", "SIGMOID", "Sites", "cavities", "refine"]

# σ(x) ≈ Σ p Φ(s x), to 1e-6 (Monahan and Stefanski, 1992): moments of σ under a normal law in closed form
SIGMOID = np.array(
    [
        [0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818,
         0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354],  # shares p
        [1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391,
         0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306],  # slopes s
    ]
)  # fmt: skip
FARTHEST = -37.0  # standard deviations beyond which Φ underflows
LEAST_CAVITY = 0.02  # of a margin's precision: under a mixture, what others say might come out negative
_NODES = 20  # of quadrature on each of three stretches
_ROWS_AT_ONCE = 1 << 13  # so that what is computed stays in the cache


class Sites(NamedTuple):
    """Each row's likelihood as level + pull·m − precision·m²/2 in its margin m, all copies of it together."""

    precision: FloatArray  # (n,)
    pull: FloatArray  # (n,)
    level: FloatArray  # (n,)
    at: FloatArray  # (n,) mean of each margin to which they were matched

    @classmethod
    def start(cls, weights: FloatArray, variance: FloatArray | None = None) -> Sites:
        """log σ(m) around m = 0; matched to margins of this `variance` before any answer, where it is given."""
        one = np.ones(len(weights))
        copy = cls(one / 4.0, one / 2.0, -np.log(2.0) * one, 0.0 * one)
        if variance is not None:
            known = 1.0 + variance / 4.0
            copy = refine(copy, one, 0.5 * variance / known, variance / known)
        return cls(weights * copy.precision, weights * copy.pull, weights * copy.level, np.zeros(len(weights)))

    @classmethod
    def tangent(cls, weights: FloatArray, margin: FloatArray, offset: FloatArray | None = None) -> Sites:
        """log σ(m) to second order around `margin`; with an `offset` log σ(m + offset)."""
        inside = margin if offset is None else margin + offset
        miss = expit(-inside)
        precision = weights * miss * (1.0 - miss)
        pull = weights * miss + precision * margin
        level = -weights * np.logaddexp(0.0, -inside) - pull * margin + 0.5 * precision * margin**2
        return cls(precision, pull, level, margin)

    @classmethod
    def kept(cls, precision: FloatArray, pull: FloatArray, level: FloatArray) -> Sites:
        """Sites that were found before, and are not sought any more: where they were matched is forgotten."""
        return cls(precision, pull, level, np.zeros(len(level)))

    def of(self, rows: IntArray | BoolArray) -> Sites:
        """The sites of some rows."""
        return Sites(*(each[rows] for each in self))

    def copy(self) -> Sites:
        """The same, to be changed."""
        return Sites(*(each.copy() for each in self))

    def put(self, rows: IntArray | slice, sites: Sites) -> None:
        """Let these be the sites of some rows."""
        for target, values in zip(self, sites, strict=True):
            target[rows] = values

    def stretched(self, factor: float) -> Sites:
        """For margins so many times as large."""
        return Sites(self.precision / factor**2, self.pull / factor, self.level, factor * self.at)


def refine(
    sites: Sites,
    weights: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    step: float = 1.0,
    offset: FloatArray | None = None,
    total: FloatArray | None = None,
) -> Sites:
    """Sites matched to margins believed to be N(mean, variance), the answer itself taken out.

    `total` is how often each answer was given, in all rows that say the same about the same; its weight unless given.
    All sites move at once, which overshoots when many rows say the same: `step` is the share of the way to go. With an
    `offset` an answer's likelihood is σ(m + offset).

    >>> first = Sites.start(np.ones(1))
    >>> one = refine(first, np.ones(1), first.pull / 1.25, np.ones(1) / 1.25)  # one answer, before it m ~ N(0, 1)
    >>> round(float(one.level[0] + one.pull[0]**2 / 2 / (1 + one.precision[0]) - np.log1p(one.precision[0]) / 2), 6)
    -0.693147
    """
    found = Sites(np.empty(len(mean)), np.empty(len(mean)), np.empty(len(mean)), mean)
    power = above_zero(weights if total is None else total)
    share = weights / power  # of the site that each row has
    for start in range(0, len(mean), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        whole, times = above_zero(share[rows]), power[rows]
        precision, pull = sites.precision[rows] / whole, sites.pull[rows] / whole
        middle, spread = _without(precision, pull, mean[rows], variance[rows], LEAST_CAVITY / np.maximum(times, 1.0))
        if offset is None:
            log_mass, new_precision, new_pull = _matched(middle, spread, times)
        else:
            log_mass, new_precision, new_pull = _matched(middle + offset[rows], spread, times)
            new_pull = new_pull - new_precision * offset[rows]
        precision += step * (new_precision - precision)
        pull += step * (new_pull - pull)
        # the site's own mass under what others say is that of σʷ
        level = log_mass + 0.5 * np.log1p(spread * precision)
        level -= 0.5 * (spread * pull**2 + 2.0 * pull * middle - precision * middle**2) / (1.0 + spread * precision)
        for target, values in zip(found[:3], (precision, pull, level), strict=True):
            np.multiply(share[rows], values, out=target[rows])
    return found


def cavities(
    sites: Sites, weights: FloatArray, mean: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """What is believed about each row's margin without one copy of the row itself, from N(mean, variance) with it."""
    copies = above_zero(weights)
    return _without(sites.precision / copies, sites.pull / copies, mean, variance)


def _without(
    precision: FloatArray,
    pull: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    least: FloatArray | float = LEAST_CAVITY,
) -> tuple[FloatArray, FloatArray]:
    variance = above_zero(variance)
    left = np.maximum(1.0 - variance * precision, least)  # of what is known
    return (mean - variance * pull) / left, variance / left


def _matched(mean: FloatArray, variance: FloatArray, power: FloatArray) -> FloatArray:
    """Log mass of σ(m)ᵖ when m ~ N(mean, variance); precision and pull of the site that gives the same moments."""
    found = np.empty((3, len(mean)))
    _kernels.match(mean, variance, power, SIGMOID, FARTHEST, _quadrature(), found)
    return found


@cache
def _quadrature() -> FloatArray:
    """Nodes from 0 to 1 and their weights, (2, nodes): Gauss and Legendre."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return np.array([0.5 + 0.5 * nodes, 0.5 * weights])
