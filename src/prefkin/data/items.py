"""Which rows are about the same thing: items by their names, or by their features where both sides are known."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray, LabelArray, above_zero
from prefkin.data.checks import distinct_labels
from prefkin.data.digest import fingerprints
from prefkin.errors import InvalidComparisons

__all__ = ["codes_of_features", "codes_of_names", "item_names"]


def item_names(values: Any) -> LabelArray:
    """Two names a row, shape (n, 2), each as it was given."""
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if not isinstance(values, np.ndarray):
        rows = [tuple(pair) if isinstance(pair, list | tuple | np.ndarray) else (pair,) for pair in values]
        if odd := [i for i, pair in enumerate(rows) if len(pair) != 2]:
            raise InvalidComparisons(
                f"items must be two names a row, but row {odd[0]} (counted from 0) is {rows[odd[0]]!r:.40}; "
                "name the first and the second item"
            )
        values = np.empty((len(rows), 2), dtype=object)
        for column in range(2):
            values[:, column] = [pair[column] for pair in rows]
    if values.ndim != 2 or values.shape[1] != 2:
        raise InvalidComparisons(f"items must be two names a row, shape (n, 2); got an array of shape {values.shape}")
    return values


def codes_of_names(names: LabelArray) -> IntArray:
    """Each item as a number, shape (n, 2), in the order of the names where they have one: rows may come in any order.

    >>> codes_of_names(np.array([["q", "p"], ["q", "r"]])).tolist()
    [[1, 0], [1, 2]]
    """
    known, codes = distinct_labels(names.ravel())
    if known.dtype.kind == "O":
        try:
            sorted(known)
        except TypeError:  # then they were numbered as they appeared
            by_text = sorted(range(len(known)), key=lambda i: (type(known[i]).__name__, repr(known[i])))
            codes = np.argsort(by_text)[codes]
    return codes.reshape(names.shape).astype(np.intp)


def codes_of_features(first: FloatArray, second: FloatArray) -> IntArray:
    """Each item as a number, shape (n, 2): the same for equal features, in an order that the features alone decide.

    >>> codes_of_features(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 4.0], [5.0, 0.0]])).tolist()
    [[0, 1], [1, 2]]
    """
    marks = np.concatenate([fingerprints(first), fingerprints(second)])
    _, where, codes = np.unique(marks, return_index=True, return_inverse=True)
    direction = np.cos(np.arange(1, first.shape[1] + 1))
    n = len(first)
    features = np.where((where < n)[:, None], first[where % n], second[where % n]).astype(np.float64)
    along = (features * direction).sum(axis=1)  # not by BLAS, whose last digits depend on the place of a row
    along = np.round(along / above_zero(np.abs(along).max()), 10)
    rank = np.empty(len(where), dtype=np.intp)
    rank[np.lexsort([np.arange(len(where)), along])] = np.arange(len(where))  # equal ones by their fingerprint
    return np.ascontiguousarray(rank[codes].reshape(2, n).T)
