"""Reddit TL;DR: which of two summaries of a post is better? (Stiennon et al. 2020, the paper's real data.)

Original files: https://github.com/openai/summarize-from-feedback (comparisons/batch*.json, JSON lines). Put the batches
into a folder `tldr` under $PREFKIN_DATA; embeddings in `mpnet768.npz` (summaries, summary_emb) are used when they
are there, otherwise texts are embedded through `prefkin[embed]` and kept in `embeddings.npz`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.errors import InvalidTable
from prefkin.reproduce.worlds.pairs import ItemPairs, embedded

__all__ = ["read_tldr"]


def read_tldr(folder: Path) -> ItemPairs:
    """All comparisons in the batches of `folder`/tldr."""
    batches = sorted((folder / "tldr").glob("batch*.json"))
    if not batches:
        raise InvalidTable(
            f"{folder / 'tldr'}: no batch*.json there; download the comparisons of "
            "github.com/openai/summarize-from-feedback and set PREFKIN_DATA to the folder above"
        )
    rows: list[tuple[str, str, str, str, bool]] = []
    for batch in batches:
        for number, line in enumerate(batch.read_text().splitlines(), 1):
            try:
                row = json.loads(line)
                first, second = (one["text"] for one in row["summaries"])
                post = row["info"].get("id") or row["info"]["article"][:80]  # the CNN batches have no post
                chosen = (str(row["worker"]), str(post), first, second, int(row["choice"]) == 0)
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidTable(
                    f"{batch}: line {number} is no comparison ({error!r:.60}); get the file again"
                ) from None
            if first != second:
                rows.append(chosen)
    texts, embedding = _embedded(folder / "tldr", sorted({text for row in rows for text in row[2:4]}))
    place = {text: i for i, text in enumerate(texts)}
    placed = [
        (user, post, place[one], place[other], y) for user, post, one, other, y in rows if {one, other} <= place.keys()
    ]
    return ItemPairs.of(placed, embedding, texts)


def _embedded(folder: Path, texts: list[str]) -> tuple[list[str], FloatArray]:
    given = folder / "mpnet768.npz"
    if given.exists():
        with np.load(given) as stored:
            return stored["summaries"].tolist(), stored["summary_emb"].astype(np.float64)
    return texts, embedded(texts, folder / "embeddings.npz")
