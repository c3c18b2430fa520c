"""What a fit found: in plain numbers, as tables and pictures, on the terminal, and what is most worth doing next."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from prefkin.apps.cli.console import SUMMARY_FILE, err, out, print_lines, table
from prefkin.data.candidates import Candidates
from prefkin.data.comparisons import Comparisons
from prefkin.data.formats import as_csv
from prefkin.data.rows import spread
from prefkin.evaluate.compare import Comparison
from prefkin.evaluate.metrics import HeldOut
from prefkin.evaluate.people_map import groups_on
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
from prefkin.models.coverage import feature_name
from prefkin.models.files import MODEL_FILE
from prefkin.models.likeness import in_words
from prefkin.models.reports import Summary, counted

__all__ = [
    *("comparison", "finite", "former_facts", "kept", "model_bytes", "next_steps", "print_comparison"),
    *("print_summary", "summary", "tables"),
]

MEASURED = HeldOut._fields
QUESTIONS_SHOWN = 20
MEMBERS_NAMED = 20  # of each neighbourhood in summary.json: all of them would take users squared
PAIRS_CONSIDERED = 2000
STEPS = 3
NAMED = 3  # people in a piece of advice
NAMEABLE = 40  # features that somebody could name; more are an encoder's
SURE = 0.9  # of a place in a group


def kept(
    model: PreferenceModel, facts: dict[str, Any], drawn: Comparisons | None, result: Comparison | None = None
) -> dict[str, bytes]:
    """Everything that is written about a fit; `drawn` are the rows for its pictures, None: no pictures."""
    contents = {SUMMARY_FILE: json.dumps(facts, indent=2).encode(), MODEL_FILE: model_bytes(model)}
    return contents | tables(model) | ({} if drawn is None else _pictures(model, drawn, result))


def model_bytes(model: PreferenceModel) -> bytes:
    """What `save` writes."""
    content = io.BytesIO()
    model.save(content)
    return content.getvalue()


def tables(model: PreferenceModel) -> dict[str, bytes]:
    """`users.csv`: user, group and its probability, who is closest; `groups.csv`: size, words, centre of each group."""
    labels, groups = [str(user) for user in model.users_.tolist()], model.groups_
    place, sure = groups_on(model)
    closest, agreement = model.nearest()
    users: dict[str, list[Any]] = {
        "user": labels,
        "comparisons": model.n_comparisons_.tolist(),
        "group": [None if k < 0 else groups[k].label for k in place],
        "probability": [None if k < 0 else float(p) for k, p in zip(place, sure, strict=True)],
        "closest": [None if other is None else str(other) for other in closest.tolist()],
        "agreement": agreement.tolist(),
    }
    about: dict[str, list[Any]] = {
        "group": [group.label for group in groups],
        "users": [len(group) for group in groups],
        "words": [in_words(group.likes, group.dislikes) for group in groups],
    }
    for j in range(model.n_features_in_):
        about[f"centre {feature_name(model.feature_names_, j)}"] = [float(group.centre[j]) for group in groups]
    return {"users.csv": as_csv(users), "groups.csv": as_csv(about)}


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


def say_what_is_replaced(former: dict[str, Any], facts: dict[str, Any], folder: Path) -> None:
    """A note where the folder held a model of other people, or answers that came later."""
    with suppress(KeyError, TypeError, ValueError):  # edited by hand
        people, now = ({person["user"] for person in each["per_user"]} for each in (former, facts))
        if people != now or "updated" in former:
            held = f"{counted(len(people), 'user')} and {counted(former['comparisons'], 'comparison')}"
            later = ", with answers from prefkin update" if "updated" in former else ""
            err.print(f"note: {folder} held a model of {held}{later}; it is replaced")


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
        "temperature": found.temperature,
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


def next_steps(
    model: PreferenceModel, known: Summary, folder: str, result: Comparison | None, candidates: str = "FILE"
) -> list[str]:
    """The three things most worth doing, those that change what is known before those that use it."""
    labels, found = np.array([str(user) for user in model.users_.tolist()], dtype=object), list[str]()
    ask = f"prefkin ask {folder} --user {{}} --candidates {candidates} --state FILE.json"
    if result is not None and result.best != "PrefKin" and "trust it" in result.verdict:
        found.append(f"{result.best} predicts better here: --method best keeps it")
    elif known.pooled_will_do:
        found.append("one model for everybody would do as well: --method 'everybody pooled' is simpler")
    elif known.structure == "unrelated" and known.n_users > 1 and result is None:
        found.append("own answers alone may do as well: --compare tells, --method 'per user' fits them")
    groups = model.groups_
    unsure = [str(user) for group in groups for user in group.members[group.probability < SURE].tolist()]
    if unsure:
        found.append(
            f"it is unsure where {_some(unsure)} belong{'s' * (len(unsure) == 1)}: {ask.format(_quoted(unsure[0]))}"
        )
    thin = labels[model.n_comparisons_ < min(model.n_features_in_, 20)]
    if len(thin):
        found.append(f"{_some(thin.tolist())} answered little; ask them first: {ask.format(_quoted(thin[0]))}")
    if known.first_side is not None:
        mean, _ = known.first_side
        found.append(f"the first side is taken by habit (log odds {mean:+.2f}): show sides in random order")
    if model.feature_names_ is None and model.n_features_in_ > NAMEABLE:
        found.append(f"prefkin report {folder} --votes FILE --out report.html: what they chose, in its own words")
    elif model.feature_names_ is None:
        found.append("--names a,b,... names the features, so that groups and doubts can be put into words")
    if result is None and not any("--compare" in step for step in found):
        found.append("--compare says whether simpler methods predict as well on held-out answers")
    found.append(f"prefkin rank {folder} --user {_quoted(labels[0])} --candidates {candidates}: what to recommend")
    found.append(f"prefkin predict {folder} --pairs FILE --out FILE: how probable answers are")
    found.append(f"{ask.format(_quoted(labels[int(np.argmax(model.radius_))]))}: who is known least")
    return found[:STEPS]


def _some(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _quoted(name: str) -> str:
    return name if name.isalnum() else f"'{name}'"
