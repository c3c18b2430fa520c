"""What the features were made by: kept by `prefkin embed` with the features, and by `prefkin fit` with the model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefkin.errors import InvalidParameter, ModelFileError
from prefkin.models.files import ENCODER_FILE

__all__ = ["KINDS", "Encoder", "encoder_of", "recognised"]

KINDS = ("sentence-transformers", "causal-lm")


@dataclass(frozen=True)
class Encoder:
    """A sentence encoder, or the last hidden state of a causal language model."""

    name: str  # a folder, or a name that the library it is for knows
    kind: str  # one of KINDS
    pooling: str  # "mean", "last", ...: which tokens' vectors a text's is made of
    normalised: bool  # is every text's vector of length 1?
    dim: int

    @property
    def folder(self) -> Path | None:
        """Where its files are, if they are on this machine."""
        if Path(self.name).is_dir():
            return Path(self.name).resolve()
        try:
            from huggingface_hub import snapshot_download
        except ImportError:
            return None
        try:
            return Path(snapshot_download(self.name, local_files_only=True))
        except Exception:  # not there, or no name it knows: the library has many words for that
            return None

    def config(self) -> dict[str, Any]:
        """Its own config.json."""
        folder = self.folder
        if folder is None:
            raise InvalidParameter(
                f"the files of encoder {self.name!r} are not on this machine; say where: --encoder FOLDER"
            )
        config = _json(folder / "config.json")
        if not isinstance(config, dict):
            raise ModelFileError(f"{folder / 'config.json'}: this is not the description of a model; write it again")
        return config


def encoder_of(model_folder: Path) -> Encoder | None:
    """What `prefkin fit` kept beside the model, if its features came from an encoder."""
    file = model_folder / ENCODER_FILE
    if not file.is_file():
        return None
    said = _json(file)
    try:
        encoder = Encoder(**{name: said[name] for name in Encoder.__dataclass_fields__})
    except (KeyError, TypeError):
        raise ModelFileError(f"{file}: does not say what the features were made by; fit again") from None
    if encoder.kind not in KINDS:
        raise ModelFileError(f"{file}: encoders of kind {encoder.kind!r:.40} are not known; known: {', '.join(KINDS)}")
    return encoder


def recognised(folder: Path, dim: int) -> Encoder:
    """An encoder by its files, used as `prefkin embed` uses such encoders."""
    if not (folder / "config.json").is_file():
        raise InvalidParameter(f"--encoder {folder}: no config.json there; give the folder of an encoder")
    if (folder / "modules.json").is_file():
        return Encoder(str(folder), "sentence-transformers", "mean", True, dim)
    return Encoder(str(folder), "causal-lm", "last", False, dim)


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(f"{file}: cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise ModelFileError(f"{file}: not readable as JSON; write it again") from None
