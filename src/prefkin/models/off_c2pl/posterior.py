"""Each user's own posterior under a prior whose scale is learnt from everybody, for calibrated radii and distances.

    θ_u ~ N(0, τ² I),    p(y_i | θ_u) = σ(±z_iᵀθ_u)

The hierarchical model (`inference.model`) with a known mean of 0: expectation propagation gives Gaussian sites, the
posterior N(m_u, P_u) with P_u⁻¹ = Σ τ̃ zzᵀ + I/τ², and the evidence from which τ² is learnt. Laplace's approximation
and variational bounds make τ², and radii with it, too small when answers are few or nearly certain
(docs/decisions/0006-off-c2pl-in-practice.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray, above_zero
from prefkin.data.rows import Rows, UserRows, only
from prefkin.execution.executor import for_each, threads
from prefkin.inference.ep import Convergence, Fit, Sites, run
from prefkin.inference.information import ball_radius
from prefkin.inference.likelihood import Logistic
from prefkin.inference.model import Design, Groups, Population

__all__ = [
    "Beliefs",
    "Scale",
    "calibrated_radii",
    "calibrated_width",
    "learn_scale",
    "log_evidence",
    "mean_square",
    "posteriors",
]

MARGIN_VARIANCES = np.geomspace(0.03, 1000.0, 27)  # prior variances of a margin at which evidence is computed
NEGLIGIBLE = 1e-3  # probability of a τ² that is left out
CLOSE = Convergence(max_iter=300, tol=1e-8)  # for posteriors, and
ROUGH = Convergence(max_iter=100, tol=1e-3)  # for evidence, which does not change to first order with the sites
THREADED_FROM = 64  # features: below, a distance takes less time than handing it to a thread


@dataclass(frozen=True, eq=False)
class Scale:
    """What is believed about τ²: a few values and their probabilities."""

    values: FloatArray  # (K,)
    weights: FloatArray  # (K,)

    @cached_property
    def typical(self) -> float:
        """One value to stand for all: the geometric mean."""
        return float(np.exp(self.weights @ np.log(self.values)))

    @property
    def table(self) -> FloatArray:
        """For a file: a row for each value, (K, 2)."""
        return np.stack([self.values, self.weights], axis=1)

    @classmethod
    def of_table(cls, arrays: Mapping[str, FloatArray]) -> Scale | None:
        """The one among a file's arrays, where there is one."""
        return cls(*np.ascontiguousarray(arrays["scale"].T)) if "scale" in arrays else None


def posteriors(users: UserRows, variances: FloatArray, rules: Convergence) -> Iterator[tuple[Design, Fit]]:
    """Everybody's posterior for one τ² after the other, each from the sites of the one before.

    The prior is the same in all directions: rows may stand in coordinates of each user's own span.
    """
    Z, y, weights = users.rows
    design = Design(Logistic(), _in_own_span(Z, users.starts), y, weights, users.starts, np.zeros(len(y)))
    d, share = design.dim, np.ones((len(users), 1))
    zero = Groups(np.zeros((1, d)), np.zeros((1, d, d)), np.zeros(d), np.zeros((d, d)))
    sites = Sites.start(design, float(variances[0]) * design.size)
    for t2 in variances.tolist():
        fit = run(design, sites, share, Population(t2, t2, t2, zero.m0), groups=zero, rules=rules)
        sites = fit.sites
        yield design, fit


def _in_own_span(Z: FloatArray, starts: IntArray) -> FloatArray:
    """Rows in orthonormal coordinates of the span of their user's rows, where nobody's rows span all features."""
    most = int(np.diff(starts).max(initial=0))
    if most >= Z.shape[1]:
        return np.ascontiguousarray(Z, dtype=np.float64)
    X = np.zeros((len(Z), most))
    for first, end in pairwise(starts.tolist()):
        X[first:end, : end - first] = triangular(Z[first:end].T).T
    return X


def triangular(A: FloatArray) -> FloatArray:
    """R of A = QR."""
    R: FloatArray = np.linalg.qr(A, mode="r")  # type: ignore[assignment]
    return R


def _inverse(A: FloatArray, variance: float) -> FloatArray:
    """(I + τ² AAᵀ)⁻¹ or (I + τ² AᵀA)⁻¹, whichever is smaller."""
    gram = A @ A.T if len(A) < A.shape[1] else A.T @ A
    return np.asarray(np.linalg.inv(np.eye(len(gram)) + variance * gram), dtype=np.float64)


