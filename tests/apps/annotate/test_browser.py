"""A real browser: keys and clicks, undo, two people, a phone, no JavaScript, no connection, a killed server, axe-core."""

import os
import shutil
from pathlib import Path

import pytest

from tests.apps.annotate.conftest import Server
from tests.apps.annotate.test_kills import write_items

pytestmark = pytest.mark.annotate
CHROMIUM = os.environ.get("PREFKIN_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(__file__).parents[3] / ".venv/node_modules/axe-core/axe.min.js"


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="no playwright; pip install 'prefkin[browser]'")
    if CHROMIUM is None:
        pytest.skip("no chromium; apt-get install chromium, or say where it is with PREFKIN_CHROMIUM")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    write_items(folder)
    (folder / "rules.md").write_text("Choose what *you* like.")
    args = [
        "--items",
        "items.csv",
        "--open",
        "--store",
        str(folder / "answers.db"),
        "--guidelines",
        "rules.md",
        "--results",
    ]
    with Server(folder, *args) as server:
        yield server


@pytest.fixture
def visit(browser, server):
    """Somebody new opens the link, joins and sees a question."""
    contexts = []

    def open_page(name, **settings):
        context = browser.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        page.problems = []
        page.on("console", lambda message: message.type == "error" and page.problems.append(message.text))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.goto(server.links["open"])
        page.fill("#name", name)
        page.click("text=Begin")
        page.wait_for_selector(".pair")
        page.wait_for_load_state("load")  # a key that is pressed before the script listens is lost
        return page

    yield open_page
    for context in contexts:
        context.close()


def answered(page):
    return int(page.inner_text("#progress").split()[0])


def shown(page):
    return page.input_value("#answer input[name=id]")


def until(page, n):
    page.wait_for_function("n => document.querySelector('#progress').innerText.startsWith(n + ' answer')", arg=str(n))


def changed(page, before):
    page.wait_for_function("b => document.querySelector('#answer input[name=id]')?.value !== b", arg=before)


def test_keys_and_clicks(visit, server):
    page = visit("Keys")
    for n, key in enumerate(("1", "ArrowRight", "2", "ArrowLeft"), 1):
        page.keyboard.press(key)
        until(page, n)
    page.click("text=I prefer 1")
    until(page, 5)
    before = shown(page)
    page.keyboard.press("s")
    changed(page, before)
    assert answered(page) == 5
    before = shown(page)
    page.keyboard.press("u")  # the skip
    changed(page, before)
    for n in (4, 3, 2):
        page.keyboard.press("u")
        until(page, n)
    page.keyboard.press("g")
    page.wait_for_selector("#guidelines[open] >> text=Choose what you like.")
    page.keyboard.press("?")
    page.wait_for_selector("#help[open]")
    assert page.url == server.url + "/"
    assert page.evaluate("document.activeElement.id") == "prompt"  # where a screen reader goes on
    assert not page.problems


def test_a_double_click_counts_once_and_a_closed_tab_is_no_loss(visit, server):
    page = visit("Double")
    page.dblclick("text=I prefer 2")
    until(page, 1)
    page.wait_for_timeout(300)
    question = shown(page)
    page.reload()
    assert (answered(page), shown(page)) == (1, question)
    again = page.context.new_page()
    again.goto(page.url)
    again.keyboard.press("1")
    until(again, 2)
    page.keyboard.press("1")  # the other tab still shows the old question
    until(page, 2)
    assert shown(page) == shown(again)
    page.go_back()
    page.goto(server.url)
    assert answered(page) == 2


def test_two_people_at_once(visit):
    one, other = visit("One"), visit("Other")
    for n in (1, 2, 3):
        one.keyboard.press("1")
        other.keyboard.press("2")
        until(one, n)
        until(other, n)


def test_a_phone(visit):
    page = visit("Phone", viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    first, second = (page.locator(".card").nth(i).bounding_box() for i in (0, 1))
    assert second["y"] >= first["y"] + first["height"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.tap("text=I prefer 2")
    until(page, 1)


def test_without_javascript(visit):
    page = visit("Plain", java_script_enabled=False)
    for button in ("text=I prefer 1", "text=Skip", "text=I prefer 2", "text=Undo the last answer"):
        page.click(button)
    assert answered(page) == 1
    page.click("summary:has-text('Help')")
    assert page.is_visible("text=There is no right or wrong")


def test_offline_and_back(visit):
    page = visit("Offline")
    page.keyboard.press("1")
    until(page, 1)
    before = shown(page)
    page.context.set_offline(True)
    page.keyboard.press("2")
    page.wait_for_selector("text=Your answer is kept here")
    page.keyboard.press("1")  # it does not overwrite what is waiting
    page.wait_for_timeout(200)
    assert shown(page) == before
    page.context.set_offline(False)
    until(page, 2)
    page.wait_for_timeout(600)
    assert answered(page) == 2


def test_a_killed_server_is_no_loss(visit, server):
    page = visit("Patient")
    page.keyboard.press("1")
    until(page, 1)
    server.kill()
    page.keyboard.press("2")
    page.wait_for_selector("text=Your answer is kept here")
    server.start()
    page.wait_for_function("() => document.querySelector('#progress').innerText.startsWith('2 answers')", timeout=30000)
    question = shown(page)
    page.reload()
    assert (answered(page), shown(page)) == (2, question)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit, server, scheme):
    if not AXE.is_file():
        pytest.skip("no axe-core; npm install --no-save --prefix .venv axe-core@4")
    page = visit(f"Axe {scheme}", color_scheme=scheme, bypass_csp=True)
    for _ in range(11):
        before = shown(page)
        page.keyboard.press("1")
        changed(page, before)
    for path in ("/", "/result", "/link", "/join", server.links["organiser"].removeprefix(server.url), "/nothing"):
        page.goto(server.url + path)
        if path == "/":
            page.keyboard.press("?")
        page.add_script_tag(path=AXE)
        found = page.evaluate(
            "async () => (await axe.run()).violations.map(v => v.id + ': ' + v.nodes.map(n => n.html).join(' '))"
        )
        assert not found, f"{path}: {found}"
