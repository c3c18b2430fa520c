"""The prior over partitions against enumeration; agglomeration and reassignment in planted clusters."""

import numpy as np
import pytest
from scipy.special import expit, logsumexp

from prefkin.inference.ep import Sites
from prefkin.inference.hierarchy import user_factors
from prefkin.inference.likelihood import Logistic
from prefkin.inference.model import Design, Population
from prefkin.models.prefkin.covariance import STRUCTURES
from prefkin.models.prefkin.partition.agglomerate import agglomerate, sums_by_label
from prefkin.models.prefkin.partition.prior import ChineseRestaurant
from prefkin.models.prefkin.partition.reassign import labels_of, one_hot, reassign
from prefkin.models.prefkin.partition.search import log_evidence, search
from prefkin.models.prefkin.selection import Candidate
from tests.oracles.hierarchical import partitions, restaurant


def sizes_of(labels):
    return np.bincount(labels).astype(float)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_the_restaurant_by_enumeration(alpha):
    prior, every = ChineseRestaurant(alpha), list(partitions(5))
    found = np.array([prior.log_prob(sizes_of(labels)) for labels in every])
    np.testing.assert_allclose(found, [restaurant(labels, alpha) for labels in every], atol=1e-12)
    assert len(every) == 52
    assert logsumexp(found) == pytest.approx(0.0, abs=1e-12)


def test_merging_and_joining_change_the_probability_as_they_say():
    prior = ChineseRestaurant(0.7)
    before, after = prior.log_prob(np.array([3.0, 2.0, 1.0])), prior.log_prob(np.array([5.0, 1.0]))
    assert float(prior.merge_gain(np.array(3.0), np.array(2.0))) == pytest.approx(after - before)
    weights = np.append(prior.log_weights(np.array([3.0, 2.0])), prior.singleton)
    joined = [prior.log_prob(np.array(sizes)) for sizes in ([4.0, 2.0], [3.0, 3.0], [3.0, 2.0, 1.0])]
    np.testing.assert_allclose(weights - logsumexp(weights), joined - logsumexp(joined), atol=1e-12)


def test_fitted_concentration_is_the_likeliest_with_one_pseudo_cluster():
    sizes = np.array([10.0, 5.0, 4.0, 1.0])
    best = ChineseRestaurant().fitted(sizes).concentration

    def log_density(alpha):
        return ChineseRestaurant(alpha).log_prob(sizes) - 0.5 * np.log(alpha) ** 2

    assert log_density(best) > max(log_density(0.95 * best), log_density(1.05 * best))


def planted(seed=0, n_users=18, n=40, d=3, apart=0.2):
    rng = np.random.default_rng(seed)
    labels = np.arange(n_users) % 3
    labels[-1] = 3  # somebody unlike all others
    centres = np.array([[2.5, 0.0, 0.0], [0.0, 2.5, 0.0], [0.0, 0.0, 2.5], [-2.5, -2.5, -1.0]])
    theta = centres[labels] + apart * rng.normal(size=(n_users, d))
    X = rng.normal(size=(n_users * n, d))
    y = (rng.random(len(X)) < expit(np.einsum("ij,ij->i", X, np.repeat(theta, n, axis=0)))).astype(float)
    return Design.of(Logistic(), X, y, np.ones(len(X)), np.arange(n_users + 1) * n), labels


@pytest.fixture(scope="module")
def clusters():
    design, labels = planted()
    population = Population(0.05, 2.0, 1.0, np.zeros(3), clustered=True, partition=ChineseRestaurant())
    return design, labels, user_factors(design, *Sites.start(design, 3.0)), population


def together(labels):
    return labels[:, None] == np.asarray(labels)[None, :]


def test_agglomeration_finds_planted_clusters(clusters):
    _, labels, factors, population = clusters
    found = agglomerate(factors.marginalise(population.within), population, np.arange(18))
    assert np.array_equal(together(found), together(labels))


def test_no_merge_is_left_that_raises_the_evidence(clusters):
    """Against the evidence of every pair, by the sums of their messages."""
    _, _, factors, population = clusters
    messages = factors.marginalise(population.within)
    found = agglomerate(messages, population, np.arange(18))

    def evidence(labels):
        sums = sums_by_label(messages, np.unique(labels, return_inverse=True)[1])
        sizes = np.unique(labels, return_counts=True)[1].astype(float)
        return sums.log_integral(population.m0, population.between).sum() + population.partition.log_prob(sizes)

    for one in range(found.max() + 1):
        for other in range(one):
            assert evidence(np.where(found == one, other, found)) < evidence(found)


def test_reassignment_repairs_wrong_labels(clusters):
    _, labels, factors, population = clusters
    wrong = labels.copy()
    wrong[[0, 4]] = [1, 2]
    share = reassign(factors, one_hot(wrong), population)
    assert np.array_equal(together(labels_of(share)), together(labels))
    np.testing.assert_allclose(share.sum(axis=1), 1.0, atol=1e-12)


def test_responsibilities_are_ratios_of_evidence(clusters):
    """The weights of one user between two clusters: evidence with the user in either, over that without."""
    _, labels, factors, population = clusters
    share = one_hot(labels)
    messages, user = factors.marginalise(population.within), 0
    logs = []
    for k in range(3):
        others = np.flatnonzero((labels == k) & (np.arange(18) != user))
        without = messages[others].summed(np.ones((len(others), 1)))
        joint = without + messages[[user]]
        gain = joint.log_integral(population.m0, population.between) - without.log_integral(
            population.m0, population.between
        )
        logs.append(float(gain[0]) + np.log(len(others)))
    logs.append(float(factors[[user]].log_integral(population.m0, population.within + population.between)[0]))
    from prefkin.models.prefkin.partition.reassign import log_weights

    clusters_ = messages.summed(share[:, :-1])
    found = log_weights(factors, messages, share, clusters_, share.sum(axis=0), population)[user]
    sure = np.isfinite(found)
    np.testing.assert_allclose(found[sure] - found[sure].max(), np.array(logs)[sure] - max(logs), atol=2.0)
    assert np.argmax(found) == np.argmax(logs)


def test_the_search_finds_planted_clusters_in_any_order(rng):
    design, labels = planted()
    start = Candidate(STRUCTURES["isotropic"]).fit(design)
    found = search(design, start)
    assert np.array_equal(together(labels_of(found.fit.share)), together(labels))
    assert found.evidence > log_evidence(design, start) + 10

    order = rng.permutation(18)
    rows, starts = design.rows_of(order)
    shuffled = Design.of(design.likelihood, design.X[rows], design.y[rows], design.weight[rows], starts)
    again = search(shuffled, Candidate(STRUCTURES["isotropic"]).fit(shuffled))
    assert again.evidence == pytest.approx(found.evidence, abs=1e-8)
    np.testing.assert_allclose(again.fit.moments.t, found.fit.moments.t[order], atol=1e-8)


def test_labels_and_one_hot_are_inverses():
    labels = np.array([2, 0, 2, 1, 0])
    share = one_hot(labels)
    assert share.shape == (5, 3)
    assert share[3].tolist() == [0, 0, 1]
    assert np.array_equal(together(labels_of(share)), together(labels))
