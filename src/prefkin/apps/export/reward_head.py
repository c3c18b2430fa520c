"""A linear head that gives rewards: `score.weight`, and a config that puts it onto the encoder it was learnt with.

Rewards are w·φ(text), one for each name; only differences between texts mean something. Causal language models have a
class for this in transformers, with the last token's state as φ. Sentence encoders have none (classifiers of their
architectures read another vector through further layers), so for them the head is a Dense module instead.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from prefkin.apps.export.encoder import Encoder
from prefkin.apps.export.whose import Preferences
from prefkin.errors import InvalidParameter

__all__ = ["HEAD", "WRITTEN", "reward_head"]

HEAD = "head.safetensors"
INDEX = "model.safetensors.index.json"
TOKENIZER = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model"),
)
WRITTEN = (HEAD, "config.json", INDEX, "model.safetensors", *TOKENIZER)
"""Everything that may be written; of a former export nothing stays."""


def reward_head(preferences: Preferences, encoder: Encoder | None) -> dict[str, bytes]:
    """The files of a head, by name."""
    weight = np.ascontiguousarray(preferences.theta, dtype=np.float32)
    said = {
        "names": list(preferences.names),
        "log_odds": preferences.log_odds.tolist(),
        "encoder": None if encoder is None else vars(encoder),
    }
    head = {HEAD: save({"score.weight": weight}, {"format": "pt", "prefkin": json.dumps(said)})}
    labels = {str(k): name for k, name in enumerate(preferences.names)}
    if encoder is None:
        return head | {"config.json": _as_json({"hidden_size": weight.shape[1], "id2label": labels})}
    if encoder.dim != weight.shape[1]:
        raise InvalidParameter(
            f"encoder {encoder.name} gives {encoder.dim} features, but the model was fitted on {weight.shape[1]}; "
            "give the encoder it was learnt with"
        )
    return head | (_dense(weight) if encoder.kind == "sentence-transformers" else _language_model(encoder, labels))


def _dense(weight: np.ndarray[Any, Any]) -> dict[str, bytes]:
    """The last module of a SentenceTransformer."""
    config = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    return {"config.json": _as_json(config), "model.safetensors": save({"linear.weight": weight}, {"format": "pt"})}


def _language_model(encoder: Encoder, labels: dict[str, str]) -> dict[str, bytes]:
    """What `AutoModelForSequenceClassification.from_pretrained` reads."""
    if encoder.normalised or not encoder.pooling.startswith("last"):
        made = "of length 1" if encoder.normalised else f"pooled by {encoder.pooling}"
        raise InvalidParameter(
            f"features of {encoder.name} are {made}, but transformers scores the last token's state as it is; "
            "embed with that and fit again"
        )
    config, folder = encoder.config(), encoder.folder
    if config.get("hidden_size", config.get("n_embd", encoder.dim)) != encoder.dim:
        raise InvalidParameter(
            f"encoder {encoder.name}: its states do not have the {encoder.dim} features of the model"
        )
    config |= {
        "architectures": [_classifier(encoder, config)],
        "id2label": labels,
        "label2id": {name: int(k) for k, name in labels.items()},
        "dtype": "float32",  # in half precision rewards would not be ours
    }
    if config.get("pad_token_id") is None:  # the last token is the last one that is no padding
        ends = config.get("eos_token_id")
        config["pad_token_id"] = ends[0] if isinstance(ends, list) else ends
    files = {"config.json": _as_json(config)}
    if folder is not None:
        files |= {name: (folder / name).read_bytes() for name in TOKENIZER if (folder / name).is_file()}
        files |= _index(folder)
    return files


def _classifier(encoder: Encoder, config: dict[str, Any]) -> str:
    """The class of such models that has a score: LlamaForCausalLM → LlamaForSequenceClassification."""
    named = next(iter(config.get("architectures") or ()), "")
    family = re.sub(r"(ForCausalLM|LMHeadModel|ForSequenceClassification|Model)$", "", named)
    if family in ("", named):
        raise InvalidParameter(f"encoder {encoder.name}: {named or 'nothing'} is no causal language model")
    return f"{family}ForSequenceClassification"


def _index(folder: Path) -> dict[str, bytes]:
    """Where each weight is: the head here, the others where they are, so that nothing is copied."""
    index, single = folder / INDEX, folder / "model.safetensors"
    if index.is_file():
        weights = {name: str(folder / file) for name, file in json.loads(index.read_bytes())["weight_map"].items()}
    elif single.is_file():
        with safe_open(str(single), framework="numpy") as archive:
            weights = dict.fromkeys(archive.keys(), str(single))
    else:
        return {}
    return {INDEX: _as_json({"metadata": {}, "weight_map": {**weights, "score.weight": HEAD}})}


def _as_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
