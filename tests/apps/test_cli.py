"""The program as a person meets it: what it prints, what it writes, how it refuses."""

import json
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import prefkin
from prefkin.apps.cli.commands import COMMANDS
from prefkin.evaluate.compare import METHODS
from tests.conftest import draw_answers, prefkin_says


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A comparisons file, a candidates file, and a fitted model."""
    path, rng = tmp_path_factory.mktemp("work"), np.random.default_rng(7)
    Z, y, users = draw_answers(rng, sizes=[80] * 12, strength=12.0, n_groups=3)
    names = [f"user {u}" for u in users]
    pl.DataFrame({"user": names, "y": y, "z0": Z[:, 0], "z1": Z[:, 1], "z2": Z[:, 2]}).write_csv(path / "votes.csv")
    pl.DataFrame(
        {
            "context": np.repeat(["p", "q"], 3),
            "action": list("abcdef"),
            "phi": rng.standard_normal((6, 3)).tolist(),
        }
    ).write_parquet(path / "cands.parquet")
    done = prefkin_says("fit", "votes.csv", "--out", "kin", cwd=path)
    assert done.returncode == 0, done.stderr
    (path / "fit.txt").write_text(done.stdout)
    return path


def test_fit_prints_a_summary_and_writes_model_numbers_and_pictures(folder):
    text = (folder / "fit.txt").read_text()
    assert "12 users, 960 comparisons, 3 features" in text
    assert "largest neighbourhoods" in text
    assert "evidence: some for groups" in text
    assert "of an estimate comes from others" in text
    assert sorted(p.name for p in (folder / "kin").iterdir()) == [
        "coverage.png",
        "estimates.png",
        "groups.csv",
        "model.safetensors",
        "questions.png",
        "summary.json",
        "users.csv",
        "users.png",
    ]
    model = prefkin.load(folder / "kin")
    facts = json.loads((folder / "kin" / "summary.json").read_text())
    assert [person["user"] for person in facts["per_user"]] == model.users_.tolist()
    assert facts["per_user"][0]["radius"] == pytest.approx(model.radius_[0])
    assert (facts["method"], facts["structure"]) == ("PrefKin", "groups")
    assert text.split("worth doing next\n")[1].splitlines()[3] == ""  # three things


def test_a_program_can_read_who_is_where_and_the_centres(folder):
    model = prefkin.load(folder / "kin")
    users, groups = (pl.read_csv(folder / "kin" / f"{name}.csv") for name in ("users", "groups"))
    assert users["user"].to_list() == model.users_.tolist()
    assert users["group"].to_list() == np.argmax(model.membership_, axis=1).tolist()
    assert users["probability"].to_numpy() == pytest.approx(model.membership_.max(axis=1))
    assert users["closest"][0] in model.closest(users["user"][0], 4).labels
    for group in model.groups_:
        row = groups.filter(pl.col("group") == group.label)
        assert row.select(pl.col("^centre .*$")).row(0) == pytest.approx(tuple(group.centre))
        assert row["users"][0] == len(group)


def test_fit_takes_the_papers_parameters(folder):
    done = prefkin_says(
        "fit", "votes.csv", "--out", "lit", "--gamma", "1", "--alpha", "2", "--ridge", "0.5", "--delta", "0.1",
        "--no-pictures", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0
    assert "nobody is connected: the threshold 1 is used up by the radii" in done.stderr
    assert "each user's estimate rests on their own comparisons" in done.stdout
    assert prefkin.load(folder / "lit").get_params()["alpha"] == 2.0
    practical = prefkin_says(
        "fit", "votes.csv", "--out", "practical", "--gamma", "1.5", "--ridge", "auto", "--radius", "calibrated",
        "--distance", "information", "--no-pictures", cwd=folder,
    )  # fmt: skip
    assert practical.returncode == 0
    kept = prefkin.load(folder / "practical")
    assert (kept.ridge, kept.radius, kept.distance) == ("auto", "calibrated", "information")
    regular = prefkin_says(
        "fit",
        "votes.csv",
        "--out",
        "reg",
        "--gamma",
        "1",
        "--regularity",
        "0.1,0.05,2",
        "--no-pictures",
        cwd=folder,
    )
    assert "item regularity asks for at least N_min" in regular.stderr
    assert isinstance(prefkin.load(folder / "reg").coverage, prefkin.ItemRegularity)


def test_fit_compares_methods_and_keeps_the_best_when_asked(folder):
    few = pl.read_csv(folder / "votes.csv").group_by("user", maintain_order=True).head(25).head(200)
    few.write_csv(folder / "few.csv")
    words = ("--compare", "--method", "best", "--names", "salt, fat,acid")
    done = prefkin_says("fit", "few.csv", "--out", "cmp", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "held-out answers" in done.stdout
    assert "kept their promise" in done.stdout
    assert (folder / "cmp" / "reliability.png").exists()
    assert prefkin.load(folder / "cmp").feature_names_ == ("salt", "fat", "acid")
    everything = json.loads((folder / "cmp" / "summary.json").read_text())
    assert everything["feature_names"] == ["salt", "fat", "acid"]
    assert sum(everything["reliability"]["counts"]) == 200
    facts = everything["comparison"]
    assert {entry["method"] for entry in facts} == set(METHODS)
    shown = done.stdout
    assert shown.index("8 users, 200 comparisons") < shown.index("held-out answers") < shown.index("worth doing next")
    assert "200 answers, all parts held out in turn" in shown
    best = min(facts, key=lambda entry: entry["log_loss"])["method"]
    assert f"\n{best} " in shown.split("held-out answers")[1]
    assert f"kept: {best}" in shown
    assert everything["method"] == best
    again, fitted = prefkin.load(folder / "cmp"), METHODS[best]().fit(prefkin.read_comparisons(folder / "few.csv"))
    assert again.theta_ == pytest.approx(fitted.theta_)


def test_rank_orders_actions_and_writes_all_of_them(folder):
    done = prefkin_says(
        "rank", "kin", "--user", "user 1", "--candidates", "cands.parquet", "--csv", "r.csv", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert "no policy exceeds" in done.stdout
    table = pl.read_csv(folder / "r.csv")
    assert table.group_by("context").len()["len"].to_list() == [3, 3]
    model, cands = prefkin.load(folder / "kin"), prefkin.read_candidates(folder / "cands.parquet")
    assert table.filter(pl.col("rank") == 1)["action"].to_list() == [
        cands.actions[cands.starts[x] + a] for x, a in enumerate(model.policy("user 1", cands, pessimism=0).actions)
    ]
    assert table.filter("recommended")["context"].to_list() == ["p", "q"]


def test_rank_for_everybody_writes_the_best_few_by_name(folder):
    cautious = prefkin_says(
        "rank", "kin", "--user", "user 1", "--candidates", "cands.parquet", "--pessimism", "1000", cwd=folder
    )
    assert "once doubt is deducted" in " ".join(cautious.stdout.split())
    done = prefkin_says("rank", "kin", "--candidates", "cands.parquet", "--top", "1", "--out", "e.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "ranked for 12 users in 2 contexts: written to e.jsonl" in done.stdout
    table, model = pl.read_ndjson(folder / "e.jsonl"), prefkin.load(folder / "kin")
    cands = prefkin.read_candidates(folder / "cands.parquet")
    assert table["user"].unique(maintain_order=True).to_list() == model.users_.tolist()
    for user in model.users_.tolist():
        mine = table.filter((pl.col("user") == user) & pl.col("recommended"))
        assert mine["action"].to_list() == cands.actions[cands.starts[:-1] + model.policy(user, cands).actions].tolist()
    assert table.filter(~pl.col("recommended"))["rank"].to_list() == [1] * (len(table) - 24)
    refused = prefkin_says("rank", "kin", "--candidates", "cands.parquet", cwd=folder)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "for everybody into a file with --out FILE" in refused.stderr


def test_rank_shows_texts_and_prompts(folder):
    cands = pl.read_parquet(folder / "cands.parquet")
    texts = cands.with_columns(text=pl.col("action") + " is a fine dish", prompt=pl.lit("What now?"))
    texts.write_parquet(folder / "texts.parquet")
    done = prefkin_says("rank", "kin", "--user", "user 1", "--candidates", "texts.parquet", cwd=folder)
    assert "a: a is a fine dish" in done.stdout
    assert "What now?" in done.stdout


def test_audit_names_what_is_thin_and_speaks_json(folder):
    done = prefkin_says("audit", "votes.csv", cwd=folder)
    assert "960 comparisons by 12 users" in done.stdout
    findings = json.loads(prefkin_says("audit", "votes.csv", "--json", cwd=folder).stdout)
    assert all(set(finding) == {"level", "what", "remedy"} for finding in findings)


@pytest.mark.parametrize(("command", "name"), [(("demo",), "votes.csv"), (("fit", "{votes}"), "items.csv")])
def test_what_a_command_did_not_write_it_does_not_replace(folder, tmp_path, command, name):
    (tmp_path / name).write_text("mine")
    words = (word.format(votes=folder / "votes.csv") for word in command)
    done = prefkin_says(*words, "--out", str(tmp_path), cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"there is a {name} that this command did not write" in done.stderr
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["fit", "none.csv", "--out", "x"], "none.csv: no such file"),
        (
            ["fit", "votes.csv", "--out", "x", "--map", "user=worker"],
            r"column 'worker' (for user) is missing",
        ),
        (["fit", "votes.csv", "--out", "x", "--map", "worker"], "--map takes OURS=THEIRS"),
        (["fit", "votes.csv", "--out", "x", "--map", "user=worker,y=won"], "give --map again for each column"),
        (
            ["fit", "votes.csv", "--out", "x", "--gamma", "big"],
            "--gamma takes a number, under, over or auto; got 'big'",
        ),
        (
            ["fit", "votes.csv", "--out", "x", "--gamma", "1", "--alpha", "0"],
            "alpha must be a finite number of at least 1; got 0",
        ),
        (["fit", "votes.csv", "--out", "x", "--gamma", "1", "--regularity", "1,2"], "--regularity takes"),
        (["fit", "votes.csv", "--out", "x", "--gamma", "1", "--ridge", "x"], "--ridge takes a number or auto; got 'x'"),
        (["fit", "votes.csv", "--out", "x", "--gamma", "1", "--radius", "x"], "radius must be 'theory' or"),
        (["fit", "votes.csv", "--out", "x", "--ridge", "auto"], "belong to the paper's algorithm; add --gamma"),
        (["fit", "votes.csv", "--out", "x", "--alpha", "2"], "belong to the paper's algorithm; add --gamma"),
        (["fit", "votes.csv", "--out", "x", "--names", "a,b"], "--names gives 2 names for 3 features"),
        (["fit", "votes.csv", "--out", "x", "--method", "odd"], "--method must be one of PrefKin, per user"),
        (["fit", "votes.csv", "--out", "x", "--method", "best", "--gamma", "1"], "give no other --method"),
        (["fit", "votes.csv", "--out", "x", "--drop", "odd"], "drop must be among ties, missing; got 'odd'"),
        (["fit", "votes.csv", "--out", "votes.csv"], "there is a file of that name"),
        (["fit", "votes.csv", "--out", "."], "--out .: the folder is replaced as a whole"),
        (["audit", "votes.csv", "--features", ","], "names are separated by single commas, as in tone,length; got ','"),
        (
            ["plan", "kin", "--candidates", "cands.parquet", "--budget", "1", "--out", "q.csv", "--away", "nobody"],
            "--away 'nobody' is not among the 12 fitted users",
        ),
        (
            ["plan", "kin", "--candidates", "cands.parquet", "--budget", "1", "--out", "q.csv", "--cost", "User 3=2"],
            "; did you mean 'user 3'?",
        ),
        (["audit", "cands.parquet"], "cands.parquet: the table lacks column user"),
        (["rank", "nowhere", "--user", "a", "--candidates", "cands.parquet"], "no such model file"),
        (
            ["rank", "kin", "--user", "zoe", "--candidates", "cands.parquet"],
            "--user 'zoe' is not among the 12 fitted users",
        ),
        (
            ["rank", "kin", "--user", "user 1", "--candidates", "votes.csv"],
            "votes.csv: the table lacks column context",
        ),
    ],
)
def test_bad_input_is_one_line_exit_two_and_nothing_written(folder, args, message):
    before = sorted(folder.rglob("*"))
    done = prefkin_says(*args, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert sorted(folder.rglob("*")) == before


def test_features_are_named_by_their_columns(tmp_path):
    rng = np.random.default_rng(3)
    votes = {name: rng.standard_normal(40).round(3) for name in ("tone", "price")}
    votes |= {"user": np.repeat(["ann", "bo"], 20), "y": (votes["tone"] > 0).astype(int)}
    pl.DataFrame(votes).write_csv(tmp_path / "v.csv")
    action = {"context": ["x", "x"], "action": ["a", "b"], "price": [0.0, 0.0], "tone": [-1.0, 1.0]}
    pl.DataFrame(action).write_csv(tmp_path / "c.csv")
    done = prefkin_says(
        "fit", "v.csv", "--features", "tone,price", "--out", "kin", "--gamma", "0", "--no-pictures", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert prefkin.load(tmp_path / "kin").feature_names_ == ("tone", "price")
    ask = ("rank", "kin", "--user", "bo", "--candidates", "c.csv", "--features")
    assert prefkin_says(*ask, "tone, price", cwd=tmp_path).stdout.splitlines()[1].split()[:2] == ["x", "b"]
    assert prefkin_says(*ask, "price,tone", cwd=tmp_path).stdout.splitlines()[1].split()[:2] == ["x", "b"]
    pl.DataFrame(action | {"text": ["A", "B"]}).rename({"tone": "voice"}).write_csv(tmp_path / "other.csv")
    for command in ("rank", "report", "plan", "ask", "export"):
        words = ["--user", "bo"] * (command not in ("report", "plan")) + ["--out", "page.html"] * (command == "report")
        words += {"plan": ["--budget", "1", "--out", "q.csv"], "ask": ["--state", "a.json"]}.get(command, [])
        words += ["--to", "argilla", "--out", "tasks.json"] * (command == "export")
        refused = prefkin_says(command, "kin", "--candidates", "other.csv", *words, cwd=tmp_path)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert "they lack tone and have voice instead" in refused.stderr


def test_dropped_rows_are_reported(tmp_path):
    (tmp_path / "v.csv").write_text("user,y,z0\na,1,1\na,0.5,1\nb,0,2\nb,,2\n")
    done = prefkin_says("audit", "v.csv", "--drop", "ties", "--drop", "missing", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.splitlines() == ["note: left out 1 row (ties)", "note: left out 1 row (missing)"]
    refused = prefkin_says("audit", "v.csv", cwd=tmp_path)
    assert refused.stderr == (
        "prefkin: v.csv: y must be 0 or 1, but row 1 (counted from 0) is a tie; "
        "the model has no ties: leave them out, for example by Comparisons.from_arrays(..., drop='ties') "
        "(on the command line: --drop ties), or hear each as half an answer for each side by ties='half' (--ties half)\n"
    )


def test_answers_and_features_are_named_by_options_or_said(tmp_path):
    (tmp_path / "v.csv").write_text("user,y,tone\na,up,1\na,down,1\nb,tie,2\n")
    done = prefkin_says("audit", "v.csv", "--yes", "up", "--ties", "half", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 comparisons by 2 users, 1 feature")
    assert done.stderr.startswith("note: features are the columns of numbers without another use: tone;")
    refused = prefkin_says("audit", "v.csv", "--yes", "sideways", "--ties", "half", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("prefkin: v.csv: no answer is 'sideways', which was to mean")


SIGNALLING = """
import sys, time
from prefkin.apps.cli import interrupts, program

