"""Nothing is lost: a small round of what `benchmarks/annotate_kills.py` does a hundred times."""

import numpy as np
import polars as pl
import pytest

from tests.apps.annotate.kills import kill_round

pytestmark = pytest.mark.annotate


def write_items(folder):
    rng = np.random.default_rng(0)
    pl.DataFrame(
        {
            "context": np.repeat([f"story {x}" for x in range(200)], 3),
            "action": list("abc") * 200,
            "text": [f"Text {i}" for i in range(600)],
            **{f"phi{i}": rng.standard_normal(600) for i in range(5)},
        }
    ).write_csv(folder / "items.csv")


def test_sqlite_loses_nothing_when_the_server_is_killed(tmp_path):
    write_items(tmp_path)
    _, acknowledged, problems = kill_round(tmp_path, str(tmp_path / "answers.db"), kills=3)
    assert not problems
    assert acknowledged > 100


def test_postgresql_loses_nothing_when_server_or_database_are_killed(postgres, tmp_path):
    write_items(tmp_path)
    _, acknowledged, problems = kill_round(tmp_path, postgres.database("kills"), kills=4, cluster=postgres)
    assert not problems
    assert acknowledged > 100
