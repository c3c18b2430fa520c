"""What callers of scikit-learn give to `fit`: answers under two labels, features that are numbers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from prefkin.data.answers import sides_of
from prefkin.data.arrays import FloatArray, LabelArray
from prefkin.data.checks import is_number
from prefkin.errors import AnswerWarning, InvalidComparisons

__all__ = ["refuse_texts", "two_answers"]


def two_answers(y: Any, who: str, positive: Any = None) -> tuple[FloatArray, LabelArray, Any]:
    """Answers as 0 and 1, the two labels they were given as, sorted, and which one means "the first is preferred".

    That one is `positive`, or 1, or a word that says so (`prefkin.data.answers.SIDES`). scikit-learn lets a
    classifier's two labels be anything; the larger one then counts, as it does there, and a warning says so.

    >>> two_answers(["right", "left"], "model")
    (array([0., 1.]), array(['left', 'right'], dtype='<U5'), 'left')
    """
    if y is None:
        raise ValueError(f"{who} requires y to be passed, but the target y is None")
    given = column_or_1d(y, warn=True)
    if positive is None and given.dtype.kind in "biuf":
        numbers = given if given.dtype.kind != "f" else given[~np.isnan(given)]  # missing ones and
        if np.isin(numbers, (0, 0.5, 1)).all():  # ties are refused by row with the other checks
            whole = given.dtype.kind != "f" or np.isin(given, (0, 1)).all()
            classes = np.array([0, 1]).astype(given.dtype if whole else int)
            return given.astype(np.float64), classes, classes[1].item()
    check_classification_targets(given)
    labels = np.unique(given)
    sides = None if positive is not None or len(labels) > 2 else sides_of(labels.tolist())
    if sides is not None and len(labels) == 1:
        labels = np.array(sorted(sides))  # nobody gave the other answer
        given = np.char.lower(np.char.strip(given.astype(str)))
    if len(labels) != 2:
        kind = "one class" if len(labels) == 1 else "multiclass"
        raise InvalidComparisons(
            f"Only binary classification is supported. The type of the target is {kind}: y holds "
            f"{len(labels)} different answers ({', '.join(map(repr, labels[:4].tolist()))}...); code them 0 and 1"
        )
    small, large = labels.tolist()
    if sides is not None:
        positive = small if small.strip().lower() == sides[0] else large
    elif positive is None:
        positive = large
        if (small, large) not in ((0, 1), (-1, 1)):
            warnings.warn(
                f"answers are {small!r} and {large!r}: {large!r} is taken to mean that the first was preferred; "
                f"say so with positive={large!r}, or positive={small!r} if it is the other one",
                AnswerWarning,
                stacklevel=4,
            )
    elif positive not in (small, large):
        raise InvalidComparisons(f"positive={positive!r:.40} is not among the answers, {small!r} and {large!r}")
    return (given == positive).astype(np.float64), labels, positive


def refuse_texts(Z: Any) -> None:
    """Texts that Python takes for numbers but people do not (1_5 for 15), before scikit-learn converts them."""
    if getattr(getattr(Z, "dtype", None), "kind", "O") not in "OUS" or hasattr(Z, "toarray"):
        return
    try:
        given = np.asarray(Z)
    except ValueError:  # rows of different length: told by scikit-learn
        return
    for row, values in enumerate(given if given.dtype.kind in "OUS" and given.ndim else ()):
        for value in np.ravel(values).tolist():
            if isinstance(value, str | bytes) and not is_number(value):
                raise InvalidComparisons(
                    f"Z holds something other than numbers in row {row} (counted from 0): {value!r:.60}; "
                    "features must be numeric"
                )
