"""Pictures, drawn with matplotlib (install `prefkin[plots]`), which is imported only when one is asked for."""

from __future__ import annotations

import io
import warnings
from collections.abc import Hashable, Mapping, Sequence
from importlib.util import find_spec
from textwrap import fill
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.rows import spread
from prefkin.errors import InvalidParameter
from prefkin.evaluate.metrics import HeldOut, Reliability
from prefkin.evaluate.people_map import Plane, groups_on, plane_of, room_for
from prefkin.models.base import PreferenceModel
from prefkin.models.coverage import feature_name
from prefkin.models.likeness import in_words

__all__ = [
    "as_png",
    "can_draw",
    "plot_coverage",
    "plot_estimates",
    "plot_held_out",
    "plot_questions",
    "plot_reliability",
    "plot_users",
]

OWN, POOLED, MUTED = "#c2593f", "#2f6f8f", "#9a9a9a"
COLOURS = ("#2f6f8f", "#c2593f", "#5b8c3a", "#8a5a9e", "#c99a2e", "#3aa39b", "#b0527a", "#6b6f3f", "#4f63b5", "#7d5a44")
MOST_FEATURES = 20
MOST_NAMES = 60
MOST_IN_LEGEND = 10
MOST_LINES = 5000
LEGEND = 30  # characters of a line


