"""`prefkin plan DIR --candidates FILE --budget N --out FILE`: whom to ask what next, over all people together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import typer

from prefkin.apps.cli.console import (
    candidates_for,
    check_file,
    column_map,
    find_user,
    out,
    table,
    working,
    write_file,
)
from prefkin.data.formats import as_csv
from prefkin.errors import InvalidParameter
from prefkin.models.files import load
from prefkin.models.reports import counted

PEOPLE_SHOWN = 8


def plan(
    folder: Path = typer.Argument(metavar="DIR", help="Folder written by prefkin fit, or a model file."),
    candidates: Path = typer.Option(..., help="Candidates: columns context, action, phi0, ...; or .npz."),
    budget: float = typer.Option(..., help="Questions in all; with --cost, what they may cost together."),
    out_file: Path = typer.Option(..., "--out", help="CSV file: user, context, first, second, in the order to ask."),
    per_person: int | None = typer.Option(None, help="Questions for one person at most."),
    away: list[str] = typer.Option([], help="Somebody who cannot be asked, repeatable."),
    cost: list[str] = typer.Option([], help="USER=COST of a question where it is not 1, repeatable."),
    mapping: list[str] = typer.Option([], "--map", help="Other column names: OURS=THEIRS, repeatable."),
    features: str | None = typer.Option(None, help="Columns that hold a feature each, separated by commas."),
) -> None:
    """Whom to ask what next: the questions that teach most about everybody.

    Example: prefkin plan kin --candidates stories.parquet --budget 500 --out questions.csv
    """
    check_file("--out", out_file, [candidates, folder], ())
    model = load(folder)
    labels = model.users_.tolist()
    absent, costs = [find_user(labels, name, "--away") for name in away], {}
    for each in cost:
        name, _, price = each.rpartition("=")
        try:
            paid = float(price)
        except ValueError:
            raise InvalidParameter(f"--cost takes USER=COST, for example ann=2.5; got {each!r}") from None
        costs[find_user(labels, name, "--cost")] = paid
    cands = candidates_for(model, candidates, column_map(mapping), features).candidates
    with working():
        found = model.plan_questions(cands, budget, per_person=per_person, away=absent, costs=costs)
        start, context, action = cands.starts, cands.contexts.tolist(), cands.actions.tolist()
        columns = {
            "user": [user for user, _ in found],
            "context": [context[q.context] for _, q in found],
            "first": [action[start[q.context] + q.first] for _, q in found],
            "second": [action[start[q.context] + q.second] for _, q in found],
        }
        write_file(out_file, as_csv(columns))
    asked = Counter(str(user) for user, _ in found)
    grid = table("asked most", "questions")
    for user, number in asked.most_common(PEOPLE_SHOWN):
        grid.add_row(user, str(number))
    out.print(f"{counted(len(found), 'question')} for {len(asked)} of {counted(len(labels), 'user')}", style="bold")
    out.print(grid)
    out.print(f"\nwritten to {out_file}; once answered: prefkin update {folder} ANSWERS, then plan again")
