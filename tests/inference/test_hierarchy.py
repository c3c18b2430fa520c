"""Messages between users and group means against joint Gaussians by dense matrices."""

from dataclasses import replace

import numpy as np
import pytest

from prefkin.inference.ep import Fit, Sites
from prefkin.inference.hierarchy import group_posterior, messages_of, user_factors, user_moments
from prefkin.inference.likelihood import Logistic
from prefkin.inference.model import Design, Population
from prefkin.models.prefkin.partition.prior import ChineseRestaurant
from prefkin.models.prefkin.partition.search import log_evidence
from tests.oracles.hierarchical import joint_gaussian, users_and_means

WITHIN, BETWEEN, TOP = 0.4, 1.3, 0.9


def problem(rng, d, counts, clustered=True):
    """Rows, sites and a population; root is no identity."""
    n, starts = sum(counts), np.concatenate([[0], np.cumsum(counts)])
    X = rng.normal(size=(n, d)) / np.sqrt(d)
    design = Design.of(Logistic(), X, (rng.random(n) < 0.5).astype(float), np.ones(n), starts)
    sites = Sites(
        rng.uniform(0.05, 0.4, n), rng.normal(size=n), rng.normal(size=n) - 20.0
    )  # answers are no likelier than 1
    return design, sites, Population(WITHIN, BETWEEN, TOP, np.zeros(d), clustered=clustered)


def dense_factor(design, sites, u):
    own = slice(design.starts[u], design.starts[u + 1])
    X = design.X[own]
    return X.T @ np.diag(sites.tau[own]) @ X, X.T @ sites.nu[own], sites.level[own].sum()


# few features; rows fewer than features, in the space of rows; more rows than features, by LAPACK
SHAPES = [(3, (4, 0, 2, 7, 5)), (45, (6, 0, 3, 4, 8)), (43, (50, 1, 0, 60, 44))]


@pytest.mark.parametrize(("d", "counts"), SHAPES)
def test_user_factors_are_sums_of_sites(rng, d, counts):
    design, sites, _ = problem(rng, d, counts)
    found = user_factors(design, *sites)
    for u in range(len(counts)):
        for ours, dense in zip((found.Lam[u], found.eta[u], found.level[u]), dense_factor(design, sites, u)):
            np.testing.assert_allclose(ours, dense, atol=1e-10)


@pytest.mark.parametrize(("d", "counts"), SHAPES)
def test_known_clusters_are_one_joint_gaussian(rng, d, counts):
    """Two clusters, one singleton; m_0 is integrated out."""
    design, sites, population = problem(rng, d, counts)
    labels, share, one = [0, 0, 1, 1, -1], np.zeros((5, 3)), np.ones(5)
    share[np.arange(5), labels] = 1.0
    C = users_and_means(labels, WITHIN, BETWEEN, TOP, d)
    whole = joint_gaussian([(u, *dense_factor(design, sites, u)) for u in range(5)], np.zeros(len(C)), C)
    groups = group_posterior(messages_of(design, *sites, one, share, population), population)
    moments = user_moments(design, *sites[:2], one, share, groups, population)
    np.testing.assert_allclose(groups.m0, whole.of(7, d)[0], atol=1e-8)
    np.testing.assert_allclose(groups.m0_cov, whole.of(7, d)[1], atol=1e-8)
    for k, at in enumerate((5, 6, 7)):  # the last component is the singletons', around m_0
        np.testing.assert_allclose(groups.means[k], whole.of(at, d)[0], atol=1e-8)
        np.testing.assert_allclose(groups.covs[k], whole.of(at, d)[1], atol=1e-8)
    for u in range(5):
        mean, C_u = whole.of(u, d)
        own = slice(design.starts[u], design.starts[u + 1])
        np.testing.assert_allclose(moments.t[u], mean, atol=1e-8)
        np.testing.assert_allclose(moments.mean[own], design.X[own] @ mean, atol=1e-8)
        variance = np.einsum("ij,jk,ik->i", design.X[own], C_u, design.X[own])
        np.testing.assert_allclose(moments.variance[own], variance, atol=1e-8)


@pytest.mark.parametrize(("d", "counts"), SHAPES)
def test_evidence_of_a_partition_is_the_integral_over_everything(rng, d, counts):
    design, sites, population = problem(rng, d, counts)
    prior, share = ChineseRestaurant(0.7), np.zeros((5, 3))
    labels = [0, 0, 1, 1, -1]
    share[np.arange(5), labels] = 1.0
    C = users_and_means(labels, WITHIN, BETWEEN, TOP, d)
    whole = joint_gaussian([(u, *dense_factor(design, sites, u)) for u in range(5)], np.zeros(len(C)), C)
    population = replace(population, partition=prior)
    fit = Fit(sites, share, population, None, None, None, np.ones(5), 1, True)
    expected = whole.log_evidence + prior.log_prob(np.array([2.0, 2.0, 1.0]))
    assert log_evidence(design, fit) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(("d", "counts"), SHAPES)
