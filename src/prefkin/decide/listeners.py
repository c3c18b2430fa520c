"""Three ways to listen to one user's answers.

| listener   | before the first answer       | the estimate after each answer         | recommends by             |
|------------|-------------------------------|----------------------------------------|---------------------------|
| Likelihood | the neighbours' rows, a ridge | regularised maximum likelihood         | θ̄, an average of estimates |
| Posterior  | a belief N(μ, C)              | mode of the posterior under that prior | the mode                  |
| Mixture    | groups one may belong to      | mean of the posterior, over all groups | the mean                  |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy, deepcopy
from typing import Any, Self

import numpy as np
from scipy.linalg import eigvalsh, solve_triangular

from prefkin.data.arrays import FloatArray
from prefkin.data.rows import Rows
from prefkin.decide.belief import Belief, factored
from prefkin.decide.population import MixtureBelief, Population
from prefkin.decide.refit import SAME, Metric, RunningEstimate
from prefkin.inference.information import information_matrix
from prefkin.inference.spectrum import gram

__all__ = ["Likelihood", "Listener", "Mixture", "Posterior"]


class Running(ABC):
    """Those who keep one estimate up to date."""

    start: Belief  # what query rules start from
    theta: FloatArray  # the estimate from all that was heard
    _estimate: RunningEstimate

    def __init__(self, theta: FloatArray) -> None:
        self.theta = np.array(theta, dtype=np.float64)
        self.trail = np.zeros_like(self.theta)  # Σ_n θ̃ⁿ
        self._heard: list[tuple[FloatArray, float]] = []
        self._belief: Belief | None = None

    # -- what the two decide -----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def preference(self) -> FloatArray:
        """What to recommend by."""

    @property
    @abstractmethod
    def information(self) -> tuple[FloatArray, FloatArray]:
        """The information matrix before the first answer, and now."""

    @abstractmethod
    def identity(self) -> tuple[FloatArray, ...]:
        """What it starts from: by that a saved session recognises it, where there is no model to ask."""

    def _enter(self, z: FloatArray) -> tuple[FloatArray, float]:
        """A row as the running estimate knows it, and its offset."""
        return z, 0.0

    def _leave(self, point: FloatArray) -> FloatArray:
        """θ of what the running estimate has found."""
        return point

    @abstractmethod
    def _believe(self) -> Belief: ...

    @abstractmethod
    def _fresh(self) -> Running:
        """The same, before the first answer."""

    # -- what they have in common ------------------------------------------------------------------------------------

    def hear(self, z: FloatArray, y: float) -> None:
        """Refit with one more row, about difference `z`: all of it or nothing."""
        row, offset = self._enter(z)
        self._estimate.hear(row, y, offset)
        self.theta = self._leave(self._estimate.theta)
        self.trail, self._belief = self.trail + self.theta, None
        self._heard.append((z, y))

    def copy(self) -> Self:
        """A listener that goes on from here by itself."""
        other = copy(self)
        other._estimate, other._heard = deepcopy(self._estimate), list(self._heard)
        return other

    def without_last(self) -> Running:
        """Refit with all but the last row, one by one: as if it had never been heard, to the last digit."""
        other = self._fresh()
        for z, y in self._heard[:-1]:
            other.hear(z, y)
        return other

    @property
    def n_answers(self) -> int:
        """Answers heard so far."""
        return len(self._heard)

    @property
    def belief(self) -> Belief:
        """N(theta, H⁻¹), H the Hessian of all that is known."""
        if self._belief is None:
            self._belief = self._believe()
        return self._belief

    def state(self) -> dict[str, Any]:
        """All that the answers do not tell, as plain JSON values."""
        metric = self._estimate.metric
        return {
            "theta": self.theta.tolist(),
            "trail": self.trail.tolist(),
            "point": self._estimate.theta.tolist(),
            "metric": {"rows": metric.rows, "theta": metric.theta.tolist(), "wasted": metric.wasted},
        }

    def restore(self, Z: FloatArray, y: FloatArray, state: dict[str, Any]) -> None:
        """Go back to a state, given the answers up to there."""
        theta, trail = self._vector(state, "theta"), self._vector(state, "trail")
        point, about = self._vector(state, "point"), state["metric"]
        metric = Metric(int(about["rows"]), self._vector(about, "theta"), int(about["wasted"]))
        if not self._estimate.n <= metric.rows <= self._estimate.n + len(y):
            raise ValueError("metric does not fit")
        for z, answer in zip(Z, y.tolist(), strict=True):
            row, offset = self._enter(z)
            self._estimate.add(row, answer, offset)
            self._heard.append((z, answer))
        self._estimate.move(point, metric)
        if not np.allclose(theta, self._leave(point), rtol=SAME, atol=SAME * float(np.abs(theta).max())):
            raise ValueError("theta does not follow from the answers")
        self.theta, self.trail, self._belief = theta, trail, None

    def compare(self, state: dict[str, Any]) -> None:
        """Refuse a state of version 1 in which the same answers have taught something else."""
        for name, now in (("theta", self.theta), ("trail", self.trail)):
            if not np.allclose(self._vector(state, name), now, rtol=SAME, atol=SAME * float(np.abs(now).max())):
                raise ValueError(f"{name} does not follow from the answers")

    def _vector(self, state: dict[str, Any], name: str) -> FloatArray:
        values = np.array(state[name], dtype=np.float64)
        if values.shape != self.theta.shape or not np.isfinite(values).all():
            raise ValueError(f"{name} does not fit")
        return values


class Likelihood(Running):
    """Algorithm 2: neighbours' rows and answers alike, by regularised maximum likelihood  [paper: theta_n]."""

    def __init__(self, rows: Rows, theta: FloatArray, *, ridge: float, kappa: float) -> None:
        super().__init__(theta)
        self.offline, self.ridge, self.kappa = rows, ridge, kappa
        self._estimate = RunningEstimate(rows, self.theta, ridge=ridge)
        self._M = information_matrix(rows, ridge=ridge, kappa=kappa)
        self.start = Belief.from_information(self.theta, self._M)  # M̃: how well rows cover each direction

    def _fresh(self) -> Likelihood:
        return Likelihood(self.offline, self.start.mean, ridge=self.ridge, kappa=self.kappa)

    def identity(self) -> tuple[FloatArray, ...]:
        """λ, κ and the neighbours' rows."""
        return (np.array([self.ridge, self.kappa]), *(np.asarray(part, dtype=np.float64) for part in self.offline))

    @property
    def rows(self) -> Rows:
        """The neighbours' rows and the answers."""
        return self._estimate.rows

    @property
    def information(self) -> tuple[FloatArray, FloatArray]:
        """M̃ and M̃ᴺ."""
        answers = self.rows.Z[len(self.offline.y) :]
        return self._M, self._M + answers.T @ answers

    @property
    def preference(self) -> FloatArray:
        """θ̄: the last estimate weighted by d·λ_min(M̃ᴺ), every estimate on the way by 1  [paper: theta_bar]."""
        if self.n_answers == 0:
            return self.theta.copy()
        weight = len(self.theta) * float(eigvalsh(self.information[1], subset_by_index=[0, 0])[0])
        return (weight * self.theta + self.trail) / (weight + self.n_answers)

    def _believe(self) -> Belief:
        hessian = gram(self.rows._replace(weights=self._estimate.curvature()))
        hessian[np.diag_indices_from(hessian)] += self.ridge
        return Belief.from_information(self.theta, hessian)


