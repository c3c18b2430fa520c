"""`prefkin report DIR --out FILE.html`: one self-contained page to hand round."""

from __future__ import annotations

from pathlib import Path

import typer

from prefkin.apps.cli.console import (
    candidates_for,
    check_file,
    column_map,
    out,
    votes_of,
    working,
    write_file,
)
from prefkin.apps.cli.findings import comparison, former_facts
from prefkin.apps.report.facts import report_of
from prefkin.apps.report.page import as_page
from prefkin.data.columns import CANDIDATE_FIELDS
from prefkin.errors import InvalidParameter
from prefkin.evaluate.compare import compare as compare_methods
from prefkin.models.files import load


def report(
    folder: Path = typer.Argument(metavar="DIR", help="Folder written by prefkin fit, or a model file."),
    out_file: Path = typer.Option(..., "--out", help="The page, .html."),
    candidates: Path | None = typer.Option(None, help="Candidates, with a column text where they have any."),
    votes: Path | None = typer.Option(
        None, help="Answers with their texts, as they were fitted: typical ones are shown."
    ),
    mapping: list[str] = typer.Option([], "--map", help="Other column names: OURS=THEIRS, repeatable."),
    features: str | None = typer.Option(None, help="Columns that hold a feature each, separated by commas."),
    compare: bool = typer.Option(False, "--compare", help="Compare methods on held-out answers, as fit does."),
    title: str = typer.Option("What these people want", help="Heading of the page."),
) -> None:
    """One self-contained page: who these people are, how sure that is, what is thin, what to ask next.

    Example: prefkin report kin --out report.html --votes votes.parquet --candidates stories.parquet
    """
    check_file("--out", out_file, [candidates, votes], ())
    if out_file.suffix.lower() not in (".html", ".htm"):
        raise InvalidParameter(f"--out {out_file}: the page is HTML; give a name that ends in .html")
    model, columns = load(folder), column_map(mapping)
    if model._in_shards is not None:
        raise InvalidParameter(
            f"{folder}: a report is about people in memory, these are in shards; fit some of the files"
        )
    of_votes = {ours: theirs for ours, theirs in columns.items() if candidates is None or ours not in CANDIDATE_FIELDS}
    logged = None if votes is None else votes_of(model, votes, of_votes)
    if votes is not None:
        columns = {ours: theirs for ours, theirs in columns.items() if ours not in of_votes}
    shown = None if candidates is None else candidates_for(model, candidates, columns, features)
    with working():
        measured = comparison(compare_methods(model.comparisons())) if compare else {}
        page = as_page(report_of(model, shown, former_facts(folder) | measured, logged), title)
        write_file(out_file, page.encode())
    out.print(f"written to {out_file}")
