"""`prefkin annotate DIR --items FILE`: a page on which people compare pairs, each next one chosen by the model."""

from __future__ import annotations

import signal
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer

from prefkin.apps.cli.console import as_fitted, err, features_for, listed, out, working
from prefkin.apps.cli.interrupts import INTERRUPTED, Stopped
from prefkin.data.checks import is_missing
from prefkin.data.embedding import sentence_embedder
from prefkin.data.formats import label_column
from prefkin.errors import InvalidParameter, InvalidTable
from prefkin.execution.blas import single_threaded
from prefkin.models.files import load
from prefkin.models.prefkin.estimator import PrefKin

if TYPE_CHECKING:
    from prefkin.apps.annotate.items import Items
    from prefkin.apps.annotate.server import Links

LINKS_SHOWN = 10
EVERYWHERE = """\
note: whoever can reach {host} can open links, and reads along unless a proxy adds TLS (docs/annotate.md)"""


def annotate(
    model: Path | None = typer.Argument(None, metavar="DIR", help="Folder written by prefkin fit, or a model file."),
    items: Path | None = typer.Option(None, help="What to show: candidates with a text or image column."),
    store: str | None = typer.Option(None, help="Where answers are kept: a file, or a database URL."),
    people: Path | None = typer.Option(None, help="A column user: a personal link for each."),
    anybody: bool = typer.Option(False, "--open", help="One link through which anybody joins under a name."),
    host: str = typer.Option("127.0.0.1", help="Address to listen on."),
    port: int = typer.Option(8000, help="Port to listen on; 0 for any that is free.", min=0, max=65535),
    links: Path | None = typer.Option(None, help="Write the links to this JSON file, and keep those that are in it."),
    demo: bool = typer.Option(False, "--demo", help="Built-in stories and simulated readers; needs nothing else."),
    features: str | None = typer.Option(None, help="Columns that hold a feature each, separated by commas."),
    encoder: str | None = typer.Option(None, help="Make features from texts with this sentence-transformers model."),
    images: Path | None = typer.Option(None, help="Folder of the images that the items name."),
    title: str = typer.Option("Which do you prefer?", help="What people are asked."),
    guidelines: Path | None = typer.Option(None, help="A Markdown file that people can open (G)."),
    repeat: float = typer.Option(0.0, help="Share of pairs that are asked a second time.", min=0.0, max=0.5),
    tolerance: float = typer.Option(0.1, help="It is enough when at most so much is lost per context, in log odds."),
    results: bool = typer.Option(False, "--results", help="People may see what came of their answers."),
    learn_every: int = typer.Option(50, help="Learn groups and prior again after so many answers.", min=1),
    url: str | None = typer.Option(None, help="Where people reach it, if not at HOST:PORT (behind a proxy)."),
) -> None:
    """A page on which people compare pairs, each next one chosen by the model.

    Example: prefkin annotate kin --items stories.csv --open
    """
    try:
        from prefkin.apps.annotate import server
        from prefkin.apps.annotate.demo import GUIDELINES, TITLE, TOLERANCE
        from prefkin.apps.annotate.engine import FEWEST, Engine
        from prefkin.apps.annotate.knowledge import Knowledge
        from prefkin.apps.annotate.learning import Learner
        from prefkin.apps.annotate.pages import RESULT_AFTER
        from prefkin.apps.annotate.project import Project
        from prefkin.apps.annotate.store import Store
    except ImportError as error:
        raise InvalidParameter(f"this needs {error.name}; pip install 'prefkin[annotate]'") from None
    if not tolerance > 0:
        raise InvalidParameter(f"--tolerance must be above 0; got {tolerance:g}")
    names, rules = _people(people), _text(guidelines)
    with ExitStack() as until_the_end, single_threaded():  # what a question takes is small, and there are many
        known, fewest = None, FEWEST
        if demo:
            shown, known = _demo(model, items)
            title, rules, anybody, results = TITLE, GUIDELINES, anybody or people is None, True
            tolerance, fewest = TOLERANCE, RESULT_AFTER
            folder = until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="prefkin-demo-"))
            store = store or str(Path(folder) / "answers.db")
        else:
            known = None if model is None else load(model)
            wanted = listed(features) if known is None or items is None else features_for(known, items, features)
            shown = _items(items, wanted, encoder, images)
            store = store or _beside(model, items)
        if known is not None and items is not None:
            shown = replace(shown, candidates=as_fitted(known, items, shown.candidates))
        server.kept_links(links)  # a file of another kind is refused before anything is written
        where = server.bound(host, port)
        until_the_end.callback(where.close)
        kept = Store.create(store, shown)
        base = url.rstrip("/") if url else f"http://{f'[{host}]' if ':' in host else host}:{where.getsockname()[1]}"
        with kept.or_nothing():
            if results:
                kept.set(results=True)
            made = server.make_links(kept, base, names, anybody or not names, links)
            if links is not None:
                made.save(links)
        knowledge = Knowledge(known)
        engine = Engine(kept, shown, knowledge, repeat=repeat, tolerance=tolerance, fewest=fewest)
        if not server.is_local(host):
            err.print(EVERYWHERE.format(host=host))
        _say(made, store, demo)
        learner = Learner(engine, knowledge.fitted, learn_every)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
        with suppress(KeyboardInterrupt):
            server.serve(Project(engine, learner, title, rules, images, demo), where)
        err.print("prefkin: stopped; every answer is kept" + (" no longer: it was a demo" if demo else f" in {store}"))
        raise Stopped(INTERRUPTED)


