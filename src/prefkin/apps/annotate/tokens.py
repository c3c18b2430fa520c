"""Links carry 128 random bits. Only their hashes are kept, from which nobody could find a link."""

from __future__ import annotations

import hashlib
import secrets
from typing import Literal

__all__ = ["Role", "hashed", "new_token"]

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
