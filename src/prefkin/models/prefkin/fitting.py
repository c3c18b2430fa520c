"""From comparisons to a fitted model: candidates, held-out answers, the chosen model of all users."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.folds import Split, by_content, leverage, splits_of
from prefkin.data.rows import UserRows, only, spread, with_weight
from prefkin.inference.ep import Convergence, Fit, run
from prefkin.inference.likelihood import Laplace, Logistic
from prefkin.inference.model import GAUSSIAN, Design, Likelihood, PopulationLaw
from prefkin.models.calls import generator
from prefkin.models.prefkin.covariance import STRUCTURES, Structure
from prefkin.models.prefkin.everybody import everybody
from prefkin.models.prefkin.partition.search import possible_evidence
from prefkin.models.prefkin.posterior import Posterior
from prefkin.models.prefkin.selection import (
    Calibration,
    Candidate,
    HeldOut,
    best_temperature,
    calibrate,
    gain_over_pooled,
    rescaled,
)
from prefkin.models.prefkin.settings import SEARCH, SELECTION

__all__ = ["Learnt", "Specification", "design_of", "learn"]


@dataclass(frozen=True, eq=False)
class Specification:
    """What a fit is asked to do."""

    structures: tuple[Structure, ...] | None = None  # covariance structures to choose from; None: all that apply
    predict_for: str = "auto"  # what held-out answers stand for (`held_out_folds`)
    likelihood: Likelihood = field(default_factory=Logistic)
    law: PopulationLaw = GAUSSIAN
    random_state: Any = None


@dataclass(frozen=True, eq=False)
class Learnt:
    """The chosen model of all users."""

    posterior: Posterior
    structure: str  # "groups", "by degrees", "one group" or "unrelated"
    candidate: str  # name of the chosen candidate
    calibration: Calibration  # temperature, and factors on the variances by evidence
    evidence: dict[str, float]  # log evidence of each candidate
    losses: dict[str, float]  # held-out log-loss of each candidate that was judged
    n_iter: int
    converged: bool
    over_pooled: tuple[float, float] | None = None  # `gain_over_pooled`, where heterogeneity is continuous
    start: Structure | None = None  # the covariance structure, with the hyperparameters that were learnt

    @cached_property
    def uncertainty(self) -> Posterior:
        """The posterior from which covariances and radii come.

        Held-out answers may speak for smaller variances than evidence does, which is no proof that users are alike.
        """
        return self.posterior.with_variances(*self.widening)

    @property
    def widening(self) -> tuple[float, float]:
        """Factors on τ² and ρ² for the uncertainty."""
        _, _, within, between = self.calibration
        return 1.0 / min(within, 1.0), 1.0 / min(between, 1.0)


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A candidate with its fit to the rows along which choices are made."""

    candidate: Candidate
    fit: Fit
    evidence: float


def design_of(rows: UserRows, likelihood: Likelihood) -> Design:
    """All comparisons."""
    offset = None if rows.habits is None else rows.habits[rows.owner]
    return Design.of(likelihood, rows.rows.Z, rows.rows.y, rows.rows.weights, rows.starts, offset)


def learn(rows: UserRows, specification: Specification) -> Learnt:
    """The model that held-out answers speak for, of all users.

    Of many users some choose the covariance structure, and of very many some teach the hyperparameters and the groups.
    """
    rows = with_weight(rows)
    crowd = sample_of_users(rows, SEARCH.most_work, SEARCH.most_users, specification.random_state)
    if len(crowd) < len(rows):
        learnt = learn(only(rows, crowd), specification)
        posterior = everybody(design_of(rows, specification.likelihood), learnt.posterior)
        return replace(learnt, posterior=posterior, structure=structure_of(posterior))
    few = sample_of_users(rows, SELECTION.most_work, SELECTION.most_users, specification.random_state)
    if len(few) == len(rows) or specification.structures is not None:
        return learn_from(rows, specification)
    start = learn_from(only(rows, few), specification, clusters=False).start
    assert start is not None
    return learn_from(rows, replace(specification, structures=(start,)))


