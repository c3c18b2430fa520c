"""Ratings become pairs that say what was rated, bounded and weighted, and factors that describe items."""

import numpy as np
import polars as pl
import pytest

from prefkin import Candidates, Comparisons, read_comparisons
from prefkin.data.ratings import Ratings
from prefkin.errors import InvalidCandidates, InvalidComparisons, InvalidTable
from tests.conftest import prefkin_says


def table(n_users=30, n_items=40, share=0.6, seed=0):
    """Two tastes: half of the people like what the others dislike."""
    rng = np.random.default_rng(seed)
    taste, worth = np.where(np.arange(n_users) % 2, 1.0, -1.0), rng.standard_normal(n_items)
    who, what = np.nonzero(rng.random((n_users, n_items)) < share)
    return who, what, 5 * taste[who] * worth[what] + rng.standard_normal(len(who)), worth


def test_pairs_say_what_was_rated_higher_and_differ_clearly():
    who, what, ratings, _ = table()
    data = Comparisons.from_ratings(who, what, ratings, margin=3.0)
    given = {(u, i): r for u, i, r in zip(who.tolist(), what.tolist(), ratings.tolist(), strict=True)}
    for user, (one, other), y in zip(data.users.tolist(), data.items.tolist(), data.y.tolist(), strict=True):
        difference = given[user, one] - given[user, other]
        assert abs(difference) >= 3.0
        assert (difference > 0) == (y == 1)
    assert 0.4 < data.y.mean() < 0.6  # sides by chance


def test_nobody_counts_by_the_square_of_their_ratings():
    who, what = np.repeat([0, 1], [10, 400]), np.r_[:10, :400]
    data = Comparisons.from_ratings(who, what, np.random.default_rng(1).random(410), margin=0.0, pairs_per_user=150)
    total = np.bincount(data.users, data.weights)
    worth = 2 * sum(1 - 1 / a for a in range(2, 11))
    assert total[0] == pytest.approx(worth)  # as a ranking of ten
    assert np.bincount(data.users).tolist() == [45, 150]
    assert total[1] == 150
    pairs = {(u, *sorted(pair)) for u, pair in zip(data.users.tolist(), data.items.tolist(), strict=True)}
    assert len(pairs) == len(data)


def test_factors_find_what_people_differ_in():
    who, what, ratings, worth = table()
    X, names = Ratings.checked(who, what, ratings).factors(3)
    assert names == ("mean rating", "factor 1", "factor 2", "factor 3")
    assert abs(np.corrcoef(X[:, 1], worth)[0, 1]) > 0.9
    assert np.abs(X[:, 1]).sum() > np.abs(X[:, 2]).sum()


def test_features_of_items_are_taken_where_they_are_known():
    data = Comparisons.from_ratings(["a", "a"], ["p", "q"], [2, 1], {"p": [1.0], "q": [0.0], "r": [9.0]})
    assert (data.Z * (2 * data.y[:, None] - 1)).tolist() == [[1.0]]
    assert not data.learnt_features
    with pytest.raises(InvalidComparisons, match="item 'q' of row 1 .* has no features; 1 items are known"):
        Comparisons.from_ratings(["a", "a"], ["p", "q"], [2, 1], {"p": [1.0]})


def test_candidates_are_the_items_with_their_factors():
    who, what, ratings, _ = table()
    data = Comparisons.from_ratings(who, what, ratings, n_factors=2)
    items = Candidates.from_items(data)
    assert items.actions.tolist() == sorted(set(what.tolist()))
    assert np.allclose(items.features[data.items[:, 0]] - items.features[data.items[:, 1]], data.Z)
    with pytest.raises(InvalidCandidates, match="do not name their items"):
        Candidates.from_items(Comparisons.from_arrays([[1.0]], [1], ["a"]))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((["a", "a", "a"], ["p", "q", "p"], [1, 2, 3]), "user 'a' rated item 'p' twice, again in row 2"),
        ((["a", None], ["p", "q"], [1, 2]), "the user is missing in row 1"),
        ((["a", "a"], ["p", "q"], [1, np.inf]), "the rating is missing or not finite in row 1"),
        ((["a", "a"], ["p", "q"], [1, 1]), "nobody rated two items clearly differently"),
        ((["a", "b"], ["p", "q"], [1, 2]), "nobody rated two items clearly differently"),
        ((["a"], ["p", "q"], [1, 2]), "users has 1 rows but ratings has 2"),
        (([], [], []), "there are no ratings"),
    ],
)
def test_ratings_that_say_nothing_are_refused(rows, message):
    with pytest.raises(InvalidComparisons, match=message):
        Comparisons.from_ratings(*rows)


def test_tables_of_ratings_and_of_choices_are_recognised(tmp_path):
    rated = pl.DataFrame({"user": ["a", "a", "b"], "item": ["p", "q", "p"], "rating": [1, 5, 2]})
    rated.write_csv(tmp_path / "r.csv")
    assert read_comparisons(tmp_path / "r.csv").learnt_features
    items = {"p": [1.0, 0.0], "q": [0.0, 1.0], "r": [1.0, 1.0]}
    assert len(read_comparisons(tmp_path / "r.csv", items=items)) == 1
    logged = pl.DataFrame({"user": ["a", "b"], "shown": [["p", "q", "r"], ["q", "r"]], "taken": ["q", "q"]})
    (tmp_path / "c.csv").write_text("user,shown,taken\na,p|q|r,q\nb,q|r,q\n")
    for source in (logged, tmp_path / "c.csv"):
        data = read_comparisons(source, items=items)
        assert len(data) == 3
        assert data.users.tolist() == ["a", "a", "b"]
    with pytest.raises(InvalidTable, match=r"in row 1 .* 'p' was taken, which is not among the items shown"):
        read_comparisons(logged.with_columns(taken=pl.Series(["q", "p"])), items=items)
    with pytest.raises(InvalidTable, match=r"column shown is no list of items in row 0 .*: 5"):
        read_comparisons(logged.with_columns(shown=pl.Series([5, 6])), items=items)
    with pytest.raises(InvalidTable, match=r"item 'r' of column shown, row 0 .* has no features"):
        read_comparisons(logged, items={"p": [1.0], "q": [0.0]})


@pytest.mark.long
def test_the_command_goes_from_ratings_to_a_ranking(tmp_path):
    who, what, ratings, worth = table(n_users=12, n_items=15)
    names = [f"u{u}" for u in who]
    pl.DataFrame({"user": names, "item": what, "rating": ratings}).write_csv(tmp_path / "r.csv")
    done = prefkin_says("fit", "r.csv", "--out", "kin", "--no-pictures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ask = ("rank", "kin", "--user", "u1", "--candidates", "kin/items.csv", "--csv", "out.csv")
    assert prefkin_says(*ask, cwd=tmp_path).returncode == 0
    ranked = pl.read_csv(tmp_path / "out.csv")
    assert np.corrcoef(worth[ranked["action"].to_numpy()], ranked["reward"].to_numpy())[0, 1] > 0.8
