"""Who shares a preference: a mixture prior over users, by evidence.

    θ_u = N(m_k, τ² I) for u in block k,   m_k = N(m_0, ρ² I),   a loner: N(m_0, (τ² + ρ²) I),   m_0 = N(0, σ² I),

with a Chinese-restaurant prior (concentration 1) on who sits together. τ² small: groups of equals; one block with τ²
large: people who differ by degrees around a common mean ("cloud"); τ² → 0 in one block: everybody alike. With each user
a quadratic, the evidence of a set of users is a Gaussian integral over m_k that depends on sums over its users, so sets
are merged, joined and left cheaply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.special import gammaln

from prefkin.comparisons import FloatArray, IntArray
from prefkin.progress import for_each, in_one_order
from prefkin.quadratics import Belief, Quadratic, Quadratics, expand, expand_users

__all__ = ["Blocks", "Sums", "find_blocks", "fit_cloud", "place", "set_evidence", "solved"]

LEAST = 1e-6
MOST = 1e4
GRID = np.array([0.25, 0.5, 0.71, 0.84, 1.0, 1.19, 1.41, 2.0, 4.0])
WITHIN = np.array([3e-4, 0.003, 0.01, 0.02, 0.03, 0.045, 0.06, 0.09, 0.12, 0.18, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4])
STARTS = (0.02, 0.2)  # τ² as a share of the variance between users
ROUNDS = 4
LARGE = 100  # features from which work is shared among threads, and only likely blocks are looked at
CONTENDERS = 3
VERY_LARGE = 256  # features from which one start has to do: merging everybody costs U² d³
MOST_AGGLOMERATED = 200  # users; the rest are assigned to what was found


@dataclass(frozen=True, eq=False)
class Sums:
    """Σ over a set's users of the terms in its centre m: level + aᵀm − mᵀAm/2. Leading axes are several sets."""

    A: FloatArray  # (..., d, d)
    a: FloatArray  # (..., d)
    level: FloatArray  # (...,)

    def __getitem__(self, sets: Any) -> Sums:
        return Sums(self.A[sets], self.a[sets], self.level[sets])

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.A + other.A, self.a + other.a, self.level + other.level)


def set_evidence(sums: Sums, m0: FloatArray, between: float) -> FloatArray:
    """log ∫ exp(level + aᵀm − mᵀAm/2) N(m; m_0, ρ² I) dm for each set.

    With P = I + ρ²A and b = ρ²a + m_0 it is level − log|P|/2 + (bᵀP⁻¹b − m_0ᵀm_0) / 2ρ². One Cholesky factor of P
    bordered by b gives both: the last pivot is what bᵀP⁻¹b leaves of the corner.
    """
    d = sums.a.shape[-1]
    b = between * sums.a + m0
    corner = 1.0 + np.einsum("...i,...i->...", b, b)  # more than bᵀP⁻¹b, since P is at least I
    bordered = np.empty((*sums.a.shape[:-1], d + 1, d + 1))
    bordered[..., :d, :d] = between * sums.A
    bordered[..., np.arange(d), np.arange(d)] += 1.0
    bordered[..., d, :d] = bordered[..., :d, d] = b
    bordered[..., d, d] = corner
    pivots = np.diagonal(np.linalg.cholesky(bordered), axis1=-2, axis2=-1)
    quadratic = corner - pivots[..., d] ** 2
    value: FloatArray = sums.level - np.log(pivots[..., :d]).sum(-1) + 0.5 * (quadratic - m0 @ m0) / between
    return value


def _user_sums(users: Quadratics, within: float) -> Sums:
    each = [users.one(u) for u in range(len(users))]
    return Sums(
        np.array([q.curvature(within) for q in each]),
        np.array([q.pull(within) for q in each]),
        users.levels(within),
    )


def _weighted_sums(users: Quadratics, within: float, share: FloatArray) -> Sums:
    """Sums of each block when user u belongs to block k by share[u, k]; no user's matrix is kept."""
    both = [users.curvature_and_pull(within, column) for column in share.T]
    A = np.array([curvature for curvature, _ in both]).reshape(-1, users.dim, users.dim)
    a = np.array([pull for _, pull in both]).reshape(-1, users.dim)
    return Sums(A, a, users.levels(within) @ share)