def sample_of_users(rows: UserRows, most_work: float, most_users: int, random_state: Any) -> IntArray:
    """Positions of users whose E-steps take about `most_work` multiplications, but at least `most_users`.

    Chosen by what they answered, not by their place; drawn, where there is a seed.
    """
    d = rows.dim
    each = float(np.mean(np.diff(rows.starts) * np.minimum(np.diff(rows.starts) + 1, d))) * d
    most = max(int(most_work / max(each, 1.0)), most_users)
    if len(rows) <= most:
        return np.arange(len(rows))
    order = by_content(rows)
    if random_state is None:
        return np.sort(order[spread(len(rows), most)])
    return np.sort(generator(random_state).permutation(order)[:most])


def learn_from(rows: UserRows, specification: Specification, *, clusters: bool = True) -> Learnt:
    """The model that held-out answers speak for, of these users."""
    design = design_of(rows, specification.likelihood)
    rotatable = specification.structures is None or all(each.isotropic for each in specification.structures)
    basis = leading_directions(design) if rotatable else None
    small = design if basis is None else design.with_root(basis)
    every = candidates_of(small, specification, whole=basis is None, clusters=clusters)
    if any(each.fit.laplace for each in every) and not isinstance(design.likelihood, Laplace):
        laplace = replace(specification, likelihood=Laplace(specification.likelihood))
        return learn_from(rows, laplace, clusters=clusters)  # one approximation for all, so that evidences compare
    fitted = not_far_behind(every)
    judges, rows = _judges(rows, fitted)
    order = leverage(rows) if rows.dim <= SELECTION.full_up_to else None
    judged = small if len(judges) == small.n_users else small.users(judges)
    splits = splits_of(
        rows, specification.predict_for, folds=SELECTION.folds, order=order, deals=SELECTION.deals, X=judged.X,
        enough=SELECTION.enough_judged,
    )  # fmt: skip
    held = held_out(judged, splits, fitted) if splits else {}
    losses = {name: best_temperature(one.log_odds(), one.weight).loss for name, one in held.items()}
    chosen, calibration = _chosen(fitted, held, losses)
    name, fit, over_pooled = chosen.candidate.name, chosen.fit, None
    if splits and not chosen.candidate.clustered:
        over_pooled = gain_over_pooled(held[name], calibration)
    fit = rescaled(small, fit, calibration.within, calibration.between, SELECTION.last_iter)
    if basis is not None:
        fit = lifted(design, fit, basis)
    posterior = Posterior.of(design, fit)
    evidence = {each.candidate.name: each.evidence for each in every}
    return Learnt(
        posterior, structure_of(posterior), name, calibration, evidence, losses, fit.n_iter, fit.converged, over_pooled,
        replace(chosen.candidate.structure, known=None if basis is not None else chosen.fit.population),
    )  # fmt: skip


def _judges(rows: UserRows, fitted: list[_Fitted]) -> tuple[IntArray, UserRows]:
    """Users whose held-out answers choose: of many some, with several in each cluster."""
    clusters = max(each.fit.share.shape[1] for each in fitted)
    judges = sample_of_users(rows, SELECTION.most_work, max(SELECTION.most_users, SELECTION.members * clusters), None)
    return judges, only(rows, judges)


def leading_directions(design: Design) -> FloatArray | None:
    """(d, r) orthonormal directions in which rows vary most; None where features are few."""
    if design.dim <= SELECTION.directions:
        return None
    _, axes = np.linalg.eigh((design.X * design.weight[:, None]).T @ design.X)
    return np.ascontiguousarray(axes[:, -SELECTION.directions :])


def candidates_of(design: Design, specification: Specification, *, whole: bool, clusters: bool) -> list[_Fitted]:
    """Continuous heterogeneity with each structure that applies, then clusters, fitted."""
    structures = specification.structures
    if structures is None:
        few = 1 < design.dim <= SELECTION.full_up_to
        names = list(STRUCTURES) if few else ["isotropic", "scaled"] if whole else ["isotropic"]
        structures = tuple(STRUCTURES[name] for name in names)
    continuous = [
        _fitted(design, Candidate(structure, specification.law), candidate_fit)
        for structure in structures
        for candidate_fit in [Candidate(structure, specification.law).fit(design)]
    ]
    best = max(continuous, key=lambda each: each.evidence)
    if design.n_users < 3 or not clusters:
        return continuous
    clustered = []
    for start in _starts(continuous, best):
        candidate = replace(start.candidate, clustered=True)
        clustered.append(_fitted(design, candidate, candidate.fit(design, start.fit)))
    return [*continuous, *clustered]


