"""`prefkin annotate` and `prefkin answers` as a person meets them: what they write, how they refuse."""

import errno
import json
import signal
import socket
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import sqlalchemy.exc

import prefkin
from prefkin.apps.annotate.items import read_items
from prefkin.apps.annotate.store import Store
from prefkin.data.synthetic import demo_population
from prefkin.errors import InvalidTable, StoreError
from tests.apps.annotate.conftest import Server
from tests.conftest import prefkin_says


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Items, people and a model."""
    path, rng = tmp_path_factory.mktemp("project"), np.random.default_rng(3)
    rows = {
        "context": np.repeat([f"story {x}" for x in range(8)], 3),
        "action": list("abc") * 8,
        "prompt": np.repeat([f"Prompt {x}" for x in range(8)], 3),
        "text": [f"*Text* {i}, with a comma" for i in range(24)],
        **{f"phi{i}": rng.standard_normal(24) for i in range(6)},
    }
    frame = pl.DataFrame(rows)
    frame.write_csv(path / "items.csv")
    frame.drop("phi5").write_parquet(path / "five.parquet")
    frame.drop([f"phi{i}" for i in range(6)]).write_csv(path / "no_features.csv")
    frame.drop("text").write_csv(path / "no_text.csv")
    pl.DataFrame({"user": ["Ada", "007"]}).write_csv(path / "people.csv")
    pl.DataFrame({"name": ["Ada"]}).write_csv(path / "nobody.csv")
    pl.DataFrame({"user": ["Ada", "Ada"]}).write_csv(path / "twice.csv")
    prefkin.PrefKin().fit(demo_population(np.random.default_rng(0))[0].data).save(path / "model.safetensors")
    return path


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "--items FILE says what to show; or try --demo"),
        (["--items", "missing.csv"], "missing.csv: no such file"),
        (["--items", "no_features.csv"], "no_features.csv: the table lacks the features"),
        (["--items", "no_text.csv"], "no_text.csv: the items lack a column text"),
        (["model.safetensors", "--items", "five.parquet"], "five.parquet has 5 features, but the model was"),
        (["missing", "--items", "items.csv"], "no such model file"),
        (["--items", "items.csv", "--people", "nobody.csv"], "nobody.csv: people need a column user"),
        (["--items", "items.csv", "--people", "twice.csv"], "'Ada' stands twice"),
        (["--items", "items.csv", "--store", "mongodb://x/y"], "neither a file nor a database URL"),
        (["--items", "items.csv", "--store", "people.csv"], "the database says"),
        (["--items", "items.csv", "--guidelines", "missing.md"], "missing.md: No such file"),
        (["--items", "items.csv", "--tolerance", "0"], "--tolerance must be above 0"),
        (["--items", "items.csv", "--links", "people.csv"], "--links people.csv: there is another file of that name"),
        (["--demo", "--items", "items.csv"], "--demo brings its own model and items"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(folder, args, message):
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    done = prefkin_says("annotate", *args, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert set(folder.iterdir()) == set(before)


def test_a_port_that_is_taken(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = prefkin_says("annotate", "--items", "items.csv", "--port", port, cwd=folder)
    assert done.returncode == 2
    assert f"port {port} of 127.0.0.1 cannot be used (Address already in use); give another --port" in done.stderr
    assert not (folder / "items.answers.db").exists()


def test_a_store_of_another_project(folder, tmp_path, items):
    Store.create(str(tmp_path / "other.db"), items).close()
    done = prefkin_says("annotate", "--items", "items.csv", "--store", tmp_path / "other.db", cwd=folder)
    assert done.returncode == 2
    assert "this store is about other items" in done.stderr


def test_links_that_cannot_be_written_leave_no_store(folder, tmp_path, monkeypatch):
    def full(_links, path):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("prefkin.apps.annotate.server.Links.save", full)
    args = ("annotate", "--items", folder / "items.csv", "--store", tmp_path / "answers.db", "--port", "0")
    said = prefkin_says(*args, "--links", tmp_path / "links.json", cwd=tmp_path)
    assert (said.returncode, said.stderr.count("\n")) == (2, 1)
    assert "links.json: No space left on device" in said.stderr
    assert not list(tmp_path.iterdir())


def test_a_store_that_cannot_be_made_leaves_no_file(items, tmp_path, monkeypatch):
    def full(*_args, **_options):
        raise sqlalchemy.exc.OperationalError("INSERT", {}, OSError("database or disk is full"))

    monkeypatch.setattr("prefkin.apps.annotate.store._batched", full)
    with pytest.raises(StoreError, match="disk is full"):
        Store.create(str(tmp_path / "answers.db"), items)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_from_links_to_a_fit(folder, tmp_path):
    store, links = tmp_path / "answers.db", tmp_path / "links.json"
    with Server(
        folder, "--items", "items.csv", "--people", "people.csv", "--open", "--store", store, "--links", links
    ) as server:
        assert set(server.links["people"]) == {"Ada", "007"}
        assert oct(links.stat().st_mode)[-3:] == "600"
        zoe = server.call("POST", "/api/join", server.links["open"], {"name": "Zoe"})["token"]
        last = {}
        for token in (zoe, server.links["people"]["007"]):
            question = server.call("GET", "/api/question", token)
            for turn in range(6):
                choice = ("left", "right")[turn % 2]
                question = server.call("POST", "/api/answer", token, {"id": question["id"], "choice": choice})["next"]
            last[token] = question["id"]
        for name in ("votes.parquet", "votes.csv", "votes.jsonl"):  # while people answer
            done = prefkin_says("answers", store, "--out", tmp_path / name, cwd=folder)
            assert done.returncode == 0, done.stderr
            assert "12 answers of 2 people written" in done.stdout
            data = prefkin.read_comparisons(tmp_path / name)
            assert (len(data), data.dim, set(data.users.tolist())) == (12, 6, {"Zoe", "007"})
            assert data.y.sum() == 6
        server.kill()
        server.start()  # the same command goes on, with the same links
        assert all(server.call("GET", "/api/question", token)["id"] == question for token, question in last.items())
        assert server.links == json.loads(links.read_text())
    fitted = prefkin_says("fit", tmp_path / "votes.csv", "--out", tmp_path / "kin", "--no-pictures", cwd=folder)
    assert fitted.returncode == 0, fitted.stderr


def test_other_tools_read_the_answers(store, items, tmp_path):
    from prefkin.apps.annotate.engine import Engine
    from prefkin.apps.annotate.knowledge import Knowledge

    engine, zoe = Engine(store, items, Knowledge(None)), store.join("Zoe")
    state = engine.question(zoe)
    for choice in ("left", "skip", "right"):
        state = engine.answer(zoe, state.question.id, choice)
    engine.stop()
    path = store.url.removeprefix("sqlite:///")
    for name in ("labelstudio.json", "argilla.json", "trl.jsonl"):
        form = name.split(".")[0]
        done = prefkin_says("answers", path, "--out", tmp_path / name, "--as", form, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    [first, _] = json.loads((tmp_path / "labelstudio.json").read_text())
    asked = store.history(zoe.id).closed[0].question
    assert {first["data"][side] for side in ("left", "right")} == {
        items.text(asked.context, asked.left),
        items.text(asked.context, asked.right),
    }
    again = prefkin.read_comparisons(tmp_path / "labelstudio.json")  # as they are: the features are there
    plain = prefkin_says("answers", path, "--out", tmp_path / "plain.csv", cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    same = prefkin.read_comparisons(tmp_path / "plain.csv")
    signed = [data.Z * (2 * data.y[:, None] - 1) for data in (again, same)]
    assert signed[0].tolist() == signed[1].tolist()
    assert set(again.users.tolist()) == {"Zoe"}
    assert first["annotations"][0]["result"][0]["value"]["selected"] in ("left", "right")
    [first, _] = json.loads((tmp_path / "argilla.json").read_text())
    assert first["responses"]["preference"][0]["value"] in first["fields"]
    lines = [json.loads(line) for line in (tmp_path / "trl.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    assert lines[0]["chosen"] == items.text(asked.context, asked.left)
    assert lines[0]["rejected"] == items.text(asked.context, asked.right)
    known = prefkin_says("answers", path, "--out", "x.csv", "--user", "Zoe", cwd=tmp_path)
    assert known.returncode == 0
    for args, message in (
        (("--as", "excel"), "--as must be one of labelstudio, argilla, trl"),
        (("--as", "argilla"), "argilla reads .json"),
        (("--user", "Bo"), "'Bo' is not among the 1"),
    ):
        done = prefkin_says("answers", path, "--out", "y.csv", *args, cwd=tmp_path)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    done = prefkin_says("answers", path, "--out", "y.xlsx", cwd=tmp_path)
    assert "files ending in .xlsx are not written" in done.stderr
    assert not (tmp_path / "y.csv").exists()


def test_nothing_answered_is_said(store, tmp_path):
    done = prefkin_says("answers", store.url.removeprefix("sqlite:///"), "--out", "y.csv", cwd=tmp_path)
    assert (done.returncode, "nobody has answered yet" in done.stderr) == (2, True)


@pytest.mark.long
def test_ctrl_c_is_one_line(folder, tmp_path):
    with Server(folder, "--items", "items.csv", "--store", tmp_path / "a.db") as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=60) == 130
    assert server.said().splitlines()[-1] == f"prefkin: stopped; every answer is kept in {tmp_path / 'a.db'}"


@pytest.mark.long
def test_the_page_is_not_needed_to_use_the_library():
    code = (
        "import sys, prefkin; from prefkin.apps.cli.commands import app; prefkin.PrefKin; prefkin.Candidates\n"
        "found = {'fastapi', 'starlette', 'sqlalchemy', 'uvicorn', 'jinja2', 'psycopg', 'nh3'} & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_items_say_what_is_wrong_with_them(tmp_path):
    frame = {"context": ["q", "q"], "action": ["a", "b"], "text": ["x", "y"], "phi0": [1.0, 2.0]}

    def refused(**changes):
        pl.DataFrame({**frame, **changes}).write_csv(tmp_path / "items.csv")
        with pytest.raises(InvalidTable) as error:
            read_items(tmp_path / "items.csv", images=changes and tmp_path if "image" in changes else None)
        return str(error.value)

    assert "neither a text nor an image" in refused(text=["x", None])
    assert "the prompt differs within context 'q'" in refused(prompt=["one", "two"])
    assert "is not a .png" in refused(image=["../x.svg", None])
    assert "is not in" in refused(image=["x.png", None])
    assert "no context has two actions" in refused(context=["q", "r"])
    pl.DataFrame({**frame, "image": ["x.png", None]}).write_csv(tmp_path / "items.csv")
    with pytest.raises(InvalidTable, match="say where: --images FOLDER"):
        read_items(tmp_path / "items.csv")


def test_an_encoder_makes_features(tmp_path):
    frame = pl.DataFrame(
        {"context": ["p", "q", "p"], "action": ["1", "2", "3"], "text": ["aa", "b", "c"], "prompt": ["?"] * 3}
    )
    frame.write_csv(tmp_path / "items.csv")
    items = read_items(tmp_path / "items.csv", encoder=lambda texts: np.array([[len(t), 1.0] for t in texts]))
    assert items.texts == ("aa", "c", "b")
    assert items.candidates.features.tolist() == [[5.0, 1.0], [4.0, 1.0], [4.0, 1.0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": [None, "q"]}, "column context is missing in row 0"),
        ({"action": ["a", "a"]}, "action 'a' stands twice in its context"),
    ],
)
def test_items_for_an_encoder_are_checked_as_others_are(tmp_path, changes, message):
    frame = {"context": ["q", "q"], "action": ["a", "b"], "text": ["x", "y"]}
    pl.DataFrame({**frame, **changes}).write_csv(tmp_path / "items.csv")
    with pytest.raises(InvalidTable, match=message):
        read_items(tmp_path / "items.csv", encoder=lambda texts: np.ones((len(texts), 1)))
