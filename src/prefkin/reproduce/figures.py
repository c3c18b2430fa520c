"""One picture per panel of the paper: mean and 95 % band over runs."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import polars as pl

from prefkin.errors import InvalidParameter
from prefkin.reproduce.plan import Plan
from prefkin.reproduce.summary import average, curve, described, measured, methods_in, overall

__all__ = ["panels"]

STYLE = {"paper": "-", "rival": "--", "ours": "-", "oracle": ":"}
AXES = {
    "budget": "comparisons per user",
    "dim": "features d",
    "asked": "questions asked",
    "gamma": "threshold γ̂, and the share of pairs of users it joins",
}
METRICS = {"gap": "gap on fresh contexts (1: blind choice)", "gap_logged": "gap on logged pairs (1: blind choice)"}


def panels(plan: Plan, rows: pl.DataFrame) -> dict[str, bytes]:
    """PNG files by name."""
    return {f"{plan.name}_{metric}.png": _panel(plan, rows, metric) for metric in measured(rows, METRICS)}


def _panel(plan: Plan, rows: pl.DataFrame, metric: str) -> bytes:
    try:
        from matplotlib import colormaps
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidParameter("figures need matplotlib; pip install 'prefkin[plots]'") from None
    figure = Figure(figsize=(9.5, 5.2), layout="constrained")
    ax = figure.subplots()
    ax.spines[["top", "right"]].set_visible(False)
    colours = [colormaps["tab20"](i) for i in range(20)]
    if plan.experiment == "exp4":
        _sweep(ax, rows, metric)
    else:
        for i, key in enumerate(methods_in(rows)):
            places, means = curve(rows, key, plan.x, metric)
            about = described(key, plan.kind)
            width = 2.8 if about.origin == "ours" else 1.6
            colour = "black" if key == "prefkin" else colours[i % len(colours)]
            _line(ax, np.array(places), means, STYLE[about.origin], colour, about.label, width)
    ax.set(xlabel=AXES.get(plan.x, plan.x), ylabel=METRICS[metric], ylim=(0, None))
    ax.set_title(f"{plan.title}, {plan.data}: {plan.runs} runs{', quick' if plan.quick else ''}", loc="left")
    ax.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _line(ax: Any, x: Any, means: list[Any], style: str, colour: Any, name: str, width: float) -> None:
    value, half = np.array([m.value for m in means]), np.nan_to_num([m.half for m in means])
    ax.plot(x, value, style, color=colour, label=name, linewidth=width, marker="o", markersize=3)
    ax.fill_between(x, value - half, value + half, color=colour, alpha=0.12, linewidth=0)


def _sweep(ax: Any, rows: pl.DataFrame, metric: str) -> None:
    """Thresholds side by side: with the literal radii all that matters happens in a narrow range far from 0."""
    every = methods_in(rows)
    swept = [key for key in every if key.startswith("sweep_")]
    gammas = [average(rows.filter(pl.col("method") == k)["note"].cast(pl.Float64).to_numpy()).value for k in swept]
    means = [overall(rows, key, metric) for key in swept]
    _line(ax, np.arange(len(swept)), means, "-", "tab:blue", "Off-C²PL at γ̂", 2.0)
    joined = [f"{gamma:.4g}\n{float(key.removeprefix('sweep_')):.0%}" for key, gamma in zip(swept, gammas, strict=True)]
    ax.set_xticks(np.arange(len(swept)), joined, fontsize=8)
    colours = {"prefkin": "black", "true_groups": "tab:green"}
    for key in every:
        if key not in swept:
            mean, colour = overall(rows, key, metric), colours.get(key, "tab:orange")
            about = described(key)
            ax.axhline(mean.value, linestyle=STYLE[about.origin], label=about.label, color=colour)
            half = float(np.nan_to_num(mean.half))
            ax.axhspan(mean.value - half, mean.value + half, color=colour, alpha=0.1, linewidth=0)
