"""What is written for trainers and annotation tools; that these take it is for tests/integrations."""

import json

import numpy as np
import polars as pl
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import prefkin
from tests.conftest import draw_answers, prefkin_says

DIM = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A language model's files, votes with its features, and models fitted on them: in groups, and by the paper."""
    path, rng = tmp_path_factory.mktemp("work"), np.random.default_rng(7)
    Z, y, users = draw_answers(rng, sizes=[80] * 9, strength=12.0, n_groups=3)
    language_model(path / "lm")
    note = {"name": str(path / "lm"), "kind": "causal-lm", "pooling": "last", "normalised": False, "dim": DIM}
    votes = pl.DataFrame({"user": [f"user {u}" for u in users], "y": y, "z": Z.tolist()})
    votes.write_parquet(path / "votes.parquet", metadata={"prefkin.encoder": json.dumps(note)})
    votes.write_parquet(path / "unknown.parquet")
    for file, out, *more in (
        ("votes", "kin"),
        ("unknown", "plain"),
        ("unknown", "paper", "--gamma", "20", "--radius", "calibrated"),
    ):
        done = prefkin_says("fit", f"{file}.parquet", "--out", out, "--no-pictures", *more, cwd=path)
        assert done.returncode == 0, done.stderr
    return path


def language_model(path, **changes):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": DIM, "eos_token_id": 2}
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"} | changes))
    (path / "tokenizer.json").write_text("{}")
    save_file({"model.norm.weight": np.ones(DIM, np.float32)}, path / "model.safetensors")
    return path


def exported(folder, *options):
    done = prefkin_says("export", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done


def refused(folder, *options):
    before = sorted(folder.rglob("*"))
    done = prefkin_says("export", *options, cwd=folder)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(folder.rglob("*")) == before, "something was written"
    return done.stderr


# -- reward heads ----------------------------------------------------------------------------------------------------


def test_a_head_for_everybody_names_its_rows_and_where_all_weights_are(folder):
    exported(folder, "kin", "--to", "reward-head", "--out", "heads")
    model, heads = prefkin.load(folder / "kin"), folder / "heads"
    assert sorted(p.name for p in heads.iterdir()) == [
        "config.json",
        "head.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
    ]
    weight = load_file(heads / "head.safetensors")["score.weight"]
    np.testing.assert_array_equal(weight, model.theta_.astype(np.float32))
    config = json.loads((heads / "config.json").read_text())
    assert list(config["id2label"].values()) == model.users_.tolist()
    assert config["label2id"]["user 3"] == 3
    assert config["architectures"] == ["LlamaForSequenceClassification"]
    assert (config["dtype"], config["pad_token_id"], config["model_type"]) == ("float32", 2, "llama")
    index = json.loads((heads / "model.safetensors.index.json").read_text())["weight_map"]
    assert index == {
        "model.norm.weight": str((folder / "lm/model.safetensors").resolve()),
        "score.weight": "head.safetensors",
    }


def test_a_head_says_how_far_doubt_draws_its_answers_to_one_half(folder):
    exported(folder, "kin", "--to", "reward-head", "--out", "doubtful")
    exported(folder, "paper", "--to", "reward-head", "--out", "certain")
    scales = {}
    for name in ("doubtful", "certain"):
        with safe_open(folder / name / "head.safetensors", "numpy") as archive:
            scales[name] = np.array(json.loads(archive.metadata()["prefkin"])["log_odds"])
    np.testing.assert_allclose(scales["certain"], 1.0, atol=1e-12)
    model = prefkin.load(folder / "kin")
    data = model.comparisons()
    said = model.decision_function(data)
    heard = scales["doubtful"][data.who] * np.einsum("ij,ij->i", data.Z, model.theta_[data.who])
    assert (scales["doubtful"] < 0.99).all()
    assert np.abs(said - heard).mean() < 0.12 * np.abs(said).mean()


@pytest.mark.xfail(strict=False, reason="three planted groups: evidence +0.9 over by degrees, 1.0 needed")
def test_one_user_or_each_group(folder):
    model = prefkin.load(folder / "kin")
    exported(folder, "kin", "--to", "reward-head", "--out", "one", "--user", "user 4")
    mine = load_file(folder / "one/head.safetensors")["score.weight"]
    np.testing.assert_array_equal(mine, model.theta_[[4]].astype(np.float32))
    said = exported(folder, "kin", "--to", "reward-head", "--out", "three", "--groups")
    assert "a head times the features of a text is its reward" in " ".join(said.stdout.split())
    assert "3 heads of 3 features" in said.stdout
    theirs = load_file(folder / "three/head.safetensors")["score.weight"]
    exported(folder, "kin", "--to", "reward-head", "--out", "second", "--group", "1")
    second = load_file(folder / "second/head.safetensors")["score.weight"]
    np.testing.assert_array_equal(second[0], next(g.centre for g in model.groups_ if g.label == 1).astype(np.float32))
    assert json.loads((folder / "second/config.json").read_text())["id2label"] == {"0": "group 1"}
    apart = np.linalg.norm(theirs[:, None] - model.theta_, axis=2)
    assert sorted(np.bincount(apart.argmin(axis=0))) == [3, 3, 3]
    assert apart.min(axis=0).max() < 0.2 * np.linalg.norm(theirs, axis=1).min()


def test_groups_of_the_papers_algorithm_are_its_neighbourhoods(folder):
    model = prefkin.load(folder / "paper")
    exported(folder, "paper", "--to", "reward-head", "--out", "by-paper", "--groups")
    heads = load_file(folder / "by-paper/head.safetensors")["score.weight"]
    pooled = [owners for owners, members in model.neighbourhoods() if len(members) > 1]
    assert len(heads) == len(pooled)
    for owners in pooled:
        assert np.isclose(heads, model.theta_[owners[0]], atol=1e-6).all(axis=1).any()


def test_weights_in_several_files_are_found(folder):
    lm = language_model(folder / "large")
    (lm / "model.safetensors").rename(lm / "model-00001-of-00001.safetensors")
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}
    (lm / "model.safetensors.index.json").write_text(json.dumps(index))
    exported(folder, "kin", "--to", "reward-head", "--out", "moved", "--encoder", "large")
    found = json.loads((folder / "moved/model.safetensors.index.json").read_text())["weight_map"]
    assert found["model.norm.weight"] == str((lm / "model-00001-of-00001.safetensors").resolve())


