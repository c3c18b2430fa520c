"""What is wrong or thin in the data, before any fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from prefkin.comparisons import Comparisons, IntArray, Rows
from prefkin.confidence import gram

__all__ = ["Finding", "audit"]


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing: how bad, what, and what to do about it."""

    level: str  # "problem" (mend it), "thin" (more data would help), "note"
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.level}: {self.what}; {self.remedy}"


def audit(data: Comparisons) -> list[Finding]:
    """Findings, worst first; an empty list means nothing to complain about.

    >>> data = Comparisons.from_arrays([[0.0, 0.0], [1.0, 0.0]], [1, 1], ["ann", "ann"])
    >>> print(audit(data)[0])
    problem: 1 of 2 comparisons show the same features on both sides (first: row 0); they teach nothing, drop them
    """
    order = {"problem": 0, "thin": 1, "note": 2}
    return sorted(_findings(data), key=lambda finding: order[finding.level])


def _findings(data: Comparisons) -> Iterator[Finding]:
    n, d, names = len(data), data.dim, data.labels.tolist()
    same = np.flatnonzero((data.Z == 0).all(axis=1))
    if same.size:
        yield Finding(
            "problem",
            f"{same.size} of {n} comparisons show the same features on both sides (first: row {same[0]})",
            "they teach nothing, drop them",
        )
    repeated, contradicted, example = _repeats(data)
    if repeated:
        yield Finding(
            "note",
            f"{repeated} comparisons repeat an earlier one of the same user (first: row {example})",
            "they count again: if they are copies by mistake, drop them",
        )
    if contradicted:
        yield Finding(
            "note",
            f"{contradicted} pairs were answered both ways by the same user",
            "the model reads this as indifference; many of them hint at careless answers",
        )
    sizes = np.bincount(data.who)
    thin = np.flatnonzero(sizes < d)
    if thin.size:
        yield Finding(
            "thin",
            f"{thin.size} of {len(names)} users have fewer comparisons than there are features ({d}); "
            f"the fewest: {_most(names, -sizes)}",
            "alone they cannot be known in every direction; pooling or questions help",
        )
    one_sided = np.flatnonzero((np.bincount(data.who, data.y == 1) % sizes == 0) & (sizes >= 5))
    if one_sided.size:
        yield Finding(
            "note",
            f"{one_sided.size} users gave the same answer every time, for example {names[one_sided[0]]!r}",
            "fine when sides mean something; careless clicking otherwise",
        )
    norms = np.linalg.norm(data.Z, axis=1)
    if norms.max() > 2 * (1 + 1e-9):
        yield Finding(
            "note",
            f"feature differences reach norm {norms.max():.3g} (median {np.median(norms):.3g})",
            "the paper's radii assume at most 2: divide the features to be inside, estimates do not need it",
        )
    spectrum, directions = eigh(gram(Rows(data.Z, data.y, data.weights)))
    empty = int(np.sum(spectrum <= 1e-10 * max(spectrum[-1], 1e-300)))
    if empty:
        strongest = int(np.argmax(np.abs(directions[:, 0])))
        name = data.feature_names[strongest] if data.feature_names else f"feature {strongest}"
        yield Finding(
            "thin",
            f"{empty} of {d} directions are covered by nobody (the emptiest leans on {name})",
            "nothing can be learnt there: ask questions that differ in them, or drop the features",
        )


def _repeats(data: Comparisons) -> tuple[int, int, int]:
    """Rows that repeat an earlier (user, pair), pairs answered both ways, and the first repeating row."""
    leading = data.Z[np.arange(len(data)), (data.Z != 0).argmax(axis=1)]
    flip = leading < 0
    facing = np.where(flip[:, None], -data.Z, data.Z) + 0.0  # a pair and its mirror image alike; no −0
    answer = np.where(flip, 1 - data.y, data.y)
    seen: dict[tuple[int, bytes], set[float]] = {}
    repeated, first = 0, -1
    for row, key in enumerate(zip(data.who.tolist(), (vector.tobytes() for vector in facing), strict=True)):
        answers = seen.setdefault(key, set())
        if answers:
            repeated += 1
            first = row if first < 0 else first
        answers.add(float(answer[row]))
    return repeated, sum(len(answers) == 2 for answers in seen.values()), first


def _most(names: list[object], key: IntArray) -> str:
    """The three with the largest key, by name."""
    return ", ".join(repr(names[i]) for i in np.argsort(-key, kind="stable")[:3])
