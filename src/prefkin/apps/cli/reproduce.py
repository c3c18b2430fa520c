"""`prefkin reproduce`: the paper's experiments, resumable, on several processes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from prefkin.apps.cli import interrupts
from prefkin.apps.cli.console import check_folder, err, out
from prefkin.data.storage import write_atomically
from prefkin.errors import InvalidParameter
from prefkin.reproduce.contracts import method, read_methods
from prefkin.reproduce.figures import panels
from prefkin.reproduce.plan import DATA, EXPERIMENTS, Plan, read_plan
from prefkin.reproduce.report import as_html, as_markdown, claims_table, pages_of, paper_deviations, paper_readme
from prefkin.reproduce.run import run_all
from prefkin.reproduce.store import Store, as_frame, keep_frame, read_frame, replaced
from prefkin.reproduce.worlds.pairs import data_folder
from prefkin.reproduce.worlds.tldr import read_tldr

MANY_LABELS = 1000
MOST_RUNS, MOST_PROCESSES = 100_000, 1024


def reproduce(
    experiment: str = typer.Argument(help="exp1, exp2, exp3, exp4 or all."),
    data: str = typer.Option("synthetic", help=f"{', '.join(DATA)} (semi: real features, planted people)."),
    quick: bool = typer.Option(False, "--quick", help="The same pictures, smaller and with fewer runs."),
    runs: int | None = typer.Option(None, help="Another number of runs than the plan's.", min=1, max=MOST_RUNS),
    processes: int = typer.Option(
        os.cpu_count() or 1, help="Processes; the rows do not depend on it.", min=1, max=MOST_PROCESSES
    ),
    out_dir: Path = typer.Option(Path("reproduction"), "--out", help="Folder for rows, figures and reports."),
    paper: Path | None = typer.Option(None, help="Also keep the rows in PAPER/rows and rewrite PAPER/README.md."),
    methods: Path | None = typer.Option(None, help="A Python file with further methods; it is run."),
    plan_file: Path | None = typer.Option(None, "--plan", help="A plan of your own (TOML) for EXPERIMENT on --data."),
    only: str | None = typer.Option(
        None, help="Run these methods alone (keys, separated by commas) and put their rows in the place of PAPER's."
    ),
) -> None:
    """Run the experiments of the paper's section 6 and say what holds.

    Methods of --methods take part beside the others; with --plan those take part that it names.

    Example: prefkin reproduce exp1 --quick
    """
    if experiment not in (*EXPERIMENTS, "all"):
        raise InvalidParameter(f"EXPERIMENT must be one of {', '.join(EXPERIMENTS)} or all; got {experiment!r}")
    if data not in DATA:
        raise InvalidParameter(f"--data must be one of {', '.join(DATA)}; got {data!r}")
    check_folder(out_dir)
    chosen = EXPERIMENTS if experiment == "all" else (experiment,)
    size = "quick" if quick else "paper" if data == "tldr" and _enough_for_the_paper() else "full"
    if plan_file is not None and experiment == "all":
        raise InvalidParameter("--plan is for one experiment; say which: exp1, exp2, exp3 or exp4")
    for option, file in (("--methods", methods), ("--plan", plan_file)):
        if file is not None and not file.is_file():
            raise InvalidParameter(f"{option} {file}: no such file")
        if file is not None and paper is not None:
            raise InvalidParameter(f"{option} is not for rows that are kept in --paper; leave one of them out")
    plans = [read_plan(one, data, size, runs=runs, path=plan_file) for one in chosen]
    if methods is not None:
        new = tuple(found.key for found in read_methods(methods))
        if plan_file is None:  # conversations take other methods
            plans = [replace(plan, methods=plan.methods + new) if plan.kind == "offline" else plan for plan in plans]
    for plan in plans:
        for key in plan.methods if plan.kind == "offline" else ():
            method(key)
    blocks = []
    if only is not None and paper is None:
        raise InvalidParameter("--only replaces rows that are kept; say where with --paper PAPER")
    for plan in plans:
        if only is None or paper is None:
            rows = _finish(plan, out_dir, processes, methods)
        else:
            part = replace(plan, methods=_some_methods(plan, only))
            rows = replaced(
                read_frame(paper / "rows" / f"{plan.name}.parquet"), _finish(part, out_dir, processes), plan.trials()
            )
        pictures = panels(plan, rows)
        for name, content in pictures.items():
            write_atomically(out_dir / name, content)
        keep_frame(rows, out_dir / f"{plan.name}.parquet")
        blocks += pages_of(plan, rows, list(pictures))
        _say(plan, rows)
        if paper is not None:
            keep_frame(rows, paper / "rows" / f"{plan.name}.parquet")
    stem = f"report_{experiment}_{data}{'_quick' if quick else ''}" if experiment != "all" else "report"
    write_atomically(out_dir / f"{stem}.md", as_markdown(blocks).encode())
    write_atomically(out_dir / f"{stem}.html", as_html(blocks).encode())
    out.print(f"Rows, figures and {stem}.md / .html are in {out_dir}")
    if paper is not None:
        for name, page in (("README.md", paper_readme), ("deviations.md", paper_deviations)):
            write_atomically(paper / name, page(paper).encode())
        out.print(f"README.md and deviations.md in {paper} are rewritten from the rows in {paper / 'rows'}")


def _some_methods(plan: Plan, only: str) -> tuple[str, ...]:
    wanted = {key.strip() for key in only.split(",")}
    if unknown := sorted(wanted - set(plan.methods)):
        raise InvalidParameter(f"--only {unknown[0]!r} is no method of {plan.name}: {', '.join(plan.methods)}")
    return tuple(key for key in plan.methods if key in wanted)


def _enough_for_the_paper() -> bool:
    """Are there at least 20 annotators with more than 1000 labels? The paper had 42."""
    _, count = np.unique(read_tldr(data_folder()).users, return_counts=True)
    return int(np.sum(count > MANY_LABELS)) >= 20


def _finish(plan: Plan, folder: Path, processes: int, methods: Path | None = None) -> Any:
    """Run what is missing, with a bar and the time left."""
    store, trials = Store(folder / f"{plan.name}.trials.jsonl"), plan.trials()
    before = len({t.key for t in trials} & set(store.finished()))
    if before:
        err.print(f"{plan.name}: {before} of {len(trials)} trials were finished before")
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as progress:
        task = progress.add_task(plan.name, total=None)

        def tell(done: float, total: float, finished: int) -> None:
            progress.update(task, completed=done, total=max(total, 1.0))
            interrupts.keep(f"{before + finished} of {len(trials)} trials are kept, and the same command goes on")

        run_all(trials, store, processes=processes, tell=tell, methods=methods)
    return as_frame(trials, store.finished())


def _say(plan: Plan, rows: Any) -> None:
    out.print(f"\n{plan.experiment} on {plan.data}: {plan.title}, {plan.runs} runs", style="bold")
    for says, measured, verdict in claims_table(plan, rows).rows:
        out.print(f"  {verdict:22} {says}: {measured}")