@dataclass(frozen=True, eq=False)
class Blocks:
    """What is believed about all users."""

    users: Quadratics
    share: FloatArray  # (U, K) probability of each block; what is missing to 1 is the probability of standing alone
    m0: FloatArray  # (d,)
    within: float  # τ²
    between: float  # ρ²
    top: float  # σ²
    centres: FloatArray  # (K, d)
    doubt: FloatArray  # (K, d, d) covariance of each centre
    parts: FloatArray  # (K + 1, U, d) posterior mean of each user if in block k; last: alone
    sums: Sums  # of each block's users, in its centre
    basis: list[Belief]  # around which the users were expanded
    evidence: float  # log evidence of the data and of who sits together

    @cached_property
    def weights(self) -> FloatArray:
        """(U, K + 1) probability of each block and, last, of standing alone."""
        return np.column_stack([self.share, np.maximum(1.0 - self.share.sum(axis=1), 0.0)])

    @cached_property
    def mean(self) -> FloatArray:
        """(U, d) posterior mean of each user."""
        return np.einsum("uk,kud->ud", self.weights, self.parts)

    def variance(self, user: int, rows: FloatArray) -> FloatArray:
        """rowᵀ C_u row for each row."""
        q, weights = self.users.one(user), self.weights[user]
        middle = self.mean[user]
        total = np.zeros(len(rows))
        for k in np.flatnonzero(weights > 1e-6):
            spread = (rows @ (self.parts[k, user] - middle)) ** 2
            if k == len(weights) - 1:
                total += weights[k] * (q.own_variance(rows, self.within + self.between) + spread)
            else:
                through = q.keep(rows, self.within)
                doubt = np.einsum("ij,ij->i", through @ self.doubt[k], through)
                total += weights[k] * (q.own_variance(rows, self.within) + doubt + spread)
        return total

    def covariance(self, user: int) -> FloatArray:
        """C_u, shape (d, d); computed when asked for."""
        q, weights, d = self.users.one(user), self.weights[user], len(self.m0)
        middle = self.mean[user]
        C = np.zeros((d, d))
        for k in np.flatnonzero(weights > 1e-6):
            alone = k == len(weights) - 1
            variance = self.within + self.between if alone else self.within
            own = variance * (np.eye(d) - (q.V * (1.0 - q.shrink(variance))) @ q.V.T)
            off = self.parts[k, user] - middle
            C += weights[k] * (own + np.outer(off, off))
            if not alone:
                G = q.keep(np.eye(d), variance)
                C += weights[k] * G @ self.doubt[k] @ G.T
        return (C + C.T) / 2.0

    def beliefs(self, X: Sequence[FloatArray], stretch: float = 1.0) -> list[Belief]:
        """What the margins of everybody's rows are believed to be."""
        mean = self.mean
        return [Belief(stretch * mean[u], stretch**2 * self.variance(u, x)) for u, x in enumerate(X)]


def solved(
    users: Quadratics,
    basis: list[Belief],
    share: FloatArray,
    m0: FloatArray,
    within: float,
    between: float,
    top: float,
    evidence: float,
) -> Blocks:
    """Centres, their doubt, and every user's mean in every block."""
    sums = _weighted_sums(users, within, share)
    d = len(m0)
    doubt = np.array([between * np.linalg.inv(np.eye(d) + between * A) for A in sums.A]).reshape(-1, d, d)
    centres = np.einsum("kij,kj->ki", doubt, sums.a + m0 / between)
    parts = _parts(users, centres, m0, within, between)
    return Blocks(users, share, m0, within, between, top, centres, doubt, parts, sums, basis, evidence)


def _parts(users: Quadratics, centres: FloatArray, m0: FloatArray, within: float, between: float) -> FloatArray:
    inside = [users.posterior_means(centre, within) for centre in centres]
    return np.array([*inside, users.posterior_means(m0, within + between)])


