"""The rows of `prefkin bench` on small sizes: every call is made, what is compared reaches the same tolerance."""

import time

import numpy as np
import pytest
from typer.testing import CliRunner

from prefkin.apps.cli.commands import app
from prefkin.errors import InvalidParameter
from prefkin.reproduce import speed
from prefkin.reproduce.speed import STAGES, Instead, Row, by_sklearn, draw, measured, peak_memory, run, table


def test_the_table_gives_the_ratio_with_its_range():
    row = Row("fit", "U=10", [1.0, 2.0], 3.0, "a loop", [8.0, 12.0], "2 of 10", "gradients 2e-07, 1e-07", "graph 0.4")
    assert (
        "| fit | U=10 | 1.5 | 3 | a loop | 10 | 2 of 10 | 7 (6 to 8) | gradients 2e-07, 1e-07 | graph 0.4 |"
    ) in table([row])
    assert table([Row("explain", "", [0.5])]).splitlines()[-1].split("|")[1:5] == [" explain ", "  ", " 0.5 ", "  "]


def test_what_was_run_in_part_is_scaled():
    def work(seconds=0.02):
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass

    row = measured("sleep", "", work, Instead("ten times", [(work, 7.0), (work, 3.0)]), lambda _: "fine", repeats=3)
    assert 5 < np.median(row.its_seconds) / np.median(row.seconds) < 20
    assert (len(row.seconds), row.checked) == (3, "fine")


def test_memory_is_what_the_process_grew_by():
    grown = peak_memory(lambda: np.ones(20_000_000).sum())
    assert np.isnan(grown) or 100 < grown < 400


def test_the_loop_reaches_the_tolerance():
    Z, y, _ = draw(1, 60, 5)
    assert speed.relative_gradient(Z * np.logspace(0, -2, 5), y, by_sklearn(Z * np.logspace(0, -2, 5), y)) <= 1.1e-6


@pytest.mark.parametrize("stage", sorted(set(STAGES) - {"start"}))
def test_every_stage_measures_and_checks_its_calls(stage, tmp_path):
    text = run([stage], tmp_path, quick=True)
    assert (tmp_path / "performance.md").read_text() == text
    lines = [line.split(" | ") for line in text.splitlines()[2:]]
    assert lines
    for line in lines:
        assert len(line) == 10
        assert float(line[2]) >= 0
        if line[8].startswith("gradient"):
            reached = [float(number) for number in line[8].partition(" ")[2].partition(";")[0].split(", ")]
            assert max(reached) <= 1.1e-6


def test_processes_are_compared_in_turns(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(
        speed, "process", lambda *args, env=None, cwd=None: float(seen.append((args, env)) or len(seen))
    )
    text = run(["start"], tmp_path, quick=True)
    first, again = (env for _, env in seen if env)
    assert first == again
    assert first["NUMBA_CACHE_DIR"]
    for call in ("import prefkin", "prefkin --help", "prefkin fit", "after installation"):
        assert call in text


def test_a_process_of_its_own_is_timed():
    assert 0.001 < speed.process("-c", "pass") < speed.process("-c", "sum(range(10**7))")
    with pytest.raises(RuntimeError, match="ended with 3"):
        speed.process("-c", "raise SystemExit(3)")


def test_an_unknown_stage_is_one_line():
    result = CliRunner().invoke(app, ["bench", "nothing"])
    assert isinstance(result.exception, InvalidParameter)
    with pytest.raises(InvalidParameter, match="unknown stage 'nothing'; give some of alone, joined,"):
        raise result.exception