def not_far_behind(fitted: list[_Fitted]) -> list[_Fitted]:
    """Candidates for held-out answers."""
    best = max(each.evidence for each in fitted if not each.candidate.clustered)
    return [each for each in fitted if each.evidence >= best - SELECTION.far_behind]


def _starts(continuous: list[_Fitted], best: _Fitted) -> list[_Fitted]:
    """Where clusters are sought: in the units of the features, and in the metric that explains most without them."""
    alike = best.candidate.structure.step is None and best.evidence < continuous[0].evidence + SELECTION.far_behind
    return [continuous[0]] if alike or best is continuous[0] else [continuous[0], best]


def _fitted(design: Design, candidate: Candidate, fit: Fit) -> _Fitted:
    free = 0.5 * candidate.structure.parameters(design.dim)
    return _Fitted(candidate, fit, possible_evidence(design, fit) - free)


def _chosen(fitted: list[_Fitted], held: dict[str, HeldOut], losses: dict[str, float]) -> tuple[_Fitted, Calibration]:
    """The least held-out log-loss of continuous heterogeneity; clusters where held-out answers and evidence agree.

    Evidence and held-out log-loss are added up, and neither may speak against clusters clearly by itself. Log-loss is
    the mean of that before calibration, which tells how well the evidence chose the variances, and that after it.
    """

    def loss(each: _Fitted) -> float:
        return losses.get(each.candidate.name, -each.evidence)

    continuous = [each for each in fitted if not each.candidate.clustered]
    clustered = [each for each in fitted if each.candidate.clustered]
    if not held:
        return max(fitted, key=lambda each: each.evidence), Calibration(0.0, 1.0)
    best, evidence = min(continuous, key=loss), max(each.evidence for each in continuous)
    calibration = calibrate(held[best.candidate.name])
    if not clustered:
        return best, calibration
    groups = min(clustered, key=lambda each: loss(each) - each.evidence)
    other = calibrate(held[groups.candidate.name])
    gain = 0.5 * (loss(best) - loss(groups) + calibration.loss - other.loss)
    agree = gain > -SELECTION.clearly and gain + groups.evidence - evidence > SELECTION.clearly
    return (groups, other) if agree else (best, calibration)


def held_out(design: Design, splits: list[Split], fitted: list[_Fitted]) -> dict[str, HeldOut]:
    """Every candidate learnt in every fold from nothing."""
    found: dict[str, HeldOut] = {}
    for each in fitted:
        start = None
        if each.candidate.clustered:
            continuous = replace(each.candidate, clustered=False)
            start = found.get(continuous.name) or HeldOut(design, splits, continuous)
        found[each.candidate.name] = HeldOut(design, splits, each.candidate, start)
    return found


def structure_of(posterior: Posterior) -> str:
    """What was found, in two words."""
    population, U = posterior.population, len(posterior)
    if population.clustered:
        sizes = np.bincount(np.argmax(posterior.share, axis=1), minlength=posterior.share.shape[1])
        return "one group" if sizes[:-1].max(initial=0) == U else "groups"
    rows = posterior.design.with_root(population.root)  # mean squares of margins, which have no units
    common, apart = float(np.mean((rows.X @ posterior.groups.means[0]) ** 2)), population.within * rows.size
    if U == 1 or apart >= SELECTION.unrelated * common:
        return "unrelated"
    return "one group" if apart <= SELECTION.alike * common else "by degrees"


def lifted(design: Design, fit: Fit, basis: FloatArray) -> Fit:
    """An isotropic fit along some directions, in all features."""
    population = replace(fit.population, root=None, m0=basis @ fit.population.m0)
    rules = Convergence(max_iter=SELECTION.lift_iter)
    return run(design, fit.sites, fit.share, population, spread=fit.spread, rules=rules)
