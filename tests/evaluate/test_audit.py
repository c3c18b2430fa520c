"""Each fault is found, and clean data are left in peace."""

import numpy as np
import pytest
from scipy.optimize import linprog

from prefkin import Comparisons, PrefKin
from prefkin.data.synthetic import make_population
from prefkin.errors import InvalidComparisons, SeparationWarning
from prefkin.evaluate.audit import audit, chance_p_values, is_separated, separated_users
from tests.conftest import draw_answers


def said(data, part):
    return [finding for finding in audit(data) if part in str(finding)]


def literally_separated(X):
    """max Σ Xθ over Xθ ≥ 0 in a box, for every row by itself: is any of them positive?"""
    return any(linprog(-x, A_ub=-X, b_ub=np.zeros(len(X)), bounds=(-1.0, 1.0), method="highs").fun < -1e-7 for x in X)


def test_separation_agrees_with_a_linear_programme_per_row(rng):
    found = []
    for n, d in ((5, 4), (8, 4), (10, 3), (4, 2)) * 12:
        X = rng.standard_normal((n, d))
        if rng.random() < 0.3:
            X[-1] = -X[0]  # a contradiction
        if rng.random() < 0.3:
            X[:, 0] = np.abs(X[:, 0])  # separated
        if rng.random() < 0.2:
            X[0, 0] = 0.0  # only just, or only in part
        found.append(is_separated(X))
        assert found[-1] == literally_separated(X)
    assert 5 < sum(found) < 43
    assert not is_separated(np.zeros((3, 2)))
    in_part = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # contradictory in one feature, never in the other
    assert is_separated(in_part)


def test_separated_users_are_named_and_chance_is_told_apart(rng):
    Z, y, users = draw_answers(rng, n_users=6, dim=3)
    rule = (Z @ np.array([1.0, -2.0, 0.5]) > 0).astype(int)
    data = Comparisons.from_arrays(Z, np.where(users == 4, rule, y), users)
    assert 4 in separated_users(data.by_user())[0]
    assert "4" in said(data, "without a single contradiction")[0].what
    short = Comparisons.from_arrays(
        np.vstack([Z, rng.standard_normal((4, 3))]), np.append(y, [1, 0, 1, 1]), [*users, 9, 9, 9, 9]
    )
    separated, surprising = separated_users(short.by_user())
    assert (6 in separated) == is_separated((2 * short.y[-4:, None] - 1) * short.Z[-4:])
    assert surprising <= len(separated)


def test_a_careless_user_is_found_and_careful_ones_are_not():
    found, wrongly = 0, 0
    for seed in range(6):
        people = make_population(
            np.random.default_rng(seed), n_users=20, n_groups=3, dim=4, n_comparisons=120, strength=3.0
        )
        data, rng = people.data, np.random.default_rng(seed)
        assert not said(data, "no better than chance")
        guessed = Comparisons.from_arrays(
            data.Z, np.where(data.who == 7, rng.integers(2, size=len(data)), data.y), data.users
        )
        p = chance_p_values(guessed.by_user())
        found += p[7] < 0.05
        wrongly += int((np.delete(p, 7) < 0.05).sum())
    assert found >= 5
    assert wrongly == 0
    note = said(guessed, "no better than chance")[0]
    assert "for example 7" in note.what
    assert "corrected for 20 users" in note.what


def test_features_that_say_nothing_or_the_same_are_named(rng):
    Z, y, users = draw_answers(rng, dim=4)
    names = ("salt", "sugar", "fat", "acid")
    copy = Z.copy()
    copy[:, 3] = -2.0 * copy[:, 0]
    assert (
        "acid and salt"
        in said(Comparisons.from_arrays(copy, y, users, feature_names=names), "the same as another")[0].what
    )
    follows = Z.copy()
    follows[:, 2] = follows[:, 0] + follows[:, 1]
    assert said(Comparisons.from_arrays(follows, y, users), "1 of 4 directions are covered by nobody")
    units = Z * np.array([1e-9, 1.0, 1e5, 1.0])
    assert not said(Comparisons.from_arrays(units, y, users), "directions are covered by nobody")


def test_users_too_thin_or_with_gaps_are_counted(rng):
    Z, y, users = draw_answers(rng, sizes=[30, 30, 3, 30], dim=3)
    Z[users == 1, 2] = 0.0
    data = Comparisons.from_arrays(Z, y, users)
    assert "for example 2" in said(data, "1 of 4 users have fewer than 5 comparisons")[0].what
    assert "for example 1 (1 of 3 open)" in said(data, "never asked about some directions")[0].what


# -- and no fit is silently bad ------------------------------------------------------------------------------------


def test_rows_without_any_difference_are_refused():
    with pytest.raises(InvalidComparisons, match="the same features on both sides"):
        PrefKin().fit(np.zeros((6, 2)), [1, 0, 1, 0, 1, 0], users=list("aabbcc"))


def test_answers_that_never_contradict_the_fit_are_said_and_kept_finite(rng):
    people = make_population(rng, n_users=8, n_groups=2, dim=3, n_comparisons=40)
    data = people.data
    certain = (np.einsum("ij,ij->i", data.Z, people.theta[data.who]) > 0).astype(int)
    with pytest.warns(SeparationWarning, match="nothing tells how strong preferences are"):
        model = PrefKin(metric="isotropic").fit(data.Z, certain, users=data.users)
    assert np.isfinite(model.theta_).all()
    cosine = np.einsum("ij,ij->i", model.theta_, people.theta) / np.linalg.norm(model.theta_, axis=1) / 2.0
    assert cosine.min() > 0.9
    alone = (data.Z[:40] @ people.theta[0] > 0).astype(int)
    with pytest.warns(SeparationWarning):
        PrefKin().fit(data.Z[:40], alone)


def test_one_separated_user_among_others_is_held_by_them(rng):
    people = make_population(rng, n_users=10, n_groups=2, dim=3, n_comparisons=40)
    data = people.data
    certain = (np.einsum("ij,ij->i", data.Z, people.theta[data.who]) > 0).astype(int)
    model = PrefKin(metric="isotropic").fit(data.Z, np.where(data.who == 0, certain, data.y), users=data.users)
    sizes = np.linalg.norm(model.theta_, axis=1)
    assert sizes[0] < 2 * np.median(sizes)


def test_a_feature_that_never_differs_stays_unknown(rng):
    Z, y, users = draw_answers(rng, n_users=8, dim=3, sizes=[60] * 8)
    Z[:, 1] = 0.0
    model = PrefKin().fit(Z, y, users=users)
    assert np.abs(model.theta_[:, 1]).max() < 1e-9
    worst = model.coverage_map(0).directions[0]
    assert worst.name == "feature 1"
    assert worst.doubt == pytest.approx(1.0, abs=1e-6)


def test_one_row_and_equal_answers_give_modest_probabilities(rng):
    one = PrefKin().fit([[1.0, 2.0]], [1])
    assert 0.5 < one.predict_proba([[1.0, 2.0]])[0, 1] < 0.75
    Z = rng.standard_normal((200, 3))
    same = PrefKin().fit(Z, np.ones(200, dtype=int), users=np.repeat(np.arange(5), 40))
    assert same.predict_proba(rng.standard_normal((50, 3)), users=[0] * 50).max() < 0.8


def test_the_largest_feature_is_named(rng):
    Z, y, users = draw_answers(rng, sizes=[20] * 4)
    named = Comparisons.from_arrays(Z * [1.0, 1e9, 1.0], y, users, feature_names=["tone", "stamp", "price"])
    assert "; largest: stamp)" in next(each.what for each in audit(named) if "reach norm" in each.what)
