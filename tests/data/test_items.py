import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefkin import Comparisons, read_comparisons
from prefkin.data.rows import only
from prefkin.errors import InvalidComparisons


def some_pairs(rng, n=60, n_items=9, dim=3):
    X = rng.standard_normal((n_items, dim))
    first = rng.integers(0, n_items, n)
    second = (first + rng.integers(1, n_items, n)) % n_items
    return X, first, second, rng.integers(0, 2, n), rng.integers(0, 4, n)


def same_partition(codes, items):
    told = {}
    pairs = zip(codes.ravel().tolist(), items.ravel().tolist(), strict=True)
    return all(told.setdefault(code, item) == item for code, item in pairs) and len(set(told.values())) == len(told)


@given(seed=st.integers(0, 10**6), kind=st.sampled_from([np.float64, np.float32]))
def test_sides_with_equal_features_are_one_item_wherever_they_stand(seed, kind):
    rng = np.random.default_rng(seed)
    X, first, second, y, users = some_pairs(rng)
    X = X.astype(kind)
    data = Comparisons.from_sides(X[first], X[second], y, users)
    assert same_partition(data.item_codes, np.column_stack([first, second]))
    order = rng.permutation(len(y))
    assert np.array_equal(data.take(order).item_codes, data.item_codes[order])
    mirrored = Comparisons.from_sides(X[second], X[first], 1 - y, users)
    assert np.array_equal(mirrored.item_codes, data.item_codes[:, ::-1])


def test_binary_features_and_signed_zeros_are_told_apart_as_numbers_are():
    X = np.array([[int(bit) for bit in f"{i:010b}"] for i in range(1024)], dtype=np.float64)
    data = Comparisons.from_sides(X, -X[::-1], np.ones(1024), np.zeros(1024))
    assert len(np.unique(data.item_codes[:, 0])) == 1024
    assert len(np.unique(data.item_codes)) == 2047  # all but 0 = -0 stand there twice, with other signs


def test_items_with_names_are_what_their_names_say():
    X = np.array([[1.0], [1.0], [2.0]])  # the first two look alike
    data = Comparisons.from_sides(X[[0, 1]], X[[2, 2]], [1, 0], ["ann", "bo"], items=[("p", "r"), ("q", "r")])
    assert data.item_codes.tolist() == [[0, 2], [1, 2]]
    assert Comparisons.from_sides(X[[0, 1]], X[[2, 2]], [1, 0], ["ann", "bo"]).item_codes.tolist() == [[0, 1], [0, 1]]
    mixed = [("p", 1), ((2, "x"), "p")]
    codes = [
        Comparisons.from_arrays([[1.0], [2.0]], [1, 0], ["ann", "bo"], items=items).item_codes
        for items in (mixed, mixed[::-1])
    ]
    assert np.array_equal(codes[0], codes[1][::-1])
    assert Comparisons.from_arrays([[1.0]], [1], ["ann"]).item_codes is None


def test_items_survive_whatever_is_done_to_rows(rng):
    X, first, second, y, users = some_pairs(rng)
    names = np.column_stack([first, second])
    data = Comparisons.from_arrays(X[first] - X[second], y, users, items=names)
    rows = data.by_user()
    order = np.argsort(data.who, kind="stable")
    assert np.array_equal(rows.items, names[order])
    some = np.array([3, 1])
    assert np.array_equal(only(rows, some).items, np.concatenate([names[users == 3], names[users == 1]]))
    assert np.array_equal(data.take(users == 2).items, names[users == 2])


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([("p", "q")], "items has 1 rows but the features have 2"),
        (["pq", "qr"], r"items must be two names a row, but row 0 \(counted from 0\) is \('pq',\)"),
        (np.zeros((2, 3)), r"shape \(n, 2\); got an array of shape \(2, 3\)"),
        ([("p", None), ("q", "r")], "the name of an item is missing in row 0 .*drop='missing'"),
    ],
)
def test_names_that_do_not_fit_are_refused(items, message):
    with pytest.raises(InvalidComparisons, match=message):
        Comparisons.from_arrays([[1.0], [2.0]], [1, 0], ["ann", "bo"], items=items)


def test_tables_that_name_items_say_which_they_are():
    features = {"p": [1.0], "q": [0.0], "r": [0.0]}
    won = pl.DataFrame({"user": ["a", "a", "b"], "winner": ["q", "p", "p"], "loser": ["p", "r", "q"]})
    data = read_comparisons(won, items=features)
    assert data.Z.ravel().tolist() == [1.0, 1.0, 1.0]
    assert data.items.tolist() == [["p", "q"], ["p", "r"], ["p", "q"]]
    voted = pl.DataFrame({"worker": ["a", "b"], "left": ["p", "q"], "right": ["q", "r"], "label": ["p", "r"]})
    assert read_comparisons(voted, items=features).items.tolist() == [["p", "q"], ["q", "r"]]
