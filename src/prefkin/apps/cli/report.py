"""`prefkin report DIR --out FILE.html`: one self-contained page to hand round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from prefkin.apps.cli.console import check_place, column_map, listed, out, votes_of, without_panics, working, write_file
from prefkin.apps.cli.fit import comparison
from prefkin.apps.report.facts import report_of
from prefkin.apps.report.page import as_page
from prefkin.data.candidates import Candidates
from prefkin.data.columns import CANDIDATE_FIELDS
from prefkin.data.formats import read_columns
from prefkin.data.tables import read_candidates
from prefkin.errors import InvalidCandidates, InvalidParameter
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
    check_place("--out", out_file.absolute().parent)
    if out_file.suffix.lower() not in (".html", ".htm"):
        raise InvalidParameter(f"--out {out_file}: the page is HTML; give a name that ends in .html")
    model, cands, texts, logged = load(folder), None, None, None
    columns = column_map(mapping)
    of_votes = {ours: theirs for ours, theirs in columns.items() if candidates is None or ours not in CANDIDATE_FIELDS}
    if votes is not None:
        columns = {ours: theirs for ours, theirs in columns.items() if ours not in of_votes}
        logged = votes_of(model, votes, of_votes)
    if candidates is not None:
        with without_panics(candidates):
            cands = read_candidates(candidates, columns, features=listed(features))
            texts = _texts(candidates, cands)
        if cands.dim != model.n_features_in_:
            raise InvalidCandidates(f"{candidates}: {cands.dim} features, the model has {model.n_features_in_}")
    with working():
        methods = comparison(compare_methods(model.comparisons()))["comparison"] if compare else _measured(folder)
        page = as_page(report_of(model, cands, texts, methods, logged), title)
        write_file(out_file, page.encode())
    out.print(f"written to {out_file}")


def _measured(folder: Path) -> list[dict[str, Any]]:
    """How methods compared when the folder was written, where that was asked for."""
    try:
        return list(json.loads((folder / "summary.json").read_text()).get("comparison", []))
    except (OSError, ValueError):
        return []


def _texts(file: Path, cands: Candidates) -> list[str] | None:
    """A text for each row, where the file has a column of them: rows in the order of the candidates."""
    columns = {} if file.suffix == ".npz" else read_columns(file, as_text=("text",))
    if not {"text", "context", "action"} <= set(columns):
        return None
    rows = zip(*(map(str, columns[name]) for name in ("context", "action", "text")), strict=True)
    said = {(context, action): text for context, action, text in rows}
    where = zip(cands.contexts[cands.owner].tolist(), cands.actions.tolist(), strict=True)
    return [said.get((str(context), str(action)), str(action)) for context, action in where]
