"""A method and a plan of one's own, in files outside the package."""

import re
from pathlib import Path

import polars as pl
import pytest

from prefkin.reproduce.contracts import METHODS
from prefkin.reproduce.plan import FOLDER
from tests.conftest import prefkin_says

PAGE = (Path(__file__).parents[2] / "docs/experiments.md").read_text()
HALVES = re.search(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[1]  # the method that the documentation shows
PLAN = 'methods = ["per_user", "pooled", "halves"]\n' + (FOLDER / "exp1_synthetic.toml").read_text()


@pytest.fixture(autouse=True)
def forgotten():
    yield
    METHODS.pop("halves", None)


@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_a_method_takes_part_without_editing_the_package(tmp_path, processes):
    (tmp_path / "halves.py").write_text(HALVES)
    (tmp_path / "mine.toml").write_text(PLAN)
    done = prefkin_says(
        "reproduce", "exp1", "--quick", "--runs", "1", "--processes", processes, "--out", "here",
        "--methods", "halves.py", "--plan", "mine.toml", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = pl.read_parquet(tmp_path / "here" / "exp1_synthetic_quick.parquet")
    assert set(rows["method"]) == {"per_user", "pooled", "halves"}
    assert "first half, second half" in (tmp_path / "here" / "report_exp1_synthetic_quick.md").read_text()


@pytest.mark.parametrize(
    ("methods", "plan", "message"),
    [
        ("1 / 0", None, "halves.py: cannot be run (ZeroDivisionError: division by zero); mend it"),
        ("x = 1", None, "halves.py: no method in it; decorate a function with @grouping or @estimator"),
        (HALVES.replace('halves"', 'pooled"'), None, "there is a method 'pooled' already; give another key"),
        (HALVES, "kind = [", "mine.toml: not a TOML file"),
        (HALVES, "kind = 'offline'", "mine.toml: the plan lacks"),
        (HALVES, 'like = ["odd"]', "mine.toml: not a plan (there is no 'odd' to be like)"),
        (HALVES, "only_in = [1]\n" + PLAN, "mine.toml: not a plan (there is nothing called only_in in a plan)"),
        (HALVES, PLAN.replace('"pooled"', '"odd"'), "no method 'odd'; there are"),
    ],
)
def test_what_is_wrong_with_it_is_one_line(tmp_path, methods, plan, message):
    (tmp_path / "halves.py").write_text(methods)
    more = []
    if plan is not None:
        (tmp_path / "mine.toml").write_text(plan)
        more = ["--plan", "mine.toml"]
    done = prefkin_says("reproduce", "exp1", "--quick", "--methods", "halves.py", *more, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr
    assert not (tmp_path / "reproduction").exists()
