"""`prefkin fit FILE --out DIR`: fit, print a summary a person can act on, save the model and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from prefkin.apps.cli.console import (
    ITEMS_FILE,
    SUMMARY_FILE,
    WRITTEN,
    about,
    check_folder,
    comparisons_from,
    listed,
    out,
    refuse_sources,
    working,
    write_folder,
)
from prefkin.apps.cli.findings import (
    comparison,
    former_facts,
    kept,
    next_steps,
    print_comparison,
    print_summary,
    say_what_is_replaced,
    summary,
)
from prefkin.apps.cli.fit_folder import fit_folder
from prefkin.data.candidates import Candidates
from prefkin.data.comparisons import Comparisons
from prefkin.data.formats import as_csv, encoder_of
from prefkin.errors import InvalidParameter
from prefkin.evaluate.compare import METHODS, compare, splits
from prefkin.models.base import PreferenceModel
from prefkin.models.files import ENCODER_FILE, IN_SHARDS
from prefkin.models.off_c2pl.estimator import OffC2PL
from prefkin.models.off_c2pl.radius import KAPPA_UNIT_BALL, ItemRegularity
from prefkin.models.prefkin.estimator import PrefKin
from prefkin.models.prefkin.parameters import METRICS

BEST = "best"
PAPER = {
    "alpha": 1.0,
    "ridge": "1",
    "kappa": KAPPA_UNIT_BALL,
    "delta": 0.05,
    "radius": "theory",
    "distance": "euclidean",
}


def fit(
    file: Path = typer.Argument(
        help="Comparisons: .parquet, .csv, .jsonl, .json, .npz, .csv.gz, ...; or a folder of Parquet files."
    ),
    out_dir: Path = typer.Option(..., "--out", help="Folder for the model, the summary and the pictures."),
    mapping: list[str] = typer.Option([], "--map", help="Other column names: OURS=THEIRS, repeatable."),
    features: str | None = typer.Option(None, help="Columns that hold a feature each, separated by commas."),
    items: Path | None = typer.Option(None, help="Features of items, for tables that name items."),
    drop: list[str] = typer.Option([], help="Leave out rows: ties, missing; repeatable."),
    ties: str | None = typer.Option(None, help="half: a tie is half an answer for each side."),
    yes: str | None = typer.Option(None, help="The answer that means that the first was preferred: left, A, ..."),
    names: str | None = typer.Option(None, help="Names for features that have none in the file, separated by commas."),
    gamma: str | None = typer.Option(
        None, help="Use the paper's algorithm with this threshold: a number, under, over, or auto."
    ),
    alpha: float = typer.Option(PAPER["alpha"], help="With --gamma: caution of the connection test, at least 1."),
    ridge: str = typer.Option(PAPER["ridge"], help="With --gamma: regularisation (lambda), a number or auto."),
    kappa: float = typer.Option(PAPER["kappa"], help="With --gamma: least slope of the sigmoid."),
    delta: float = typer.Option(PAPER["delta"], help="With --gamma: chance that confidence statements are wrong."),
    radius: str = typer.Option(PAPER["radius"], help="With --gamma: theory (the paper's), or calibrated."),
    distance: str = typer.Option(PAPER["distance"], help="With --gamma: euclidean (the paper's), or information."),
    regularity: str | None = typer.Option(
        None,
        metavar="LAMBDA_A,SIGMA,SET_SIZE",
        help="With --gamma: assume item regularity instead of measuring coverage.",
    ),
    metric: str = typer.Option("auto", help=f"Without --gamma: {', '.join(METRICS)}, or auto."),
    method: str = typer.Option(
        "PrefKin", help=f"{', '.join(METHODS)}; or best: the one of them that predicts held-out answers best."
    ),
    compared: bool = typer.Option(False, "--compare", help="Also compare methods on held-out answers."),
    pictures: bool = typer.Option(True, help="Draw pictures (needs matplotlib)."),
    memory: str | None = typer.Option(None, help="With a folder: memory to use, such as 4GB; half of what is free."),
    workers: int | None = typer.Option(None, help="With a folder: work in so many processes (Dask).", min=1),
    scheduler: str | None = typer.Option(None, help="With a folder: let this Dask cluster work, tcp://HOST:PORT."),
) -> None:
    """Fit, print a summary, save the model and pictures.

    Beside the model: summary.json, users.csv (group and its probability, who is closest), groups.csv (centres).

    Example: prefkin fit votes.csv --out kin --compare
    """
    check_folder(out_dir, WRITTEN, SUMMARY_FILE, IN_SHARDS)
    for name in WRITTEN:
        refuse_sources("--out", out_dir / name, [file, items])
    settings = {"alpha": alpha, "ridge": ridge, "kappa": kappa, "delta": delta, "radius": radius, "distance": distance}
    model = _model(method, metric, gamma, regularity, settings)
    compared = compared or method == BEST
    in_shards = (memory, workers, scheduler) != (None, None, None)
    at_once = compared or features or items or names or yes or ties or not (in_shards or model.sums_up_shards)
    if file.is_dir() and any(file.glob("*.parquet")) and not at_once and model.fits_shards:
        fit_folder(file, out_dir, model, mapping, drop, memory, workers, scheduler)
        return
    if in_shards:
        raise InvalidParameter(
            "--memory, --workers and --scheduler are for a folder of .parquet files that is fitted shard by shard: "
            "without --compare, --features, --items, --names, --yes, --ties and other methods"
        )
    data = comparisons_from(file, mapping, listed(features), items, drop, names, yes, ties)
    former = former_facts(out_dir)
    name = method if gamma is None and method != BEST else type(model).__name__
    with working(), about(file):
        beside = _beside(file if items is None else items, data)
        if compared:
            splits(data)  # what cannot be compared is refused before the work
        model.fit(data)
        found = model.summary()
        facts, drawn, result = summary(model, name, found), data if pictures else None, None
        contents = kept(model, facts, drawn) | beside
        write_folder(out_dir, contents, WRITTEN)  # before a word is said: output may fail
    say_what_is_replaced(former, facts, out_dir)
    print_summary(model, found, facts)
    if compared:
        with working(), about(file):
            result = compare(data)
            if method == BEST and result.best != name:
                name, model = result.best, METHODS[result.best]().fit(data)
                found = model.summary()
            contents = kept(model, summary(model, name, found) | comparison(result), drawn, result) | beside
            write_folder(out_dir, contents, WRITTEN)
        print_comparison(result)
        if method == BEST:
            out.print(f"kept: {name}")
    out.print("\nworth doing next")
    described = str(out_dir / ITEMS_FILE if ITEMS_FILE in contents else items or "FILE")
    for step in next_steps(model, found, str(out_dir), result, described):
        out.print(f"  {step}")
    out.print(f"\nwritten to {out_dir}: {', '.join(contents)}")


def _model(
    method: str, metric: str, gamma: str | None, regularity: str | None, settings: dict[str, Any]
) -> PreferenceModel:
    """What is to be fitted; `settings` are those of the paper's algorithm."""
    if method not in (*METHODS, BEST):
        raise InvalidParameter(f"--method must be one of {', '.join(METHODS)} or {BEST}; got {method!r}")
    if method != "PrefKin" and (gamma is not None or metric != "auto"):
        raise InvalidParameter("--gamma and --metric choose the method; give no other --method beside them")
    if gamma is None and method in METHODS and method != "PrefKin":
        return METHODS[method]()
    if gamma is None:
        if regularity is not None or settings != PAPER:
            raise InvalidParameter(f"{', '.join(PAPER)}, regularity belong to the paper's algorithm; add --gamma")
        return PrefKin(metric=metric)
    threshold = gamma if gamma in ("auto", "under", "over") else _number("--gamma", gamma, ", under, over or auto")
    if settings["ridge"] != "auto":
        settings["ridge"] = _number("--ridge", settings["ridge"], " or auto")
    return OffC2PL(threshold, **settings, coverage="measured" if regularity is None else _regularity(regularity))


def _beside(described: Path, data: Comparisons) -> dict[str, bytes]:
    """Files that say where features came from; `described` is the file that holds them."""
    found, encoder = {}, encoder_of(described)
    if encoder is not None:
        found[ENCODER_FILE] = json.dumps(encoder).encode()
    if data.learnt_features:
        items = Candidates.from_items(data)
        factors = {f"phi{k}": column.tolist() for k, column in enumerate(items.features.T)}
        found[ITEMS_FILE] = as_csv({"item": items.actions.tolist(), **factors})
    return found


def _number(option: str, text: str, words: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidParameter(f"{option} takes a number{words}; got {text!r}") from None


def _regularity(text: str) -> ItemRegularity:
    try:
        lambda_a, sigma, set_size = text.split(",")
        return ItemRegularity(float(lambda_a), float(sigma), int(set_size))
    except ValueError as error:
        if isinstance(error, InvalidParameter):
            raise
        raise InvalidParameter(
            f"--regularity takes LAMBDA_A,SIGMA,SET_SIZE, for example 0.1,0.05,2; got {text!r}"
        ) from None
