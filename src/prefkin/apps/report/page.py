"""The page: plain HTML with its style and its picture inside; every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import numpy as np

from prefkin.apps.report.facts import Group, Report
from prefkin.evaluate.people_map import room_for
from prefkin.models.reports import counted

__all__ = ["as_page"]

WIDTH, HEIGHT, EDGE = 760.0, 440.0, 44.0
LONGEST = 220  # characters of a text that are shown
NAMED_UP_TO = 60  # people with their names on the map, where none is in the way of another
LONGEST_NAME = 18
LETTER, LINE = 7.2, 13.0  # about the size of one

METHODS = {
    "PrefKin": "learns who is alike, and how much to lean on them",
    "per user": "each person by their own answers alone",
    "everybody pooled": "one description for all",
    "shrink to pooled": "each person alone, drawn towards all by one rule",
    "mixture EM": "a fixed number of groups, everybody in one of them",
}

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --paper: #fdfcf9; --line: #dfdcd3; --card: #f5f3ec;
  --c0: #3266ad; --c1: #c2572b; --c2: #2f8559; --c3: #8a4fa3; --c4: #b0892a; --c5: #2a8c99; --c6: #b14a6e;
  --c7: #6b7280; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ec; --soft: #9aa4b2; --paper: #15181d; --line: #2e343d;
  --card: #1d2229; --c0: #7fa8e6; --c1: #ee9467; --c2: #6cc79b; --c3: #c495dd; --c4: #dcbb62; --c5: #68c4d0;
  --c6: #e58fae; --c7: #a3aab5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 54rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; padding-top: .9rem; border-top: 1px solid var(--line); }
.lead { font-size: 1.15rem; margin: 0 0 1.2rem; } .soft, figcaption { color: var(--soft); font-size: .9rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 1.2rem; margin: 0; }
.facts dt { font-size: 1.55rem; font-weight: 700; line-height: 1.2; }
.facts dd { margin: .15rem 0 0; color: var(--soft); font-size: .9rem; }
figure { margin: 1rem 0; } svg.map { width: 100%; height: auto; background: var(--card); border-radius: 8px; }
svg text { fill: var(--soft); font-size: 12px; }
.groups { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .9rem; }
.groups.quoting { grid-template-columns: repeat(auto-fit, minmax(21rem, 1fr)); }
.card { background: var(--card); border-radius: 8px; padding: .9rem 1.1rem; border-left: 4px solid var(--tone);
  overflow-wrap: anywhere; }
.card h3 { margin: 0 0 .3rem; font-size: 1.05rem; line-height: 1.35; } .card p { margin: .3rem 0; }
.card .of { color: var(--tone); font-weight: 700; font-size: .9rem; margin: 0; }
.card div { margin: .5rem 0 .8rem; } .yes, .no { padding-left: 1.1rem; text-indent: -1.1rem; }
.yes::before { content: "+ "; color: var(--c2); font-weight: 700; }
.no::before { content: "− "; color: var(--c1); font-weight: 700; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; padding: .35rem 1.2rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: break-word; }
th { white-space: nowrap; color: var(--soft); font-weight: 600; } td.n, th.n { text-align: right; }
.n { white-space: nowrap; font-variant-numeric: tabular-nums; }
tr.ours td { font-weight: 600; } td .soft { display: block; font-weight: 400; } li { margin: .3rem 0; }
.bar { display: inline-block; width: 7rem; height: .7rem; margin-right: .6rem; background: var(--line);
  border-radius: 3px; overflow: hidden; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.bar i { display: block; height: 100%; background: var(--c0); }
@media (max-width: 36rem) { .bar { width: 3.5rem; } }
@media print { :root { color-scheme: light; --ink: #1c2430; --soft: #5b6675; --line: #dfdcd3; --paper: #fff;
  --card: #f6f6f4; --c0: #3266ad; --c1: #c2572b; --c2: #2f8559; --c3: #8a4fa3; --c4: #b0892a; --c5: #2a8c99;
  --c6: #b14a6e; --c7: #6b7280; } html { font-size: 12px; } body { max-width: none; padding: 0; font-size: 1rem; }
  svg.map, .card, .bar i { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  svg.map { max-height: 8cm; }
  figure, .card, tr, li, .whole { break-inside: avoid; } h2, h2 + p, h3 { break-after: avoid; } }
"""

HOW = (
    "Everything that was compared is described by features. What a person wants is a weight for each of them: of two "
    "things the one with the larger sum is the likelier choice, the more so the larger the difference. Weights of "
    "people are learnt together: whether they form groups, differ by degrees or have little in common is decided by "
    "how probable each would make the answers. Whoever answered much is described by their own answers, whoever "
    "answered little by people like them. Doubt is what the answers leave open, and circles on the map are one "
    "standard deviation of it."
)