@in_one_order
def fit_cloud(
    X: Sequence[FloatArray], weights: Sequence[FloatArray], rounds: int = 8, within: float | None = None
) -> Blocks:
    """One block: people who differ by degrees. `within` fixes τ² (near 0: everybody alike); else by evidence."""
    n_users, d = len(X), X[0].shape[1]
    beliefs = [Belief(np.zeros(d), np.zeros(len(x))) for x in X]
    fixed, top = within, 0.1
    within = 0.1 if within is None else within
    everybody = np.ones((n_users, 1))
    nothing = np.zeros(d)

    def score(users: Quadratics, within: float, top: float) -> float:
        return float(set_evidence(_weighted_sums(users, within, everybody), nothing, top)[0])

    for _ in range(rounds):
        users = expand_users(X, weights, beliefs)
        for step in ((0.35, 0.6, 1.0, 1.6, 2.8), (0.75, 0.87, 1.0, 1.15, 1.33), (0.75, 0.87, 1.0, 1.15, 1.33)):
            if fixed is None:
                values = [score(users, within * s, top) for s in step]
                within = float(np.clip(within * step[int(np.argmax(values))], LEAST, MOST))
            sums = _weighted_sums(users, within, everybody)
            values = [float(set_evidence(sums, nothing, top * s)[0]) for s in step]
            top = float(np.clip(top * step[int(np.argmax(values))], LEAST, MOST))
        evidence = max(values) + _seating(np.array([n_users]))
        cloud = solved(users, beliefs, everybody, nothing, within, top, top, evidence)
        beliefs = cloud.beliefs(X)
    return cloud


@in_one_order
def find_blocks(X: Sequence[FloatArray], weights: Sequence[FloatArray], cloud: Blocks, sample: IntArray) -> Blocks:
    """The best mixture found from several starts; its evidence tells whether it beats the cloud."""
    starts = STARTS if len(cloud.m0) < VERY_LARGE else STARTS[:1]
    found = [_from_start(X, weights, cloud, start, sample) for start in starts]
    return max(found, key=lambda blocks: blocks.evidence)


def _from_start(
    X: Sequence[FloatArray], weights: Sequence[FloatArray], cloud: Blocks, start: float, sample: IntArray
) -> Blocks:
    users, basis = cloud.users, cloud.basis
    m0, spread, top = cloud.centres[0], cloud.within, cloud.top
    within, between = start * spread, (1.0 - start) * spread
    seats = _seat_everybody(users, m0, within, between, sample)
    for turn in range(ROUNDS):
        share = _as_share(seats)
        for coarse in (True, False):
            within, between = _scales(users, share, m0, within, between, spread if coarse else None)
            m0, precision = _common_mean(users, share, within, between, top)
            top = max(float(m0 @ m0 + np.trace(precision)) / len(m0), LEAST)
            share = _assign(users, share, m0, within, between, 6 if turn < ROUNDS - 1 else 12)
        blocks = solved(users, basis, share, m0, within, between, top, -np.inf)
        if turn == ROUNDS - 1:
            break
        stretch = _stretch(X, weights, blocks) if turn == 1 else 1.0
        basis = blocks.beliefs(X, stretch)
        users = expand_users(X, weights, basis)
        within, between, spread = (stretch**2 * value for value in (within, between, spread))
        m0 = stretch * m0
        kept = _seats(share)
        seats = _merge(users, m0, within, between, kept) if kept.max() < MOST_AGGLOMERATED else kept
        if turn == 0 and len(users) <= MOST_AGGLOMERATED and users.dim < VERY_LARGE:
            fresh = _merge(users, m0, within, between, np.arange(len(users)))
            seats = max((seats, fresh), key=lambda s: _partition_evidence(users, s, m0, within, between))
    evidence = _total_evidence(users, _seats(share), m0, within, between, top)
    return replace(blocks, evidence=evidence)


