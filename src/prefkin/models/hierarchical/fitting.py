"""From comparisons to a fitted model: candidates, held-out answers, the chosen model of all users."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.data.rows import UserRows
from prefkin.inference.ep import Convergence, Fit, run
from prefkin.inference.likelihood import Logistic
from prefkin.inference.model import Design
from prefkin.models.hierarchical.covariance import STRUCTURES
from prefkin.models.hierarchical.folds import splits_of
from prefkin.models.hierarchical.partition.search import log_evidence, search
from prefkin.models.hierarchical.selection import (
    Calibration,
    Candidate,
    HeldOut,
    best_temperature,
    calibrate,
    rescaled,
)
from prefkin.models.hierarchical.settings import SELECTION

__all__ = ["Chosen", "design_of", "learn"]


@dataclass(frozen=True, eq=False)
class Chosen:
    """The chosen model of all users."""

    candidate: Candidate
    design: Design
    fit: Fit
    calibration: Calibration
    evidence: dict[str, float]
    losses: dict[str, float]


def design_of(rows: UserRows) -> Design:
    """All comparisons."""
    return Design.of(Logistic(), rows.rows.Z, rows.rows.y, rows.rows.weights, rows.starts)


def leading_directions(design: Design) -> FloatArray | None:
    """(d, r) orthonormal directions in which rows vary most; None where features are few."""
    if design.dim <= SELECTION.directions:
        return None
    _, axes = np.linalg.eigh((design.X * design.weight[:, None]).T @ design.X)
    return np.ascontiguousarray(axes[:, -SELECTION.directions :])


def learn(rows: UserRows, predict_for: str = "auto", structures: tuple[str, ...] = ("auto",)) -> Chosen:
    """The model that held-out answers speak for, of all users."""
    design = design_of(rows)
    basis = leading_directions(design)
    small = design if basis is None else design.with_root(basis)
    names = structures
    if structures == ("auto",):
        names = (
            tuple(STRUCTURES)
            if 1 < rows.dim <= SELECTION.full_up_to
            else ("isotropic", "scaled")[: 1 + (basis is None)]
        )
    fits: dict[str, Fit] = {}
    candidates = [Candidate(STRUCTURES[name]) for name in names]
    for candidate in candidates:
        fits[candidate.name] = candidate.fit(small)
    evidence = {
        name: log_evidence(small, fit) - 0.5 * STRUCTURES[name].parameters(small.dim) for name, fit in fits.items()
    }
    best = max(evidence, key=lambda name: evidence[name])
    candidates = [c for c in candidates if evidence[c.name] > evidence[best] - SELECTION.far_behind]
    clusters = []
    if len(rows) > 2:
        for name in dict.fromkeys((names[0], best)):
            candidate = Candidate(STRUCTURES[name], clustered=True)
            found = search(small, fits[name])
            fits[candidate.name], evidence[candidate.name] = (
                found.fit,
                found.evidence - 0.5 * STRUCTURES[name].parameters(small.dim),
            )
            if evidence[candidate.name] > max(evidence[best], evidence[name]) + SELECTION.clearly:
                clusters.append(candidate)
    if clusters:
        clusters = [max(clusters, key=lambda c: evidence[c.name])]
    splits = splits_of(rows, small, predict_for)
    held = {c.name: HeldOut(small, splits, c.fit) for c in (*candidates, *clusters)} if splits else {}
    losses = {name: best_temperature(each.log_odds(), each.weight).loss for name, each in held.items()}
    chosen = min(candidates, key=lambda c: losses.get(c.name, -evidence[c.name]))
    if clusters and losses.get(clusters[0].name, 0.0) <= losses.get(chosen.name, 0.0) + SELECTION.clearly:
        chosen = clusters[0]
    calibration = calibrate(held[chosen.name]) if splits else Calibration(0.0, 1.0)
    fit = fits[chosen.name]
    if splits:
        fit = rescaled(small, fit, calibration.within, calibration.between, 10)
    if basis is not None:
        fit = lifted(design, fit, basis)
    return Chosen(chosen, design, fit, calibration, evidence, losses)


def lifted(design: Design, fit: Fit, basis: FloatArray) -> Fit:
    """An isotropic fit along some directions, in all features."""
    population = replace(fit.population, root=None, m0=basis @ fit.population.m0)
    return run(design, fit.sites, fit.share, population, rules=Convergence(max_iter=10))