def test_a_sentence_encoder_gets_a_dense_module(folder):
    encoder = folder / "sentences"
    encoder.mkdir()
    (encoder / "config.json").write_text("{}")
    (encoder / "modules.json").write_text("[]")
    exported(folder, "plain", "--to", "reward-head", "--out", "dense", "--encoder", "sentences", "--user", "user 0")
    theta = prefkin.load(folder / "plain").theta_[[0]].astype(np.float32)
    np.testing.assert_array_equal(load_file(folder / "dense/model.safetensors")["linear.weight"], theta)
    np.testing.assert_array_equal(load_file(folder / "dense/head.safetensors")["score.weight"], theta)
    config = json.loads((folder / "dense/config.json").read_text())
    assert (config["in_features"], config["out_features"], config["bias"]) == (DIM, 1, False)


def test_without_an_encoder_there_is_the_head_alone_and_a_word_about_it(folder):
    done = exported(folder, "plain", "--to", "reward-head", "--out", "alone")
    assert "only the head" in done.stderr
    assert sorted(p.name for p in (folder / "alone").iterdir()) == ["config.json", "head.safetensors"]


def test_a_second_export_leaves_nothing_of_the_first(folder):
    exported(folder, "kin", "--to", "reward-head", "--out", "again")
    exported(folder, "plain", "--to", "reward-head", "--out", "again")
    assert sorted(p.name for p in (folder / "again").iterdir()) == ["config.json", "head.safetensors"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--to", "onnx"), "--to must be one of reward-head, trl, labelstudio, argilla"),
        (("--to", "reward-head", "--user", "user 1", "--groups"), "are different things"),
        (("--to", "reward-head", "--user", "nobody"), "is not among the 9 fitted users"),
        (("--to", "reward-head", "--encoder", "nowhere"), "no config.json there"),
        (("--to", "reward-head", "--encoder", "unit"), "no causal language model"),
        (("--to", "reward-head", "--encoder", "wide"), "do not have the 3 features"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(folder, options, reason):
    for name, changes in {"unit": {"architectures": ["BertForMaskedLM"]}, "wide": {"hidden_size": 8}}.items():
        if not (folder / name).exists():
            language_model(folder / name, **changes)
    assert reason in refused(folder, "plain", "--out", "never", *options)


def test_a_config_that_is_no_object_is_named(folder):
    (language_model(folder / "listed") / "config.json").write_text("[]")
    said = refused(folder, "plain", "--out", "never", "--to", "reward-head", "--encoder", "listed")
    assert "listed/config.json: this is not the description of a model" in said


def test_features_that_transformers_would_not_make_are_refused(folder):
    note = json.loads((folder / "kin/encoder.json").read_text())
    for change, reason in (({"normalised": True}, "of length 1"), ({"pooling": "mean"}, "pooled by mean")):
        odd = folder / f"odd-{reason[:2]}"
        odd.mkdir()
        (odd / "model.safetensors").write_bytes((folder / "kin/model.safetensors").read_bytes())
        (odd / "encoder.json").write_text(json.dumps(note | change))
        assert reason in refused(folder, odd.name, "--to", "reward-head", "--out", "never")


# -- preference sets -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spoken(folder):
    """Votes with texts, and the model fitted on them."""
    rng = np.random.default_rng(3)
    Z, y, users = draw_answers(rng, sizes=[60] * 6, strength=12.0, n_groups=2)
    side = rng.standard_normal(Z.shape)
    first, second = side + Z, side
    won, lost = (np.where(y[:, None] == 1, *pair) for pair in ((first, second), (second, first)))
    names = [[f"{name} {row}" for row in range(len(y))] for name in ("first", "second")]
    texts = {
        "prompt": [f"prompt {row // 2}" for row in range(len(y))],
        "chosen": [a if answer == 1 else b for a, b, answer in zip(*names, y)],
        "rejected": [b if answer == 1 else a for a, b, answer in zip(*names, y)],
    }
    rows = pl.DataFrame({**texts, "annotator": [f"ann {u}" for u in users]}).with_columns(
        chosen_embedding=pl.Series(won.tolist()), rejected_embedding=pl.Series(lost.tolist())
    )
    rows.write_parquet(folder / "spoken.parquet")
    assert prefkin_says("fit", "spoken.parquet", "--out", "said", "--no-pictures", cwd=folder).returncode == 0
    if prefkin.load(folder / "said").structure_ != "groups":
        pytest.xfail("planted groups are taken for continuous heterogeneity")
    return rows


def test_each_group_gets_the_answers_of_its_members(folder, spoken):
    exported(folder, "said", "--to", "trl", "--votes", "spoken.parquet", "--out", "sets")
    assert sorted(p.name for p in (folder / "sets").iterdir()) == ["group-0.parquet", "group-1.parquet"]
    sets = [pl.read_parquet(folder / "sets" / f"group-{k}.parquet") for k in range(2)]
    assert sets[0].columns == ["prompt", "chosen", "rejected", "weight", "source", "annotator"]
    assert sum(map(len, sets)) == len(spoken)
    assert set(sets[0]["annotator"]).isdisjoint(sets[1]["annotator"])
    wanted = spoken.filter(pl.col("annotator").is_in(sets[0]["annotator"].to_list()))
    assert sets[0].select("prompt", "chosen", "rejected").equals(wanted.select("prompt", "chosen", "rejected"))
    assert sets[0]["weight"].min() > 0.5


def test_all_answers_can_be_kept_by_their_weight(folder, spoken):
    exported(folder, "said", "--to", "trl", "--votes", "spoken.parquet", "--out", "all", "--least", "0")
    kept, model = pl.read_parquet(folder / "all/group-0.parquet"), prefkin.load(folder / "said")
    theirs = model.membership_[:, np.argmax(model.membership_[model.position(kept["annotator"][0])])]
    place = [model.position(name) for name in kept["annotator"]]
    np.testing.assert_allclose(kept["weight"], theirs[place], atol=1e-12)
    assert len(kept) == 60 * (theirs > 0).sum()


def test_others_pairs_are_labelled_where_the_group_is_sure(folder, spoken):
    pl.concat([spoken, spoken]).write_parquet(folder / "twice.parquet")
    options = ("said", "--to", "trl", "--votes", "twice.parquet", "--surer-than", "0.8")
    said = exported(folder, *options, "--out", "more")
    assert "labelled" in said.stdout
    model, features = prefkin.load(folder / "said"), {}
    for row in spoken.iter_rows(named=True):
        features[row["chosen"]], features[row["rejected"]] = row["chosen_embedding"], row["rejected_embedding"]
    for k in range(2):
        rows = pl.read_parquet(folder / f"more/group-{k}.parquet")
        own, further = (rows.filter(pl.col("source") == word) for word in ("answer", "model"))
        assert len(own)
        assert len(further) > 10
        assert further["annotator"].null_count() == len(further)
        assert further["weight"].min() > 0.8
        assert further.select("chosen", "rejected").is_unique().all(), "a pair stands twice"
        assert set(further["chosen"]).isdisjoint([*own["chosen"], *own["rejected"]]), "members were asked about it"
        member = own["annotator"][0]
        theta = model.theta_[model.position(member)]
        margin = [
            np.dot(theta, np.subtract(features[a], features[b])) for a, b in zip(further["chosen"], further["rejected"])
        ]
        assert np.mean(np.array(margin) > 0) > 0.95


def test_a_set_for_one_person_has_own_answers_in_full(folder, spoken):
    exported(folder, "said", "--to", "trl", "--votes", "spoken.parquet", "--out", "mine", "--user", "ann 3")
    rows = pl.read_parquet(folder / "mine/preferences.parquet")
    assert rows.filter(pl.col("annotator") == "ann 3")["weight"].to_list() == [1.0] * 60
    assert 60 < len(rows) < len(spoken)


def test_conversations_stay_conversations(folder, spoken):
    def says(side):
        return [[{"role": "assistant", "content": text}] for text in spoken[side]]

    spoken.with_columns(chosen=pl.Series(says("chosen")), rejected=pl.Series(says("rejected"))).write_parquet(
        folder / "chats.parquet"
    )
    exported(folder, "said", "--to", "trl", "--votes", "chats.parquet", "--out", "chats", "--surer-than", "0.9")
    row = pl.read_parquet(folder / "chats/group-1.parquet").row(0, named=True)
    assert [message["role"] for message in row["chosen"]] == ["assistant"]


def test_sets_of_a_former_export_go(folder, spoken):
    exported(folder, "said", "--to", "trl", "--votes", "spoken.parquet", "--out", "former")
    exported(folder, "said", "--to", "trl", "--votes", "spoken.parquet", "--out", "former", "--user", "ann 3")
    assert [p.name for p in (folder / "former").iterdir()] == ["preferences.parquet"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("said",), "give --votes FILE"),
        (("said", "--votes", "votes.parquet"), "lacks column chosen"),
        (("said", "--votes", "none.parquet"), "no such file"),
        (("said", "--votes", "gap.parquet"), "chosen is missing in row 4"),
        (("said", "--votes", "strangers.parquet"), "none of these rows is by anybody who belongs there"),
        (("said", "--votes", "wide.parquet"), "4 features, but the model was fitted with 3"),
        (("said", "--votes", "spoken.parquet", "--encoder", "lm"), "--encoder is for --to reward-head"),
    ],
)
def test_sets_that_cannot_be_are_refused(folder, spoken, options, reason):
    gap = spoken.with_row_index().with_columns(
        chosen=pl.when(pl.col("index") == 4).then(None).otherwise(pl.col("chosen"))
    )
    gap.drop("index").write_parquet(folder / "gap.parquet")
    spoken.with_columns(annotator=pl.lit("stranger")).write_parquet(folder / "strangers.parquet")
    longer = {
        f"{side}_embedding": pl.Series([[0.5, 0.1 * i, 0.0, 1.0] for i in range(len(spoken))])
        for side in ("chosen", "rejected")
    }
    spoken.with_columns(**longer).with_columns(rejected_embedding=pl.Series([[1.0] * 4] * len(spoken))).write_parquet(
        folder / "wide.parquet"
    )
    assert reason in refused(folder, "--to", "trl", "--out", "never", *options)


