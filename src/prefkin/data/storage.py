"""Files and folders that are written as a whole or not at all, and user labels as JSON.

What is to be written gets to the disk first, without a name: a full disk or the end of the program leaves nothing
behind. Then it is named, and that is a matter of microseconds.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from prefkin.errors import ModelFileError, ShardError

__all__ = [
    "held_alone",
    "label_from_json",
    "label_to_json",
    "linked_folder",
    "refuse_foreign",
    "replace_folder",
    "write_atomically",
]

OF_A_FIT = (
    *("model.safetensors", "crowd.safetensors", "people", "later", "encoder.json"),
    *("summary.json", "users.csv", "groups.csv", "items.csv"),
)
"""What fits write, in memory and in shards; and pictures."""


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file as a whole or not at all; what is no regular file (a pipe, a device) is written into.

    What is not `durable` outlives the end of the program, but perhaps not that of the machine.
    """
    if path.exists() and not path.is_file():
        if path.is_dir():
            raise ModelFileError(f"{path}: this is a folder; give the name of a file")
        with _told_of(path):
            path.write_bytes(content)
        return
    with _told_of(path), _on_disk({path.name: content}, _nearest(path.parent), durable) as name_it, _parents(path):
        name_it(path.name, path)


def replace_folder(folder: Path, contents: Mapping[str, bytes], ours: Collection[str] = ()) -> None:
    """Write files into a folder, all of them or none; files of former times (`ours`) that are not among them go.

    A folder that holds nothing else is replaced by a new one. Where other files are, or somebody stands in it, files
    change one after the other, when all of them are on the disk.
    """
    target = folder.resolve()
    with _told_of(folder):
        if not _can_be_replaced(target, {*contents, *ours}):
            with _on_disk(contents, target) as name_it:
                for name in contents:
                    name_it(name, target / name)
            for name in set(ours) - set(contents):
                (target / name).unlink(missing_ok=True)
            return
        with _on_disk(contents, _nearest(target.parent)) as name_it, _parents(target):
            fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
            try:
                fresh.mkdir()
                for name in contents:
                    name_it(name, fresh / name)
                _put_in_place(fresh, target)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)  # what was there before, or what could not be put there


def refuse_foreign(folder: Path) -> None:
    """A folder whose place is taken as a whole must hold nothing but what a fit wrote."""
    if folder.exists() and not folder.is_dir():
        raise ModelFileError(f"{folder}: there is a file of that name; give a folder")
    for entry in folder.iterdir() if folder.exists() else ():
        if entry.name not in OF_A_FIT and entry.suffix != ".png":
            raise ModelFileError(f"{folder}: {entry.name} is in it, which no fit wrote; give another folder")


def linked_folder(folder: Path, contents: Mapping[str, bytes], links: Mapping[str, Path]) -> None:
    """A folder of files, some of which are there already and get a second name; it takes the place of a former one."""
    target = folder.resolve()
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    refuse_foreign(folder)
    with _told_of(folder), _parents(target):
        try:
            for name, source in links.items():
                place = fresh / name
                place.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(source, place)
                except FileNotFoundError:
                    raise ShardError(f"{source}: this shard is gone; fit again") from None
                except OSError:  # another file system, or one without links
                    shutil.copyfile(source, place)
            for name, content in contents.items():
                write_atomically(fresh / name, content)
            if not target.exists():
                fresh.rename(target)
            elif not _exchanged(fresh, target):
                target.rename(old := target.with_name(f".{target.name}.{secrets.token_hex(4)}"))
                fresh.rename(target)
                shutil.rmtree(old)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)  # what was there before, or what could not be put there


def _can_be_replaced(target: Path, names: Collection[str]) -> bool:
    """Nothing else is in it, nobody stands in it, and its place can be taken."""
    if not target.exists():
        return True
    if not {entry.name for entry in target.iterdir()} <= set(names) or os.path.ismount(target):
        return False
    with suppress(OSError):  # a working directory that was deleted
        if Path.cwd().is_relative_to(target):
            return False
    return os.access(target.parent, os.W_OK | os.X_OK)


def _put_in_place(fresh: Path, target: Path) -> None:
    """`fresh` becomes `target`; if there is one already, that becomes `fresh`."""
    if not target.exists():
        fresh.rename(target)
        return
    shutil.copymode(target, fresh)
    if not _exchanged(fresh, target):
        for file in list(fresh.iterdir()):
            file.replace(target / file.name)


def _exchanged(one: Path, other: Path) -> bool:
    """Swap two names at once; Linux can."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


@contextmanager
def _on_disk(
    contents: Mapping[str, bytes], folder: Path, durable: bool = True
) -> Iterator[Callable[[str, Path], None]]:
    """Contents written in the file system of `folder`, nameless where it can; the function that names one of them."""
    with ExitStack() as undo:
        held: dict[str, tuple[int | None, Path]] = {}
        for name, content in contents.items():
            number, temporary = _nameless(folder), folder / f".{name}.{secrets.token_hex(4)}"
            if number is None:
                undo.callback(temporary.unlink, missing_ok=True)
            file = undo.enter_context(temporary.open("xb") if number is None else os.fdopen(number, "wb"))
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            if number is None:
                file.close()  # it is renamed, which not every system does with open files
            held[name] = number, temporary

        def name_it(name: str, path: Path) -> None:
            number, temporary = held[name]
            if number is not None:
                temporary = path.with_name(temporary.name)
                os.link(f"/proc/self/fd/{number}", temporary, src_dir_fd=number, follow_symlinks=True)
            try:
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise

        yield name_it


def _nameless(folder: Path) -> int | None:
    """The number of an open file without a name, or None where there are no such files."""
    if not (hasattr(os, "O_TMPFILE") and Path("/proc/self/fd").exists()):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            return None
        raise


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(each for each in (folder, *folder.parents) if each.exists())


@contextmanager
def _parents(path: Path) -> Iterator[None]:
    """Folders above `path`, made for what happens inside and taken back if it fails."""
    missing = [each for each in path.parents if not each.exists()]
    try:
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
        yield
    except BaseException:
        for each in missing:
            with suppress(OSError):
                each.rmdir()
        raise


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """Errors of the system name the file that was to be written, not one that helped."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


@contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """Nobody else works in this folder meanwhile; the system forgets about those who were killed."""
    try:
        import fcntl  # not on Windows, where two runs are not told apart
    except ImportError:
        yield
        return
    with _told_of(folder), (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ShardError(f"{folder}: another run is at work here; wait for it, or give another folder") from None
        yield


def label_to_json(label: Hashable) -> Any:
    """A user label as a JSON value that can be told apart from its text.

    >>> label_to_json(("group", 1))
    {'tuple': ['group', 1]}
    """
    if isinstance(label, np.generic):
        label = label.item()
    if label is None or isinstance(label, str | bool | int | float):
        return label
    if isinstance(label, tuple):
        return {"tuple": [label_to_json(part) for part in label]}
    raise ModelFileError(
        f"a user label of type {type(label).__name__} ({label!r:.40}) cannot be stored; "
        "use text, numbers, or tuples of them"
    )


def label_from_json(value: Any) -> Any:
    """The label that `label_to_json` wrote."""
    return tuple(label_from_json(part) for part in value["tuple"]) if isinstance(value, dict) else value
