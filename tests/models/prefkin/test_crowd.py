"""Groups among more people than all pairs of them could be weighed."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, gammaln

import prefkin
from prefkin import Comparisons, PrefKin
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Signed, Terms, expand
from prefkin.inference.quadratics.evidence import set_evidence
from prefkin.models.prefkin.merging import (
    PartitionPrior,
    _concentration,
    _likely_pairs,
    crowd_prior,
    merge,
    merge_crowd,
    summed_sets,
)
from prefkin.models.prefkin.mixture import Prior
from prefkin.models.prefkin.settings import LIMITS


def crowd(seed, label, dim=6, n=40, beta=3.0):
    """Comparisons and true preferences of people who want what their group wants."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((label.max() + 1, dim))
    theta = beta * (centres / np.linalg.norm(centres, axis=1, keepdims=True))[label]
    owner, Z = np.repeat(np.arange(len(label)), n), rng.standard_normal((len(label) * n, dim))
    y = rng.random(len(Z)) < expit(np.einsum("ij,ij->i", Z, theta[owner]))
    return Comparisons.from_arrays(Z, y, owner), theta


def gap(estimate, truth):
    cosine = np.einsum("ij,ij->i", estimate, truth)
    return 1 - np.mean(cosine / np.linalg.norm(estimate, axis=1) / np.linalg.norm(truth, axis=1))


@pytest.fixture(scope="module")
def many():
    return (*crowd(0, np.arange(500) % 100, dim=12, n=50), np.arange(500) % 100)


@pytest.fixture(scope="module")
def fitted(many):
    return PrefKin(metric="isotropic").fit(many[0])


def test_groups_of_which_a_sample_has_few_members_are_found(many, fitted):
    _, theta, label = many
    assert fitted.structure_ == "groups"
    assert 90 <= len(fitted.summary().sizes) <= 105
    together = fitted.membership_[:, :-1] @ fitted.membership_[:, :-1].T > 0.5
    same = label[:, None] == label
    assert (together & same).sum() > 0.8 * same.sum()
    assert gap(fitted.theta_, theta) < 0.05  # the true groups .022, own answers .12


@pytest.mark.long
def test_a_crowd_does_not_depend_on_the_order_of_rows_or_names_of_people(many, fitted):
    data = many[0]
    order = np.random.default_rng(1).permutation(len(data))
    again = PrefKin(metric="isotropic").fit(
        data.Z[order], data.y[order].astype(int), users=[f"{(7 * u) % 500:03d}" for u in data.who[order]]
    )
    at = [again.position(f"{(7 * u) % 500:03d}") for u in range(500)]
    assert np.allclose(again.theta_[at], fitted.theta_, atol=1e-6)
    assert again.evidence_ == pytest.approx(fitted.evidence_, abs=1e-4)


def test_a_crowd_comes_back_from_disk(fitted, tmp_path):
    fitted.save(tmp_path / "crowd.npz")
    back = prefkin.load(tmp_path / "crowd.npz")
    assert np.allclose(back.theta_, fitted.theta_, atol=1e-9)
    assert np.allclose(back.membership_, fitted.membership_)
    assert back._fitted.mixture.prior.lonely == fitted._fitted.mixture.prior.lonely
    explained = [model.explain(0, 100) for model in (fitted, back)]
    assert explained[0].probability == pytest.approx(explained[1].probability)


def test_a_newcomer_finds_their_group_in_a_crowd(many, fitted):
    _, theta, label = many
    rng = np.random.default_rng(3)
    Z = rng.standard_normal((100, 12))
    right = []
    for u in range(9):
        found = fitted.fold_in(Z, (rng.random(100) < expit(Z @ theta[u])).astype(int)).neighbours.astype(int)
        right.append(np.mean(label[found] == u) if len(found) else 0.0)
    assert np.median(right) == 1.0


