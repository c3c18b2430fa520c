"""Rows that depend on each other: all pairs of a ranking are not as many answers as there are rows.

What tells them from answers to as many questions is that people contradict themselves: somebody who is asked about all
pairs of ten items, with the noise that real answers have, prefers a to b, b to c and c to a somewhere. Where a whole
population was asked about most pairs of some items and nobody ever did, the rows were made from rankings or ratings.
They then get the weights of rankings (`choices`). A single contradiction in a hundred possible ones, repeats included,
and all rows count as they are.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.choices import ranking_weight
from prefkin.data.rows import UserRows, spread
from prefkin.execution.blas import in_one_order

__all__ = ["effective_weights"]

EVIDENCE = 50  # possible contradictions, one beside each other: so many are needed to say that there are none
CONTRADICTED = 0.01  # share of them, by people who contradict themselves, from which answers are taken as answers
COMPLETE = 0.5  # share of all pairs of some items from which a table of all pairs is meant
MOST = 64  # items of one person that are recognised without their names
LOOKED_AT = 12  # people whose rows are looked at where items are not known


@in_one_order
def effective_weights(users: UserRows) -> FloatArray | None:
    """What each row counts, where rows were made from rankings or ratings; None where they count as they are.

    Where items are known, the winner of a pair was the best of itself and those it won against: 2/A for A of these.
    Where only differences are, all pairs of m items have rank m − 1, and count for that many.

    >>> from prefkin.data.comparisons import Comparisons
    >>> pairs = np.array([(a, b) for a in range(5) for b in range(a + 1, 5)] * 10)      # ten people rank five items
    >>> X, owner = np.eye(5), np.repeat(np.arange(10), 10)
    >>> def rows(y):
    ...     return Comparisons.from_sides(X[pairs[:, 0]], X[pairs[:, 1]], y, owner).by_user()
    >>> effective_weights(rows(np.ones(100)))[:10].round(2).tolist()
    [0.4, 0.4, 0.4, 0.4, 0.5, 0.5, 0.5, 0.67, 0.67, 1.0]
    >>> effective_weights(rows(np.random.default_rng(0).integers(0, 2, 100))) is None   # they contradict themselves
    True
    """
    return _by_rank(users) if users.items is None else _by_items(users, users.items)


def _by_items(users: UserRows, items: IntArray) -> FloatArray | None:
    n_items = int(items.max()) + 1
    won = users.rows.y == 1
    ends = np.where(won[:, None], items, items[:, ::-1]) + n_items * users.owner[:, None]  # winner and loser, as nodes
    told = items[:, 0] != items[:, 1]
    nodes, codes = np.unique(ends, return_inverse=True)
    ends = codes.reshape(ends.shape)
    pairs = _distinct(ends[told], len(nodes))
    owner = nodes // n_items
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(nodes), len(nodes)))
    part = connected_components(graph, directed=False)[1]
    cycle = connected_components(graph, directed=True, connection="strong")[1]
    either = _distinct(np.sort(pairs, axis=1), len(nodes))
    n_pairs, size = np.bincount(part[either[:, 0]], minlength=len(nodes)), np.bincount(part, minlength=len(nodes))
    possible = np.where(size > 0, n_pairs - size + 1, 0)  # independent cycles of a component
    dense = n_pairs >= COMPLETE * size * (size - 1) / 2.0
    contradicts = np.zeros(len(users), dtype=bool)
    contradicts[owner[np.bincount(cycle)[cycle] > 1]] = True
    component_owner = np.zeros(len(nodes), dtype=np.intp)
    component_owner[part] = owner
    chances = np.bincount(component_owner, possible * dense, len(users))
    if chances.sum() < EVIDENCE or chances[contradicts].sum() > CONTRADICTED * chances.sum():
        return None
    wins = np.bincount(pairs[:, 0], minlength=len(nodes))
    ranked = (dense & (possible > 0))[part[ends[:, 0]]] & ~contradicts[users.owner] & told
    return np.where(ranked, ranking_weight(1 + np.maximum(wins[ends[:, 0]], 1)), 1.0)


def _distinct(pairs: IntArray, n_nodes: int) -> IntArray:
    """The distinct ones among pairs of nodes."""
    return np.column_stack(np.divmod(np.unique(pairs[:, 0] * n_nodes + pairs[:, 1]), n_nodes))


def _by_rank(users: UserRows) -> FloatArray | None:
    """All pairs of m items span m − 1 directions, fewer than there are features, and are at most m (m − 1) / 2."""
    sizes = np.diff(users.starts)
    asked = np.flatnonzero((sizes >= 3) & (sizes <= MOST * (MOST + 1) // 2))
    if users.dim < 3 or not len(asked) or not any(_items_spanned(users.of(u).Z) for u in asked[spread(len(asked), 2)]):
        return None
    rank = {u: spanned for u in asked.tolist() if (spanned := _items_spanned(users.of(u).Z))}
    looked = [list(rank)[k] for k in spread(len(rank), LOOKED_AT)]
    if sum(int(sizes[u]) - rank[u] for u in rank) < EVIDENCE or len(rank) < 0.5 * len(users):
        return None
    together = np.concatenate([users.of(u).Z for u in looked])
    widest = max(rank.values())
    if not _items_spanned(together) and _rank(together) <= widest:  # features that never differ but together
        return None
    if not all(_without_contradiction(users.of(u).signed()) for u in looked):
        return None
    weights = np.ones(len(users.rows.y))
    for u, directions in rank.items():
        weights[users.starts[u] : users.starts[u + 1]] = directions / sizes[u]
    return weights


def _items_spanned(Z: FloatArray) -> int:
    """The rank of rows that may be most pairs of few items, fewer than there are features; 0 of others."""
    rank = _rank(Z)
    distinct = len(np.unique(np.round(np.abs(Z @ np.cos(np.arange(1, Z.shape[1] + 1))), 9)))
    most = rank * (rank + 1) / 2.0
    return rank if 2 <= rank < min(distinct, Z.shape[1]) and COMPLETE * most <= distinct <= most else 0


def _rank(Z: FloatArray) -> int:
    """The rank of rows, or `MOST` where it is higher."""
    if Z.shape[1] > MOST:
        Z = Z @ np.cos(np.outer(np.arange(1, Z.shape[1] + 1), np.sqrt(np.arange(2, MOST + 2))))
    return int(np.linalg.matrix_rank(Z.astype(np.float64)))


def _without_contradiction(X: FloatArray) -> bool:
    """Is there a direction along which every answer is right?"""
    X = X[X.any(axis=1)].astype(np.float64)
    X = X / np.abs(X).max(axis=1, keepdims=True)
    solved = linprog(np.zeros(X.shape[1]), A_ub=-X, b_ub=-np.ones(len(X)), bounds=(None, None), method="highs")
    return bool(solved.status == 0)