def as_page(report: Report, title: str) -> str:
    """One HTML document."""
    quoting = any(group.chose or group.best for group in report.groups)
    facts = "".join(
        f"<div><dt>{escape(fact.figure)}</dt><dd>{escape(fact.meaning)}</dd></div>" for fact in report.facts
    )
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(report.lead)}</p>',
        f'<dl class="facts">{facts}</dl>',
        "<h2>What they want</h2>",
        f'<div class="groups{" quoting" if quoting else ""}">'
        f"{''.join(_card(group, k) for k, group in enumerate(report.groups))}</div>",
        "<h2>Who is near whom</h2>",
        _picture(report),
        "<h2>How sure that is</h2>",
        _doubts(report),
        "<h2>How well it predicts</h2>",
        _methods(report),
        "<h2>What is thin</h2>",
        _findings(report),
        "<h2>Whom to ask what next</h2>",
        _questions(report),
        f'<div class="whole"><h2>How this was computed</h2><p>{HOW}</p>',
        _table(("", ""), [tuple(map(escape, row)) for row in report.computed]) + "</div>",
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n' + "\n".join(
        [*parts, "</body></html>\n"]
    )


def _picture(report: Report) -> str:
    """People on a plane, each with a circle of doubt; names where there is room."""
    dots, axes, titles = report.dots, report.axes, [group.name for group in report.groups]
    at, doubt = np.array([(dot.x, dot.y) for dot in dots]), np.array([dot.doubt for dot in dots])
    low, high = (at - doubt[:, None]).min(axis=0), (at + doubt[:, None]).max(axis=0)
    room = np.array([WIDTH - 3.0 * EDGE, HEIGHT - 2.0 * EDGE])
    scale = float((room / np.maximum(high - low, 1e-12)).min()) if (high > low).any() else 1.0
    at = np.array([WIDTH, HEIGHT]) / 2.0 + (at - (low + high) / 2.0) * (scale, -scale)
    radius = np.maximum(doubt * scale, 5.0)
    tones = [f"var(--c{dot.group % 8})" if dot.group >= 0 else "var(--soft)" for dot in dots]
    faint = 0.1 * min(1.0, 3.0 * len(set(tones)) / len(dots) + 0.1)  # where many lie on top of each other
    shown = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" fill="{tone}" opacity="{faint:.3f}"/>'
        for (x, y), r, tone in zip(at, radius, tones, strict=True)
    ]
    shown += [
        f'<g><title>{escape(dot.name)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{tone}"/></g>'
        for (x, y), dot, tone in zip(at, dots, tones, strict=True)
    ]
    boxes = []
    for group in sorted({dot.group for dot in dots} - {-1}):
        mine = [i for i, dot in enumerate(dots) if dot.group == group]
        top = min(mine, key=lambda i: float(at[i, 1] - radius[i]))
        x, y, wide = float(at[top, 0]), max(float(at[top, 1] - radius[top]) - 8.0, 14.0), LETTER * len(titles[group])
        boxes.append(np.array([x - wide / 2.0, y - LINE, x + wide / 2.0, y + 3.0]))
        style = f'style="fill: var(--c{group % 8}); font-weight: 700"'
        shown.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" {style}>{escape(titles[group])}</text>')
    if len(dots) <= NAMED_UP_TO:
        names = [dot.name[:LONGEST_NAME] for dot in dots]
        for name, middle in zip(names, room_for(at, [LETTER * len(name) for name in names], LINE, boxes), strict=True):
            if middle is not None:
                place = f'x="{middle[0]:.1f}" y="{middle[1] + 4.0:.1f}" text-anchor="middle"'
                shown.append(f"<text {place}>{escape(name)}</text>")
    side = f'<text x="{WIDTH - 12}" y="{HEIGHT - 12}" text-anchor="end">{escape(axes[0])}</text>'
    up = f'<text transform="translate(18 {HEIGHT - 12}) rotate(-90)">{escape(axes[1])}</text>'
    svg = f'<svg class="map" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="map of people">'
    note = (
        "A dot is a person; near each other: they want the same. A wide circle: little is known yet. The axes are the "
        "two directions in which people differ most."
        + (
            ""
            if report.told_apart
            else " The circles are wider than people are apart: these answers hardly tell them apart."
        )
    )
    return f"<figure>{svg}{''.join(shown)}{side}{up}</svg><figcaption>{note}</figcaption></figure>"


