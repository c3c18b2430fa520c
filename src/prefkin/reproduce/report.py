"""What came out: report.md and report.html of a run, and paper/README.md from stored rows.

A page is a list of blocks; each block knows how to be Markdown and HTML.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from prefkin.errors import InvalidTable
from prefkin.reproduce.claims import CLAIMS
from prefkin.reproduce.figures import METRICS
from prefkin.reproduce.plan import DATA, EXPERIMENTS, Plan, read_plan
from prefkin.reproduce.summary import common_runs, curve, described, measured, methods_in, overall, winners
from prefkin.reproduce.trial import NOT_COMPARED

__all__ = [
    "Heading",
    "Image",
    "Table",
    "Text",
    "as_html",
    "as_markdown",
    "pages_of",
    "paper_deviations",
    "paper_readme",
    "stored_plans",
]


@dataclass(frozen=True)
class Heading:
    """A title of some depth."""

    text: str
    depth: int = 2


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Image:
    """A picture beside the page."""

    path: str


@dataclass(frozen=True)
class Table:
    """Cells as text."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = Heading | Text | Image | Table


def as_markdown(blocks: Sequence[Block]) -> str:
    """The page as Markdown.

    >>> print(as_markdown([Heading("A"), Table(["x"], [["1"]])]))
    ## A
    <BLANKLINE>
    | x |
    |---|
    | 1 |
    <BLANKLINE>
    """
    parts = []
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"{'#' * block.depth} {block.text}")
        elif isinstance(block, Text):
            parts.append(block.text)
        elif isinstance(block, Image):
            parts.append(f"![{block.path}]({block.path})")
        else:
            head, *body = (f"| {' | '.join(line)} |" for line in (block.head, *block.rows))
            parts.append("\n".join([head, "|" + "---|" * len(block.head), *body]))
    return "\n\n".join(parts) + "\n"


def as_html(blocks: Sequence[Block]) -> str:
    """The page as HTML, without scripts or anything from elsewhere."""
    parts = []
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"<h{block.depth}>{html.escape(block.text)}</h{block.depth}>")
        elif isinstance(block, Text):
            parts.append(f"<p>{html.escape(block.text)}</p>")
        elif isinstance(block, Image):
            parts.append(f'<img src="{html.escape(block.path)}" alt="{html.escape(block.path)}" width="900">')
        else:
            head = "".join(f"<th>{html.escape(cell)}</th>" for cell in block.head)
            body = "".join(
                "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in block.rows
            )
            parts.append(f"<table><tr>{head}</tr>{body}</table>")
    style = "body{font:15px sans-serif;max-width:75em;margin:2em auto}td,th{padding:.15em .8em;text-align:left}"
    return f"<!doctype html><meta charset=utf-8><title>prefkin reproduce</title><style>{style}</style>{''.join(parts)}"


def _name(plan: Plan, key: str) -> str:
    return described(key, plan.kind).label


def pages_of(plan: Plan, rows: pl.DataFrame, images: Sequence[str] = ()) -> list[Block]:
    """All tables of one experiment."""
    size = "quick run, fewer and smaller" if plan.quick else "full run"
    blocks: list[Block] = [Heading(f"{plan.experiment} on {plan.data}: {plan.title} ({size})")]
    blocks += _origin(plan, rows)
    blocks += [Heading("Paper says / we measured / verdict", 3), claims_table(plan, rows)]
    blocks += [Image(path) for path in images]
    for metric in measured(rows, METRICS):
        name = METRICS[metric]
        blocks += [Heading(f"{name[0].upper()}{name[1:]}", 3), means_table(plan, rows, metric)]
    blocks += [Heading("Where each method wins", 3), *_winners(plan, rows)]
    blocks += [Heading("Everything else that was measured", 3), others_table(plan, rows)]
    return blocks


def _origin(plan: Plan, rows: pl.DataFrame) -> list[Block]:
    return [
        Text(f"{plan.panel}. Protocol: {plan.protocol}. {plan.runs} runs; mean ± half of the 95 % interval over runs."),
        Text(_settings(plan)),
        Text(f"Command: `{command(plan)}`; {_seconds(rows):.0f} seconds, summed over trials."),
    ]


