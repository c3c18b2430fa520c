"""What people answered: 0 and 1, or words and numbers that name a side."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from prefkin.data.arrays import FloatArray
from prefkin.data.checks import as_number, is_missing, plain_array
from prefkin.errors import InvalidComparisons

__all__ = ["SIDES", "answer_array", "as_word", "sides_of"]

SIDES = (
    ("left", "right"),
    ("l", "r"),
    ("first", "second"),
    ("1st", "2nd"),
    ("a", "b"),
    ("model_a", "model_b"),
    ("response_a", "response_b"),
    ("chosen", "rejected"),
)
"""Words for "the first was preferred" and "the second was", which go together."""
NUMBERED = (("1", "2"), (1, 2))
"""Likewise, where some answer is 2: 1 alone says the same as 1 beside 0."""

WORDS = {"tie": 0.5, "true": 1.0, "false": 0.0} | {
    word: answer for pair in SIDES for word, answer in zip(pair, (1.0, 0.0), strict=True)
}


def answer_array(values: ArrayLike, positive: Any = None) -> FloatArray:
    """Answers as floats: NaN where missing, 0.5 for ties; what is no answer is refused by row.

    `positive` is the answer that means that the first was preferred, where they are words of the table's own.

    >>> answer_array(["left", "Right", "tie", None]).tolist()
    [1.0, 0.0, 0.5, nan]
    >>> answer_array([1, 2]).tolist()
    [1.0, 0.0]
    >>> answer_array(["up", "down", "tie"], positive="up").tolist()
    [1.0, 0.0, 0.5]
    """
    raw = plain_array(values, "y")
    if raw.ndim != 1:
        raise InvalidComparisons(f"y must be one answer per comparison, got an array of shape {raw.shape}")
    if positive is not None:
        return _by_the_one(raw.tolist(), positive)
    if raw.dtype.kind in "biuf":
        return _of_one_and_two(raw.astype(np.float64))
    given = raw.tolist()
    used = {pair for value in given if isinstance(value, str) for pair in SIDES if as_word(value) in pair}
    if len(used) > 1:
        both = " and ".join("/".join(pair) for pair in sorted(used)[:2])
        raise InvalidComparisons(f"y mixes words of different kinds ({both}); use one pair of words, or 1 and 0")
    answers = np.array([_answer(value, row) for row, value in enumerate(given)], dtype=np.float64)
    return answers if used else _of_one_and_two(answers)


def _of_one_and_two(answers: FloatArray) -> FloatArray:
    """0 for 2, where answers are 1 and 2; others as they are."""
    second = answers == 2.0
    if second.any() and (second | (answers == 1.0) | (answers == 0.5) | np.isnan(answers)).all():
        answers[second] = 0.0
    return answers


def _by_the_one(given: list[Any], positive: Any) -> FloatArray:
    """1 where the answer is `positive`, 0 where it is the other one; there may be two, ties and gaps."""
    yes, other = as_word(str(positive)), None
    words = dict.fromkeys(as_word(str(value)) for value in given if not is_missing(value))
    if yes not in words:
        raise InvalidComparisons(
            f"no answer is {positive!r:.40}, which was to mean that the first was preferred; they are "
            f"{', '.join(f'{word!r:.40}' for word in list(words)[:4])}"
        )
    answers = np.full(len(given), np.nan)
    for row, value in enumerate(given):
        if is_missing(value):
            continue
        word = as_word(str(value))
        if word == yes:
            answers[row] = 1.0
        elif word == "tie":
            answers[row] = 0.5
        elif other in (None, word):
            other, answers[row] = word, 0.0
        else:
            raise InvalidComparisons(
                f"answers are {positive!r:.40}, {other!r:.40} and, in row {row} (counted from 0), {value!r:.40}; there "
                "may be one beside the one that means that the first was preferred: leave other rows out"
            )
    return answers


def _answer(value: Any, row: int) -> float:
    if is_missing(value):
        return np.nan
    if isinstance(value, str) and as_word(value) in WORDS:
        return WORDS[as_word(value)]
    try:
        return as_number(value)
    except (TypeError, ValueError):
        raise InvalidComparisons(
            f"y must be 0 or 1, but row {row} (counted from 0) is {value!r:.60}; "
            "code 1 when the first action was preferred, 0 (or 2) when the second was, or write left and right, first "
            "and second, a and b; other words by positive='...' (on the command line: --yes WORD)"
        ) from None


def as_word(value: Any) -> Any:
    """A text as words are compared; what is no text stays."""
    return value.strip().lower() if isinstance(value, str) else value


def sides_of(labels: list[Any]) -> tuple[Any, Any] | None:
    """The pair of `SIDES`, or of numbers, that two answers (or one) are written in; None where they are others.

    >>> sides_of(["left", "right"]), sides_of([1, 2]), sides_of(["yes", "no"])
    (('left', 'right'), (1, 2), None)
    """
    words = {as_word(label) for label in labels}
    for pair in (*SIDES, *NUMBERED):
        if words <= set(pair) and (pair in SIDES or pair[1] in words):
            return pair
    if words & {word for pair in SIDES for word in pair}:
        raise InvalidComparisons(
            f"answers {' and '.join(map(repr, labels[:3]))} do not go together; say which one means that the first was "
            f"preferred with positive={labels[0]!r}, or code them 1 and 0"
        )
    return None
