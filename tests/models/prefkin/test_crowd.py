"""Groups among more people than all pairs of them could be weighed."""

import numpy as np
import pytest
from scipy.special import expit

import prefkin
from prefkin import Comparisons, PrefKin


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
    one, other = (model._learnt.posterior.population.partition for model in (back, fitted))
    assert one.concentration == other.concentration
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