def _demo(model: Path | None, items: Path | None) -> tuple[Items, PrefKin]:
    from prefkin.apps.annotate.demo import demo_items, demo_readers

    if model is not None or items is not None:
        raise InvalidParameter("--demo brings its own model and items; give neither")
    shown = demo_items()
    with working():
        return shown, PrefKin().fit(demo_readers(shown, np.random.default_rng(0)))


def _items(path: Path | None, features: tuple[str, ...] | None, encoder: str | None, images: Path | None) -> Items:
    from prefkin.apps.annotate.items import read_items

    if path is None:
        raise InvalidParameter("--items FILE says what to show; or try --demo")
    return read_items(path, features, None if encoder is None else sentence_embedder(encoder), images)


def _people(path: Path | None) -> list[str]:
    """The names in a file, each once."""
    from prefkin.apps.annotate.items import read_texts

    if path is None:
        return []
    columns = read_texts(path, ("user",))
    if "user" not in columns:
        raise InvalidTable(f"{path}: people need a column user; it has: {', '.join(list(columns)[:12])}")
    names: dict[str, None] = {}
    for row, value in enumerate(label_column(columns["user"]).tolist()):
        if is_missing(value) or not str(value).strip():
            raise InvalidTable(f"{path}: column user is missing in row {row} (counted from 0); fill it in")
        if str(value) in names:
            raise InvalidTable(f"{path}: {value!r} stands twice (row {row}, counted from 0); drop one")
        names[str(value)] = None
    return list(names)


def _text(path: Path | None) -> str:
    try:
        return "" if path is None else path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidParameter(f"{path}: the guidelines must be text (Markdown) in UTF-8") from None


def _beside(model: Path | None, items: Path | None) -> str:
    """By default answers are kept beside the model; without one, beside the items."""
    if model is not None:
        return str((model if model.is_dir() else model.parent) / "answers.db")
    assert items is not None
    return str(items.with_suffix(".answers.db"))


def _say(links: Links, store: str, demo: bool) -> None:
    if demo:
        out.print(f"Open {links.open} and answer ten questions." if links.open else "Open your link below.")
    out.print(f"organiser  {links.organiser}")
    if links.open:
        out.print(f"anybody    {links.open}")
    for name in list(links.people)[:LINKS_SHOWN]:
        out.print(f"{name:10} {links.people[name]}")
    if len(links.people) > LINKS_SHOWN:
        out.print(f"... {len(links.people) - LINKS_SHOWN} more people; --links FILE.json writes all")
    out.print(f"Answers are kept in {store}; links that were handed out before go on working. Ctrl-C stops.")
    out.file.flush()
