"""Each user's log-likelihood as a quadratic, matched to what is believed about the user.

With rows x = (2y − 1) z, an answer's likelihood is σ(m) in its margin m = xᵀθ. Expectation propagation replaces it by a
site exp(level + pull·m − precision·m²/2) that gives the same mass, mean and variance of m under what all *other* rows
say about it. A user's log-likelihood is then

    log p(answers | θ) ≈ const + cᵀθ − θᵀHθ/2,   H = Σ precision x xᵀ = Vᵀ diag(h) V,   c = Σ pull x = Vᵀ b,

kept as directions V (rows) of rank at most min(N, d). A Gaussian prior N(m, τ² I) on θ can then be integrated out
exactly: every formula below is a diagonal operation along V.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.special import ndtr

from prefkin.comparisons import FloatArray, IntArray, UserRows
from prefkin.progress import for_each

__all__ = ["Quadratic", "Quadratics", "Signed", "Sites", "expand", "per_user_sum", "refine"]

# σ(x) ≈ Σ p Φ(s x), to 1e-6 (Monahan and Stefanski, 1992): moments of σ under a normal law in closed form
_SHARES = np.array(
    [0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818,
     0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354]
)  # fmt: skip
_SLOPES = np.array(
    [1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391,
     0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306]
)  # fmt: skip
STACKED_UP_TO = 64  # features: below, all users' matrices are decomposed in one call
SINGLE_FROM = 256  # features: from here single precision holds the directions; sums of scalars stay double
ROWS_AT_ONCE = 1 << 16
HELD = 1 << 25  # numbers: matrices of all users are held for the next use if they are fewer


@dataclass(frozen=True, eq=False)
class Signed:
    """Users' rows (2y − 1) z, as if the first action had always been preferred; one user's after another's."""

    X: FloatArray  # (n, d)
    weights: FloatArray  # (n,)
    starts: IntArray  # (U + 1,) user u owns rows starts[u]:starts[u + 1]

    @classmethod
    def of_users(cls, users: UserRows, scale: FloatArray | float = 1.0) -> Signed:
        """With features divided by `scale`."""
        kind = np.float32 if users.dim >= SINGLE_FROM else np.float64
        X = users.rows.signed()
        X /= scale
        return cls(X.astype(kind, copy=False), users.rows.weights, users.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.X.shape[1]

    @cached_property
    def owner(self) -> IntArray:
        """(n,) the user of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def own(self, user: int) -> slice:
        """Where a user's rows are."""
        return slice(int(self.starts[user]), int(self.starts[user + 1]))

    def some(self, users: Sequence[int] | IntArray) -> Signed:
        """A few of the users."""
        rows = np.concatenate([np.arange(self.starts[u], self.starts[u + 1]) for u in users])
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[np.asarray(users)])])
        return Signed(self.X[rows], self.weights[rows], starts.astype(np.intp))


class Sites(NamedTuple):
    """Each row's likelihood as level + pull·m − precision·m²/2 in its margin m."""

    precision: FloatArray  # (n,)
    pull: FloatArray  # (n,)
    level: FloatArray  # (n,)

    @classmethod
    def start(cls, weights: FloatArray) -> Sites:
        """log σ(m) around m = 0, for rows counted `weights` times."""
        return cls(weights / 4.0, weights / 2.0, -np.log(2.0) * weights)


