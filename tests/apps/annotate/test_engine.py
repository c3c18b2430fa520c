"""The conversation with one person, as the server holds it."""

import random
import threading
import time

import numpy as np
import pytest
from scipy.special import expit

from prefkin import Candidates, PrefKin
from prefkin.apps.annotate.conversation import Conversation
from prefkin.apps.annotate.engine import FEWEST, Engine
from prefkin.apps.annotate.items import Items
from prefkin.apps.annotate.knowledge import Fitted, Knowledge
from prefkin.apps.annotate.outlook import Outlook
from prefkin.apps.annotate.store import Person, Store
from prefkin.errors import SessionError
from tests.apps.annotate.conftest import make_items


@pytest.fixture
def engine(store, items):
    engine = Engine(store, items, Knowledge(None), rng=random.Random(0))
    yield engine
    engine.stop()


@pytest.fixture
def zoe(store):
    return store.join("Zoe")


def wait_for(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.005)


def undisturbed(engine):
    """Wait until nothing is done in the background: this comes after all that is waiting or added by it."""
    done = threading.Event()
    engine.background.add(1000, done.set)
    assert done.wait(60)


def test_a_question_stays_until_it_is_answered(engine, zoe):
    first = engine.question(zoe)
    assert engine.question(zoe).question == first.question
    second = engine.answer(zoe, first.question.id, "left")
    assert second.answered == 1
    assert second.question.pair != first.question.pair
    assert engine.question(zoe).question == second.question


def test_the_same_answer_again_changes_nothing(engine, store, zoe):
    first = engine.question(zoe).question
    second = engine.answer(zoe, first.id, "left")
    assert engine.answer(zoe, first.id, "right") == second
    assert engine.answer(zoe, first.id, "left") == second
    [answer] = store.history(zoe.id).closed
    assert (answer.choice, answer.question) == ("left", first)
    with pytest.raises(SessionError, match="never asked here"):
        engine.answer(zoe, "forged", "left")


def test_many_tabs_at_once_count_once(engine, store, zoe):
    for _ in range(5):
        question = engine.question(zoe).question.id
        tabs = [threading.Thread(target=engine.answer, args=(zoe, question, side)) for side in ("left", "right") * 4]
        for tab in tabs:
            tab.start()
        for tab in tabs:
            tab.join()
    assert store.history(zoe.id).answered == 5


def test_undo_goes_back_as_often_as_wanted(engine, store, zoe):
    shown = [engine.question(zoe).question]
    for choice in ("left", "skip", "right"):
        shown.append(engine.answer(zoe, shown[-1].id, choice).question)
    for expected in (shown[2], shown[1], shown[0]):
        state = engine.undo(zoe)
        assert state.question[1:] == expected[1:]
        assert state.question.id != expected.id
    assert state.answered == 0
    assert not state.can_undo
    assert engine.undo(zoe).question == state.question
    history = store.history(zoe.id)
    assert (history.answered, history.skipped) == (0, 0)
    assert engine.answer(zoe, shown[0].id, "left").answered == 0  # its answer was taken back: it was closed
    assert engine.answer(zoe, state.question.id, "left").answered == 1


def test_an_undo_after_the_last_question_sent_twice_undoes_once(tmp_path):
    items = make_items(2, 2)
    store = Store.create(str(tmp_path / "two.db"), items)
    engine, zoe = Engine(store, items, Knowledge(None), rng=random.Random(0)), store.join("Zoe")
    state = engine.question(zoe)
    while state.question is not None:
        state = engine.answer(zoe, state.question.id, "left")
    assert state.answered == 2
    undone = engine.undo(zoe, "")
    assert engine.undo(zoe, "") == undone
    assert undone.answered == 1
    engine.stop()
    store.close()


def test_an_undo_sent_twice_undoes_once(engine, zoe):
    question = engine.question(zoe).question
    for _ in range(3):
        question = engine.answer(zoe, question.id, "left").question
    undone = engine.undo(zoe, question.id)
    assert engine.undo(zoe, question.id) == undone
    assert undone.answered == 2


