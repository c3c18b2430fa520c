"""Whoever tries to get in, to forge, to flood: refused, nothing stored, one line in the log without the token."""

import json
import logging

import pytest

from prefkin.apps.annotate.guard import LARGEST_BODY, Rates
from tests.apps.annotate.test_pages import hidden, opened

EVIL = "https://evil.example"


def everything(store):
    return {
        person: (history.number, history.answered) for person, history in store.histories().items()
    }, store.settings()


@pytest.fixture
def target(world, caplog):
    """A world with a question open, in which nothing may change and whose log may hold no secret."""
    caplog.set_level(logging.INFO, "prefkin.annotate")
    world.question = world.call("GET", "/api/question", "Ada").json()
    before = everything(world.store)
    caplog.clear()
    yield world
    assert everything(world.store) == before
    secrets = [world.token(who) for who in ("Ada", "Ben", "open", "organiser")]
    for record in caplog.records:
        assert "\n" not in record.getMessage()
        assert not any(secret in record.getMessage() for secret in [*secrets, "0" * 32])


def refusals(caplog):
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith("refused")]


def test_guessed_and_foreign_tokens(target, caplog):
    body = {"id": target.question["id"], "choice": "left"}
    guessed = [b"0" * 32, b"", b"Ada", b"' OR 1=1 --", b"\xc3\xa4", b"x" * 5000]
    for token in guessed:
        response = target.client.post("/api/answer", json=body, headers={"Authorization": b"Bearer " + token})
        assert response.status_code == 401
    for who in ("open", "organiser"):
        assert target.call("POST", "/api/answer", who, json=body).status_code == 403
    assert target.call("POST", "/api/answer", "Ben", json=body).status_code in (200, 404)
    for link in ("p", "j", "o"):
        assert target.client.get(f"/{link}/{'0' * 32}").status_code == 401
    assert target.client.get(f"/o/{target.token('Ada')}").status_code == 401
    assert len(refusals(caplog)) == len(guessed) + 2 + 1 + 3 + 1


def test_forged_origins(target, caplog):
    opened(target, target.links.people["Ada"])
    form = {"id": target.question["id"], "choice": "left"}
    for origin in (EVIL, "null", "http://127.0.0.1:9999", "http://127.0.0.1.evil.example:8000"):
        assert target.client.post("/answer", data=form, headers={"Origin": origin}).status_code == 403
        bearer = {"Origin": origin}
        assert target.call("POST", "/api/answer", "Ada", json=form, headers=bearer).status_code == 403
    assert target.client.post("/answer", data=form).status_code == 403  # a cookie, and nothing says from where
    assert target.client.post("/answer", data=form, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert target.client.get("/answer", params=form).status_code == 405
    opened(target, target.links.organiser)
    assert target.client.post("/organiser", data={"do": "close"}, headers={"Origin": EVIL}).status_code == 403


def test_altered_requests(target):
    real = target.question["id"]
    for body in (
        {"id": real, "choice": "both"},
        {"id": real, "choice": "left", "user": "Ben"},
        {"id": real + "0", "choice": "left"},
        {"id": [real], "choice": "left"},
        {"id": None, "choice": "left"},
        {"id": {"$ne": ""}, "choice": "left"},
        {"id": "' OR '1'='1", "choice": "left"},
    ):
        assert target.call("POST", "/api/answer", "Ada", json=body).status_code in (404, 422)


def test_replayed_requests_change_nothing(world):
    question = world.call("GET", "/api/question", "Ada").json()
    sent = {"id": question["id"], "choice": "left"}
    world.call("POST", "/api/answer", "Ada", json=sent)
    before = everything(world.store)
    for choice in ("left", "right", "skip") * 3:
        world.call("POST", "/api/answer", "Ada", json=sent | {"choice": choice})
    assert everything(world.store) == before


def test_bodies_that_are_too_large(target, caplog):
    headers = {"Content-Type": "application/json"}
    large = b'{"id": "' + b"x" * LARGEST_BODY + b'"}'
    assert target.call("POST", "/api/answer", "Ada", content=large, headers=headers).status_code == 413

    def endless():
        for _ in range(100):
            yield b"x" * 1_000_000
            taken.append(1)

    taken = []
    assert target.call("POST", "/api/answer", "Ada", content=endless(), headers=headers).status_code == 413
    huge = {"Content-Length": str(100_000_000), **headers}
    assert target.call("POST", "/api/answer", "Ada", content=b"{}", headers=huge).status_code == 413
    assert sum("413" in line for line in refusals(caplog)) == 3


def test_paths_that_lead_elsewhere(target):
    opened(target, target.links.people["Ada"])
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/images/..%2f..%2fetc%2fpasswd",
        "/p/../o",
        "/docs",
        "/redoc",
        "/.git/config",
    ):
        response = target.client.get(path)
        assert response.status_code in (401, 403, 404), path


def test_every_response_carries_the_headers(world):
    for path in ("/", "/static/annotate.js", "/api/question", "/nothing", "/openapi.json"):
        headers = world.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "same-origin"
    page = opened(world, world.links.people["Ada"]).text
    assert " style=" not in page
    assert " onclick" not in page
    assert world.token("Ada") not in page


def test_whoever_is_too_fast_has_to_wait(world):
    world.project.rates = Rates(each_second=0.001, burst=3)
    codes = [world.call("GET", "/api/question", "Ada").status_code for _ in range(5)]
    assert codes == [200, 200, 200, 429, 429]
    assert world.call("GET", "/api/question", "Ben").status_code == 200
    world.project.guesses = Rates(each_second=0.001, burst=2)
    codes = [world.client.get(f"/p/{n:032x}").status_code for n in range(4)]
    assert codes == [401, 401, 429, 429]


def test_nobody_sees_anothers_answers(world):
    page = opened(world, world.links.people["Ada"])
    world.client.post(
        "/answer", data={"id": hidden(page), "choice": "left"}, headers={"Origin": "http://127.0.0.1:8000"}
    )
    for path in ("/api/answers", "/organiser", "/organiser/answers/csv", "/organiser/map.png"):
        assert world.call("GET", path, "Ben").status_code == 403
        assert world.call("GET", path, "open").status_code == 403
    assert "Ada" not in json.dumps(world.call("GET", "/api/question", "Ben").json())
