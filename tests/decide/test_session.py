import json

import numpy as np
import pytest

from prefkin import ActiveSession, Candidates, OffC2PL, Question
from prefkin.decide.belief import Belief
from prefkin.errors import InvalidParameter, SessionError
from tests.conftest import draw_answers
from tests.oracles import literal


@pytest.fixture
def model(rng):
    Z, y, users = draw_answers(rng, dim=4)
    return OffC2PL(gamma=np.inf).fit(Z, y, users=users)


@pytest.fixture
def candidates(rng):
    return Candidates([rng.standard_normal((k, 4)) for k in (1, 3, 5, 2, 4)])


def converse(session, n, rng):
    for _ in range(n):
        session.tell(session.ask(), bool(rng.random() < 0.6))


def test_algorithm_2_is_the_one_printed(model, candidates, rng):
    session = model.session(3, candidates)
    Z, y = model._users.rows.Z, model._users.rows.y
    M, trail = literal.information(Z, 1.0, model.kappa), []
    asked = set()
    for n in range(6):
        question = session.ask()
        best = -np.inf
        for x, part in enumerate(candidates):
            closed = {(i, j) for (c, i, j) in asked if c == x}
            best = max(best, literal.widest_pair(part, np.linalg.inv(M), closed)[0])
        z = candidates.of(question.context)[question.first] - candidates.of(question.context)[question.second]
        assert z @ np.linalg.inv(M) @ z == pytest.approx(best, rel=1e-9)
        answer = bool(rng.random() < 0.5)
        session.tell(question, answer)
        asked.add((question.context, question.first, question.second))
        M = M + np.outer(z, z)
        Z, y = np.vstack([Z, z]), np.append(y, float(answer))
        trail.append(literal.optimum(Z, y, 1.0))
        assert np.abs(session.theta - trail[-1]).max() < 1e-6
        assert np.allclose(session.information, M, rtol=1e-9)
        weight = 4 * np.linalg.eigvalsh(M)[0]
        expected = (weight * trail[-1] + sum(trail)) / (weight + n + 1)
        assert np.abs(session.preference - expected).max() < 1e-6
        assert session.best_actions().tolist() == [int(np.argmax(part @ session.preference)) for part in candidates]


def test_zero_questions_are_algorithm_1(model, candidates):
    session = model.session(3, candidates)
    assert np.array_equal(session.theta, model.theta_[3])
    assert np.array_equal(session.preference, model.theta_[3])
    assert np.allclose(session.information, model.information(3))


@pytest.mark.parametrize("rule", ["coverage", "random"])
@pytest.mark.parametrize("repeat", [False, True])
def test_a_plan_is_what_asking_one_at_a_time_gives(model, candidates, rng, rule, repeat):
    session = model.session(3, candidates, rule=rule, repeat=repeat, random_state=5)
    converse(session, 2, rng)
    first = session.ask()
    session.skip(session.ask())
    assert first not in session.plan(4)
    planned = session.plan(8)
    one_by_one = []
    for _ in range(8):
        one_by_one.append(session.ask())
        session.tell(one_by_one[-1], bool(rng.random() < 0.5))
    assert planned == one_by_one
    assert repeat or len(set(planned)) == 8


@pytest.mark.parametrize("n", [2.5, "2", -1])
def test_a_plan_is_of_a_whole_number_of_questions(model, candidates, n):
    with pytest.raises(InvalidParameter, match="n must be a whole number"):
        model.session(3, candidates, rule="coverage").plan(n)


def test_a_rule_that_reads_answers_cannot_be_planned(model, candidates):
    with pytest.raises(SessionError, match="reads the answers"):
        model.session(3, candidates, rule="fisher").plan(3)


def test_the_fisher_rule_maximises_weighted_information(model, candidates, rng):
    session = model.session(3, candidates, rule="fisher")
    converse(session, 2, rng)
    H = np.eye(4)
    for z in session.listener.rows.Z:
        p = literal.sigmoid(float(z @ session.theta))
        H += p * (1 - p) * np.outer(z, z)
    question = session.ask()
    closed = {(q.context, q.first, q.second) for q, _ in session.log}
    best = max(
        literal.widest_pair(part, np.linalg.inv(H), {(i, j) for c, i, j in closed if c == x}, session.theta)[0]
        for x, part in enumerate(candidates)
    )
    assert question.score == pytest.approx(best, rel=1e-6)


def test_asking_again_before_the_answer_gives_the_same_question(model, candidates):
    session = model.session(3, candidates, rule="random", random_state=0)
    assert session.ask() == session.ask()


