"""`prefkin fit FILE --out DIR`: fit, print a summary a person can act on, save the model and pictures."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import typer

from prefkin.apps.cli.console import (
    ITEMS_FILE,
    SUMMARY_FILE,
    WRITTEN,
    about,
    check_folder,
    comparisons_from,
    err,
    out,
    print_lines,
    refuse_sources,
    table,
    working,
    write_folder,
)
from prefkin.apps.cli.findings import next_steps, tables
from prefkin.apps.cli.fit_folder import fit_folder
from prefkin.data.candidates import Candidates
from prefkin.data.comparisons import Comparisons
from prefkin.data.folds import spread
from prefkin.data.formats import as_csv, encoder_of
from prefkin.errors import InvalidParameter
from prefkin.evaluate.compare import METHODS, Comparison, compare, splits
from prefkin.evaluate.metrics import HeldOut
from prefkin.evaluate.plots import (
    as_png,
    can_draw,
    plot_coverage,
    plot_estimates,
    plot_questions,
    plot_reliability,
    plot_users,
)
from prefkin.models.base import PreferenceModel
from prefkin.models.files import CROWD_FILE, ENCODER_FILE, MODEL_FILE
from prefkin.models.off_c2pl.estimator import OffC2PL
from prefkin.models.off_c2pl.radius import KAPPA_UNIT_BALL, ItemRegularity
from prefkin.models.prefkin.estimator import PrefKin
from prefkin.models.reports import Summary

MEASURED = HeldOut._fields
BEST = "best"
QUESTIONS_SHOWN = 20
MEMBERS_NAMED = 20  # of each neighbourhood in summary.json: all of them would take users squared
PAIRS_CONSIDERED = 2000


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
    alpha: float = typer.Option(1.0, help="With --gamma: caution of the connection test, at least 1."),
    ridge: str = typer.Option("1", help="With --gamma: regularisation (lambda), a number or auto."),
    kappa: float = typer.Option(KAPPA_UNIT_BALL, help="With --gamma: least slope of the sigmoid."),
    delta: float = typer.Option(0.05, help="With --gamma: chance that confidence statements are wrong."),
    radius: str = typer.Option("theory", help="With --gamma: theory (the paper's), or calibrated."),
    distance: str = typer.Option("euclidean", help="With --gamma: euclidean (the paper's), or information."),
    regularity: str | None = typer.Option(
        None,
        metavar="LAMBDA_A,SIGMA,SET_SIZE",
        help="With --gamma: assume item regularity instead of measuring coverage.",
    ),
    metric: str = typer.Option("auto", help="Without --gamma: isotropic, diagonal, or auto."),
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
    check_folder(out_dir, WRITTEN, SUMMARY_FILE, CROWD_FILE)
    for name in WRITTEN:
        refuse_sources("--out", out_dir / name, [file, *([] if items is None else [items])])
    if method not in (*METHODS, BEST):
        raise InvalidParameter(f"--method must be one of {', '.join(METHODS)} or {BEST}; got {method!r}")
    if method != "PrefKin" and (gamma is not None or metric != "auto"):
        raise InvalidParameter("--gamma and --metric choose the method; give no other --method beside them")
    compared = compared or method == BEST
    model: PreferenceModel
    if gamma is None and method in METHODS and method != "PrefKin":
        model = METHODS[method]()
    elif gamma is None:
        constants = (alpha, ridge, kappa, delta, radius, distance)
        if regularity is not None or constants != (1.0, "1", KAPPA_UNIT_BALL, 0.05, "theory", "euclidean"):
            raise InvalidParameter(
                "alpha, ridge, kappa, delta, radius, distance, regularity belong to the paper's algorithm; add --gamma"
            )
        model = PrefKin(metric=metric)
    else:
        model = OffC2PL(
            gamma if gamma in ("auto", "under", "over") else _number("--gamma", gamma, ", under, over or auto"),
            alpha=alpha,
            ridge="auto" if ridge == "auto" else _number("--ridge", ridge, " or auto"),
            kappa=kappa,
            delta=delta,
            radius=radius,
            distance=distance,
            coverage="measured" if regularity is None else _regularity(regularity),
        )
    in_shards = (memory, workers, scheduler) != (None, None, None)
    at_once = compared or features or items or names or yes or ties or not (in_shards or isinstance(model, PrefKin))
    if file.is_dir() and any(file.glob("*.parquet")) and not at_once and isinstance(model, PrefKin | OffC2PL):
        fit_folder(file, out_dir, model, mapping, drop, memory, workers, scheduler)
        return
    if in_shards:
        raise InvalidParameter(
            "--memory, --workers and --scheduler are for a folder of .parquet files that is fitted shard by shard: "
            "without --compare, --features, --items, --names, --yes, --ties and other methods"
        )
    data = comparisons_from(file, mapping, features, items, drop, names, yes, ties)
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


def kept(
    model: PreferenceModel, facts: dict[str, Any], drawn: Comparisons | None, result: Comparison | None = None
) -> dict[str, bytes]:
    """Everything that is written about a fit; `drawn` are the rows for its pictures, None: no pictures."""
    contents = {SUMMARY_FILE: json.dumps(facts, indent=2).encode(), MODEL_FILE: model_bytes(model)}
    return contents | tables(model) | ({} if drawn is None else _pictures(model, drawn, result))


def former_facts(folder: Path) -> dict[str, Any]:
    """What a fit said of itself in its folder: nothing of a model file by itself, and nothing that is damaged."""
    file = folder / SUMMARY_FILE
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        told = (
            found.get("method", ""),
            found.get("verdict", ""),
            *(row["method"] for row in found.get("comparison", [])),
        )
        measured = [float(row[name]) for row in found.get("comparison", []) for name in MEASURED]
        if not all(isinstance(text, str) for text in told) or len(measured) % len(MEASURED):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError):
        err.print(f"note: {file} is damaged; how methods compared is not known from it")
        return {}
    return dict(found)


def comparison(result: Comparison) -> dict[str, Any]:
    """Held-out performance of every method in plain numbers."""
    return {
        "comparison": [
            {"method": name, **dict(zip(MEASURED, numbers, strict=True))} for name, *numbers, _ in result.rows()
        ],
        "verdict": result.verdict,
        "reliability": {name: values.tolist() for name, values in asdict(result.reliability()).items()},
    }


def print_comparison(result: Comparison) -> None:
    """Held-out performance of every method, and which one to trust."""
    title = f"\nheld-out answers (mean and standard error over users; {result.how})"
    grid = table("method", "log-loss", "±", "right", "±", title=title)
    for name, loss, loss_error, right, right_error, _ in sorted(result.rows(), key=lambda row: row[1]):
        grid.add_row(name, f"{loss:.4f}", f"{loss_error:.4f}", f"{right:.1%}", f"{right_error:.1%}")
    out.print(grid)
    out.print(result.verdict)
    out.print(f"PrefKin's probabilities: {result.reliability()}")


def summary(model: PreferenceModel, method: str, found: Summary) -> dict[str, Any]:
    """The fit in plain numbers: neighbourhoods with the names of some members, and an entry for each user."""
    labels = [str(user) for user in model.users_.tolist()]
    gamma = getattr(model, "gamma_", None)
    about = {} if gamma is None else {"gamma": [str(g) for g in gamma], "ridge": float(model.ridge_)}
    neighbourhoods, place = list[dict[str, Any]](), np.empty(len(labels), dtype=np.intp)
    for owners, members in model.neighbourhoods():
        place[owners] = len(neighbourhoods)
        some = [labels[v] for v in members[:MEMBERS_NAMED]]
        pooled = float(model.n_comparisons_[members].sum())
        neighbourhoods.append({"users": len(members), "used_by": len(owners), "comparisons": pooled, "some": some})
    moved = np.linalg.norm(model.theta_ - model.own_theta_, axis=1)
    return {
        "method": method,
        "structure": found.structure,
        **about,
        "users": found.n_users,
        "features": found.n_features,
        "feature_names": model.feature_names_,
        "comparisons": found.n_comparisons,
        "group_sizes": found.sizes,
        "alone": int(sum(each["used_by"] for each in neighbourhoods if each["users"] == 1)),
        "uncertain": found.uncertain,
        "from_others": found.from_others,
        "log_loss_below_pooled": found.over_pooled,
        "groups": [{"group": group.label, "users": len(group), "words": str(group)} for group in model.groups_],
        "closest": [two._asdict() | {"one": str(two.one), "other": str(two.other)} for two in found.alike],
        "log_evidence_of_groups": finite(found.evidence),
        "neighbourhoods": neighbourhoods,
        "per_user": [
            {
                "user": label,
                "comparisons": float(model.n_comparisons_[u]),
                "neighbourhood": int(place[u]),
                "radius": float(model.radius_[u]),
                "moved": float(moved[u]),
            }
            for u, label in enumerate(labels)
        ],
    }


def finite(value: float | None) -> float | None:
    """None where a number is none, which JSON has no word for."""
    return value if value is not None and np.isfinite(value) else None


def print_summary(model: PreferenceModel, found: Summary, facts: dict[str, Any]) -> None:
    """Who shares with whom, who gained most, who stands alone, what to do."""
    print_lines(str(found))
    if facts["structure"] == "unrelated" or getattr(model, "structure_", "groups") != "groups":
        return
    grid = table("neighbourhood", "used by", "comparisons", "own", "moved", title="\nlargest neighbourhoods")
    sizes, people = [each["users"] for each in facts["neighbourhoods"]], facts["per_user"]
    for k in sorted(range(len(sizes)), key=lambda k: -sizes[k])[:8]:
        if sizes[k] > 1:
            names, each = facts["neighbourhoods"][k]["some"][:6], facts["neighbourhoods"][k]
            owners = [person for person in people if person["neighbourhood"] == k]
            grid.add_row(
                ", ".join(names) + (f", ... ({sizes[k]})" if sizes[k] > len(names) else ""),
                str(each["used_by"]),
                f"{each['comparisons']:,.0f}",
                f"{np.median([p['comparisons'] for p in owners]):,.0f}",
                f"{np.median([p['moved'] for p in owners]):.2g}",
            )
    out.print(grid)
    alone = [person["user"] for person in people if sizes[person["neighbourhood"]] == 1]
    if alone:
        out.print(f"\nalone: {', '.join(alone[:12])}{', ...' if len(alone) > 12 else ''}")
    out.print("why two users are joined or not: prefkin.load(DIR).explain(user, other)")


def logged_pairs(data: Comparisons) -> Candidates:
    """Questions that could be asked with nothing but the log: each logged pair is a context of its own."""
    differences = data.Z[spread(len(data), PAIRS_CONSIDERED)]
    return Candidates(np.stack([differences, np.zeros_like(differences)], axis=1))


def _pictures(model: PreferenceModel, data: Comparisons, result: Comparison | None) -> dict[str, bytes]:
    if not can_draw():
        err.print("note: no pictures, matplotlib is not installed (pip install 'prefkin[plots]')")
        return {}
    moved = np.linalg.norm(model.theta_ - model.own_theta_, axis=1)
    u = int(np.argmax(moved)) if moved.any() else int(np.argmax(model.radius_))
    user = model.users_.tolist()[u]
    session = model.session(user, logged_pairs(data), rule="coverage")
    before, asked = session.information, session.plan(QUESTIONS_SHOWN)
    Z = np.array([session.difference(question) for question in asked]).reshape(-1, model.n_features_in_)
    taught = f"what {len(asked)} more answers would teach about {user}"
    drawn = {
        "users.png": as_png(plot_users(model)),
        "estimates.png": as_png(plot_estimates(model, user)),
        "coverage.png": as_png(plot_coverage(model, user)),
        "questions.png": as_png(plot_questions(before, before + Z.T @ Z, taught, model.feature_names_)),
    }
    if result is not None:
        drawn["reliability.png"] = as_png(plot_reliability({"PrefKin": result.reliability()}))
    return drawn


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


def model_bytes(model: PreferenceModel) -> bytes:
    """What `save` writes."""
    content = io.BytesIO()
    model.save(content)
    return content.getvalue()


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