def refine(sites: Sites, weights: FloatArray, mean: FloatArray, variance: FloatArray, step: float = 1.0) -> Sites:
    """Sites matched to margins believed to be N(mean, variance), one copy of the row itself taken out.

    All sites move at once, which overshoots when many rows say the same: `step` is the share of the way to go.

    >>> first = Sites.start(np.ones(1))
    >>> one = refine(first, np.ones(1), first.pull / 1.25, np.ones(1) / 1.25)  # one answer, before it m ~ N(0, 1)
    >>> round(float(one.level[0] + one.pull[0]**2 / 2 / (1 + one.precision[0]) - np.log1p(one.precision[0]) / 2), 6)
    -0.693147
    """
    found = tuple(np.empty(len(mean)) for _ in range(3))
    for start in range(0, len(mean), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        few = np.maximum(weights[rows], 1e-300)
        precision, pull = sites.precision[rows] / few, sites.pull[rows] / few
        # what others say; the mixture over blocks is no Gaussian, so that this might come out negative
        known = 1.0 / np.maximum(variance[rows], 1e-300)
        left = np.maximum(known - precision, 0.02 * known)
        spread, middle = 1.0 / left, (known * mean[rows] - pull) / left
        log_mass, new_precision, new_pull = _matched(middle, spread)
        precision = precision + step * (new_precision - precision)
        pull = pull + step * (new_pull - pull)
        # the site's own mass under what others say is that of σ
        level = log_mass + 0.5 * np.log1p(spread * precision)
        level -= 0.5 * (spread * pull**2 + 2.0 * pull * middle - precision * middle**2) / (1.0 + spread * precision)
        for target, values in zip(found, (precision, pull, level), strict=True):
            target[rows] = weights[rows] * values
    return Sites(*found)


def _matched(mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log mass of σ(m) when m ~ N(mean, variance); precision and pull of the site that gives the same moments."""
    widen = 1.0 / np.sqrt(1.0 + np.outer(variance, _SLOPES**2))
    at = np.maximum((mean[:, None] * _SLOPES) * widen, -37.0)
    mass = ndtr(at) @ _SHARES
    bell = np.exp(-0.5 * at**2) * widen / np.sqrt(2.0 * np.pi)
    slope = bell @ (_SHARES * _SLOPES) / mass  # d log mass / d mean
    curvature = slope**2 + (at * bell * widen) @ (_SHARES * _SLOPES**2) / mass  # −d² log mass / d mean²
    curvature = np.clip(curvature, 1e-10, (1.0 - 1e-9) / variance)
    precision = curvature / (1.0 - variance * curvature)
    return np.log(mass), precision, slope * (1.0 + variance * precision) + precision * mean


@dataclass(frozen=True, eq=False)
class Quadratic:
    """const + cᵀθ − θᵀHθ/2, with H = Vᵀ diag(h) V and c = Vᵀ b."""

    V: FloatArray  # (r, d) orthonormal rows
    h: FloatArray  # (r,)
    b: FloatArray  # (r,)
    const: float

    def shrink(self, variance: float) -> FloatArray:
        """1 / (1 + τ² h): how much of the prior is left along each direction."""
        return 1.0 / (1.0 + variance * self.h)

    def along(self, rows: FloatArray) -> FloatArray:
        """Rows in the user's directions, (n, r)."""
        return np.asarray(rows.astype(self.V.dtype, copy=False) @ self.V.T)

    def keep(self, rows: FloatArray, variance: float, along: FloatArray | None = None) -> FloatArray:
        """G row = (I + τ²H)⁻¹ row: how a change of the prior's mean reaches the posterior mean."""
        along = self.along(rows) if along is None else along
        lost = (along * (1.0 - self.shrink(variance)).astype(self.V.dtype)) @ self.V
        return np.subtract(rows, lost, out=lost) if rows.dtype == lost.dtype else rows - lost

    def posterior_mean(self, mean: FloatArray, variance: float) -> FloatArray:
        """E θ when θ ~ N(mean, τ² I)."""
        at, shrink = self.V @ mean, self.shrink(variance)
        return mean + (shrink * (at + variance * self.b) - at) @ self.V

    def own_variance(self, rows: FloatArray, variance: float, along: FloatArray) -> FloatArray:
        """rowᵀ (H + I/τ²)⁻¹ row for each row: what the user's own answers leave open."""
        open_ = variance * (np.einsum("ij,ij->i", rows, rows) - along**2 @ (1.0 - self.shrink(variance)))
        return np.maximum(open_, 0.0)


@dataclass(frozen=True, eq=False)
class Quadratics:
    """Many users' quadratics, the directions of one user after those of another."""

    V: FloatArray  # (R, d) R the sum of all ranks
    h: FloatArray  # (R,)
    b: FloatArray  # (R,)
    const: FloatArray  # (U,)
    starts: IntArray  # (U + 1,) user u owns directions starts[u]:starts[u + 1]
    held: dict[float, tuple[FloatArray, FloatArray]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.const)

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.V.shape[1]

    @cached_property
    def owner(self) -> IntArray:
        """(R,) the user of each direction."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def one(self, user: int) -> Quadratic:
        """A single user's, as views."""
        own = slice(self.starts[user], self.starts[user + 1])
        return Quadratic(self.V[own], self.h[own], self.b[own], float(self.const[user]))

    def between(self, users: slice) -> Quadratics:
        """Those at consecutive positions, as views."""
        first, last, _ = users.indices(len(self))
        own = slice(self.starts[first], self.starts[last])
        starts = self.starts[first : last + 1] - self.starts[first]
        return Quadratics(self.V[own], self.h[own], self.b[own], self.const[users], starts)

    def some(self, users: IntArray) -> Quadratics:
        """A few, in the order given."""
        own = np.concatenate([np.arange(self.starts[u], self.starts[u + 1]) for u in users])
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[users])]).astype(np.intp)
        return Quadratics(self.V[own], self.h[own], self.b[own], self.const[users], starts)

    def levels(self, variance: float) -> FloatArray:
        """log ∫ exp(quadratic) N(θ; 0, τ² I) dθ of everybody, (U,)."""
        gain = variance * self.b**2 / (1.0 + variance * self.h)
        return self.const + 0.5 * per_user_sum(gain - np.log1p(variance * self.h), self.starts)

    def evidences(self, mean: FloatArray, variance: float) -> FloatArray:
        """log ∫ exp(quadratic) N(θ; mean, τ² I) dθ of everybody, (U,)."""
        at, shrink = (self.V @ mean.astype(self.V.dtype)).astype(np.float64), 1.0 / (1.0 + variance * self.h)
        return self.levels(variance) + per_user_sum(shrink * (self.b * at - 0.5 * self.h * at**2), self.starts)

    def pulls(self, variance: float) -> FloatArray:
        """a = (I + τ²H)⁻¹ c of everybody, the linear term in the prior's mean, (U, d)."""
        if variance in self.held:
            return self.held[variance][1]
        return self._combine(self.b / (1.0 + variance * self.h))

    def posterior_means(self, means: FloatArray, variance: float, trust: FloatArray) -> FloatArray:
        """trust × E θ when θ ~ N(means / trust, τ² I), for everybody at once, (U, d)."""
        at = self._project(means)
        shrink = 1.0 / (1.0 + variance * self.h)
        return means + self._combine(shrink * (at + variance * self.b * trust[self.owner]) - at)

    def _project(self, means: FloatArray) -> FloatArray:
        """Each user's mean along each of the user's directions, (R,)."""
        few = means.astype(self.V.dtype, copy=False)
        if (np.diff(self.starts) == self.dim).all():
            found = np.matmul(self.V.reshape(-1, self.dim, self.dim), few[:, :, None]).ravel()
        else:
            found = np.concatenate([np.empty(0, self.V.dtype), *(v @ mean for mean, v in self._split(few))])
        return np.asarray(found, dtype=np.float64)

    def _combine(self, weights: FloatArray) -> FloatArray:
        """Σ over each user's directions of weight × direction, (U, d)."""
        size, weights = np.diff(self.starts), weights.astype(self.V.dtype, copy=False)
        if (size == self.dim).all():
            found = np.matmul(weights.reshape(-1, 1, self.dim), self.V.reshape(-1, self.dim, self.dim))[:, 0]
        else:
            each = (weights[self.starts[u] : self.starts[u + 1]] for u in range(len(self)))
            found = np.array([w @ v for w, v in self._split(each)]).reshape(len(self), self.dim)
        return np.asarray(found, dtype=np.float64)

    def _split(self, each: Iterable[FloatArray]) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Something of each user's, with the user's directions."""
        return ((mine, self.V[a:b]) for mine, a, b in zip(each, self.starts[:-1], self.starts[1:], strict=True))

    def curvatures(self, variance: float) -> FloatArray:
        """A = H (I + τ²H)⁻¹ of everybody, the information about the prior's mean, (U, d, d)."""
        return self.held[variance][0] if variance in self.held else self._curvatures(variance)

    def _curvatures(self, variance: float) -> FloatArray:
        root = np.sqrt(self.h / (1.0 + variance * self.h)).astype(self.V.dtype)
        if self.dim <= STACKED_UP_TO and (np.diff(self.starts) == self.dim).all():
            scaled = (root[:, None] * self.V).reshape(len(self), self.dim, self.dim)
            return np.matmul(scaled.transpose(0, 2, 1), scaled)

        def one(user: int) -> FloatArray:
            own = slice(self.starts[user], self.starts[user + 1])
            scaled = root[own, None] * self.V[own]
            return scaled.T @ scaled

        return np.array(for_each(one, range(len(self)), label="information"))

    @property
    def may_hold(self) -> bool:
        """Whether everybody's matrix may be held in memory."""
        return len(self) * self.dim**2 <= HELD

    def hold(self, variance: float) -> None:
        """Hold everybody's terms for this τ², which will be asked for several times, instead of any other's."""
        if self.may_hold and variance not in self.held:
            self.held.clear()
            self.held[variance] = self._curvatures(variance), self.pulls(variance)

    def curvatures_of(self, variance: float, shares: FloatArray) -> FloatArray:
        """Σ_u share_u A_u for each column of shares, (K, d, d); nobody's matrix is made."""
        if variance in self.held:
            return np.tensordot(shares.T.astype(self.V.dtype), self.held[variance][0], 1)
        return np.array([self._curvature_of(variance, share) for share in shares.T]).reshape(-1, self.dim, self.dim)

    def _curvature_of(self, variance: float, share: FloatArray) -> FloatArray:
        weight = share[self.owner]
        used = np.flatnonzero(weight)
        root = np.sqrt(weight[used] * self.h[used] / (1.0 + variance * self.h[used]))
        scaled = (self.V if len(used) == len(weight) else self.V[used]) * root[:, None].astype(self.V.dtype)
        return scaled.T @ scaled


