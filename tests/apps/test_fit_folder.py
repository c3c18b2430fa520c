"""`prefkin fit FOLDER`: what a person sees, and one line for all that may go wrong."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import prefkin
from prefkin.apps.cli.commands import run
from prefkin.data.shards import MANIFEST, shard_name
from prefkin.execution.executor import on_executor
from prefkin.models.prefkin.out_of_core import files
from tests.conftest import prefkin_says
from tests.folders import folder_of, people

FIT = [sys.executable, "-m", "prefkin", "fit"]


@pytest.fixture
def votes(tmp_path):
    return folder_of(people(rows=8), tmp_path / "votes")


def fit(monkeypatch, *args):
    monkeypatch.setattr(sys, "argv", ["prefkin", "fit", *map(str, args)])
    return run()


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_folder_is_fitted_and_loaded(votes, tmp_path, monkeypatch, capsys):
    assert fit(monkeypatch, votes, "--out", tmp_path / "kin", "--memory", "1GB") == 0
    told = capsys.readouterr()
    assert "2,080 comparisons by 260 users in 1 shard" in told.err
    assert "written to" in told.out
    model = prefkin.load(tmp_path / "kin")
    assert model.predict_proba(np.ones((2, 3)), users=[1, 2]).shape == (2, 2)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--compare", "--memory", "1GB"], "without --compare"),
        (["--memory", "much"], "takes a size such as 4GB"),
        (["--workers", "2", "--scheduler", "tcp://x:1"], "give one of them"),
    ],
)
def test_options_that_do_not_fit(votes, tmp_path, monkeypatch, capsys, more, words):
    assert fit(monkeypatch, votes, "--out", tmp_path / "kin", *more) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "kin").exists()


def test_a_folder_of_somebody_else_is_refused_before_the_work(votes, tmp_path, monkeypatch, capsys):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes.txt").write_text("theirs")
    before = contents(tmp_path)
    for out in (tmp_path / "theirs", votes):
        assert fit(monkeypatch, votes, "--out", out) == 2
        assert "which no fit wrote; give another folder" in capsys.readouterr().err.splitlines()[0]
    assert contents(tmp_path) == before


def test_a_fit_in_memory_is_followed_by_one_in_shards(votes, tmp_path, monkeypatch, capsys):
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "part.parquet").write_bytes(sorted(votes.glob("*.parquet"))[0].read_bytes())
    assert fit(monkeypatch, tmp_path / "some", "--gamma", "1", "--no-pictures", "--out", tmp_path / "kin") == 0
    assert (tmp_path / "kin" / "users.csv").exists()
    assert fit(monkeypatch, votes, "--out", tmp_path / "kin") == 0, capsys.readouterr().err
    assert not (tmp_path / "kin" / "users.csv").exists()
    # what is about everybody together is refused in words
    (tmp_path / "cands.csv").write_text("context,action,phi0,phi1,phi2\nx,a,1,0,0\nx,b,0,1,0\n")
    for command in (
        ("plan", "kin", "--candidates", "cands.csv", "--budget", "3", "--out", "plan.csv"),
        ("export", "kin", "--to", "reward-head", "--groups", "--out", "heads"),
    ):
        done = prefkin_says(*command, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "these people are in shards, not in memory" in done.stderr


@pytest.mark.long
def test_what_goes_wrong_is_one_line_and_the_former_model_stays(votes, tmp_path, monkeypatch, capsys):
    out = tmp_path / "kin"
    assert fit(monkeypatch, votes, "--out", out) == 0
    before = contents(out)
    home = next(path.parent for path in (tmp_path / "votes.shards").rglob(MANIFEST))
    file = home / shard_name(0)
    whole = file.read_bytes()

    def refused(words):
        capsys.readouterr()
        assert fit(monkeypatch, votes, "--out", out) == 2
        told = capsys.readouterr().err.strip().splitlines()
        assert words in told[-1]
        assert "Traceback" not in "".join(told)
        assert contents(out) == before

    def forget():
        import shutil

        shutil.rmtree(home / "fits", ignore_errors=True)

    forget()
    file.write_bytes(whole[:-100])
    refused("damaged")
    file.unlink()
    refused("gone")
    file.write_bytes(whole)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere")

    forget()
    monkeypatch.setattr(files, "write_atomically", full)
    refused("No space left on device")
    monkeypatch.undo()
    fcntl = pytest.importorskip("fcntl")
    assert fit(monkeypatch, votes, "--out", out) == 0
    before = contents(out)
    fits = next((home / "fits").iterdir())
    with (fits / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused("another run is at work")
    (out / "mine.txt").write_text("mine")
    before = contents(out)
    refused("mine.txt is in it")


@pytest.mark.long
def test_killed_at_any_moment_the_same_command_goes_on(votes, tmp_path):
    rng, shards_home = np.random.default_rng(0), tmp_path / "votes.shards"
    command = [*FIT, str(votes), "--out", str(tmp_path / "kin"), "--memory", "1KB"]
    whole = subprocess.run([*FIT, str(votes), "--out", str(tmp_path / "first"), "--memory", "1KB"], check=True)
    assert whole.returncode == 0
    import shutil

    shutil.rmtree(shards_home)
    kills, started = 0, time.monotonic()
    while kills < 20:
        child = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            if child.wait(timeout=float(rng.uniform(0.5, 6.0))) == 0:
                shutil.rmtree(shards_home)
                shutil.rmtree(tmp_path / "kin")
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.wait()
            kills += 1
        assert time.monotonic() - started < 500
    subprocess.run(command, check=True)
    people = [contents(tmp_path / name / "people") for name in ("first", "kin")]
    assert people[0] == people[1]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What is known about people when nobody dies."""
    folder = folder_of(people(rows=8), tmp_path_factory.mktemp("alone") / "votes")
    data = prefkin.open_comparisons(folder, rows_a_shard=200, memory=1)
    found = prefkin.PrefKin().fit(data)._in_shards.people
    return {shard_name(number): (found / shard_name(number)).read_bytes() for number in range(data.n_shards)}


