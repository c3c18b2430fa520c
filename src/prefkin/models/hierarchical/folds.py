"""Folds that judge what was learnt: held-out rows lie in the span of the rows learnt from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray
from prefkin.data.folds import held_out_folds, leverage
from prefkin.data.rows import UserRows
from prefkin.inference.model import Design
from prefkin.models.hierarchical.settings import SELECTION

__all__ = ["Split", "splits_of"]


class Split(NamedTuple):
    """Rows to learn from, rows to be judged by, and what each of the latter counts."""

    train: BoolArray
    held: BoolArray
    weight: FloatArray


def splits_of(rows: UserRows, design: Design, predict_for: str) -> list[Split]:
    """Folds that match what will be asked; each person's rows where these would judge what was never learnt.

    `design` holds the same rows, perhaps along fewer directions.
    """
    order = leverage(rows) if rows.dim <= SELECTION.full_up_to else None
    for way in (predict_for, "rows"):
        folds = held_out_folds(rows, SELECTION.folds, way, order, SELECTION.deals, rotated=True)
        inside = [held & _in_span(design.X, train) for train, held in folds]
        judged, held = (sum(int(part.sum()) for part in parts) for parts in (inside, [held for _, held in folds]))
        if judged >= SELECTION.in_span * held:
            break
    counts = rows.rows.weights if rows.judged is None else rows.judged
    if rows.contexts is None and rows.items is None:  # else there are fewer items than answers
        judged_rows = np.cumsum([int(part.sum()) for part in inside])
        needed = int(np.searchsorted(judged_rows, SELECTION.enough_judged)) + 1
        folds, inside = folds[:needed], inside[:needed]
    times = np.maximum(np.sum(inside, axis=0), 1)
    return [
        Split(train, held, (counts / times)[held])
        for (train, _), held in zip(folds, inside, strict=True)
        if train.any() and held.any()
    ]


def _in_span(X: FloatArray, train: BoolArray) -> BoolArray:
    """Rows that lie in the span of the training rows, up to a tenth of their length."""
    scale = np.sqrt(np.maximum(np.mean(X**2, axis=0), 1e-300))
    gram = (X[train] / scale).T @ (X[train] / scale)
    values, axes = np.linalg.eigh(gram)
    missing = axes[:, values <= 1e-8 * max(values.max(initial=0.0), 1e-300)]
    if not missing.shape[1]:
        return np.ones(len(X), dtype=bool)
    outside = ((X / scale @ missing) ** 2).sum(axis=1)
    return outside <= 0.1 * np.maximum(((X / scale) ** 2).sum(axis=1), 1e-300)