moment = sys.argv.pop(1)
check = interrupts.check
def begun():
    interrupts.check = check
    print("begun", flush=True)
    time.sleep(100)
interrupts.check = begun                        # called at the first sign of progress

class Library:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            print("begun", flush=True)
            try:
                time.sleep(100)
            except KeyboardInterrupt:           # as libraries do
                raise ImportError from None
sys.meta_path.insert(0, Library())
program.main()
"""


LATE = [
    pytest.param(library, marks=pytest.mark.long) for library in ("sklearn", "matplotlib")
]  # like polars, some seconds later


@pytest.mark.parametrize("moment", ["typer", "rich", "numpy", "polars", *LATE, "at work"])
def test_an_interrupt_is_one_line_and_leaves_nothing_behind(folder, tmp_path, moment):
    command = [sys.executable, "-c", SIGNALLING, moment, "fit", str(folder / "votes.csv"), "--out", "kin"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "begun\n"
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
    assert said == "prefkin: interrupted; nothing was written\n"
    assert running.returncode == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", [["--help"], ["--version"], []])
def test_nothing_heavy_is_imported_before_a_command_runs(args):
    code = "import sys, atexit; atexit.register(lambda: print(*sys.modules)); from prefkin.apps.cli.program import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True)
    assert done.returncode == 0
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "prefkin" in loaded
    assert not loaded & {"numpy", "scipy", "sklearn", "polars", "narwhals", "numba", "matplotlib"}


@pytest.mark.parametrize("module", ["prefkin.apps.cli.program", "prefkin.apps.cli.interrupts", "typer"])
def test_an_interrupt_during_the_first_imports_is_one_line(module, tmp_path):
    code = f"""
