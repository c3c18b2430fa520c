"""What the commands share: the console, progress bars, reading arguments, writing a folder."""

from __future__ import annotations

import ctypes
import difflib
import os
import signal
import tempfile
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from prefkin.apps.cli import interrupts
from prefkin.apps.cli.output import Voice
from prefkin.apps.shown import Shown, read_shown
from prefkin.data.candidates import Candidates
from prefkin.data.checks import in_file
from prefkin.data.columns import BEFORE_FEATURES
from prefkin.data.comparisons import Comparisons
from prefkin.data.formats import WRITABLE, read_columns
from prefkin.data.storage import replace_folder, write_atomically
from prefkin.data.tables import SIDES, Unanswered, read_comparisons
from prefkin.data.votes import Votes, read_votes
from prefkin.errors import ConvergenceError, InvalidParameter, PrefkinError, PrefkinWarning, UnknownUser
from prefkin.execution.progress import reporting
from prefkin.models.files import ENCODER_FILE, IN_SHARDS, MODEL_FILE
from prefkin.models.reports import counted

# markup and emoji are off: what users typed may hold brackets and colons; our own words ask with markup=True or style=
out = Voice(highlight=False, soft_wrap=True, markup=False, emoji=False)
err = Voice(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)

ITEMS_FILE = "items.csv"
"""Items with the factors that were learnt for them; what `rank` and questions take as candidates."""
SUMMARY_FILE = "summary.json"
"""Written first: by it a folder is known to be of a fit."""
WRITTEN = (
    MODEL_FILE,
    IN_SHARDS,
    SUMMARY_FILE,
    ENCODER_FILE,
    ITEMS_FILE,
    "users.csv",
    "groups.csv",
    *(f"{name}.png" for name in ("users", "estimates", "coverage", "questions", "reliability")),
)
"""Everything that a fit may write; of a former fit nothing stays."""
Described = TypeVar("Described", Candidates, Comparisons, Unanswered)