# -- questions -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def items(folder):
    rng = np.random.default_rng(5)
    table = pl.DataFrame(
        {
            "context": np.repeat(["tea", "coffee"], 4),
            "action": [f"cup {k}" for k in range(8)],
            "text": [f"Text of cup {k}." for k in range(8)],
            "prompt": np.repeat(["Which tea?", "Which coffee?"], 4),
            "phi": rng.standard_normal((8, DIM)).tolist(),
        }
    )
    table.write_parquet(folder / "items.parquet")
    return table


def test_tasks_for_label_studio_carry_the_person_the_texts_and_the_features(folder, items):
    said = exported(
        folder, "kin", "--to", "labelstudio", "--candidates", "items.parquet", "--out", "tasks.json", "--each", "2"
    )
    assert "18 questions for 9 people" in said.stdout
    tasks = json.loads((folder / "tasks.json").read_text())
    model, cands = prefkin.load(folder / "kin"), prefkin.read_candidates(folder / "items.parquet")
    wanted = model.session("user 0", cands, rule="coverage").plan(1)[0]
    first = tasks[0]["data"]
    assert (first["asked"], first["context"]) == ("user 0", cands.contexts[wanted.context])
    known = {row["action"]: row for row in items.iter_rows(named=True)}
    for task in tasks:
        data = task["data"]
        for side, place in (("left", "first"), ("right", "second")):
            row = known[data[f"{side}_action"]]
            assert (data[side], data[place], data["prompt"]) == (row["text"], row["phi"], row["prompt"])


