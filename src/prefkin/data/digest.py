"""Which data it was: a digest of arrays and text, the same wherever it is computed; and numbers that are well mixed."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["digest", "fingerprints", "mixed"]

BYTES = 16
NUMBERS_AT_ONCE = 2**16  # half a megabyte: stays in the second cache


def digest(*parts: np.ndarray[Any, Any] | str) -> str:
    """Hexadecimal; other shapes, types or order give another one.

    >>> digest("kin", np.eye(2)) == digest("kin", np.eye(2)), digest(np.zeros(4)) == digest(np.zeros((2, 2)))
    (True, False)
    """
    found = hashlib.blake2b(digest_size=BYTES)
    for part in parts:
        if isinstance(part, str):
            content = part.encode("utf-8", "surrogatepass")
            found.update(f"text {len(content)} ".encode())
            found.update(content)
        else:
            array = np.ascontiguousarray(part)
            found.update(f"array {array.dtype.str} {array.shape} ".encode())
            found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers of which every bit depends on every other: the last steps of splitmix64 (Steele, Lea and Flood 2014).

    >>> mixed(np.array([1, 2], dtype=np.uint64)).tolist()
    [6238072747940578789, 15839785061582574730]
    """
    bits = bits ^ (bits >> np.uint64(30))
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits


def fingerprints(X: NDArray[Any], sign: NDArray[np.float64] | None = None) -> NDArray[np.uint64]:
    """A 64-bit number for each row, times its sign where that is given, (n,).

    Equal for equal rows and, but for one chance in 10^19 a pair, only for them.

    >>> marks = fingerprints(np.array([[1.0, 2.0], [-1.0, -2.0], [2.0, 1.0]]), np.array([1.0, -1.0, 1.0]))
    >>> bool(marks[0] == marks[1]), bool(marks[0] == marks[2])
    (True, False)
    """
    n, d = X.shape
    columns = np.arange(1, d + 1, dtype=np.uint64)
    odd = mixed(columns * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    marks, step = np.empty(n, dtype=np.uint64), max(NUMBERS_AT_ONCE // d, 1)
    for at in range(0, n, step):
        some = X[at : at + step].astype(np.float64)
        if sign is not None:
            some *= sign[at : at + step, None]
        bits = (some + 0.0).view(np.uint64)  # + 0: -0 and 0 are one number
        bits ^= bits >> np.uint64(31)
        bits *= odd
        marks[at : at + step] = mixed(bits).sum(axis=1)
    return marks
