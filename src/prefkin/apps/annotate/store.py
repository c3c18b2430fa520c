"""Where answers are kept: one SQLite file, or PostgreSQL. Events are only ever added, and never changed.

An answer is acknowledged after its commit. Everything is written by one thread, which commits together whatever is
waiting: two hundred people who answer at once share one wait for the disk, and nobody waits for a lock.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from prefkin.apps.annotate.history import Event, History
from prefkin.apps.annotate.items import Items
from prefkin.apps.annotate.tokens import Role, hashed
from prefkin.data.candidates import Candidates
from prefkin.errors import StoreError

__all__ = ["SCHEMA", "NameTaken", "Person", "Store", "store_url"]

Row = TypeVar("Row")
Work = Callable[[sa.Connection], Any]

SCHEMA = 1
MIGRATIONS: dict[int, tuple[str, ...]] = {}  # statements that lead from a version to the next
AT_ONCE = 256  # appends in one transaction
IN_MEMORY = ("sqlite://", "sqlite:///", "sqlite:///:memory:")
TRIES = 3  # of a transaction that met another worker's

log = logging.getLogger("prefkin.annotate")

tables = sa.MetaData()
about = sa.Table("about", tables, sa.Column("key", sa.Text, primary_key=True), sa.Column("value", sa.Text))
items_table = sa.Table(
    "items",
    tables,
    sa.Column("context", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("action", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("context_label", sa.Text),
    sa.Column("action_label", sa.Text),
    sa.Column("prompt", sa.Text),
    sa.Column("text", sa.Text),
    sa.Column("image", sa.Text),
    sa.Column("features", sa.LargeBinary),  # float64
)
people_table = sa.Table(
    "people",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, unique=True, nullable=False),
)
tokens_table = sa.Table(
    "tokens",
    tables,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("person", sa.Integer),
)
events_table = sa.Table(
    "events",
    tables,
    sa.Column("person", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("question", sa.Text, nullable=False),
    sa.Column("context", sa.Integer),
    sa.Column("left", sa.Integer),
    sa.Column("right", sa.Integer),
    sa.Column("choice", sa.Text),
    sa.Column("seconds", sa.Double),
)


class NameTaken(StoreError):
    """Two people cannot have one name."""


class Person(NamedTuple):
    """Somebody who answers."""

    id: int
    name: str


def store_url(store: str) -> str:
    """A database URL as it is, and a file name as the URL of a SQLite file.

    >>> store_url("answers.db"), store_url("postgresql://host/study")
    ('sqlite:///answers.db', 'postgresql+psycopg://host/study')
    """
    if store.startswith(("postgresql://", "postgres://")):
        return "postgresql+psycopg://" + store.partition("://")[2]
    return store if "://" in store else f"sqlite:///{store}"


class Store:
    """A project's items, people and events in a database.

    >>> import tempfile
    >>> items = Items(Candidates([[[1.0], [2.0]]]), ("One.", "Two."), ("", ""), ("Which?",))
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store.create(f"{folder.name}/answers.db", items)
    >>> zoe = store.join("Zoe")
    >>> store.append([Event(zoe.id, 1, 0.0, "asked", "q1", 0, 1, 0)])
    True
    >>> store.append([Event(zoe.id, 1, 0.0, "asked", "q2", 0, 0, 1)])      # somebody was faster
    False
    >>> store.history(zoe.id).pending.id
    'q1'
    >>> store.close(); folder.cleanup()
    """

    def __init__(self, url: str) -> None:
        self.url = store_url(url)
        self.fresh: Path | None = None  # the file, where it was made just now
        if self.url in IN_MEMORY:
            raise StoreError(f"{url!r}: what is in memory is lost in the end; give a file (sqlite:///FILE)")
        try:
            remote = not self.url.startswith("sqlite")
            self.engine = sa.create_engine(self.url, pool_pre_ping=remote, pool_size=8, max_overflow=40)
        except (ArgumentError, NoSuchModuleError, ImportError):
            raise StoreError(
                f"--store {_shown(url)}: neither a file nor a database URL (sqlite:///FILE, postgresql://HOST/NAME)"
            ) from None
        if self.engine.dialect.name == "sqlite":
            sa.event.listen(self.engine, "connect", _safe_sqlite)
            sa.event.listen(self.engine, "begin", _begin_sqlite)
        self.reader = self.engine.execution_options(reading=True)
        self._waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._roles: dict[str, tuple[Role, int | None]] = {}  # tokens that were looked up: they never change
        self._writer = threading.Thread(target=self._write, name="store", daemon=True)
        self._writer.start()

    # -- opening -----------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, url: str) -> Store:
        """A store that exists, brought to this version."""
        path = Path(store_url(url).removeprefix("sqlite:///"))
        if store_url(url).startswith("sqlite") and not path.is_file():
            raise StoreError(f"{url}: no such store; prefkin annotate makes one")
        store = cls(url)
        with store._reported(), store.engine.begin() as connection:
            if not sa.inspect(connection).has_table("about"):
                raise StoreError(f"{_shown(url)}: this database is no store of answers; prefkin annotate makes one")
            _migrate(connection, _shown(url))
        return store

    @classmethod
    def create(cls, url: str, items: Items) -> Store:
        """The store of these items: a new one, or the one that is there if it is about the same."""
        file = Path(store_url(url).removeprefix("sqlite:///"))
        fresh = file if store_url(url).startswith("sqlite") and not file.exists() else None
        store, mark = cls(url), items.fingerprint
        store.fresh = fresh
        with store._reported(), store.engine.begin() as connection:
            there = set(sa.inspect(connection).get_table_names())
            if "about" not in there:
                if there & {"items", "people", "tokens", "events"}:
                    raise StoreError(f"{_shown(url)}: tables of another program are in this database; give another")
                tables.create_all(connection)
                noted = {"schema": str(SCHEMA), "items": mark}
                connection.execute(about.insert(), [{"key": key, "value": value} for key, value in noted.items()])
                for some in _batched(_rows(items), AT_ONCE):
                    connection.execute(items_table.insert(), some)
            else:
                _migrate(connection, _shown(url))
                if _noted(connection, "items") != mark:
                    raise StoreError(
                        f"{_shown(url)}: this store is about other items; give the items it was begun with, or another "
                        "--store"
                    )
        if store.engine.dialect.name == "sqlite":
            # readers do not wait for writers; the file remembers it
            with store._reported(), closing(store.engine.raw_connection()) as raw:
                raw.cursor().execute("PRAGMA journal_mode=WAL")
        return store

    @contextmanager
    def or_nothing(self) -> Iterator[None]:
        """Where the block fails, a file that was made by `create` just now does not stay."""
        try:
            yield
        except BaseException:
            self.close()
            for end in ("", "-wal", "-shm", "-journal") if self.fresh is not None else ():
                Path(f"{self.fresh}{end}").unlink(missing_ok=True)
            raise

    def close(self) -> None:
        """Write what is waiting, and let go of the database."""
        self._waiting.put(None)
        self._writer.join(timeout=10)
        self.engine.dispose()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """What a database says, in one line; a store that cannot be used is closed again."""
        with self.or_nothing():
            try:
                yield
            except SQLAlchemyError as error:
                raise StoreError(f"{_shown(self.url)}: the database says: {_reason(error)}") from None

    # -- settings ----------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """What the organiser decided: paused, closed, results."""
        with self._read() as connection:
            return dict(json.loads(_noted(connection, "settings") or "{}"))

    def set(self, **settings: Any) -> None:
        """Decide anew; other settings stay."""

        def decide(connection: sa.Connection) -> None:
            decided = json.loads(_noted(connection, "settings") or "{}") | settings
            connection.execute(about.delete().where(about.c.key == "settings"))
            connection.execute(about.insert().values(key="settings", value=json.dumps(decided)))

        self._written(decide)

    # -- people and tokens -------------------------------------------------------------------------------------------

    def join(self, name: str, token: str | None = None) -> Person:
        """Somebody new, with the token of their link; a name that is taken is refused."""
        return self.join_all([name], [] if token is None else [token])[0]

    def join_all(self, names: Sequence[str], tokens: Sequence[str] = ()) -> list[Person]:
        """New people, all or none, the first of them with these tokens."""
        when = time.time()

        def add(connection: sa.Connection) -> list[Person]:
            query = people_table.insert().returning(people_table.c.id, people_table.c.name)
            ids = {name: int(id) for id, name in connection.execute(query, [{"name": name} for name in names])}
            people = [Person(ids[name], name) for name in names]
            connection.execute(events_table.insert(), [Event(who.id, 0, when, "joined")._asdict() for who in people])
            _allow(connection, [(token, "person", who.id) for token, who in zip(tokens, people, strict=False)])
            return people

        try:
            return self._written(add) if names else []
        except IntegrityError:
            who = f"called {names[0]!r}" if len(names) == 1 else "of one of these names"
            raise NameTaken(f"somebody here is {who} already; choose another name") from None

    def allow(self, tokens: Sequence[tuple[str, Role, int | None]]) -> None:
        """More tokens, each for a role, and those of people for one of them."""
        self._written(lambda connection: _allow(connection, tokens))

    def allowed(self) -> dict[str, tuple[Role, int | None]]:
        """The roles and people of all tokens, by their hashes."""
        with self._read() as connection:
            return {row.hash: (row.role, row.person) for row in connection.execute(sa.select(tokens_table))}

    def who(self, token: str) -> tuple[Role, int | None] | None:
        """The role and the person behind a token, or None."""
        mark = hashed(token)
        if mark not in self._roles:
            with self._read() as connection:
                found = connection.execute(sa.select(tokens_table).where(tokens_table.c.hash == mark)).first()
            if found is None:
                return None
            self._roles[mark] = found.role, found.person
        return self._roles[mark]

    def people(self) -> list[Person]:
        """Everybody who joined, in that order."""
        with self._read() as connection:
            return [Person(*row) for row in connection.execute(sa.select(people_table).order_by(people_table.c.id))]

    # -- events ------------------------------------------------------------------------------------------------------

    def append(self, events: Sequence[Event]) -> bool:
        """Add one person's next events, all or none; False when others were added meanwhile. Returns after commit."""
        return bool(self._written(events))

    def history(self, person: int) -> History:
        """Everything that happened to one person."""
        return History.of(self._events(events_table.c.person == person))

    def last(self, person: int) -> int:
        """The number of a person's last event."""
        with self._read() as connection:
            query = sa.select(sa.func.max(events_table.c.number)).where(events_table.c.person == person)
            return int(connection.scalar(query) or 0)

    def histories(self) -> dict[Person, History]:
        """Everybody's, as of one moment."""
        people = {person.id: person for person in self.people()}
        found: dict[Person, History] = {person: History() for person in people.values()}
        for event in self._events():
            if event.person in people:  # nobody who joined since
                found[people[event.person]].add(event)
        return found

    def _events(self, *where: sa.ColumnElement[bool]) -> Iterable[Event]:
        query = sa.select(events_table).where(*where).order_by(events_table.c.person, events_table.c.number)
        with self._read() as connection:
            return [Event(*row) for row in connection.execute(query)]

    def items(self) -> Items:
        """The items as they were when the store was made."""
        with self._read() as connection:
            query = sa.select(items_table).order_by(items_table.c.context, items_table.c.action)
            rows = list(connection.execute(query))
        contexts = [list(some) for _, some in groupby(rows, key=lambda row: row.context)]
        candidates = Candidates(
            [[np.frombuffer(row.features) for row in some] for some in contexts],
            contexts=[some[0].context_label for some in contexts],
            actions=[row.action_label for row in rows],
        )
        return Items(
            candidates,
            tuple(row.text for row in rows),
            tuple(row.image for row in rows),
            tuple(some[0].prompt for some in contexts),
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _reach(self) -> Iterator[None]:
        """A database that cannot be reached is no fault of who asks: they may ask again."""
        try:
            yield
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            log.warning("the store says: %s", _reason(error))
            raise StoreError("the store cannot be reached now; send it again, it will count once") from None

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with self._reach(), self.reader.connect() as connection:
            yield connection

    def _written(self, what: Sequence[Event] | Work) -> Any:
        """What work returns, or whether events were accepted, after the commit."""
        job = _Job(what, Future())
        self._waiting.put(job)
        return job.done.result()

    def _write(self) -> None:
        """The thread that writes: whatever is waiting, in one transaction."""
        while (first := self._waiting.get()) is not None:
            batch, last = [first], False
            with suppress(queue.Empty):
                while len(batch) < AT_ONCE and not last:
                    more = self._waiting.get_nowait()
                    last = more is None
                    batch += [] if more is None else [more]
            self._commit(batch)
            if last:
                return

    def _commit(self, batch: list[_Job]) -> None:
        results: list[Any] = []
        for attempt in range(TRIES):
            try:
                with self._reach(), self.engine.begin() as connection:
                    accepted = iter(_in_turn(connection, [job.what for job in batch if not callable(job.what)]))
                    results = [_alone(connection, job.what) if callable(job.what) else next(accepted) for job in batch]
                break
            except IntegrityError:  # another worker added to the same history at the same moment
                results = [StoreError("the store is busy; try again") if callable(job.what) else False for job in batch]
            except BaseException as error:
                results = [error] * len(batch)
                break
            time.sleep(0.01 * attempt)
        for job, result in zip(batch, results, strict=True):
            if isinstance(result, BaseException):
                job.done.set_exception(result)
            else:
                job.done.set_result(result)


class _Job(NamedTuple):
    """Something to write: events, or some other work."""

    what: Sequence[Event] | Work
    done: Future[Any]


def _noted(connection: sa.Connection, key: str) -> str | None:
    return connection.scalar(sa.select(about.c.value).where(about.c.key == key))


def _allow(connection: sa.Connection, tokens: Sequence[tuple[str, Role, int | None]]) -> None:
    rows = [{"hash": hashed(token), "role": role, "person": person} for token, role, person in tokens]
    if rows:
        connection.execute(tokens_table.insert(), rows)


def _alone(connection: sa.Connection, work: Work) -> Any:
    """What work returns, or how it fails: only what it wrote itself is undone then."""
    try:
        with connection.begin_nested():
            return work(connection)
    except IntegrityError as error:
        return error


def _in_turn(connection: sa.Connection, appends: list[Sequence[Event]]) -> list[bool]:
    """Insert those appends that continue a history where it ends, and say which."""
    if not appends:
        return []
    people = {events[0].person for events in appends}
    query = (
        sa.select(events_table.c.person, sa.func.max(events_table.c.number))
        .where(events_table.c.person.in_(people))
        .group_by(events_table.c.person)
    )
    last = {person: int(number) for person, number in connection.execute(query)}
    accepted, rows = [], []
    for events in appends:
        taken = events[0].number == last.get(events[0].person, -1) + 1
        accepted.append(taken)
        if taken:
            last[events[0].person] = events[-1].number
            rows += [event._asdict() for event in events]
    if rows:
        connection.execute(events_table.insert(), rows)
    return accepted


def _batched(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    """So many at a time, so that they need not all be held at once."""
    while some := list(islice(rows, size)):
        yield some


def _rows(items: Items) -> Iterator[dict[str, Any]]:
    candidates = items.candidates
    for row, x in enumerate(candidates.owner.tolist()):
        action = row - int(candidates.starts[x])
        yield {
            "context": x,
            "action": action,
            "context_label": items.context(x),
            "action_label": items.label(x, action),
            "prompt": items.prompts[x],
            "text": items.texts[row],
            "image": items.images[row],
            "features": candidates.features[row].tobytes(),
        }


def _migrate(connection: sa.Connection, name: str) -> None:
    """Bring the schema to this version, inside the caller's transaction."""
    try:
        found = int(_noted(connection, "schema") or 0)
    except ValueError:
        found = 0
    if found != SCHEMA and found < min(MIGRATIONS, default=SCHEMA):
        raise StoreError(f"{name}: this database is no store of answers; prefkin annotate makes one")
    if found > SCHEMA:
        raise StoreError(
            f"{name}: written by a newer prefkin (schema {found}, this one knows {SCHEMA}); use that version"
        )
    for version in range(found, SCHEMA):
        for statement in MIGRATIONS[version]:
            connection.exec_driver_sql(statement)
    if found < SCHEMA:
        connection.execute(about.update().where(about.c.key == "schema").values(value=str(SCHEMA)))


def _safe_sqlite(connection: Any, _: ConnectionPoolEntry) -> None:
    """A commit is on the disk before it is acknowledged. Nothing is changed: this may be no store of ours."""
    connection.isolation_level = None  # transactions are begun by us
    for setting in ("synchronous=FULL", "busy_timeout=10000"):
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: sa.Connection) -> None:
    """Whoever will write says so at once: two that first read and then write would have to begin again."""
    reading = connection.get_execution_options().get("reading")
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _reason(error: SQLAlchemyError) -> str:
    """What the database said, in a line."""
    said = str(getattr(error, "orig", error)).strip().splitlines()[:1]
    return f"{''.join(said) or type(error).__name__:.160}"


def _shown(url: str) -> str:
    """A store's name without a password."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True) if "://" in url else url
    except ArgumentError:
        return url