class Posterior(Running):
    """The mode under a prior N(μ, C), which forgets nothing, so that there is nothing to average.

    With C = root rootᵀ and θ = μ + root u, the prior is a ridge of 1 on u, a row is rootᵀz, and zᵀμ its offset, beside
    the habit of taking the first side.
    """

    def __init__(self, prior: Belief, habit: float = 0.0) -> None:
        nothing = Rows(np.empty((0, len(prior.mean))), np.empty(0), np.empty(0))
        super().__init__(prior.mean)
        self.start, self._habit = prior, habit
        self._estimate = RunningEstimate(nothing, np.zeros_like(self.theta), ridge=1.0)

    def _fresh(self) -> Posterior:
        return Posterior(self.start, self._habit)

    def identity(self) -> tuple[FloatArray, ...]:
        """Mean and root of the prior."""
        return self.start.mean, self.start.root

    @property
    def information(self) -> tuple[FloatArray, FloatArray]:
        """Precision of the prior, and of the posterior now."""
        return self.start.information, self.belief.information

    @property
    def preference(self) -> FloatArray:
        """The mode of the posterior."""
        return self.theta.copy()

    def _enter(self, z: FloatArray) -> tuple[FloatArray, float]:
        return z @ self.start.root, float(z @ self.start.mean) + self._habit

    def _leave(self, point: FloatArray) -> FloatArray:
        return self.start.mean + self.start.root @ point

    def _believe(self) -> Belief:
        if self.n_answers == 0:
            return self.start
        hessian = gram(self._estimate.rows._replace(weights=self._estimate.curvature()))
        hessian[np.diag_indices_from(hessian)] += 1.0
        factor = factored(hessian)
        return Belief(self.theta, solve_triangular(factor, self.start.root.T, lower=True).T)


