"""Pictures, drawn with matplotlib (install `prefkin[plots]`), which is imported only when one is asked for."""

from __future__ import annotations

import io
import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from prefkin.comparisons import FloatArray
from prefkin.errors import InvalidParameter
from prefkin.metrics import HeldOut
from prefkin.model import PreferenceModel

__all__ = ["as_png", "plot_eigenvalues", "plot_estimates", "plot_held_out", "plot_users"]

OWN, POOLED, MUTED = "#c2593f", "#2f6f8f", "#9a9a9a"
MOST_FEATURES = 20
MOST_LINES = 5000


def _axes(ax: Any, size: tuple[float, float]) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidParameter("pictures need matplotlib; pip install 'prefkin[plots]'") from None
    if ax is None:
        ax = Figure(figsize=size, layout="constrained").subplots()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def as_png(ax: Any) -> bytes:
    """The picture an axes belongs to, as the bytes of a PNG file.

    >>> as_png(plot_eigenvalues([1.0, 2.0], [1.5, 2.0]))[:4]
    b'\\x89PNG'
    """
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script the font lacks is drawn as boxes
        ax.figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()


def plot_users(model: PreferenceModel, ax: Any = None) -> Any:
    """A map of the users: near each other when their own estimates are, a line where comparisons are shared.

    Distances are those of the two directions in which estimates differ most, so lines decide, not positions.
    """
    ax = _axes(ax, (7.0, 6.0))
    from matplotlib.collections import LineCollection

    centred = model.own_theta_ - model.own_theta_.mean(axis=0)
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    place = np.zeros((len(centred), 2))
    place[:, : min(2, len(size))] = (left * size)[:, :2]
    linked = getattr(model, "structure_", "groups") == "groups"  # by degrees everybody leans on everybody
    everyone = range(len(place) if linked else 0)
    pairs = {(min(u, v), max(u, v)) for u in everyone for v in model.members(u).tolist() if u != v}
    shown = sorted(pairs)[:: 1 + len(pairs) // MOST_LINES]
    ax.add_collection(LineCollection([place[list(pair)] for pair in shown], colors=POOLED, alpha=0.25, zorder=1))
    joined = {u for pair in pairs for u in pair}
    alone = np.array([linked and u not in joined for u in range(len(place))])
    ax.scatter(*place[~alone].T, s=60, color=POOLED, zorder=2, label="shares comparisons with others")
    if alone.any():
        ax.scatter(*place[alone].T, s=60, color=OWN, marker="s", zorder=2, label="stands alone")
    if len(place) <= 60:
        for label, (x, y) in zip(model.users_.tolist(), place, strict=True):
            ax.annotate(str(label), (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8)
    ax.set(xticks=[], yticks=[], xlabel="what users disagree on most", ylabel="second most")
    found = f"{len(pairs)} shared pairs, {alone.sum()} alone" if linked else str(getattr(model, "structure_", ""))
    ax.set_title(f"{len(place)} users: {found}", loc="left")
    ax.legend(frameon=False, fontsize=8)
    return ax


def plot_eigenvalues(before: Sequence[float] | FloatArray, after: Sequence[float] | FloatArray, ax: Any = None) -> Any:
    """How well each direction is covered, before and after the questions, weakest first."""
    ax = _axes(ax, (7.0, 4.0))
    position = np.arange(1, len(before) + 1)
    ax.fill_between(position, before, after, color=POOLED, alpha=0.2, step=None)
    ax.plot(position, before, color=OWN, marker="o", markersize=4, label="before the questions")
    ax.plot(position, after, color=POOLED, marker="o", markersize=4, label="after")
    ax.set(xlabel="direction, from the weakest", ylabel="information (eigenvalue)")
    ax.set_title(f"weakest direction: {before[0]:.3g} → {after[0]:.3g}", loc="left")
    if max(after) > 100 * max(min(before), 1e-12):
        ax.set_yscale("log")
    ax.legend(frameon=False)
    return ax


def plot_estimates(
    model: PreferenceModel, user: Hashable, feature_names: Sequence[str] | None = None, ax: Any = None
) -> Any:
    """What a user's own comparisons say about each feature, and what they say with the neighbours' added."""
    u = model.position(user)
    own, pooled = model.own_theta_[u], model.theta_[u]
    shown = np.sort(np.argsort(-np.abs(pooled - own), kind="stable")[:MOST_FEATURES])
    names = [feature_names[i] if feature_names else f"feature {i}" for i in shown]
    ax = _axes(ax, (7.0, 1.5 + 0.28 * len(shown)))
    height = np.arange(len(shown))[::-1]
    ax.axvline(0.0, color=MUTED, linewidth=0.8)
    ax.hlines(height, own[shown], pooled[shown], color=MUTED, linewidth=1.5)
    ax.scatter(own[shown], height, color=OWN, label="own comparisons only", zorder=2)
    ax.scatter(pooled[shown], height, color=POOLED, label=f"with {len(model.members(u)) - 1} neighbours", zorder=2)
    ax.set_yticks(height, names)
    ax.set(xlabel="liked less  ←   weight   →  liked more")
    rest = f" ({len(shown)} of {len(own)} features, those that moved most)" if len(shown) < len(own) else ""
    ax.set_title(f"what {user} wants{rest}", loc="left")
    ax.legend(frameon=False, fontsize=8)
    return ax


def plot_held_out(results: Mapping[str, HeldOut], ax: Any = None) -> Any:
    """Held-out log-loss of several models, with standard errors over users; lower is better."""
    ax = _axes(ax, (7.0, 1.2 + 0.45 * len(results)))
    height = np.arange(len(results))[::-1]
    losses = [result.log_loss for result in results.values()]
    errors = [result.log_loss_error for result in results.values()]
    colours = [POOLED if loss == min(losses) else MUTED for loss in losses]
    ax.barh(height, losses, xerr=errors, color=colours, height=0.6)
    ax.axvline(np.log(2), color=OWN, linewidth=1, linestyle="--")
    ax.annotate("guessing ", (np.log(2), height[0] + 0.34), color=OWN, fontsize=8, ha="right")
    ax.set_yticks(height, list(results))
    ax.set(xlabel="log-loss on comparisons not seen before (lower is better)")
    return ax
