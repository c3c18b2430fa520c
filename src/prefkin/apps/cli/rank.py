"""`prefkin rank DIR --user U --candidates FILE`: what to recommend to one user, or to everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer

from prefkin.apps.cli.console import (
    candidates_for,
    check_file,
    column_map,
    file_format,
    find_user,
    out,
    table,
    working,
    write_file,
)
from prefkin.apps.shown import Shown
from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.data.formats import as_file
from prefkin.decide.policy import Policy, inverse_norm
from prefkin.errors import InvalidParameter
from prefkin.execution.progress import tell
from prefkin.models.files import load
from prefkin.models.reports import counted


class Ranking(NamedTuple):
    """Rows of the candidates for one user, best first in each context."""

    order: IntArray  # (rows,)
    place: IntArray  # (rows,) from 1, of each row of the candidates
    reward: FloatArray  # (rows,)
    unsure: FloatArray  # (rows,)
    chosen: np.ndarray[Any, Any]  # (rows,) is it recommended?
    policy: Policy


def rank(
    folder: Path = typer.Argument(metavar="DIR", help="Folder written by prefkin fit, or a model file."),
    user: str | None = typer.Option(None, help="Whose preference to rank by; without it everybody's, into --out."),
    candidates: Path = typer.Option(..., help="Candidates: columns context, action, phi0, ...; or .npz."),
    mapping: list[str] = typer.Option([], "--map", help="Other column names: OURS=THEIRS, repeatable."),
    features: str | None = typer.Option(None, help="Columns that hold a feature each, separated by commas."),
    pessimism: float | None = typer.Option(
        None, help="Play safe: 0 greedy, 1 fully; by default 1 for PrefKin, 0 for the paper's algorithm."
    ),
    scope: str = typer.Option("policy", help="Play safe over all contexts together (policy) or in each (context)."),
    top: int = typer.Option(3, help="Actions shown per context; of everybody, actions written.", min=1),
    limit: int = typer.Option(10, help="Contexts shown.", min=1),
    out_file: Path | None = typer.Option(
        None, "--out", "--csv", help="Write the ranking to this file: .csv, .jsonl or .parquet."
    ),
) -> None:
    """Rank each context's actions for one user, or for all; the recommended action is marked.

    Example: prefkin rank kin --user Ada --candidates stories.csv

    Example: prefkin rank kin --candidates stories.csv --out everybody.parquet
    """
    if out_file is not None:
        check_file("--out", out_file, [candidates, folder])
    elif user is None:
        raise InvalidParameter("rank for one person with --user U, or for everybody into a file with --out FILE")
    model = load(folder)
    who = model.users_.tolist() if user is None else [find_user(model.users_.tolist(), user)]
    shown = candidates_for(model, candidates, column_map(mapping), features)
    cands = shown.candidates
    caution = pessimism if pessimism is not None else float(model.has_posterior)
    found = dict[Any, Ranking]()
    with working():
        for done, label in enumerate(who):
            tell("people", done, len(who))
            found[label] = _ranking(model, label, cands, caution, scope)
        tell("people", len(who), len(who))
    if out_file is not None:
        columns = _columns(found, shown, None if user is not None else top)
        if user is not None:
            del columns["user"]
        write_file(out_file, as_file(columns, file_format(out_file)))
    if user is None:
        out.print(f"ranked for {counted(len(who), 'user')} in {counted(len(cands), 'context')}: written to {out_file}")
        return
    _show(found[who[0]], shown, top, limit, caution)


def _ranking(model: Any, label: Any, cands: Candidates, caution: float, scope: str) -> Ranking:
    policy = model.policy(label, cands, pessimism=caution, scope=scope)
    reward = cands.features @ model.theta_[model.position(label)]
    order = np.lexsort((-reward, cands.owner))
    place = np.empty(len(order), dtype=int)
    place[order] = np.arange(len(order)) - cands.starts[cands.owner[order]] + 1
    chosen = np.zeros(len(order), dtype=bool)
    chosen[cands.starts[:-1] + policy.actions] = True
    return Ranking(order, place, reward, inverse_norm(cands.features, model.information(label)), chosen, policy)


def _columns(found: dict[Any, Ranking], shown: Shown, top: int | None) -> dict[str, list[Any]]:
    """All of the ranking, or the first of each context and what is recommended."""
    cands, columns = shown.candidates, dict[str, list[Any]]()
    for label, ranking in found.items():
        some = ranking.order
        if top is not None:
            some = some[(ranking.place[some] <= top) | ranking.chosen[some]]
        part: dict[str, list[Any]] = {
            "user": [label] * len(some),
            "context": cands.contexts[cands.owner[some]].tolist(),
            "action": cands.actions[some].tolist(),
            "rank": ranking.place[some].tolist(),
            "reward": ranking.reward[some].tolist(),
            "uncertainty": ranking.unsure[some].tolist(),
            "recommended": ranking.chosen[some].tolist(),
        }
        if any(shown.texts):
            part["text"] = [shown.texts[row] for row in some]
        for name, values in part.items():
            columns.setdefault(name, []).extend(values)
    return columns


def _show(ranking: Ranking, shown: Shown, top: int, limit: int, caution: float) -> None:
    cands, policy = shown.candidates, ranking.policy
    grid = table("context", "action", "reward", "uncertainty", "recommended")
    for row in ranking.order:
        x, place = int(cands.owner[row]), ranking.place[row]
        if x < limit and (place <= top or ranking.chosen[row]):
            context, mark = shown.context(x) if place == 1 else "", "yes" if ranking.chosen[row] else ""
            reward, unsure = f"{ranking.reward[row]:.3f}", f"{ranking.unsure[row]:.3f}"
            grid.add_row(context, shown.brief(int(row)), reward, unsure, mark)
    out.print(grid)
    if len(cands) > limit:
        out.print(f"... {len(cands) - limit} more contexts (--limit, or --out FILE for all)")
    if (ranking.place[ranking.chosen] > 1).any():
        out.print(
            "not always the largest reward: recommended is what is worth most once doubt is deducted (--pessimism 0)"
        )
    out.print(
        f"\npessimism {caution:g}: value {policy.value:.4g} = reward {policy.reward:.4g} − penalty "
        f"{policy.penalty:.4g}; no policy exceeds {policy.upper_bound:.4g}"
    )
