"""All or nothing on disk, and nothing left behind."""

import errno
import os
from pathlib import Path

import pytest

from prefkin.data import storage
from prefkin.data.storage import replace_folder, write_atomically
from prefkin.errors import ModelFileError


@pytest.fixture(params=["nameless", "named"])
def files(request, monkeypatch):
    """As Linux has them, and as others do."""
    if request.param == "named":
        monkeypatch.setattr(storage, "_nameless", lambda _: None)
        monkeypatch.setattr(storage, "_exchanged", lambda *_: False)


@pytest.fixture
def full(monkeypatch):
    """A disk that takes one more file."""
    left = [1]

    def sync(_number):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", sync)


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.usefixtures("files")
def test_a_file_and_the_folders_above_it(tmp_path):
    for content in (b"one", b"two"):
        write_atomically(tmp_path / "a" / "b" / "c", content)
        assert tree(tmp_path) == {"a": None, "a/b": None, "a/b/c": content}
    with pytest.raises(ModelFileError, match="this is a folder"):
        write_atomically(tmp_path / "a", b"")


@pytest.mark.usefixtures("files")
def test_a_folder_is_replaced_and_nothing_of_former_times_stays(tmp_path):
    replace_folder(tmp_path / "x" / "kin", {"model": b"1", "picture": b"1"})
    (tmp_path / "x" / "kin").chmod(0o700)
    replace_folder(tmp_path / "x" / "kin", {"model": b"2", "summary": b"2"}, ours=("model", "summary", "picture"))
    expected = {"x": None, "x/kin": None, "x/kin/model": b"2", "x/kin/summary": b"2"}
    if storage._exchanged(tmp_path, tmp_path):  # elsewhere files are replaced one after the other
        assert tree(tmp_path) == expected
    assert expected.items() <= tree(tmp_path).items()
    assert (tmp_path / "x" / "kin").stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("files")
def test_files_of_others_stay(tmp_path, monkeypatch):
    (tmp_path / "votes.csv").write_bytes(b"theirs")
    (tmp_path / "old").write_bytes(b"ours")
    replace_folder(tmp_path, {"model": b"1"}, ours=("old",))
    assert tree(tmp_path) == {"votes.csv": b"theirs", "model": b"1"}
    (tmp_path / "kin").mkdir()
    monkeypatch.chdir(tmp_path / "kin")
    replace_folder(Path(), {"model": b"1"})
    assert Path("model").read_bytes() == b"1"  # the folder in which somebody stands is the same one


@pytest.mark.usefixtures("files", "full")
@pytest.mark.parametrize(
    "before", [{}, {"model": b"old", "summary": b"old"}, {"model": b"old", "votes.csv": b"theirs"}]
)
def test_a_full_disk_changes_nothing(tmp_path, before):
    if before:
        (tmp_path / "kin").mkdir()
    for name, content in before.items():
        (tmp_path / "kin" / name).write_bytes(content)
    was = tree(tmp_path)
    with pytest.raises(OSError, match="No space left") as told:
        replace_folder(tmp_path / "kin", {"model": b"new", "summary": b"new"})
    assert told.value.filename == str(tmp_path / "kin")
    assert tree(tmp_path) == was
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "p" / "q" / "r.csv", b"")
    assert tree(tmp_path) == was


@pytest.mark.usefixtures("files")
def test_what_cannot_be_put_in_its_place_leaves_no_trace(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "rename", refuse)
    monkeypatch.setattr(Path, "replace", refuse)
    for write in (
        lambda: replace_folder(tmp_path / "x" / "kin", {"model": b"1"}),
        lambda: write_atomically(tmp_path / "y" / "z", b""),
    ):
        with pytest.raises(PermissionError):
            write()
        assert tree(tmp_path) == {}
