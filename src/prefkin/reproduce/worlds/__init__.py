"""People and their comparisons for the experiments: synthetic, real, and real features with planted preferences.

world    one draw of people: what methods may learn from, and what they are judged by
planted  the paper's synthetic people
pairs    real comparisons of items with texts, and planted preferences on their features
tldr     which of two summaries of a post is better
ukp      which of two arguments is more convincing
jester   which of two jokes was rated higher

To add real data: a file that reads them, an entry in `WORLDS`, and plans.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefkin.reproduce.worlds.jester import jester_world, read_jester
from prefkin.reproduce.worlds.pairs import pair_world, semi_synthetic_world
from prefkin.reproduce.worlds.planted import synthetic_world
from prefkin.reproduce.worlds.tldr import read_tldr
from prefkin.reproduce.worlds.ukp import read_ukp
from prefkin.reproduce.worlds.world import World

__all__ = ["WORLDS"]

WORLDS: dict[str, tuple[Callable[..., World], Callable[[Path], Any] | None]] = {
    "synthetic": (synthetic_world, None),
    "tldr": (pair_world, read_tldr),
    "ukp": (pair_world, read_ukp),
    "jester": (jester_world, read_jester),
    "semi": (semi_synthetic_world, read_ukp),
}
"""How people are drawn, and what reads the data that they are drawn from, where there are such data."""
