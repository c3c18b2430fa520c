"""Links carry 128 random bits. Only their hashes are kept, and hashes are compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Literal

__all__ = ["Role", "hashed", "new_token", "same"]

Role = Literal["person", "open", "organiser"]


def new_token() -> str:
    """128 random bits.

    >>> len(new_token())
    32
    """
    return secrets.token_hex(16)


def hashed(token: str) -> str:
    """What is kept of a token: nothing from which it could be found."""
    return hashlib.sha256(token.encode()).hexdigest()


def same(one: str, other: str) -> bool:
    """Are two hashes equal? Takes as long whichever way they differ."""
    return hmac.compare_digest(one, other)
