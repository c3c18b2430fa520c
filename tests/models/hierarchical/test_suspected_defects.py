"""What a review of the old core suspected (issue 32), asked of the new one."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from prefkin import Comparisons
from prefkin.inference.ep import Sites, run
from prefkin.inference.hierarchy import group_posterior, messages_of
from prefkin.inference.likelihood import Logistic
from prefkin.inference.model import Design, Population
from prefkin.models.hierarchical.covariance import STRUCTURES
from prefkin.models.hierarchical.fitting import Specification, learn, structure_of
from prefkin.models.hierarchical.partition.prior import ChineseRestaurant
from prefkin.models.hierarchical.posterior import Posterior


def one_cluster(d=3, n_users=8, n=60):
    """Users who want nearly the same, with so many answers that responsibilities are exactly 1."""
    rng = np.random.default_rng(0)
    X, owner = rng.normal(size=(n_users * n, d)), np.repeat(np.arange(n_users), n)
    theta = np.array([2.0, -1.0, 0.5]) + 0.1 * rng.normal(size=(n_users, d))
    y = (rng.random(len(X)) < expit(np.einsum("ij,ij->i", X, theta[owner]))).astype(float)
    return Design.of(Logistic(), X, y, np.ones(len(X)), np.arange(n_users + 1) * n)


@pytest.mark.parametrize("name", list(STRUCTURES))
def test_a_metric_by_hand_is_calibrated(rng, name):
    """Refuted: held-out answers set temperature and scales for one structure as for several."""
    users = np.repeat(np.arange(10), 12)
    Z = rng.normal(size=(120, 4))
    y = (rng.random(120) < expit(Z @ [1.0, -1.0, 0.5, 0.0])).astype(float)
    rows = Comparisons.from_arrays(Z, y, users).by_user()
    learnt = learn(rows, Specification(structures=(STRUCTURES[name],)))
    assert learnt.losses
    assert learnt.calibration.temperature != 1.0
    assert learnt.calibration.loss > 0.0


def test_clusters_are_stored_and_not_inferred_from_responsibilities():
    """Refuted: one cluster with certain memberships stays clusters, and a new user may still be a singleton."""
    design, share = one_cluster(), np.zeros((8, 2))
    share[:, 0] = 1.0
    population = Population(0.05, 2.0, 1.0, np.zeros(3), clustered=True, partition=ChineseRestaurant())
    clustered = run(design, Sites.start(design, 2.0), share, population)
    posterior = Posterior.of(design, clustered)
    assert posterior.population.clustered
    assert structure_of(posterior) == "one group"
    assert posterior.population.variances(2).tolist() == [0.05, 2.05]
    assert not replace(population, clustered=False).variances(1)[-1] > 0.05


def test_between_is_the_variance_of_group_means_around_their_mean_in_both_models():
    """Refuted: ρ² is the prior variance of m_k around m_0, which is 0 for continuous heterogeneity."""
    design, one = one_cluster(), np.ones(8)
    sites = Sites.start(design, 2.0)
    continuous = Population(0.05, 2.0, 1.0, np.zeros(3))
    clusters = replace(continuous, clustered=True, top=1e-12)
    share = np.column_stack([one, 0 * one])
    found = group_posterior(messages_of(design, *sites, one, share, clusters), clusters)
    other = group_posterior(messages_of(design, *sites, one, share[:, :1], continuous), continuous)
    np.testing.assert_allclose(found.means[0], other.means[0], atol=1e-8)
    np.testing.assert_allclose(found.covs[0], other.covs[0], atol=1e-8)


def test_the_common_mean_is_integrated_out():
    """Confirmed and repaired: group means and singletons know that m_0 is uncertain.

    Against dense matrices in `tests/inference/test_hierarchy.py`; where m_0 matters most, few groups, the variance of a
    singleton without answers is τ² + ρ² and that of m_0.
    """
    design = one_cluster().users(np.arange(4))
    design = design.take(design.owner < 3)  # the last user has no rows
    share = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    population = Population(0.05, 2.0, 3.0, np.zeros(3), clustered=True, partition=ChineseRestaurant())
    fit = run(design, Sites.start(design, 2.0), share, population)
    C = Posterior.of(design, fit).covariances(np.array([3]))[0]
    np.testing.assert_allclose(C, 2.05 * np.eye(3) + fit.groups.m0_cov, atol=1e-9)
    assert np.diag(fit.groups.m0_cov).min() > 0.3
