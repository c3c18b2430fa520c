"""`prefkin update DIR FILE...`: new answers into a fitted folder, from comparison files and from saved sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import typer

from prefkin.apps.cli.console import (
    ITEMS_FILE,
    WRITTEN,
    about,
    as_fitted,
    candidates_for,
    column_map,
    comparisons_from,
    features_for,
    known_as,
    out,
    working,
    write_file,
    write_folder,
)
from prefkin.apps.cli.findings import finite, former_facts, kept, model_bytes, print_summary, summary
from prefkin.data.candidates import Candidates
from prefkin.data.comparisons import Comparisons
from prefkin.data.digest import digest
from prefkin.data.storage import label_from_json
from prefkin.decide.states import answers_of, fingerprint, read_state
from prefkin.errors import InvalidComparisons, InvalidParameter, SessionError
from prefkin.models.files import ENCODER_FILE, load
from prefkin.models.reports import counted

SESSION = ".json"
CLEARLY = 20  # answers that do not all come again by chance


def update(
    folder: Path = typer.Argument(metavar="DIR", help="Folder written by prefkin fit, or a model file."),
    files: list[Path] = typer.Argument(metavar="FILE...", help="Comparisons as for fit, or saved sessions (.json)."),
    candidates: Path | None = typer.Option(None, help="What the sessions were about."),
    mapping: list[str] = typer.Option([], "--map", help="Other column names: OURS=THEIRS, repeatable."),
    features: str | None = typer.Option(None, help="Columns that hold a feature each, separated by commas."),
    items: Path | None = typer.Option(None, help="Features of items, for tables that name items."),
    drop: list[str] = typer.Option([], help="Leave out rows: ties, missing; repeatable."),
    refit: bool = typer.Option(False, help="Then learn the prior again, from everything."),
) -> None:
    """New answers into a fitted folder: those who gave them, and new people, are placed anew.

    Example: prefkin update kin tomorrow.csv
    """
    model, cands = load(folder), None
    if candidates is not None:
        cands = candidates_for(model, candidates, column_map(mapping), features).candidates
    past, parts = dict(model._past), list[Comparisons]()
    former = model._digest if model._in_shards is None else model._in_shards.digest
    known = [*past.get("models", []), former]
    for file in files:
        if file.suffix == SESSION:
            data = _session_answers(file, cands, known, past)
        else:
            named = features_for(model, file if items is None else items, features)
            data = comparisons_from(file, mapping, named, items, drop)
            _refuse_twice(file, data, past)
        if data is not None:
            data = as_fitted(model, file, data)
            with about(file):
                parts.append(_with_known_labels(data, model))
                if file.suffix != SESSION and model._in_shards is None:
                    _refuse_known(parts[-1], model)
    if not parts:
        out.print("nothing new: the model stays as it is")
        return
    if refit and model._in_shards is not None:
        raise InvalidParameter("with people in shards: put the new files into their folder, and fit it again")
    before = _people(model)
    with working(), about(files[0]):
        new = _together(parts)
        model.update(new)
        gain = model.refit_gain_
        people, strangers = len(new.labels), _people(model) - before
        if refit:
            model.fit(model.comparisons())
        model._past = past | {"models": known}
        facts = _write(
            folder, model, {"answers": len(new), "people": people, "new": strangers, "log_evidence_of_refit": gain}
        )
    out.print(
        f"{counted(len(new), 'answer')} of {counted(people, 'person')} taken in, "
        f"{strangers} of them new" + ("; the prior was learnt again" if refit else "") + f": written to {folder}"
    )
    if model._in_shards is None:
        print_summary(model, model.summary(), facts)
    else:
        out.print(str(model.summary()))


def _people(model: Any) -> int:
    return len(model.users_) if model._in_shards is None else int(model._in_shards.data.n_users)


def _write(folder: Path, model: Any, news: dict[str, Any]) -> dict[str, Any]:
    """The model and, in a folder, what a fit writes beside it; how methods compared stays as it was measured."""
    if model._in_shards is not None:
        model.save(folder)
        return {}
    found, name = model.summary(), type(model).__name__
    if not folder.is_dir():
        write_file(folder, model_bytes(model))
        return summary(model, name, found)
    earlier = former_facts(folder)
    facts = summary(model, earlier.get("method", name), found)
    facts |= {"updated": news | {"log_evidence_of_refit": finite(news["log_evidence_of_refit"])}}
    facts |= {name: earlier[name] for name in ("comparison", "verdict", "reliability") if name in earlier}
    contents = kept(model, facts, model.comparisons() if (folder / "users.png").is_file() else None)
    contents |= {name: (folder / name).read_bytes() for name in (ENCODER_FILE, ITEMS_FILE) if (folder / name).is_file()}
    write_folder(folder, contents, WRITTEN)
    return facts


def _refuse_twice(file: Path, data: Comparisons, past: dict[str, Any]) -> None:
    """The same rows again, as after a command that was run twice."""
    which = digest(data.Z, data.y, data.weights, "\n".join(map(repr, data.users.tolist())))
    if which in past.get("files", []):
        raise InvalidComparisons(f"{file}: these rows were taken in before; answers count once, give the new ones")
    past["files"] = [*past.get("files", []), which]


def _refuse_known(data: Comparisons, model: Any) -> None:
    """A file that grew: all that these people had answered before stands in it, too."""
    known = set(model.users_.tolist())
    both = [user for user in data.labels.tolist() if user in known]
    new, n = set(_marks(data)), 0
    for user in both:
        old = _marks(model.comparisons(user))
        if not new.issuperset(old):
            return
        n += len(old)
    if n >= CLEARLY:
        raise InvalidComparisons(
            f"all {n} answers that the model knows of these people stand in it again; answers count once, give the "
            "new ones"
        )


def _marks(data: Comparisons) -> list[tuple[Any, bytes]]:
    rows = np.column_stack([data.Z.astype(np.float64), data.y])
    return [(user, row.tobytes()) for user, row in zip(data.users.tolist(), rows, strict=True)]


def _session_answers(
    file: Path, cands: Candidates | None, known: list[str], past: dict[str, Any]
) -> Comparisons | None:
    """What was answered in a session since it was last taken in; None: nothing."""
    if cands is None:
        raise InvalidParameter(f"{file} is a saved session; say what it was about with --candidates FILE")
    state = read_state(file)
    user, label = (label_from_json(state.get(name)) for name in ("user", "label"))
    mine = state.get("fingerprint")
    if mine not in [fingerprint(model, user, label, cands) for model in known]:
        raise SessionError(f"{file}: this session was about other candidates, or with another model; give its own")
    heard = past.get("sessions", {}).get(mine, 0)
    past["sessions"] = past.get("sessions", {}) | {mine: len(state["log"])}
    try:
        log = [entry for entry in answers_of(state["log"][heard:]) if entry[3] is not None]
    except IndexError:
        raise SessionError(f"{file}: an answer was taken back that the model has heard; fit again") from None
    if not log:
        return None
    who = label if user is None else user
    if who is None:
        raise SessionError(f"{file}: nobody's name is in this session; open it with a label")
    Z = np.array([cands.of(x)[i] - cands.of(x)[j] for x, i, j, _ in log])
    return Comparisons.from_arrays(
        Z, [float(answer) for *_, answer in log], [who] * len(log), weights=np.ones(len(log))
    )


def _with_known_labels(data: Comparisons, model: Any) -> Comparisons:
    """People whom the model knows under what their label reads as: 7 in one file may be "7" in another."""
    given = data.users.tolist()
    if model._in_shards is None:
        found = known_as(model.users_.tolist(), given)
        same = [new if old is None else old for new, old in zip(given, found, strict=True)]
    else:
        kind, written = (int, "iu") if model._in_shards.data.integers else (str, "UO")
        try:
            same = given if data.users.dtype.kind in written else [kind(label) for label in given]
        except (TypeError, ValueError):
            return data  # the model says what does not fit
    if same == given:
        return data
    return Comparisons.from_arrays(data.Z, data.y, same, weights=data.weights, feature_names=data.feature_names)


def _together(parts: list[Comparisons]) -> Comparisons:
    if len(parts) == 1:
        return parts[0]
    users = [label for part in parts for label in part.users.tolist()]
    Z, y, weights = (np.concatenate([getattr(part, name) for part in parts]) for name in ("Z", "y", "weights"))
    return Comparisons.from_arrays(Z, y, users, weights=weights, feature_names=parts[0].feature_names)
