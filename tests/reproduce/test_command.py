"""`prefkin reproduce` as a person meets it."""

import signal
import subprocess
import sys
import time

import polars as pl
import pytest

from tests.conftest import prefkin_says


def test_it_writes_rows_figures_and_a_report_and_goes_on_where_it_was(tmp_path):
    command = ("reproduce", "exp4", "--quick", "--runs", "2", "--processes", "1", "--out", "here")
    done = prefkin_says(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "overly small γ̂ merge unrelated users" in done.stdout
    names = {path.name for path in (tmp_path / "here").iterdir()}
    stem = "exp4_synthetic_quick"
    assert names == {
        f"{stem}.trials.jsonl",
        f"{stem}.parquet",
        f"{stem}_gap.png",
        f"{stem}_gap_logged.png",
        f"report_{stem}.md",
        f"report_{stem}.html",
    }
    page = (tmp_path / "here" / f"report_{stem}.md").read_text()
    assert "| paper says | we measured | verdict |" in page
    assert "strength = 8.0" in page
    before = (tmp_path / "here" / f"{stem}.trials.jsonl").read_bytes()
    again = prefkin_says(*command, cwd=tmp_path)
    assert again.returncode == 0
    assert "2 of 2 trials were finished before" in again.stderr
    assert (tmp_path / "here" / f"{stem}.trials.jsonl").read_bytes() == before
    assert pl.read_parquet(tmp_path / "here" / f"{stem}.parquet")["run"].unique().to_list() == [0, 1]


def test_what_it_cannot_run_is_one_line(tmp_path, monkeypatch):
    for args, message in (
        (("exp5",), "EXPERIMENT must be one of exp1, exp2, exp3, exp4 or all; got 'exp5'"),
        (("exp1", "--data", "moon"), "--data must be one of synthetic, tldr, ukp, jester, semi; got 'moon'"),
    ):
        done = prefkin_says("reproduce", *args, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr == f"prefkin: {message}\n"
    monkeypatch.setenv("PREFKIN_DATA", str(tmp_path))
    for data in ("tldr", "ukp", "jester"):
        done = prefkin_says("reproduce", "exp1", "--quick", "--data", data, "--processes", "1", cwd=tmp_path)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert "PREFKIN_DATA" in done.stderr


@pytest.mark.long
def test_an_interrupt_keeps_what_is_finished(tmp_path):
    command = [
        sys.executable,
        "-m",
        "prefkin",
        "reproduce",
        "exp4",
        "--quick",
        "--runs",
        "50",
        "--processes",
        "1",
        "--out",
        "here",
    ]
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    kept = tmp_path / "here" / "exp4_synthetic_quick.trials.jsonl"
    waited = time.monotonic() + 180
    while not (kept.exists() and kept.read_bytes().count(b"\n") >= 1):
        assert time.monotonic() < waited
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    said = running.communicate(timeout=180)[1]
    assert running.returncode == 130
    assert "of 50 trials are kept, and the same command goes on" in said
    assert "Traceback" not in said
