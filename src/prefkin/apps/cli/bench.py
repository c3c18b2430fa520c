"""`prefkin bench [STAGE ...]`: how fast every public call is, in one run."""

from __future__ import annotations

from pathlib import Path

import typer

from prefkin.apps.cli.console import err, out
from prefkin.apps.cli.interrupts import INTERRUPTED, Stopped
from prefkin.errors import InvalidParameter
from prefkin.reproduce.speed import STAGES, run


def bench(
    stages: list[str] = typer.Argument(None, help=f"Among {', '.join(STAGES)}; all unless given."),
    out_dir: Path = typer.Option(Path("bench"), "--out", help="Folder for the table."),
    quick: bool = typer.Option(False, "--quick", help="Small sizes, about a minute."),
) -> None:
    """How fast each public call is, against what one would write instead, in one run.

    Example: prefkin bench --out bench
    """
    chosen = list(stages or STAGES)
    if unknown := [stage for stage in chosen if stage not in STAGES]:
        raise InvalidParameter(f"unknown stage {unknown[0]!r}; give some of {', '.join(STAGES)}")
    written = out_dir / "performance.md"
    before = written.stat().st_mtime_ns if written.exists() else None
    try:
        out.print(run(chosen, out_dir, quick=quick, tell=lambda stage: err.print(f"measuring: {stage}")), end="")
    except KeyboardInterrupt:
        if not written.exists() or written.stat().st_mtime_ns == before:
            raise
        err.print(f"prefkin: interrupted; the rows so far are in {written}")
        raise Stopped(INTERRUPTED) from None
    out.print(f"\nwritten to {written}")
