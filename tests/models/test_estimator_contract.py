"""OffC2PL as scikit-learn's users know estimators."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from prefkin import OffC2PL
from prefkin.errors import InvalidComparisons, PrefkinWarning
from prefkin.evaluate.metrics import neg_log_loss
from tests.conftest import draw_answers


@pytest.mark.parametrize(
    ("gamma", "options"),
    [
        ("auto", {}),
        (1.5, {}),
        ("under", {}),
        pytest.param("over", {"radius": "calibrated"}, marks=pytest.mark.long),
        (1.5, {"ridge": "auto"}),
        pytest.param("auto", {"distance": "information"}, marks=pytest.mark.long),
    ],
)
def test_scikit_learns_own_checks_pass(gamma, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefkinWarning)
        folds = "copies of a row may fall into different folds, a row of weight 2 cannot"
        expected = dict.fromkeys(["check_sample_weight_equivalence_on_dense_data"] if "ridge" in options else [], folds)
        results = check_estimator(
            OffC2PL(gamma, **options), on_skip=None, on_fail="raise", expected_failed_checks=expected
        )
    assert sum(result["status"] == "passed" for result in results) > 50


def test_clone_and_parameters_round_trip():
    model = OffC2PL(2.0, alpha=1.5, ridge=0.1)
    assert clone(model).get_params() == model.get_params()
    assert clone(model).set_params(gamma="over").gamma == "over"


def test_users_travel_as_metadata_through_a_pipeline_and_cross_validation(rng):
    Z, y, users = draw_answers(rng)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = OffC2PL(0.0).set_fit_request(users=True).set_predict_request(users=True).set_score_request(users=True)
        pipe = make_pipeline(StandardScaler(with_mean=False), routed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrefkinWarning)
            pipe.fit(Z, y, users=users)
            assert pipe.predict(Z, users=users).shape == y.shape
            folds = StratifiedKFold(3, shuffle=True, random_state=0)
            assert np.isfinite(cross_val_score(routed, Z, y, params={"users": users}, cv=folds)).all()
            search = GridSearchCV(routed, {"ridge": [0.1, 10.0]}, cv=folds).fit(Z, y, users=users)
            losses = cross_val_score(routed, Z, y, params={"users": users}, cv=folds, scoring=neg_log_loss)
            learnt, asked = next(iter(folds.split(Z, y)))
            first = OffC2PL(0.0).fit(Z[learnt], y[learnt], users=users[learnt])
            p = first.predict_proba(Z[asked], users=users[asked])[np.arange(len(asked)), y[asked]]
            assert losses[0] == pytest.approx(np.log(p).mean())
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1, 0.5, 0], "row 1 .* is a tie"),
        ([1, np.nan, 0], "y is missing in row 1"),
        ([1, 2, 3], "Only binary"),
    ],
)
def test_fit_refuses_what_is_no_answer(y, message):
    with pytest.raises(InvalidComparisons, match=message):
        OffC2PL(0.0).fit(np.eye(3), y, users=["a", "b", "c"])


def test_a_sample_weight_is_a_number_of_copies(rng):
    Z, y, users = draw_answers(rng, n_users=3)
    copies = rng.integers(0, 4, len(y)) + (np.arange(len(y)) % 5 == 0)
    again = np.repeat(np.arange(len(y)), copies)
    weighted = OffC2PL(52.0).fit(Z, y, users=users, sample_weight=copies)
    repeated = OffC2PL(52.0).fit(Z[again], y[again], users=users[again])
    assert np.allclose(weighted.theta_, repeated.theta_, atol=1e-9)
    assert np.allclose(weighted.radius_, repeated.radius_, rtol=1e-9)


def test_probabilities_are_those_of_each_rows_user(rng):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(0.0).fit(Z, y, users=users)
    margins = [float(z @ model.theta_[u]) for z, u in zip(Z, users, strict=True)]
    assert np.allclose(model.decision_function(Z, users=users), margins)
    assert np.allclose(model.predict_proba(Z, users=users)[:, 1], 1 / (1 + np.exp(-np.array(margins))))
    assert model.score(Z, y, users=users) == np.mean((np.array(margins) > 0) == (y == 1))


def test_who_brings_arrays_does_not_wait_for_readers_of_tables_or_pictures():
    code = (
        "import sys, prefkin\n"
        "for model in (prefkin.OffC2PL(gamma=0.0), prefkin.PrefKin()): model.fit([[0.5], [1.0]], [1, 0])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "prefkin.models.base" in loaded
    assert not loaded & {"polars", "matplotlib", "typer"}
