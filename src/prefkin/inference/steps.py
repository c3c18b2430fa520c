"""A step of expectation propagation for all rows of all users at once, no longer than it should be.

Sites of rows that count much are as good as tangents, and matching them all at once is Newton's method: from where
answers are nearly certain it leaps, and further with every step. Along the way from where sites were matched a user's
log posterior is concave, and its slope at the end of the way is known, since there the prior balances the sites: users
who went past the top go back to it. Others hardly come near it: on the flank of σʷ Newton's method goes by 1 a step.
Then sites say something else than the answers where they meet the prior, and `apart` tells who that is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.inference.propagation import Sites, refine
from prefkin.inference.quadratics import Signed

__all__ = ["CHANCE", "SAFE", "apart", "farthest", "heavy", "held_back", "improved"]

SAFE = 2.0  # change of a margin up to which σ bends so little that steps need no check
HALVINGS = 20  # of the way, to find where it should have ended
HEAVY = 10.0  # times that an answer was given, from which its site may take many rounds
CHANCE = 3.0  # log-likelihood, beside ½ for each parameter, by which matched sites and answers may differ


def improved(sites: Sites, data: Signed, mean: FloatArray, variance: FloatArray, step: float = 1.0) -> Sites:
    """Sites matched to margins believed to be N(mean, variance), by `step` of the way (`propagation.refine`)."""
    sites, mean = held_back(sites, data, mean, variance)
    return refine(sites, data.weights, mean, variance, step, data.offset, data.total)


def held_back(sites: Sites, data: Signed, mean: FloatArray, variance: FloatArray) -> tuple[Sites, FloatArray]:
    """Sites and means of margins: set back for users who leapt past what explains their answers best."""
    way = mean - sites.at
    far = np.flatnonzero(farthest(way, data.starts) > SAFE)
    if not far.size:
        return sites, mean

    def slopes(users: IntArray) -> tuple[IntArray, IntArray, Callable[[FloatArray], FloatArray]]:
        """Rows of users, whose they are, and the slope after some share of the way."""
        rows = data.rows_of(users)
        ends = np.concatenate([[0], np.cumsum(np.diff(data.starts)[users])])
        owner = np.repeat(np.arange(len(users)), np.diff(ends))
        some, known = sites.of(rows), None if data.offset is None else data.offset[rows]
        balance = _per_user(np.add, (some.pull - some.precision * mean[rows]) * way[rows], ends)

        def slope(share: FloatArray) -> FloatArray:
            back = (share[owner] - 1.0) * way[rows]
            new, reached = some._replace(pull=some.pull + some.precision * back), mean[rows] + back
            new = refine(new, data.weights[rows], reached, variance[rows], offset=known, total=data.total[rows])
            return _per_user(np.add, (new.pull - new.precision * reached) * way[rows], ends) - balance

        return rows, owner, slope

    rows, owner, slope = slopes(far)
    promised = np.bincount(owner, sites.precision[rows] * way[rows] ** 2, len(far))  # the slope at the start
    leapt = far[slope(np.ones(len(far))) < -0.5 * promised]
    if not leapt.size:
        return sites, mean
    rows, owner, slope = slopes(leapt)
    low, high = np.zeros(len(leapt)), np.ones(len(leapt))
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        rising = slope(middle) > 0.0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    back = np.zeros(len(mean))
    back[rows] = (low[owner] - 1.0) * way[rows]
    return sites._replace(pull=sites.pull + sites.precision * back), mean + back


def apart(sites: Sites, data: Signed, mean: FloatArray) -> IntArray:
    """Users whose sites and answers say different things at these margins: more so than where sites are matched.

    Only where an answer counts much: sites of others are soon matched, better than by Laplace's approximation.

    >>> two = Signed(np.ones((2, 1)), np.full(2, 1e6), np.array([0, 1, 2]))
    >>> tangents = Sites.tangent(two.weights, np.array([0.0, 8.0]))
    >>> apart(tangents, two, np.array([0.1, 9.0])).tolist()
    [1]
    """
    some = heavy(data)
    if not some.any():
        return np.empty(0, dtype=np.intp)
    inside = mean if data.offset is None else mean + data.offset
    said = sites.level + (sites.pull - 0.5 * sites.precision * mean) * mean
    off = np.abs(_per_user(np.add, said + data.weights * np.logaddexp(0.0, -inside), data.starts))
    return np.flatnonzero(some & (off > CHANCE + 0.5 * np.minimum(data.answers, data.dim)))


def heavy(data: Signed) -> BoolArray:
    """Users of whom an answer counts so much that its site may take many rounds, (U,)."""
    return farthest(data.total, data.starts) > HEAVY


def farthest(way: FloatArray, starts: IntArray) -> FloatArray:
    """The longest way of any of each user's margins, (U,)."""
    return _per_user(np.maximum, np.abs(way), starts)


def _per_user(reduce: np.ufunc, values: FloatArray, starts: IntArray) -> FloatArray:
    found, used = np.zeros(len(starts) - 1), np.flatnonzero(np.diff(starts))
    found[used] = reduce.reduceat(values, starts[used]) if used.size else 0.0
    return found
