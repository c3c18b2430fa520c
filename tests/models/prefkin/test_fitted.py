"""The estimator on the hierarchical model: what it computes from the posterior, its files, extensions and warnings."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone

from prefkin.data.synthetic import demo_population
from prefkin.errors import ConvergenceWarning, InvalidParameter, ModelFileError
from prefkin.inference.likelihood import Laplace, Logistic
from prefkin.models.files import read_model_file
from prefkin.models.prefkin.covariance import STRUCTURES
from prefkin.models.prefkin.estimator import PrefKin
from prefkin.models.prefkin.explain import _LeaveOneOut, comparisons_to_turn
from prefkin.models.prefkin.posterior import margins_of
from prefkin.models.prefkin.reporting import warn_of_the_fit
from tests.conftest import answers_by_degrees


@pytest.fixture(scope="module")
def readers():
    return demo_population(np.random.default_rng(0))[0]


@pytest.fixture(scope="module")
def model(readers):
    return PrefKin(metric="isotropic").fit(readers.data)


@pytest.fixture(scope="module")
def continuous():
    Z, y, users = answers_by_degrees()
    return PrefKin().fit(Z, y, users=users)


def reloaded(model, path):
    """Through a file."""
    model.save(path)
    return PrefKin.from_file(*read_model_file(path)[1:])


class StudentT:
    def spread(self, deviation, d):
        return (4.0 + deviation) / (4.0 + d)


def test_files_bring_everything_back(model, continuous, tmp_path):
    for name, each in (("groups", model), ("continuous", continuous)):
        again = reloaded(each, tmp_path / name)
        Z, users = each._users.rows.Z, each.users_[each._users.owner]
        assert np.array_equal(again.predict_proba(Z, users=users), each.predict_proba(Z, users=users))
        assert again._digest == each._digest
        assert str(again.summary()) == str(each.summary())
        assert (again.temperature_, again.n_iter_, again.converged_) == (each.temperature_, each.n_iter_, True)
        again.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / name).read_bytes()


def test_files_of_0_2_are_refused_with_the_version_and_how_to_go_on(model, tmp_path):
    model.save(tmp_path / "model")
    _, about, labels, arrays = read_model_file(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"prefkin 0\.2 or earlier.*fit again.*prefkin fit FILE --out DIR") as told:
        PrefKin.from_file({name: value for name, value in about.items() if name != "version"}, labels, arrays)
    assert "\n" not in str(told.value)
    with pytest.raises(ModelFileError, match="a later prefkin"):
        PrefKin.from_file(about | {"version": 3}, labels, arrays)
    with pytest.raises(ValueError, match="shapes"):
        PrefKin.from_file(about, labels, arrays | {"sizes": arrays["sizes"][1:]})


@pytest.mark.parametrize(
    "settings",
    [
        {"population": StudentT()},
        {"likelihood": Laplace(Logistic())},
        {"metric": replace(STRUCTURES["diagonal"], name="mine")},
    ],
)
def test_models_with_objects_of_the_callers_fit_and_are_not_saved(settings, tmp_path):
    Z, y, users = answers_by_degrees()
    found = clone(PrefKin(**settings)).fit(Z, y, users=users)
    plain = PrefKin(metric="diagonal").fit(Z, y, users=users)
    assert np.corrcoef(found.theta_.ravel(), plain.theta_.ravel())[0, 1] > 0.9
    with pytest.raises(InvalidParameter, match="cannot be saved: a file holds no code"):
        found.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "round"}, "metric must be"),
        ({"likelihood": object()}, "likelihood must be None or an object with a method tilted"),
        ({"population": StudentT}, "population must be None or an object with a method spread"),
    ],
)
def test_other_arguments_are_refused(settings, message):
    with pytest.raises(InvalidParameter, match=message):
        PrefKin(**settings).fit(np.eye(2), [0, 1])


def test_calibration_does_not_depend_on_who_chose_the_metric(model, continuous):
    assert model.temperature_ != 1.0
    assert model.summary().temperature == model.temperature_
    line = str(replace(continuous.summary(), temperature=0.5))
    assert "log odds are multiplied by 0.50 (temperature)" in line


def test_a_fit_that_did_not_converge_warns(model):
    other = reloaded_in_memory(model)
    other.converged_ = False
    with pytest.warns(ConvergenceWarning, match="has not converged"):
        warn_of_the_fit(other, other._plain_margins)


def reloaded_in_memory(model):
    """A copy whose attributes may change."""
    other = PrefKin(**model.get_params())
    other.__dict__.update(model.__dict__)
    return other


def test_a_new_user_is_of_the_groups_by_their_sizes(model):
    people, posterior = model._population, model._learnt.uncertainty
    sizes = np.append(posterior.share[:, :-1].sum(axis=0), posterior.population.partition.concentration)
    assert np.allclose(people.nobody.chance, sizes / sizes.sum())
    population = posterior.population
    assert np.allclose(people.covariances[0], posterior.groups.covs[0] + population.within * np.eye(6))
    assert np.allclose(
        people.covariances[-1], posterior.groups.m0_cov + (population.within + population.between) * np.eye(6)
    )


def test_margins_from_rows_are_those_from_covariances(model, monkeypatch):
    posterior = model._learnt.posterior
    Z, owner = model._users.rows.Z, model._users.owner
    mean, variance = posterior.margins(Z, owner)
    assert np.allclose(margins_of(posterior.design, posterior, Z, owner), (mean, variance), rtol=1e-3, atol=1e-4)
    monkeypatch.setattr("prefkin.models.prefkin.posterior.STACKED_UP_TO", 1)
    assert np.allclose(posterior.margins(Z, owner), (mean, variance), rtol=1e-3, atol=1e-4)
    one = posterior.margins(Z[:1], owner[:1])
    assert np.allclose(one, (mean[:1], variance[:1]), rtol=1e-3, atol=1e-4)


def test_log_odds_are_ratios_of_evidence_without_the_user(model):
    """Against normal densities of the site means, where the sites determine all features."""
    posterior, u, v = model._learnt.posterior, model.position("Ada"), model.position("Ben")
    around = _LeaveOneOut(posterior, u, v)
    Lam, eta = around.factor.Lam[0], around.factor.eta[0]
    mean, C = np.linalg.solve(Lam, eta), np.linalg.inv(Lam)
    found = around.evidence(around.factor, np.arange(len(around.prior)))
    variances = posterior.population.variances(len(found))
    dense = [
        multivariate_normal(m, C + S + v * np.eye(6)).logpdf(mean)
        for m, S, v in zip(around.groups.means, around.groups.covs, variances, strict=True)
    ]
    assert np.allclose(found - found[0], np.array(dense) - dense[0], atol=1e-6)
    odds = around.log_odds()
    assert odds.total == pytest.approx(odds.answers + odds.prior)
    assert odds.total < 0 < _LeaveOneOut(posterior, u, model.position("Dan")).log_odds().total


def test_comparisons_that_turn_a_verdict_are_few_where_it_is_unclear(model):
    turning = comparisons_to_turn(model._learnt.posterior, model.position("Ada"), model.position("Ben"))
    assert 10 < turning < 1000
    assert f"{model.explain('Ada', 'Ben').turning_comparisons:.3g}" == f"{turning:.3g}"


def test_the_summary_is_plain_numbers(continuous):
    from prefkin.apps.cli.findings import summary

    facts = json.loads(json.dumps(summary(continuous, "PrefKin", continuous.summary())))
    assert facts["temperature"] == continuous.temperature_
    assert facts["log_evidence_of_groups"] < 1.0
