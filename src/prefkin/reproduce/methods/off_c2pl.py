"""Off-C²PL (Algorithm 1) with its threshold γ̂ set in four ways.

* literal: γ̂ = γ, the true least gap between groups (the guarantee's own choice); Appendix A's "over" where no truth is.
* held-out: one γ̂ of a grid, by how well pooled estimates predict held-out answers. Needs no truth.
* hindsight: the γ̂ of the grid with the smallest gap, on fresh contexts or on logged pairs. Nobody could have known it.

The grid joins given fractions of the pairs of users, so it reaches from nobody to everybody whatever the radii are.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.inference.information import confidence_width
from prefkin.inference.spectrum import least_eigenvalues
from prefkin.models.off_c2pl.graph import Graph
from prefkin.models.off_c2pl.radius import KAPPA_UNIT_BALL
from prefkin.models.off_c2pl.threshold import APPENDIX
from prefkin.reproduce.contracts import FOLDS, Estimate, Neighbourhoods, Study, Truth, estimator, grouping
from prefkin.reproduce.many_fits import fit_many
from prefkin.reproduce.tuning import best_of, held_out_margins, judges

FRACTIONS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0)  # of the sweep
TRIED = tuple(fraction for fraction in FRACTIONS if fraction != 0.5)  # when one is chosen: half of the work saved


def points(study: Study) -> Graph:
    """θ̂ and CI of everybody, before a threshold is set; computed once in a trial."""
    if "points" not in study.shared:
        study.shared["points"] = _points(study)
    graph: Graph = study.shared["points"]
    return graph


def _points(study: Study) -> Graph:
    rows, ridge, kappa = study.rows, study.ridge, KAPPA_UNIT_BALL
    failure = float(study.settings["delta"]) / (2 * study.n_users)
    floor = least_eigenvalues(rows.rows, rows.starts) + ridge / kappa
    width = [confidence_width(n, rows.dim, ridge=ridge, kappa=kappa, failure=failure) for n in rows.counts]
    radius = np.array(width) / np.sqrt(floor)
    alpha = float(study.settings["alpha"])
    return Graph(study.own, radius, np.zeros(study.n_users), alpha, np.ones(study.n_users, dtype=bool))


def thresholds(graph: Graph, fractions: Sequence[float] = TRIED) -> FloatArray:
    """γ̂ that joins each fraction of the pairs."""
    needed = np.array([graph.distances(u) + graph.allowances(u) for u in range(len(graph))])
    pairs = np.sort(needed[np.triu_indices(len(needed), 1)])
    count = np.ceil(np.array(fractions) * len(pairs)).astype(int)
    return np.array([0.0 if c == 0 else np.nextafter(pairs[c - 1], np.inf) for c in count])


def neighbours(graph: Graph, gamma: float | FloatArray) -> Neighbourhoods:
    """V(u) of everybody."""
    given = np.broadcast_to(np.asarray(gamma, dtype=np.float64), (len(graph),))
    set_to = Graph(graph.theta, graph.radius, given, graph.alpha, graph.enough)
    return [set_to.neighbours(u) for u in range(len(graph))]


@grouping("off_c2pl_literal", "Off-C²PL, γ̂ = true γ, literal radii", origin="paper", told=True)
def literal(study: Study, truth: Truth) -> Neighbourhoods:
    """The paper's constants as printed."""
    graph = points(study)
    least = truth.world.least_gap
    gamma = np.array([APPENDIX["over"](graph, u) for u in range(len(graph))]) if least is None else least
    return neighbours(graph, gamma)


@estimator("off_c2pl", "Off-C²PL, γ̂ by held-out answers", origin="paper")
def by_held_out(study: Study) -> Estimate:
    """The fraction of pairs to join that predicts best on folds; the threshold is that fraction's on all rows."""
    some, users = judges(study), range(study.n_users)
    own_without = fit_many(
        study.parcels,
        np.array([study.uses([u], without=f) for f in range(FOLDS) for u in users]),
        np.full(FOLDS * study.n_users, study.ridge),
        start=np.tile(study.own, (FOLDS, 1)),
    ).reshape(FOLDS, study.n_users, -1)
    graph = points(study)
    jobs: dict[bytes, tuple[int, np.ndarray]] = {}
    asked: list[list[bytes]] = []
    for fold in range(FOLDS):
        part = Graph(own_without[fold], graph.radius, graph.gamma, graph.alpha, graph.enough)
        options = [neighbours(part, gamma) for gamma in thresholds(part)]
        for u in some:
            asked.append([])
            for option in options:
                name = bytes([fold]) + option[u].tobytes()
                jobs.setdefault(name, (fold, option[u]))
                asked[-1].append(name)
    member = np.array([study.uses(members, without=f) for f, members in jobs.values()])
    start = np.array([own_without[f, members].mean(axis=0) for f, members in jobs.values()])
    fits = fit_many(study.parcels, member, np.full(len(jobs), study.ridge), start=start)
    found = dict(zip(jobs, fits, strict=True))
    cases = [(u, f) for f in range(FOLDS) for u in some]
    margins = np.concatenate(
        [
            held_out_margins(study, u, f, np.array([found[name] for name in names]))
            for (u, f), names in zip(cases, asked, strict=True)
        ]
    )
    best, heat = best_of(list(margins.T))
    members = neighbours(graph, thresholds(graph)[best])
    return Estimate(study.pool(members), members, heat=heat, note=f"joins {TRIED[best]:g} of pairs")


def in_hindsight(study: Study, truth: Truth, gap: Callable[[Truth, FloatArray], FloatArray]) -> Estimate:
    """The threshold of the grid with the smallest gap."""
    graph = points(study)
    options = [neighbours(graph, gamma) for gamma in thresholds(graph)]
    pooled = study.pool([members for option in options for members in option])
    pooled = pooled.reshape(len(options), study.n_users, -1)
    gaps = [float(gap(truth, theta).mean()) for theta in pooled]
    best = int(np.argmin(np.round(gaps, 12)))
    return Estimate(pooled[best], options[best], note=f"joins {TRIED[best]:g} of pairs")


@estimator("off_c2pl_hindsight", "Off-C²PL, γ̂ in hindsight", origin="oracle", told=True)
def fresh_hindsight(study: Study, truth: Truth) -> Estimate:
    """Best on fresh contexts."""
    return in_hindsight(study, truth, lambda known, theta: known.world.fresh_gap(theta))


@estimator("off_c2pl_hindsight_logged", "Off-C²PL, γ̂ in hindsight for logged pairs", origin="oracle", told=True)
def logged_hindsight(study: Study, truth: Truth) -> Estimate:
    """Best on the logged pairs."""
    return in_hindsight(study, truth, lambda known, theta: known.logged(theta))


def at_fraction(study: Study, position: int) -> Estimate:
    """Experiment 4: a point of the sweep."""
    graph = points(study)
    gamma = float(thresholds(graph, FRACTIONS)[position])
    members = neighbours(graph, gamma)
    return Estimate(study.pool(members), members, note=f"{gamma:.6g}")


for _position, _fraction in enumerate(FRACTIONS):
    estimator(f"sweep_{_fraction:g}", f"Off-C²PL, γ̂ joins {_fraction:.0%} of pairs", origin="paper")(
        partial(at_fraction, position=_position)
    )
