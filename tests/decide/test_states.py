"""Session files: whose they are, whether they are whole, and who wrote last."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefkin import Candidates, OffC2PL, PrefKin
from prefkin.data.synthetic import demo_population
from prefkin.decide.states import sealed
from prefkin.errors import PrefkinError, SessionError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def demo():
    people, stories = demo_population(np.random.default_rng(0))
    data = people.data
    return data, stories, PrefKin(metric="isotropic").fit(data), OffC2PL(gamma=60.0).fit(data)


def begun(model, stories, user="Ada", n=3):
    session = model.session(user, stories)
    for _ in range(n):
        session.tell(session.ask(), True)
    session.ask()
    return session


def edited(state, **changes):
    """A state with changes that somebody made by hand, the checksum included."""
    content = {name: value for name, value in state.items() if name != "checksum"}
    return sealed({**content, **changes})


# -- whose it is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["Ada", None])
def test_a_session_is_refused_under_another_model(demo, user):
    data, stories, model, _ = demo
    opposite = PrefKin(metric="isotropic").fit(data.Z, 1 - data.y, users=data.users)
    with pytest.raises(SessionError, match="other candidates, data or parameters"):
        opposite.resume_session(begun(model, stories, user).state(), stories)


def test_a_session_is_refused_for_another_user(demo):
    _, stories, model, paper = demo
    for fitted in (model, paper):
        state = begun(fitted, stories).state()
        with pytest.raises(SessionError, match="checksum"):
            fitted.resume_session({**state, "user": "Ben"}, stories)
        with pytest.raises(SessionError, match="another user"):
            fitted.resume_session(edited(state, user="Ben", label="Ben"), stories)
        with pytest.raises(SessionError, match="another user"):
            fitted.session("Ben", stories).restore(state)
    zoe = begun(model, stories, None).state()
    with pytest.raises(SessionError, match="another user"):
        model.session(None, stories, label="Zoe").restore(zoe)


def test_a_session_is_refused_with_other_candidates(demo):
    _, stories, model, paper = demo
    features = [stories.of(x) for x in range(len(stories))]
    for fitted in (model, paper):
        state = begun(fitted, stories).state()
        for other in (
            Candidates([part[::-1] for part in features]),
            Candidates(features, weights=np.r_[1e6, np.ones(len(features) - 1)]),
            Candidates(features[:-1]),
        ):
            with pytest.raises(SessionError, match="other candidates"):
                fitted.resume_session(state, other)
        assert fitted.resume_session(state, Candidates(features)).n_answers == 3


def test_models_of_other_parameters_do_not_take_each_others_sessions(demo):
    data, stories, _, paper = demo
    with pytest.raises(SessionError, match="or parameters"):
        OffC2PL(gamma=60.0, ridge=3.0).fit(data).resume_session(begun(paper, stories).state(), stories)


# -- whether it is whole -----------------------------------------------------------------------------------------------


def first_flipped(log):
    return [[*log[0][:3], not log[0][3]], *log[1:]]


@pytest.mark.parametrize("model", [2, 3])
@pytest.mark.parametrize(
    "change",
    [
        lambda state: {"theta": [state.get("theta", [0.0])[0] + 5.0, *state.get("theta", [0.0])[1:]]},
        lambda state: {"trail": [100.0 + value for value in state.get("trail", [0.0])]},
        lambda state: {"log": first_flipped(state["log"])},
        lambda state: {"log": state["log"][:1]},
        lambda _: {"user": {}},
        lambda _: {"user": {"tuple": 3}},
        lambda state: {"rng": {**state["rng"], "state": {"state": 2**200, "inc": 1}}},
        lambda _: {"pending": None},
    ],
)
def test_edited_states_are_refused(demo, model, change, tmp_path):
    stories, fitted = demo[1], demo[model]
    state = begun(fitted, stories).state()
    bad = {**state, **change(state)}
    with pytest.raises(SessionError, match="checksum"):
        fitted.resume_session(bad, stories)
    (tmp_path / "s.json").write_text(json.dumps(bad))
    with pytest.raises(SessionError, match=r"s\.json.*checksum"):
        fitted.resume_session(tmp_path / "s.json", stories)


@pytest.mark.parametrize(
    "change",
    [
        {"rng": {"bit_generator": "PCG64", "state": {"state": 2**200, "inc": 1}, "has_uint32": 0, "uinteger": 0}},
        {"rng": 3},
        {"rng": None},
        {"log": ["undo"]},
        {"log": [[0, 0, 1, "yes"]]},
        {"log": [[10**30, 0, 1, True]]},
        {"log": [None]},
        {"pending": 7},
        {"pending": [0, 0, 0]},
        {"theta": [1.0]},
        {"metric": {"rows": 1e400, "theta": [], "wasted": 0}},
        {"metric": None},
        {"rule": ["coverage"]},
        {"rule": "best"},
        {"user": ["Ada"]},
        {"user": {"tuple": [{}]}},
        {"log": {}},
        {"prefkin_session": True},
        {"prefkin_session": 3},
        {"fingerprint": None},
    ],
)
def test_states_made_by_hand_are_refused_in_one_line(demo, change, tmp_path):
    """With a checksum that fits: nothing but what they say is wrong."""
    _, stories, model, paper = demo
    for fitted in (model, paper):
        bad = edited(begun(fitted, stories).state(), **change)
        with pytest.raises(PrefkinError) as refused:
            fitted.resume_session(bad, stories)
        assert "\n" not in str(refused.value)
        (tmp_path / "s.json").write_text(json.dumps(bad))
        with pytest.raises(PrefkinError, match=r"s\.json: "):
            fitted.resume_session(tmp_path / "s.json", stories)


@pytest.mark.parametrize("model", [2, 3])
def test_estimates_that_do_not_follow_from_the_answers_are_refused(demo, model):
    """Also with a checksum that fits."""
    stories, fitted = demo[1], demo[model]
    state = begun(fitted, stories).state()
    for change in ({"log": first_flipped(state["log"])}, {"theta": [5.0 + theta for theta in state["theta"]]}):
        with pytest.raises(SessionError, match="does not follow from the answers"):
            fitted.resume_session(edited(state, **change), stories)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"prefkin_session": 2}'])
def test_what_is_no_session_file_is_refused(demo, content, tmp_path):
    _, stories, model, _ = demo
    path = tmp_path / "s.json"
    path.write_bytes(content)
    with pytest.raises(SessionError, match=r"s\.json"):
        model.resume_session(path, stories)
    with pytest.raises(SessionError, match="save under another name"):
        begun(model, stories).save(path)
    assert path.read_bytes() == content


def test_folders_and_places_that_cannot_be_written_are_said_in_one_line(demo, tmp_path):
    _, stories, model, _ = demo
    with pytest.raises(SessionError, match="cannot be read"):
        model.resume_session(tmp_path, stories)
    (tmp_path / "file").touch()
    with pytest.raises(SessionError, match="cannot be saved"):
        begun(model, stories).save(tmp_path / "file" / "s.json")


@st.composite
def damages(draw):
    """What happens to a file: bytes flipped, cut, put in, left out, or repeated."""
    kind, share = draw(st.sampled_from(["flip", "cut", "insert", "leave out", "repeat"])), draw(st.floats(0, 1))
    length, byte = draw(st.integers(1, 40)), draw(st.integers(1, 255))

    def damage(content):
        at = min(int(share * len(content)), len(content) - 1)
        if kind == "flip":
            return content[:at] + bytes([content[at] ^ byte]) + content[at + 1 :]
        if kind == "cut":
            return content[:at]
        if kind == "insert":
            return content[:at] + bytes([byte]) * length + content[at:]
        if kind == "leave out":
            return content[:at] + content[at + length :]
        return content[: at + length] + content[at:]

    return damage


@pytest.fixture(scope="module")
def written(demo):
    """Models, and the file that each wrote of a session."""
    _, stories, model, paper = demo
    sessions = {"known": (model, "Ada"), "newcomer": (model, None), "paper": (paper, "Ada")}
    return {name: (each[0], json.dumps(begun(each[0], stories, each[1]).state())) for name, each in sessions.items()}


@given(damage=damages(), which=st.sampled_from(["known", "newcomer", "paper"]))
def test_damaged_files_are_refused_or_mean_the_same(demo, written, tmp_path_factory, damage, which):
    fitted, good = written[which]
    path = tmp_path_factory.getbasetemp() / f"damaged {which}.json"
    path.write_bytes(damage(good.encode()))
    with contextlib.suppress(PrefkinError):
        assert fitted.resume_session(path, demo[1]).state() == json.loads(good)


NUMBERS = st.integers() | st.floats() | st.sampled_from([2**64, -(2**63), 10**400, 1e308])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5) | st.sampled_from(["undo", "Ada", "coverage"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["tuple", "state", "x"]), inner),
    max_leaves=6,
)


@st.composite
def edits(draw):
    """What somebody does who knows how to make the checksum fit: another value anywhere in the state."""
    value, way = draw(VALUES), draw(st.lists(st.integers(0, 30), min_size=1, max_size=4))

    def edit(state):
        here = state
        for turn, step in enumerate(way):
            keys = sorted(here) if isinstance(here, dict) else range(len(here))
            key = keys[step % len(keys)]
            if turn == len(way) - 1 or not isinstance(here[key], dict | list) or not here[key]:
                here[key] = value
                break
            here = here[key]
        return edited(state)

    return edit


@given(edit=edits(), which=st.sampled_from(["known", "newcomer", "paper"]))
def test_whatever_a_state_says_is_refused_in_one_line_or_can_go_on(demo, written, edit, which):
    fitted, good = written[which]
    try:
        session = fitted.resume_session(edit(json.loads(good)), demo[1])
    except PrefkinError as error:
        refusal = str(error)
    else:
        refusal = ""
        session.tell(session.ask(), True)
    assert "\n" not in refusal


# -- who wrote last ----------------------------------------------------------------------------------------------------


def test_the_second_of_two_writers_is_told_and_nothing_is_lost(demo, tmp_path):
    _, stories, model, _ = demo
    path = tmp_path / "s.json"
    begun(model, stories).save(path)
    one, other = (model.resume_session(path, stories) for _ in range(2))
    one.tell(one.ask(), True)
    one.save(path)
    other.tell(other.ask(), False)
    with pytest.raises(SessionError, match="another program has gone on with it"):
        other.save(path)
    assert model.resume_session(path, stories).state() == one.state()
    one.undo()
    one.save(path)
    assert model.resume_session(path, stories).n_answers == 3


def test_a_file_of_another_session_is_not_replaced(demo, tmp_path):
    _, stories, model, _ = demo
    begun(model, stories, "Ada").save(tmp_path / "s.json")
    with pytest.raises(SessionError, match="holds another session"):
        begun(model, stories, "Ben").save(tmp_path / "s.json")


def test_writers_at_once_lose_no_answer_that_was_acknowledged(demo, tmp_path):
    _, stories, model, _ = demo
    path = tmp_path / "s.json"
    model.session(None, stories, repeat=True).save(path)
    acknowledged = []

    def write(name):
        done = 0
        while done < 8:
            session = model.resume_session(path, stories)
            session.tell(session.ask(), bool(name))
            try:
                session.save(path)
            except SessionError:
                continue
            done += 1
            acknowledged.append(name)

    writers = [threading.Thread(target=write, args=(name,)) for name in (0, 1)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    log = json.loads(path.read_bytes())["log"]
    assert len(log) == len(acknowledged) == 16
    assert sum(answer for *_, answer in log) == 8


def test_what_a_killed_program_left_is_swept_away(demo, tmp_path):
    _, stories, model, _ = demo
    session = begun(model, stories)
    session.save(tmp_path / "s.json")
    (tmp_path / ".s.json.0123abcd").write_bytes(b"{")
    (tmp_path / ".s.json.mine").write_bytes(b"{")
    session.save(tmp_path / "s.json")
    assert sorted(file.name for file in tmp_path.iterdir()) == [".s.json.mine", "s.json"]


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_nothing_acknowledged_is_lost_when_programs_are_killed():
    """A small round of `python -m tests.decide.kills`."""
    command = [sys.executable, "-m", "tests.decide.kills", "--rounds", "12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "none lost" in done.stdout
