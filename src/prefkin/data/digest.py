"""Which data it was: a digest of arrays and text, the same wherever it is computed; and numbers that are well mixed."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["digest", "mixed"]

BYTES = 16


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
