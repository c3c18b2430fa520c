"""Votes with the texts they are about: who preferred which text to which, and by how much their features differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefkin.data.arrays import FloatArray
from prefkin.data.checks import is_missing
from prefkin.data.comparisons import Comparisons
from prefkin.data.formats import label_column, read_columns
from prefkin.data.tables import read_comparisons
from prefkin.errors import InvalidTable

__all__ = ["Votes", "read_votes"]

SIDES = (("chosen", "rejected"), ("left", "right"))


@dataclass(frozen=True, eq=False)
class Votes:
    """Rows of texts: who preferred `chosen` to `rejected`, and by how much their features differ."""

    texts: dict[str, list[Any]]  # chosen, rejected and maybe prompt: texts, or lists of messages
    data: Comparisons

    @property
    def differences(self) -> FloatArray:
        """Features of chosen minus those of rejected."""
        return self.data.Z * (2.0 * self.data.y - 1.0)[:, None]

    def pair(self, row: int) -> str:
        """Which pair a row is about, whichever won."""
        sides = sorted(json.dumps(self.texts[side][row], sort_keys=True, default=str) for side in SIDES[0])
        prompt = self.texts["prompt"][row] if "prompt" in self.texts else None
        return json.dumps([prompt, *sides], sort_keys=True, default=str)


def read_votes(path: Path, columns: Mapping[str, str], features: Sequence[str] | None = None) -> Votes:
    """The texts of a file, chosen and rejected or left and right, and their features as `prefkin fit` reads them."""
    data = read_comparisons(path, columns, features=features)
    names = {name: columns.get(name, name) for name in ("prompt", *sum(SIDES, ()))}
    table = read_columns(path, list(names.values()))
    texts = {name: label_column(table[theirs]).tolist() for name, theirs in names.items() if theirs in table}
    sides = next((pair for pair in SIDES if texts.keys() >= set(pair)), None)
    if sides is None:
        lacking = next(name for name in SIDES[0] if name not in texts)
        raise InvalidTable(f"{path}: lacks column {lacking}, the text itself; give the rows with their texts")
    for name, values in texts.items():
        for row, value in enumerate(values):
            if is_missing(value):
                raise InvalidTable(
                    f"{path}: {name} is missing in row {row} (counted from 0); fill it in or drop the row"
                )
    found = {"prompt": texts["prompt"]} if "prompt" in texts else {}
    pairs = list(zip(texts[sides[0]], texts[sides[1]], strict=True))
    if sides != SIDES[0]:
        pairs = [(left, right) if y else (right, left) for (left, right), y in zip(pairs, data.y.tolist(), strict=True)]
    chosen, rejected = (list(side) for side in zip(*pairs, strict=True))
    return Votes(found | {"chosen": chosen, "rejected": rejected}, data)