def _solved(A: FloatArray, inverse: FloatArray, variance: float, x: FloatArray) -> FloatArray:
    """(I + τ² AᵀA)⁻¹ x by that inverse (Woodbury)."""
    return inverse @ x if len(inverse) == A.shape[1] else x - variance * A.T @ (inverse @ (A @ x))


def learn_scale(users: UserRows, asked: Sequence[int] | None = None) -> Scale:
    """τ² from the evidence of everybody's answers (of those `asked`), flat in log τ² over `MARGIN_VARIANCES`.

    >>> rng = np.random.default_rng(0)
    >>> Z, owner = rng.standard_normal((600, 3)), np.repeat(np.arange(20), 30)
    >>> y = (rng.random(600) < 1 / (1 + np.exp(-2 * Z[:, 0]))).astype(float)
    >>> rows = UserRows(Rows(Z, y, np.ones(600)), np.arange(0, 601, 30), np.arange(20))
    >>> bool(0.7 < learn_scale(rows).typical < 2.5)            # ‖θ‖² / d is 4 / 3
    True
    """
    grid = MARGIN_VARIANCES / (mean_square(users) or 1.0)
    some = users if asked is None else only(users, np.array(asked))
    # sorted sums: the order of users must not decide the last digit
    total = np.array([np.sort(log_evidence(*found)).sum() for found in posteriors(some, grid, ROUGH)])
    chance = np.exp(total - total.max())
    real = chance > NEGLIGIBLE * chance.sum()
    return Scale(grid[real], chance[real] / chance[real].sum())


def log_evidence(design: Design, fit: Fit) -> FloatArray:
    """(U,) log probability of each user's answers: Σ level + (Σ ν̃ E m − log|I + τ² Λ|) / 2."""
    A = design.X * np.sqrt(fit.sites.tau)[:, None]
    matched = np.bincount(design.owner, fit.sites.level + 0.5 * fit.sites.nu * fit.moments.mean, design.n_users)
    inverses = (_inverse(A[a:b], fit.population.within) for a, b in pairwise(design.starts.tolist()))
    return matched + 0.5 * np.array([np.linalg.slogdet(inverse)[1] for inverse in inverses])


def mean_square(users: UserRows) -> float:
    """Mean ‖z‖²: times τ² it is the variance of margins."""
    weights = above_zero(users.rows.weights)
    return float(np.average(np.einsum("ij,ij->i", users.rows.Z, users.rows.Z), weights=weights))


def calibrated_radii(users: UserRows, theta: FloatArray, scale: Scale, *, level: float) -> FloatArray:
    """For each user the radius around `theta[u]` that holds the preference with probability `level`, shape (U,).

    Moments of ‖θ − θ̂‖² are averaged over what is believed about τ²; a Gamma law with these moments gives the quantile.
    """
    first, second = (np.empty((len(scale.values), len(users))) for _ in range(2))
    for k, one in enumerate(Beliefs.along(users, scale.values)):
        for user, centre in enumerate(theta):
            first[k, user], second[k, user] = one.square_error(user, centre)
    mean = scale.weights @ first
    radii: FloatArray = ball_radius(mean, scale.weights @ (second + 0.5 * (first - mean) ** 2), level)
    return radii


