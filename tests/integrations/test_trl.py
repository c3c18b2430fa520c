"""TRL trains on the sets that are exported."""

import numpy as np
import polars as pl
import pytest

from tests.conftest import prefkin_says
from tests.integrations.conftest import states, votes

pytestmark = pytest.mark.integrations


@pytest.fixture(scope="module", params=["texts", "chats"])
def preferences(request, language_model, texts, tmp_path_factory):
    """The set of one group, as `datasets` reads it, with pairs that the group's model labelled."""
    from datasets import load_dataset

    work, features = tmp_path_factory.mktemp("work"), states(language_model, texts)
    rows = pl.DataFrame(votes(texts, features, np.random.default_rng(1)))
    if request.param == "chats":
        said = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}
        chats = {side: [[{"role": who, "content": text}] for text in rows[side]] for side, who in said.items()}
        rows = rows.with_columns(**{side: pl.Series(values) for side, values in chats.items()})
    rows.write_parquet(work / "votes.parquet")
    for command in (
        ("fit", "votes.parquet", "--out", "kin", "--no-pictures"),
        ("export", "kin", "--to", "trl", "--votes", "votes.parquet", "--out", "sets", "--surer-than", "0.7"),
    ):
        done = prefkin_says(*command, cwd=work)
        assert done.returncode == 0, done.stderr
    found = load_dataset("parquet", data_files=str(work / "sets/group-0.parquet"), split="train", cache_dir=work)
    assert set(found["source"]) == {"answer", "model"}
    return found


SETTINGS = {
    "max_steps": 1,
    "per_device_train_batch_size": 4,
    "report_to": "none",
    "save_strategy": "no",
    "use_cpu": True,
}
CHAT = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


def test_a_reward_trainer_takes_a_step(preferences, language_model, tokenizer, tmp_path):
    from transformers import AutoModelForSequenceClassification
    from trl import RewardConfig, RewardTrainer

    tokenizer.chat_template = CHAT
    model = AutoModelForSequenceClassification.from_pretrained(language_model, num_labels=1)
    before = model.score.weight.detach().clone()
    settings = RewardConfig(output_dir=str(tmp_path), learning_rate=1e-2, bf16=False, **SETTINGS)
    trainer = RewardTrainer(model=model, args=settings, train_dataset=preferences, processing_class=tokenizer)
    assert np.isfinite(trainer.train().training_loss)
    assert (model.score.weight != before).any()


def test_a_dpo_trainer_takes_a_step(preferences, language_model, tokenizer, tmp_path):
    from transformers import AutoModelForCausalLM
    from trl import DPOConfig, DPOTrainer

    tokenizer.chat_template = CHAT
    model = AutoModelForCausalLM.from_pretrained(language_model)
    settings = DPOConfig(output_dir=str(tmp_path), learning_rate=1e-2, bf16=False, **SETTINGS)
    trainer = DPOTrainer(model=model, args=settings, train_dataset=preferences, processing_class=tokenizer)
    assert np.isfinite(trainer.train().training_loss)
