"""`prefkin predict`: what the model says, beside what was asked."""

import numpy as np
import polars as pl
import pytest

import prefkin
from tests.conftest import draw_answers, prefkin_says


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A fitted model whose users are whole numbers, and pairs as CSV."""
    path, rng = tmp_path_factory.mktemp("work"), np.random.default_rng(7)
    Z, y, users = draw_answers(rng, sizes=[60] * 6, strength=8.0)
    prefkin.PrefKin().fit(Z, y, users=users).save(path / "kin.safetensors")
    pl.DataFrame(
        {
            "id": ["007", "008", "009"],
            "user": ["0", "5", "0"],
            **{f"z{k}": [1.0, 0.5, -1.0] if k == 0 else [0.0, 0.25, 0.5] for k in range(3)},
            "note": ["a, b", None, "ü"],
        }
    ).write_csv(path / "pairs.csv")
    return path


def say(folder, *args):
    return prefkin_says("predict", "kin.safetensors", *args, cwd=folder)


def test_the_pairs_come_back_as_they_were_with_the_models_probability(folder):
    done = say(folder, "--pairs", "pairs.csv", "--out", "p.csv")
    assert done.returncode == 0, done.stderr
    before, after = (pl.read_csv(folder / name, infer_schema=False) for name in ("pairs.csv", "p.csv"))
    assert after.drop("p").equals(before)
    model = prefkin.load(folder / "kin.safetensors")
    Z = before.select("z0", "z1", "z2").cast(pl.Float64).to_numpy()
    assert after["p"].cast(float).to_numpy() == pytest.approx(model.predict_proba(Z, users=[0, 5, 0])[:, 1], abs=1e-12)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_formats_go_by_their_suffix(folder, suffix):
    say(folder, "--pairs", "pairs.csv", "--out", "p.csv")
    done = say(folder, "--pairs", "pairs.csv", "--out", f"p.{suffix}")
    assert done.returncode == 0, done.stderr
    written = pl.read_ndjson(folder / "p.jsonl") if suffix == "jsonl" else pl.read_parquet(folder / "p.parquet")
    assert written["p"].to_list() == pl.read_csv(folder / "p.csv")["p"].to_list()
    assert written["z0"].to_list() == [1.0, 0.5, -1.0]


def test_answers_are_not_looked_at_and_sides_are_enough(folder):
    rows = {"user": [1, 1], "y": [None, 7], "first": [[1.0, 0.0, 0.0]] * 2, "second": [[0.0, 1.0, 0.0]] * 2}
    pl.DataFrame(rows).write_parquet(folder / "sides.parquet")
    done = say(folder, "--pairs", "sides.parquet", "--out", "s.parquet")
    assert done.returncode == 0, done.stderr
    model = prefkin.load(folder / "kin.safetensors")
    expected = model.predict_proba([[1.0, -1.0, 0.0]], users=[1])[0, 1]
    assert pl.read_parquet(folder / "s.parquet")["p"].to_list() == pytest.approx([expected] * 2)
    assert "holds lists" in say(folder, "--pairs", "sides.parquet", "--out", "s.csv").stderr


def test_items_are_named_and_the_left_one_is_the_first(folder):
    (folder / "items.csv").write_text("item,phi0,phi1,phi2\na,1,0,0\nb,0,1,0\n")
    (folder / "named.csv").write_text("user,left,right\n1,a,b\n1,b,a\n")
    done = say(folder, "--pairs", "named.csv", "--items", "items.csv", "--out", "n.csv")
    assert done.returncode == 0, done.stderr
    assert pl.read_csv(folder / "n.csv")["p"].sum() == pytest.approx(1.0)


def test_strangers_are_refused_by_row_or_predicted_as_people_in_general(folder):
    (folder / "who.csv").write_text("user,z0,z1,z2\n0,1,0,0\nzoe,1,0,0\n")
    refused = say(folder, "--pairs", "who.csv", "--out", "w.csv")
    assert refused.returncode == 2
    assert "user 'zoe' in row 1 (counted from 0) is not among the 6 fitted users" in refused.stderr
    assert not (folder / "w.csv").exists()
    done = say(folder, "--pairs", "who.csv", "--out", "w.csv", "--newcomers")
    assert "note: 1 unknown user predicted as people in general" in done.stderr
    model = prefkin.load(folder / "kin.safetensors")
    general = model.fold_in().predict_proba([[1.0, 0.0, 0.0]])[0, 1]
    assert pl.read_csv(folder / "w.csv")["p"][1] == pytest.approx(general)


def test_people_in_general_are_surer_than_nothing_and_less_sure_than_somebody():
    rng = np.random.default_rng(3)
    Z, y, users = draw_answers(rng, sizes=[80] * 8, strength=6.0, n_groups=1)
    model = prefkin.PrefKin().fit(Z, y, users=users)
    z = model.theta_.mean(axis=0, keepdims=True)
    anybody = model.fold_in().predict_proba(z)[0, 1]
    assert 0.6 < anybody < model.predict_proba(z, users=[0])[0, 1]


@pytest.mark.parametrize(
    ("rows", "args", "message"),
    [
        ("user,z0,z1\n0,1,0\n", [], "bad.csv has 2 features, but the model was fitted with 3"),
        ("user,z0,z1,z2\n,1,0,0\n", [], "row 0 (counted from 0)"),
        ("user,z0,z1,z2\n0,1,nan,0\n", [], "row 0 (counted from 0); fill it in, or leave such rows out of the file\n"),
        ("user,z0,z1,z2\n0,1,x,0\n", [], "column z1 is not a number in row 0"),
        ("user,z0,z1,z2,p\n0,1,0,0,1\n", [], "there is a column p already; rename it"),
        ("user,y\n0,1\n", [], "the table lacks the features"),
        (f"user,z0,z1,z2\n{'x' * 100_000},1,0,0\n", [], f"bad.csv: user '{'x' * 59} in row 0"),
        ("user,z0,z1,z2\n0,1,0,0\n", ["--out", "p.txt"], "give a name that ends in .parquet, .csv or .jsonl"),
        ("user,z0,z1,z2\n0,1,0,0\n", ["--out", "bad.csv"], "this is what is read"),
    ],
)
def test_bad_pairs_are_one_line_and_nothing_is_written(folder, rows, args, message):
    (folder / "bad.csv").write_text(rows)
    before = sorted(folder.iterdir())
    done = say(folder, "--pairs", "bad.csv", *(args or ["--out", "no.csv"]))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr
    assert len(done.stderr) < 400
    assert sorted(folder.iterdir()) == before


def test_lists_do_not_go_into_csv_and_the_message_names_the_file(folder):
    (folder / "lists.jsonl").write_text('{"user": 1, "z": [1, 0, 0]}\n')
    done = say(folder, "--pairs", "lists.jsonl", "--out", "no.csv")
    assert done.stderr.startswith("prefkin: --out no.csv: column z holds lists")
    assert not (folder / "no.csv").exists()


def test_features_are_found_by_the_names_that_the_model_knows(tmp_path):
    """Among other numbers, in another order, of both sides or of items: as they were fitted."""
    rng = np.random.default_rng(3)
    one, other = rng.standard_normal((2, 60, 2))
    names, users = ["tone", "price"], np.repeat(["ann", "bo"], 30)
    y = (one[:, 0] > other[:, 0] + rng.standard_normal(60)).astype(int)
    model = prefkin.PrefKin().fit(prefkin.Comparisons.from_sides(one, other, y, users, feature_names=names))
    model.save(tmp_path / "kin.safetensors")
    sides = {
        f"{side}_{name}": X[:, k] for k, name in ((1, "price"), (0, "tone")) for side, X in (("a", one), ("b", other))
    }
    pl.DataFrame({"user": users, "y": y, "row": np.arange(60)} | sides).write_csv(tmp_path / "pairs.csv")
    pl.DataFrame(
        {
            "item": [f"i{k}" for k in range(120)],
            "price": [*one[:, 1], *other[:, 1]],
            "size": 1.5,
            "tone": [*one[:, 0], *other[:, 0]],
        }
    ).write_csv(tmp_path / "items.csv")
    pl.DataFrame(
        {
            "user": users,
            "left": [f"i{k}" for k in range(60)],
            "right": [f"i{k}" for k in range(60, 120)],
            "label": "left",
        }
    ).write_csv(tmp_path / "named.csv")
    for words in (["pairs.csv"], ["named.csv", "--items", "items.csv"]):
        done = say(tmp_path, "--pairs", *words, "--out", "p.csv")
        assert done.returncode == 0, done.stderr
        expected = model.predict_proba(one - other, users=users)[:, 1]
        assert pl.read_csv(tmp_path / "p.csv")["p"].to_numpy() == pytest.approx(expected)
