import re

import numpy as np
import pytest
from typer.testing import CliRunner

import prefkin.reproduce.speed
from prefkin.apps.cli.commands import app
from prefkin.errors import InvalidParameter
from prefkin.inference import compiled
from prefkin.reproduce.speed import GROWTH, Figure, Growth, Peer, peak_memory, run, table


def test_the_table_gives_each_peer_its_ratio_with_its_range():
    peer = Peer("a loop", [8.0, 12.0], "2 of 10", 1e-7)
    text = table([Figure("own", "U=10", [1.0, 2.0], 3.0, [peer], 2e-7)], 0.5)
    assert "| own | U=10 | 1.5 | 3 | a loop | 10 | 2 of 10 | 7 (6 to 8) | 2e-07, 1e-07 |" in text


def test_memory_is_what_the_process_grew_by():
    grown = peak_memory(lambda: np.ones(20_000_000).sum())
    assert np.isnan(grown) or 100 < grown < 400


def test_peers_that_are_compared_reach_the_same_tolerance():
    rows = prefkin.reproduce.speed.draw_users(1, 60, 5, "ill", np.random.default_rng(0)).rows
    for fit in prefkin.reproduce.speed.LOOPS.values():
        assert prefkin.reproduce.speed.relative_gradient(rows, fit(rows)) <= 1.1e-6


def test_a_run_writes_table_and_picture(monkeypatch, tmp_path):
    monkeypatch.setattr(prefkin.reproduce.speed, "growth", lambda quick: [Growth("users", [1, 2], [0.1, 0.2])])
    before = compiled.WORTH_LOADING
    text = run(["pooled", GROWTH], tmp_path, quick=True)
    assert before == compiled.WORTH_LOADING
    assert (tmp_path / "performance.md").read_text() == text
    assert (tmp_path / "growth.png").read_bytes()[:4] == b"\x89PNG"
    assert re.search(r"\| users, 1 to 2 \| 1.00 \|", text)


def test_algorithm_1_on_many_users_is_measured(tmp_path):
    text = run(["large"], tmp_path, quick=True)
    assert "one user" in text
    assert "everybody joined" in text
    assert not (tmp_path / "growth.png").exists()


def test_an_unknown_stage_is_one_line():
    result = CliRunner().invoke(app, ["bench", "nothing"])
    assert isinstance(result.exception, InvalidParameter)
    with pytest.raises(InvalidParameter, match="unknown stage 'nothing'; give some of machine, own,"):
        raise result.exception
