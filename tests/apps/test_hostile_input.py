"""What a hurried or hostile user may do: each was once answered wrongly."""

import threading
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from threadpoolctl import threadpool_info

from prefkin import (
    Candidates,
    Comparisons,
    ItemRegularity,
    OffC2PL,
    PrefKin,
    Question,
    read_candidates,
    read_comparisons,
)
from prefkin.decide.policy import best_policy
from prefkin.errors import InvalidCandidates, InvalidComparisons, InvalidParameter, InvalidTable, SessionError
from prefkin.evaluate.metrics import held_out
from prefkin.execution.blas import single_threaded
from tests.conftest import draw_answers


def test_ids_in_csv_are_text_so_that_different_people_stay_apart(tmp_path):
    (tmp_path / "v.csv").write_text("user,y,z0\n007,1,1\n7,0,-1\n07,1,2\n18446744073709551615,1,1\n")
    assert read_comparisons(tmp_path / "v.csv").labels.tolist() == ["007", "07", "18446744073709551615", "7"]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("user,y,z0,weigth", "column 'weigth' looks like 'weight' misspelt"),
        ("user,y,z0,contex", "column 'contex' looks like 'context' misspelt"),
        ("user,y,z0,z0", "column 'z0' stands twice"),
        ("user,y,z,z0", "the features stand there twice, as z and z0"),
    ],
)
def test_doubtful_columns_are_refused(tmp_path, header, message):
    (tmp_path / "v.csv").write_text(f"{header}\na,1,1,2\n")
    with pytest.raises(InvalidTable, match=message):
        read_comparisons(tmp_path / "v.csv")


def test_columns_that_mean_nothing_to_us_are_left_alone():
    frame = pl.DataFrame({"user": ["a"], "y": [1], "z0": [1.0], "timestamp": [3], "comment": ["fine"]})
    assert len(read_comparisons(frame)) == 1


def test_items_and_actions_named_twice_are_refused():
    votes = pl.DataFrame({"user": ["a"], "winner": ["p"], "loser": ["q"]})
    with pytest.raises(InvalidTable, match="item 'p' stands twice"):
        read_comparisons(votes, items=pl.DataFrame({"item": ["p", "q", "p"], "phi0": [1.0, 0.0, 9.0]}))
    table = pl.DataFrame({"context": ["x", "x"], "action": ["a", "a"], "phi0": [1.0, 2.0]})
    with pytest.raises(InvalidTable, match="action 'a' stands twice in its context"):
        read_candidates(table)
    with pytest.raises(InvalidTable, match="column action is missing in row 1"):
        read_candidates(table.with_columns(action=pl.Series(["a", None])))


def test_infinite_on_both_sides_is_infinite_not_missing():
    with pytest.raises(InvalidComparisons, match="infinite"):
        Comparisons.from_sides([[np.inf], [1.0]], [[np.inf], [0.0]], [1, 0], ["a", "b"], drop="missing")


def test_numbers_that_are_no_real_numbers_are_refused():
    with pytest.raises(InvalidComparisons, match="complex"):
        Comparisons.from_arrays(np.array([[1j]]), [1], ["a"])
    with pytest.raises(InvalidComparisons, match="beyond 1e75"):
        Comparisons.from_arrays([[1e160]], [1], ["a"])
    with pytest.raises(InvalidCandidates, match="features must be numbers"):
        Candidates(np.array([[["a"]]]))
    with pytest.raises(InvalidCandidates, match="weights must be numbers"):
        Candidates([[[1.0]]], weights=["a"])
    with pytest.raises(InvalidParameter, match="lambda_a must be a number above 0"):
        ItemRegularity(np.inf, 1.0, 1)
    assert Candidates([[[1.0]], [[1.0]]], weights=[1e308, 1e308]).weights.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("model", [PrefKin(), OffC2PL(0.0), OffC2PL("auto", ridge="auto", distance="information")])
@pytest.mark.parametrize("scale", [1e-150, 1e-74, 1e74, 1e150])
def test_units_beyond_all_measure_work_or_are_refused_in_a_line(rng, model, scale):
    Z, y, users = draw_answers(rng)
    if 1e-75 < scale < 1e75:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert np.isfinite(clone(model).fit(scale * Z, y, users=users).theta_).all()
        return
    with pytest.raises(InvalidComparisons, match="scale the features (up|down)"):
        clone(model).fit(scale * Z, y, users=users)


def test_weights_that_are_all_zero_are_refused_in_our_words(rng):
    Z, y, users = draw_answers(rng)
    with pytest.raises(InvalidComparisons, match="give some row a weight above 0"):
        OffC2PL(0.0).fit(Z, y, users=users, sample_weight=np.zeros(len(y)))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6, 1e9, 1e12])
