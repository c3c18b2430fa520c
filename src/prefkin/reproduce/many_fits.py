"""Many regularised estimates at once, from overlapping sets of the same rows.

An experiment pools the same users in hundreds of ways. Rows are cut into *parcels* (a user's rows, or a fold of them);
a fit is a set of parcels, a ridge and a point towards which it shrinks:

    θ_k = argmin Σ_{parcels p of k} Σ_{i in p} log(1 + exp(−s_i θᵀz_i)) + λ_k/2 ‖θ − c_k‖²,     s_i = ±1 the answer.

All fits advance together, by Newton's method with conjugate gradients inside, so that one matrix product per parcel
serves every fit that uses it. The result is that of `likelihood.fit_preference`, within `tol`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.errors import ConvergenceError
from prefkin.execution.blas import in_one_order

__all__ = ["Parcels", "fit_many"]

NEWTON_STEPS = 60
Rough = NDArray[np.float32]
ENOUGH = 0.1  # a Newton direction is computed to a tenth: the next step mends the rest
FAR_STEPS, FAR_ENOUGH = 5, 0.3  # and more roughly while the optimum is far
SHARP = 1e-4  # tolerance below which gradients need all digits


@dataclass(frozen=True, eq=False)
class Parcels:
    """Rows cut into pieces: features, and answers as −1 and 1."""

    Z: list[FloatArray]  # (n_p, d) each
    side: list[FloatArray]  # (n_p,) each

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.Z[0].shape[1]

    @cached_property
    def rough(self) -> list[Rough]:
        """The features in half the digits: enough for `tol`, and twice as fast; sums over parcels keep all."""
        return [Z.astype(np.float32) for Z in self.Z]

    @cached_property
    def squares(self) -> FloatArray:
        """Σ z² in each parcel, shape (P, d)."""
        return np.array([np.einsum("ij,ij->j", Z, Z) for Z in self.Z])


@in_one_order
def fit_many(
    parcels: Parcels,
    member: BoolArray,
    ridge: FloatArray,
    *,
    centre: FloatArray | None = None,
    start: FloatArray | None = None,
    tol: float = 1e-3,
) -> FloatArray:
    """The estimates, shape (K, d): `member[k, p]` says whether fit k uses parcel p.

    A fit is done when a Newton step is below `tol` (1 + ‖θ‖); what is left after taking it is about a tenth of that.

    >>> one = Parcels([np.array([[1.0], [1.0], [1.0]])], [np.array([1.0, 1.0, -1.0])])
    >>> theta = fit_many(one, np.array([[True]]), np.array([1.0]))[0, 0]
    >>> bool(abs(3 * expit(theta) - 2 + theta) < 1e-3)              # the gradient vanishes
    True
    """
    towards = np.zeros((len(member), parcels.dim)) if centre is None else np.asarray(centre, dtype=np.float64)
    theta = towards.copy() if start is None else np.array(start, dtype=np.float64)
    left = np.arange(len(member))
    for number in range(NEWTON_STEPS):
        work = _Work(parcels, member[left], ridge[left], theta[left], towards[left], sharp=tol < SHARP)
        enough = FAR_ENOUGH if number < FAR_STEPS else ENOUGH
        step, moved = work.newton(enough)
        small = tol * ENOUGH / enough  # a rougher step has to be smaller to be the last one
        done = np.linalg.norm(step, axis=1) <= small * (1.0 + np.linalg.norm(theta[left], axis=1))
        length = np.where(done, 1.0, work.length(step, moved))
        theta[left] -= length[:, None] * step
        left = left[~done]
        if not len(left):
            return theta
    raise ConvergenceError(
        f"{len(left)} of {len(member)} estimates not found in {NEWTON_STEPS} Newton steps; raise ridge"
    )


class _Work:
    """One Newton step of several fits; a row each."""

    def __init__(
        self,
        parcels: Parcels,
        member: BoolArray,
        ridge: FloatArray,
        theta: FloatArray,
        towards: FloatArray,
        sharp: bool,
    ) -> None:
        self.parcels, self.ridge, self.theta, self.towards = parcels, ridge[:, None], theta, towards
        self.fits = [np.flatnonzero(column) for column in member.T]  # the fits that use each parcel
        self.margin, self.slope = [], []
        self.gradient = self.ridge * (theta - towards)
        scale = np.zeros((len(member), len(self.fits)))  # mean slope of each fit in each parcel
        tables: list[NDArray[Any]] = [*parcels.Z] if sharp else [*parcels.rough]
        at = theta.astype(tables[0].dtype, copy=False)
        for p, (Z, k) in enumerate(zip(tables, self.fits, strict=True)):
            side = parcels.side[p].astype(Z.dtype, copy=False)
            margin = side * (at[k] @ Z.T)
            miss = expit(-margin)
            slope = miss * (1.0 - miss)
            self.gradient[k] -= (side * miss) @ Z
            scale[k, p] = slope.mean(axis=1) if slope.size else 0.0
            self.margin.append(margin)
            self.slope.append(slope.astype(np.float32, copy=False))
        self.scale = scale @ parcels.squares + self.ridge  # the Hessian's diagonal, nearly

    def newton(self, enough: float) -> tuple[FloatArray, list[Rough]]:
        """Hessian⁻¹ gradient by conjugate gradients, and what it does to the margins; relative error `enough`."""
        largest = np.abs(self.gradient).max(axis=1, keepdims=True).clip(1e-300)
        solution = np.zeros(self.gradient.shape, dtype=np.float32)
        moved = [np.zeros_like(slope) for slope in self.slope]
        live = np.arange(len(solution))
        ridge, scale = self.ridge.astype(np.float32), self.scale.astype(np.float32)
        residual = (self.gradient / largest).astype(np.float32)  # small gradients must not vanish in few digits
        direction = residual / scale
        size = np.einsum("ij,ij->i", residual, direction)
        goal = np.maximum(enough**2 * size, 1e-30)
        parts = self._parts(live)
        for _ in range(4 * self.parcels.dim):
            going = size > goal
            if not going.any():
                break
            if going.mean() < 0.8:  # those that are done keep going with the others until it pays to part
                live, ridge, scale, residual, direction, size, goal = (
                    part[going] for part in (live, ridge, scale, residual, direction, size, goal)
                )
                parts = self._parts(live)
            image = ridge * direction
            changes = []
            for Z, (here, slope, _) in zip(self.parcels.rough, parts, strict=True):
                change = direction[here] @ Z.T
                image[here] += (slope * change) @ Z
                changes.append(change)
            length = size / np.maximum(np.einsum("ij,ij->i", direction, image), 1e-37)
            solution[live] += length[:, None] * direction
            residual -= length[:, None] * image
            for total, change, (here, _, at) in zip(moved, changes, parts, strict=True):
                total[at] += length[here, None] * change
            conditioned = residual / scale
            new = np.einsum("ij,ij->i", residual, conditioned)
            direction *= (new / np.maximum(size, 1e-37))[:, None]
            direction += conditioned
            size = new
        for total, side, k in zip(moved, self.parcels.side, self.fits, strict=True):
            total *= (side * largest[k]).astype(np.float32)
        return solution * largest, moved

    def _parts(self, live: IntArray) -> list[tuple[IntArray, Rough, IntArray]]:
        """For each parcel: the live fits that use it, their slopes, and where they stand in the parcel's list."""
        place = np.full(len(self.theta), -1)
        place[live] = np.arange(len(live))
        found = []
        for k, slope in zip(self.fits, self.slope, strict=True):
            at = np.flatnonzero(place[k] >= 0)
            found.append((place[k[at]], slope[at], at))
        return found

    def length(self, step: FloatArray, moved: list[Rough]) -> FloatArray:
        """For each fit, 1 or the first of 1/2, 1/4, ... at which the objective falls as its slope promises."""
        promised = np.einsum("ij,ij->i", self.gradient, step)
        now, length = self._objective(np.zeros(len(promised)), step, moved), np.ones(len(promised))
        for _ in range(40):
            then = self._objective(length, step, moved)
            bad = then > now - 1e-4 * length * promised + 1e-6 * np.abs(now)
            if not bad.any():
                break
            length = np.where(bad, length / 2.0, length)
        return length

    def _objective(self, length: FloatArray, step: FloatArray, moved: list[Rough]) -> FloatArray:
        shift = self.theta - length[:, None] * step - self.towards
        value = self.ridge[:, 0] / 2.0 * np.einsum("ij,ij->i", shift, shift)
        for k, margin, move in zip(self.fits, self.margin, moved, strict=True):
            value[k] += np.logaddexp(0.0, length[k, None] * move - margin).sum(axis=1)
        return value
