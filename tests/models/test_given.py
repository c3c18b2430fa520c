"""What models refuse: one line of prefkin's own that says what, where, and what to do."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import prefkin
from prefkin import OffC2PL, PrefKin
from prefkin.errors import InvalidComparisons, InvalidParameter, ModelFileError
from prefkin.models.baselines import pooled

Z, Y = np.eye(3), [1, 0, 1]
DAYS = np.array(["2024-01-01", "2024-01-02", "2024-01-03"], dtype="M8[ns]").reshape(-1, 1)


def one_line(told, message):
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 400
    told.match(message)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("votes.csv", r"'votes.csv', not features; read a file first: read_comparisons\(path\)"),
        (Path("votes.csv"), "read a file first"),
        (None, "must be a table"),
        ([1.0, 2.0, 3.0], r"must be a table .* got 1 dimension\(s\). Reshape your data"),
        (Z[None], "got 3 dimension"),
        (Z + 1j, "Complex data not supported"),
        ([[1.0], [1.0, 2.0], [1.0]], r"row 1 \(counted from 0\) has 2 features, earlier rows have 1"),
        ([{"z": 1.0}, {"z": 2.0}, {"z": 3.0}], "something other than numbers in row 0"),
        ([[1.0], ["1_0"], [2.0]], "something other than numbers in row 1"),
        (DAYS, "holds dates or times"),
        (pd.DataFrame({"day": DAYS.ravel()}), "holds dates or times"),
        (pd.DataFrame({"day": DAYS.ravel(), "z": [1.0, 2.0, 3.0]}), "something other than numbers in row 0"),
        (np.empty((3, 0)), r"0 feature\(s\)"),
    ],
)
@pytest.mark.parametrize("make", [PrefKin, pooled])
def test_features_that_are_none(make, features, message):
    with pytest.raises(InvalidComparisons) as told:
        make().fit(features, Y)
    one_line(told, message)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "target y is None"),
        (pd.Series(["left", "right", None]), r"y is missing in row 2 \(counted from 0\)"),
        ([None, 1, 0], "y is missing in row 0"),
        ([None, "left", np.nan], "y is missing in row 0 .*, 2 in all"),
        (["left", 1, "right"], "'left' in row 0 .* 1 in row 1; write all answers alike"),
        ([2.0, np.nan, 3.0], "y is missing in row 1"),
        ([0.3, 0.7, 1.2], "Unknown label type"),
        ([[1], [2, 3], [4]], "y cannot be used"),
        ([[1, 0], [1, 0], [1, 0]], "y cannot be used"),
        (np.ones((3, 2)), "1d array"),
        ("left", "y cannot be used"),
    ],
)
@pytest.mark.parametrize("make", [PrefKin, pooled])
def test_answers_that_are_none(make, y, message):
    with pytest.raises(InvalidComparisons) as told:
        make().fit(Z, y)
    one_line(told, message)


def test_answers_as_objects_are_answers():
    for y in (np.array(Y, dtype=object), pd.Series(["left", "right", "left"], dtype="string")):
        assert (OffC2PL(0.0).fit(Z, y).theta_[0] > 0).tolist() == [True, False, True]


def test_a_typing_error_among_answers_is_named():
    with pytest.raises(InvalidComparisons) as told:
        OffC2PL(0.0).fit(np.eye(6), ["left", "right", "left", "rihgt", "right", "left"])
    one_line(told, r"3 different answers \('left', 'right', 'rihgt'\), of which 'rihgt' in row 3 .* is rarest")


@pytest.mark.parametrize(
    ("weights", "message"),
    [([1.0], "sample_weight has 1 entries for 3 rows"), (["a", 1, 1], "sample_weight must be numbers, but row 0")],
)
def test_weights_that_do_not_fit(weights, message):
    with pytest.raises(InvalidComparisons) as told:
        OffC2PL(0.0).fit(Z, Y, sample_weight=weights)
    one_line(told, message)
    assert np.array_equal(OffC2PL(0.0).fit(Z, Y, sample_weight=1.0).theta_, OffC2PL(0.0).fit(Z, Y).theta_)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_to_predict_are_named(bad):
    model, asked = OffC2PL(0.0).fit(Z, Y), Z.copy()
    asked[1, 2] = bad
    for predict in (model.predict_proba, model.predict, model.fold_in(Z, Y).predict_proba):
        with pytest.raises(InvalidComparisons) as told:
            predict(asked)
        one_line(told, "a feature of row 1 .* is missing .*leave such rows out")


def test_one_feature_is_one():
    model = OffC2PL(0.0).fit(Z, Y)
    with pytest.raises(InvalidParameter, match="the new user has 1 feature, the model has 3"):
        model.fold_in(Z[:, :1], Y)


def test_what_is_no_seed_and_no_path():
    with pytest.raises(InvalidParameter, match="random_state must be None, a seed or a generator; got 'x'"):
        PrefKin(random_state="x").fit(Z, Y)
    for nothing in (None, 3):
        with pytest.raises(ModelFileError, match=f"load takes the path of a saved model.* got {nothing}"):
            prefkin.load(nothing)
