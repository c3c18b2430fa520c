"""Groups and prior are learnt again in another process, and a failure costs nothing."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from prefkin.apps.annotate import learning
from prefkin.apps.annotate.engine import Engine
from prefkin.apps.annotate.knowledge import Fitted, Knowledge
from prefkin.apps.annotate.learning import Learner
from prefkin.data.synthetic import demo_population
from prefkin.errors import InvalidParameter
from tests.apps.annotate.test_engine import wait_for


@pytest.fixture
def answered(store, items):
    """Three people who have answered a little."""
    engine = Engine(store, items, Knowledge(None), rng=random.Random(0))
    for name in ("Ada", "Ben", "Cleo"):
        person = store.join(name)
        state = engine.question(person)
        for turn in range(8):
            state = engine.answer(person, state.question.id, ("left", "right")[turn % 2])
    yield engine
    engine.stop()


@pytest.mark.long
def test_the_model_is_learnt_in_another_process_and_replaced(answered):
    learner = Learner(answered, Fitted({}), every=20)
    wait_for(lambda: learner.lesson is not None, seconds=120)
    assert learner.lesson.answers == 24
    assert learner.lesson.picture.startswith(b"\x89PNG")
    assert set(answered.knowledge.labels) == {"Ada", "Ben", "Cleo"}
    ada = answered.store.people()[0]
    assert answered.question(ada).answered == 8
    assert answered.conversation(ada).session.n_answers in (0, 8)  # all are in the model, or it is still the old one
    learner.stop()


def test_a_failure_costs_nothing_and_is_said(answered, monkeypatch, caplog):
    monkeypatch.setattr(learning, "__name__", "prefkin.no_such_module")
    before = answered.knowledge
    learner = Learner(answered, Fitted({}), every=20)
    wait_for(lambda: learner.failed != "", seconds=60)
    assert "No module named prefkin.no_such_module" in learner.failed
    assert answered.knowledge is before
    assert "people go on as before" in caplog.text
    ada = answered.store.people()[0]
    state = answered.question(ada)
    assert answered.answer(ada, state.question.id, "left").answered == 9
    learner.stop()


SERVER = """
import subprocess, sys, time
from prefkin.apps.annotate import learning
with learning._held_open() as pipe:
    print(subprocess.Popen([sys.executable, "-m", learning.__name__, sys.argv[1]], stdin=pipe).pid, flush=True)
    time.sleep(600)
"""


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
@pytest.mark.long
def test_what_is_being_learnt_ends_with_a_server_that_is_killed(tmp_path):
    folder = tmp_path / "lesson"
    folder.mkdir()
    data = demo_population(np.random.default_rng(0))[0].data
    np.savez(folder / "votes.npz", Z=data.Z, y=data.y, users=data.users.astype(str))
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(folder)], stdout=subprocess.PIPE)
    learner = int(server.stdout.readline())
    assert is_running(learner)
    server.send_signal(signal.SIGKILL)
    server.wait()
    wait_for(lambda: not is_running(learner), seconds=60)
    assert not folder.exists()
    server.stdout.close()


def test_people_in_shards_stay_on_the_disk(answered):
    def rows(user):
        if user is None:
            raise InvalidParameter("everybody is where they were")
        return Fitted({}).with_answers(answered.items, answered.store.histories())

    base = Fitted({"Ada": "Ada"}, rows).alone()
    histories = answered.store.histories()
    ada = next(person for person in histories if person.name == "Ada")
    assert not any(base.unheard("Ada", answered.items, histories[ada].answers))
    with pytest.raises(InvalidParameter, match="give them to prefkin update"):
        base.with_answers(answered.items, histories)