def can_draw() -> bool:
    """Is matplotlib installed?

    >>> can_draw()
    True
    """
    return find_spec("matplotlib") is not None


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

    >>> as_png(plot_questions(np.eye(2), 2.0 * np.eye(2), "what two answers teach"))[:4]
    b'\\x89PNG'
    """
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script the font lacks is drawn as boxes
        ax.figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()


def plot_users(model: PreferenceModel, ax: Any = None) -> Any:
    """A map of the users: where their estimates are, which group they are in, and how far either is in doubt.

    Axes are the two directions in which people differ most, named by their largest features. Colours are groups, faint
    where membership is in doubt. Up to 60 users have names where there is room, an ellipse that holds their preference
    with probability one half (as far as two directions show it), and a thin line to what their own answers say; with
    more users one typical ellipse is drawn per group. Models without a posterior show who shares comparisons by lines.

    >>> from prefkin import OffC2PL
    >>> model = OffC2PL(gamma=0.0).fit([[1.0, 0.0], [0.0, 1.0]], [1, 0], users=["ann", "bo"])
    >>> plot_users(model).get_title("left")
    '2 users: unrelated'
    """
    ax = _axes(ax, (9.5, 6.0))
    plane = plane_of(model)
    place, own = plane.at(model.theta_), plane.at(model.own_theta_)
    group, sure, names = _groups(model)
    few = len(place) <= MOST_NAMES
    kin: Any = model if model.has_posterior else None  # knows how sure it is of each user
    if kin is None:
        _draw_links(ax, model, place)
    elif few:
        ax.plot(*np.stack([own, place]).transpose(2, 0, 1), color=MUTED, linewidth=0.6, alpha=0.6, zorder=1)
        ax.scatter(*own.T, s=8, color=MUTED, zorder=1, label="by own answers only")
    size = 55.0 if few else float(np.clip(6000 / len(place), 6, 40))
    for k in np.unique(group).tolist():
        mine = np.flatnonzero(group == k)
        colour = MUTED if k < 0 else COLOURS[k % len(COLOURS)]
        said = "stands alone" if k < 0 else "everybody" if len(mine) == len(place) else names[k]
        ax.scatter(
            *place[mine].T,
            s=size,
            color=colour,
            alpha=0.15 + 0.85 * sure[mine] ** 2,
            marker="s" if k < 0 else "o",
            linewidths=0,
            zorder=3,
            label=fill(f"{said} ({mine.size})", LEGEND) if k < MOST_IN_LEGEND else None,
        )
        if kin is not None:
            for u in mine if few else [_typical(kin, mine)]:
                _draw_ellipse(ax, kin, int(u), place[u], plane, colour, 0.06 if few else 0.25)
    ax.set(xticks=[], yticks=[], xlabel=plane.names[0], ylabel=plane.names[1])
    found = model.summary()
    doubted = "" if found.uncertain is None else f", {found.uncertain} uncertain"
    ax.set_title(f"{len(place)} users: {found.structure}{doubted}", loc="left")
    ax.legend(frameon=False, fontsize=8, markerscale=1.0 if few else 2.0, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    if few:
        _draw_names(ax, [str(label) for label in model.users_.tolist()], place if kin is None else own, place)
    return ax


def _groups(model: PreferenceModel) -> tuple[IntArray, FloatArray, list[str]]:
    """A group for each user, −1 for who stands alone, how sure that is, and what groups are called.

    Where a method has no groups of its own: who is linked, over others as well, largest first; or everybody.
    """
    if model.groups_:
        return *groups_on(model), [f"group {g.label}: {in_words(g.likes, g.dislikes)}" for g in model.groups_]
    n_users = len(model.users_)
    if model.has_posterior:
        return np.zeros(n_users, dtype=np.intp), np.ones(n_users), ["everybody"]
    pairs = np.array([(u, v) for u in range(n_users) for v in model.members(u).tolist()])
    links = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n_users, n_users))
    part = connected_components(links, directed=False)[1]
    sizes = np.bincount(part)
    rank = np.argsort(np.argsort(-sizes, kind="stable"))
    return np.where(sizes[part] == 1, -1, rank[part]), np.ones(n_users), [f"linked {k + 1}" for k in range(len(sizes))]


def _draw_names(ax: Any, names: list[str], points: FloatArray, others: FloatArray) -> None:
    """Names beside points, where they cover neither each other nor the `others`."""
    ax.figure.draw_without_rendering()  # where things are is known after the layout
    size, dot = 7.0, ax.figure.dpi / 72.0
    pixels, seen = ax.transData.transform(points), ax.transData.transform(others)
    taken = [np.concatenate([point - 4.0 * dot, point + 4.0 * dot]) for point in seen]
    widths = [0.62 * size * dot * len(name) for name in names]
    back = ax.transData.inverted()
    for name, middle in zip(names, room_for(pixels, widths, 1.25 * size * dot, taken), strict=True):
        if middle is not None:
            ax.text(*back.transform(middle), name, fontsize=size, color="#444444", ha="center", va="center", zorder=4)


def _typical(model: Any, users: IntArray) -> int:
    """The user with the median uncertainty among some of a group."""
    some = users[spread(len(users), 9)]
    doubt = [np.trace(model.covariance(model.users_.tolist()[u])) for u in some]
    return int(some[np.argsort(doubt)[len(some) // 2]])


def _draw_ellipse(ax: Any, model: Any, user: int, point: FloatArray, plane: Plane, colour: str, alpha: float) -> None:
    from matplotlib.patches import Ellipse

    spread, turn = np.linalg.eigh(plane.spread(model.covariance(model.users_.tolist()[user])))
    across, along = 2.0 * np.sqrt(2.0 * np.log(2.0) * np.maximum(spread, 0.0))  # half of a plane normal law
    angle = float(np.degrees(np.arctan2(turn[1, 1], turn[0, 1])))
    ax.add_patch(Ellipse(tuple(point), along, across, angle=angle, color=colour, alpha=alpha, linewidth=0, zorder=0))


def _draw_links(ax: Any, model: PreferenceModel, place: FloatArray) -> None:
    from matplotlib.collections import LineCollection

    pairs = {(min(u, v), max(u, v)) for u in range(len(place)) for v in model.members(u).tolist() if u != v}
    shown = sorted(pairs)[:: 1 + len(pairs) // MOST_LINES]
    ax.add_collection(LineCollection([place[list(pair)] for pair in shown], colors=MUTED, alpha=0.25, zorder=1))


def _draw_changes(ax: Any, names: Sequence[str], old: FloatArray, new: FloatArray, was: str, now: str) -> None:
    """A line for each name, from one value to the other."""
    height = np.arange(len(names))[::-1]
    ax.hlines(height, old, new, color=MUTED, linewidth=1.5)
    ax.scatter(old, height, color=OWN, label=was, zorder=2)
    ax.scatter(new, height, color=POOLED, label=now, zorder=2)
    ax.set_yticks(height, names)


def plot_coverage(model: PreferenceModel, user: Hashable, n: int = 10, ax: Any = None) -> Any:
    """The directions in which a user is known least: doubt left after own answers, and with everybody's.

    >>> from prefkin import OffC2PL
    >>> model = OffC2PL(gamma=0.0).fit([[1.0, 0.0], [0.0, 1.0]], [1, 0], users=["ann", "bo"])
    >>> plot_coverage(model, "ann").get_title("left")
    'what is known least about ann'
    """
    known = model.coverage_map(user, n)
    ax = _axes(ax, (7.0, 1.6 + 0.34 * len(known.directions)))
    own = np.array([direction.own_doubt for direction in known.directions])
    pooled = np.array([direction.doubt for direction in known.directions])
    _draw_changes(
        ax, [direction.name for direction in known.directions], own, pooled, "own answers only", "with others"
    )
    ax.axvline(known.strongest, color=MUTED, linewidth=0.8, linestyle="--", label="best-known direction")
    ax.set(xlabel="doubt left (1: as before any answer)", xlim=(0.0, max(1.05, own.max() * 1.05, pooled.max() * 1.05)))
    ax.set_title(f"what is known least about {user}", loc="left")
    ax.legend(frameon=False, fontsize=8)
    return ax


def plot_reliability(results: Mapping[str, Reliability] | Reliability, ax: Any = None) -> Any:
    """Promised against observed shares of held-out answers, with 95 % intervals; below, the answers of the first.

    >>> from prefkin.evaluate.metrics import reliability
    >>> plot_reliability(reliability(np.full(20, 0.7))).get_ylabel()
    'how often it was given'
    """
    named = {"held-out answers": results} if isinstance(results, Reliability) else results
    ax = _axes(ax, (6.0, 5.6))
    ax.plot([0.5, 1.0], [0.5, 1.0], color=MUTED, linewidth=1, linestyle="--")
    for k, (name, result) in enumerate(named.items()):
        error = [result.observed - result.low, result.high - result.observed]
        look = {"color": COLOURS[k % len(COLOURS)], "fmt": "o-", "markersize": 5, "linewidth": 1}
        ax.errorbar(result.predicted, result.observed, error, label=f"{name}: off by {result.gap:.1%}", **look)
    first = next(iter(named.values()))
    for x, count in zip(first.predicted, first.counts, strict=True):
        ax.text(x, 0.01, f"{count:,.0f}", transform=ax.get_xaxis_transform(), ha="center", fontsize=7, color=MUTED)
    ax.set(xlabel="probability promised to the likelier answer", ylabel="how often it was given", xlim=(0.49, 1.01))
    ax.set_title("do held-out predictions keep their promise?", loc="left")
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    return ax


def plot_questions(
    before: FloatArray, after: FloatArray, title: str, feature_names: Sequence[str] | None = None, ax: Any = None
) -> Any:
    """What questions teach: doubt about each feature's weight, by the information (d, d) before and after them.

    >>> ax = plot_questions(np.eye(2), 4.0 * np.eye(2), "what three answers teach", ["salt", "fat"])
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['salt', 'fat']
    """
    doubt = [np.sqrt(np.maximum(np.diag(np.linalg.inv(M)), 0.0)) for M in (before, after)]
    shown = np.sort(np.argsort(doubt[1] - doubt[0], kind="stable")[:MOST_FEATURES])
    ax = _axes(ax, (7.0, 1.5 + 0.28 * len(shown)))
    names = [feature_name(feature_names, int(i)) for i in shown]
    _draw_changes(ax, names, doubt[0][shown], doubt[1][shown], "before the questions", "after")
    ax.set(xlabel="how far a weight may be off (standard deviation)", xlim=(0.0, 1.05 * float(doubt[0][shown].max())))
    rest = f" ({len(shown)} of {len(before)} features, where most is learnt)" if len(shown) < len(before) else ""
    ax.set_title(title + rest, loc="left")
    ax.legend(frameon=False, fontsize=8)
    return ax


def plot_estimates(
    model: PreferenceModel, user: Hashable, feature_names: Sequence[str] | None = None, ax: Any = None
) -> Any:
    """What a user's own comparisons say about each feature, and what they say with the neighbours' added.

    >>> from prefkin import OffC2PL
    >>> model = OffC2PL(gamma=0.0).fit([[1.0, 0.0], [0.0, 1.0]], [1, 0], users=["ann", "bo"])
    >>> plot_estimates(model, "ann", ["salt", "fat"]).get_title("left")
    'what ann wants'
    """
    u = model.position(user)
    own, pooled = model.own_theta_[u], model.theta_[u]
    shown = np.sort(np.argsort(-np.abs(pooled - own), kind="stable")[:MOST_FEATURES])
    names = [feature_name(feature_names or model.feature_names_, int(i)) for i in shown]
    ax = _axes(ax, (7.0, 1.5 + 0.28 * len(shown)))
    ax.axvline(0.0, color=MUTED, linewidth=0.8)
    others = f"with {len(model.members(u)) - 1} neighbours"
    _draw_changes(ax, names, own[shown], pooled[shown], "own comparisons only", others)
    ax.set(xlabel="liked less  ←   weight   →  liked more")
    rest = f" ({len(shown)} of {len(own)} features, those that moved most)" if len(shown) < len(own) else ""
    ax.set_title(f"what {user} wants{rest}", loc="left")
    ax.legend(frameon=False, fontsize=8)
    return ax


def plot_held_out(results: Mapping[str, HeldOut], ax: Any = None) -> Any:
    """Held-out log-loss of several models, with standard errors over users; lower is better.

    >>> ax = plot_held_out({"one": HeldOut(0.6, 0.02, 0.7, 0.01), "other": HeldOut(0.5, 0.03, 0.8, 0.01)})
    >>> [float(bar.get_width()) for bar in ax.patches]
    [0.6, 0.5]
    """
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