def _settings(plan: Plan) -> str:
    return f"Settings: {', '.join(f'{name} = {value}' for name, value in plan.settings)}."


def _seconds(rows: pl.DataFrame) -> float:
    return float(rows.unique("trial", keep="first", maintain_order=True)["trial_seconds"].sum())


def _where(plan: Plan) -> str:
    return f"{plan.experiment}, {plan.data}{', quick' if plan.quick else ''}"


def command(plan: Plan) -> str:
    """What to type."""
    return f"prefkin reproduce {plan.experiment} --data {plan.data}{' --quick' if plan.quick else ''}"


def claims_table(plan: Plan, rows: pl.DataFrame) -> Table:
    """Every claim that is about this experiment and these data."""
    lines = [line for check in (() if plan.own else CLAIMS[plan.experiment]) for line in check(rows, plan.data)]
    return Table(["paper says", "we measured", "verdict"], [[x.says, x.measured, x.verdict] for x in lines])


def means_table(plan: Plan, rows: pl.DataFrame, metric: str) -> Table:
    """A line per method, a column per place along x."""
    if plan.experiment == "exp4":
        body = [[_name(plan, key), str(overall(rows, key, metric))] for key in methods_in(rows)]
        return Table(["method", METRICS[metric]], body)
    places = sorted(rows[plan.x].unique().to_list())
    body = []
    for key in methods_in(rows):
        found = dict(zip(*curve(rows, key, plan.x, metric), strict=True))
        cells = [str(found[place]) if place in found else "" for place in places]
        body.append([f"{_name(plan, key)} ({described(key, plan.kind).origin})", *cells])
    return Table(["method", *(f"{plan.x} {place:g}" for place in places)], body)


def _along(plan: Plan, rows: pl.DataFrame) -> tuple[pl.DataFrame, str, list[str]]:
    """The rows, the column along which methods are compared, and the methods that are told nothing of the truth."""
    fair = [key for key in methods_in(rows) if described(key, plan.kind).origin != "oracle"]
    if plan.experiment == "exp4":  # the sweep is the method's own
        return rows.with_columns(pl.lit(0).alias("all")), "all", fair
    return rows, plan.x, fair


def _winners(plan: Plan, rows: pl.DataFrame) -> list[Block]:
    """Among methods that are told nothing of the truth."""
    rows, x, fair = _along(plan, rows)
    body = []
    for metric in measured(rows, ("gap", "gap_logged", "log_loss")):
        for place, first, mean, second, apart in winners(rows, x, metric, fair):
            clear = "clearly" if apart.value > apart.half else "within noise"
            where = "" if x == "all" else f"{x} {place:g}"
            body.append(
                [metric, where, _name(plan, first), str(mean), f"{_name(plan, second)}: {apart} behind, {clear}"]
            )
    runs = len(common_runs(rows, fair))
    over = "" if runs == plan.runs else f" Over the {runs} runs in which all took part."
    return [
        Text(f"Best among the methods that see no truth, and the runner-up with the paired difference.{over}"),
        Table(["measure", "where", "best", "value", "runner-up"], body),
    ]


def others_table(plan: Plan, rows: pl.DataFrame) -> Table:
    """Means over cells and runs."""
    wanted = ("gap_pessimistic", "log_loss", "accuracy", "precision", "recall", "rand", "seconds", "memory_gb")
    names = measured(rows, wanted)
    body = []
    for key in methods_in(rows):
        means = {name: overall(rows, key, name) for name in names}
        cells = (f"{mean.value:.2f}" if name in NOT_COMPARED else str(mean) for name, mean in means.items())
        body.append([_name(plan, key), *cells])
    return Table(["method", *names], body)