def test_skipped_pairs_teach_nothing_and_are_not_asked_again(model, candidates):
    session = model.session(3, candidates)
    before = session.information
    skipped = session.ask()
    session.skip(skipped)
    assert session.ask() != skipped
    assert np.array_equal(session.information, before)
    assert session.n_answers == 0


def test_all_pairs_can_be_asked_once_and_then_it_says_so(model):
    session = model.session(3, Candidates([np.eye(4)[:2], np.eye(4)[:1]]))
    assert len(session.plan(10)) == 1
    session.tell(session.ask(), True)
    with pytest.raises(SessionError, match="all pairs of the 2 contexts have been asked"):
        session.ask()
    again = model.session(3, Candidates([np.eye(4)[:2]]), repeat=True)
    converse(again, 3, np.random.default_rng(0))
    assert again.n_answers == 3


@pytest.mark.parametrize(
    "question",
    [Question(9, 0, 1), Question(-1, 0, 1), Question(1, 0, 3), Question(1, 2, 2), Question(1, -1, 2)],
)
def test_answers_to_questions_that_do_not_exist_are_refused(model, candidates, question):
    with pytest.raises(SessionError, match="is not about two different actions"):
        model.session(3, candidates).tell(question, True)


def test_an_answer_must_be_one_and_comes_once(model, candidates):
    session = model.session(3, candidates)
    question = session.ask()
    with pytest.raises(SessionError, match="True or False"):
        session.tell(question, 0.5)
    session.tell(question, False)
    with pytest.raises(SessionError, match="answered or skipped already"):
        session.tell(question, True)
    with pytest.raises(SessionError, match="answered or skipped already"):
        session.tell(Question(question.context, question.second, question.first), True)
    assert session.n_answers == 1


def test_swapping_sides_and_answer_is_the_same_answer(model, candidates):
    one, other = model.session(3, candidates), model.session(3, candidates)
    question = one.ask()
    one.tell(question, True)
    other.tell(Question(question.context, question.second, question.first), False)
    assert np.allclose(one.theta, other.theta, atol=1e-10)


@pytest.mark.parametrize("rule", ["coverage", "random", "fisher"])
def test_a_session_goes_on_after_every_answer_as_if_it_had_not_stopped(model, candidates, rng, tmp_path, rule):
    session = model.session(3, candidates, rule=rule, random_state=1)
    answers = rng.random(7) < 0.5
    for n, answer in enumerate(answers):
        path = tmp_path / f"{n}.json"
        session.ask()
        session.save(path)
        session = model.resume_session(path, candidates)  # the only one that goes on
        if n == 2:
            session.skip(session.ask())
        session.tell(session.ask(), bool(answer))
    straight = model.session(3, candidates, rule=rule, random_state=1)
    for n, answer in enumerate(answers):
        straight.ask()
        if n == 2:
            straight.skip(straight.ask())
        straight.tell(straight.ask(), bool(answer))
    assert [(q, a) for q, a in session.log] == [(q, a) for q, a in straight.log]
    assert np.array_equal(session.preference, straight.preference)
    assert json.loads(json.dumps(session.state())) == session.state()


def test_a_session_is_not_restored_onto_something_else(model, candidates, tmp_path):
    session = model.session(3, candidates)
    session.tell(session.ask(), True)
    session.save(tmp_path / "s.json")
    with pytest.raises(SessionError, match="or other candidates, data or parameters"):
        model.resume_session(tmp_path / "s.json", Candidates([np.eye(4)]))
    with pytest.raises(SessionError, match="no such session file"):
        model.resume_session(tmp_path / "t.json", candidates)
    (tmp_path / "u.json").write_text("{")
    with pytest.raises(SessionError, match="damaged"):
        model.resume_session(tmp_path / "u.json", candidates)
    with pytest.raises(SessionError, match="not a session state of version"):
        model.resume_session({**session.state(), "prefkin_session": 0}, candidates)


def test_unknown_rules_and_foreign_candidates_are_refused(model, candidates):
    with pytest.raises(InvalidParameter, match="rule must be one of coverage, fisher, posterior, information, random"):
        model.session(3, candidates, rule="best")
    with pytest.raises(SessionError, match="the candidates have 1 features"):
        model.session(3, Candidates([[[1.0], [2.0]]]))


# -- states saved by prefkin before listeners, of rows (ann and bo, pooled) and of a posterior ------------------------

