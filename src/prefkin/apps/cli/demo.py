"""`prefkin demo`: the main job on built-in data, told as a story, with pictures."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import typer
from scipy.special import expit

from prefkin.apps.cli.console import check_folder, out, table, working, write_folder
from prefkin.data.arrays import FloatArray
from prefkin.data.candidates import Candidates
from prefkin.data.formats import as_csv
from prefkin.data.synthetic import DEMO_FEATURES, DEMO_TASTES, Population, demo_population
from prefkin.decide.rules.pairs import Question
from prefkin.decide.session import ActiveSession
from prefkin.errors import NoEdgeWarning
from prefkin.evaluate.metrics import (
    HeldOut,
    given_probabilities,
    held_out,
    pair_precision_recall,
    reliability,
    suboptimality_gap,
)
from prefkin.evaluate.plots import (
    as_png,
    plot_coverage,
    plot_estimates,
    plot_held_out,
    plot_questions,
    plot_reliability,
    plot_users,
)
from prefkin.models.baselines import per_user, pooled
from prefkin.models.off_c2pl.estimator import OffC2PL
from prefkin.models.prefkin.estimator import PrefKin

SIGN = "held_out.png"
WRITTEN = (
    *(SIGN, "votes.csv", "stories.csv", "users.png"),
    *("estimates.png", "coverage.png", "reliability.png", "questions.png"),
)
READER = "Ada"
QUESTIONS = 20


def demo(
    out_dir: Path = typer.Option(Path("demo"), "--out", help="Folder for the pictures."),
    seed: int = typer.Option(0, help="Another seed, another population.", min=0),
) -> None:
    """The main job on built-in data, in seconds, with pictures.

    Example: prefkin demo --out demo
    """
    check_folder(out_dir, WRITTEN, SIGN)
    people, stories = demo_population(np.random.default_rng(seed))
    _title("1. Many people, few answers each")
    out.print(
        f"{len(people.data.labels)} readers each chose 40 times between two summaries of a story. A summary is "
        f"described by {len(DEMO_FEATURES)} qualities:\n{', '.join(DEMO_FEATURES)}. "
        f"(Synthetic readers with {len(DEMO_TASTES)} hidden tastes, so the truth is known; the method does not see it.)"
    )
    with working():
        models = {
            "own answers only": per_user().fit(people.data),
            "everybody pooled": pooled().fit(people.data),
            "PrefKin": (kin := PrefKin().fit(people.data)),
        }
    _who_is_pooled(kin, people)
    results = {name: held_out(model, people.held_out) for name, model in models.items()}
    promises = {name: reliability(given_probabilities(model, people.held_out)) for name, model in models.items()}
    _what_it_bought(results)
    out.print(f"PrefKin's probabilities: {promises['PrefKin']}.")
    _what_theory_says(people)
    _recommendation(kin, stories)
    session = _next_questions(kin, people, stories, seed)
    taught = f"what {QUESTIONS} answers taught about {READER}"
    made = (
        as_png(plot_held_out(results)),
        _votes(people),
        _stories(stories),
        as_png(plot_users(kin)),
        as_png(plot_estimates(kin, READER)),
        as_png(plot_coverage(kin, READER)),
        as_png(plot_reliability(promises)),
        as_png(plot_questions(*session.listener.information, taught, DEMO_FEATURES)),
    )
    contents = dict(zip(WRITTEN, made, strict=True))
    write_folder(out_dir, contents)
    out.print(f"\nPictures and data are in {out_dir}: {', '.join(contents)}")
    out.print(f"Try: prefkin fit {out_dir}/votes.csv --out kin; then your own data (docs/data-formats.md)")


def _title(text: str) -> None:
    out.print(f"\n{text}", style="bold")


def _who_is_pooled(kin: PrefKin, people: Population) -> None:
    _title("2. Who wants the same?")
    out.print(str(kin.summary()))
    members = [kin.members(u) for u in range(len(kin.users_))]
    names, tastes = kin.users_, list(DEMO_TASTES)
    for t, taste in enumerate(tastes):
        group = np.flatnonzero(people.group == t)
        everyone = ", ".join(names[group].tolist())
        right = np.mean([np.isin(members[u], group).sum() - 1 for u in group])
        wrong = np.mean([(~np.isin(members[u], group)).sum() for u in group])
        out.print(
            f"  {taste:9} {everyone}\n            found on average {right:.1f} of {len(group) - 1} like-minded "
            f"readers, and {wrong:.1f} others by mistake"
        )
    precision, recall = pair_precision_recall(members, people.group)
    out.print(
        f"Of the pairs it joined {precision:.0%} share a taste; of those that do it joined {recall:.0%}. "
        "Why? For example:"
    )
    u = kin.position(READER)
    friend = next((v for v in members[u] if v != u), None)
    stranger = next(v for v in range(len(names)) if v not in members[u])
    for v in (friend, stranger):
        if v is not None:
            out.print(f"  {kin.explain(READER, names[v].item())}")


def _what_it_bought(results: dict[str, HeldOut]) -> None:
    _title("3. What it bought, on 60 new choices of each reader")
    grid = table("model", "log-loss", "±", "right", "±")
    for name, result in results.items():
        grid.add_row(
            name,
            f"{result.log_loss:.3f}",
            f"{result.log_loss_error:.3f}",
            f"{result.accuracy:.1%}",
            f"{result.accuracy_error:.1%}",
        )
    out.print(grid)
    out.print("(mean and standard error over readers; guessing has log-loss 0.693)")


def _what_theory_says(people: Population) -> None:
    _title("4. And by the paper's constants alone?")
    gaps = np.linalg.norm(people.theta[:, None] - people.theta[None], axis=2)
    gap = float(gaps[people.group[:, None] != people.group[None]].min())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NoEdgeWarning)
        OffC2PL(gamma=gap).fit(people.data)
    out.print(
        f"With the true gap between tastes as the threshold ({gap:.2f}), "
        "the guarantee is complete and so is its caution:"
    )
    for warning in caught:
        out.print(f"  {warning.message}")
    out.print("So PrefKin learns from all answers together how alike people are, instead of assuming the worst.")


def _recommendation(kin: PrefKin, stories: Candidates) -> None:
    _title(f"5. What to recommend to {READER}")
    greedy = kin.policy(READER, stories, pessimism=0.0)
    careful = kin.policy(READER, stories)
    out.print(f"for {len(stories)} new stories, one of 4 summaries each: {careful.actions[:8].tolist()} ...")
    out.print(
        f"chosen to be safe: worth at least {careful.value:.2f} per story with probability {kin.level:.0%} (expected "
        f"{careful.reward:.2f}), and no policy\nis safer than {careful.upper_bound:.2f}; "
        f"taking the estimate at its word would change {np.mean(greedy.actions != careful.actions):.0%} of the choices"
    )


def _next_questions(kin: PrefKin, people: Population, stories: Candidates, seed: int) -> ActiveSession:
    _title(f"6. The next questions for {READER}")
    first = kin.session(READER, stories)
    out.print(f"{kin.coverage_map(READER, 3)}\n{str(first.forecast()).capitalize()}.")
    gaps, doubts = {}, {}
    for rule in ("posterior", "random"):
        lost, left = [], []
        for u, reader in enumerate(kin.users_.tolist()):
            talk = kin.session(reader, stories, rule=rule, random_state=seed)
            rng = np.random.default_rng([seed, u])
            for number in range(1, QUESTIONS + 1):
                question = talk.ask()
                if (rule, reader) == ("posterior", READER) and number <= 3:
                    _show(number, talk, question)
                talk.tell(question, _answer(talk, question, people.theta[u], rng))
            lost.append(suboptimality_gap(people.theta[u], stories, talk.best_actions()))
            left.append(np.trace(np.linalg.inv(talk.information)) / np.trace(kin.covariance(reader)))
            first = talk if (rule, reader) == ("posterior", READER) else first
        gaps[rule], doubts[rule] = np.mean(lost), np.mean(left)
    now = [stories.argmax(stories.features @ estimate) for estimate in kin.theta_]
    before = np.mean([suboptimality_gap(t, stories, a) for t, a in zip(people.theta, now, strict=True)])
    out.print(
        f"Nobody had seen many hopeful or technical summaries. {QUESTIONS} answers from each reader leave "
        f"{doubts['posterior']:.0%} of the doubt,\n{QUESTIONS} random questions {doubts['random']:.0%}; what readers "
        f"lose per story falls from {before:.3f} to {gaps['posterior']:.3f} (random: {gaps['random']:.3f})."
    )
    return first


def _show(number: int, session: ActiveSession, question: Question) -> None:
    z = session.difference(question)
    apart = np.argsort(-np.abs(z), kind="stable")[:2]
    contrast = " and ".join(f"how {DEMO_FEATURES[i]} it is ({z[i]:+.2f})" for i in apart)
    out.print(
        f"  {number}. story {question.context}: summary {question.first} or {question.second}? "
        f"They differ in {contrast}"
    )


def _votes(people: Population) -> bytes:
    """The readers' choices as `prefkin fit` reads them."""
    data = people.data
    columns: dict[str, Any] = {"user": data.users, "y": data.y.astype(int)}
    for side, features in (("first", data.first), ("second", data.second)):
        if features is not None:
            columns |= {f"{side}_{name}": features[:, i].round(6) for i, name in enumerate(DEMO_FEATURES)}
    return as_csv(columns)


def _stories(stories: Candidates) -> bytes:
    """The stories as `prefkin rank` reads them."""
    columns: dict[str, Any] = {
        "context": [f"story {x}" for x in stories.owner],
        "action": [f"summary {a}" for a in stories.actions],
    }
    features = {name: stories.features[:, i].round(6) for i, name in enumerate(DEMO_FEATURES)}
    return as_csv(columns | features)


def _answer(session: ActiveSession, question: Question, truth: FloatArray, rng: np.random.Generator) -> bool:
    return bool(rng.random() < expit(session.difference(question) @ truth))