@contextmanager
def working() -> Iterator[None]:
    """Show progress bars on stderr while the library works, and print our warnings as one line each."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", PrefkinWarning)
        tasks: dict[str, Any] = {}

        def show(label: str, done: int, total: int) -> None:
            interrupts.check()
            if label not in tasks:
                tasks[label] = progress.add_task(label, total=total)
            progress.update(tasks[label], completed=done, total=total)

        with reporting(show):
            yield
    ours = [warning.message for warning in caught if issubclass(warning.category, PrefkinWarning)]
    for message in dict.fromkeys(map(str, ours)):
        err.print("note: ", style="yellow", end="")
        err.print(message)


def column_map(pairs: list[str]) -> dict[str, str]:
    """`--map user=worker` as a mapping."""
    mapping = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs):
            raise InvalidParameter(f"--map takes OURS=THEIRS, for example user=worker; got {pair!r}")
        if "," in theirs and "=" in theirs:  # as --features would be given
            raise InvalidParameter(f"--map takes one OURS=THEIRS, got {pair!r}; give --map again for each column")
        mapping[ours] = theirs
    return mapping


def listed(text: str | None) -> tuple[str, ...] | None:
    """`--features tone,length` as names."""
    names = None if text is None else tuple(name.strip() for name in text.split(","))
    if names is not None and not all(names):
        raise InvalidParameter(f"names are separated by single commas, as in tone,length; got {text!r}")
    return names


def comparisons_from(
    file: Path,
    mapping: list[str],
    features: tuple[str, ...] | None,
    items: Path | None,
    drop: list[str],
    names: str | None = None,
    yes: str | None = None,
    ties: str | None = None,
) -> Comparisons:
    """Read a comparisons file, name its features, and say what was left out."""
    with working(), without_panics(file):
        data = read_comparisons(
            file,
            column_map(mapping),
            features=features,
            items=items,
            drop=tuple(drop),
            ties=ties,
            positive=yes,
        )
    if (given := listed(names)) is not None:
        if len(given) != data.dim:
            raise InvalidParameter(f"--names gives {len(given)} names for {data.dim} features; give one for each")
        data = replace(data, feature_names=given)
    for reason, count in data.dropped.items():
        err.print(f"note: left out {counted(count, 'row')} ({reason})")
    return data


def find_user(labels: list[Any], wanted: str, option: str = "--user") -> Any:
    """The label that reads as `wanted` on the command line."""
    found = [label for label in labels if str(label) == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownUser(f"{len(found)} users read as {wanted!r} ({', '.join(map(repr, found))}); use the library")
    known = ", ".join(f"{label!s:.60}" for label in labels[:8]) + (", ..." if len(labels) > 8 else "")
    raise UnknownUser(
        f"{option} {wanted!r:.60} is not among the {len(labels)} fitted users: {known}{did_you_mean(labels, wanted)}"
    )


def did_you_mean(labels: list[Any], wanted: str) -> str:
    """Somebody whose label reads almost so.

    >>> did_you_mean(["Ada", "Ben"], "ada")
    "; did you mean 'Ada'?"
    """
    reads = {str(label).casefold(): str(label) for label in labels}
    near = difflib.get_close_matches(wanted.casefold(), reads, 1, 0.75)
    return f"; did you mean {reads[near[0]]!r:.60}?" if near else ""


def known_as(labels: list[Any], wanted: list[Any]) -> list[Any]:
    """For each wanted label the fitted one that it names, or None: the same, or the only one that reads the same.

    A CSV file knows only text, whatever the model was fitted on.
    """
    same, reads = {label: label for label in labels}, dict[str, list[Any]]()
    for label in labels:
        reads.setdefault(str(label), []).append(label)

    def find(label: Any) -> Any:
        alike = reads.get(str(label), [])
        return same.get(label, alike[0] if len(alike) == 1 else None)

    return [find(label) for label in wanted]


def as_fitted(model: Any, file: Path, given: Described) -> Described:
    """What is predicted, ranked or learnt from, described as what was fitted: the same features in the same order."""
    with in_file(file):
        described = given.described_by(model.feature_names_)
    if given.dim != model.n_features_in_:
        raise InvalidParameter(
            f"{file} has {given.dim} features, but the model was fitted with {model.n_features_in_}; "
            "describe both in the same way"
        )
    return described


def features_for(model: Any, file: Path, given: str | None) -> tuple[str, ...] | None:
    """The columns that were named; otherwise those of the fit, where the file has them, maybe of both sides."""
    names: tuple[str, ...] | None = model.feature_names_
    if given is not None or names is None:
        return listed(given)
    with in_file(file), without_panics(file):
        columns = read_columns(file)
    starts = ("", *(f"{one}_" for one, _ in (*BEFORE_FEATURES, SIDES[2])))
    return names if any(all(start + name in columns for name in names) for start in starts) else None


def candidates_for(model: Any, file: Path, mapping: dict[str, str], features: str | None) -> Shown:
    """Candidates that are described as what the model was fitted on, with their texts."""
    with without_panics(file):
        shown = read_shown(file, mapping, features_for(model, file, features))
    candidates = as_fitted(model, file, shown.candidates)
    return replace(shown, candidates=candidates, feature_names=candidates.feature_names or model.feature_names_)


def votes_of(model: Any, file: Path, columns: dict[str, str]) -> Votes:
    """The `--votes` that a model was fitted on."""
    with without_panics(file):
        votes = read_votes(file, columns, features_for(model, file, None))
    return replace(votes, data=as_fitted(model, file, votes.data))


def print_lines(text: str) -> None:
    """The first line stands out."""
    first, *rest = text.splitlines()
    out.print(first, style="bold")
    for line in rest:
        out.print(line)


def table(*headings: str, title: str | None = None) -> Table:
    """A plain table; the first column to the left, numbers to the right."""
    grid = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i, heading in enumerate(headings):
        grid.add_column(heading, justify="left" if i == 0 else "right", header_style="dim")
    return grid


def check_folder(folder: Path, written: Collection[str] = (), *signs: str) -> None:
    """Can there be such a folder? Asked before the work, not after it.

    Files of the names that are `written` are only replaced beside one of the `signs` that the same command wrote them.
    """
    if not folder.name and folder != Path("/"):
        raise InvalidParameter(f"--out {folder}: the folder is replaced as a whole; give one with a name of its own")
    if folder.exists() and not folder.is_dir():
        raise InvalidParameter(f"--out {folder}: there is a file of that name; give a folder")
    foreign = next((name for name in written if (folder / name).exists()), None)
    if foreign is not None and not any((folder / sign).exists() for sign in signs):
        raise InvalidParameter(
            f"--out {folder}: there is a {foreign} that this command did not write; give another folder"
        )
    check_place("--out", folder)


def check_place(option: str, path: Path) -> None:
    """Can something be written there? Not where a file stands in the way, nor in a folder that is read-only."""
    above = next(each for each in (path, *path.absolute().parents) if each.exists() and (each != path or each.is_dir()))
    if not above.is_dir():
        raise InvalidParameter(f"{option} {path}: {above} is a file; give a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InvalidParameter(f"{option} {path}: nothing can be written in {above}; give another place")


def refuse_sources(option: str, path: Path, sources: Iterable[Path | None]) -> None:
    """What is written must not take the place of what it is made from: a file, or one that a fit wrote in a folder."""
    if not path.exists():
        return
    for source in sources:
        for each in () if source is None else (source, *(source / name for name in WRITTEN)):
            if each.exists() and path.samefile(each):
                raise InvalidParameter(f"{option} {path}: this is what is read; give another file")


def check_file(option: str, path: Path, sources: Iterable[Path | None], suffixes: Sequence[str] = WRITABLE) -> None:
    """Can this file be written, in one of these formats (none: any), and is it none of the sources?"""
    refuse_sources(option, path, sources)
    if suffixes and file_format(path) not in suffixes:
        known = " or ".join(filter(None, [", ".join(suffixes[:-1]), suffixes[-1]]))
        raise InvalidParameter(f"{option} {path}: give a name that ends in {known}")
    check_place(option, path.absolute().parent)


def file_format(path: Path) -> str:
    """The end of the file's name; what is no file (a pipe, a device) gets CSV."""
    return ".csv" if path.exists() and not path.is_file() else path.suffix.lower()


