"""The page: plain HTML with its style and its picture inside; every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from prefkin.apps.report.facts import Dot, Group, Report

__all__ = ["as_page"]

WIDTH, HEIGHT, EDGE = 760.0, 460.0, 44.0
LONGEST = 220  # characters of a text that are shown
NAMED_UP_TO = 40  # people with their names on the map, where none is in the way of another
LETTER, LINE = 7.0, 13.0  # about the size of one

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --paper: #fdfcf9; --line: #dfdcd3; --card: #f5f3ec;
  --c0: #3266ad; --c1: #c2572b; --c2: #2f8559; --c3: #8a4fa3; --c4: #b0892a; --c5: #2a8c99; --c6: #b14a6e;
  --c7: #6b7280; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ec; --soft: #9aa4b2; --paper: #15181d; --line: #2e343d;
  --card: #1d2229; --c0: #7fa8e6; --c1: #ee9467; --c2: #6cc79b; --c3: #c495dd; --c4: #dcbb62; --c5: #68c4d0;
  --c6: #e58fae; --c7: #a3aab5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 52rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; padding-top: .9rem; border-top: 1px solid var(--line); }
.lead { font-size: 1.08rem; } .soft, figcaption { color: var(--soft); font-size: .9rem; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; background: var(--card); border-radius: 8px; }
svg text { fill: var(--soft); font-size: 12px; }
.groups { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: .9rem; }
.card { background: var(--card); border-radius: 8px; padding: .9rem 1.1rem; border-left: 4px solid var(--tone);
  overflow-wrap: anywhere; }
.card h3 { margin: 0 0 .3rem; font-size: 1.05rem; } .card p { margin: .3rem 0; }
.yes::before { content: "+ "; color: var(--c2); font-weight: 700; }
.no::before { content: "− "; color: var(--c1); font-weight: 700; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
tr.best td { font-weight: 600; } li { margin: .3rem 0; }
@media print { :root { color-scheme: light; --ink: #1c2430; --soft: #5b6675; --line: #dfdcd3; --paper: #fff;
  --card: #f6f6f4; } body { max-width: none; padding: 0; font-size: 11pt; }
  figure, .card, tr { break-inside: avoid; } h2 { break-after: avoid; } }
"""


def as_page(report: Report, title: str) -> str:
    """One HTML document."""
    first, *rest = report.summary
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(_sentence(first))}</p>',
        *(f"<p>{escape(_sentence(line))}</p>" for line in rest),
        "<h2>Who these people are</h2>",
        _picture(report.dots, report.axes, [group.title for group in report.groups]),
        f'<div class="groups">{"".join(_card(group, k) for k, group in enumerate(report.groups))}</div>',
        "<h2>How sure that is</h2>",
        '<p class="soft">Those about whom least is known. The radius is how far an estimate may be off.</p>',
        _table(("person", "answers", "radius"), [(n, f"{a:,.0f}", f"{r:.2f}") for n, a, r in report.least_sure]),
        "<h2>How well it predicts</h2>",
        _methods(report),
        "<h2>What is thin</h2>",
        _findings(report),
        "<h2>Whom to ask what next</h2>",
        _questions(report),
        "<h2>How this was computed</h2>",
        _table(("", ""), report.computed),
        '<p class="soft">Every estimate is a posterior mean; circles are one standard deviation. Evidence decides who '
        "is pooled with whom, and how much. The page holds no reference to anything outside itself.</p>",
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n' + "\n".join(
        [*parts, "</body></html>\n"]
    )


def _sentence(line: str) -> str:
    return line[:1].upper() + line[1:] + "."


