"""What the program leaves when output, disk or person end it early: everything or nothing, and one line."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import prefkin
from prefkin import OffC2PL, PrefKin
from tests.conftest import draw_answers, prefkin_says


@pytest.fixture(scope="module")
def votes(tmp_path_factory):
    path = tmp_path_factory.mktemp("votes") / "votes.csv"
    Z, y, users = draw_answers(np.random.default_rng(7), sizes=[20] * 4)
    pl.DataFrame({"user": users, "y": y, "z0": Z[:, 0], "z1": Z[:, 1], "z2": Z[:, 2]}).write_csv(path)
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """The file of a model."""
    Z, y, users = draw_answers(np.random.default_rng(7), sizes=[20] * 4)
    path = tmp_path_factory.mktemp("fitted") / "model.safetensors"
    PrefKin().fit(Z, y, users=users).save(path)
    return path


def start(*args, cwd, **options):
    command = [sys.executable, "-m", "prefkin", *map(str, args)]
    return subprocess.run(command, cwd=cwd, text=True, stdin=subprocess.DEVNULL, check=False, **options)


FIT = ("--gamma", "1", "--no-pictures", "--out", "kin")


@pytest.mark.long
def test_a_finished_fit_is_written_before_it_is_talked_about(votes, tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = start("fit", votes, *FIT, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert len(prefkin.load(tmp_path / "kin").users_) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["kin"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("stream", ["stdout", pytest.param("stderr", marks=pytest.mark.long)])
def test_output_that_cannot_be_written_costs_no_fit(votes, tmp_path, stream):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Path("/dev/full").open("w") as full:
        done = start("fit", votes, *FIT, cwd=tmp_path, **(streams | {stream: full}))
    assert len(prefkin.load(tmp_path / "kin").users_) == 4
    if stream == "stdout":
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == "prefkin: standard output: No space left on device"
        assert "Traceback" not in done.stderr
    else:
        assert done.returncode == 0
        assert "written to kin" in done.stdout


@pytest.mark.parametrize("args", [["--help"], ["fit", "--help"], []])
def test_nobody_needs_to_read_the_help_to_its_end(args):
    unread, written = os.pipe()
    os.close(unread)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "prefkin", *args], stdout=written, stderr=subprocess.PIPE, text=True
        )
    finally:
        os.close(written)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
def test_closed_streams_are_no_reason_to_fail(votes, tmp_path):
    command = f'"{sys.executable}" -m prefkin fit "{votes}" --gamma 1 --no-pictures --out kin >&- 2>&-'
    assert subprocess.run(command, shell=True, cwd=tmp_path, check=False).returncode == 0
    assert len(prefkin.load(tmp_path / "kin").users_) == 4


@pytest.mark.long
def test_a_terminal_that_lacks_a_character_is_no_reason_to_fail(tmp_path):
    OffC2PL(0.0).fit(np.eye(2), [1, 0], users=["Jos\u00e9", "b"]).save(tmp_path / "kin")
    (tmp_path / "c.csv").write_text("context,action,phi0,phi1\nx,caf\u00e9,1,0\nx,tea,0,1\n")
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = start(
        "rank", "kin", "--user", "Jos\u00e9", "--candidates", "c.csv", cwd=tmp_path, env=env, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "caf\\xe9" in done.stdout


@pytest.fixture
def full(monkeypatch):
    def sync(_number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", sync)


@pytest.mark.usefixtures("full")
def test_a_full_disk_is_one_line_and_leaves_the_former_fit(votes, tmp_path):
    for _ in range(2):
        before = sorted(tmp_path.rglob("*"))
        done = prefkin_says("fit", votes, *FIT, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == "prefkin: kin: No space left on device"
        assert sorted(tmp_path.rglob("*")) == before
        (tmp_path / "kin").mkdir(exist_ok=True)
        for name in ("model.safetensors", "summary.json"):
            (tmp_path / "kin" / name).write_bytes(b"former")
    assert (tmp_path / "kin" / "model.safetensors").read_bytes() == b"former"


def test_a_place_where_nothing_can_be_written_is_refused_before_the_work(votes, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    done = prefkin_says("fit", votes, "--out", "file/kin", cwd=tmp_path)
    assert done.stderr == f"prefkin: --out file/kin: {tmp_path}/file is a file; give a folder\n"
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
    done = prefkin_says("fit", votes, *FIT, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"prefkin: --out kin: nothing can be written in {tmp_path}; give another place\n"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_pictures_of_a_former_fit_do_not_stay_beside_a_new_one(votes, tmp_path):
    (tmp_path / "kin").mkdir()
    for name in ("model.safetensors", "summary.json", "reliability.png"):
        (tmp_path / "kin" / name).write_bytes(b"former")
    assert prefkin_says("fit", votes, *FIT, cwd=tmp_path).returncode == 0
    now = ["groups.csv", "model.safetensors", "summary.json", "users.csv"]
    assert sorted(path.name for path in (tmp_path / "kin").iterdir()) == now
    (tmp_path / "kin" / "notes.txt").write_text("mine")
    assert prefkin_says("fit", votes, *FIT, cwd=tmp_path).returncode == 0
    assert (tmp_path / "kin" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        (("fit", "kin/summary.json", "--gamma", "1", "--out", "kin"), "kin/summary.json"),
        (("plan", "kin", "--candidates", "c.json", "--budget", "3", "--out", "c.json"), "c.json"),
        (("plan", "kin", "--candidates", "c.json", "--budget", "3", "--out", "kin/model.safetensors"), None),
        (("predict", "kin", "--pairs", "votes.csv", "--out", "kin/users.csv"), "kin/users.csv"),
        (("embed", "c.json", "--encoder", "any", "--out", "t.parquet", "--cache", "c.json"), "c.json"),
        (("embed", "c.json", "--encoder", "any", "--out", "t.parquet", "--cache", "t.parquet"), "t.parquet"),
        (("export", "kin", "--to", "argilla", "--candidates", "c.json", "--out", "c.json"), "c.json"),
        (("export", "kin", "--to", "argilla", "--candidates", "c.json", "--out", "kin/summary.json"), None),
        (("export", "kin", "--to", "argilla", "--candidates", "c.json", "--plan", "p.json", "--out", "p.json"), None),
        (("answers", "store.csv", "--out", "store.csv"), None),
    ],
)
def test_nothing_overwrites_what_it_is_made_from(votes, fitted, tmp_path, command, kept):
    (tmp_path / "kin").mkdir()
    (tmp_path / "kin" / "model.safetensors").write_bytes(fitted.read_bytes())
    row = {"user": 1, "y": 1, "context": "x", "first": "a", "second": "b", "z0": 1.0, "z1": 0.0, "z2": 0.0}
    actions = [{"context": "x", "action": name, "text": name, "phi": [i, 1, 0]} for i, name in enumerate("ab")]
    (tmp_path / "c.json").write_text(json.dumps(actions))
    for name in ("p.json", "kin/summary.json"):
        (tmp_path / name).write_text(json.dumps([row, row | {"y": 0}]))
    for name in ("votes.csv", "kin/users.csv", "store.csv"):
        (tmp_path / name).write_bytes(votes.read_bytes())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = prefkin_says(*command, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{kept or command[-1]}: this is what is " in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_ranking_does_not_overwrite_what_it_is_made_from(tmp_path):
    OffC2PL(0.0).fit(np.eye(2), [1, 0], users=["a", "b"]).save(tmp_path / "kin" / "model.safetensors")
    (tmp_path / "c.csv").write_text("context,action,phi0,phi1\nx,p,1,0\nx,q,0,1\n")
    (tmp_path / "also.csv").hardlink_to(tmp_path / "c.csv")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for csv in ("c.csv", "also.csv", "./kin/../c.csv", "kin/model.safetensors"):
        done = prefkin_says("rank", "kin", "--user", "a", "--candidates", "c.csv", "--csv", csv, cwd=tmp_path)
        assert done.returncode == 2
        assert "this is what is read; give another file" in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("content", [b"\x1b[31m:smile:", b"a]["])
def test_labels_are_printed_as_they_are(tmp_path, content):
    label = content.decode()
    OffC2PL(0.0).fit(np.eye(2), [1, 0], users=[label, "b"]).save(tmp_path / "kin")
    (tmp_path / "c.csv").write_text(f"context,action,phi0,phi1\nx,{label},1,0\nx,q,0,1\n")
    done = prefkin_says("rank", "kin", "--user", label, "--candidates", "c.csv", cwd=tmp_path)
    assert label.removeprefix("\x1b") in done.stdout


def test_what_nobody_foresaw_is_one_line_too(votes, tmp_path, monkeypatch):
    def fail(*_args, **_kwargs):
        raise RuntimeError("something\nodd")

    monkeypatch.setattr("prefkin.models.off_c2pl.estimator.OffC2PL.fit", fail)
    done = prefkin_says("fit", votes, *FIT, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("prefkin: unexpected RuntimeError: something odd; a fault of prefkin")
    assert done.stderr.count("\n") == 1
    monkeypatch.setenv("PREFKIN_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        prefkin_says("fit", votes, *FIT, cwd=tmp_path)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--gamma", "1", "--regularity", "0.1,0.05,99999999999999999999"), "no information is left"),
        (("--gamma", "1", "--ridge", "1e-320"), ""),
        (("--gamma", "1", "--kappa", "1e-300"), ""),
        (("--gamma", "1e308", "--alpha", "1e308"), ""),
        (("--gamma", "1", "--delta", "1e-320"), ""),
    ],
)
def test_huge_values_of_options_work_or_are_refused(votes, tmp_path, args, message):
    done = prefkin_says("fit", votes, "--no-pictures", "--out", "kin", *args, cwd=tmp_path)
    assert message in done.stderr
    assert "unexpected" not in done.stderr
    assert done.returncode in (0, 2)


def test_weights_beyond_all_measure_are_refused_by_row(votes, tmp_path):
    pl.read_csv(votes).with_columns(weight=pl.Series([1e10] + [1.0] * 79)).write_csv(tmp_path / "w.csv")
    done = prefkin_says("audit", "w.csv", cwd=tmp_path)
    assert done.stderr == (
        "prefkin: w.csv: a weight is beyond 1e9 in row 0 (counted from 0); divide all weights by the same number\n"
    )


def test_a_damaged_file_of_a_library_that_panics_is_one_line(tmp_path, monkeypatch):
    def panic(_source):
        os.write(2, b"thread panicked\n  0: backtrace\n")
        raise pl.exceptions.PanicException("called unwrap()")

    pl.DataFrame({"user": ["a"], "y": [1], "z0": [1.0]}).write_parquet(tmp_path / "v.parquet")
    monkeypatch.setattr(pl, "read_parquet", panic)
    done = prefkin_says("audit", "v.parquet", cwd=tmp_path)
    assert done.stderr == "prefkin: v.parquet: not a readable .parquet file: called unwrap()\n"


def test_a_library_that_gives_up_while_reading_is_one_line_that_names_the_file(tmp_path):
    program = (
        "import os; from pathlib import Path; from prefkin.apps.cli.console import without_panics\n"
        "with without_panics(Path('votes.parquet')):\n    os.write(2, b'stack backtrace'); os.abort()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "prefkin: votes.parquet is damaged: it cannot be read\n"
