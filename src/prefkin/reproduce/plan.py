"""Settings → trials. One TOML file per figure, with a [quick] part that makes the same pictures smaller.

`like = ["base", "exp1", "ukp"]` names files in plans/shared: their settings hold where the plan says nothing else, the
last one's first. Methods `left_out` by one of them are left out of those that another names.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from prefkin.errors import InvalidParameter
from prefkin.reproduce.trial import Trial
from prefkin.reproduce.worlds import WORLDS

__all__ = ["DATA", "EXPERIMENTS", "Plan", "read_plan"]

EXPERIMENTS = ("exp1", "exp2", "exp3", "exp4")
DATA = tuple(WORLDS)
FOLDER = Path(__file__).parent / "plans"
KEYS = frozenset(
    ("like", "left_out", "title", "panel", "protocol", "kind", "x", "runs", "first_run", "methods", "cells", "settings",
     "quick", "paper")
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Everything that decides an experiment."""

    experiment: str
    data: str
    title: str
    panel: str  # where the paper shows it
    protocol: str  # "paper", or "scaled down: ..."
    kind: str
    x: str  # what the panel varies
    runs: int
    size: str  # "full", "quick" (fewer and smaller), or "paper" (the paper's protocol, where the data allow it)
    methods: tuple[str, ...]
    cells: tuple[tuple[tuple[str, Any], ...], ...]
    settings: tuple[tuple[str, Any], ...]
    first_run: int = 0  # runs are numbered from here; their seeds come from the number
    own: bool = False  # not one of the paper's experiments as it stands: its claims are not checked

    @property
    def name(self) -> str:
        """File names start with this."""
        return f"{self.experiment}_{self.data}{'' if self.size == 'full' else '_' + self.size}"

    @property
    def quick(self) -> bool:
        """Fewer and smaller?"""
        return self.size == "quick"

    def trials(self) -> list[Trial]:
        """Run by run, so that a stopped experiment has whole runs."""
        return [
            Trial(self.experiment, self.data, self.kind, cell, self.first_run + n, self.settings, self.methods)
            for n in range(self.runs)
            for cell in self.cells
        ]


def read_plan(
    experiment: str, data: str, size: str = "full", *, runs: int | None = None, path: Path | None = None
) -> Plan:
    """The plan of an experiment on some data, or the one in the file `path`; what `size` names overrides the rest.

    >>> read_plan("exp1", "synthetic").runs
    20
    """
    file = FOLDER / f"{experiment}_{data}.toml" if path is None else path
    if path is None and not file.exists():
        known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.toml")))
        raise InvalidParameter(f"no plan for {experiment} on {data}; there are {known}")
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
        return _plan(experiment, data, size, runs, _over(_shared(given), given), own=path is not None)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidParameter(f"{file}: not a TOML file: {error}") from None
    except KeyError as error:
        raise InvalidParameter(f"{file}: the plan lacks {error}; copy one of those in {FOLDER} and change it") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise InvalidParameter(f"{file}: not a plan ({error}); copy one of those in {FOLDER} and change it") from None


def _shared(given: dict[str, Any]) -> dict[str, Any]:
    shared: dict[str, Any] = {}
    for name in given.get("like", []):
        file = FOLDER / "shared" / f"{name}.toml"
        if not file.exists():
            raise ValueError(f"there is no {name!r} to be like")
        shared = _over(shared, tomllib.loads(file.read_text(encoding="utf-8")))
    methods = [key for key in shared.get("methods", []) if key not in shared.get("left_out", [])]
    return {**shared, "methods": methods} if methods else shared


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both; where both have a table, its entries, and otherwise what is above."""
    tables = {name: _over(below[name], value) for name, value in above.items() if isinstance(below.get(name), dict)}
    return {**below, **above, **tables}


def _plan(experiment: str, data: str, size: str, runs: int | None, given: dict[str, Any], *, own: bool) -> Plan:
    small = given.get(size, {})
    if unread := sorted((set(given) | set(small)) - KEYS):
        raise ValueError(f"there is nothing called {', '.join(unread)} in a plan")
    cells = {**given["cells"], **small.get("cells", {})}
    settings = {**given["settings"], **small.get("settings", {})}
    return Plan(
        experiment,
        data,
        given["title"],
        given["panel"],
        small.get("protocol", given["protocol"]),
        given["kind"],
        given["x"],
        runs if runs is not None else int(small.get("runs", given["runs"])),
        size,
        tuple(small.get("methods", given["methods"])),
        tuple(tuple(zip(cells, values, strict=True)) for values in product(*cells.values())),
        tuple(sorted((name, tuple(v) if isinstance(v, list) else v) for name, v in settings.items())),
        int(small.get("first_run", given.get("first_run", 0))),
        own,
    )
