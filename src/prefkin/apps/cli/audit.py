"""`prefkin audit FILE`: what is wrong or thin in the data, before any fit."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import typer

from prefkin.apps.cli.console import about, comparisons_from, listed, out, working
from prefkin.evaluate.audit import audit as audit_data
from prefkin.models.reports import counted


def audit(
    file: Path = typer.Argument(
        help="Comparisons: .parquet, .csv, .jsonl, .json, .npz, .csv.gz, ...; or a folder of Parquet files."
    ),
    mapping: list[str] = typer.Option([], "--map", help="Other column names: OURS=THEIRS, repeatable."),
    features: str | None = typer.Option(None, help="Columns that hold a feature each, separated by commas."),
    items: Path | None = typer.Option(None, help="Features of items, for tables that name items."),
    drop: list[str] = typer.Option([], help="Leave out rows: ties, missing; repeatable."),
    ties: str | None = typer.Option(None, help="half: a tie is half an answer for each side."),
    yes: str | None = typer.Option(None, help="The answer that means that the first was preferred: left, A, ..."),
    names: str | None = typer.Option(None, help="Names for features that have none in the file, separated by commas."),
    as_json: bool = typer.Option(False, "--json", help="Print findings as JSON."),
) -> None:
    """What is wrong or thin in the data, before any fit.

    Example: prefkin audit votes.csv --map user=worker
    """
    data = comparisons_from(file, mapping, listed(features), items, drop, names, yes, ties)
    with working(), about(file):
        findings = audit_data(data)
    if as_json:
        out.print(json.dumps([asdict(finding) for finding in findings], indent=2))
        return
    sizes = np.bincount(data.who)
    out.print(
        f"{counted(len(data), 'comparison')} by {counted(len(sizes), 'user')}, {counted(data.dim, 'feature')}",
        style="bold",
    )
    out.print(f"per user: {sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}")
    colours = {"problem": "red", "thin": "yellow", "note": "cyan"}
    for finding in findings:
        out.print(f"{finding.level:8}", style=colours[finding.level], end="")
        out.print(f"{finding.what}; {finding.remedy}")
    if not findings:
        out.print("nothing to complain about", style="green")
