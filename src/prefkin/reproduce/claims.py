"""What the paper says, what was measured, and a verdict by a rule stated here.

An improvement is 1 − gap(ours) / gap(other), computed in each run from gaps averaged over the cells, then averaged over
runs with a 95 % interval. Verdicts:

* reproduced      the paper's number is inside the interval, or within 5 points of the mean
* direction only  the improvement is clearly above 0, but not the paper's
* no difference   0 is inside the interval
* opposite        the improvement is clearly below 0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from prefkin.reproduce.summary import Mean, average, curve, described, improvement, methods_in, overall, per_run

__all__ = ["CLAIMS", "Verdict", "judged"]

NEAR = 0.05


@dataclass(frozen=True)
class Verdict:
    """What is claimed, what was measured, and whether it holds."""

    says: str
    measured: str
    verdict: str


def judged(found: Mean, paper: float) -> str:
    """The rule above.

    >>> judged(Mean(0.9, 0.02, 20), 0.881), judged(Mean(0.3, 0.1, 20), 0.881), judged(Mean(0.1, 0.2, 20), 0.881)
    ('reproduced', 'direction only', 'no difference')
    """
    if not np.isfinite(found.half):
        return "too few runs"
    if abs(found.value - paper) <= max(NEAR, found.half) and found.value > found.half:
        return "reproduced"
    if found.value > found.half:
        return "direction only"
    return "opposite" if found.value < -found.half else "no difference"


PUBLISHED = {
    "synthetic": {"kmeans": 0.881, "dbscan": 0.891, "pooled": 0.951, "neighbour": 0.892, "per_user": 0.0339},
    "tldr": {"kmeans": 0.615, "dbscan": 0.801, "pooled": 0.828, "neighbour": 0.871, "per_user": 0.862},
}
READINGS = (
    ("off_c2pl", "gap", "fresh contexts, γ̂ by held-out answers"),
    ("off_c2pl_hindsight", "gap", "fresh contexts, γ̂ in hindsight"),
    ("off_c2pl_hindsight_logged", "gap_logged", "logged pairs, γ̂ in hindsight"),
)


def _offline_improvements(rows: pl.DataFrame, data: str) -> list[Verdict]:
    lines = []
    for other, number in PUBLISHED.get(data, PUBLISHED["tldr"]).items():
        for ours, metric, reading in READINGS:
            if not _present(rows, ours, other):
                continue
            found = improvement(rows, ours, other, metric)
            said = f"Off-C²PL improves on {described(other).label} by {100 * number:.1f} %"
            said += "" if data in PUBLISHED else " (on TL;DR)"
            lines.append(Verdict(f"{said} [{reading}]", found.percent(), judged(found, number)))
    return lines


def _smallest_gap_everywhere(rows: pl.DataFrame, data: str) -> list[Verdict]:  # noqa: ARG001
    lines = []
    rivals = [k for k in PUBLISHED["synthetic"] if _present(rows, k)]
    for ours, metric, reading in READINGS:
        if not _present(rows, ours):
            continue
        places, mine = curve(rows, ours, "budget", metric)
        others = [curve(rows, other, "budget", metric)[1] for other in rivals]
        best = sum(mine[i].value <= min(o[i].value for o in others) + 1e-12 for i in range(len(places)))
        verdict = "reproduced" if best == len(places) else "partly" if best else "not reproduced"
        said = f"Off-C²PL has the smallest gap of the paper's methods at every budget [{reading}]"
        lines.append(Verdict(said, f"at {best} of {len(places)} budgets", verdict))
    return lines


def _per_user_needs_most(rows: pl.DataFrame, data: str) -> list[Verdict]:
    if data != "synthetic" or not _present(rows, "off_c2pl", "per_user"):
        return []
    places = sorted(rows["budget"].unique().to_list())
    near = [
        place
        for place in places
        if improvement(rows, "off_c2pl_hindsight", "per_user", "gap", pl.col("budget") == place).value < 0.05
    ]
    share = f"{near[0]:g} ({near[0] / places[-1]:.0%} of the largest)" if near else "never"
    early = bool(near) and near[0] <= 0.8 * places[-1]
    said = "per-user MLE becomes competitive (gap within 5 %) only with more than 80 % of the samples [fresh contexts]"
    return [Verdict(said, f"from budget {share}", "not reproduced" if early else "reproduced")]


def _literal_constants(rows: pl.DataFrame, data: str) -> list[Verdict]:  # noqa: ARG001
    """What the constants do as printed."""
    lines = []
    if _present(rows, "off_c2pl_literal") and rows["recall"].is_not_null().any():
        recall = overall(rows, "off_c2pl_literal", "recall")
        said = "with γ̂ = γ Off-C²PL connects users of a cluster (share of such pairs connected, literal radii)"
        lines.append(Verdict(said, str(recall), "not reproduced" if recall.value == 0 else "reproduced"))
    if rows["gap_pessimistic"].is_not_null().any():
        found = overall(rows, "per_user", "gap_pessimistic")
        greedy = overall(rows, "per_user", "gap")
        said = "the pessimistic policy is a good one (per-user MLE, literal width, one test user per run)"
        verdict = "not reproduced" if found.value - found.half > greedy.value else "no difference"
        lines.append(Verdict(said, f"gap {found}; of the greedy policy, all users: {greedy}", verdict))
    return lines


def _ours_among_all(rows: pl.DataFrame, data: str) -> list[Verdict]:  # noqa: ARG001
    """Not a claim of the paper: what PrefKin adds."""
    lines = []
    for other in ("off_c2pl", "off_c2pl_hindsight", "mixture_em", "shrink", "per_user_tuned", "pooled", "true_groups"):
        if _present(rows, "prefkin", other):
            found = improvement(rows, "prefkin", other, "gap")
            said = f"(ours) PrefKin against {described(other).label} [fresh contexts]"
            lines.append(Verdict(said, found.percent(), _against(found)))
    return lines


ACTIVE = {"synthetic": {"apo": 0.587, "off_c2pl_random": 0.180}, "tldr": {"apo": 0.876, "off_c2pl_random": 0.575}}


def _active_improvements(rows: pl.DataFrame, data: str) -> list[Verdict]:
    lines = []
    last = pl.col("asked") == rows["asked"].max()
    for other, number in ACTIVE.get(data, ACTIVE["tldr"]).items():
        for reading, where in (("after the last question", last), ("mean over the rounds", pl.col("asked") > 0)):
            found = improvement(rows, "a2_off_c2pl", other, "gap", where)
            said = f"A²-Off-C²PL improves on {_talker(other)} by {100 * number:.1f} %"
            said += "" if data in ACTIVE else " (on TL;DR)"
            lines.append(Verdict(f"{said} [{reading}]", found.percent(), judged(found, number)))
    start, end = (per_run(rows, "off_c2pl_random", "gap", pl.col("asked") == n) for n in (0, rows["asked"].max()))
    fell = average(1.0 - end["value"].to_numpy() / start["value"].to_numpy())
    verdict = "reproduced" if fell.value < 0.1 else "not reproduced"
    lines.append(Verdict("random pairs make little progress (gap falls by under 10 %)", fell.percent(), verdict))
    for ours, other in (("prefkin", "a2_off_c2pl"), ("prefkin", "prefkin_random")):
        if _present(rows, ours, other):
            found = improvement(rows, ours, other, "gap", last)
            said = f"(ours) {_talker(ours)} against {_talker(other)}"
            lines.append(Verdict(said, found.percent(), _against(found)))
    return lines


def _talker(key: str) -> str:
    return described(key, "active").label


def _against(found: Mean) -> str:
    if found.value > found.half:
        return "better"
    return "worse" if found.value < -found.half else "no difference"


def _dimension(rows: pl.DataFrame, data: str) -> list[Verdict]:
    lines = []
    slopes = {}
    for key in methods_in(rows):
        places, means = curve(rows, key, "dim", "gap")
        slopes[key] = means[-1].value - means[0].value
    ends = f"from d = {places[0]:g} to d = {places[-1]:g}"
    if data == "synthetic":
        grows = all(slope > 0 for slope in slopes.values())
        measured = ", ".join(f"{described(key).label} {slope:+.3f}" for key, slope in slopes.items())
        lines.append(Verdict("the gap grows with d", f"{ends}: {measured}", "reproduced" if grows else "partly"))
        fixed = {k: v for k, v in slopes.items() if k in ("off_c2pl_hindsight", *PUBLISHED["synthetic"])}
        slowest = min(fixed, key=lambda key: fixed[key])
        verdict = "reproduced" if slowest == "off_c2pl_hindsight" else "not reproduced"
        said = "Off-C²PL (γ̂ in hindsight) degrades slowest among the paper's methods"
        lines.append(Verdict(said, f"slowest: {described(slowest).label}", verdict))
    else:
        for key in ("off_c2pl_hindsight", "off_c2pl"):
            if _present(rows, key):
                _, means = curve(rows, key, "dim", "gap")
                values = np.array([mean.value for mean in means])
                typical = float(np.mean([mean.half for mean in means]))
                flat = float(np.ptp(values)) <= 2 * typical
                said = f"no noticeable trend across d [{described(key).label}]"
                measured = f"gap varies by {np.ptp(values):.3f}, 95 % half width {typical:.3f}"
                lines.append(Verdict(said, measured, "reproduced" if flat else "not reproduced"))
    return lines


def _threshold(rows: pl.DataFrame, data: str) -> list[Verdict]:  # noqa: ARG001
    swept = [k for k in methods_in(rows) if k.startswith("sweep_")]
    means = {float(k.removeprefix("sweep_")): overall(rows, k, "gap") for k in swept}
    best = min(means, key=lambda fraction: round(means[fraction].value, 12))
    ends = (min(means), max(means))
    inner = best not in ends
    said = "a bias-variance trade-off: a threshold in between beats both ends"
    measured = (
        f"smallest gap {means[best]} joining {best:.0%} of pairs; nobody {means[ends[0]]}, everybody {means[ends[1]]}"
    )
    lines = [Verdict(said, measured, "reproduced" if inner else "not reproduced")]
    low, high = (rows.filter(pl.col("method") == f"sweep_{end:g}") for end in ends)
    gammas = [average(part["note"].cast(pl.Float64).to_numpy()).value for part in (low, high)]
    said = "overly small γ̂ merge unrelated users, overly large ones prevent pooling"
    measured = f"γ̂ = {gammas[0]:.3g} joins nobody, γ̂ = {gammas[1]:.3g} everybody"
    lines.append(Verdict(said, measured, "opposite (the sentence contradicts the connection rule)"))
    return lines


def _present(rows: pl.DataFrame, *keys: str) -> bool:
    return set(keys) <= set(methods_in(rows))


CLAIMS: dict[str, tuple[Callable[[pl.DataFrame, str], list[Verdict]], ...]] = {  # what section 6 says, by experiment
    "exp1": (
        _offline_improvements,
        _smallest_gap_everywhere,
        _per_user_needs_most,
        _literal_constants,
        _ours_among_all,
    ),
    "exp2": (_active_improvements,),
    "exp3": (_dimension,),
    "exp4": (_threshold,),
}