def glance_table(stored: Sequence[tuple[Plan, pl.DataFrame]], claims: Sequence[Table]) -> Table:
    """A line per experiment: what became of the paper's claims, and who has the smallest gap in how many places."""
    body = []
    for (plan, rows), judged in zip(stored, claims, strict=True):
        verdicts = [verdict for says, _, verdict in judged.rows if not says.startswith("(ours)")]
        kept = sum(verdict == "reproduced" for verdict in verdicts)
        partly = sum(verdict in ("direction only", "partly") for verdict in verdicts)
        table, x, fair = _along(plan, rows)
        found = winners(table, x, "gap", fair)
        wins = Counter(_name(plan, first) for _, first, *_ in found)
        clear = Counter(_name(plan, first) for _, first, _, _, apart in found if apart.value > apart.half)
        best = "; ".join(f"{name} in {n} of {len(found)} ({clear[name]} clearly)" for name, n in wins.most_common())
        body.append([_where(plan), str(kept), str(partly), str(len(verdicts) - kept - partly), best])
    head = ["experiment", "claims reproduced", "in part", "not", "smallest gap on fresh contexts, no truth seen"]
    return Table(head, body)


# -- paper/README.md ---------------------------------------------------------------------------------------------------


def stored_plans(folder: Path) -> list[tuple[Plan, pl.DataFrame]]:
    """The rows kept in `folder`, the largest run of each; checked against the plans."""
    found = []
    for experiment in EXPERIMENTS:
        for data in DATA:
            for size in ("paper", "full", "quick"):
                path = folder / f"{experiment}_{data}{'' if size == 'full' else '_' + size}.parquet"
                if not path.exists():
                    continue
                rows = pl.read_parquet(path)
                plan = read_plan(experiment, data, size, runs=rows["run"].n_unique())
                expected = {trial.key for trial in plan.trials()}
                if set(rows["trial"].unique().to_list()) != expected:
                    raise InvalidTable(
                        f"{path}: these rows are not of the plan as it is now; run {command(plan)} again"
                    )
                found.append((plan, rows))
                break
    return found


def paper_readme(folder: Path) -> str:
    """The text of paper/README.md from the rows in `folder`/rows."""
    stored = stored_plans(folder / "rows")
    blocks: list[Block] = [
        Heading("The paper, reproduced", 1),
        Text(
            "Every number below is printed from the rows in `rows/` by `prefkin reproduce EXPERIMENT --data DATA "
            "--paper paper`; a test fails when this page and the rows differ. Gaps are relative: 0 is the best "
            "policy, 1 is choosing blindly. Means ± half of the 95 % interval over runs; comparisons are paired by "
            "run. Choices the paper left open, and what did not reproduce: [deviations.md](deviations.md)."
        ),
        Table(
            ["figure of the paper", "command", "size", "runs", "seconds, summed over trials"],
            [
                [
                    plan.panel,
                    f"`{command(plan)}`",
                    "quick" if plan.quick else "full",
                    str(plan.runs),
                    f"{_seconds(rows):.0f}",
                ]
                for plan, rows in stored
            ],
        ),
    ]
    if any(plan.quick for plan, _ in stored):
        blocks.append(
            Text(
                "**Rows labelled quick come from small runs** (fewer users, features and runs): they show that "
                "the machinery works and which way things point, not the paper's numbers at its scale."
            )
        )
    claims = [claims_table(plan, rows) for plan, rows in stored]
    blocks += [Heading("At a glance"), glance_table(stored, claims)]
    for (plan, rows), judged in zip(stored, claims, strict=True):
        blocks.append(Heading(f"{plan.experiment} on {plan.data}{' (quick)' if plan.quick else ''}: {plan.title}"))
        blocks.append(Text(f"Protocol: {plan.protocol}. {_settings(plan)}"))
        blocks += [judged, means_table(plan, rows, "gap"), *_winners(plan, rows)]
    return as_markdown(blocks)


BEGIN, END = "<!-- from the rows -->", "<!-- end -->"


def paper_deviations(folder: Path) -> str:
    """The text of paper/deviations.md: the text as it is, the table between its marks from the rows."""
    path = folder / "deviations.md"
    text = path.read_text() if path.exists() else ""
    if BEGIN not in text or END not in text:
        raise InvalidTable(f"{path}: no marks {BEGIN} and {END} to write the table between; put them back")
    lines = []
    for plan, rows in stored_plans(folder / "rows"):
        for says, found, verdict in claims_table(plan, rows).rows:
            if verdict != "reproduced" and not says.startswith("(ours)"):
                lines.append([_where(plan), says, found, verdict])
    table = as_markdown([Table(["where", "paper says", "we measured", "verdict"], lines)])
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return f"{before}{BEGIN}\n{table}{END}{after}"
