import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefkin import Candidates, Comparisons
from prefkin.data.checks import distinct_labels, label_array
from prefkin.errors import InvalidCandidates, InvalidComparisons, UnknownUser

Z, y, users = np.arange(6.0).reshape(3, 2), [1, 0, 1], ["ann", "bo", "ann"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [1, 0.5, 1]}, r"y must be 0 or 1, but row 1 \(counted from 0\) is a tie; .*drop='ties'"),
        ({"y": [1, "tie", 1]}, "row 1 .* is a tie"),
        ({"y": [1, 3, 3]}, r"row 1 \(counted from 0\) is 3; 2 such rows; code 1 when"),
        ({"y": [1, -1, 1]}, "row 1 .* is -1"),
        ({"y": ["yes", "no", "yes"]}, "row 0 .* is 'yes'"),
        ({"y": [1, None, 1]}, "y is missing in row 1 .*drop='missing'"),
        ({"y": [1, 0]}, "y has 2 rows but the features have 3"),
        ({"y": [[1], [0], [1]]}, "y must be"),
        ({"Z": [[1.0, np.nan], [0, 1], [1, 1]]}, r"a feature is missing \(NaN\) in row 0"),
        ({"Z": [[1.0, 2], [0, np.inf], [1, 1]]}, r"a feature is infinite \(inf\) in row 1"),
        (
            {"Z": [[1.0, 2], [0.0], [1.0, 1]]},
            r"Z mixes dimensions: row 1 \(counted from 0\) has 1 features, earlier rows have 2",
        ),
        ({"Z": [["a", 2], [0, 1], [1, 1]]}, "Z holds something other than numbers in row 0"),
        ({"Z": [1.0, 2.0, 3.0]}, "Z must be a table"),
        ({"Z": np.empty((3, 0))}, "no features"),
        ({"users": ["ann", None, "bo"]}, "the user is missing in row 1"),
        ({"users": [1.0, np.nan, 2.0]}, "the user is missing in row 1"),
        ({"users": pd.array([1, None, 2], dtype="Int64")}, "the user is missing in row 1"),
        ({"users": [["a"], ["b"], ["c"]]}, "row 0 .* is a list, which cannot be a label"),
        ({"users": "ann"}, "one label per comparison"),
        ({"users": np.ones((3, 2))}, "one label per comparison"),
        ({"weights": [1, -1, 1]}, "weights must be finite and at least 0, but row 1"),
        ({"weights": ["a", "b", "c"]}, "weights must be numbers"),
        ({"feature_names": ["one"]}, "1 feature_names for 2 features"),
        ({"drop": "tie"}, "drop must be among ties, missing; got 'tie'"),
        ({"Z": np.empty((0, 2)), "y": [], "users": []}, "no comparisons: the table is empty"),
    ],
)
def test_bad_input_is_named_by_field_row_and_remedy(change, message):
    given = {"Z": Z, "y": y, "users": users, **change}
    with pytest.raises(InvalidComparisons, match=message) as caught:
        data = Comparisons.from_arrays(**given)
        data.labels  # noqa: B018 - unhashable labels are found when users are told apart
    assert "\n" not in str(caught.value)


def test_ties_and_missing_rows_are_left_out_on_request_and_counted():
    rows = np.array([[1.0], [2.0], [np.nan], [4.0], [5.0]])
    data = Comparisons.from_arrays(
        rows, [1, 0.5, 1, None, 0], list("abcde"), contexts=list("vwxyz"), drop=("ties", "missing")
    )
    assert data.dropped == {"ties": 1, "missing": 2}
    assert data.users.tolist() == ["a", "e"]
    assert data.contexts.tolist() == ["v", "z"]


def test_dropping_everything_is_refused():
    with pytest.raises(InvalidComparisons, match="no comparison is left after dropping ties"):
        Comparisons.from_arrays([[1.0]], [0.5], ["a"], drop="ties")


def test_sides_are_kept_and_must_match():
    data = Comparisons.from_sides([[3.0, 1.0]], [[1.0, 1.0]], [1], ["a"])
    assert data.second.tolist() == [[1.0, 1.0]]
    with pytest.raises(InvalidComparisons, match="both sides"):
        Comparisons.from_sides([[3.0, 1.0]], [[1.0]], [1], ["a"])