@pytest.mark.integrations
@pytest.mark.parametrize("stage", ["first/sums-*", "second/sums-*", "third/sums-*", "people/sums-*"])
def test_two_workers_one_of_which_dies(votes, undisturbed, stage):
    """A worker killed in the middle of a stage: the same bytes, and nobody had to do anything."""
    distributed = pytest.importorskip("distributed")
    data = prefkin.open_comparisons(votes, rows_a_shard=200, memory=1)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        on_executor(client.get_executor(pure=False, retries=3)),
    ):
        workers = map(str, client.run(os.getpid).values())
        killer = subprocess.Popen([sys.executable, "-c", KILLER, str(data.home), stage, *workers])
        model = prefkin.PrefKin().fit(data)
        killer.wait()
    assert killer.returncode == 0
    assert {name: (model._in_shards.people / name).read_bytes() for name in undisturbed} == undisturbed


KILLER = """
import os, signal, sys, time
from pathlib import Path
while not list(Path(sys.argv[1]).rglob(sys.argv[2])):
    time.sleep(0.005)
os.kill(int(sys.argv[3]), signal.SIGKILL)
"""


@pytest.mark.integrations
def test_a_scheduler_that_cannot_be_reached(votes, tmp_path, monkeypatch, capsys):
    pytest.importorskip("distributed")
    from prefkin.execution import cluster

    monkeypatch.setattr(cluster, "PATIENCE", 1)
    assert fit(monkeypatch, votes, "--out", tmp_path / "kin", "--scheduler", "tcp://127.0.0.1:9") == 2
    assert "cannot be reached" in capsys.readouterr().err.splitlines()[-1]
    assert not Path(tmp_path / "kin").exists()


@pytest.mark.integrations
def test_workers_from_the_command_line(votes, tmp_path):
    pytest.importorskip("distributed")
    subprocess.run([*FIT, str(votes), "--out", str(tmp_path / "two"), "--workers", "2"], check=True)
    subprocess.run([*FIT, str(votes), "--out", str(tmp_path / "one")], check=True)
    assert contents(tmp_path / "one" / "people") == contents(tmp_path / "two" / "people")


def test_the_papers_algorithm_in_shards(votes, tmp_path, monkeypatch, capsys):
    assert fit(monkeypatch, votes, "--out", tmp_path / "off", "--gamma", "1", "--memory", "1GB") == 0
    assert "own estimates and radii of 260 users" in capsys.readouterr().out
    assert 7 in prefkin.load(tmp_path / "off").neighbours(7)


def test_tomorrows_answers_are_taken_in(votes, tmp_path, monkeypatch, capsys):
    kin, news = tmp_path / "kin", tmp_path / "tomorrow.csv"
    assert fit(monkeypatch, votes, "--out", kin, "--memory", "1GB") == 0
    news.write_text("user,z0,z1,z2,y\n3,1,0,0,1\n3,0,1,0,0\n777,0,0,1,1\n")
    capsys.readouterr()

    def update(*args):
        monkeypatch.setattr(sys, "argv", ["prefkin", "update", *map(str, args)])
        return run()

    assert update(kin, news) == 0
    assert "3 answers of 2 people taken in, 1 of them new" in capsys.readouterr().out
    model = prefkin.load(kin)
    assert model.comparisons(777).Z.shape == (1, 3)
    assert model.comparisons(3).Z.shape == (10, 3)
    for more, words in (((), "taken in before"), (("--refit",), "put the new files into their folder")):
        if more:
            news.write_text("user,z0,z1,z2,y\n4,1,0,0,1\n")
        before = contents(kin)
        assert update(kin, news, *more) == 2
        assert words in capsys.readouterr().err
        assert contents(kin) == before