def _picture(dots: tuple[Dot, ...], axes: tuple[str, str], titles: list[str]) -> str:
    """People on a plane, each with a circle of doubt; names where there is room."""
    middle = [(max(v) + min(v)) / 2.0 for v in ([dot.x for dot in dots], [dot.y for dot in dots])]
    wide = max(abs(dot.x - middle[0]) + dot.doubt for dot in dots) or 1.0
    high = max(abs(dot.y - middle[1]) + dot.doubt for dot in dots) or 1.0
    scale = min((WIDTH / 2.0 - 2.0 * EDGE) / wide, (HEIGHT / 2.0 - EDGE) / high)
    shown, taken, tops = list[str](), list[tuple[float, float, float]](), dict[int, tuple[float, float]]()
    for dot in dots:
        x, y = WIDTH / 2.0 + (dot.x - middle[0]) * scale, HEIGHT / 2.0 - (dot.y - middle[1]) * scale
        tone = f"var(--c{dot.group % 8})" if dot.group >= 0 else "var(--soft)"
        shown.append(
            f"<g><title>{escape(dot.name)}</title>"
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{max(dot.doubt * scale, 5):.1f}" fill="{tone}" opacity=".10"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{tone}"/></g>'
        )
        top = y - max(dot.doubt * scale, 5.0) - 8.0
        if dot.group >= 0 and top < tops.get(dot.group, (0.0, HEIGHT))[1]:
            tops[dot.group] = x, top
        end = x + 7.0 + LETTER * len(dot.name[:18])
        free = all(abs(y - other) > LINE or end < begin or x > stop for begin, stop, other in taken)
        if len(dots) <= NAMED_UP_TO and free:
            taken.append((x, end, y))
            shown.append(f'<text x="{x + 7:.1f}" y="{y + 4:.1f}">{escape(dot.name[:18])}</text>')
    for group, (x, y) in tops.items():
        style = f'style="fill: var(--c{group % 8}); font-weight: 700"'
        name = escape(titles[group])
        shown.append(f'<text x="{x:.1f}" y="{max(y, 14):.1f}" text-anchor="middle" {style}>{name}</text>')
    side = f'<text x="{WIDTH - 12}" y="{HEIGHT - 12}" text-anchor="end">{escape(axes[0])}</text>'
    up = f'<text transform="translate(18 {HEIGHT - 12}) rotate(-90)">{escape(axes[1])}</text>'
    svg = f'<svg viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="map of people">{"".join(shown)}'
    note = "Near each other: they want the same. A wide circle: little is known yet. Axes: where people differ most."
    return f"<figure>{svg}{side}{up}</svg><figcaption>{note}</figcaption></figure>"


def _card(group: Group, k: int) -> str:
    people = ", ".join(group.members) + (", …" if group.size > len(group.members) else "")
    lines = [f"<h3>{escape(group.title)} · {group.size}</h3>", f'<p class="soft">{escape(people)}</p>']
    for kind, words in (("yes", group.likes), ("no", group.dislikes)):
        if words:
            lines.append(f'<p class="{kind}">{escape(", ".join(words))}</p>')
    if group.chose:
        lines.append('<p class="soft">Chosen, and over what:</p>')
        lines += [_quoted(kind, text) for pair in group.chose for kind, text in zip(("yes", "no"), pair, strict=True)]
    if group.best:
        lines.append('<p class="soft">Would take, and leave, more than others:</p>')
        lines += [_quoted(kind, text) for kind, texts in (("yes", group.best), ("no", group.worst)) for text in texts]
    return f'<div class="card" style="--tone: var(--c{k % 8})">{"".join(lines)}</div>'


def _quoted(kind: str, text: str) -> str:
    return f'<p class="{kind}">“{escape(_short(text))}”</p>'


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"


def _methods(report: Report) -> str:
    if not report.methods:
        return '<p class="soft">Not measured: fit with --compare, or make this report with --compare.</p>'
    ranked = sorted(report.methods, key=lambda each: each["log_loss"])
    rows = [
        (each["method"], f"{each['log_loss']:.4f} ± {each['log_loss_error']:.4f}", f"{each['accuracy']:.1%}")
        for each in ranked
    ]
    note = '<p class="soft">On answers that were held out; less log-loss is better.</p>'
    return note + _table(("method", "log-loss", "predicted right"), rows, best=True)


def _findings(report: Report) -> str:
    if not report.findings:
        return "<p>Nothing that stands out.</p>"
    return "<ul>" + "".join(f"<li>{escape(str(finding))}</li>" for finding in report.findings) + "</ul>"


def _questions(report: Report) -> str:
    if not report.questions:
        return '<p class="soft">Give --candidates FILE to see the questions that would teach most about everybody.</p>'
    rows = [(user, context, _short(one), _short(other)) for user, context, one, other in report.questions]
    return _table(("person", "context", "this", "or that"), rows, numbers=False)


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]], best: bool = False, numbers: bool = True) -> str:
    def kind(column: int) -> str:
        return ' class="n"' if numbers and column > 0 and len(headings) > 2 else ""

    head = "".join(f"<th{kind(i)}>{escape(text)}</th>" for i, text in enumerate(headings))
    body = "".join(
        f"<tr{' class=best' if best and at == 0 else ''}>"
        + "".join(f"<td{kind(i)}>{escape(text)}</td>" for i, text in enumerate(row))
        + "</tr>"
        for at, row in enumerate(rows)
    )
    return f'<div class="scroll"><table>{f"<tr>{head}</tr>" if any(headings) else ""}{body}</table></div>'
