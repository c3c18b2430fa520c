"""What one user's answers leave open, under a prior whose scale is learnt from everybody.

    θ_u ~ N(0, τ² I),    p(answers | θ) = Π σ(xᵀθ)^w,   x = (2y − 1) z

Expectation propagation (`inference.propagation`) replaces each factor by a Gaussian site of precision s, so that the
posterior is N(m, P) with P⁻¹ = Σ s x xᵀ + I/τ², and gives the evidence from which τ² is learnt. The Hessian at the
estimate and variational bounds make τ², and radii with it, too small when answers are few or nearly certain
(docs/decisions/0006-off-c2pl-in-practice.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

from prefkin.data.arrays import FloatArray, above_zero
from prefkin.data.rows import Rows, UserRows
from prefkin.execution.executor import for_each, threads
from prefkin.inference.information import ball_radius
from prefkin.inference.propagation import Sites, refine

__all__ = [
    "Beliefs",
    "Posterior",
    "Scale",
    "believe",
    "calibrated_radii",
    "calibrated_width",
    "learn_scale",
    "mean_square",
]

SPREADS = np.geomspace(0.03, 1000.0, 27)  # τ² times the mean ‖z‖²: the prior variance of a margin
NEGLIGIBLE = 1e-3  # probability of a τ² that is left out
DAMPING, LEAST_DAMPING = 0.8, 0.1  # share of the way that sites move
MOST_ROUNDS = 100
CLOSE, ROUGHLY = 1e-5, 1e-3  # change of one answer's site when they are found; when only τ² is sought
COARSE = 3  # every third of `SPREADS` is tried first
HOPELESS = 12.0  # log evidence below the best at which there is no need to look closer
KEPT = 2**24  # numbers that may be kept to save work
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


@dataclass(frozen=True, eq=False)
class Posterior:
    """N(m, P) of one user, in the span of the user's rows; outside of it the prior stands."""

    basis: FloatArray | None  # (d, r) orthonormal; None: all directions
    root: FloatArray  # (r, r) lower triangular L, P⁻¹ = L Lᵀ within the span
    pull: FloatArray  # (r,) L⁻¹ Σ pull x, so that m = L⁻ᵀ pull
    sites: Sites  # of the rows (2y − 1) z
    evidence: float
    variance: float  # τ²

    @property
    def mean(self) -> FloatArray:
        """m, shape (d,)."""
        within: FloatArray = solve_triangular(self.root, self.pull, lower=True, trans="T")
        return within if self.basis is None else self.basis @ within

    def moments(self, centre: FloatArray) -> tuple[float, float]:
        """Mean of ‖θ − centre‖² and half its variance: tr P + ‖o‖² and tr P² + 2 oᵀPo with o = m − centre."""
        inverse = solve_triangular(self.root, np.eye(len(self.root)), lower=True)
        off = self.mean - centre
        along = off if self.basis is None else off @ self.basis
        outside = 0 if self.basis is None else len(off) - len(along)
        t, rest = self.variance, max(float(off @ off - along @ along), 0.0) if outside else 0.0
        P = inverse.T @ inverse
        first = float(np.trace(P)) + outside * t + float(off @ off)
        second = float((P * P).sum()) + outside * t**2 + 2.0 * (float(along @ P @ along) + t * rest)
        return first, second


def believe(users: UserRows, user: int, variance: float) -> Posterior:
    """The posterior of one user under N(0, τ² I), by damped parallel expectation propagation.

    >>> rows = Rows(np.array([[1.0, 0.0]]), np.ones(1), np.ones(1))
    >>> one = believe(UserRows(rows, np.array([0, 1]), np.array(["ann"])), 0, 1.0)
    >>> one.mean.round(3).tolist(), round(one.evidence, 6) == round(float(np.log(0.5)), 6)
    ([0.413, 0.0], True)
    """
    return next(_along(users, user, [variance]))


def _along(users: UserRows, user: int, variances: Iterable[float], close: float = CLOSE) -> Iterator[Posterior]:
    """The posterior for one τ² after the other, each from the sites of the one before."""
    rows, own = users.of(user), slice(users.starts[user], users.starts[user + 1])
    total = rows.weights if users.repeated is None else users.repeated[own]
    (X, basis), sites = _within_span(rows.signed()), None
    for variance in variances:
        found = _propagate(X, basis, rows.weights, total, float(variance), sites, close)
        sites = found.sites
        yield found