def write_folder(folder: Path, contents: dict[str, bytes], ours: Collection[str] = ()) -> None:
    """Write finished files, all of them or none; of `ours`, written in former times, others go."""
    for name in contents:
        if (folder / name).is_dir():
            raise InvalidParameter(f"--out {folder}: {name} is a folder there; remove it or give another folder")
    with interrupts.not_now(f"{folder} is written"):
        replace_folder(folder, contents, ours)


def write_file(path: Path, content: bytes) -> None:
    """Write one finished file as a whole."""
    with interrupts.not_now(f"{path} is written"):
        write_atomically(path, content)


@contextmanager
def about(file: Path) -> Iterator[None]:
    """Put the name of the file before what is wrong with the comparisons in it; options are not about the file."""
    try:
        yield
    except InvalidParameter:
        raise
    except PrefkinError as error:
        raise type(error)(f"{file}: {error}") from None
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        raise ConvergenceError(
            f"{file}: its numbers are beyond what can be computed with ({error}); bring features and weights near 1"
        ) from None


@contextmanager
def without_panics(file: Path) -> Iterator[None]:
    """Hold back what libraries write to stderr by themselves; it is dropped if the reading ends in an error of ours.

    Damage can make the Parquet reader ask for more memory than there is, and then it ends the process by a signal that
    Python does not hear: only a handler of the C library can still say which file it was.
    """
    try:
        stderr = os.dup(2)
    except OSError:  # closed
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)

        def say(_: int) -> None:
            os.write(stderr, f"prefkin: {file} is damaged: it cannot be read\n".encode(errors="backslashreplace"))
            os._exit(2)

        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(say)
        before = _on_abort(ctypes.cast(handler, ctypes.c_void_p))
        try:
            yield
            held.seek(0)
            with suppress(OSError):
                os.write(stderr, held.read())
        finally:
            _on_abort(before)
            os.dup2(stderr, 2)
            os.close(stderr)


def _on_abort(handler: Any) -> Any:
    """What the C library does when a library gives up; returns what it did before."""
    try:
        change = ctypes.CDLL(None).signal
    except (OSError, TypeError, AttributeError):  # none that we know
        return None
    change.restype, change.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    return change(signal.SIGABRT, handler)
