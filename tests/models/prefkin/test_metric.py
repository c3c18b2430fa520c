"""How people differ: covariances learnt from everybody."""

import numpy as np
import pytest

import prefkin
from prefkin import Comparisons, PrefKin
from prefkin.errors import InvalidComparisons
from prefkin.inference.likelihood import Logistic
from prefkin.inference.model import Design
from prefkin.models.prefkin.covariance import STRUCTURES, units_of


def people(rng, covariance, n_users=150, n=12, mean=0.5):
    """Rows, answers, users and preferences of people who differ by `covariance`."""
    d = len(covariance)
    theta = mean + rng.multivariate_normal(np.zeros(d), covariance, n_users)
    users = np.repeat(np.arange(n_users), n)
    Z = rng.standard_normal((len(users), d))
    y = rng.random(len(users)) < 1 / (1 + np.exp(-np.einsum("ij,ij->i", Z, theta[users])))
    return Z, y.astype(float), users, theta


CORRELATED = np.array([[4.0, 3.0, 0.0], [3.0, 4.0, 0.0], [0.0, 0.0, 0.25]])


@pytest.mark.parametrize("kind", ["full", "whitened"])
def test_a_covariance_of_people_is_found(rng, kind):
    Z, y, users, _ = people(rng, CORRELATED, n_users=600, n=30)
    population = PrefKin(metric=kind).fit(Z, y, users=users)._learnt.posterior.population
    found = population.within * population.covariance(np.eye(3))
    spread = np.sqrt(np.diag(found))
    assert spread == pytest.approx(np.sqrt(np.diag(CORRELATED)), rel=0.25)
    assert found[0, 1] / (spread[0] * spread[1]) == pytest.approx(0.75, abs=0.15)
    assert abs(found[0, 2]) / (spread[0] * spread[2]) < 0.3


def test_whitened_features_are_uncorrelated_in_any_units(rng):
    Z, y, starts = rng.standard_normal((40, 3)) * [1e-4, 1.0, 1e4], np.ones(40), np.array([0, 40])
    design = Design.of(Logistic(), Z, y, np.ones(40), starts)
    white = design.X @ units_of(design, "whitened")
    np.testing.assert_allclose(white.T @ white / design.weight.sum(), np.eye(3), atol=1e-9)


@pytest.mark.long
def test_units_and_mixtures_do_not_show_in_a_whitened_metric(rng):
    Z, y, users, _ = people(rng, CORRELATED)
    new = rng.standard_normal((50, 3))
    mixed = np.linalg.qr(rng.standard_normal((3, 3)))[0] @ np.diag([0.1, 1.0, 10.0])
    chances = []
    for T in (np.eye(3), np.diag([1e-3, 1.0, 1e3]), mixed):
        model = PrefKin(metric="whitened").fit(Z @ T, y, users=users)
        chances.append(model.predict_proba(new @ T, users=np.arange(50))[:, 1])
    assert chances[1] == pytest.approx(chances[0], abs=0.005)
    assert chances[2] == pytest.approx(chances[0], abs=0.005)


@pytest.mark.long
def test_held_out_answers_choose_a_covariance_where_people_have_one(rng):
    Z, y, users, theta = people(rng, 3.0 * CORRELATED, n_users=200, n=10, mean=0.0)
    model = PrefKin().fit(Z, y, users=users)
    assert model._learnt.posterior.population.root.ndim == 2
    plain = PrefKin(metric="isotropic").fit(Z, y, users=users)

    def loss(one):
        new = np.random.default_rng(1).standard_normal((len(theta), 3))
        chance = 1 / (1 + np.exp(-np.einsum("ij,ij->i", new, theta)))
        said = one.predict_proba(new, users=np.arange(len(theta)))[:, 1]
        return -np.mean(chance * np.log(said) + (1 - chance) * np.log(1 - said))

    assert loss(model) < loss(plain) - 0.005


@pytest.mark.parametrize("kind", list(STRUCTURES))
def test_every_kind_is_saved_and_loaded(rng, tmp_path, kind):
    Z, y, users, _ = people(rng, CORRELATED, n_users=12)
    model = PrefKin(metric=kind).fit(Z, y, users=users)
    model.save(tmp_path / "model")
    again = prefkin.load(tmp_path / "model")
    assert np.array_equal(again.theta_, model.theta_)
    assert again.predict_proba(Z, users=users) == pytest.approx(model.predict_proba(Z, users=users), abs=1e-9)


def test_a_newcomer_has_probabilities_drawn_to_one_half_by_doubt(rng):
    Z, y, users, _ = people(rng, CORRELATED, n_users=40)
    model = PrefKin().fit(Z, y, users=users)
    new = model.fold_in(Z[:12], y[:12])
    said, bold = new.predict_proba(Z)[:, 1], 1 / (1 + np.exp(-Z @ new.theta))
    assert np.all(np.abs(said - 0.5) <= np.abs(bold - 0.5) * max(new.temperature, 1.0) + 1e-12)
    old = model.predict_proba(Z, users=np.zeros(len(Z)))[:, 1]  # the same answers, by somebody who took part
    assert np.abs(said - old).mean() < 0.05
    for bad, message in (([[1.0, 2.0]], "has 2 features"), ([[0.0, 1.0, 2.0], [0.0, np.nan, 1.0]], "row 1 ")):
        with pytest.raises(InvalidComparisons, match=message):
            new.predict_proba(bad)


@pytest.mark.long
@pytest.mark.xfail(
    reason="groups foretell better by 7.7 nats, but evidence of those that do it best is 9.2 lower: no groups",
    strict=False,
)
def test_groups_among_items_that_recur_are_not_refused_by_chance():
    """Two opposite tastes: held-out answers are foretold as well by degrees as by groups, to within a unit."""
    rng = np.random.default_rng(3)
    items, (one, other) = rng.standard_normal((30, 3)), rng.integers(30, size=(2, 1200))
    one, other = one[one != other], other[one != other]
    users = rng.integers(12, size=len(one))
    margin = np.where(users % 2, 8.0, -8.0) * (items[one] - items[other])[:, 0]
    answers = rng.random(len(one)) < 1 / (1 + np.exp(-margin))
    model = PrefKin().fit(Comparisons.from_sides(items[one], items[other], answers.astype(float), users))
    assert model.structure_ == "groups"
    assert [sorted(group.members.tolist()) for group in model.groups_] == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]]
