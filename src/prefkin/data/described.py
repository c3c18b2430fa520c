"""Features by their names: columns of what is given in the order in which a model knows them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from prefkin.data.arrays import IntArray
from prefkin.errors import PrefkinError

__all__ = ["places_of_features"]

LISTED = 5  # names in a message
NUMBERED = re.compile(r"(.*?)(\d+)")


def places_of_features(
    given: Sequence[str] | None, wanted: Sequence[str] | None, what: str, refusal: type[PrefkinError]
) -> IntArray | None:
    """Where each wanted feature stands in what is given; None: as it is, or not known. Other features are refused.

    z0, z1, ... are places, no names: beside names of another kind they say nothing.

    >>> places_of_features(["price", "tone"], ["tone", "price"], "the candidates", PrefkinError).tolist()
    [1, 0]
    >>> places_of_features(["z0", "z1"], ["tone", "price"], "the candidates", PrefkinError)
    """
    if not given or not wanted or tuple(given) == tuple(wanted):
        return None
    lacking, others = (
        [name for name in one if name not in set(two)] for one, two in ((wanted, given), (given, wanted))
    )
    if not (lacking or others):
        return np.array([list(given).index(name) for name in wanted], dtype=np.intp)
    if _numbered(given) or _numbered(wanted):
        return None
    said = [f"lack {_listed(lacking)}"] * bool(lacking) + [
        f"have {_listed(others)} {'instead' if lacking else 'besides'}"
    ] * bool(others)
    raise refusal(
        f"{what} are described by other features than the model was fitted with: they {' and '.join(said)}; "
        "name them as they were fitted"
    )


def _numbered(names: Sequence[str]) -> bool:
    found = [NUMBERED.fullmatch(name) for name in names]
    return [match and match.groups() for match in found] == [
        (found[0] and found[0][1], str(k)) for k in range(len(found))
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED]) + (f", ... ({len(names)})" if len(names) > LISTED else "")
