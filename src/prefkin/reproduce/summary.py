"""Rows → numbers: means with 95 % bands over runs, and comparisons paired by run."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.stats import t as student

from prefkin.reproduce.contracts import Method, method
from prefkin.reproduce.talk import TALKERS, Talker

__all__ = [
    *("Mean", "average", "common_runs", "curve", "described", "improvement", "measured", "methods_in", "overall"),
    *("per_run", "winners"),
]


class Mean(NamedTuple):
    """A mean over runs and half the width of its 95 % interval."""

    value: float
    half: float
    runs: int

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {self.half:.3f}" if self.runs > 1 else f"{self.value:.3f}"

    def percent(self) -> str:
        """As a percentage."""
        return f"{100 * self.value:+.1f} ± {100 * self.half:.1f} %"


def average(values: np.ndarray) -> Mean:
    """Mean and 95 % half width by Student's t.

    >>> print(average(np.array([1.0, 2.0, 3.0])))
    2.000 ± 2.484
    """
    values = values[np.isfinite(values)]
    n = len(values)
    if n < 2:
        return Mean(float(values.mean()) if n else float("nan"), float("nan"), n)
    return Mean(float(values.mean()), float(_quantile(n - 1) * values.std(ddof=1) / np.sqrt(n)), n)


@cache
def _quantile(freedom: int) -> float:
    """Of Student's t, at 97.5 %; remembered, since a page asks for it ten thousand times."""
    return float(student.ppf(0.975, freedom))


def described(key: str, kind: str = "offline") -> Method | Talker:
    """A method of this kind of experiment: its label and origin."""
    return TALKERS[key] if kind == "active" else method(key)


def methods_in(rows: pl.DataFrame) -> list[str]:
    """Their keys, in the order of the rows."""
    return rows["method"].unique(maintain_order=True).to_list()


def measured(rows: pl.DataFrame, metrics: Iterable[str]) -> list[str]:
    """Those of the metrics that there are."""
    return [name for name in metrics if name in rows.columns and rows[name].is_not_null().any()]


def per_run(rows: pl.DataFrame, key: str, metric: str, where: pl.Expr | None = None) -> pl.DataFrame:
    """The metric of one method in each run, averaged over cells; columns run and value."""
    chosen = rows.filter(pl.col("method") == key)
    if where is not None:
        chosen = chosen.filter(where)
    return chosen.group_by("run").agg(pl.col(metric).mean().alias("value")).sort("run")


def overall(rows: pl.DataFrame, key: str, metric: str) -> Mean:
    """The metric of one method over runs, in each averaged over cells."""
    return average(per_run(rows, key, metric)["value"].cast(pl.Float64).fill_null(np.nan).to_numpy())


def improvement(rows: pl.DataFrame, ours: str, other: str, metric: str = "gap", where: pl.Expr | None = None) -> Mean:
    """1 − ours / other, run by run: positive where `ours` is smaller. Averaged over cells before dividing."""
    both = per_run(rows, ours, metric, where).join(per_run(rows, other, metric, where), on="run", suffix="_other")
    values = both.filter(pl.col("value_other").abs() > 1e-12)
    return average(1.0 - values["value"].to_numpy() / values["value_other"].to_numpy())


def curve(rows: pl.DataFrame, key: str, x: str, metric: str) -> tuple[list[float], list[Mean]]:
    """Mean and band of one method along x."""
    chosen = rows.filter((pl.col("method") == key) & pl.col(metric).is_not_null())
    parts = chosen.partition_by(x, as_dict=True)
    places = sorted(place for (place,) in parts)
    return places, [average(parts[place,][metric].to_numpy()) for place in places]


def common_runs(rows: pl.DataFrame, keys: list[str]) -> list[int]:
    """Runs in which every one of `keys` took part."""
    took_part = [set(rows.filter(pl.col("method") == key)["run"].to_list()) for key in keys]
    return sorted(set.intersection(*took_part)) if took_part else []


def winners(rows: pl.DataFrame, x: str, metric: str, keys: list[str]) -> list[tuple[float, str, Mean, str, Mean]]:
    """Along x: the best of `keys`, its mean, the runner-up, and the paired difference runner-up − best.

    Over the runs in which all took part.
    """
    rows = rows.filter(pl.col("run").is_in(common_runs(rows, keys)))
    each: dict[float, dict[str, dict[int, float]]] = {}
    for place, key, run, value in rows.group_by(x, "method", "run").agg(pl.col(metric).mean()).sort("run").iter_rows():
        each.setdefault(place, {}).setdefault(key, {})[run] = np.nan if value is None else value
    found = []
    for place, values in sorted(each.items()):
        means = {key: average(np.array(list(values[key].values()))) for key in keys if key in values}
        means = {key: mean for key, mean in means.items() if mean.runs}
        first, second = sorted(means, key=lambda key: round(means[key].value, 12))[:2]
        apart = [values[second][run] - value for run, value in values[first].items() if run in values[second]]
        found.append((place, first, means[first], second, average(np.array(apart))))
    return found
