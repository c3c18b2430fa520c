"""How people differ: the metric in which they differ alike in all directions.

θ = R θ′ where θ′ is isotropic among people. Rows become x = Rᵀz, everything else (evidence, groups, questions) stays
isotropic, and people's covariance is τ² R Rᵀ:

    isotropic   R is one number: all features may matter alike
    diagonal    R has a number for each feature: some matter more; free of units
    full        R Rᵀ is any covariance: people who want one thing also want another; free of units
    whitened    the same, held near where all features vary alike and apart: free of units and of mixing

A full one of many people is hardly held by anything, and free of mixing, too.

A covariance Σ is learnt from everybody by evidence. With each user a quadratic whose terms for Σ are a and A (see
`forms`), and what all share N(m, S), the slope of log evidence in Σ is half of

    Σ_u (a − Am)(a − Am)ᵀ − Σ_u (A − ASA) = drawn − known,

and Σ ← the matrix with Σ_new known Σ_new = Σ drawn Σ never lowers it (Zhou, Hu, Zhou and Lange, MM algorithms for
variance components, 2019). Steps that agree with the one before are lengthened. Sites are matched in turns with that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray, above_zero
from prefkin.data.rows import UserRows
from prefkin.execution.blas import in_one_order
from prefkin.inference.modes import Around, matched
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Signed, expand
from prefkin.models.prefkin.beliefs import row_beliefs
from prefkin.models.prefkin.mixture import Prior
from prefkin.models.prefkin.settings import LIMITS, METRIC, bounded

__all__ = ["KINDS", "Learnt", "Metric", "Unit", "free_numbers", "learn_metric", "sizes"]

KINDS = ("isotropic", "diagonal", "full", "whitened")


@dataclass(frozen=True, eq=False)
class Metric:
    """Rows are x = Rᵀz, preferences θ = R θ′."""

    root: FloatArray  # R: (d,) the diagonal of it, or (d, r)

    @property
    def dim(self) -> int:
        """Number of directions in which people may differ."""
        return self.root.shape[-1]

    def rows(self, Z: FloatArray) -> FloatArray:
        """x of each row, (n, r)."""
        return Z * self.root if self.root.ndim == 1 else Z @ self.root

    def preferences(self, points: FloatArray) -> FloatArray:
        """θ of each θ′, (..., d)."""
        return points * self.root if self.root.ndim == 1 else points @ self.root.T

    def covariance(self, C: FloatArray) -> FloatArray:
        """R C Rᵀ, (..., d, d)."""
        return C * np.outer(self.root, self.root) if self.root.ndim == 1 else self.root @ C @ self.root.T

    def signed(self, users: UserRows) -> Signed:
        """Everybody's rows in this metric."""
        return Signed.of_users(users, self.root)


class Learnt(NamedTuple):
    """A metric, the scales that go with it, and sites of the rows it was learnt from."""

    metric: Metric
    prior: Prior
    sites: Sites


@in_one_order
def learn_metric(users: UserRows, kind: str, unit: Unit, start: Learnt | None, rounds: int) -> Learnt:
    """Σ of people by evidence, of a diagonal or full form, features being measured by `unit`; from `start` on.

    Imaginary people to whom all features matter alike are among them, so that few real ones do not decide alone: beside
    a full covariance of many people one; else as many as it takes to know a covariance at all, and some more.
    """
    d, measured = users.dim, Signed.of_users(users, unit.root)
    root, top = np.eye(d), 1.0
    if start is not None:
        root, top = unit.shape(start.metric, start.prior.within), start.prior.top / start.prior.within
    sites = Sites.start(users.rows.weights, 2.0 * measured.sizes) if start is None else start.sites
    covariance, longer, last = root @ root.T, 1.0, np.zeros((d, d))
    for turn in range(rounds):
        data = replace(measured, X=measured.X @ root)
        terms = expand(data, sites).at(1.0)
        A, a = terms.A.sum(axis=0), terms.a.sum(axis=0)
        doubt = np.linalg.inv(A + np.eye(d) / top)
        mean = doubt @ a
        off = terms.a - terms.images(np.broadcast_to(mean, terms.a.shape))
        drawn, known = off.T @ off, A - np.matmul(terms.A @ doubt, terms.A).sum(axis=0)
        step, logs = _step(drawn, known, covariance, root, kind, free=len(users) >= METRIC.many)
        if turn == rounds - 1 or (turn >= METRIC.at_least and np.abs(logs).max() < METRIC.settled):
            break
        beliefs = row_beliefs(data, terms, 1.0, mean, doubt)
        nobody_known = partial(Around.one, centre=np.zeros(d), variance=1.0 + top)
        sites = matched(sites, data, *beliefs, nobody_known, 1.0 if turn < METRIC.unhindered else METRIC.pace)
        top = min(float(mean @ mean + np.trace(doubt)) / d, LIMITS.most_variance)
        change = root @ ((step * logs) @ step.T) @ np.linalg.inv(root)
        agree = (change * last).sum() > 0
        longer = min(METRIC.longer * longer, METRIC.longest) if agree else max(METRIC.shorter * longer, 1.0)
        last = change
        stretch = np.exp(np.clip(longer * logs, -METRIC.most, METRIC.most))
        covariance = root @ ((step * stretch) @ step.T) @ root.T
        root = symmetric_root(covariance)
    within = float(np.trace(covariance)) / d
    metric = unit.metric(root / np.sqrt(within), diagonal=kind == "diagonal")
    within, top = bounded(within), bounded(within * top)
    return Learnt(metric, Prior(np.zeros(d), within, top, top), sites)


