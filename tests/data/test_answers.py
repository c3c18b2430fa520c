"""Answers as people write them: understood, or refused with what to do; never taken for their opposite."""

import warnings

import numpy as np
import pytest
from sklearn.metrics import get_scorer

import prefkin
from prefkin import Candidates, Comparisons, OffC2PL, PrefKin
from prefkin.data.answers import NUMBERED, SIDES, answer_array
from prefkin.errors import AnswerWarning, InvalidComparisons
from prefkin.evaluate.metrics import held_out
from prefkin.models.baselines import pooled
from tests.conftest import draw_answers


def worded(y, first, second):
    return np.where(np.asarray(y) == 1, first, second)


@pytest.mark.parametrize(
    ("first", "second"), [*SIDES, *NUMBERED, ("Left", "Right"), ("L", "R"), (1, 0), (1, -1), (True, False)]
)
@pytest.mark.parametrize("make", [lambda: OffC2PL(np.inf), pooled])
def test_words_mean_what_they_say(rng, make, first, second):
    Z, y, users = draw_answers(rng)
    plain, named = make().fit(Z, y, users=users), make().fit(Z, worded(y, first, second), users=users)
    assert np.array_equal(plain.theta_, named.theta_)
    assert named.positive_ == first
    assert np.array_equal(named.predict(Z, users=users), worded(plain.predict(Z, users=users), first, second))
    assert named.score(Z, worded(y, first, second), users=users) == plain.score(Z, y, users=users)
    assert np.array_equal(plain.fold_in(Z[:9], y[:9]).theta, named.fold_in(Z[:9], worded(y[:9], first, second)).theta)


def test_prefkin_recommends_what_people_chose_in_words(rng):
    Z, y, users = draw_answers(rng)
    plain, named = PrefKin().fit(Z, y, users=users), PrefKin().fit(Z, worded(y, "left", "right"), users=users)
    stories = Candidates(rng.standard_normal((4, 3, 3)))
    assert plain.policy(0, stories).actions.tolist() == named.policy(0, stories).actions.tolist()
    data = Comparisons.from_arrays(Z, y, users)
    assert held_out(named, data) == held_out(plain, data)


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss", "roc_auc", "neg_brier_score"])
def test_scorers_of_scikit_learn_read_the_columns_right(rng, scoring):
    Z, y, _ = draw_answers(rng, n_users=1, sizes=[80])
    plain, named = OffC2PL(np.inf).fit(Z, y), OffC2PL(np.inf).fit(Z, worded(y, "left", "right"))
    score = get_scorer(scoring)
    if scoring == "neg_brier_score":  # scikit-learn's takes no words without pos_label
        return
    assert score(named, Z, worded(y, "left", "right")) == pytest.approx(score(plain, Z, y))


def test_two_other_labels_are_scikit_learns_and_it_says_which_one_it_took(rng):
    Z, y, users = draw_answers(rng)
    with pytest.warns(AnswerWarning, match="'yes' is taken to mean that the first was preferred"):
        model = OffC2PL(np.inf).fit(Z, worded(y, "yes", "no"), users=users)
    assert model.positive_ == "yes"
    with pytest.warns(AnswerWarning, match="3 is taken to mean"):
        OffC2PL(np.inf).fit(Z, worded(y, 3, 1), users=users)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AnswerWarning)
        told = OffC2PL(np.inf).fit(Z, worded(y, "nay", "yes"), users=users, positive="nay")
    assert np.array_equal(told.theta_, model.theta_)
    assert np.array_equal(told.predict(Z, users=users), worded(model.predict(Z, users=users) == "yes", "nay", "yes"))


@pytest.mark.parametrize(
    ("y", "positive", "message"),
    [
        (["left", "down"], None, r"do not go together; .* positive='down'"),
        (["a", "rejected"], None, "do not go together"),
        (["up", "down"], "left", "positive='left' is not among the answers, 'down' and 'up'"),
        (["left", "right", "tie"], None, "3 different answers"),
    ],
)
def test_words_that_do_not_go_together_are_refused(y, positive, message):
    with pytest.raises(InvalidComparisons, match=message):
        OffC2PL(0.0).fit(np.eye(len(y)), y, positive=positive)


def test_the_remedy_that_is_offered_works():
    assert OffC2PL(0.0).fit(np.eye(2), ["left", "down"], positive="down").theta_[0, 1] > 0
    with pytest.raises(InvalidComparisons, match="give nothing else"):
        OffC2PL(0.0).fit(Comparisons.from_arrays(np.eye(2), [1, 0], ["a", "b"]), positive=1)


def test_one_word_alone_is_understood():
    model = OffC2PL(0.0).fit(np.eye(2), ["left", "left"])
    assert (model.theta_ > 0).all()
    assert model.classes_.tolist() == ["left", "right"]
    assert (OffC2PL(0.0).fit(np.eye(2), [2, 2]).theta_ < 0).all()


def test_answers_of_tables_and_arrays_are_read_by_their_words():
    assert answer_array(["first", " Second", "tie", "1", True, None]).tolist()[:5] == [1.0, 0.0, 0.5, 1.0, 1.0]
    assert answer_array(["L", "r", "tie"]).tolist() == [1.0, 0.0, 0.5]
    for first, second in NUMBERED:
        assert answer_array([first, second, first]).tolist() == [1.0, 0.0, 1.0]
        assert answer_array([second, second]).tolist() == [0.0, 0.0]
    for odd in ([0, 1, 2], ["left", 2]):
        with pytest.raises(InvalidComparisons, match="is 2"):
            Comparisons.from_arrays(np.eye(len(odd)), odd, ["ann"] * len(odd))
    with pytest.raises(InvalidComparisons, match="mixes words of different kinds"):
        answer_array(["left", "b"])
    with pytest.raises(InvalidComparisons, match="row 1 .* is '1_0'"):
        answer_array(["1", "1_0"])


@pytest.mark.parametrize(
    ("labels", "given", "message"),
    [
        (("yes", "no"), ["Yes", "no"], "answer 'Yes' in row 0 .* neither 'no' nor 'yes'"),
        ((1, 2), [0, 1], "answer 0 in row 0 .* neither 1 nor 2"),
        ((1, -1), [1, np.nan], "y is missing in row 1"),
        ((1, -1), [1, 0], "answer 0 in row 1"),
        (("left", "right"), [1, 0], "answer 1 in row 0"),
        ((1, 0), [1, 3], "y must be 0 or 1"),
    ],
)
@pytest.mark.parametrize("make", [lambda: OffC2PL(np.inf), pooled])
def test_a_newcomers_unknown_answers_are_refused(rng, make, labels, given, message):
    Z, y, users = draw_answers(rng, n_users=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AnswerWarning)
        model = make().fit(Z, worded(y, *labels), users=users)
    with pytest.raises(InvalidComparisons, match=message):
        model.fold_in(Z[:2], given)


@pytest.mark.parametrize("make", [lambda: OffC2PL(np.inf), PrefKin])
def test_which_answer_is_the_first_survives_on_disk(rng, make, tmp_path):
    Z, y, users = draw_answers(rng, n_users=3)
    model = make().fit(Z, worded(y, "left", "right"), users=users)
    model.save(tmp_path / "kin")
    again = prefkin.load(tmp_path / "kin")
    for one in (model, again):
        with pytest.raises(InvalidComparisons, match="answer 1 in row 0 .* neither 'left' nor 'right'"):
            one.fold_in(Z[:2], [1, 0])
    assert again.positive_ == "left"
    assert np.array_equal(again.predict_proba(Z, users=users), model.predict_proba(Z, users=users))