RNG = {
    "bit_generator": "PCG64",
    "state": {
        "state": 207833532711051698738587646355624148094,
        "inc": 194290289479364712180083596243593368443,
    },
    "has_uint32": 0,
    "uinteger": 0,
}
OLD_ROWS = {
    "prefkin_session": 1,
    "user": "ann",
    "rule": "coverage",
    "repeat": False,
    "log": [[2, 0, 1, True], [0, 1, 2, None], [1, 0, 1, False]],
    "pending": [0, 0, 1],
    "theta": [-0.0714512507831553, 0.8194111421683493],
    "trail": [0.16917210219811446, 1.69541559273355],
    "rng": RNG,
    "fingerprint": 1889342678,
}
OLD_POSTERIOR = {
    **OLD_ROWS,
    "rule": "posterior",
    "log": [[2, 0, 1, True], [0, 1, 2, None], [0, 0, 2, False]],
    "theta": [0.394916428522341, 0.5416987418614695],
    "trail": [0.894916428522341, 0.8129971988617485],
    "fingerprint": 539513031,
}
SHOWN = [[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [-0.5, 0.25]], [[1.0, 1.0], [0.0, -1.0]]]


def ann_and_bo(dtype=np.float64):
    Z = np.array([[1.0, 0.0], [0.5, 0.25], [1.0, -0.5], [-0.25, 1.0]], dtype=dtype)
    return OffC2PL(gamma=np.inf).fit(Z, [1, 1, 0, 1], users=["ann", "ann", "bo", "bo"])


def test_sessions_of_the_first_format_go_on():
    session = ann_and_bo().resume_session(OLD_ROWS, Candidates(SHOWN))
    assert np.allclose(session.theta, OLD_ROWS["theta"], atol=1e-6)
    assert session.n_answers == 2
    assert session.ask() == Question(0, 0, 1)
    state = session.state()
    assert [state[name] for name in ("log", "pending", "rng")] == [OLD_ROWS[name] for name in ("log", "pending", "rng")]
    session.tell(session.ask(), True)
    assert np.allclose(session.theta, [-0.29341849575361056, 0.8461725013599938], atol=1e-6)
    assert np.allclose(session.preference, [-0.2677786242614988, 0.8462766397017257], atol=1e-6)


def test_posterior_sessions_of_the_first_format_go_on():
    prior = Belief.from_information(np.array([0.5, -0.25]), np.array([[2.0, 0.5], [0.5, 1.0]]))
    session = ActiveSession.from_belief(prior, Candidates(SHOWN), user="ann")
    session.restore(OLD_POSTERIOR)
    assert session.ask() == Question(0, 0, 1)
    session.tell(session.ask(), True)
    assert np.allclose(session.theta, [0.10286489122110298, 0.6696030129597516], atol=1e-6)


def test_sessions_about_float32_rows_go_on():
    model, shown = ann_and_bo(np.float32), Candidates(SHOWN)
    assert model.resume_session(OLD_ROWS, shown).n_answers == 2
    session = model.session("ann", shown)
    session.tell(session.ask(), True)
    assert model.resume_session(session.state(), shown).state() == session.state()


@pytest.mark.parametrize("damage", [{"theta": [1.0]}, {"trail": ["x", 2.0]}, {"theta": [5.0, 0.8]}, {"log": [[0]]}])
def test_damaged_states_of_the_first_format_are_refused(damage):
    with pytest.raises(SessionError, match="damaged"):
        ann_and_bo().resume_session({**OLD_ROWS, **damage}, Candidates(SHOWN))


@pytest.mark.parametrize("rule", ["coverage", "fisher", "random", "information"])
def test_a_copy_goes_its_own_way(model, candidates, rule):
    session = model.session(3, candidates, rule=rule, random_state=1)
    session.tell(session.ask(), True)
    pending, theta = session.ask(), session.theta
    ahead, behind = session.copy(), session.copy()
    for answer in (False, True, False):
        ahead.tell(ahead.ask(), answer)
    ahead.skip(ahead.ask())
    assert session.ask() == pending
    assert np.array_equal(session.theta, theta)
    assert (session.n_answers, ahead.n_answers, len(ahead.log)) == (1, 4, 5)
    for answer in (False, True, False):
        behind.tell(behind.ask(), answer)
        session.tell(session.ask(), answer)
    assert session.ask() == behind.ask()
    assert session.state() == behind.state()


def test_repeats_are_offered_only_where_they_would_help(model):
    nothing = Candidates([np.eye(4)[:1]])
    for repeat in (False, True):
        with pytest.raises(SessionError, match="two different actions; give more candidates$"):
            model.session(3, nothing, repeat=repeat).ask()
