"""`prefkin answers STORE --out FILE`: what people answered, as comparisons that `prefkin fit` reads."""

from __future__ import annotations

from pathlib import Path

import typer

from prefkin.apps.cli.console import find_user, out, refuse_sources, write_file
from prefkin.data.formats import as_file
from prefkin.errors import InvalidParameter, StoreError
from prefkin.models.reports import counted


def answers(
    store: str = typer.Argument(metavar="STORE", help="Where answers are kept: a file, or a database URL."),
    out_file: Path = typer.Option(..., "--out", help="File to write: .parquet, .csv, .jsonl; for other tools .json."),
    form: str | None = typer.Option(None, "--as", help="In the form of another tool: labelstudio, argilla or trl."),
    user: str | None = typer.Option(None, help="Only what this person answered."),
) -> None:
    """What people answered, as comparisons that fit reads.

    People may go on answering meanwhile.

    Example: prefkin answers kin/answers.db --out votes.csv
    """
    try:
        from prefkin.apps.annotate.export import FORMS, comparisons, in_form
        from prefkin.apps.annotate.knowledge import answers_of
        from prefkin.apps.annotate.store import Store
    except ImportError as error:
        raise InvalidParameter(f"this needs {error.name}; pip install 'prefkin[annotate]'") from None
    if form is not None and form not in FORMS:
        raise InvalidParameter(f"--as must be one of {', '.join(FORMS)}; got {form!r}")
    if form is not None and out_file.suffix.lower() != FORMS[form]:
        raise InvalidParameter(f"--out {out_file}: {form} reads {FORMS[form]}; give a name that ends so")
    refuse_sources("--out", out_file, [Path(store.removeprefix("sqlite:///"))])
    kept = Store.open(store)
    try:
        items, histories = kept.items(), kept.histories()
    finally:
        kept.close()
    if user is not None:
        wanted = find_user([person.name for person in histories], user)
        histories = {person: history for person, history in histories.items() if person.name == wanted}
    n = answers_of(histories)
    if n == 0:
        raise StoreError(f"{store}: nobody has answered yet; there is nothing to write")
    if form is not None:
        content = in_form(form, items, histories)
    else:
        content = as_file(comparisons(items, histories), out_file.suffix.lower())
    write_file(out_file, content)
    people = sum(history.answered > 0 for history in histories.values())
    out.print(f"{counted(n, 'answer')} of {people} people written to {out_file}")