@pytest.mark.parametrize(
    "labels",
    [
        ["b", "a", "b"],
        [3, 1, 3],
        [("x", 1), ("x", 0), ("x", 1)],
        [1, "1", 1],
        [frozenset({1}), 2, frozenset({1})],
        np.array([3, 1, 3]),
        np.array(["b", "a", "b"]),
        pd.Series(["b", "a", "b"], dtype="category"),
        pl.Series(["b", "a", "b"]),
    ],
)
def test_labels_of_any_type_come_back_as_given(labels):
    data = Comparisons.from_arrays(Z, y, labels)
    assert data.users.tolist() == list(labels)
    assert len(data.labels) == 2
    assert [data.labels.tolist()[i] for i in data.who] == list(labels)


@given(st.lists(st.one_of(st.integers(), st.text(), st.tuples(st.integers(), st.text())), min_size=1))
def test_distinct_labels_rebuild_the_rows(labels):
    distinct, codes = distinct_labels(label_array(labels, "users"))
    assert [distinct[i] for i in codes] == labels
    assert len(set(distinct.tolist())) == len(distinct)


def test_comparable_labels_are_sorted_so_that_row_order_does_not_matter():
    assert distinct_labels(label_array(["b", "a", "c"], "users"))[0].tolist() == ["a", "b", "c"]


def test_grouping_keeps_each_users_rows_in_order_and_copies_them():
    data = Comparisons.from_arrays(Z, y, users, weights=[1, 2, 3])
    grouped = data.by_user()
    assert grouped.of(0).Z.tolist() == Z[[0, 2]].tolist()
    assert grouped.counts.tolist() == [4.0, 2.0]
    assert not np.shares_memory(grouped.rows.Z, Z)
    with pytest.raises(UnknownUser, match="user 'cy' is not among the 2 fitted users \\('ann', 'bo'\\)"):
        grouped.index("cy")


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        ([], {}, "no candidates"),
        ([[[1.0, 2.0]], []], {}, "context 1 .* has features of shape"),
        ([[[1.0, 2.0]], np.empty((0, 2))], {}, "context 1 .* has no actions"),
        ([[[1.0, 2.0]], [[1.0]]], {}, "context 1 .*same features everywhere"),
        ([[[1.0, 2.0], [np.nan, 1.0]]], {}, "context 0, action 1 .* not finite"),
        ([[[1.0]]], {"weights": [1.0, 2.0]}, "one per context"),
        ([[[1.0]]], {"weights": [0.0]}, "not all 0"),
        ([[[1.0]]], {"actions": ["a", "b"]}, "actions has 2 labels for 1"),
        ([[["a"]]], {}, "features must be numbers"),
    ],
)
def test_bad_candidates_are_named(features, options, message):
    with pytest.raises(InvalidCandidates, match=message):
        Candidates(features, **options)


def test_candidates_hold_ragged_contexts_and_weigh_them():
    candidates = Candidates([[[1.0], [2.0]], [[5.0]]], [1, 3])
    assert candidates.weights.tolist() == [0.25, 0.75]
    assert candidates.mean(np.array([1, 0])).tolist() == [4.25]
    assert candidates.argmax(np.array([7.0, 7.0, 1.0])).tolist() == [0, 0]


def test_candidates_from_logged_pairs_need_both_sides():
    with pytest.raises(InvalidCandidates, match="only feature differences"):
        Candidates.from_comparisons(Comparisons.from_arrays(Z, y, users))


@pytest.mark.parametrize(("value", "what"), [(np.nan, "missing"), (-np.inf, "infinite"), (1e80, "beyond 1e75")])
def test_a_feature_that_has_a_name_is_named_where_it_cannot_be(value, what):
    Z = np.ones((4, 2))
    Z[2, 1] = value
    with pytest.raises(InvalidComparisons, match=rf"feature to\{{ne is {what}.* in row 2 \(counted"):
        Comparisons.from_arrays(Z, [1, 0, 1, 0], list("aabb"), feature_names=["price", "to{ne"])