def per_user_sum(values: FloatArray, starts: IntArray) -> FloatArray:
    """Σ over each user's stretch of `values`; 0 for an empty stretch.

    >>> per_user_sum(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3])).tolist()
    [3.0, 0.0, 4.0]
    """
    total = np.zeros((len(starts) - 1, *values.shape[1:]))
    used = np.flatnonzero(np.diff(starts))
    if used.size:
        total[used] = np.add.reduceat(values, starts[used], axis=0)
    return total


def expand(data: Signed, sites: Sites) -> Quadratics:
    """Everybody's quadratic from the sites of their rows.

    >>> one = Signed(np.array([[1.0, 0.0]]), np.ones(1), np.array([0, 1]))
    >>> found = expand(one, Sites.start(one.weights))
    >>> float(found.h.max()), float(found.one(0).posterior_mean(np.zeros(2), 4.0)[0])
    (0.25, 1.0)
    """
    V, h, starts = _directions(data, np.sqrt(sites.precision))
    b = np.empty(len(h))
    for user in range(len(data)):
        rows, own = data.own(user), slice(starts[user], starts[user + 1])
        b[own] = V[own] @ (sites.pull[rows].astype(data.X.dtype) @ data.X[rows])
    return Quadratics(V, h, b, per_user_sum(sites.level, data.starts), starts)


