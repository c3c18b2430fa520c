"""Heads on the encoders they were learnt with: rewards are ours."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import prefkin
from tests.conftest import prefkin_says
from tests.integrations.conftest import states, votes

pytestmark = pytest.mark.integrations


@pytest.fixture(scope="module")
def fitted(language_model, texts, tmp_path_factory):
    """A folder with a model fitted on states of the language model."""
    work, features = tmp_path_factory.mktemp("work"), states(language_model, texts)
    rows = pl.DataFrame(votes(texts, features, np.random.default_rng(1)))
    note = {"name": str(language_model), "kind": "causal-lm", "pooling": "last", "normalised": False, "dim": 16}
    rows.write_parquet(work / "votes.parquet", metadata={"prefkin.encoder": json.dumps(note)})
    done = prefkin_says("fit", "votes.parquet", "--out", "kin", "--no-pictures", cwd=work)
    assert done.returncode == 0, done.stderr
    return work, features


def documented(line, **names):
    """Run the program of docs/export.md with this line in it; the names it leaves behind."""
    page = (Path(__file__).parents[2] / "docs/export.md").read_text()
    (program,) = (block for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL) if line in block)
    exec(program.replace('"all-MiniLM-L6-v2"', "encoder"), names)
    return names


def exported(work, *options):
    done = prefkin_says("export", "kin", "--to", "reward-head", *options, cwd=work)
    assert done.returncode == 0, done.stderr


def rewards(model, tokenizer, texts):
    import torch

    with torch.no_grad():  # in batches of different lengths: padding does not matter
        return model(**tokenizer(texts, return_tensors="pt", padding=True)).logits.numpy()


def same(found, ours):
    """To single precision: padding alone moves the states of a language model in their last digits."""
    np.testing.assert_allclose(found, ours, atol=1e-5 * max(1.0, np.abs(ours).max()))


@pytest.mark.parametrize(("options", "n"), [((), 6), (("--user", "ann 2"), 1), (("--groups",), None)])
def test_transformers_loads_a_head_onto_its_encoder(fitted, texts, options, n):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    work, features = fitted
    exported(work, "--out", "heads", *options)
    scorer, info = AutoModelForSequenceClassification.from_pretrained(work / "heads", output_loading_info=True)
    assert not info["missing_keys"]
    model = prefkin.load(work / "kin")
    found = rewards(scorer.eval(), AutoTokenizer.from_pretrained(work / "heads"), texts)
    if n is not None:
        rows = [model.position(scorer.config.id2label[k]) for k in range(n)]
        same(found, features @ model.theta_[rows].T)
    else:
        assert found.shape[1] == len(scorer.config.id2label) < 6


@pytest.mark.parametrize("options", [("--user", "ann 2"), ("--group", "1")])
def test_one_head_is_a_reward_model_for_trl(fitted, texts, options, tmp_path):
    """A trainer that is given its folder asks for one label, and starts from our rewards."""
    from datasets import load_dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from trl import RewardConfig, RewardTrainer

    work, features = fitted
    exported(work, "--out", "one", *options)
    model = prefkin.load(work / "kin")
    theta = model.theta_[2] if "--user" in options else next(g.centre for g in model.groups_ if g.label == 1)
    scorer = AutoModelForSequenceClassification.from_pretrained(work / "one", num_labels=1)
    found = rewards(scorer.eval(), AutoTokenizer.from_pretrained(work / "one"), texts)
    same(found[:, 0], features @ theta)
    rows = load_dataset("parquet", data_files=str(work / "votes.parquet"), split="train", cache_dir=tmp_path)
    settings = RewardConfig(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=4, learning_rate=1e-3, bf16=False,
        report_to="none", save_strategy="no", use_cpu=True,
    )  # fmt: skip
    trainer = RewardTrainer(model=str(work / "one"), args=settings, train_dataset=rows.select(range(8)))
    np.testing.assert_allclose(trainer.model.score.weight.detach().numpy()[0], theta, rtol=1e-5)
    assert np.isfinite(trainer.train().training_loss)
    assert (trainer.model.score.weight.detach().numpy()[0] != theta.astype(np.float32)).any()


def test_heads_load_as_documented_beside_their_encoder_or_without(fitted, texts, language_model, monkeypatch):
    from transformers import AutoTokenizer

    work, features = fitted
    exported(work, "--out", "heads")
    monkeypatch.chdir(work)
    ours = features @ prefkin.load(work / "kin").theta_.T
    same(documented("AutoTokenizer.from_pretrained", texts=texts)["rewards"].detach().numpy(), ours)
    scorer = documented("load_model(model", encoder=language_model)["model"]
    same(rewards(scorer.eval(), AutoTokenizer.from_pretrained(language_model), texts), ours)


def test_a_model_in_half_precision_is_scored_in_full(fitted, texts, language_model, tmp_path):
    """Its config says bfloat16, which would be taken over when weights are loaded."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    work, _ = fitted
    AutoModelForCausalLM.from_pretrained(language_model, dtype=torch.bfloat16).save_pretrained(tmp_path / "half")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "half").dtype == torch.bfloat16
    exported(work, "--out", "full", "--user", "ann 0", "--encoder", str(tmp_path / "half"))
    assert AutoModelForSequenceClassification.from_pretrained(work / "full").dtype == torch.float32


def test_a_sentence_encoder_gives_rewards_through_a_dense_module(texts, tokenizer, tmp_path, monkeypatch):
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    words = modules.Transformer(str(tmp_path / "bert"))
    encoder = SentenceTransformer(modules=[words, modules.Pooling(16), modules.Normalize()])
    encoder.save(str(tmp_path / "encoder"))
    features = np.asarray(encoder.encode(texts), dtype=np.float64)
    pl.DataFrame(votes(texts, features, np.random.default_rng(1))).write_parquet(tmp_path / "votes.parquet")
    assert prefkin_says("fit", "votes.parquet", "--out", "kin", "--no-pictures", cwd=tmp_path).returncode == 0
    exported(tmp_path, "--out", "heads", "--encoder", "encoder")
    monkeypatch.chdir(tmp_path)
    theta = prefkin.load(tmp_path / "kin").theta_
    same(documented("Dense.load", encoder="encoder", texts=texts)["rewards"], features @ theta.T)
