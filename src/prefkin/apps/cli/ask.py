"""`prefkin ask DIR --user U --candidates FILE --state FILE`: questions in the terminal, every answer kept at once."""

from __future__ import annotations

import re
import signal
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import typer
from scipy.special import expit

from prefkin.apps.cli import interrupts
from prefkin.apps.cli.console import candidates_for, check_file, column_map, did_you_mean, err, known_as, out, table
from prefkin.apps.shown import Shown
from prefkin.decide.session import ActiveSession
from prefkin.errors import InvalidParameter, SessionError
from prefkin.execution.blas import single_threaded
from prefkin.models.files import load
from prefkin.models.reports import counted

FIRST, SECOND, SKIP, UNDO, QUIT = "first", "second", "skip", "undo", "quit"
WORDS = {
    **dict.fromkeys(("1", "left", "\x1b[D", "\x1bOD"), FIRST),
    **dict.fromkeys(("2", "right", "\x1b[C", "\x1bOC"), SECOND),
    **dict.fromkeys(("s", "skip"), SKIP),
    **dict.fromkeys(("u", "undo"), UNDO),
    **dict.fromkeys(("q", "quit", "\x1b", "\x04"), QUIT),
}
HELP = "1 or 2 (or the arrow keys): which one; s: skip; u: take the last one back; q: quit"
PLAYERS, FURTHEST, EVERY, PATIENCE = 5, 40, 5, 1.0  # people who rehearse, answers each, how often, and for how long (s)
RESULTS = 5  # contexts of which the best action is shown at the end


def ask(
    folder: Path = typer.Argument(metavar="DIR", help="Folder written by prefkin fit, or a model file."),
    user: str = typer.Option(..., help="Who answers; somebody the model does not know is asked as a newcomer."),
    candidates: Path = typer.Option(..., help="Candidates; a column text (and prompt) is what is shown."),
    state: Path = typer.Option(..., help="File that keeps every answer; the same command goes on from it."),
    mapping: list[str] = typer.Option([], "--map", help="Other column names: OURS=THEIRS, repeatable."),
    features: str | None = typer.Option(None, help="Columns that hold a feature each, separated by commas."),
    tolerance: float = typer.Option(0.1, help="It is enough when at most so much is lost per context, in log odds."),
) -> None:
    """Questions in the terminal, each next one chosen by the model; every answer is kept the moment it is given.

    Left and right arrow (or 1 and 2) answer, s skips, u takes back, q quits; from a pipe, one answer on each line.

    Example: prefkin ask kin --user Ada --candidates stories.csv --state ada.json
    """
    if not tolerance > 0:
        raise InvalidParameter(f"--tolerance must be above 0; got {tolerance:g}")
    check_file("--state", state, [candidates, folder], (".json",))
    model = load(folder)
    shown = candidates_for(model, candidates, column_map(mapping), features)
    with single_threaded():  # what a question takes is small, and there are many
        session = _session(model, user, shown, state)
        _talk(session, shown, state, tolerance)
    _tell(session, shown, state)


def _session(model: Any, user: str, shown: Shown, state: Path) -> ActiveSession:
    """The one in the file, or a new one."""
    (label,) = known_as(model.users_.tolist(), [user])
    if state.exists():
        session: ActiveSession = model.resume_session(state, shown.candidates)
        if str(session.label) != user:
            raise SessionError(
                f"{state}: these are the answers of {session.label!r}, not of {user!r}; give another file"
            )
        out.print(f"going on with {counted(session.n_answers, 'answer')} of {user} in {state}")
        return session
    if label is not None:
        return model.session(label, shown.candidates)
    if not model.has_posterior:
        raise InvalidParameter(
            f"--user {user!r:.60} is not among the {len(model.users_)} fitted users, and {type(model).__name__} knows "
            "nothing about newcomers; fit PrefKin"
        )
    near = did_you_mean(model.users_.tolist(), user)
    out.print(f"{user} is not among the {len(model.users_)} fitted users, and is asked as a newcomer{near}")
    return model.session(None, shown.candidates, label=user)