def test_estimates_do_not_stop_early_whatever_the_unit_of_the_features(scale):
    Z = scale * np.array([[1.0], [1.0], [1.0], [1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = OffC2PL(0.0).fit(Z, [1, 1, 1, 0])
    theta = model.theta_[0, 0]
    assert 4 * scale * expit(scale * theta) - 3 * scale + theta == pytest.approx(0, abs=1e-7 * scale)


@pytest.mark.parametrize("series", [pd.Series([1, None, 2], dtype="Int64"), pl.Series([1, None, 2])])
def test_integer_labels_with_gaps_stay_integers(series):
    users = Comparisons.from_arrays(np.eye(3), [1, 0, 1], series, drop="missing").users.tolist()
    assert users == [1, 2]
    assert not any(isinstance(user, float) for user in users)


def test_dates_as_labels_come_back_as_given():
    days = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[ns]")
    model = OffC2PL(0.0).fit(np.eye(2), [1, 0], users=days)
    assert model.neighbours(days[0]).tolist() == [days[0]]


@pytest.mark.parametrize("users", [5, [(1, [2]), (1, [3])]])
def test_labels_that_are_none_are_refused(users):
    with pytest.raises(InvalidComparisons):
        Comparisons.from_arrays(np.eye(2), [1, 0], users)


def test_missing_contexts_and_zero_weights_are_refused():
    with pytest.raises(InvalidComparisons, match="the context is missing in row 1"):
        Comparisons.from_arrays(np.eye(2), [1, 0], ["a", "b"], contexts=["q", None])
    with pytest.raises(InvalidComparisons, match="all weights are 0"):
        Comparisons.from_arrays(np.eye(2), [1, 0], ["a", "b"], weights=[0, 0])


def test_a_users_count_does_not_depend_on_other_users():
    data = Comparisons.from_arrays(np.eye(4), [1, 0, 1, 0], ["a", "b", "b", "c"], weights=[1e9, 1e-8, 1e-8, 1])
    assert data.by_user().counts.tolist() == [1e9, 2e-8, 1.0]


def test_each_logged_action_is_one_candidate(rng):
    items = rng.standard_normal((5, 3)) * [1.0, 1e-3, 1e3]
    first, second = rng.integers(0, 5, 200), rng.integers(0, 5, 200)
    data = Comparisons.from_sides(items[first], items[second], np.ones(200), ["a"] * 200, contexts=["q"] * 200)
    assert Candidates.from_comparisons(data).sizes.tolist() == [5]


def test_a_model_that_is_not_fitted_says_so():
    candidates = Candidates([[[1.0], [2.0]]])
    model = OffC2PL(0.0)
    for call in (
        lambda: model.policy("a", candidates),
        lambda: model.session("a", candidates),
        lambda: model.fold_in([[1.0]], [1]),
        lambda: model.save("nowhere"),
        lambda: model.width("a"),
        lambda: model.information("a"),
        lambda: model.neighbours("a"),
    ):
        with pytest.raises(NotFittedError):
            call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, c: m.policy(0, c.features), "candidates must be prefkin.Candidates"),
        (lambda m, c: m.policy(0, c, pessimism="1"), "pessimism must be a number"),
        (lambda m, c: m.policy(0, c, pessimism=1e308), "pessimism must be a number from 0 to"),
        (lambda m, c: m.policy(0, c, reference="abc"), "reference must be 3 numbers"),
        (lambda m, c: m.session(0, c, random_state=-1), "random_state must be"),
        (lambda m, c: OffC2PL(0.0, n_jobs="two").fit([[1.0]], [1]), "n_jobs must be"),
        (lambda m, c: OffC2PL(0.0, coverage=0.3).fit([[1.0]], [1]), "coverage must be"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(rng, call, message):
    Z, y, users = draw_answers(rng)
    with pytest.raises(InvalidParameter, match=message):
        call(OffC2PL(0.0).fit(Z, y, users=users), Candidates(rng.standard_normal((2, 3, 3))))


@pytest.fixture
def session(rng):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(np.inf).fit(Z, y, users=users)
    talk = model.session(0, Candidates(rng.standard_normal((4, 3, 3))))
    talk.tell(talk.ask(), True)
    return model, talk


@pytest.mark.parametrize(
    "change",
    [
        {"pending": [99, 0, 1]},
        {"theta": [1.0]},
        {"theta": [np.nan] * 3},
        {"trail": "x"},
        {"log": [[0, 0, 1, 7]]},
        {"log": [[0, 0]]},
        {"log": None},
        {"rng": {}},
    ],
)
def test_a_tampered_session_is_refused(session, change):
    model, talk = session
    with pytest.raises(SessionError):
        model.resume_session({**talk.state(), **change}, talk.candidates)
    for key in ("log", "pending", "theta", "trail", "rng", "fingerprint"):
        with pytest.raises(SessionError):
            model.resume_session({k: v for k, v in talk.state().items() if k != key}, talk.candidates)


def test_a_session_belongs_to_its_parameters(session):
    model, talk = session
    rows = model._users
    other = OffC2PL(np.inf, ridge=50.0).fit(rows.rows.Z, rows.rows.y, users=np.repeat(np.arange(6), 25))
    with pytest.raises(SessionError, match="other candidates, data or parameters"):
        other.resume_session(talk.state(), talk.candidates)


def test_an_interrupted_answer_leaves_the_session_as_it_was(session, monkeypatch):
    _, talk = session
    question = talk.ask()
    before = talk.state()
    monkeypatch.setattr(
        "prefkin.decide.refit.RunningEstimate._descend", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        talk.tell(question, True)
    monkeypatch.undo()
    assert talk.state() == before
    talk.tell(question, True)
    assert talk.n_answers == 2


def test_answering_something_else_keeps_the_question_asked(session):
    _, talk = session
    asked = talk.ask()
    other = next(q for q in talk.plan(5) if q != asked)
    talk.tell(other, False)
    assert talk.ask() == asked


@pytest.mark.parametrize("question", [(0, 0, 1), None, Question(0, 0, 1.5)])
def test_what_is_no_question_is_refused(session, question):
    with pytest.raises(SessionError, match="is not a question"):
        session[1].tell(question, True)


def test_numpy_integers_and_other_generators_can_be_saved(session, rng):
    model, talk = session
    talk.skip(Question(np.int64(3), np.int64(0), np.int64(1)))
    other = model.session(0, talk.candidates, rule="random", random_state=np.random.Generator(np.random.MT19937(1)))
    other.tell(other.ask(), True)
    for each in (talk, other):
        assert model.resume_session(each.state(), talk.candidates).state() == each.state()


def test_folding_in_understands_the_labels_of_the_answers(rng):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(np.inf).fit(Z, np.where(y == 1, "yes", "no"), users=users, positive="yes")
    plain = OffC2PL(np.inf).fit(Z, y, users=users)
    named = model.fold_in(Z[:9], np.where(y[:9] == 1, "yes", "no"))
    assert np.array_equal(named.theta, plain.fold_in(Z[:9], y[:9]).theta)


def test_numpy_parameters_can_be_saved(rng, tmp_path):
    Z, y, users = draw_answers(rng)
    OffC2PL(np.int64(100), alpha=np.float32(1)).fit(Z, y, users=users).save(tmp_path / "kin")


def test_certain_but_wrong_predictions_have_a_finite_loss():
    Z = np.array([[1e4], [-1e4]])
    with pytest.warns(match="reach norm"):
        model = OffC2PL(0.0, ridge=1e-6).fit(Z, [1, 0])
    assert np.isfinite(held_out(model, Comparisons.from_arrays(10 * Z, [0, 1], [0, 0])).log_loss)


def test_threads_that_overlap_leave_blas_as_it_was():
    before = [info["num_threads"] for info in threadpool_info()]
    entered, leave = threading.Event(), threading.Event()

    def stay():
        with single_threaded():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=stay)
    thread.start()
    entered.wait(10)
    with single_threaded():
        pass
    assert all(info["num_threads"] == 1 for info in threadpool_info() if info["user_api"] == "blas")
    leave.set()
    thread.join()
    assert [info["num_threads"] for info in threadpool_info()] == before


def test_held_out_thresholds_do_not_depend_on_the_order_of_repeated_rows():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        Z = rng.integers(-1, 2, (120, 3)) / 2.0
        Z[(Z == 0).all(axis=1)] = 0.5
        y, users = rng.integers(0, 2, 120), np.repeat(np.arange(6), 20)
        order = rng.permutation(120)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = OffC2PL().fit(Z, y, users=users)
            other = OffC2PL().fit(Z[order], y[order], users=users[order])
        assert one.gamma_[0] == pytest.approx(other.gamma_[0], rel=1e-9)


def test_enumerating_policies_does_not_allocate_before_it_counts():
    features = [np.zeros((2, 2)) for _ in range(14)] + [np.zeros((20_000, 2))]
    tracemalloc.start()
    best_policy(Candidates(features), np.ones(2), np.eye(2), beta=1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