def test_another_worker_goes_on_where_this_one_was(engine, store, items, zoe):
    question = engine.question(zoe).question
    question = engine.answer(zoe, question.id, "left").question
    other_store = Store.create(store.url, items)
    other = Engine(other_store, items, Knowledge(None), rng=random.Random(1))
    assert other.question(zoe).question == question
    later = other.answer(zoe, question.id, "right")
    assert engine.question(zoe).question == later.question
    assert engine.answer(zoe, question.id, "left").question == later.question  # it was answered there
    third = engine.answer(zoe, later.question.id, "skip")
    assert other.answer(zoe, third.question.id, "left").answered == 3
    assert engine.undo(zoe).answered == 2
    other.stop()
    other_store.close()


def test_both_answers_are_prepared_while_the_person_reads(engine, zoe):
    state = engine.question(zoe)
    live = engine._live[zoe.id]
    for choice in ("left", "right", "left"):
        question = state.question.id
        wait_for(lambda question=question: {(question, "left"), (question, "right")} <= set(live.prepared))
        ready = live.prepared[question, choice].pair
        state = engine.answer(zoe, question, choice)
        assert state.question.pair == (ready[0], min(ready[1:]), max(ready[1:]))


def test_prepared_or_not_the_questions_are_those_of_the_session(engine, items, zoe):
    state = engine.question(zoe)
    for choice in ("left", "skip", "right", "right"):
        state = engine.answer(zoe, state.question.id, choice)
    rebuilt = Conversation.begin(engine.knowledge, items, zoe, engine.store.history(zoe.id).closed)
    context, one, other = rebuilt.pair
    assert state.question.pair == (context, min(one, other), max(one, other))


def test_sides_are_drawn_at_random(engine, zoe):
    state, left = engine.question(zoe), 0
    for _ in range(40):
        left += state.question.left < state.question.right
        state = engine.answer(zoe, state.question.id, "skip")
    assert 8 < left < 32


def test_some_pairs_are_asked_again(store, items, zoe):
    engine = Engine(store, items, Knowledge(None), repeat=0.3, rng=random.Random(0))
    state = engine.question(zoe)
    for _ in range(40):
        state = engine.answer(zoe, state.question.id, "left")
    again, same = store.history(zoe.id).repeats()
    assert 4 <= again <= 20
    assert same < again  # always the left one, whatever it shows
    engine.stop()


def test_when_all_pairs_were_asked_it_says_so(tmp_path):
    items = make_items(n=2, actions=2)
    store = Store.create(str(tmp_path / "few.db"), items)
    engine, zoe = Engine(store, items, Knowledge(None)), store.join("Zoe")
    state = engine.question(zoe)
    for _ in range(2):
        state = engine.answer(zoe, state.question.id, "left")
    assert (state.question, state.reason, state.answered) == (None, "all asked", 2)
    assert engine.undo(zoe).question is not None
    engine.stop()
    store.close()


def test_a_pool_that_is_used_up_is_widened(tmp_path, monkeypatch):
    monkeypatch.setattr("prefkin.apps.annotate.conversation.SMALLEST_POOL", 3)
    monkeypatch.setattr("prefkin.apps.annotate.conversation.POOL_NUMBERS", 1)
    items = make_items(n=20, actions=2)
    store = Store.create(str(tmp_path / "few.db"), items)
    engine, zoe = Engine(store, items, Knowledge(None)), store.join("Zoe")
    state, asked = engine.question(zoe), set()
    while state.question is not None:
        asked.add(state.question.pair)
        state = engine.answer(zoe, state.question.id, "left")
    assert len(asked) == state.answered == 20
    engine.stop()
    store.close()


def test_paused_and_closed(engine, zoe):
    question = engine.question(zoe).question
    engine.set(paused=True)
    assert engine.question(zoe).reason == "paused"
    assert engine.answer(zoe, question.id, "left").answered == 1  # it was on the screen
    engine.set(paused=False)
    question = engine.question(zoe).question
    engine.set(closed=True)
    assert engine.answer(zoe, question.id, "left").answered == 1
    assert engine.undo(zoe).reason == "closed"
    assert engine.store.history(zoe.id).answered == 1


def test_the_model_is_replaced_and_nobody_notices(readers, tmp_path):
    items = make_items(dim=6)
    store = Store.create(str(tmp_path / "kin.db"), items)
    engine, ada = Engine(store, items, Knowledge(None)), store.join("Ada")
    question = engine.question(ada).question
    question = engine.answer(ada, question.id, "left").question
    old = engine._live[ada.id].conversation
    engine.learn(Knowledge(readers))
    assert engine.question(ada).question == question
    wait_for(lambda: engine._live[ada.id].conversation.knowledge is engine.knowledge)
    new = engine._live[ada.id].conversation
    assert new is not old
    assert new.session.n_answers == 1
    assert engine.answer(ada, question.id, "left").answered == 2
    engine.stop()
    store.close()


