"""The paper's bounds as numbers for a fitted model.

Constants are those of the proofs in the appendix, not hidden in Õ(·). Where statement and proof disagree, both are
given; docs/decisions/0003 lists the places.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvalsh

from prefkin.active import ActiveSession
from prefkin.candidates import Candidates
from prefkin.comparisons import FloatArray
from prefkin.confidence import ItemRegularity, confidence_width
from prefkin.errors import InvalidParameter
from prefkin.offline import OffC2PL
from prefkin.policy import inverse_norm

__all__ = [
    "ActiveBound",
    "NeighbourConditions",
    "OfflineBound",
    "active_bound",
    "guaranteed_gain",
    "imbalance",
    "neighbour_conditions",
    "offline_bound",
    "own_radius",
]

FEATURE_SPAN = 2.0  # ‖μ − w‖ or ‖φ − φ′‖ when all features lie in the unit ball


def own_radius(model: OffC2PL, user: Hashable) -> float:
    """Lemma 1: ‖θ̂_u − θ_u‖ is below this for one given user with probability 1 − δ (CI_u holds for all at once)."""
    u = model._users.index(user)
    n, d = float(model.n_comparisons_[u]), model.n_features_in_
    alone = confidence_width(n, d, ridge=model.ridge, kappa=model.kappa, failure=model.delta)
    together = confidence_width(
        n, d, ridge=model.ridge, kappa=model.kappa, failure=model.delta / (2 * len(model.users_))
    )
    return float(model.radius_[u]) * alone / together


@dataclass(frozen=True)
class NeighbourConditions:
    """Lemma 2: how much information decides who can be a neighbour.

    Two users with the same preference are joined when 1/√λ_min(M_u) + 1/√λ_min(M_v) is below `surely_joined`, and are
    not when it is at least `surely_apart` (infinite for α = 1). A user with another preference is not joined when it
    is at least `bias_excluded`, which needs the true gap γ.
    """

    surely_joined: float
    surely_apart: float
    bias_excluded: float
    ridge_small_enough: bool  # λ ≤ 2 log(2U/δ) + d log(1 + 4κ min N / dλ)
    delta_small_enough: bool  # δ ≤ dλ / (4κ min N + dλ)


def neighbour_conditions(model: OffC2PL, gamma: float, true_gap: float | None = None) -> NeighbourConditions:
    """The constants of Lemma 2 at threshold `gamma`; `true_gap` is γ, the least distance between groups."""
    d, n_users = model.n_features_in_, len(model.users_)
    log = np.log(2 * n_users / model.delta)
    least = float(model.n_comparisons_.min())
    low = model.kappa / (3 * (model.alpha + 1) * np.sqrt(2 * max(2, d) * log))
    high = model.kappa / (2 * (model.alpha - 1) * np.sqrt(2 * log)) if model.alpha > 1 else np.inf
    ratio = 4 * model.kappa * least / (d * model.ridge)
    return NeighbourConditions(
        surely_joined=float(low * gamma),
        surely_apart=float(high * gamma) if gamma > 0 else 0.0,
        bias_excluded=np.inf if true_gap is None or np.isinf(high) else float(high * max(gamma - true_gap, 0.0)),
        ridge_small_enough=bool(model.ridge <= 2 * log + d * np.log1p(ratio)),
        delta_small_enough=bool(model.delta <= 1 / (1 + ratio)),
    )


@dataclass(frozen=True)
class OfflineBound:
    """Lemma 3 and Theorem 1 for one user.

    With probability 1 − δ: ‖θ̃ − θ‖_M̃ ≤ noise + bias, and the policy loses at most `suboptimality`, of which
    `noise_part` would be left without wrong neighbours.
    """

    n_pooled: float  # Ñ_u = N_V
    n_differing: float  # N_W: comparisons of neighbours who want something else
    least_eigenvalue: float  # λ_min(M̃_u)
    noise: float  # β̃_u
    bias: float  # γ̂ √(d N_W) / 2, as Lemma 3 is printed
    bias_proved: float  # the same / κ, which is what its proof gives
    span: float  # ‖μ(π) − w‖_{M̃⁻¹}, the concentratability coefficient; its largest possible value without candidates
    noise_part: float  # 2 β̃ · span
    suboptimality: float  # (2 β̃ + γ̂ √(d N_W)) · span
    regular_rate: float | None  # √(d/λ̃_a) (1/√N_V + γ̂ √η): Corollary 1, up to constants; with item regularity only


def offline_bound(
    model: OffC2PL,
    user: Hashable,
    differing: Sequence[Hashable] = (),
    candidates: Candidates | None = None,
    reference: FloatArray | None = None,
) -> OfflineBound:
    """What the theory promises `user`, if the neighbours named in `differing` want something else.

    >>> model = OffC2PL(gamma=np.inf).fit([[0.5], [1.0]], [1, 0], users=["ann", "bo"])
    >>> bound = offline_bound(model, "ann")
    >>> bound.bias, bound.noise == model.width("ann")
    (0.0, True)
    """
    n_pooled, n_differing = _comparisons_of(model, user, differing)
    d = model.n_features_in_
    gamma = float(model.gamma_[model._users.index(user)])
    M = model.information(user)
    least = float(eigvalsh(M, subset_by_index=[0, 0])[0])
    width = model.width(user)
    spread = gamma * float(np.sqrt(d * n_differing)) if n_differing else 0.0
    if candidates is None:
        span = FEATURE_SPAN / float(np.sqrt(least))
    else:
        w = np.zeros(d) if reference is None else np.asarray(reference, dtype=np.float64)
        mean = model.policy(user, candidates, reference=w).mean
        span = float(inverse_norm((mean - w)[None], M)[0])
    rate = None
    if isinstance(model.coverage, ItemRegularity):
        share = gamma * float(np.sqrt(n_differing / n_pooled)) if n_differing else 0.0
        rate = float(np.sqrt(d / model.coverage.smoothed)) * (1 / float(np.sqrt(n_pooled)) + share)
    return OfflineBound(
        n_pooled=n_pooled,
        n_differing=n_differing,
        least_eigenvalue=least,
        noise=width,
        bias=spread / 2,
        bias_proved=spread / 2 / model.kappa,
        span=span,
        noise_part=2 * width * span,
        suboptimality=(2 * width + spread) * span,
        regular_rate=rate,
    )


@dataclass(frozen=True)
class ActiveBound:
    """Theorem 2, Lemma 4 and their corollaries for a session with N answers."""

    n_answers: int
    least_before: float  # λ_min(M̃)
    least_after: float  # λ_min(M̃ᴺ)
    weak_directions: int  # d*: M̃ is (d*, N)-sample imbalanced
    guaranteed_gain: int  # ⌊N/d*⌋, if differences can point anywhere in the unit ball
    width: float  # β̄ᴺ of the proof
    suboptimality: float  # Theorem 2, with the constants of its proof
    suboptimality_planned: float  # the same with λ_min(M̃) + ⌊N/d*⌋: what Corollary 2 could promise beforehand
    regular_rate: float | None  # Corollary 3, up to constants; with item regularity only


def active_bound(model: OffC2PL, session: ActiveSession, differing: Sequence[Hashable] = ()) -> ActiveBound:
    """What the theory promises after the answers of `session`.

    >>> model = OffC2PL(gamma=0.0).fit([[0.5, 0.0], [1.0, 0.0]], [1, 0], users=["ann", "ann"])
    >>> session = model.session("ann", Candidates([[[0.0, 0.0], [0.0, 1.0]]]))
    >>> session.tell(session.ask(), True)
    >>> bound = active_bound(model, session)
    >>> round(bound.least_after - bound.least_before, 6), bound.guaranteed_gain
    (1.0, 1)
    """
    user, N, d = session.user, session.n_answers, model.n_features_in_
    before, after = session.eigenvalues
    directions = _imbalance(before, N)
    n_pooled, n_differing = _comparisons_of(model, user, differing)
    gamma = float(model.gamma_[model._users.index(user)])
    spread = gamma * float(np.sqrt(d * n_differing)) if n_differing else 0.0
    failure = model.delta / (2 * max(N, 1))
    width = confidence_width(n_pooled + N, d, ridge=model.ridge, kappa=model.kappa, failure=failure)
    rate = None
    if isinstance(model.coverage, ItemRegularity):
        smoothed = model.coverage.smoothed
        effective = n_pooled + N / (directions * smoothed)
        wrong = gamma * float(np.sqrt(n_differing)) if n_differing else 0.0
        rate = float(np.sqrt(d / smoothed)) * (1 + wrong) / float(np.sqrt(effective))

    def theorem(least: float) -> float:
        potential = np.sqrt(2 * d * N * np.log1p(4 * model.kappa * N / (model.ridge * d)))
        return float((2 * width + spread) * (d * np.sqrt(least) + potential) / (d * least + N))

    gain = N // directions
    return ActiveBound(
        n_answers=N,
        least_before=float(before[0]),
        least_after=float(after[0]),
        weak_directions=directions,
        guaranteed_gain=gain,
        width=width,
        suboptimality=theorem(float(after[0])),
        suboptimality_planned=theorem(float(before[0]) + gain),
        regular_rate=rate,
    )


def imbalance(M: FloatArray, n: int) -> int:
    """d*: the smallest number of weak directions with λ_{d*+1}(M) − λ_min(M) ≥ ⌈n/d*⌉  [paper: imbalance].

    >>> imbalance(np.diag([1.0, 1.0, 50.0]), 10)
    2
    """
    return _imbalance(eigvalsh(M), n)


def guaranteed_gain(M: FloatArray, n: int) -> int:
    """⌊n/d*⌋: by how much n questions raise λ_min at least, if differences fill the unit ball (Lemma 4).

    >>> guaranteed_gain(np.diag([1.0, 1.0, 50.0]), 10)
    5
    """
    return n // imbalance(M, n)


def _imbalance(eigenvalues: FloatArray, n: int) -> int:
    above = np.append(eigenvalues[1:], np.inf) - eigenvalues[0]  # λ_{k+1} − λ_min for k = 1, ..., d
    wanted = np.ceil(n / np.arange(1, len(eigenvalues) + 1))
    return int(np.argmax(above >= wanted)) + 1


def _comparisons_of(model: OffC2PL, user: Hashable, differing: Sequence[Hashable]) -> tuple[float, float]:
    """N_V of the neighbourhood and N_W of the neighbours named."""
    members = model._members(model._users.index(user))
    wrong = {model._users.index(other) for other in differing}
    for v in sorted(wrong):
        if v not in members or v == model._users.index(user):
            raise InvalidParameter(f"{model.users_[v]!r} is not a neighbour of {user!r}; its comparisons are not used")
    return float(model.n_comparisons_[members].sum()), float(model.n_comparisons_[list(wrong)].sum())