def test_records_for_argilla_of_a_plan(folder, items):
    plan = pl.DataFrame(
        {
            "user": ["user 3", "Zoe"],
            "context": ["tea", "coffee"],
            "first": ["cup 1", "cup 7"],
            "second": ["cup 0", "cup 4"],
        }
    )
    plan.write_csv(folder / "plan.csv")
    exported(
        folder, "kin", "--to", "argilla", "--candidates", "items.parquet", "--plan", "plan.csv", "--out", "records.json"
    )
    one, other = json.loads((folder / "records.json").read_text())
    assert one == {
        "id": "user 3/tea/cup 1-cup 0",
        "fields": {"prompt": "Which tea?", "response_1": "Text of cup 1.", "response_2": "Text of cup 0."},
        "metadata": {"asked": "user 3", "context": "tea", "first_action": "cup 1", "second_action": "cup 0"},
    }
    assert other["metadata"]["asked"] == "Zoe"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--out", "t.json"), "give --candidates FILE"),
        (("--out", "t.json", "--candidates", "items.parquet", "--groups"), "leave out --groups"),
        (("--out", "t.csv", "--candidates", "items.parquet"), "ends in .json"),
        (("--out", "t.json", "--candidates", "votes.parquet"), "lack a column text"),
        (("--out", "t.json", "--candidates", "items.parquet", "--votes", "votes.parquet"), "--votes is for --to trl"),
        (("--out", "t.json", "--candidates", "items.parquet", "--plan", "votes.parquet"), "lacks column context"),
        (("--out", "t.json", "--candidates", "items.parquet", "--plan", "odd.csv"), "is not among the candidates"),
        (("--out", "t.json", "--candidates", "items.parquet", "--plan", "same.csv"), "'cup 1' with itself"),
        (("--out", "t.json", "--candidates", "items.parquet", "--plan", "nobody.csv"), "the user is missing in row 0"),
    ],
)
def test_questions_that_cannot_be_asked_are_refused(folder, items, options, reason):
    for name, row in (
        ("odd", "user 1,tea,cup 1,cup 6"),
        ("same", "user 1,tea,cup 1,cup 1"),
        ("nobody", ",tea,cup 1,cup 0"),
    ):
        (folder / f"{name}.csv").write_text(f"user,context,first,second\n{row}\n")
    assert reason in refused(folder, "kin", "--to", "labelstudio", *options)
