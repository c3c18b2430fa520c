"""`prefkin export DIR --to FORM --out PATH`: what was learnt, in the form in which others go on with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from prefkin.apps.cli.console import (
    as_fitted,
    check_file,
    check_folder,
    column_map,
    err,
    features_for,
    find_user,
    out,
    table,
    votes_of,
    without_panics,
    working,
    write_file,
    write_folder,
)
from prefkin.apps.export.encoder import Encoder, encoder_of, recognised
from prefkin.apps.export.questions import next_questions, planned_questions
from prefkin.apps.export.reward_head import HEAD, WRITTEN, reward_head
from prefkin.apps.export.trl import preference_set
from prefkin.apps.export.whose import Preferences, everybody, groups_of, one_user
from prefkin.data.exports import TOOLS
from prefkin.data.formats import as_file
from prefkin.errors import InvalidParameter
from prefkin.models.files import load
from prefkin.models.reports import counted

FORMS = ("reward-head", "trl", *TOOLS)
ONE_SET = "preferences.parquet"


def export(
    folder: Path = typer.Argument(metavar="DIR", help="Folder written by prefkin fit, or a model file."),
    to: str = typer.Option(..., help=f"What for: {', '.join(FORMS)}."),
    out_path: Path = typer.Option(..., "--out", help="Folder to write; labelstudio, argilla: a .json file."),
    user: str | None = typer.Option(None, help="For this user."),
    groups: bool = typer.Option(False, "--groups", help="For each group; trl without --user: always."),
    group: int | None = typer.Option(None, min=0, help="reward-head: for this group alone, as trainers expect it."),
    encoder: Path | None = typer.Option(None, help="reward-head: the encoder's folder, if the model does not know it."),
    votes: Path | None = typer.Option(None, help="trl: the rows with their texts, as they were fitted."),
    mapping: list[str] = typer.Option([], "--map", help="trl: other column names: OURS=THEIRS, repeatable."),
    least: float = typer.Option(0.5, min=0.0, max=1.0, help="trl: rows of people who belong there at least so surely."),
    surer_than: float | None = typer.Option(
        None, min=0.5, max=1.0, help="trl: label other people's pairs where the group's model is surer than this."
    ),
    candidates: Path | None = typer.Option(
        None, help="labelstudio, argilla: what can be asked about: context, action, text, features, maybe prompt."
    ),
    each: int = typer.Option(5, min=1, help="labelstudio, argilla: questions for each person."),
    plan: Path | None = typer.Option(
        None, help="labelstudio, argilla: the questions that prefkin plan wrote, instead."
    ),
) -> None:
    """What was learnt, for trainers and annotation tools.

    Example: prefkin export kin --to reward-head --out heads --groups
    """
    if to not in FORMS:
        raise InvalidParameter(f"--to must be one of {', '.join(FORMS)}; got {to!r}")
    if (user is not None) + groups + (group is not None) > 1:
        raise InvalidParameter("--user, --group and --groups are different things; give one of them")
    asking = " or ".join(TOOLS)
    for option, given, form in (
        ("--group", group, "reward-head"),
        ("--encoder", encoder, "reward-head"),
        ("--votes", votes, "trl"),
        ("--surer-than", surer_than, "trl"),
        ("--candidates", candidates, asking),
        ("--plan", plan, asking),
    ):
        if given is not None and to not in form:
            raise InvalidParameter(f"{option} is for --to {form}; leave it out")
    if to in TOOLS:
        if candidates is None:
            raise InvalidParameter(f"--to {to} needs what can be asked about, with texts; give --candidates FILE")
        if groups:
            raise InvalidParameter("questions are for people, not for groups; leave out --groups")
        _questions(folder, to, out_path, user, candidates, each, plan)
        return
    check_folder(out_path, *((WRITTEN, HEAD) if to == "reward-head" else ()))
    model = load(folder)
    if to == "reward-head":
        encoded_by = _encoder(model, folder, encoder)
        with working():
            found = _preferences(model, user, groups, group)
        write_folder(out_path, reward_head(found, encoded_by), WRITTEN)
        out.print(f"{counted(len(found.names), 'head')} of {found.theta.shape[1]} features written to {out_path}")
        out.print("a head times the features of a text is its reward, to be compared with those of other texts")
        if encoded_by is None:
            err.print("note: what made the features is not known, so there is only the head; --encoder FOLDER says it")
        return
    if votes is None:
        raise InvalidParameter(
            "--to trl needs the rows with their texts, which a model does not keep; give --votes FILE"
        )
    _trl(model, out_path, user, votes, column_map(mapping), least, surer_than)


def _preferences(model: Any, user: str | None, groups: bool, group: int | None) -> Preferences:
    if user is not None:
        return one_user(model, find_user(model.users_.tolist(), user))
    if group is None:
        return groups_of(model).preferences(model) if groups else everybody(model)
    found = groups_of(model)
    if f"group {group}" not in found.names:
        raise InvalidParameter(f"--group {group}: there is no such group; there are {', '.join(found.names)}")
    return found.only(f"group {group}").preferences(model)


def _encoder(model: Any, folder: Path, given: Path | None) -> Encoder | None:
    """The one that is known from the features, wherever it is now, or the one that was given."""
    known = encoder_of(folder)
    if given is None:
        return known
    return recognised(given, model.n_features_in_) if known is None else replace(known, name=str(given))


def _trl(
    model: Any,
    path: Path,
    user: str | None,
    file: Path,
    columns: dict[str, str],
    least: float,
    surer_than: float | None,
) -> None:
    """A Parquet file for each group, or one for the user."""
    votes = votes_of(model, file, columns)
    wanted: dict[str, tuple[Any, Any]]  # how surely everybody belongs there, and who speaks for them
    if user is not None:
        label = find_user(model.users_.tolist(), user)
        wanted = {ONE_SET: (model.together(label), [model.position(label)])}
    else:
        found = groups_of(model)
        wanted = {
            f"{name.replace(' ', '-')}.parquet": (found.share[:, k], found.surest(model, k))
            for k, name in enumerate(found.names)
        }
    with working():
        sets = {
            name: preference_set(model, votes, share, speakers, least=least, surer_than=surer_than)
            for name, (share, speakers) in wanted.items()
        }
    for name, columns_of in sets.items():
        if not columns_of["chosen"]:
            raise InvalidParameter(
                f"{name}: none of these rows is by anybody who belongs there; give those that were fitted"
            )
    former = [each.name for each in path.glob("group-*.parquet")] if path.is_dir() else []
    write_folder(path, {name: as_file(rows, ".parquet") for name, rows in sets.items()}, (ONE_SET, *former))
    grid = table("set", "rows", "answers", "labelled", "people")
    for name, rows in sets.items():
        asked, people = rows["source"].count("answer"), len(set(rows["annotator"]) - {None})
        grid.add_row(name, str(len(rows["source"])), str(asked), str(len(rows["source"]) - asked), str(people))
    out.print(grid)
    out.print(f"written to {path}")


def _questions(
    folder: Path, to: str, path: Path, user: str | None, candidates: Path, each: int, plan: Path | None
) -> None:
    """A file of tasks: for one user, for everybody, or as they were planned."""
    from prefkin.apps.annotate.items import read_items

    if path.is_dir() or path.suffix.lower() != ".json":
        raise InvalidParameter(f"--out {path}: tasks are written to one file; give a name that ends in .json")
    check_file("--out", path, [candidates, plan, folder], ())
    model = load(folder)
    with without_panics(candidates):
        items = read_items(candidates, features_for(model, candidates, None))
    items = replace(items, candidates=as_fitted(model, candidates, items.candidates))
    with working():
        if plan is not None:
            questions = planned_questions(plan, items)
            questions = [one for one in questions if user is None or one.asked == user]
        else:
            users = model.users_.tolist()
            questions = next_questions(model, users if user is None else [find_user(users, user)], items, each)
    if not questions:
        raise InvalidParameter("there is nothing to ask; give candidates with at least two actions in a context")
    write_file(path, TOOLS[to](questions))
    people = counted(len({one.asked for one in questions}), "person")
    out.print(f"{counted(len(questions), 'question')} for {people} written to {path}")
