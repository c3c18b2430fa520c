"""Tomorrow's answers: who is placed anew, who is not, and when the prior should be learnt again."""

import io

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone

import prefkin
from prefkin import Comparisons, OffC2PL, PrefKin
from prefkin.data.synthetic import make_population
from prefkin.errors import InvalidComparisons, InvalidParameter, PriorWarning
from prefkin.inference.hierarchy import group_posterior, messages_of, user_moments
from prefkin.models.baselines import per_user
from tests.conftest import answers_by_degrees


@pytest.fixture(scope="module")
def grouped():
    return make_population(np.random.default_rng(3), n_users=15, n_groups=3, dim=4, n_comparisons=60, strength=3.0)


def halves(data, who=(0, 1, 2, 3, 4)):
    """What there was, and what some people answered later; the last person comes later as a whole."""
    n = np.arange(len(data)) % 60
    newcomer = data.users == data.users.max()
    later = newcomer | (np.isin(data.users, who) & (n >= 40))
    return data.take(~later & ((n < 40) | ~np.isin(data.users, who))), data.take(later)


def by_degrees():
    Z, y, users = answers_by_degrees()
    data = Comparisons.from_arrays(Z, y, users)
    later = np.random.default_rng(0).random(len(data)) < 0.3
    return data.take(~(later & (data.users < 4))), data.take(later & (data.users < 4))


def everything(model):
    """Group means and estimates from the same sites and responsibilities, with every sum made again."""
    posterior = model._learnt.posterior
    rows, population = posterior.design.with_root(posterior.population.root), posterior.population
    groups = group_posterior(
        messages_of(rows, *posterior.sites, posterior.spread, posterior.share, population), population
    )
    moments = user_moments(rows, *posterior.sites[:2], posterior.spread, posterior.share, groups, population)
    return groups, population.preferences(moments.t)


@pytest.mark.parametrize("kind", ["groups", "by degrees"])
def test_an_update_equals_placing_everybody_under_the_same_prior(grouped, kind):
    old, new = halves(grouped.data) if kind == "groups" else by_degrees()
    model = PrefKin(metric="isotropic").fit(old)
    assert model.structure_ == kind
    population = model._learnt.posterior.population
    model.update(new)
    now = model._learnt.posterior
    for name in ("within", "between", "top", "root"):
        assert getattr(now.population, name) is getattr(population, name)
    groups, theta = everything(model)
    np.testing.assert_allclose(now.groups.means, groups.means, atol=1e-8)
    np.testing.assert_allclose(now.groups.covs, groups.covs, atol=1e-8)
    np.testing.assert_allclose(model.theta_, theta, atol=1e-8)


def test_nobody_else_is_placed_anew_and_what_is_shared_follows(grouped):
    old, new = halves(grouped.data, who=(0,))
    model = PrefKin(metric="isotropic").fit(old)
    membership, theta, sites = model.membership_.copy(), model.theta_.copy(), model._learnt.posterior.sites.nu.copy()
    owner = model._users.owner
    model.update(new)
    assert model.users_.tolist() == list(range(15))
    np.testing.assert_array_equal(model.membership_[1:14], membership[1:])
    np.testing.assert_array_equal(
        model._learnt.posterior.sites.nu[(model._users.owner > 0) & (model._users.owner < 14)], sites[owner > 0]
    )
    moved = np.linalg.norm(model.theta_[:14] - theta, axis=1) > 1e-3
    with_news = set(grouped.group[[0, 14]].tolist())
    assert moved.tolist() == [group in with_news for group in grouped.group[:14].tolist()]


def test_estimates_come_near_to_those_of_a_fit_on_everything(grouped):
    old, new = halves(grouped.data)
    model = PrefKin(metric="isotropic").fit(old)
    before = model.theta_.copy()
    model.update(new)
    both = Comparisons.from_arrays(np.vstack([old.Z, new.Z]), np.append(old.y, new.y), np.append(old.users, new.users))
    whole = PrefKin(metric="isotropic").fit(both)
    assert np.linalg.norm(model.theta_ - whole.theta_) < 0.3 * np.linalg.norm(before - whole.theta_[:14])
    assert model.neighbours(14).tolist() == whole.neighbours(14).tolist()
    assert model.refit_gain_ < 0