def _card(group: Group, k: int) -> str:
    people = ", ".join(group.members) + (", …" if group.size > len(group.members) else "")
    doubted = f", {group.unsure} of them not surely" if group.unsure else ""
    name = group.name[:1].upper() + group.name[1:]
    lines = [f'<p class="of">{escape(name)}: {counted(group.size, "person")}{doubted}</p>']
    if group.words:
        lines.append(f"<h3>{escape(group.words[:1].upper() + group.words[1:])}</h3>")
    lines.append(f'<p class="soft">{escape(people)}</p>')
    if group.chose:
        lines.append('<p class="soft">Chosen, and over what:</p>')
        lines += [f"<div>{_quoted('yes', chosen)}{_quoted('no', rejected)}</div>" for chosen, rejected in group.chose]
    if group.best:
        lines.append('<p class="soft">Would take, and leave, more than others:</p>')
        lines += [_quoted(kind, text) for kind, texts in (("yes", group.best), ("no", group.worst)) for text in texts]
    return f'<div class="card" style="--tone: var(--c{k % 8})">{"".join(lines)}</div>'


def _quoted(kind: str, text: str) -> str:
    return f'<p class="{kind}">“{escape(_short(text))}”</p>'


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"


def _doubts(report: Report) -> str:
    rows = [
        (
            escape(one.name),
            f"{one.answers:,.0f}",
            escape(one.place),
            _bar(2.0 * one.foreseen - 1.0, f"{one.foreseen:.0%}"),
        )
        for one in report.least_known
    ]
    groups = f"The evidence is {report.evidence}, over differing by degrees. " if report.evidence else ""
    left = (
        f"{groups}Of a typical person's answers to pairs like those asked, the model expects to foresee "
        f"{report.typical:.0%}. Those who are hardest to foresee:"
    )
    table = _table(("person", "answers", "place", "expected right"), rows, "answers")
    return f'<div class="whole"><p>{escape(left)}</p>{table}</div>'


def _bar(share: float, text: str) -> str:
    wide = 100.0 * min(max(share, 0.0), 1.0)
    return f'<span class="n"><span class="bar"><i style="width: {wide:.1f}%"></i></span>{escape(text)}</span>'


def _methods(report: Report) -> str:
    if not report.methods:
        return '<p class="soft">Not measured: fit with --compare, or make this report with --compare.</p>'
    ranked = sorted(report.methods, key=lambda each: -float(each["accuracy"]))
    rows = []
    for each in ranked:
        name, right, error = str(each["method"]), float(each["accuracy"]), float(each["accuracy_error"])
        what = METHODS.get(name, "") + (" (this report)" if name == report.method else "")
        rows.append(
            (
                f'{escape(name)}<span class="soft">{escape(what)}</span>',
                _bar(2.0 * right - 1.0, f"{right:.1%} ± {error:.1%}"),
                f"{each['log_loss']:.3f} ± {each['log_loss_error']:.3f}",
            )
        )
    note = (
        "<p>How often answers that were held out were foreseen: a bar begins at guessing (50%) and ends at 100%. "
        "Log-loss also counts how sure a method was; less is better. "
    )
    said = f"{escape(_sentence(report.verdict))}</p>" if report.verdict else "</p>"
    ours = next((i for i, each in enumerate(ranked) if each["method"] == report.method), None)
    return note + said + _table(("method", "right", "log-loss"), rows, "log-loss", ours)


def _findings(report: Report) -> str:
    if not report.findings:
        return "<p>Nothing that stands out.</p>"
    items = (
        f'<li>{escape(_sentence(one.what))} <span class="soft">{escape(_sentence(one.remedy))}</span></li>'
        for one in report.findings
    )
    return f"<ul>{''.join(items)}</ul>"


def _questions(report: Report) -> str:
    if not report.questions:
        return '<p class="soft">Give --candidates FILE to see the questions that would teach most about everybody.</p>'
    rows = [tuple(escape(_short(text)) for text in row) for row in report.questions]
    note = "<p>The next questions that would teach most about everybody, in the order in which to ask.</p>"
    return note + _table(("person", "about", "this", "or that"), rows)


def _table(
    headings: tuple[str, ...], rows: Iterable[tuple[str, ...]], numbers: str = "", ours: int | None = None
) -> str:
    """Cells are HTML; the column `numbers` is set to the right, row `ours` stands out."""

    def kind(column: int) -> str:
        return ' class="n"' if numbers and headings[column] == numbers else ""

    head = "".join(f"<th{kind(i)}>{escape(text)}</th>" for i, text in enumerate(headings))
    body = "".join(
        f"<tr{' class=ours' if at == ours else ''}>"
        + "".join(f"<td{kind(i)}>{text}</td>" for i, text in enumerate(row))
        + "</tr>"
        for at, row in enumerate(rows)
    )
    return f'<div class="scroll"><table>{f"<tr>{head}</tr>" if any(headings) else ""}{body}</table></div>'
