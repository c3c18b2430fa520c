"""The pages as a browser without JavaScript meets them."""

import re

import pytest

from tests.apps.annotate.conftest import World, make_items

HERE = {"Origin": "http://127.0.0.1:8000", "Accept": "text/html"}


def opened(world, link):
    """A visit through a link: the token goes into a cookie, and the address is left."""
    path = link.removeprefix("http://127.0.0.1:8000")
    response = world.client.get(path)
    assert response.status_code == 303, response.text
    assert link.rpartition("/")[2] not in response.headers["location"]
    return world.client.get(response.headers["location"], headers=HERE)


def hidden(page, name="id"):
    return re.search(rf'name="{name}" value="([^"]+)"', page.text)[1]


def post(world, path, data, **headers):
    return world.client.post(path, data=data, headers=HERE | headers)


def test_answering_by_forms(world):
    page = opened(world, world.links.people["Ada"])
    assert "0 answers so far, about" in page.text
    assert page.text.count("I prefer") == 4  # two buttons, two lines of help
    done = post(world, "/answer", {"id": hidden(page), "choice": "left"})
    assert (done.status_code, done.headers["location"]) == (303, "/")
    later = world.client.get("/")
    assert "1 answer so far" in later.text
    assert hidden(later) != hidden(page)
    post(world, "/answer", {"id": hidden(page), "choice": "left"})  # the back button
    assert "1 answer so far" in world.client.get("/").text
    post(world, "/undo", {"id": hidden(later)})
    again = world.client.get("/")
    assert "0 answers so far" in again.text
    assert "Undo" not in again.text


def test_the_script_gets_the_next_question_at_once(world):
    page = opened(world, world.links.people["Ada"])
    part = post(world, "/answer", {"id": hidden(page), "choice": "skip"}, **{"X-Part": "1"})
    assert part.status_code == 200
    assert "<html" not in part.text
    assert hidden(part) != hidden(page)


def test_a_cookie_is_out_of_reach_of_scripts_and_other_sites(world):
    response = world.client.get(world.links.people["Ada"].removeprefix("http://127.0.0.1:8000"))
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert response.headers["referrer-policy"] == "no-referrer"


def test_joining_by_a_form(world):
    page = opened(world, world.links.open)
    form = {"name": "Zoe", "key": hidden(page, "key")}
    assert post(world, "/join", form).status_code == 303
    assert post(world, "/join", form).status_code == 303  # a double click
    assert [person.name for person in world.store.people()] == ["Ada", "Ben", "Zoe"]
    own = re.search(r"<code>http://127.0.0.1:8000(/p/\w{32})</code>", world.client.get("/link").text)[1]
    world.client.cookies.clear()
    assert world.client.get(own).headers["location"] == "/"  # on another device
    world.client.get(world.links.open)
    taken = post(world, "/join", {"name": "Zoe", "key": "x" * 30})
    assert taken.status_code == 409
    assert "called &#39;Zoe&#39; already" in taken.text
    assert post(world, "/join", {"name": " \u200b ", "key": "y" * 30}).status_code == 422


def test_without_a_link_there_is_nothing_to_see(world):
    assert "open the link that you were sent" in world.client.get("/").text
    refused = world.client.get("/organiser", headers=HERE)
    assert refused.status_code == 401
    assert "open your own link" in refused.text.lower()


def test_the_organiser(world):
    question = world.call("GET", "/api/question", "Ada").json()
    world.call("POST", "/api/answer", "Ada", json={"id": question["id"], "choice": "left"})
    page = opened(world, world.links.organiser)
    assert re.findall(r"<dt>(\w+)</dt><dd>(\d+)</dd>", page.text) == [("people", "2"), ("answers", "1"), ("skips", "0")]
    assert post(world, "/organiser", {"do": "pause"}).status_code == 303
    assert ">Paused<" in world.client.get("/organiser").text
    assert world.call("GET", "/api/question", "Ada").json()["reason"] == "paused"
    post(world, "/organiser", {"do": "go on"})
    added = post(world, "/organiser", {"do": "add", "names": "Zoe\n<b>Bo</b>\nAda"})
    assert "&lt;b&gt;Bo&lt;/b&gt;" in added.text
    assert "called &#39;Ada&#39; already" in added.text
    link = re.search(r"<code>(http://127.0.0.1:8000/p/\w{32})</code>", added.text)[1]
    assert "0 answers so far" in opened(world, link).text
    csv = world.client.get("/organiser/answers/csv")
    assert csv.text.startswith("user,y,context,seconds,at,first0")
    assert csv.text.count("\n") == 2
    for form in ("jsonl", "labelstudio", "argilla", "trl"):
        assert world.client.get(f"/organiser/answers/{form}").status_code == 200
    assert world.client.get("/organiser/answers/xlsx").status_code == 404
    post(world, "/organiser", {"do": "close"})
    assert world.call("GET", "/api/question", "Ada").json()["reason"] == "closed"


def test_results_are_shown_if_the_organiser_allows_it(world):
    page = opened(world, world.links.people["Ada"])
    assert world.client.get("/result").status_code == 403
    world.engine.set(results=True)
    for _ in range(10):
        assert "/result" not in page.text
        post(world, "/answer", {"id": hidden(page), "choice": "left"})
        page = world.client.get("/")
    assert 'href="/result"' in page.text
    result = world.client.get("/result").text
    assert "From 10 answers." in result
    assert "What prefkin would recommend to you" in result


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "![x](http://evil/x.png)", "[x](javascript:alert(1))"])
def test_texts_are_shown_and_never_run(store, items, text, tmp_path):
    from dataclasses import replace

    from prefkin.apps.annotate.store import Store

    hostile = replace(items, texts=(text,) * len(items.texts), prompts=(text,) * len(items.prompts))
    mine = Store.create(str(tmp_path / "hostile.db"), hostile)
    world = World(mine, hostile, title=text, guidelines=text)
    token = world.call("POST", "/api/join", "open", json={"name": text})
    page = world.client.get("/", headers={"Cookie": f"{world.project.cookie('person')}={token.json()['token']}"})
    shown = page.text.replace('<script src="/static/annotate.js" defer></script>', "")
    assert "<script" not in shown
    assert "<img" not in shown
    assert "href=" not in re.sub('href="/(static/|link")', "", shown)
    opened(world, world.links.organiser)
    assert "<script" not in world.client.get("/organiser").text
    world.stop()
    mine.close()


def test_images_come_from_the_folder_and_nowhere_else(tmp_path):
    from dataclasses import replace

    from prefkin.apps.annotate.store import Store

    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "secret.png").write_bytes(b"no")
    (folder / "other.png").write_bytes(b"not among the items")
    items = make_items(n=3, actions=2)
    items = replace(items, texts=("",) * 6, images=("a.png",) * 6)
    store = Store.create(str(tmp_path / "images.db"), items)
    world = World(store, items, images=folder)
    assert world.client.get("/images/a.png").status_code == 401
    page = opened(world, world.links.people["Ada"])
    assert 'src="/images/a.png"' in page.text
    assert world.client.get("/images/a.png").content == b"\x89PNG"
    for path in (
        "other.png",
        "../secret.png",
        "..%2fsecret.png",
        "%2e%2e/secret.png",
        "/etc/passwd",
        "a.png/../../secret.png",
    ):
        assert world.client.get(f"/images/{path}").status_code in (401, 404), path
    world.stop()
    store.close()
