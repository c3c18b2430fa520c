"""Every example runs, and shows what it says it shows."""

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run an example in a folder of its own; the names it leaves behind."""
    monkeypatch.chdir(tmp_path)
    return lambda name: runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_a_first_fit(run):
    found = run("01_first_fit")["found"]
    assert found["PrefKin"] < min(found["own answers only"], found["everybody pooled"])


def test_your_own_csv(run):
    left = run("02_your_own_csv")
    model = left["model"]
    saves, hurries = (model.theta_[model.position(user)] for user in ("guest 1", "guest 0"))
    assert saves[0] < saves[1] < 0
    assert hurries[1] < hurries[0] < 0


@pytest.mark.integrations
def test_reward_heads(run):
    assert run("03_reward_heads")["rewards"].shape == (80, 8)


def test_a_recommender_with_a_cold_start(run):
    hits = run("04_recommender_cold_start")["hits"]
    assert hits[10] > hits[0]
    assert hits[10] >= 7


def test_questions_in_a_loop(run):
    left = run("05_questions_in_a_loop")
    assert left["after"] < left["before"]
    assert left["session"].n_answers == 19


def test_the_papers_algorithm(run):
    left = run("06_the_papers_algorithm")
    assert left["gained"].least_after > left["gained"].least_before
    assert left["bound"].bias > 0


def test_a_new_method(run):
    rows = run("07_a_new_method")["rows"]
    assert [row["method"] for row in rows] == ["per_user", "kmeans", "ward", "off_c2pl"]
    assert np.isfinite([row["gap"] for row in rows]).all()


def test_each_example_is_here_and_begins_with_a_title():
    here = Path(__file__).read_text()
    for path in sorted(EXAMPLES.glob("*.py")):
        assert f'run("{path.stem}")' in here
        title, underline = path.read_text().splitlines()[1:3]
        assert underline == "=" * len(title)
