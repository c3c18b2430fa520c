"""
From annotators' votes to reward heads
======================================

Rows of prompt, chosen, rejected and an annotator become reward models: one for each annotator on the same language
model. Needs torch and transformers (``pip install 'prefkin[integrations]'``); the language model is built here, so that
nothing is downloaded.
"""

import json
import subprocess
import sys

import numpy as np
import polars as pl
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

import prefkin

# %%
# This stands for your language model: two layers, twenty words.

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "ran",
    "on",
    "under",
    "mat",
    "hill",
    "and",
    "slept",
    "ate",
    "fish",
    "good",
    "bad",
]
core = Tokenizer(models.WordLevel({word: k for k, word in enumerate(["[PAD]", "[UNK]", *WORDS])}, unk_token="[UNK]"))
core.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]")
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(tokenizer),
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    pad_token_id=0,
    bos_token_id=None,
    eos_token_id=None,
    initializer_range=0.3,
)
LlamaForCausalLM(config).save_pretrained("lm")
tokenizer.save_pretrained("lm")

# %%
# Texts become features: the state of the last token. Annotators in two groups vote on pairs.

rng = np.random.default_rng(0)
texts = [" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(80)]
encoder = AutoModel.from_pretrained("lm").eval()
with torch.no_grad():
    states = [encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, -1] for text in texts]
features = torch.stack(states).double().numpy()

tastes = 2.0 * rng.standard_normal((2, 16))
rows = []
for annotator in range(8):
    for _ in range(80):
        one, other = rng.choice(len(texts), 2, replace=False)
        odds = (features[one] - features[other]) @ tastes[annotator % 2]
        if rng.random() > 1 / (1 + np.exp(-odds)):
            one, other = other, one
        sides = {"chosen": texts[one], "rejected": texts[other]}
        vectors = {"chosen_embedding": features[one].tolist(), "rejected_embedding": features[other].tolist()}
        rows.append({"annotator": f"annotator {annotator}", **sides, **vectors})
note = {"name": "lm", "kind": "causal-lm", "pooling": "last", "normalised": False, "dim": 16}
pl.DataFrame(rows).write_parquet("votes.parquet", metadata={"prefkin.encoder": json.dumps(note)})

# %%
# Fit, and write a head for each annotator.

for command in (
    "fit votes.parquet --out kin --no-pictures",
    "export kin --to reward-head --out heads",
    "export kin --to trl --votes votes.parquet --out sets",
):
    print(
        subprocess.run(
            [sys.executable, "-m", "prefkin", *command.split()], check=True, capture_output=True, text=True
        ).stdout
    )

# %%
# transformers loads them onto the encoder they were learnt with; rewards are ours.

scorer = AutoModelForSequenceClassification.from_pretrained("heads").eval()
with torch.no_grad():
    batch = AutoTokenizer.from_pretrained("heads")(texts, return_tensors="pt", padding=True)
    rewards = scorer(**batch).logits.numpy()
model = prefkin.load("kin")
apart = np.abs(rewards - features @ model.theta_.T).max()
print(f"{rewards.shape[1]} rewards for each of {len(rewards)} texts, at most {apart:.0e} from ours")
assert apart < 1e-5 * max(1, np.abs(rewards).max())