def _within_span(X: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """Rows in coordinates of their span when that is smaller."""
    if len(X) >= X.shape[1]:
        return X, None
    left, size, right = np.linalg.svd(X, full_matrices=False)
    return left * size, right.T


def _propagate(
    X: FloatArray,
    basis: FloatArray | None,
    weights: FloatArray,
    total: FloatArray,  # how often each answer was given, in all rows that say the same
    variance: float,
    sites: Sites | None,
    close: float,
) -> Posterior:
    r, copies = X.shape[1], above_zero(weights)
    sites = Sites.start(weights, variance * np.einsum("ij,ij->i", X, X)) if sites is None else sites
    damping, last = DAMPING, np.inf
    for _ in range(MOST_ROUNDS):
        inverse = (X * sites.precision[:, None]).T @ X
        inverse[np.diag_indices(r)] += 1.0 / variance
        root = cholesky(inverse, lower=True, check_finite=False)
        spread = solve_triangular(root, X.T, lower=True, check_finite=False)
        pull = solve_triangular(root, X.T @ sites.pull, lower=True, check_finite=False)
        # a row of zeros has no margin to learn about
        margin, margin_variance = spread.T @ pull, np.maximum(np.einsum("ij,ij->j", spread, spread), 1e-10)
        moved = refine(sites, weights, margin, margin_variance, damping, total=total)
        steps = (np.abs(new - old) / copies for new, old in zip(moved[:2], sites[:2], strict=True))
        change = max(float(step.max(initial=0.0)) for step in steps) / damping
        if change < close:
            break
        # many rows alike, all moved at once, overshoot: then move less
        damping, last = damping if change < 0.9 * last else max(damping / 2.0, LEAST_DAMPING), change
        sites = moved
    # where they are, with the levels that belong there
    sites = refine(sites, weights, margin, margin_variance, 0.0, total=total)
    normal = 0.5 * float(pull @ pull) - float(np.log(np.diag(root)).sum()) - 0.5 * r * float(np.log(variance))
    return Posterior(basis, root, pull, sites, float(sites.level.sum()) + normal, variance)


def learn_scale(users: UserRows, asked: Sequence[int] | None = None) -> Scale:
    """τ² from the evidence of everybody's answers (of those `asked`), flat in log τ² over `SPREADS`.

    >>> rng = np.random.default_rng(0)
    >>> Z, owner = rng.standard_normal((600, 3)), np.repeat(np.arange(20), 30)
    >>> y = (rng.random(600) < 1 / (1 + np.exp(-2 * Z[:, 0]))).astype(float)
    >>> rows = UserRows(Rows(Z, y, np.ones(600)), np.arange(0, 601, 30), np.arange(20))
    >>> bool(0.7 < learn_scale(rows).typical < 2.5)            # ‖θ‖² / d is 4 / 3
    True
    """
    grid = SPREADS / (mean_square(users) or 1.0)

    heard = [user for user in (range(len(users)) if asked is None else asked) if len(users.of(user).y)]
    if not heard:
        return Scale(grid[:1], np.ones(1))

    def evidence(points: list[int]) -> FloatArray:
        def of(user: int) -> list[float]:
            return [found.evidence for found in _along(users, user, grid[points], ROUGHLY)]

        # sorted sums: the order of users must not decide the last digit
        return np.sort(for_each(of, heard, label="scale of preferences"), axis=0).sum(axis=0)

    total = np.full(len(grid), -np.inf)
    coarse = list(range(0, len(grid), COARSE))
    total[coarse] = evidence(coarse)
    likely = np.flatnonzero(total > total.max() - HOPELESS)
    near = np.abs(np.arange(len(grid))[:, None] - likely).min(axis=1) < COARSE
    fine = [int(k) for k in np.flatnonzero(near & np.isinf(total))]
    total[fine] = evidence(fine)
    chance = np.exp(total - total.max())
    chance /= chance.sum()
    real = chance > NEGLIGIBLE
    return Scale(grid[real], chance[real] / chance[real].sum())


def mean_square(users: UserRows) -> float:
    """Mean ‖z‖²: times τ² it is the variance of margins."""
    weights = above_zero(users.rows.weights)
    return float(np.average(np.einsum("ij,ij->i", users.rows.Z, users.rows.Z), weights=weights))


def calibrated_radii(users: UserRows, theta: FloatArray, scale: Scale, *, level: float) -> FloatArray:
    """For each user the radius around `theta[u]` that holds the preference with probability `level`, shape (U,).

    Moments of ‖θ − θ̂‖² are averaged over what is believed about τ²; a Gamma law with these moments gives the quantile.
    """

    def radius(user: int) -> float:
        first, second = np.array([found.moments(theta[user]) for found in _along(users, user, scale.values)]).T
        mean = float(scale.weights @ first)
        square = float(scale.weights @ (second + 0.5 * (first - mean) ** 2))
        return ball_radius(mean, square, level)

    return np.array(for_each(radius, range(len(users)), label="radii"))


def calibrated_width(rows: Rows, theta: FloatArray, information: FloatArray, scale: Scale, *, level: float) -> float:
    """The width within which ‖θ − theta‖ in the norm of `information` stays with probability `level`.

    The squared norm of a normal error N(o, P) has mean tr MP + oᵀMo and variance 2 tr (MP)² + 4 oᵀMPMo.
    """
    one = UserRows(rows, np.array([0, len(rows.y)]), np.zeros(1, dtype=np.intp))
    beliefs = Beliefs.of(one, scale.typical)
    MP = information @ beliefs.covariance(0)
    off = beliefs.mean[0] - theta
    image = information @ off
    mean = float(np.trace(MP)) + float(off @ image)
    square = float((MP * MP.T).sum()) + 2.0 * float(image @ beliefs.covariance(0) @ image)
    return ball_radius(mean, square, level)


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
        found = for_each(lambda user: believe(users, user, variance), range(len(users)), label="beliefs")
        sites = np.concatenate([one.sites.precision for one in found])
        return cls(users, variance, np.array([one.mean for one in found]), sites)

    def joined(self, other: Beliefs) -> Beliefs:
        """These users and then those of `other`, under the same τ²."""
        mine, theirs = self.users, other.users
        starts = np.concatenate([mine.starts, mine.starts[-1] + theirs.starts[1:]])
        users = UserRows(Rows.join([mine.rows, theirs.rows]), starts, np.arange(len(mine) + len(theirs)))
        return Beliefs(
            users, self.variance, np.vstack([self.mean, other.mean]), np.concatenate([self.sites, other.sites])
        )

    def covariance(self, user: int) -> FloatArray:
        """P_u, shape (d, d)."""
        own = slice(self.users.starts[user], self.users.starts[user + 1])
        rows = self.users.rows
        scaled = rows.Z[own] * np.sqrt(self.sites[own])[:, None]
        d = scaled.shape[1]
        if len(scaled) < d:  # Woodbury: rank n
            dual = scaled @ scaled.T
            dual[np.diag_indices(len(scaled))] += 1.0 / self.variance
            inner: FloatArray = cho_solve(cho_factor(dual), scaled) if len(scaled) else scaled
            return self.variance * (np.eye(d) - scaled.T @ inner)
        precision = scaled.T @ scaled
        precision[np.diag_indices(d)] += 1.0 / self.variance
        inverse: FloatArray = cho_solve(cho_factor(precision), np.eye(d))
        return (inverse + inverse.T) / 2.0

    @cached_property
    def _kept(self) -> list[FloatArray] | None:
        n_users, d = self.mean.shape
        return [self.covariance(user) for user in range(n_users)] if n_users * d * d <= KEPT else None

    def distances(self, user: int) -> FloatArray:
        """√(q / E q) to every v, with q = (m_u − m_v)ᵀ (P_u + P_v)⁻¹ (m_u − m_v): O(U d³), once for each user asked.

        E q is what to expect of two users who want the same: their difference m_u − m_v then has covariance
        P_u + P_v − (P_u P_v + P_v P_u)/τ², so E q = d − 2 tr((P_u + P_v)⁻¹ P_u P_v)/τ², the number of directions that
        are known. Where neither is known both means are 0 and agree for free: divided by d, that passes for likeness.
        """
        if user not in self._known:
            kept, d = self._kept, self.mean.shape[1]
            covariance = self.covariance if kept is None else kept.__getitem__
            mine = covariance(user)

            def distance(other: int) -> float:
                if other == user:
                    return 0.0
                gap, theirs = self.mean[user] - self.mean[other], covariance(other)
                solved = cho_solve(cho_factor(mine + theirs), np.column_stack([mine, gap]))
                known = d - 2.0 * float((solved[:, :-1].T * theirs).sum()) / self.variance
                return float(np.sqrt(gap @ solved[:, -1] / max(known, 1e-9 * d)))

            with threads(1) if d < THREADED_FROM else nullcontext():
                row = for_each(distance, range(len(self.mean)), label="distances")
            self._known[user] = np.array(row)
        return self._known[user]