class Mixture:
    """The mean of the posterior over all groups to which somebody may belong: of a newcomer all there are.

    What is believed follows from the answers alone, whatever their order, so that nothing else is kept.
    """

    def __init__(self, population: Population) -> None:
        self.start: MixtureBelief = population.nobody  # people in general
        self.belief = self.start  # the posterior over groups, and within each

    @property
    def theta(self) -> FloatArray:
        """E θ."""
        return self.belief.mean

    @property
    def preference(self) -> FloatArray:
        """E θ."""
        return self.belief.mean.copy()

    @property
    def information(self) -> tuple[FloatArray, FloatArray]:
        """Precision of the normal distributions nearest to both beliefs."""
        return self.start.information, self.belief.information

    @property
    def n_answers(self) -> int:
        """Answers heard so far."""
        return len(self.belief.X)

    def hear(self, z: FloatArray, y: float) -> None:
        """Take one more answer: the groups are weighed again."""
        self.hear_all(z[None], np.array([y]))

    def hear_all(self, Z: FloatArray, y: FloatArray) -> None:
        """The same for several answers, in little more time than for one."""
        after = self.belief.hearing(Z, y)
        after.mean  # noqa: B018 (computed now, so that whatever fails leaves everything as it was)
        self.belief = after

    def without_last(self) -> Mixture:
        """The same without the last answer."""
        other = Mixture(self.start.population)
        other.belief = self.belief.without_last()
        return other

    def copy(self) -> Self:
        """What is believed is replaced and never changed."""
        return copy(self)

    def identity(self) -> tuple[FloatArray, ...]:
        """Log shares, means and covariances of the groups."""
        people = self.start.population
        return people.log_weights, people.means, people.covariances

    def state(self) -> dict[str, Any]:
        """Nothing: answers tell all."""
        return {}

    def restore(self, Z: FloatArray, y: FloatArray, state: dict[str, Any]) -> None:  # noqa: ARG002
        """Hear the answers up to there again."""
        for z, answer in zip(Z[:, None], y[:, None], strict=True):
            self.belief = self.belief.hearing(z, answer)

    def compare(self, state: dict[str, Any]) -> None:  # noqa: ARG002
        """It is younger than that version."""
        raise ValueError("rows or a posterior, not a mixture")


Listener = Running | Mixture
"""Whoever listens in a session: both have the same methods."""
