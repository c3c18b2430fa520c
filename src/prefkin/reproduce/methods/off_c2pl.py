"""Off-C²PL (Algorithm 1) with its threshold γ̂ set in four ways.

* literal: γ̂ = γ, the true least gap between groups (the guarantee's own choice); Appendix A's "over" where no truth is.
* held-out: `gamma="auto"`, by how well pooled estimates predict held-out answers. Needs no truth.
* hindsight: the γ̂ of a grid with the smallest gap, on fresh contexts or on logged pairs. Nobody could have known it.
* sweep: every γ̂ of the grid (Experiment 4).

The grid joins given fractions of the pairs of users, so it reaches from nobody to everybody whatever the radii are.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.models.off_c2pl.estimator import OffC2PL
from prefkin.models.off_c2pl.graph import Graph
from prefkin.models.off_c2pl.threshold import joining_thresholds
from prefkin.reproduce.contracts import Estimate, Study, Truth, estimator

FRACTIONS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0)  # of the sweep
TRIED = tuple(fraction for fraction in FRACTIONS if fraction != 0.5)  # in hindsight: half of the work saved


def fitted(study: Study, gamma: Any) -> OffC2PL:
    """Off-C²PL with the settings of the study."""
    alpha, delta = float(study.settings["alpha"]), float(study.settings["delta"])
    return OffC2PL(gamma=gamma, ridge=study.ridge, alpha=alpha, delta=delta, n_jobs=1).fit(study.data)


def points(study: Study) -> Graph:
    """θ̂ and CI of everybody, before a threshold is set; computed once in a trial."""
    graph: Graph = study.once("points", lambda: fitted(study, 0.0).graph_)
    return graph


@estimator("off_c2pl_literal", "Off-C²PL, γ̂ = true γ, literal radii", origin="paper", told=True)
def literal(study: Study, truth: Truth) -> Estimate:
    """The paper's constants as printed."""
    least = truth.world.least_gap
    return Estimate.of(fitted(study, "over" if least is None else least))


@estimator("off_c2pl", "Off-C²PL, γ̂ by held-out answers", origin="paper")
def by_held_out(study: Study) -> Estimate:
    """The γ̂ with which pooled estimates predict held-out answers best."""
    model = fitted(study, "auto")
    return Estimate.of(model, note=f"{model.gamma_[0]:.6g}")


def in_hindsight(study: Study, truth: Truth, gap: Callable[[Truth, FloatArray], FloatArray]) -> Estimate:
    """The threshold of the grid with the smallest gap."""
    graph, users = points(study), range(study.n_users)
    options = []
    for gamma in joining_thresholds(graph, list(users), TRIED):
        joined = replace(graph, gamma=np.full(study.n_users, gamma))
        options.append([joined.neighbours(u) for u in users])
    pooled = study.pool([members for option in options for members in option])
    pooled = pooled.reshape(len(options), study.n_users, -1)
    gaps = [float(gap(truth, theta).mean()) for theta in pooled]
    best = int(np.argmin(np.round(gaps, 12)))
    return Estimate(pooled[best], options[best], note=f"joins {TRIED[best]:g} of pairs")


@estimator("off_c2pl_hindsight", "Off-C²PL, γ̂ in hindsight", origin="oracle", told=True)
def fresh_hindsight(study: Study, truth: Truth) -> Estimate:
    """The γ̂ with the smallest gap on fresh contexts."""
    return in_hindsight(study, truth, lambda known, theta: known.world.fresh_gap(theta))


@estimator("off_c2pl_hindsight_logged", "Off-C²PL, γ̂ in hindsight for logged pairs", origin="oracle", told=True)
def logged_hindsight(study: Study, truth: Truth) -> Estimate:
    """The γ̂ with the smallest gap on logged pairs."""
    return in_hindsight(study, truth, lambda known, theta: known.logged(theta))


def at_fraction(study: Study, fraction: float) -> Estimate:
    """Experiment 4: a point of the sweep."""
    (gamma,) = joining_thresholds(points(study), list(range(study.n_users)), (fraction,))
    return Estimate.of(fitted(study, gamma), note=f"{gamma:.6g}")


for _fraction in FRACTIONS:
    estimator(f"sweep_{_fraction:g}", f"Off-C²PL, γ̂ joins {_fraction:.0%} of pairs", origin="paper")(
        partial(at_fraction, fraction=_fraction)
    )