@pytest.mark.filterwarnings("ignore:every answer agrees with the fit")  # there are twelve of them
def test_answers_that_the_model_was_fitted_on_do_not_count_twice(store, items, zoe):
    engine = Engine(store, items, Knowledge(None), rng=random.Random(0))
    state = engine.question(zoe)
    for turn in range(12):
        state = engine.answer(zoe, state.question.id, ("left", "right")[turn % 2])
    histories = store.histories()
    data = Fitted({}).with_answers(items, histories)
    assert (len(data), set(data.users)) == (12, {"Zoe"})
    knowledge = Knowledge(PrefKin().fit(data))
    state = engine.answer(zoe, state.question.id, "left")
    talk = Conversation.begin(knowledge, items, zoe, store.history(zoe.id).closed)
    assert talk.session.n_answers == 1
    assert len(talk.seen) == 13
    assert len(knowledge.fitted.with_answers(items, store.histories())) == 13
    engine.stop()


def test_it_is_enough_when_the_stopping_rule_says_so_and_the_forecast_is_of_the_right_size(tmp_path):
    rng = np.random.default_rng(5)
    items = Items(Candidates(rng.standard_normal((200, 2, 3))), ("x",) * 400, ("",) * 400, ("",) * 200)
    store = Store.create(str(tmp_path / "enough.db"), items)
    engine, zoe, theta = Engine(store, items, Knowledge(None)), store.join("Zoe"), np.array([1.0, -1.0, 0.5])
    wait_for(lambda: len(engine.course.n) == 8)
    state, said = engine.question(zoe), {}
    live = engine._live[zoe.id]
    while not state.enough:
        said[state.answered] = state.about
        asked = state.question
        actions = items.candidates.of(asked.context)
        left = rng.random() < expit((actions[asked.left] - actions[asked.right]) @ theta)
        state = engine.answer(zoe, asked.id, "left" if left else "right")
        wait_for(lambda n=state.answered: n < 2 or (live.outlook is not None and live.outlook.closed > n - 5))
        state = engine.question(zoe)
        assert state.answered < 150, said
    total = state.answered
    assert total > 5
    assert all(about > 0 for about in said.values())
    # which side is left is drawn anew in every run: a single forecast may be off, not half of them
    assert 0.25 < np.median([(total - answered) / about for answered, about in said.items()]) < 4
    engine.stop()
    store.close()


def test_enough_stays_said_until_an_answer_is_taken_back_or_the_model_is_another(engine, zoe):
    state = engine.question(zoe)
    for _ in range(6):
        state = engine.answer(zoe, state.question.id, "left")
    live = engine._live[zoe.id]
    undisturbed(engine)
    live.outlook = Outlook(0.5 * engine.tolerance, 6)
    assert engine.question(zoe).enough
    live.outlook = Outlook(50.0 * engine.tolerance, 6)  # the next answer was a surprise
    state = engine.question(zoe)
    assert (state.enough, state.about, engine.about(zoe, live.history)) == (True, 0, 0)
    assert not engine.undo(zoe).enough
    undisturbed(engine)
    live.outlook = Outlook(0.5 * engine.tolerance, 5)
    assert engine.question(zoe).enough
    another = Knowledge(None)
    engine.learn(another)
    wait_for(lambda: live.conversation.knowledge is another)
    assert not engine.question(zoe).enough


def test_a_few_answers_are_never_enough_however_sure_the_model_is(engine, zoe):
    state = engine.question(zoe)
    for n in range(6):
        undisturbed(engine)
        engine._live[zoe.id].outlook = Outlook(0.0, n)
        state = engine.question(zoe)
        assert (state.enough, state.about) == (n == FEWEST, FEWEST - n)
        state = engine.answer(zoe, state.question.id, "left")


def test_doubt_is_a_share_of_that_about_somebody_unknown(readers):
    knowledge, items = Knowledge(readers), make_items(dim=6)
    known, unknown = Person(1, str(readers.users_[0])), Person(2, "Zoe")
    assert Conversation.begin(knowledge, items, unknown, []).doubt() == pytest.approx(1.0)
    assert Conversation.begin(knowledge, items, known, []).doubt() < 0.9  # by what the model was fitted on