def test_loners_small_groups_and_a_large_one_at_once():
    label = np.concatenate([np.zeros(80, int), 1 + np.arange(100) % 10, 11 + np.arange(40) // 4, 21 + np.arange(80)])
    data, _ = crowd(5, label, dim=8, n=80)
    model = PrefKin(metric="isotropic").fit(data)
    places = np.argmax(model.membership_, axis=1)
    alone = places == model.membership_.shape[1] - 1
    assert alone[220:].mean() > 0.7
    assert alone[:220].mean() < 0.05
    assert np.bincount(places[:80]).max() > 75
    for first in range(180, 220, 4):  # at least three of the four of a small group
        assert np.bincount(places[first : first + 4]).max() >= 3 or not alone[first : first + 4].any()


@pytest.mark.long
def test_a_crowd_without_groups_has_none():
    data, _ = crowd(2, np.arange(300), n=30)
    assert PrefKin(metric="isotropic").fit(data).structure_ != "groups"


def test_a_crowd_too_large_to_search_is_placed_among_the_groups_of_some(monkeypatch):
    monkeypatch.setattr("prefkin.models.prefkin.settings.LIMITS", replace(LIMITS, most_crowd=220))
    label = np.arange(300) % 10
    data, theta = crowd(4, label, n=60)
    model = PrefKin(metric="isotropic").fit(data)
    assert model.membership_.shape[0] == 300
    assert gap(model.theta_, theta) < 0.02


def terms_of(seed, label, n=40, dim=4):
    data, _ = crowd(seed, label, dim, n)
    X = data.Z * (2 * data.y - 1)[:, None]
    signed = Signed(X, np.ones(len(X)), np.arange(0, len(X) + 1, n))
    return expand(signed, Sites.start(signed.weights)).at(0.01)


def test_merging_a_crowd_ends_where_merging_few_people_does():
    label = np.arange(36) % 4
    terms, prior = terms_of(1, label, n=200), Prior(np.zeros(4), 0.01, 1.0, 1.0)
    few = merge(terms, prior, np.arange(36), 12)
    many = merge_crowd(terms, prior, np.arange(36), PartitionPrior(0.0, 0.0), 8)
    assert np.array_equal(few[:, None] == few, many[:, None] == many)
    assert np.array_equal(many[:, None] == many, label[:, None] == label)


def test_people_who_answered_alike_to_the_digit_are_merged_once_each():
    terms, prior = terms_of(1, np.arange(3)), Prior(np.zeros(4), 0.01, 1.0, 1.0)
    copies = np.tile(np.arange(3), 40)
    partition = merge_crowd(terms[copies], prior, np.arange(120), PartitionPrior(0.0, 0.0), 8)
    assert len(np.unique(np.column_stack([copies, partition]), axis=0)) == partition.max() + 1 == 3


def test_partners_are_those_whose_union_gains_most(rng):
    """With everybody's information a multiple of one matrix, in whose units the prior is round, nothing is lost."""
    weight = np.repeat(np.exp(rng.uniform(-1, 1, 3)), 256)[: 3 * 256]
    A = 5.0 * weight[:, None, None] * np.eye(3)
    sums = Terms(A, 5.0 * weight[:, None] * rng.standard_normal((768, 3)), np.zeros(768))
    prior = Prior(np.zeros(3), 0.01, 0.7, 1.0)
    one, other = _likely_pairs(sums, prior, 6)
    seen = np.zeros((768, 768), dtype=bool)
    seen[one, other] = seen[other, one] = True
    score = set_evidence(sums, prior.m0, prior.between)
    for u in range(0, 768, 97):
        both = Terms(A + A[u], sums.a + sums.a[u], np.zeros(768))
        gain = set_evidence(both, prior.m0, prior.between) - score
        gain[u] = -np.inf
        assert seen[u, np.argsort(-gain)[:6]].all()


def test_sums_over_sets(rng):
    terms = Terms(rng.standard_normal((5, 2, 2)), rng.standard_normal((5, 2)), rng.standard_normal(5))
    sums, expected = summed_sets(terms, np.array([0, 2, 1, 0, 2])), terms.summed(np.eye(3)[[0, 2, 1, 0, 2]])
    for one, other in zip((sums.A, sums.a, sums.level), (expected.A, expected.a, expected.level), strict=True):
        assert np.allclose(one, other)


@pytest.mark.parametrize(("groups", "members"), [(40, 1000), (200, 1000), (3, 9)])
def test_the_concentration_is_where_the_number_of_groups_is_likeliest(groups, members):
    alpha = _concentration(groups, members)

    def likelihood(a):
        return groups * np.log(a) + gammaln(a) - gammaln(a + members)

    assert likelihood(alpha) >= max(likelihood(0.99 * alpha), likelihood(1.01 * alpha))
    assert _concentration(1, 10_000) == 1.0


def test_a_crowd_of_loners_is_likelier_as_such_than_under_concentration_one():
    sizes = np.concatenate([np.full(100, 10), np.ones(1000, int)])
    fixed = float(gammaln(sizes).sum() - gammaln(1 + sizes.sum()))
    assert crowd_prior(sizes) > fixed + 1000
    few = np.array([5, 4, 3])
    assert abs(crowd_prior(few) - float(gammaln(few).sum() - gammaln(13))) < 3.0
