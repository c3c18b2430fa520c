"""`prefkin export DIR --to FORM --out PATH`: what was learnt, in the form in which others go on with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from prefkin.apps.cli.console import check_folder, err, find_user, out, write_folder
from prefkin.apps.export.encoder import Encoder, encoder_of, recognised
from prefkin.apps.export.reward_head import WRITTEN, reward_head
from prefkin.apps.export.whose import Preferences, everybody, groups_of, one_user
from prefkin.errors import InvalidParameter
from prefkin.models.files import load
from prefkin.models.reports import counted

FORMS = ("reward-head",)


def export(
    folder: Path = typer.Argument(metavar="DIR", help="Folder written by prefkin fit, or a model file."),
    to: str = typer.Option(..., help=f"What for: {', '.join(FORMS)}."),
    out_path: Path = typer.Option(..., "--out", help="Folder or file to write."),
    user: str | None = typer.Option(None, help="For this user."),
    groups: bool = typer.Option(False, "--groups", help="For each group instead of each user."),
    encoder: Path | None = typer.Option(None, help="Folder of the encoder, where the model does not know it."),
) -> None:
    """What was learnt, for trainers and annotation tools.

    Example: prefkin export kin --to reward-head --out heads --groups
    """
    if to not in FORMS:
        raise InvalidParameter(f"--to must be one of {', '.join(FORMS)}; got {to!r}")
    if user is not None and groups:
        raise InvalidParameter("--user and --groups are two different things; give one of them")
    _reward_head(load(folder), folder, out_path, user, groups, encoder)


def _reward_head(
    model: Any, folder: Path, path: Path, user: str | None, groups: bool, encoder_folder: Path | None
) -> None:
    check_folder(path)
    encoder = _encoder(model, folder, encoder_folder)
    preferences = _preferences(model, user, groups)
    write_folder(path, reward_head(preferences, encoder), WRITTEN)
    out.print(f"{counted(len(preferences.names), 'head')} of {model.n_features_in_} features written to {path}")
    if encoder is None:
        err.print("note: what made the features is not known, so there is only the head; --encoder FOLDER says it")


def _preferences(model: Any, user: str | None, groups: bool) -> Preferences:
    if user is not None:
        return one_user(model, find_user(model.users_.tolist(), user))
    return groups_of(model).preferences if groups else everybody(model)


def _encoder(model: Any, folder: Path, given: Path | None) -> Encoder | None:
    """The one that is known from the features, wherever it is now, or the one that was given."""
    known = encoder_of(folder)
    if given is None:
        return known
    return recognised(given, model.n_features_in_) if known is None else replace(known, name=str(given))
