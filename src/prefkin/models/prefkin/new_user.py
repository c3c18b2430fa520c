"""The prior predictive law of a new user (cold start), and known users as mixtures or as a panel.

    θ ~ Σ_k n_k N(R m_k, R (S_k + τ² I) Rᵀ) + α N(R m_0, R (S_0 + (τ² + ρ²) I) Rᵀ)

with cluster sizes n_k and the weight α of a singleton under the partition prior. Continuous heterogeneity has one
component. Answers of the new user reweight the components, and update each of them (`decide.population`).
"""

from __future__ import annotations

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.decide.plan import Panel
from prefkin.decide.population import MixtureBelief, Population
from prefkin.inference.model import in_units_of
from prefkin.models.prefkin.posterior import Posterior
from prefkin.models.prefkin.settings import REPORTING

__all__ = ["everybody_at_once", "group_probabilities", "person_as_population", "prior_predictive"]


def prior_predictive(posterior: Posterior, habit: float) -> Population:
    """A component for each cluster and, where clustered, one for a singleton; `habit` is the mean position bias."""
    groups, population = posterior.groups, posterior.population
    weights, covs = posterior.sizes.copy(), groups.covs.copy()
    if population.clustered:
        weights[-1] = np.exp(population.partition.singleton)
    spread = float(np.mean(posterior.spread)) if len(posterior) else 1.0
    variances = spread * population.variances(len(weights))
    covs += variances[:, None, None] * np.eye(posterior.design.dim)
    weights = np.maximum(weights, 1e-300)
    return Population(weights, population.preferences(groups.means), population.covariance(covs), habit)


def group_probabilities(posterior: Posterior, belief: MixtureBelief) -> FloatArray:
    """(K,) probability of each group after the answers of a new user."""
    return belief.chance[:-1] if posterior.population.clustered else belief.chance


def person_as_population(posterior: Posterior, user: int, habit: float) -> Population:
    """The posterior of a known user, one component for each cluster that is not negligible."""
    _, weights, means, covariances = posterior.components(user)
    return Population(weights, means, covariances, habit)


def everybody_at_once(posterior: Posterior, Z: FloatArray) -> tuple[Panel, FloatArray]:
    """All users in units of t, and rows, so that the rows learnt from have mean square length 1 (for float32).

    Members have G_u and their group mean's covariance around the estimate; other users have their own covariance.
    """
    groups, population, d = posterior.groups, posterior.population, posterior.design.dim
    n_groups = posterior.share.shape[1] - int(population.clustered)
    members, size = posterior.share[:, :n_groups], posterior.design.with_root(population.root).size
    sure = members.max(axis=1, initial=0.0) >= REPORTING.certain_place
    group, spread = np.full(len(posterior), -1), np.ones(len(posterior))
    group[sure], spread[sure] = np.argmax(members[sure], axis=1), size * population.within * posterior.spread[sure]
    keep = np.empty((len(posterior), d, d))
    who, others = np.flatnonzero(sure), np.flatnonzero(~sure)
    keep[who] = np.linalg.inv(np.eye(d) + spread[who, None, None] / size * posterior.factors(who).Lam)
    keep[others] = size * posterior.t_covariances(others)
    X = Z if population.root is None else in_units_of(population.root, Z)
    unit, estimates = np.sqrt(size), posterior.t if posterior.about is None else posterior.about
    return Panel(unit * estimates, keep, spread, group, size * groups.covs[:n_groups]), X / unit