def test_an_updated_model_is_the_same_from_disk_and_goes_on(grouped, tmp_path):
    old, new = halves(grouped.data)
    model = PrefKin().fit(old).update(new)
    model.save(tmp_path / "kin")
    again = prefkin.load(tmp_path / "kin")
    np.testing.assert_allclose(again.theta_, model.theta_, atol=1e-9)
    np.testing.assert_allclose(
        again.predict_proba(grouped.data.Z, grouped.data.users), model.predict_proba(grouped.data.Z, grouped.data.users)
    )
    np.testing.assert_allclose(again.own_theta_, model.own_theta_)
    assert again.refit_gain_ == model.refit_gain_
    more = grouped.data.take(np.arange(6))
    np.testing.assert_allclose(again.update(more).theta_, model.update(more).theta_, atol=1e-8)
    np.testing.assert_allclose(again.radius_, model.radius_, atol=1e-8)
    np.testing.assert_allclose(again.own_theta_, model.own_theta_, atol=1e-6)


def test_people_unlike_those_known_are_worth_a_refit(grouped):
    model, rng = PrefKin().fit(grouped.data), np.random.default_rng(1)
    owner = np.repeat(np.arange(12), 60)
    Z = rng.standard_normal((len(owner), 4))
    likes = -4.0 * grouped.theta[:3].mean(axis=0) + 0.2 * rng.standard_normal((12, 4))
    y = rng.random(len(owner)) < expit(np.einsum("ij,ij->i", Z, likes[owner]))
    with pytest.warns(PriorWarning, match="learn it again"):
        model.update(Z, y.astype(int), users=owner + 100)
    assert model.refit_gain_ > 1


@pytest.mark.parametrize("features", [70, pytest.param(300, marks=pytest.mark.long)])
def test_many_features_are_taken_in_as_well(features):
    rng = np.random.default_rng(2)
    theta, owner = rng.standard_normal(features) / 4, np.repeat(np.arange(8), 25)
    Z = rng.standard_normal((len(owner), features))
    y = (rng.random(len(owner)) < expit(Z @ theta)).astype(int)
    late = (owner > 5) & (np.arange(len(owner)) % 25 > 12)
    model = PrefKin().fit(Z[~late], y[~late], users=owner[~late]).update(Z[late], y[late], users=owner[late])
    content = io.BytesIO()
    model.save(content)
    np.testing.assert_allclose(everything(model)[1], model.theta_, atol=1e-8)


def test_the_papers_algorithm_comes_out_as_fitted_on_everything(grouped):
    old, new = halves(grouped.data)
    both = Comparisons.from_arrays(np.vstack([old.Z, new.Z]), np.append(old.y, new.y), np.append(old.users, new.users))
    with pytest.warns(prefkin.errors.AssumptionWarning):
        updated, fitted = OffC2PL(gamma=60.0).fit(old).update(new), OffC2PL(gamma=60.0).fit(both)
    np.testing.assert_allclose(updated.theta_, fitted.theta_, atol=1e-8)
    np.testing.assert_allclose(updated.radius_, fitted.radius_)
    assert updated.users_.tolist() == fitted.users_.tolist()


@pytest.mark.filterwarnings("ignore::prefkin.errors.AssumptionWarning")
@pytest.mark.parametrize("model", [PrefKin(), OffC2PL(gamma=0.0)], ids=lambda model: type(model).__name__)
def test_what_was_asked_for_before_an_update_is_computed_anew(grouped, model):
    """Of the paper's algorithm, who is nearest to whom stayed as it was."""
    old, new = halves(grouped.data)
    model = clone(model).fit(old)
    asked = len(model.nearest()[0]), len(model.radius_), model._digest
    model.update(new)
    assert len(model.nearest()[0]) == len(model.radius_) == len(model.users_) == asked[0] + 1 == asked[1] + 1
    assert model._digest != asked[2]


def test_what_cannot_be_taken_in_is_refused_in_one_line_and_changes_nothing(grouped):
    model = PrefKin().fit(grouped.data)
    theta = model.theta_
    with pytest.raises(InvalidComparisons, match="need y and users"):
        model.update(grouped.data.Z, grouped.data.y)
    with pytest.raises(InvalidComparisons, match="3 features, the model has 4"):
        model.update(np.ones((2, 3)), [0, 1], users=[0, 1])
    with pytest.raises(InvalidComparisons, match="row 1"):
        model.update(np.ones((2, 4)), [0, np.nan], users=[0, 1])
    with pytest.raises(InvalidParameter, match="fit it again on all comparisons"):
        per_user().fit(grouped.data).update(grouped.data)
    assert model.theta_ is theta
