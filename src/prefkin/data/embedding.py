"""Texts → features, through sentence-transformers or a local causal language model (install `prefkin[embed]`).

Each distinct text is encoded once. What is done is kept in an SQLite file by the content of the text and the identity
of the encoder, batch by batch, so that work that was interrupted goes on, and other tables with the same texts cost
nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.errors import InvalidParameter, InvalidTable
from prefkin.execution.progress import tell

__all__ = ["Embedded", "Encoder", "embed_texts", "open_encoder", "sentence_embedder"]

NEEDS = "embedding texts needs {}; pip install 'prefkin[embed]'"


@dataclass(frozen=True)
class Encoder:
    """A function from texts to vectors, and what it is: name, kind, pooling, normalised, dim, sha256 of its weights."""

    identity: dict[str, Any]
    encode: Callable[[list[str]], FloatArray]


@dataclass(frozen=True)
class Embedded:
    """Vectors in the order of the texts; how many texts differ, how many were known, and seconds in the encoder."""

    vectors: FloatArray
    distinct: int
    known: int
    seconds: float


def sentence_embedder(model: str = "all-MiniLM-L6-v2", *, batch_size: int = 64) -> Callable[[list[str]], FloatArray]:
    """A function for `read_comparisons(embed=...)`: unit-norm embeddings by a sentence-transformers model.

    `model` is a name or a folder with the weights.

    >>> embed = sentence_embedder("folder/with/weights")        # doctest: +SKIP
    >>> data = read_comparisons("votes.jsonl", embed=embed)     # doctest: +SKIP
    """
    encode = _sentence_transformer(model, batch_size).encode
    return lambda texts: encode(texts).astype(np.float64)


def open_encoder(name: str, batch_size: int = 32) -> Encoder:
    """A sentence-transformers model by name or folder, or a folder with a causal language model of transformers.

    Of a language model a text becomes the last hidden state of its last token, as
    `AutoModelForSequenceClassification` sees it.
    """
    folder = Path(name)
    if not folder.is_dir() and (folder.exists() or name.startswith((".", "/", "~"))):
        raise InvalidParameter(f"--encoder {name}: no such folder; give one with the weights of a model, or a name")
    if folder.is_dir() and not (folder / "modules.json").exists():
        if not (folder / "config.json").exists():
            raise InvalidParameter(f"--encoder {name}: no model is in this folder (no modules.json, no config.json)")
        if any("CausalLM" in kind for kind in _json(folder / "config.json").get("architectures") or ()):
            return _causal_lm(folder, batch_size)
    return _sentence_transformer(name, batch_size)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidParameter(f"{path}: cannot be read ({error})") from None
    return found if isinstance(found, dict) else {}


@contextmanager
def _loading(name: str) -> Iterator[None]:
    """Libraries fail to load a model in many ways."""
    try:
        with _quietly():
            yield
    except ImportError as error:
        raise InvalidParameter(NEEDS.format(error.name or "sentence-transformers")) from None
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise InvalidParameter(f"--encoder {name}: the model cannot be loaded: {reason:.160}") from None


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what libraries write to the terminal by themselves, progress bars and retries: an error is one line."""
    with ExitStack() as afterwards:
        afterwards.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        with suppress(ImportError):
            from transformers.utils import logging as bars

            if bars.is_progress_bar_enabled():
                bars.disable_progress_bar()
                afterwards.callback(bars.enable_progress_bar)
        yield


def _sentence_transformer(name: str, batch_size: int) -> Encoder:
    with _loading(name):
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(name)

    def encode(texts: list[str]) -> FloatArray:
        vectors = model.encode(texts, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float32)

    pooling = next((str(part.pooling_mode) for part in model if hasattr(part, "pooling_mode")), None)
    return Encoder(_identity(name, "sentence-transformers", pooling, True, encode(["a"]).shape[1]), encode)