def _talk(session: ActiveSession, shown: Shown, state: Path, tolerance: float) -> None:
    """Ask until there is nothing left to ask, or nobody wants to answer."""
    said_enough, left = False, None
    answers = _keys() if sys.stdin is not None and sys.stdin.isatty() else _lines()
    while True:
        interrupts.keep(f"{counted(session.n_answers, 'answer')} in {state}, and the same command goes on")
        enough = session.enough(tolerance)
        if enough and not said_enough:
            out.print(f"\n{enough}; you may go on, or quit with q")
        said_enough = bool(enough)
        if session.n_answers % EVERY == 0 or left is None:
            left = _more(session, tolerance)
        try:
            question = session.ask()
        except SessionError as error:
            out.print(f"\n{error}".split(";")[0])
            return
        _show(session, shown, question, "" if enough else _about(left, session.n_answers))
        answer = next(answers, QUIT)
        if answer == QUIT:
            return
        if answer == UNDO:
            if session.log:
                session.undo()
            else:
                out.print("there is no answer to take back")
                continue
        elif answer == SKIP:
            session.skip(question)
        else:
            session.tell(question, answer == FIRST)
        with interrupts.not_now(f"{counted(session.n_answers, 'answer')} in {state}, and the same command goes on"):
            session.save(state)


def _show(session: ActiveSession, shown: Shown, question: Any, about: str) -> None:
    width = min(out.width, 100)
    out.print(f"\n{session.n_answers + 1}. {shown.context(question.context)}{about}", style="bold")
    for mark, text in zip("12", shown.pair(question.context, question.first, question.second), strict=True):
        lines = [line for part in text.splitlines() for line in textwrap.wrap(part, width - 6) or [""]]
        for i, line in enumerate(lines):
            out.print(f"  {mark if i == 0 else ' '}  {line}")
    out.print(HELP, style="dim")
    out.file.flush()


def _lines() -> Iterator[str]:
    """Answers on the lines of a pipe or a file."""
    for number, line in enumerate(sys.stdin or ()):
        word = line.strip().lower()
        if word not in WORDS:
            raise InvalidParameter(
                f"line {number} (counted from 0) of the answers is {word!r:.40}; write 1 or left, 2 or right, s, u or q"
            )
        yield WORDS[word]


def _keys() -> Iterator[str]:
    """Answers by keys, without Enter."""
    while True:
        try:
            pressed = typer.getchar()
        except KeyboardInterrupt:
            signal.raise_signal(signal.SIGINT)  # Ctrl-C was a key among others
            raise
        except EOFError:
            return
        for key in re.findall(r"\x1b[\[O][A-Z]|[\s\S]", pressed):
            answer = WORDS.get(key) or WORDS.get(key.lower())
            if answer is None:
                err.print(HELP)
            else:
                yield answer


def _more(session: ActiveSession, tolerance: float) -> tuple[int, int] | None:
    """After how many answers it will be enough, and how many there are now: by people who may be this one.

    They are drawn from what is known and answer as they would, each until it is enough for them.
    """
    rng, until, found = np.random.default_rng(session.n_answers), time.monotonic() + PATIENCE, list[int]()
    for theta in session.belief.draws(PLAYERS, rng).T:
        play, n = session.copy(), 0
        while n < FURTHEST and not play.enough(tolerance, draws=100):
            if time.monotonic() > until:
                return (session.n_answers + int(np.median(found)), session.n_answers) if found else None
            try:
                question = play.ask()
            except SessionError:
                break
            play.tell(question, bool(rng.random() < expit(float(play.difference(question) @ theta))))
            n += 1
        found.append(n)
    return session.n_answers + int(np.median(found)), session.n_answers


def _about(left: tuple[int, int] | None, answered: int) -> str:
    """How much longer, in words."""
    if left is None:
        return ""
    last, then = left
    return f" (more than {FURTHEST} more)" if last - then >= FURTHEST else f" (about {max(last - answered, 1)} more)"


def _tell(session: ActiveSession, shown: Shown, state: Path) -> None:
    """What is kept, and what seems best by now."""
    if not session.log:
        out.print("no answer was given, nothing is kept")
        return
    best, cands = session.best_actions(), shown.candidates
    grid = table("what seems best now", "")
    for x in range(min(len(cands), RESULTS)):
        grid.add_row(shown.context(x)[:40], shown.brief(int(cands.starts[x]) + int(best[x])))
    out.print()
    out.print(grid)
    more = f"... {len(cands) - RESULTS} more contexts; " if len(cands) > RESULTS else ""
    out.print(f"{more}{counted(session.n_answers, 'answer')} in {state}; the same command goes on")