def _step(
    drawn: FloatArray, known: FloatArray, covariance: FloatArray, root: FloatArray, kind: str, free: bool
) -> tuple[FloatArray, FloatArray]:
    """Axes, and logarithms of how many times the variance along each, from here to the better covariance."""
    d = len(root)
    back = np.linalg.inv(root)
    if kind == "diagonal":
        people, typical = METRIC.imaginary, float(np.trace(covariance)) / d
        drawn = np.diag(drawn) + people * typical * np.diag(back) ** 2
        return np.eye(d), 0.5 * np.log(above_zero(drawn) / above_zero(np.diag(known) + people))
    people = METRIC.free if kind == "full" and free else METRIC.imaginary + d + 1.0
    typical = d / float((back**2).sum())
    factor = np.linalg.cholesky(known + people * np.eye(d))
    values, axes = np.linalg.eigh(factor.T @ (drawn + people * typical * (back @ back.T)) @ factor)
    better = (axes * np.sqrt(above_zero(values))) @ axes.T
    better = np.linalg.solve(factor.T, np.linalg.solve(factor.T, better.T).T)
    values, axes = np.linalg.eigh(0.5 * (better + better.T))
    return axes, np.log(np.clip(values, 1.0 / METRIC.farthest, METRIC.farthest))


def free_numbers(kind: str, d: int) -> int:
    """Of a metric of this kind, beside its overall scale.

    >>> [free_numbers(kind, 3) for kind in KINDS]
    [0, 2, 5, 5]
    """
    return 0 if kind == "isotropic" else d - 1 if kind == "diagonal" else d * (d + 1) // 2 - 1


@dataclass(frozen=True, eq=False)
class Unit:
    """In what features are measured while a covariance is learnt: where imaginary people differ alike."""

    root: FloatArray  # (d,), or (d, d) symmetric
    back: FloatArray  # its inverse, on what there is

    @classmethod
    def of(cls, users: UserRows, kind: str) -> Unit:
        """Each feature by its size; or all by their second moments, in which no mixing of features shows.

        The latter where "whitened" is asked for, and beside many people, whose covariance needs no features as they are
        to hold it.
        """
        size = np.where((size := sizes(users)) > 0, size, 1.0)
        if kind == "diagonal" or (kind == "full" and len(users) < METRIC.many):
            return cls(1.0 / size, size)
        Z = users.rows.Z / size
        values, axes = np.linalg.eigh((Z * users.rows.weights[:, None]).T @ Z / above_zero(users.rows.weights.sum()))
        values = np.sqrt(np.maximum(values, METRIC.real * values.max()))  # nothing is known where nothing varies
        return cls((axes / values) @ axes.T / size[:, None], (axes * values) @ axes.T * size)

    def shape(self, metric: Metric, within: float) -> FloatArray:
        """The root of a covariance in these units, (d, d)."""
        wide = np.diag(metric.root) if metric.root.ndim == 1 else metric.root
        found = np.sqrt(within) * (self.back[:, None] * wide if self.back.ndim == 1 else self.back @ wide)
        return symmetric_root(found @ found.T)

    def metric(self, shape: FloatArray, diagonal: bool) -> Metric:
        """The metric of a covariance whose root is `shape` in these units."""
        if self.root.ndim == 2:
            return Metric(self.root @ shape)
        return Metric(self.root * np.diag(shape) if diagonal else self.root[:, None] * shape)


def symmetric_root(covariance: FloatArray) -> FloatArray:
    """The symmetric square root."""
    values, axes = np.linalg.eigh(0.5 * (covariance + covariance.T))
    return (axes * np.sqrt(np.maximum(values, METRIC.real * values.max()))) @ axes.T


def sizes(users: UserRows) -> FloatArray:
    """Typical size of each feature, (d,); 0 where there is nothing of it."""
    weights = above_zero(users.rows.weights)
    return np.sqrt(np.einsum("i,ij,ij->j", weights, users.rows.Z, users.rows.Z) / weights.sum())
