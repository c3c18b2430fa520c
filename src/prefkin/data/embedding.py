"""Texts → features, through sentence-transformers (install `prefkin[embed]`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.errors import InvalidParameter

__all__ = ["sentence_embedder"]


def sentence_embedder(model: str = "all-MiniLM-L6-v2", *, batch_size: int = 64) -> Callable[[list[str]], FloatArray]:
    """A function for `read_comparisons(embed=...)`: unit-norm embeddings by a sentence-transformers model.

    `model` is a name or a folder with the weights.

    >>> embed = sentence_embedder("folder/with/weights")        # doctest: +SKIP
    >>> data = read_comparisons("votes.jsonl", embed=embed)     # doctest: +SKIP
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise InvalidParameter("embedding texts needs sentence-transformers; pip install 'prefkin[embed]'") from None
    encoder = SentenceTransformer(model)

    def embed(texts: list[str]) -> FloatArray:
        vectors = encoder.encode(texts, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float64)

    return embed