def _directions(data: Signed, root: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Eigenvectors (as rows) and eigenvalues of each user's Xᵀ diag(root²) X, and where each user's begin."""
    d, n_users = data.dim, len(data)
    if d <= STACKED_UP_TO:
        grams = np.empty((n_users, d, d))
        for user in range(n_users):
            own = data.own(user)
            scaled = data.X[own] * root[own, None]
            np.matmul(scaled.T, scaled, out=grams[user])
        h, Q = np.linalg.eigh(grams)
        V = np.ascontiguousarray(Q.transpose(0, 2, 1)).reshape(-1, d)
        return V, np.maximum(h, 0.0).ravel(), d * np.arange(n_users + 1)

    def one(user: int) -> tuple[FloatArray, FloatArray]:
        own = data.own(user)
        scaled = data.X[own] * root[own, None].astype(kind)
        if len(scaled) == 0:
            return np.empty((0, d), dtype=kind), np.empty(0)
        if len(scaled) < d:  # rank n: the smaller Gram matrix has the same eigenvalues
            scaled = scaled.astype(np.float64)  # small eigenvalues would spoil the directions below
            h, Q = eigh(scaled @ scaled.T, driver="evd", check_finite=False)
            real = h > 1e-13 * max(float(h[-1]), 1e-300)
            return ((Q[:, real] / np.sqrt(h[real])).T @ scaled).astype(kind), h[real]
        h, Q = eigh(scaled.T @ scaled, driver="evd", overwrite_a=True, check_finite=False)
        return Q.T, np.maximum(h, 0.0).astype(np.float64)

    kind = data.X.dtype
    found = for_each(one, range(n_users), label="users as quadratics")
    starts = np.concatenate([[0], np.cumsum([len(h) for _, h in found])]).astype(np.intp)
    return np.concatenate([V for V, _ in found]), np.concatenate([h for _, h in found]), starts
