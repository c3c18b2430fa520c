"""Covariance structures of continuous heterogeneity, learnt by evidence.

In the metric where Σ = R Rᵀ is the identity the evidence rises by the minorise-maximise step Σ_new K Σ_new = D (Zhou et
al., 2019), with D the users' squared scores and K their expected information. The prior is inverse Wishart: `dof` users
with a covariance that is isotropic in the structure's units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.inference.hierarchy import Moments
from prefkin.inference.model import Design, Groups, Population
from prefkin.models.prefkin.scales import MacKayStep, StepLength, ratio
from prefkin.models.prefkin.settings import SCALES

__all__ = ["STRUCTURES", "Structure"]

Units = Literal["raw", "scaled", "whitened"]
Step = Callable[[FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class Structure:
    """A covariance structure: its step, its prior, and the units in which the prior is isotropic."""

    name: str
    units: Units
    step: Step | None = None  # (D, K) → Σ_new where Σ = I; None: isotropic in its units
    dof: float = 0.0  # degrees of freedom of the prior, and
    dof_per_feature: float = 0.0
    parameters: Callable[[int], float] = float  # free ones, of d features
    known: Population | None = None  # hyperparameters from a sample of the users, to begin with

    @property
    def isotropic(self) -> bool:
        """Is it the same in any orthonormal axes, and so along some of them?"""
        return self.units == "raw" and self.step is None

    def start(self, design: Design) -> Population:
        """Isotropic in the structure's units."""
        root = units_of(design, self.units)
        size = design.with_root(root).size
        within = SCALES.first_margin_variance / size
        population = Population(within, within, within, np.zeros(design.dim), root)
        if self.step is None:
            return population
        root = np.diag(root) if root is not None and root.ndim == 1 else np.eye(design.dim) if root is None else root
        return replace(population, root=root * np.sqrt(within), within=1.0, between=1.0)

    def m_step(self, design: Design) -> Callable[[Moments, Groups, Population], tuple[Population, float]]:
        """The M-step: of variances alone, or of R Rᵀ and ρ²."""
        if self.step is None:
            size = design.with_root(units_of(design, self.units)).size
            return MacKayStep(size)
        return _CovarianceStep(self, design)

    @property
    def learn(self) -> int:
        """What the M-step needs of the E-step."""
        return 1 if self.step is None else 2


class _CovarianceStep:
    """Minorise-maximise steps of R Rᵀ, MacKay's of ρ², with Barzilai and Borwein's step lengths."""

    def __init__(self, structure: Structure, design: Design) -> None:
        self.structure, self.dof = structure, structure.dof + structure.dof_per_feature * design.dim
        units = units_of(design, structure.units)
        self.units = np.eye(design.dim) if units is None else np.diag(units) if units.ndim == 1 else units
        self.inverse_units = np.linalg.inv(self.units)
        self.steps, self.between_steps = StepLength(), StepLength()

    def __call__(self, moments: Moments, groups: Groups, population: Population) -> tuple[Population, float]:
        d, R = len(population.m0), population.root
        assert R is not None
        assert self.structure.step is not None
        D, K = moments.D, moments.K
        if self.dof:
            B = self.inverse_units @ R  # Σ in the prior's units is B Bᵀ
            prior = np.linalg.inv(B.T @ B) * d / np.trace(np.linalg.inv(B @ B.T))
            D, K = D + self.dof * prior, K + self.dof * np.eye(d)
        values, axes = np.linalg.eigh(self.structure.step(D, K))
        direction = (axes * np.log(np.clip(values, 1e-3, 1e3))) @ axes.T
        top = np.log(ratio(groups.squares * population.between + 1.0, groups.known * population.between + 1.0))
        values, axes = np.linalg.eigh(self.steps(direction))
        values = np.clip(values, -SCALES.most_step, SCALES.most_step)
        R = self._bounded(R @ ((axes * np.exp(0.5 * values)) @ axes.T))
        step = float(self.between_steps(np.array([top]))[0])
        factor = float(np.exp(np.clip(step, -SCALES.most_step, SCALES.most_step)))
        most = SCALES.most_margin_variance / float(np.square(self.inverse_units @ R).sum())
        between = float(np.clip(population.between * factor, 1e-4, max(most, 1.0)))
        return replace(population, root=R, between=between), float(np.abs(values).max())

    def _bounded(self, R: FloatArray) -> FloatArray:
        """R with standard deviations, in the prior's units, that are positive, and margins that vary."""
        U, deviations, Vt = np.linalg.svd(self.inverse_units @ R)
        total = float(np.square(deviations).sum())
        scale = np.sqrt(np.clip(total, SCALES.least_margin_variance, SCALES.most_margin_variance) / max(total, 1e-300))
        most = SCALES.least_deviation * deviations[0]
        if scale == 1.0 and deviations[-1] >= most:
            return R
        return self.units @ ((U * (scale * np.maximum(deviations, most))) @ Vt)


def units_of(design: Design, units: Units) -> FloatArray | None:
    """R for which features are as given (None), scaled to mean square 1, or uncorrelated with mean square 1."""
    if units == "raw":
        return None
    C = (design.X * design.weight[:, None]).T @ design.X / max(design.weight.sum(), 1e-300)
    variance = np.diag(C)
    scale = 1.0 / np.sqrt(np.where(variance > 0, variance, 1.0))
    if units == "scaled":
        return scale
    values, axes = np.linalg.eigh(scale[:, None] * C * scale)  # of correlations: the least is relative to no unit
    return scale[:, None] * axes / np.sqrt(np.maximum(values, 1e-6 * max(values.max(), 1e-300)))


def power_of(M: FloatArray, p: float) -> FloatArray:
    """M to the power p, of a symmetric positive matrix."""
    values, axes = np.linalg.eigh(M)
    return (axes * np.maximum(values, 1e-12) ** p) @ axes.T


def diagonal_step(D: FloatArray, K: FloatArray) -> FloatArray:
    """√(D / K) along each axis."""
    return np.diag(np.sqrt(np.diag(D) / np.diag(K)))


def full_step(D: FloatArray, K: FloatArray) -> FloatArray:
    """The geometric mean of D and K⁻¹."""
    half, back = power_of(K, 0.5), power_of(K, -0.5)
    return back @ power_of(half @ D @ half, 0.5) @ back


def one_parameter(d: int) -> float:  # noqa: ARG001
    """A scale."""
    return 1.0


def triangle(d: int) -> float:
    """A symmetric matrix."""
    return d * (d + 1) / 2.0


STRUCTURES = {
    structure.name: structure
    for structure in (
        Structure("isotropic", "raw", parameters=one_parameter),
        Structure("scaled", "scaled", parameters=one_parameter),
        Structure("diagonal", "scaled", diagonal_step, dof=4.0),
        Structure("whitened", "whitened", full_step, dof=5.0, dof_per_feature=1.0, parameters=triangle),
        Structure("full", "whitened", full_step, dof=1.0, parameters=triangle),
    )
}
