"""Why nobody was connected, and which threshold, radius or number of comparisons would change that."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from prefkin.data.rows import UserRows
from prefkin.models.off_c2pl.graph import Graph
from prefkin.models.off_c2pl.radius import Coverage

__all__ = ["comparisons_for_an_edge", "what_an_edge_takes"]

MOST_COMPARISONS = 1e15


def what_an_edge_takes(
    graph: Graph,
    users: UserRows,
    coverage: Coverage,
    *,
    gamma: float | str,
    width: Callable[[float], float] | None,
    ridge: float,
    kappa: float,
    delta: float,
) -> str:
    """One sentence or two about a graph without edges; `width(n)` is the paper's confidence width after n comparisons.

    None for `width` when radii or distances are not the paper's: how they fall with n is then not said.
    """
    now = f"(now {np.median(users.counts):.3g})"
    pair = graph.first_edge()
    if pair is None:
        least = coverage.least_count(n_users=len(users), dim=users.dim, delta=delta)
        return (
            f"nobody is connected: item regularity asks for at least N_min = {least:.3g} comparisons from each user "
            f"{now}; collect more, or use coverage='measured'"
        )
    u, v = pair
    one, other = users.labels[[u, v]].tolist()
    distance, allowance = float(graph.distances(u)[v]), float(graph.allowances(u)[v])
    if gamma == "auto":
        return (
            "nobody is connected: pooling did not predict held-out answers better than each user's own data; "
            f"gamma above {distance + allowance:.3g} would join {one!r} and {other!r}, the nearest pair"
        )
    threshold = float(graph.gamma.max())
    if graph.beliefs is not None:
        return (
            f"nobody is connected: gamma above {distance:.3g} would join {one!r} and {other!r}, the nearest pair "
            f"(now {threshold:.3g}); gamma='auto' chooses by held-out answers instead"
        )
    if isinstance(gamma, str) and threshold == 0:
        reason = f"gamma={gamma!r} found no two users who certainly differ, so it set every threshold to 0"
        threshold = max(float(graph.distances(user).max()) for user in range(len(graph)))
    else:
        reason = f"the threshold {threshold:.3g} is used up by the radii"
    target = (threshold - distance) / (2 * graph.alpha)
    radii = (
        f"or radii below {target:.3g} each (now {graph.radius[u]:.3g} and {graph.radius[v]:.3g})"
        if target > 0
        else f"or estimates nearer to each other than now ({distance:.3g} apart, which no radius makes up for)"
    )
    needs = f"needs gamma above {distance + allowance:.3g}, {radii}"
    if width is not None:
        start, rate = coverage.growth(users, ridge=ridge, kappa=kappa)
        count = comparisons_for_an_edge(threshold / (2 * graph.alpha), width, start, rate)
        many = f"about {count:.2g}" if np.isfinite(count) else f"more than {MOST_COMPARISONS:.0e}"
        needs += f", or {many} comparisons per user {now}"
    return (
        f"nobody is connected: {reason}. A first edge, between {one!r} and {other!r}, {needs}; "
        "gamma='auto' chooses by held-out answers instead"
    )


def comparisons_for_an_edge(radius: float, width: Callable[[float], float], start: float, rate: float) -> float:
    """The number n at which width(n) / √(start + rate·n) falls to `radius`; infinite when it never does.

    >>> round(comparisons_for_an_edge(0.1, lambda n: 1.0, start=0.0, rate=1.0))
    100
    """
    low, high = 0.0, float(np.log(MOST_COMPARISONS))

    def reached(log_n: float) -> bool:
        n = float(np.exp(log_n))
        return width(n) <= radius * float(np.sqrt(start + rate * n))

    if radius <= 0 or rate <= 0 or not reached(high):
        return float(np.inf)
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return float(np.exp(high))
