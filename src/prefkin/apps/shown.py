"""Candidates as a person reads them: by names and texts, never by bare positions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prefkin.data.candidates import Candidates
from prefkin.data.checks import in_file, is_missing
from prefkin.data.formats import label_column, read_columns
from prefkin.data.ratings import factor_names
from prefkin.data.tables import EVERY_ITEM, read_candidates
from prefkin.models.coverage import feature_name

__all__ = ["Shown", "read_shown"]

FEATURES = 4  # that tell apart what has no text
LONGEST = 60  # characters of a text in a table


@dataclass(frozen=True, eq=False)
class Shown:
    """Candidates, with a text for each action and a prompt for each context where the file has them."""

    candidates: Candidates
    texts: tuple[str, ...]  # one for each row of the candidates, or empty
    prompts: tuple[str, ...]  # one for each context, or empty
    feature_names: tuple[str, ...] | None

    def context(self, context: int) -> str:
        """What is asked about; a table of items has no contexts of its own."""
        name = str(self.candidates.contexts[context])
        return self.prompts[context] or ("which one?" if len(self.candidates) == 1 and name == EVERY_ITEM else name)

    @property
    def _learnt(self) -> bool:
        """Are the features factors of ratings, which mean nothing to a reader?"""
        return self.feature_names is not None and self.feature_names == factor_names(len(self.feature_names))

    def brief(self, row: int) -> str:
        """An action in a table: its name and the beginning of its text."""
        name, text = str(self.candidates.actions[row]), " ".join(self.texts[row].split())
        return f"{name}: {text[:LONGEST]}{'…' if len(text) > LONGEST else ''}" if text else name

    def pair(self, context: int, first: int, second: int) -> tuple[str, str]:
        """Two actions: name and text of each, or what tells their features apart."""
        rows = [int(self.candidates.starts[context]) + action for action in (first, second)]
        one, other = self.candidates.features[rows]
        apart = np.argsort(-np.abs(one - other), kind="stable")[:FEATURES]
        said = []
        for row, features in zip(rows, (one, other), strict=True):
            told = self.texts[row] or ", ".join(
                f"{feature_name(self.feature_names, j)} {features[j]:.3g}" for j in apart if one[j] != other[j]
            )
            name = str(self.candidates.actions[row])
            said.append(name if not self.texts[row] and self._learnt else f"{name}: {told}")
        return said[0], said[1]


def read_shown(path: Path, columns: dict[str, str], features: tuple[str, ...] | None) -> Shown:
    """Candidates from a file, with its columns text and prompt."""
    context, action = columns.get("context", "context"), columns.get("action", "action")
    with in_file(path):
        table = read_columns(path, (context, action, "text", "prompt"))
    candidates = read_candidates(path, columns, features=features)
    texts, prompts = [""] * len(candidates.features), [""] * len(candidates)
    if context in table and action in table:
        keys = [label_column(table[name]).tolist() for name in (context, action)]
        place = {(str(x), str(a)): row for row, (x, a) in enumerate(zip(*keys, strict=True))}
        owners = candidates.contexts[candidates.owner].tolist()
        rows = [place[str(x), str(a)] for x, a in zip(owners, candidates.actions.tolist(), strict=True)]
        for name, into, of in (("text", texts, rows), ("prompt", prompts, [rows[i] for i in candidates.starts[:-1]])):
            if name in table:
                values = label_column(table[name]).tolist()
                into[:] = ["" if is_missing(values[row]) else str(values[row]) for row in of]
    return Shown(candidates, tuple(texts), tuple(prompts), candidates.feature_names)