def _seat_everybody(users: Quadratics, m0: FloatArray, within: float, between: float, sample: IntArray) -> IntArray:
    """Agglomerate the sample, then let the others choose."""
    if len(sample) == len(users):
        return _merge(users, m0, within, between, np.arange(len(users)))
    some = _merge(users.some(sample), m0, within, between, np.arange(len(sample)))
    share = np.zeros((len(users), some.max() + 1))
    share[sample, some] = 1.0
    return _seats(_assign(users, share[:, share.sum(axis=0) > 1], m0, within, between, 3))


def _merge(users: Quadratics, m0: FloatArray, within: float, between: float, seats: IntArray) -> IntArray:
    """Merge the two sets whose union gains most evidence, again and again; the best partition on the way."""
    single = _user_sums(users, within)
    n = int(seats.max()) + 1
    belongs = np.eye(n)[seats]
    sums = Sums(
        np.einsum("uk,uij->kij", belongs, single.A, optimize=True), belongs.T @ single.a, belongs.T @ single.level
    )
    score = set_evidence(sums, m0, between)
    gain = np.full((n, n), -np.inf)
    for row in range(n - 1):
        rest = np.arange(row + 1, n)
        gain[row, rest] = _union(sums, row, rest, m0, between) - score[row] - score[rest]
    alive, seats, total, best = np.ones(n, dtype=bool), seats.copy(), 0.0, (0.0, seats.copy())
    while alive.sum() > 1:
        i, j = (int(at) for at in np.unravel_index(int(np.argmax(gain)), gain.shape))
        total += float(gain[i, j])
        sums.A[i] += sums.A[j]
        sums.a[i] += sums.a[j]
        sums.level[i] += sums.level[j]
        score[i] = set_evidence(sums[i], m0, between)
        alive[j] = False
        seats[seats == j] = i
        gain[j, :] = gain[:, j] = -np.inf
        rest = np.flatnonzero(alive & (np.arange(n) != i))
        if rest.size:
            new = _union(sums, i, rest, m0, between) - score[i] - score[rest]
            gain[np.minimum(rest, i), np.maximum(rest, i)] = new
        if total > best[0]:
            best = (total, seats.copy())
    return np.unique(best[1], return_inverse=True)[1]


