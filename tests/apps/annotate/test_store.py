"""No answer is lost, none counts twice, and a store says in one line why it cannot be used."""

import sqlite3
import threading
from contextlib import closing

import pytest
import sqlalchemy as sa

from prefkin.apps.annotate import store as module
from prefkin.apps.annotate.history import Event, History
from prefkin.apps.annotate.server import make_links
from prefkin.apps.annotate.store import Store
from prefkin.apps.annotate.tokens import hashed, new_token
from prefkin.errors import StoreError
from tests.apps.annotate.conftest import make_items

ABOUT = ("CREATE TABLE about (key, value)",)  # a table that another program may have, too
FOREIGN = "INSERT INTO about VALUES ('schema', 'theirs')"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.annotate)])
def any_store(request, items, tmp_path):
    if request.param == "sqlite":
        url = str(tmp_path / "answers.db")
    else:
        url = request.getfixturevalue("postgres").database(f"t{new_token()[:8]}")
    store = Store.create(url, items)
    yield store
    store.close()


def asked(person, number, question="q"):
    return Event(person, number, float(number), "asked", question, 0, 1, 0)


def answered(person, number, question="q"):
    return Event(person, number, float(number), "answered", question, 0, 1, 0, "left", 1.5)


def test_what_was_appended_is_what_is_read(any_store, items):
    zoe = any_store.join("Zoe")
    assert any_store.append([asked(zoe.id, 1)])
    assert any_store.append([answered(zoe.id, 2), asked(zoe.id, 3, "p")])
    history = any_store.history(zoe.id)
    assert (history.answered, history.pending.id, history.number) == (1, "p", 3)
    again = Store.create(any_store.url, items)
    assert again.histories()[zoe].answered == 1
    assert again.items().fingerprint == items.fingerprint
    assert again.items().texts == items.texts
    again.close()


def test_of_many_who_append_at_once_one_succeeds_each_time(any_store):
    zoe = any_store.join("Zoe")
    taken = []

    def answer():
        taken.extend(any_store.append([asked(zoe.id, number, f"q{number}")]) for number in range(1, 20))

    tabs = [threading.Thread(target=answer) for _ in range(6)]
    for tab in tabs:
        tab.start()
    for tab in tabs:
        tab.join()
    assert sum(taken) == 19
    assert any_store.last(zoe.id) == 19


def test_two_processes_do_not_both_succeed(any_store, items):
    zoe = any_store.join("Zoe")
    other = Store.create(any_store.url, items)
    results = []

    def answer(store):
        results.extend(store.append([asked(zoe.id, number, f"q{number}")]) for number in range(1, 30))

    both = [threading.Thread(target=answer, args=(store,)) for store in (any_store, other)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    other.close()
    assert any_store.last(zoe.id) == 29
    assert sum(results) == 29


def test_names_are_taken_once(any_store):
    any_store.join("Zoe")
    with pytest.raises(StoreError, match="somebody here is called 'Zoe' already; choose another name"):
        any_store.join("Zoe")
    assert [person.name for person in any_store.people()] == ["Zoe"]


def test_many_people_join_in_one_commit_all_or_none(any_store, monkeypatch):
    commits, commit = [], any_store._commit
    monkeypatch.setattr(any_store, "_commit", lambda batch: commits.append(len(batch)) or commit(batch))
    names = [f"person {i}" for i in range(3000)]
    links = make_links(any_store, "http://here", names, False, None)
    assert len(commits) == 2  # people, and their tokens
    assert any_store.who(links.people["person 7"].rpartition("/")[2]) == ("person", any_store.people()[7].id)
    with pytest.raises(StoreError, match="somebody here is of one of these names already"):
        any_store.join_all(["Zoe", "person 2999"])
    assert [person.name for person in any_store.people()] == names


def test_tokens_are_kept_as_hashes_only(store, tmp_path):
    token = new_token()
    zoe = store.join("Zoe", token)
    store.set(paused=True)
    assert store.who(token) == ("person", zoe.id)
    assert store.who(new_token()) is None
    store.close()
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert token.encode() not in everything
    assert hashed(token).encode() in everything


def test_a_commit_is_on_the_disk(store):
    with store.engine.connect() as connection:
        assert connection.scalar(sa.text("PRAGMA journal_mode")) == "wal"
        assert connection.scalar(sa.text("PRAGMA synchronous")) == 2


@pytest.mark.parametrize("statements", [(), ("CREATE TABLE mine (a)",), ABOUT, (*ABOUT, FOREIGN)])
def test_a_database_of_another_program_is_not_touched_by_reading_it(tmp_path, statements):
    with closing(sqlite3.connect(tmp_path / "other.db")) as other, other:
        for statement in statements:
            other.execute(statement)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(StoreError, match="this database is no store of answers"):
        Store.open(str(tmp_path / "other.db"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_answers_are_not_kept_in_memory(url):
    with pytest.raises(StoreError, match="what is in memory is lost in the end; give a file"):
        Store.create(url, make_items())


def test_a_store_of_other_items_is_refused(store):
    with pytest.raises(StoreError, match="this store is about other items"):
        Store.create(store.url, make_items(seed=1))


def test_a_newer_schema_is_refused_and_an_older_one_migrated_as_a_whole(store, items, monkeypatch):
    store.set(paused=True)
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE about SET value = '9' WHERE key = 'schema'"))
    with pytest.raises(StoreError, match="written by a newer prefkin .schema 9"):
        Store.open(store.url)
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE about SET value = '0' WHERE key = 'schema'"))
    monkeypatch.setitem(module.MIGRATIONS, 0, ("ALTER TABLE people ADD COLUMN nickname TEXT", "ALTER TABLE nothing"))
    with pytest.raises(StoreError, match="the database says"):
        Store.open(store.url)
    with sqlite3.connect(store.url.removeprefix("sqlite:///")) as plain:
        assert plain.execute("SELECT value FROM about WHERE key = 'schema'").fetchone() == ("0",)
        assert "nickname" not in str(plain.execute("SELECT sql FROM sqlite_master").fetchall())
    monkeypatch.setitem(module.MIGRATIONS, 0, ("ALTER TABLE people ADD COLUMN nickname TEXT",))
    migrated = Store.open(store.url)
    assert migrated.settings() == {"paused": True}
    migrated.close()


def test_what_is_no_store_is_said_in_one_line(tmp_path):
    with pytest.raises(StoreError, match="no such store"):
        Store.open(str(tmp_path / "nothing.db"))
    (tmp_path / "text.db").write_text("this is no database, whatever its name says" * 50)
    with pytest.raises(StoreError, match="the database says: file is not a database"):
        Store.open(str(tmp_path / "text.db"))
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE about (x)").connection.close()
    with pytest.raises(StoreError):
        Store.create(str(tmp_path / "other.db"), make_items())
    with pytest.raises(StoreError, match="neither a file nor a database URL"):
        Store.open("mongodb://host/name")


def test_undoing_goes_back_one_by_one():
    history = History.of(
        [Event(1, 0, 0.0, "joined"), asked(1, 1), answered(1, 2), asked(1, 3, "p"), answered(1, 4, "p")]
    )
    assert history.repeats() == (1, 1)
    for number, question in ((5, "p"), (6, "q")):
        history.add(Event(1, number, 0.0, "undone", question))
    assert (history.answered, history.skipped, history.number) == (0, 0, 6)
    assert history.known == {"p", "q"}
