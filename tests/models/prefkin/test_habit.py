"""A habit of taking the first side is found, reported, and removed from preferences; where there is none, nothing is."""

from copy import deepcopy

import numpy as np
import pytest
from scipy.special import expit

import prefkin
from prefkin import Candidates, Comparisons, PrefKin
from prefkin.decide.rules.pairs import Question
from prefkin.evaluate.audit import audit


def world(rng, mean=0.0, spread=0.0, n_users=20, n=60, dim=4):
    theta = rng.normal(size=dim) + 0.5 * rng.normal(size=(n_users, dim))
    users, habit = np.repeat(np.arange(n_users), n), mean + spread * rng.normal(size=n_users)
    first, second = rng.normal(size=(2, n_users * n, dim))
    y = rng.random(len(users)) < expit(np.einsum("ij,ij->i", first - second, theta[users]) + habit[users])
    return first, second, y, users, habit, theta


@pytest.fixture(scope="module")
def habitual():
    """A world in which the first side is often taken, and a model of it."""
    first, second, y, users, _, _ = world(np.random.default_rng(20_26), 2.0)
    return first, second, y, PrefKin().fit(Comparisons.from_sides(first, second, y, users))


def test_a_habit_is_found_and_removed(rng):
    first, second, y, users, habit, theta = world(rng, 0.5, 1.0)
    model = PrefKin().fit(Comparisons.from_sides(first, second, y, users))
    assert np.corrcoef(model.habit_, habit)[0, 1] > 0.8
    assert abs(model.habit_.mean() - habit.mean()) < 0.25
    unaware = PrefKin().fit(first - second, y, users=users)
    assert not unaware.habit_.any()
    assert ((model.theta_ - theta) ** 2).sum() < ((unaware.theta_ - theta) ** 2).sum()
    assert "the first side is taken" in str(model.summary())
    assert model.predict_proba(np.zeros((1, 4)), users=[0])[0, 1] == 0.5  # two equal items are equally good


@pytest.mark.parametrize("groups", [True, pytest.param(False, marks=pytest.mark.long)])
def test_nothing_changes_where_there_is_no_habit(rng, groups):
    first, second, y, users, _, theta = world(rng)
    if groups:
        y = rng.random(len(users)) < expit(np.einsum("ij,ij->i", first - second, 2 * theta[users % 2]))
    known, unknown = (
        PrefKin(predict_for="rows").fit(data)  # known items would be held out in other folds
        for data in (Comparisons.from_sides(first, second, y, users), Comparisons.from_arrays(first - second, y, users))
    )
    assert not known.habit_.any()
    assert known.summary().first_side is None
    np.testing.assert_allclose(known.theta_, unknown.theta_, rtol=0, atol=1e-12)


def test_a_winner_that_is_written_first_is_no_habit(rng):
    first, second, y, users, *_ = world(rng)
    better = np.where(y[:, None], first, second)
    worse = np.where(y[:, None], second, first)
    model = PrefKin().fit(Comparisons.from_sides(better, worse, np.ones(len(y)), users))
    assert not model.habit_.any()


@pytest.mark.long
def test_people_turned_round_have_the_opposite_habit(rng):
    first, second, y, users, *_ = world(rng, 0.7, 0.3)
    one = PrefKin().fit(Comparisons.from_sides(first, second, y, users))
    other = PrefKin().fit(Comparisons.from_sides(second, first, ~y, users))
    np.testing.assert_allclose(other.habit_, -one.habit_, atol=1e-9)
    np.testing.assert_allclose(other.theta_, one.theta_, atol=1e-9)


def test_it_is_kept_in_a_file_and_named_by_audit(rng, tmp_path):
    first, second, y, users, *_ = world(rng, 0.8)
    data = Comparisons.from_sides(first, second, y, users)
    model = PrefKin().fit(data)
    model.save(tmp_path / "model")
    assert np.array_equal(prefkin.load(tmp_path / "model").habit_, model.habit_)
    assert any("the first side" in finding.what for finding in audit(data))
    assert not any("the first side" in finding.what for finding in audit(Comparisons.from_arrays(data.Z, y, users)))


@pytest.mark.parametrize(
    ("rule", "user"),
    [
        ("information", 3),
        ("posterior", None),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (("information", None), ("posterior", 3))),
    ],
)
def test_a_session_takes_the_habit_for_what_it_is(habitual, rng, user, rule):
    """Whoever often takes the first side says less about what is on it by taking it."""
    first, _, _, model = habitual
    plain = deepcopy(model)
    plain.habit_ = np.zeros_like(model.habit_)
    plain.__dict__.pop("_population", None)
    shown = Candidates(np.stack([rng.normal(size=(30, first.shape[1])), rng.normal(size=(30, first.shape[1]))], axis=1))
    moved = []
    for each in (model, plain):
        session = each.session(user, shown, rule=rule)
        before = session.theta
        for x in range(20):
            session.tell(Question(x, 0, 1), prefers_first=True)
        moved.append(float(np.linalg.norm(session.theta - before)))
    assert moved[0] < moved[1]


def test_a_newcomer_who_is_folded_in_has_the_habit_that_a_session_knows(habitual):
    first, second, y, model = habitual
    shown = Candidates(np.stack([first[:8], second[:8]], axis=1))
    session = model.session(None, shown)
    for x in range(8):
        session.tell(Question(x, 0, 1), prefers_first=bool(y[x]))
    folded = model.fold_in(first[:8] - second[:8], y[:8])
    np.testing.assert_allclose(folded.theta, session.theta, atol=1e-7)
