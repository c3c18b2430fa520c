"""`prefkin update`: new answers into a fitted folder, from files and sessions, once each."""

import json
import shutil

import numpy as np
import polars as pl
import pytest

import prefkin
from prefkin import Candidates
from tests.conftest import draw_answers, prefkin_says


@pytest.fixture(scope="module")
def votes():
    Z, y, users = draw_answers(np.random.default_rng(7), sizes=[80] * 12, strength=12.0, n_groups=3)
    return pl.DataFrame({"user": users, "y": y, "z0": Z[:, 0], "z1": Z[:, 1], "z2": Z[:, 2]})


@pytest.fixture
def folder(tmp_path, votes):
    late = (pl.col("user") == 11) | ((pl.col("user") < 3) & (pl.int_range(pl.len()).mod(80) >= 60))
    votes.filter(~late).write_csv(tmp_path / "votes.csv")
    votes.filter(late).with_columns(user=pl.col("user").cast(str).replace("11", "zoe")).write_csv(tmp_path / "late.csv")
    done = prefkin_says("fit", "votes.csv", "--out", "kin", "--no-pictures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_new_answers_and_people_come_in_once(folder):
    done = prefkin_says("update", "kin", "late.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "140 answers of 4 people taken in, 1 of them new: written to kin" in done.stdout
    model = prefkin.load(folder / "kin")
    assert model.users_.tolist() == [*sorted(map(str, range(11))), "zoe"]
    assert model.n_comparisons_.tolist() == [80.0] * 12
    facts = json.loads((folder / "kin" / "summary.json").read_text())
    assert facts["updated"]["new"] == 1
    shutil.copytree(folder / "kin", folder / "other")
    notes = [prefkin_says("fit", "votes.csv", "--out", "other", "--no-pictures", cwd=folder).stderr for _ in range(2)]
    assert notes[0].endswith(
        "note: other held a model of 12 users and 960 comparisons, with answers from prefkin update; it is replaced\n"
    )
    assert "replaced" not in notes[1]
    assert len(facts["per_user"]) == 12
    before = (folder / "kin" / "model.safetensors").read_bytes()
    again = prefkin_says("update", "kin", "late.csv", cwd=folder)
    assert again.returncode == 2
    assert "late.csv: these rows were taken in before" in again.stderr
    assert (folder / "kin" / "model.safetensors").read_bytes() == before


def test_features_in_another_order_are_taken_by_their_names(tmp_path):
    Z, y, users = draw_answers(np.random.default_rng(3), sizes=[20] * 4)
    named = prefkin.Comparisons.from_arrays(Z[:, :2], y, users, feature_names=["price", "tone"])
    prefkin.PrefKin().fit(named).save(tmp_path / "kin")
    late = pl.DataFrame({"user": [0], "y": [1], "tone": [1.0], "price": [2.0], "note": [7]})
    late.rename({"tone": "voice"}).drop("note").write_csv(tmp_path / "other.csv")
    done = prefkin_says("update", "kin", "other.csv", cwd=tmp_path)
    assert (done.returncode, "they lack tone and have voice instead" in done.stderr) == (2, True)
    late.write_csv(tmp_path / "late.csv")
    done = prefkin_says("update", "kin", "late.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert prefkin.load(tmp_path / "kin").comparisons(0).Z[-1].tolist() == [2.0, 1.0]


def test_sessions_come_in_as_far_as_they_were_not_heard(folder):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((6, 3, 3))
    np.savez(folder / "cands.npz", features=features)
    model, cands = prefkin.load(folder / "kin"), Candidates(features)
    session = model.session(None, cands, label="Zoe")
    for _ in range(4):
        session.tell(session.ask(), True)
    session.save(folder / "zoe.json")
    assert prefkin_says("update", "kin", "zoe.json", cwd=folder).returncode == 2
    for answers, total in ((0, 4), (2, 6)):
        for _ in range(answers):
            session.tell(session.ask(), False)
        session.save(folder / "zoe.json")
        done = prefkin_says("update", "kin", "zoe.json", "--candidates", "cands.npz", cwd=folder)
        assert done.returncode == 0, done.stderr
        grown = prefkin.load(folder / "kin")
        assert grown.n_comparisons_[grown.position("Zoe")] == total
    done = prefkin_says("update", "kin", "zoe.json", "--candidates", "cands.npz", cwd=folder)
    assert "nothing new" in done.stdout
    ask = ("ask", "kin", "--user", "Zoe", "--candidates", "cands.npz", "--state", "zoe.json")
    heard = (
        "the model has been updated since; the answers of this session are in it: begin a new session, in a new file"
    )
    assert heard in prefkin_says(*ask, cwd=folder).stderr
    session.tell(session.ask(), True)
    session.save(folder / "zoe.json")
    assert "take these answers in by prefkin update, then begin" in prefkin_says(*ask, cwd=folder).stderr
    np.savez(folder / "others.npz", features=features[:5])
    done = prefkin_says("update", "kin", "zoe.json", "--candidates", "others.npz", cwd=folder)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "about other candidates" in done.stderr


def test_what_does_not_fit_is_one_line_and_changes_nothing(folder, votes):
    before = (folder / "kin" / "model.safetensors").read_bytes()
    votes.drop("z2").head(5).write_csv(folder / "narrow.csv")
    for file, words in (("narrow.csv", "2 features, but the model was fitted with 3"), ("none.csv", "none.csv")):
        done = prefkin_says("update", "kin", file, cwd=folder)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert words in done.stderr
    assert (folder / "kin" / "model.safetensors").read_bytes() == before


def test_a_plan_is_a_file_in_the_order_in_which_to_ask(folder):
    features = np.random.default_rng(0).standard_normal((6, 3, 3))
    np.savez(folder / "cands.npz", features=features)
    words = ("plan", "kin", "--candidates", "cands.npz", "--budget", "9", "--out", "questions.csv")
    done = prefkin_says(*words, "--per-person", "2", "--away", "3", cwd=folder)
    assert done.returncode == 0, done.stderr
    rows = pl.read_csv(folder / "questions.csv")
    assert rows.columns == ["user", "context", "first", "second"]
    assert len(rows) == 9
    assert 3 not in rows["user"].to_list()
    for wrong in (("--away", "nobody"), ("--cost", "3=much")):
        done = prefkin_says(*words[:-1], "other.csv", *wrong, cwd=folder)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    np.savez(folder / "narrow.npz", features=features[:, :, :2])
    done = prefkin_says(*words[:3], "narrow.npz", *words[4:-1], "other.csv", cwd=folder)
    assert done.stderr.startswith("prefkin: narrow.npz has 2 features, but the model was fitted with 3")
    assert not (folder / "other.csv").exists()


def test_what_was_fitted_does_not_count_twice(folder, votes):
    """The file of the fit, and one that has grown since, as `prefkin answers` writes it."""
    before = (folder / "kin" / "model.safetensors").read_bytes()
    grown = pl.concat(
        [pl.read_csv(folder / name, schema_overrides={"user": str}) for name in ("votes.csv", "late.csv")]
    )
    grown.write_csv(folder / "grown.csv")
    for name in ("votes.csv", "grown.csv"):
        done = prefkin_says("update", "kin", name, cwd=folder)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert f"{name}: all 820 answers that the model knows of these people stand in it again" in done.stderr
    assert (folder / "kin" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"{", b"[1, 2]", b"\xff\xfe{", b'{"method": {}}', b'{"comparison": [{"method": "PrefKin"}]}']
)
@pytest.mark.parametrize("command", [("update", "kin", "late.csv"), ("report", "kin", "--out", "page.html")])
def test_a_damaged_summary_is_said_and_costs_nothing_else(folder, command, content):
    (folder / "kin" / "summary.json").write_bytes(content)
    done = prefkin_says(*command, cwd=folder)
    assert (done.returncode, done.stderr) == (
        0,
        "note: kin/summary.json is damaged; how methods compared is not known from it\n",
    )
