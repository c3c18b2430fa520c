"""`prefkin rank DIR --user U --candidates FILE`: what to recommend to one user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import typer

from prefkin.apps.cli.console import (
    check_place,
    column_map,
    find_user,
    listed,
    out,
    table,
    without_panics,
    write_file,
)
from prefkin.data.formats import as_csv
from prefkin.data.tables import read_candidates
from prefkin.decide.policy import inverse_norm
from prefkin.errors import InvalidParameter
from prefkin.models.files import MODEL_FILE, load


def rank(
    folder: Path = typer.Argument(metavar="DIR", help="Folder written by prefkin fit, or a model file."),
    user: str = typer.Option(..., help="Whose preference to rank by."),
    candidates: Path = typer.Option(..., help="Candidates: columns context, action, phi0, ...; or .npz."),
    mapping: list[str] = typer.Option([], "--map", help="Other column names: OURS=THEIRS, repeatable."),
    features: str | None = typer.Option(None, help="Columns that hold a feature each, separated by commas."),
    pessimism: float | None = typer.Option(
        None, help="Play safe: 0 greedy, 1 fully; by default 1 for PrefKin, 0 for the paper's algorithm."
    ),
    scope: str = typer.Option("policy", help="Play safe over all contexts together (policy) or in each (context)."),
    top: int = typer.Option(3, help="Actions shown per context.", min=1),
    limit: int = typer.Option(10, help="Contexts shown.", min=1),
    csv: Path | None = typer.Option(None, help="Write the whole ranking to this CSV file."),
) -> None:
    """Rank each context's actions for one user; the recommended action is marked."""
    if csv is not None:
        _check_csv(csv, candidates, folder)
    model = load(folder)
    label = find_user(model.users_.tolist(), user)
    with without_panics(candidates):
        cands = read_candidates(candidates, column_map(mapping), features=listed(features))
    given, fitted = cands.feature_names or (), model.feature_names_ or ()
    if given != fitted and sorted(given) == sorted(fitted):
        raise InvalidParameter(f"--features must be in the order in which the model was fitted: {','.join(fitted)}")
    caution = pessimism if pessimism is not None else float(hasattr(model, "covariance"))
    policy = model.policy(label, cands, pessimism=caution, scope=scope)
    reward = cands.features @ model.theta_[model.position(label)]
    unsure = inverse_norm(cands.features, model.information(label))
    order = np.lexsort((-reward, cands.owner))
    position = np.empty(len(order), dtype=int)
    position[order] = np.arange(len(order)) - cands.starts[cands.owner[order]] + 1
    chosen = np.zeros(len(order), dtype=bool)
    chosen[cands.starts[:-1] + policy.actions] = True
    if csv is not None:
        ranking = {
            "context": cands.contexts[cands.owner[order]],
            "action": cands.actions[order],
            "rank": position[order],
            "reward": reward[order],
            "uncertainty": unsure[order],
            "recommended": chosen[order],
        }
        write_file(csv, as_csv({name: values.tolist() for name, values in ranking.items()}))
    grid = table("context", "action", "reward", "uncertainty", "recommended")
    for row in order:
        if cands.owner[row] < limit and (position[row] <= top or chosen[row]):
            x = cands.owner[row]
            context = str(cands.contexts[x]) if position[row] == 1 else ""
            mark = "yes" if chosen[row] else ""
            grid.add_row(context, str(cands.actions[row]), f"{reward[row]:.3f}", f"{unsure[row]:.3f}", mark)
    out.print(grid)
    if len(cands) > limit:
        out.print(f"... {len(cands) - limit} more contexts (--limit, or --csv FILE for all)")
    out.print(
        f"\npessimism {caution:g}: value {policy.value:.4g} = reward {policy.reward:.4g} − penalty "
        f"{policy.penalty:.4g}; no policy exceeds {policy.upper_bound:.4g}"
    )


def _check_csv(csv: Path, candidates: Path, folder: Path) -> None:
    """The ranking must not take the place of what it is made from."""
    for source in (candidates, folder, folder / MODEL_FILE):
        if csv.exists() and source.exists() and csv.samefile(source):
            raise InvalidParameter(f"--csv {csv}: this is what is read; give another file")
    check_place("--csv", csv.absolute().parent)
