"""What people look at: candidates with a text or an image each, and a prompt for each context."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.data.candidates import Candidates
from prefkin.data.checks import in_file, is_missing
from prefkin.data.exports import Shown
from prefkin.data.formats import label_column, read_columns
from prefkin.data.tables import read_candidates
from prefkin.errors import InvalidTable

__all__ = ["Items", "read_items", "read_texts"]

TEXTS = ("context", "action", "text", "image", "prompt")
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif")


@dataclass(frozen=True, eq=False)
class Items:
    """Candidates that can be shown: a text (Markdown) or the name of an image file for every action.

    >>> items = Items(Candidates([[[1.0], [2.0]]]), texts=("One.", "Two."), images=("", ""), prompts=("Which?",))
    >>> items.text(0, 1), items.label(0, 1)
    ('Two.', '1')
    """

    candidates: Candidates
    texts: tuple[str, ...]  # one for each row of the candidates; empty: see the image
    images: tuple[str, ...]  # names of files in the folder of images
    prompts: tuple[str, ...]  # one for each context, or empty

    def row(self, context: int, action: int) -> int:
        """Where an action stands in the flat table."""
        return int(self.candidates.starts[context]) + action

    def text(self, context: int, action: int) -> str:
        """Markdown of one action."""
        return self.texts[self.row(context, action)]

    def image(self, context: int, action: int) -> str:
        """Image of one action."""
        return self.images[self.row(context, action)]

    def label(self, context: int, action: int) -> str:
        """The name of one action, as text."""
        return str(self.candidates.actions[self.row(context, action)])

    def context(self, context: int) -> str:
        """The name of one context, as text."""
        return str(self.candidates.contexts[context])

    def content(self, context: int, action: int) -> str:
        """The text of one action, or its image."""
        return self.text(context, action) or self.image(context, action)

    def pair(self, context: int, one: int, other: int) -> Shown:
        """Two actions side by side, as other tools take them in."""
        rows = self.candidates.of(context)
        return Shown(
            self.context(context),
            self.prompts[context],
            (self.label(context, one), self.label(context, other)),
            (self.content(context, one), self.content(context, other)),
            (rows[one], rows[other]),
        )

    @cached_property
    def fingerprint(self) -> str:
        """What a store of answers is recognised by: names and features, not how texts are worded."""
        mark = hashlib.sha256(np.ascontiguousarray(self.candidates.features).data)
        mark.update(np.ascontiguousarray(self.candidates.starts.astype(np.int64)).tobytes())
        mark.update("\0".join([*map(str, self.candidates.contexts), *map(str, self.candidates.actions)]).encode())
        return mark.hexdigest()[:32]


Encoder = Callable[[list[str]], FloatArray]


def read_items(
    path: Path, features: Sequence[str] | None = None, encoder: Encoder | None = None, images: Path | None = None
) -> Items:
    """Items from a file: columns context, action, a text or image, maybe a prompt; and features, or an `encoder`."""
    columns = read_texts(path, TEXTS)
    if not ("text" in columns or "image" in columns):
        raise InvalidTable(f"{path}: the items lack a column text (Markdown) or image (a file name); people need one")
    for name in ("context", "action"):
        if name not in columns:
            raise InvalidTable(f"{path}: the items lack a column {name}; it has: {', '.join(list(columns)[:12])}")
    shown = {name: [_text(value) for value in label_column(columns[name])] for name in TEXTS if name in columns}
    n = len(shown["context"])
    texts, images_of, prompts = (shown.get(name, [""] * n) for name in ("text", "image", "prompt"))
    for row, (text, image) in enumerate(zip(texts, images_of, strict=True)):
        if not (text or image):
            raise InvalidTable(f"{path}: row {row} (counted from 0) has neither a text nor an image; fill it in")
        if image:
            _refuse_other_images(path, row, image, images)
    if encoder is not None:
        whole = [f"{prompt}\n\n{text}" if prompt else text for prompt, text in zip(prompts, texts, strict=True)]
        columns, features = {name: columns[name] for name in ("context", "action")} | {"phi": encoder(whole)}, None
    with in_file(path):
        candidates = read_candidates(columns, features=features)
    if candidates.sizes.max() < 2:
        raise InvalidTable(f"{path}: no context has two actions, so that there is nothing to compare; add some")
    place = {pair: row for row, pair in enumerate(zip(shown["context"], shown["action"], strict=True))}
    contexts = [str(candidates.contexts[x]) for x in candidates.owner]
    order = [place[pair] for pair in zip(contexts, map(str, candidates.actions), strict=True)]
    prompt_of: dict[str, str] = {}
    for row, (context, prompt) in enumerate(zip(shown["context"], prompts, strict=True)):
        if prompt_of.setdefault(context, prompt) != prompt:
            raise InvalidTable(f"{path}: the prompt differs within context {context!r} (row {row}); give one each")
    return Items(
        candidates,
        tuple(texts[row] for row in order),
        tuple(images_of[row] for row in order),
        tuple(prompt_of[str(context)] for context in candidates.contexts),
    )


def read_texts(path: Path, names: Sequence[str]) -> Mapping[str, Any]:
    """The columns of a file, those of these names as text."""
    with in_file(path):
        return read_columns(path, names)


def _text(value: Any) -> str:
    return "" if is_missing(value) else str(value)


def _refuse_other_images(path: Path, row: int, image: str, folder: Path | None) -> None:
    """An image is a file inside the folder that was given, and of a kind that browsers show and run nothing of."""
    if folder is None:
        raise InvalidTable(f"{path}: row {row} (counted from 0) shows image {image!r}; say where: --images FOLDER")
    file = (folder / image).resolve()
    if not file.is_relative_to(folder.resolve()) or file.suffix.lower() not in IMAGES:
        raise InvalidTable(f"{path}: image {image!r} of row {row} is not a {', '.join(IMAGES)} file in {folder}")
    if not file.is_file():
        raise InvalidTable(f"{path}: image {image!r} of row {row} (counted from 0) is not in {folder}")
