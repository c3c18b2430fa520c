"""`prefkin ask`: a conversation in the terminal or through a pipe, of which nothing is lost."""

import json
import os
import pty
import select
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

import prefkin
from tests.conftest import draw_answers, prefkin_says


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path, rng = tmp_path_factory.mktemp("work"), np.random.default_rng(7)
    Z, y, users = draw_answers(rng, sizes=[60] * 6, strength=6.0)
    names = np.array(["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn"])[users]
    prefkin.PrefKin().fit(Z, y, users=names).save(path / "kin.safetensors")
    prefkin.OffC2PL(gamma=0.0).fit(Z, y, users=names).save(path / "paper.safetensors")
    rows = {
        "context": ["lunch"] * 3 + ["dinner"] * 3,
        "prompt": ["What for lunch?"] * 3 + ["What for dinner?"] * 3,
        "action": list("abcabc"),
        "text": [f"dish number {i}\nwith [sauce]" for i in range(6)],
        "phi": rng.standard_normal((6, 3)).tolist(),
    }
    pl.DataFrame(rows).write_parquet(path / "menu.parquet")
    pl.DataFrame(rows).drop("text", "prompt").write_parquet(path / "plain.parquet")
    return path


def say(folder, lines, *args, user="Ada", state="s.json", menu="menu.parquet", model="kin.safetensors"):
    told = "".join(f"{line}\n" for line in lines)
    return prefkin_says(
        "ask", model, "--user", user, "--candidates", menu, "--state", state, *args, cwd=folder, said=told
    )


def kept(folder, state):
    """The answers in a file, as contexts and actions by name."""
    model, menu = prefkin.load(folder / "kin.safetensors"), prefkin.read_candidates(folder / "menu.parquet")
    return model.resume_session(folder / state, menu)


def test_answers_skips_and_undo_are_kept_and_the_same_command_goes_on(folder):
    done = say(folder, ["1", "right", "u", "left", "s", "q"])
    assert done.returncode == 0, done.stderr
    assert "2 answers in s.json" in done.stdout
    session = kept(folder, "s.json")
    assert [answer for _, answer in session.log] == [True, True, None]
    again = say(folder, ["2"])  # the end of a pipe is the end of the answers
    assert "going on with 2 answers of Ada in s.json" in again.stdout
    assert kept(folder, "s.json").n_answers == 3


def test_what_is_shown_are_prompts_names_and_texts(folder):
    done = say(folder, ["q"], state="shown.json")
    question = (
        prefkin.load(folder / "kin.safetensors").session("Ada", prefkin.read_candidates(folder / "menu.parquet")).ask()
    )
    prompt = ("What for lunch?", "What for dinner?")[question.context]
    assert f"1. {prompt}" in done.stdout
    assert f"  1  {'abc'[question.first]}: dish number {3 * question.context + question.first}\n" in done.stdout
    assert f"  2  {'abc'[question.second]}: dish number {3 * question.context + question.second}\n" in done.stdout
    assert "     with [sauce]" in done.stdout
    assert not (folder / "shown.json").exists()
    plain = say(folder, ["q"], state="plain.json", menu="plain.parquet")
    assert f"  1  {'abc'[question.first]}: feature " in plain.stdout


def test_it_says_how_many_more_and_when_it_is_enough(folder, monkeypatch):
    monkeypatch.setattr("prefkin.apps.cli.ask.PATIENCE", 60.0)  # on a busy machine a second is not enough
    few = say(folder, ["q"], "--tolerance", "1e-6", user="Yan", state="more.json")
    assert " more)" in few.stdout
    enough = say(folder, ["q"], "--tolerance", "50", state="more.json")
    assert "enough: with probability 95% the best actions of today lose" in enough.stdout
    assert " more)" not in enough.stdout


def test_a_stranger_is_asked_as_a_newcomer_under_that_name(folder):
    done = say(folder, ["1", "1"], user="Zoe", state="zoe.json")
    assert "Zoe is not among the 6 fitted users, and is asked as a newcomer" in done.stdout
    assert "did you mean" not in done.stdout
    state = json.loads((folder / "zoe.json").read_text())
    assert (state["user"], state["label"]) == (None, "Zoe")
    assert "going on with 2 answers of Zoe" in say(folder, ["q"], user="Zoe", state="zoe.json").stdout


def test_when_all_pairs_were_asked_it_ends(folder):
    done = say(folder, ["1"] * 9, state="all.json", user="Ben")
    assert done.returncode == 0
    assert "all pairs of the 2 contexts have been asked" in done.stdout
    assert kept(folder, "all.json").n_answers == 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"state": "s.txt"}, "--state s.txt: give a name that ends in .json"),
        ({"user": "Zoe", "model": "paper.safetensors"}, "OffC2PL knows nothing about newcomers; fit PrefKin"),
        ({"state": "odd.json"}, "odd.json: not a session file"),
        ({"lines": ["maybe"]}, "line 0 (counted from 0) of the answers is 'maybe'; write 1 or left, 2 or right"),
        ({"state": "bens.json"}, "bens.json: these are the answers of 'Ben', not of 'Ada'; give another file"),
    ],
)
def test_what_cannot_be_is_one_line(folder, settings, message):
    (folder / "odd.json").write_text("{")
    if not (folder / "bens.json").exists():
        say(folder, ["1"], user="Ben", state="bens.json")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = say(folder, settings.pop("lines", ["q"]), **{"state": "new.json"} | settings)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def heard(terminal, said, questions):
    """What the program has said, once it has asked so many questions or ended."""
    until = time.monotonic() + 60
    while said.count(b"q: quit") < questions and time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                said += os.read(terminal, 4096)
            except OSError:  # nobody is at the other end any more
                break
    return said


@pytest.mark.parametrize(("last", "code"), [(b"\x03", 130), pytest.param(b"q", 0, marks=pytest.mark.long)])
def test_arrow_keys_answer_in_a_terminal_and_an_interrupt_loses_nothing(folder, tmp_path, last, code):
    terminal, program = pty.openpty()
    command = [sys.executable, "-m", "prefkin", "ask", str(folder / "kin.safetensors"), "--user", "Ada"]
    command += ["--candidates", str(folder / "menu.parquet"), "--state", "t.json"]
    said = b""
    with subprocess.Popen(command, cwd=tmp_path, stdin=program, stdout=program, stderr=program) as running:
        os.close(program)
        for number, key in enumerate([b"\x1b[D", b"\x1b[C", b"u", b"\x1b[D", last]):
            said = heard(terminal, said, number + 1)
            time.sleep(0.2)  # until it listens
            os.write(terminal, key)
        said = heard(terminal, said, 99).decode()
        running.wait(30)
    os.close(terminal)
    assert running.returncode == code, said
    assert [answer for _, answer in kept(folder, tmp_path / "t.json").log] == [True, True]
    if code:
        assert "prefkin: interrupted; 2 answers in t.json, and the same command goes on" in said