def test_continuous_heterogeneity_is_one_joint_gaussian(rng, d, counts):
    design, sites, population = problem(rng, d, counts, clustered=False)
    labels, share, one = [0] * 5, np.ones((5, 1)), np.ones(5)
    C = users_and_means(labels, WITHIN, BETWEEN, 1e-12, d)
    whole = joint_gaussian([(u, *dense_factor(design, sites, u)) for u in range(5)], np.zeros(len(C)), C)
    groups = group_posterior(messages_of(design, *sites, one, share, population), population)
    moments = user_moments(design, *sites[:2], one, share, groups, population)
    np.testing.assert_allclose(groups.means[0], whole.of(5, d)[0], atol=1e-6)
    np.testing.assert_allclose(groups.covs[0], whole.of(5, d)[1], atol=1e-6)
    for u in range(5):
        np.testing.assert_allclose(moments.t[u], whole.of(u, d)[0], atol=1e-6)
    fit = Fit(sites, share, population, None, None, None, one, 1, True)
    assert log_evidence(design, fit) == pytest.approx(whole.log_evidence, abs=1e-6)


@pytest.mark.parametrize("learn", [1, 2])
@pytest.mark.parametrize(("d", "counts"), SHAPES)
def test_uncertain_memberships_are_mixtures(rng, d, counts, learn):
    """Moments of each user under each component by dense matrices, then of the mixture; spread factors too."""
    design, sites, population = problem(rng, d, counts)
    share, spread = rng.dirichlet(np.ones(3), 5), rng.uniform(0.5, 2.0, 5)
    groups = group_posterior(messages_of(design, *sites, spread, share, population), population)
    moments = user_moments(design, *sites[:2], spread, share, groups, population, learn)
    variances, D, K = population.variances(3), 0.0, 0.0
    for u in range(5):
        Lam, eta, _ = dense_factor(design, sites, u)
        own, means, covs, scores = slice(design.starts[u], design.starts[u + 1]), [], [], np.zeros((2, 2))
        for c in range(3):
            v = variances[c] * spread[u]
            G = np.linalg.inv(np.eye(d) + v * Lam)
            means.append(G @ (groups.means[c] + v * eta))
            covs.append(v * G + G @ groups.covs[c] @ G.T)
            A = Lam @ G
            s = G @ eta - A @ groups.means[c] if counts[u] else np.zeros(d)
            known = A - A @ groups.covs[c] @ A
            r = share[u, c] * spread[u]
            scores[int(c == 2)] += r * np.array([s @ s, np.trace(known)])
            D, K = D + r * np.outer(s, s), K + r * known
        mean = share[u] @ np.array(means)
        C = sum(r * (C + np.outer(m - mean, m - mean)) for r, m, C in zip(share[u], means, covs))
        np.testing.assert_allclose(moments.t[u], mean, atol=1e-8)
        np.testing.assert_allclose(moments.mean[own], design.X[own] @ mean, atol=1e-8)
        np.testing.assert_allclose(
            moments.variance[own], np.einsum("ij,jk,ik->i", design.X[own], C, design.X[own]), atol=1e-8
        )
        np.testing.assert_allclose(moments.scores[u], scores, atol=1e-7)
    if learn == 2:
        np.testing.assert_allclose(moments.D, D, atol=1e-7)
        np.testing.assert_allclose(moments.K, K, atol=1e-7)


def test_messages_are_products_of_powers(rng):
    design, sites, population = problem(rng, 3, (4, 0, 2, 7, 5))
    share, spread = rng.dirichlet(np.ones(3), 5), rng.uniform(0.5, 2.0, 5)
    found = messages_of(design, *sites, spread, share, population)
    factors = user_factors(design, *sites)
    for c, variance in enumerate(population.variances(3)):
        literal = factors.marginalise(variance * spread).summed(share[:, c : c + 1])
        np.testing.assert_allclose(found.Lam[c], literal.Lam[0], atol=1e-9)
        np.testing.assert_allclose(found.eta[c], literal.eta[0], atol=1e-9)
        np.testing.assert_allclose(found.level[c], literal.level[0], atol=1e-9)