def calibrated_width(rows: Rows, theta: FloatArray, information: FloatArray, scale: Scale, *, level: float) -> float:
    """The width within which ‖θ − theta‖ in the norm of `information` stays with probability `level`.

    The squared norm of a normal error N(o, P) has mean tr MP + oᵀMo and variance 2 tr (MP)² + 4 oᵀMPMo.
    """
    one = UserRows(rows, np.array([0, len(rows.y)]), np.zeros(1, dtype=np.intp))
    beliefs = Beliefs.of(one, scale.typical)
    P, off = beliefs.covariance(0), beliefs.mean[0] - theta
    MP, image = information @ P, information @ off
    square = float((MP * MP.T).sum()) + 2.0 * float(image @ P @ image)
    return float(ball_radius(float(np.trace(MP)) + float(off @ image), square, level))


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Every user's posterior under one τ², kept as one number per row; matrices are computed when asked for."""

    users: UserRows
    variance: float  # τ²
    mean: FloatArray  # (U, d)
    sites: FloatArray  # (n,) precision s of each row's site, so that P_u⁻¹ = Σ s z zᵀ + I/τ²
    _known: dict[int, FloatArray] = field(default_factory=dict)  # rows of distances

    @classmethod
    def of(cls, users: UserRows, variance: float) -> Beliefs:
        """From the users' rows."""
        return next(cls.along(users, np.array([variance])))

    @classmethod
    def along(cls, users: UserRows, variances: FloatArray) -> Iterator[Beliefs]:
        """Under one τ² after the other."""
        for _, fit in posteriors(users, variances, CLOSE):
            t2, rest = fit.population.within, fit.sites.nu - fit.sites.tau * fit.moments.mean
            means = [t2 * rest[a:b] @ users.rows.Z[a:b] for a, b in pairwise(users.starts.tolist())]
            yield cls(users, t2, np.array(means), fit.sites.tau)

    def joined(self, other: Beliefs) -> Beliefs:
        """These users and then those of `other`, under the same τ²."""
        mine, theirs = self.users, other.users
        starts = np.concatenate([mine.starts, mine.starts[-1] + theirs.starts[1:]])
        users = UserRows(Rows.join([mine.rows, theirs.rows]), starts, np.arange(len(mine) + len(theirs)))
        return Beliefs(
            users, self.variance, np.vstack([self.mean, other.mean]), np.concatenate([self.sites, other.sites])
        )

    @cached_property
    def _informative(self) -> list[FloatArray]:
        """A_u with A_uᵀA_u = Σ τ̃ zzᵀ of each user; no more rows than comparisons or features."""
        rows = self.users.rows.Z * np.sqrt(self.sites)[:, None]
        own = (rows[a:b] for a, b in pairwise(self.users.starts.tolist()))
        return [A if len(A) <= A.shape[1] else triangular(A) for A in own]

    def covariance(self, user: int) -> FloatArray:
        """P_u, shape (d, d)."""
        A, t2 = self._informative[user], self.variance
        P = t2 * _solved(A, _inverse(A, t2), t2, np.eye(A.shape[1]))
        return 0.5 * (P + P.T)

    def square_error(self, user: int, centre: FloatArray) -> tuple[float, float]:
        """Mean of ‖θ − centre‖² and half its variance: tr P + ‖o‖² and tr P² + 2 oᵀPo with o = m − centre."""
        A, t2, off = self._informative[user], self.variance, self.mean[user] - centre
        G = _inverse(A, t2)
        outside = A.shape[1] - len(G)
        first, second = outside + np.trace(G), outside + (G * G).sum()
        along = float(off @ _solved(A, G, t2, off))
        return float(t2 * first + off @ off), float(t2**2 * second + 2.0 * t2 * along)

    def distances(self, user: int) -> FloatArray:
        """√(q / E q) to every v, with q = (m_u − m_v)ᵀ (P_u + P_v)⁻¹ (m_u − m_v); once for each user asked.

        E q is what to expect of two users who want the same: their difference m_u − m_v then has covariance
        P_u + P_v − (P_u P_v + P_v P_u)/τ², so E q = d − 2 tr((P_u + P_v)⁻¹ P_u P_v)/τ², the number of directions that
        are known. Where neither is known both means are 0 and agree for free: divided by d, that passes for likeness.
        Both are computed from precisions: (P_u + P_v)⁻¹ = P_u⁻¹ (P_u⁻¹ + P_v⁻¹)⁻¹ P_v⁻¹.
        """

        def distance(other: int) -> float:
            if other == user:
                return 0.0
            A, B, half = self._informative[user], self._informative[other], 0.5 * self.variance
            gap, both = self.mean[user] - self.mean[other], np.concatenate([A, B])
            mine, theirs = (gap / self.variance + rows.T @ (rows @ gap) for rows in (A, B))
            inverse = _inverse(both, half)
            square = half * float(mine @ _solved(both, inverse, half, theirs))
            known = len(inverse) - float(np.trace(inverse))
            return float(np.sqrt(max(square, 0.0) / max(known, 1e-9 * len(gap))))

        if user not in self._known:
            with threads(1) if len(self.mean[0]) < THREADED_FROM else nullcontext():
                row = for_each(distance, range(len(self.mean)), label="distances")
            self._known[user] = np.array(row)
        return self._known[user]
