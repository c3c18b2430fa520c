"""The JSON that programs speak, and who may say what."""

import json

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from prefkin.apps.annotate.knowledge import Knowledge


def asked(question):
    """Without the forecast, which is made in the background and may come between two replies."""
    return {name: value for name, value in question.items() if name not in ("about", "enough")}


def test_a_conversation(world, items):
    question = world.call("GET", "/api/question", "Ada").json()
    assert set(question) == {"id", "context", "prompt", "left", "right", "answered", "about", "enough"}
    assert question["answered"] == 0
    assert question["about"] >= 1
    x = items.candidates.contexts.tolist().index(question["context"])
    assert question["left"]["text"] == items.text(x, int(question["left"]["action"]))
    assert asked(world.call("GET", "/api/question", "Ada").json()) == asked(question)
    taken = world.call("POST", "/api/answer", "Ada", json={"id": question["id"], "choice": "left"}).json()
    assert taken["answered"] == 1
    assert taken["next"]["id"] != question["id"]
    again = world.call("POST", "/api/answer", "Ada", json={"id": question["id"], "choice": "right"}).json()
    assert (again["answered"], asked(again["next"])) == (1, asked(taken["next"]))
    skipped = world.call("POST", "/api/answer", "Ada", json={"id": taken["next"]["id"], "choice": "skip"}).json()
    assert skipped["answered"] == 1
    undone = world.call("POST", "/api/undo", "Ada").json()
    assert undone["left"] == taken["next"]["left"]
    assert undone["answered"] == 1
    lines = world.call("GET", "/api/answers", "organiser").text.splitlines()
    [row] = [json.loads(line) for line in lines]
    assert row["user"] == "Ada"
    assert (row["chosen"], row["other"]) == (question["left"]["action"], question["right"]["action"])
    assert row["choice"] == "left"
    assert row["seconds"] >= 0
    assert row["at"].startswith("20")


def test_joining(world):
    joined = world.call("POST", "/api/join", "open", json={"name": "Zoe"})
    assert joined.status_code == 200
    token = joined.json()["token"]
    assert len(token) == 32
    question = world.client.get("/api/question", headers={"Authorization": f"Bearer {token}"}).json()
    assert question["answered"] == 0
    taken = world.call("POST", "/api/join", "open", json={"name": "Zoe"})
    assert (taken.status_code, taken.json()["detail"]) == (
        409,
        "somebody here is called 'Zoe' already; choose another name",
    )
    key = "k" * 32
    tokens = {
        world.call("POST", "/api/join", "open", json={"name": "Bo", "key": key}).json()["token"] for _ in range(3)
    }
    assert len(tokens) == 1
    assert [person.name for person in world.store.people()] == ["Ada", "Ben", "Zoe", "Bo"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/question", "Ada"),
        ("POST", "/api/answer", "Ada"),
        ("POST", "/api/undo", "Ada"),
        ("POST", "/api/join", "open"),
        ("GET", "/api/answers", "organiser"),
    ],
)
def test_a_token_is_for_one_purpose(world, method, path, allowed):
    body = {"json": {"name": "Zoe"}} if path.endswith("join") else {"json": {"id": "x", "choice": "left"}}
    body = body if method == "POST" and not path.endswith("undo") else {}
    for who in ("Ada", "open", "organiser"):
        status = world.call(method, path, who, **body).status_code
        assert (status != 403) == (who == allowed), who
    assert world.call(method, path, **body).status_code == 401
    forged = {"Authorization": "Bearer " + "0" * 32}
    assert world.call(method, path, headers=forged, **body).status_code == 401


def test_nobody_answers_for_another(world):
    question = world.call("GET", "/api/question", "Ada").json()
    world.call("GET", "/api/question", "Ben")
    refused = world.call("POST", "/api/answer", "Ben", json={"id": question["id"], "choice": "left"})
    assert (refused.status_code, refused.json()["detail"]) == (
        404,
        "this question was never asked here; ask for the next one",
    )
    assert all(history.answered == 0 for history in world.store.histories().values())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"id": "x"}',
        b'{"id": "x", "choice": "up"}',
        b'{"id": 7, "choice": "left"}',
        b'{"id": "x", "choice": "left", "as": "Ben"}',
        b'{"id": "\\u0000", "choice": "left"}',
        b'{"id": "' + b"x" * 65 + b'", "choice": "left"}',
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(world, body):
    world.call("GET", "/api/question", "Ada")
    refused = world.call("POST", "/api/answer", "Ada", content=body, headers={"Content-Type": "application/json"})
    assert refused.status_code in (404, 422)
    assert "\n" not in refused.json()["detail"]
    assert world.store.history(1).answered == 0


def test_the_description_names_every_call(world):
    described = world.client.get("/openapi.json").json()
    assert set(described["paths"]) == {"/api/join", "/api/question", "/api/answer", "/api/undo", "/api/answers"}


def test_a_store_that_cannot_be_reached_is_said_and_nothing_is_lost(world, monkeypatch):
    question = world.call("GET", "/api/question", "Ada").json()

    def down(*_):
        raise OperationalError("", {}, Exception("the database is gone"))

    with monkeypatch.context() as patch:
        patch.setattr("prefkin.apps.annotate.store._in_turn", down)
        refused = world.call("POST", "/api/answer", "Ada", json={"id": question["id"], "choice": "left"})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
    taken = world.call("POST", "/api/answer", "Ada", json={"id": question["id"], "choice": "left"})
    assert taken.json()["answered"] == 1


def test_a_disk_that_is_full_acknowledges_nothing(world, caplog):
    pages = 0
    sa.event.listen(world.store.engine, "connect", lambda c, _: c.execute(f"PRAGMA max_page_count={pages or 10**6}"))
    question, codes = world.call("GET", "/api/question", "Ada").json(), []
    with world.store.engine.connect() as connection:
        pages = connection.scalar(sa.text("PRAGMA page_count"))
    world.store.engine.dispose()
    for _ in range(60):
        taken = world.call("POST", "/api/answer", "Ada", json={"id": question["id"], "choice": "left"})
        codes.append(taken.status_code)
        question = taken.json()["next"] if taken.status_code == 200 else question
    assert set(codes) == {200, 503}
    assert "the store says: database or disk is full" in caplog.text
    pages = 0
    world.store.engine.dispose()
    taken = world.call("POST", "/api/answer", "Ada", json={"id": question["id"], "choice": "left"})
    assert taken.json()["answered"] == codes.count(200) + 1 == world.store.history(1).answered


def test_paused_and_closed_say_so(world):
    world.engine.set(paused=True)
    assert world.call("GET", "/api/question", "Ada").json() == {"done": True, "answered": 0, "reason": "paused"}
    world.engine.set(closed=True)
    assert world.call("POST", "/api/join", "open", json={"name": "Zoe"}).status_code == 403


def test_nobody_becomes_somebody_whom_the_model_knows_through_the_open_link(world, readers):
    world.project.learner.base = Knowledge(readers).fitted
    known = next(name for name in map(str, readers.users_) if name not in ("Ada", "Ben"))  # who have links of their own
    refused = world.call("POST", "/api/join", "open", json={"name": known})
    assert refused.status_code == 409
    assert "the model knows somebody" in refused.json()["detail"]
    assert world.project.join("organiser", known, vouched=True)
