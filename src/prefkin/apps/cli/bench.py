"""`prefkin bench [STAGE ...]`: ratios against peers, in one run."""

from __future__ import annotations

from pathlib import Path

import typer

from prefkin.apps.cli.console import err, out
from prefkin.errors import InvalidParameter
from prefkin.reproduce.speed import GROWTH, STAGES, run

NAMES = (*STAGES, GROWTH)


def bench(
    stages: list[str] = typer.Argument(None, help=f"Among {', '.join(NAMES)}; all unless given."),
    out_dir: Path = typer.Option(Path("bench"), "--out", help="Folder for the table and the picture."),
    quick: bool = typer.Option(False, "--quick", help="Small sizes, about a minute."),
) -> None:
    """How fast each public call is, against what one would write instead, in one run."""
    chosen = list(stages or NAMES)
    if unknown := [stage for stage in chosen if stage not in NAMES]:
        raise InvalidParameter(f"unknown stage {unknown[0]!r}; give some of {', '.join(NAMES)}")
    out.print(run(chosen, out_dir, quick=quick, tell=lambda stage: err.print(f"measuring: {stage}")), end="")
    out.print(f"\nwritten to {out_dir}: performance.md{', growth.png' if GROWTH in chosen else ''}")