import importlib.abc, os, runpy, signal, sys
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
runpy.run_module("prefkin", run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, preexec_fn=_hears_interrupts
    )
    assert (done.returncode, done.stderr) == (130, "prefkin: interrupted; nothing was written\n")


def test_the_script_listens_from_its_first_import_on(tmp_path):
    code = "import os, signal, sys; sys.argv[0] = 'bin/prefkin'; import prefkin.__main__; os.kill(os.getpid(), signal.SIGINT)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, preexec_fn=_hears_interrupts
    )
    assert (done.returncode, done.stderr) == (130, "prefkin: interrupted; nothing was written\n")


def test_what_an_interrupt_left_half_made_is_not_shown(tmp_path):
    code = """
import os, signal
from prefkin.apps.cli import interrupts
class Compiled:
    def __del__(self):
        raise AttributeError("_ptr")
interrupts.listen()
interrupts.running()
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt as error:
    Compiled()
    interrupts.leave_if_asked(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "prefkin: interrupted; nothing was written\n")


def _hears_interrupts():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores them


def test_the_help_lists_every_command_by_its_own_first_line():
    shown = prefkin_says("--help", cwd=Path.cwd()).stdout
    for name, line in COMMANDS.items():
        assert name in shown
        command = getattr(import_module(f"prefkin.apps.cli.{name}"), name)
        assert command.__doc__.splitlines()[0] == line


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_has_an_example(name):
    shown = prefkin_says(name, "--help", cwd=Path.cwd()).stdout
    assert f"Example: prefkin {name} " in " ".join(shown.split())


def test_the_program_can_be_started(folder):
    def say(*args):
        return subprocess.run([sys.executable, "-m", "prefkin", *args], cwd=folder, capture_output=True, text=True)

    assert say("--version").stdout == f"prefkin {prefkin.__version__}\n"
    assert say("audit", "votes.csv").stdout == prefkin_says("audit", "votes.csv", cwd=folder).stdout
    refused = say("audit", "none.csv")
    assert (refused.returncode, refused.stderr) == (2, "prefkin: none.csv: no such file\n")


def test_names_that_look_like_markup_are_printed_as_they_are(tmp_path):
    rows = "".join(f"[/bad] {u},{(i + u) % 2},{0.1 * i}\n" for u in (0, 1) for i in range(1, 9))
    (tmp_path / "v.csv").write_text("user,y,z0\n" + rows)
    done = prefkin_says("fit", "v.csv", "--out", "o", "--gamma", "inf", "--no-pictures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[/bad] 0, [/bad] 1" in done.stdout


def test_nothing_is_written_when_one_of_the_files_cannot_be(folder):
    (folder / "half" / "summary.json").mkdir(parents=True)
    done = prefkin_says("fit", "votes.csv", "--out", "half", "--no-pictures", cwd=folder)
    assert done.returncode == 2
    assert "summary.json is a folder there" in done.stderr
    assert [p.name for p in (folder / "half").iterdir()] == ["summary.json"]


def test_what_the_fit_warns_of_is_one_line_without_a_place_in_the_code(tmp_path):
    (tmp_path / "v.csv").write_text("user,y,z0,z1,z2\nann,1,1.0,0.5,-0.5\n")
    done = prefkin_says("fit", "v.csv", "--out", "kin", "--no-pictures", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith("note: radius_ may be too small")
    assert ".py:" not in done.stderr
