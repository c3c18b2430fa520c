"""How people differ: covariances learnt from everybody, against slow and literal versions."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime

import prefkin
from prefkin import Comparisons, PrefKin
from prefkin.data.rows import only
from prefkin.errors import InvalidComparisons
from prefkin.inference.quadratics import Signed, expand
from prefkin.models.prefkin import lesson
from prefkin.models.prefkin.calibrate import _missed, _Split, fitted_in, judge, loss_of_groups
from prefkin.models.prefkin.metric import KINDS, Metric, Unit, free_numbers, learn_metric
from prefkin.models.prefkin.mixture import solved
from prefkin.models.prefkin.settings import CALIBRATION, METRIC


def people(rng, covariance, n_users=150, n=12, mean=0.5):
    """Rows, answers, users and preferences of people who differ by `covariance`."""
    d = len(covariance)
    theta = mean + rng.multivariate_normal(np.zeros(d), covariance, n_users)
    users = np.repeat(np.arange(n_users), n)
    Z = rng.standard_normal((len(users), d))
    y = rng.random(len(users)) < 1 / (1 + np.exp(-np.einsum("ij,ij->i", Z, theta[users])))
    return Z, y.astype(float), users, theta


CORRELATED = np.array([[4.0, 3.0, 0.0], [3.0, 4.0, 0.0], [0.0, 0.0, 0.25]])


def learnt_covariance(data, kind, rounds=80):
    rows = data.by_user()
    learnt = learn_metric(rows, kind, Unit.of(rows, kind), None, rounds)
    return learnt.prior.within * learnt.metric.covariance(np.eye(3)), learnt


@pytest.mark.parametrize("kind", ["full", "whitened"])
def test_a_covariance_of_people_is_found(rng, kind):
    Z, y, users, _ = people(rng, CORRELATED, n_users=600, n=30)
    data = Comparisons.from_arrays(Z, y, users)
    found, _ = learnt_covariance(data, kind)
    spread = np.sqrt(np.diag(found))
    assert spread == pytest.approx(np.sqrt(np.diag(CORRELATED)), rel=0.25)
    assert found[0, 1] / (spread[0] * spread[1]) == pytest.approx(0.75, abs=0.15)
    assert abs(found[0, 2]) / (spread[0] * spread[2]) < 0.3
    rows = data.by_user()  # begun with what a third of them taught, it ends there too
    start = fitted_in(only(rows, np.arange(0, 600, 3)), kind).for_others(rows)
    again = learn_metric(rows, kind, Unit.of(rows, kind), start, METRIC.rounds)
    again = again.prior.within * again.metric.covariance(np.eye(3))
    assert again == pytest.approx(found, abs=0.01 * np.trace(found))


@pytest.mark.parametrize(
    ("kind", "n_users", "people_added"),
    [("full", 60, 4.0 + 3 + 1.0), ("full", 200, 1.0), ("whitened", 60, 4.0 + 3 + 1.0)],
)
def test_what_is_found_is_where_evidence_with_imaginary_people_is_highest(rng, kind, n_users, people_added):
    """The slope of a literal log evidence, by differences, is 0 there: sites held, everything else integrated."""
    Z, y, users, _ = people(rng, CORRELATED, n_users=n_users, n=10)
    data = Comparisons.from_arrays(Z, y, users)
    covariance, learnt = learnt_covariance(data, kind, rounds=400)
    rows = data.by_user()
    unit = Unit.of(rows, kind).root
    unit = np.diag(unit) if unit.ndim == 1 else unit
    X = Signed.of_users(rows).X @ unit
    sites, d = learnt.sites, 3
    top = learnt.prior.top / learnt.prior.within
    back = np.linalg.inv(unit)
    start = np.linalg.cholesky(back @ covariance @ back.T)
    typical = d / np.trace(np.linalg.inv(start @ start.T))
    mean_covariance = top * start @ start.T

    def evidence(entries):
        L = np.zeros((d, d))
        L[np.tril_indices(d)] = entries
        S, total, A, a = L @ L.T, 0.0, np.linalg.inv(mean_covariance), np.zeros(d)
        for u in range(len(rows)):
            own = slice(rows.starts[u], rows.starts[u + 1])
            H = (X[own] * sites.precision[own, None]).T @ X[own]
            c = sites.pull[own] @ X[own]
            G = np.linalg.inv(np.eye(d) + H @ S)
            total += 0.5 * (c @ S @ G @ c - np.linalg.slogdet(np.eye(d) + H @ S)[1])
            A, a = A + G @ H, a + G @ c
        total += 0.5 * (a @ np.linalg.solve(A, a) - np.linalg.slogdet(A)[1])
        return total - 0.5 * people_added * (np.linalg.slogdet(S)[1] + typical * np.trace(np.linalg.inv(S)))

    entries = start[np.tril_indices(d)]
    slope = approx_fprime(entries, evidence, 1e-6)
    at_a_tenth_more = approx_fprime(1.1 * entries, evidence, 1e-6)
    assert np.abs(slope).max() < 0.1 * np.abs(at_a_tenth_more).max()


@pytest.mark.parametrize(("kind", "n_users"), [("whitened", 60), ("full", METRIC.many)])
def test_mixing_does_not_show_in_a_whitened_covariance_and_in_that_of_many_people(rng, kind, n_users):
    Z, y, users, _ = people(rng, CORRELATED, n_users=n_users)
    T = np.linalg.qr(rng.standard_normal((3, 3)))[0] @ np.diag([0.1, 1.0, 10.0])
    every_round = 10  # not only where the last one ends
    found, mixed = (learnt_covariance(Comparisons.from_arrays(X, y, users), kind, every_round)[0] for X in (Z, Z @ T))
    assert T @ mixed @ T.T == pytest.approx(found, abs=1e-4 * np.trace(found))


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
    assert model._fitted.metric.root.ndim == 2
    plain = PrefKin(metric="isotropic").fit(Z, y, users=users)

    def loss(one):
        new = np.random.default_rng(1).standard_normal((len(theta), 3))
        chance = 1 / (1 + np.exp(-np.einsum("ij,ij->i", new, theta)))
        said = one.predict_proba(new, users=np.arange(len(theta)))[:, 1]
        return -np.mean(chance * np.log(said) + (1 - chance) * np.log(1 - said))

    assert loss(model) < loss(plain) - 0.005


@pytest.mark.long
def test_of_many_people_some_judge_for_all(rng, monkeypatch):
    Z, y, users, _ = people(rng, 3.0 * CORRELATED, n_users=260, n=8, mean=0.0)
    monkeypatch.setattr(lesson, "CALIBRATION", replace(CALIBRATION, answers=1))
    judging = []
    monkeypatch.setattr(lesson, "judge", lambda rows, *rest: judging.append(len(rows)) or judge(rows, *rest))
    model = PrefKin().fit(Z, y, users=users)
    assert judging == [200]
    assert model._fitted.metric.root.ndim == 2
    assert len(model.theta_) == 260


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_saved_and_loaded(rng, tmp_path, kind):
    Z, y, users, _ = people(rng, CORRELATED, n_users=12)
    model = PrefKin(metric=kind).fit(Z, y, users=users)
    model.save(tmp_path / "model")
    again = prefkin.load(tmp_path / "model")
    assert np.array_equal(again.theta_, model.theta_)
    assert again.predict_proba(Z, users=users) == pytest.approx(model.predict_proba(Z, users=users), abs=1e-9)
    assert free_numbers(kind, 3) == {"isotropic": 0, "diagonal": 2}.get(kind, 5)


def test_a_metric_takes_rows_and_preferences_to_the_same_margins(rng):
    root, Z, points = rng.standard_normal((3, 2)), rng.standard_normal((5, 3)), rng.standard_normal((4, 2))
    metric = Metric(root)
    assert metric.rows(Z) @ points.T == pytest.approx(Z @ metric.preferences(points).T)
    rows = Comparisons.from_arrays(Z, np.ones(5), np.zeros(5)).by_user()
    assert pytest.approx(metric.rows(rows.rows.Z)) == metric.signed(rows).X
    assert (
        len(expand(metric.signed(rows), learn_metric(rows, "diagonal", Unit.of(rows, "diagonal"), None, 2).sites)) == 1
    )


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


def test_doubt_counts_as_if_rows_between_folds_of_items_had_been_learnt_from():
    fold = np.arange(12) % 4
    assert _missed([_Split(fold != k, fold == k, np.ones(3)) for k in range(4)]) == pytest.approx(1.0)
    one, other = np.indices((8, 8)).reshape(2, -1) % 4  # all pairs of eight items, two in each of four folds
    dealt = [_Split((one != k) & (other != k), (one == k) & (other == k), np.ones(4)) for k in range(4)]
    assert _missed(dealt) == pytest.approx(0.75)


def test_what_judges_groups_does_not_know_the_answers_it_asks_for(rng):
    """Where centres of groups are around was learnt from all answers: those that are held out must not show in it."""
    Z, y, users, _ = people(rng, 0.1 * np.eye(3), n_users=12)
    rows = Comparisons.from_arrays(Z, y, users).by_user()
    fit = fitted_in(rows, "isotropic")
    prior = fit.degrees.prior._replace(between=0.2, m0=np.array([1.0, 0.0, -1.0]))
    share = np.column_stack([np.arange(12) < 6, np.arange(12) >= 6]) * 0.9
    groups = solved(fit.degrees.users, fit.degrees.sites, share, prior)
    elsewhere = replace(groups, prior=prior._replace(m0=np.array([-30.0, 10.0, 0.0])))
    here, there = (loss_of_groups(rows, fit.metric, each) for each in (groups, elsewhere))
    assert there == pytest.approx(here, rel=1e-9)


@pytest.mark.long
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