def _causal_lm(folder: Path, batch_size: int) -> Encoder:
    with _loading(str(folder)):
        import torch
        from transformers import AutoModel, AutoTokenizer

        model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    longest = min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", 2**20))

    def encode(texts: list[str]) -> FloatArray:
        parts = []
        for at in range(0, len(texts), batch_size):
            some = [text or tokenizer.eos_token for text in texts[at : at + batch_size]]  # nothing has no last token
            given = tokenizer(some, padding=True, truncation=True, max_length=longest, return_tensors="pt")
            given.pop("token_type_ids", None)
            with torch.inference_mode():
                states = model(**given).last_hidden_state
            last = given["attention_mask"].sum(dim=1) - 1
            parts.append(states[torch.arange(len(some)), last].float().numpy())
        return np.concatenate(parts)

    return Encoder(_identity(str(folder), "causal-lm", "last token", False, int(model.config.hidden_size)), encode)


def _identity(name: str, kind: str, pooling: str | None, normalised: bool, dim: int) -> dict[str, Any]:
    """What a vector depends on beside its text; of a folder also the sum of its weights."""
    found: dict[str, Any] = {"name": name, "kind": kind, "pooling": pooling, "normalised": normalised, "dim": dim}
    if Path(name).is_dir():
        weights = hashlib.sha256()
        for file in sorted(Path(name).glob("*.safetensors")) or sorted(Path(name).glob("*.bin")):
            with file.open("rb") as content:
                weights.update(hashlib.file_digest(content, "sha256").digest())
        found |= {"name": str(Path(name).resolve()), "sha256": weights.hexdigest()}
    return found


def embed_texts(texts: Sequence[str], encoder: Encoder, cache: Path, at_once: int = 256) -> Embedded:
    """Vectors of texts: those that `cache` knows from there, others by the encoder, so many at once and kept.

    >>> import tempfile
    >>> lengths = Encoder({"name": "lengths", "dim": 1}, lambda texts: np.array([[len(text)] for text in texts]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = Path(folder) / "known.sqlite"
    ...     first = embed_texts(["a", "bcd", "a"], lengths, cache)
    ...     again = embed_texts(["bcd"], lengths, cache)
    >>> first.vectors.ravel().tolist(), first.distinct, first.known, again.known
    ([1.0, 3.0, 1.0], 2, 0, 1)
    """
    who = {key: value for key, value in encoder.identity.items() if key != "name" or "sha256" not in encoder.identity}
    salt = json.dumps(who, sort_keys=True).encode() + b"\0"
    place: dict[str, int] = {}
    for text in texts:
        place.setdefault(text, len(place))
    keys = {text: hashlib.sha256(salt + text.encode("utf-8", "surrogatepass")).digest() for text in place}
    found: FloatArray = np.empty((len(place), int(encoder.identity["dim"])), dtype=np.float32)
    seconds = 0.0
    try:
        with closing(sqlite3.connect(cache)) as store:
            store.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
            unknown = [text for text, row in place.items() if not _known(store, keys[text], found[row])]
            unknown.sort(key=len, reverse=True)  # alike lengths go together, and too little memory shows at once
            known = len(place) - len(unknown)
            for at in range(0, len(unknown), at_once):
                some = unknown[at : at + at_once]
                start = time.perf_counter()
                vectors = np.asarray(encoder.encode(some), dtype=np.float32)
                seconds += time.perf_counter() - start
                if vectors.shape != (len(some), found.shape[1]) or not np.isfinite(vectors).all():
                    raise InvalidTable(f"the encoder returned numbers that are not finite, or of shape {vectors.shape}")
                found[[place[text] for text in some]] = vectors
                rows = [(keys[text], vector.tobytes()) for text, vector in zip(some, vectors, strict=True)]
                with store:
                    store.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
                tell("texts embedded", min(at + at_once, len(unknown)), len(unknown))
    except sqlite3.Error as error:
        raise InvalidParameter(f"{cache}: embeddings cannot be kept there ({error}); give another --cache") from None
    return Embedded(found[[place[text] for text in texts]], len(place), known, seconds)


def _known(store: sqlite3.Connection, key: bytes, into: FloatArray) -> bool:
    row = store.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
    if row is None or len(row[0]) != into.nbytes:
        return False
    into[:] = np.frombuffer(row[0], dtype=np.float32)
    return True