def _union(sums: Sums, one: int, others: IntArray, m0: FloatArray, between: float) -> FloatArray:
    """Evidence of `one` united with each of `others`, in pieces that fit in memory."""
    piece = max(1, 4_000_000 // sums.A[0].size)
    return np.concatenate(
        [set_evidence(sums[others[s : s + piece]] + sums[one], m0, between) for s in range(0, len(others), piece)]
    )


def _assign(
    users: Quadratics, share: FloatArray, m0: FloatArray, within: float, between: float, rounds: int
) -> FloatArray:
    """Soft seats: a user's own data are taken out of a block before it is asked how well it fits."""
    alone = users.evidences(m0, within + between)
    for turn in range(rounds):
        share = share[:, share.sum(axis=0) > 1e-2]
        if share.shape[1] == 0:
            break
        sums, sizes = _weighted_sums(users, within, share), share.sum(axis=0)
        full = set_evidence(Sums(sums.A, sums.a, np.zeros(len(sizes))), m0, between)
        look = _contenders(users, share, sums, sizes, m0, within, between)
        seat = partial(_seat_log, users, look, share, sums, sizes, full, m0, within, between)
        fits = for_each(seat, range(len(users)), label="seats", n_jobs=None if users.dim >= LARGE else 1)
        log = np.column_stack([np.array(fits), alone])
        log -= log.max(axis=1, keepdims=True)
        chance = np.exp(log)
        new = (chance / chance.sum(axis=1, keepdims=True))[:, :-1]
        new[new < 1e-6] = 0.0
        change = float(np.abs(new - share).max())
        share = new if turn < 4 else (new + share) / 2.0  # damped, should two seatings alternate
        if change < 1e-3:
            break
    return share[:, share.sum(axis=0) > 1e-2]


def _seat_log(
    users: Quadratics,
    look: list[IntArray],
    share: FloatArray,
    sums: Sums,
    sizes: FloatArray,
    full: FloatArray,
    m0: FloatArray,
    within: float,
    between: float,
    user: int,
) -> FloatArray:
    """`_fit_of` for the blocks to look at, −∞ for the others."""
    some, log = look[user], np.full(len(sizes), -np.inf)
    log[some] = _fit_of(users.one(user), share[user, some], sums[some], sizes[some], full[some], m0, within, between)
    return log


def _contenders(
    users: Quadratics,
    share: FloatArray,
    sums: Sums,
    sizes: FloatArray,
    m0: FloatArray,
    within: float,
    between: float,
) -> list[IntArray]:
    """The blocks worth an exact look, for each user: all of them, or with many features the likeliest few.

    A block's likeliness is first taken at its centre, as if that were known.
    """
    n_blocks, d = len(sizes), users.dim
    if d < LARGE or n_blocks <= CONTENDERS:
        return [np.arange(n_blocks)] * len(users)
    centres = [np.linalg.solve(np.eye(d) + between * A, between * a + m0) for A, a in zip(sums.A, sums.a, strict=True)]
    rough = np.array([users.evidences(centre, within) for centre in centres]).T + np.log(sizes)
    rough[share > 1e-9] = np.inf
    return [np.sort(np.argsort(-row, kind="stable")[: max(CONTENDERS, int(np.isinf(row).sum()))]) for row in rough]


def _fit_of(
    q: Quadratic,
    share: FloatArray,
    sums: Sums,
    sizes: FloatArray,
    full: FloatArray,
    m0: FloatArray,
    within: float,
    between: float,
) -> FloatArray:
    """log of (others in the block) × (evidence with the user / evidence without), for each block."""
    A, a, level = q.curvature(within), q.pull(within), q.level(within)
    without, with_ = full.copy(), full.copy()
    zero = np.zeros(len(sizes))
    inside = share > 1e-9
    if inside.any():
        left = Sums(
            sums.A[inside] - share[inside, None, None] * A, sums.a[inside] - share[inside, None] * a, zero[inside]
        )
        without[inside] = set_evidence(left, m0, between)
    partly = share < 1.0 - 1e-9
    if partly.any():
        rest = 1.0 - share[partly]
        joined = Sums(sums.A[partly] + rest[:, None, None] * A, sums.a[partly] + rest[:, None] * a, zero[partly])
        with_[partly] = set_evidence(joined, m0, between)
    others = sizes - share
    return np.where(others > 1e-3, with_ - without + level + np.log(np.maximum(others, 1e-12)), -np.inf)


def _scales(
    users: Quadratics, share: FloatArray, m0: FloatArray, within: float, between: float, spread: float | None
) -> tuple[float, float]:
    """ρ² by evidence; τ² as an evidence-weighted mean over a grid, so that it does not collapse to 0."""
    alone = np.maximum(1.0 - share.sum(axis=1), 0.0)

    def evidence(sums: Sums, within: float, between: float) -> float:
        single = float(alone @ users.evidences(m0, within + between)) if alone.any() else 0.0
        return float(set_evidence(sums, m0, between).sum()) + single

    sums = _weighted_sums(users, within, share)
    tried = np.maximum(between * GRID, 1e-5)
    between = float(tried[int(np.argmax([evidence(sums, within, value) for value in tried]))])
    tried = np.maximum(spread * WITHIN if spread else within * np.append(GRID, [0.35, 2.8]), 1e-5)
    values = np.array([evidence(_weighted_sums(users, value, share), value, between) for value in tried])
    trust = np.exp(values - values.max()) * np.sqrt(tried)
    return float(trust @ tried / trust.sum()), between


def _common_mean(
    users: Quadratics, share: FloatArray, within: float, between: float, top: float
) -> tuple[FloatArray, FloatArray]:
    """m_0 given who sits where, and its covariance."""
    d = users.dim
    precision, pull = np.eye(d) / top, np.zeros(d)
    sums = _weighted_sums(users, within, share)
    for A, a in zip(sums.A, sums.a, strict=True):
        through = np.linalg.inv(np.eye(d) + between * A)
        precision += through @ A
        pull += through @ a
    alone = np.maximum(1.0 - share.sum(axis=1), 0.0)
    if alone.any():
        curvature, alone_pull = users.curvature_and_pull(within + between, alone)
        precision, pull = precision + curvature, pull + alone_pull
    covariance = np.linalg.inv(precision).astype(np.float64)
    return covariance @ pull, covariance


def _stretch(X: Sequence[FloatArray], weights: Sequence[FloatArray], blocks: Blocks) -> float:
    """One jump along the norm: centres grow only slowly otherwise."""
    lone = np.maximum(1.0 - blocks.share.sum(axis=1), 0.0)
    middle = blocks.share @ blocks.centres + lone[:, None] * blocks.m0
    margins = np.concatenate([x @ middle[u] for u, x in enumerate(X)])
    every = np.concatenate(list(weights))
    tried = np.arange(0.8, 2.55, 0.05)
    best = float(tried[int(np.argmin([every @ np.logaddexp(0.0, -s * margins) for s in tried]))])
    return 1.0 + 0.8 * (best - 1.0) if best > 1.1 else 1.0


def _seats(share: FloatArray) -> IntArray:
    """The likeliest seat of everybody; those who stand alone get one each."""
    alone = 1.0 - share.sum(axis=1)
    seat = np.argmax(np.column_stack([share, alone]), axis=1)
    lone = seat == share.shape[1]
    seat[lone] = share.shape[1] + np.arange(lone.sum())
    return np.unique(seat, return_inverse=True)[1]


def _as_share(seats: IntArray) -> FloatArray:
    share = np.eye(int(seats.max()) + 1)[seats]
    return share[:, share.sum(axis=0) > 1]


def _partition_evidence(users: Quadratics, seats: IntArray, m0: FloatArray, within: float, between: float) -> float:
    belongs = np.eye(int(seats.max()) + 1)[seats]
    return float(set_evidence(_weighted_sums(users, within, belongs), m0, between).sum())


def _total_evidence(
    users: Quadratics, seats: IntArray, m0: FloatArray, within: float, between: float, top: float
) -> float:
    """Evidence with m_0 integrated out, and the prior of the partition."""
    share = _as_share(seats)
    m0, covariance = _common_mean(users, share, within, between, top)
    lone = 1.0 - share.sum(axis=1)
    value = float(set_evidence(_weighted_sums(users, within, share), m0, between).sum())
    value += float(lone @ users.evidences(m0, within + between))
    value -= 0.5 * float(m0 @ m0) / top + 0.5 * len(m0) * float(np.log(top))
    return value + 0.5 * float(np.linalg.slogdet(covariance)[1]) + _seating(np.bincount(seats))


def _seating(sizes: IntArray) -> float:
    """log probability of a partition under the Chinese-restaurant prior with concentration 1."""
    return float(gammaln(sizes).sum() - gammaln(1 + sizes.sum()))


def place(blocks: Blocks, X: FloatArray, weights: FloatArray, rounds: int = 8) -> Blocks:
    """A new user with signed rows X among the blocks, everybody else fixed: blocks of this one user."""
    start = np.average(blocks.mean, axis=0)
    belief = Belief(start, np.zeros(len(X)))
    sizes = blocks.share.sum(axis=0)
    full = set_evidence(replace(blocks.sums, level=np.zeros(len(sizes))), blocks.m0, blocks.between)
    is_cloud = len(sizes) == 1 and bool((blocks.share == 1.0).all())
    for _ in range(rounds):
        q = expand(X, weights, belief)
        nobody = np.zeros(len(sizes))
        log = _fit_of(q, nobody, blocks.sums, sizes, full, blocks.m0, blocks.within, blocks.between)
        log = np.append(log, -np.inf if is_cloud else q.evidence(blocks.m0, blocks.within + blocks.between))
        chance = np.exp(log - log.max())
        share = (chance / chance.sum())[None, :-1]
        parts = _parts(Quadratics.stack([q]), blocks.centres, blocks.m0, blocks.within, blocks.between)
        one = replace(blocks, users=Quadratics.stack([q]), share=share, parts=parts, basis=[belief])
        belief = one.beliefs([X])[0]
    return one
