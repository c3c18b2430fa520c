"""The paper's bounds as numbers for a fitted model.

Constants are those of the proofs in the appendix, not hidden in Õ(·). Where a statement and its proof disagree, the
proof is followed; docs/decisions/0003-where-the-paper-disagrees-with-itself.md lists the places.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvalsh

from prefkin.data.arrays import FloatArray
from prefkin.data.candidates import Candidates
from prefkin.decide.belief import Belief
from prefkin.decide.session import ActiveSession
from prefkin.errors import InvalidParameter
from prefkin.inference.information import confidence_width
from prefkin.models.calls import as_fitted
from prefkin.models.off_c2pl.estimator import OffC2PL
from prefkin.models.off_c2pl.radius import ItemRegularity

__all__ = [
    "ActiveBound",
    "NeighbourConditions",
    "OfflineBound",
    "active_bound",
    "guaranteed_gain",
    "imbalance",
    "information_floor",
    "neighbour_conditions",
    "offline_bound",
    "own_radius",
]

FEATURE_SPAN = 2.0  # ‖μ − w‖ or ‖φ − φ′‖ when all features lie in the unit ball


def own_radius(model: OffC2PL, user: Hashable) -> float:
    """Lemma 1: ‖θ̂_u − θ_u‖ is below this for one given user with probability 1 − δ (CI_u holds for all at once).

    >>> model = OffC2PL(gamma=0.0).fit([[0.5], [1.0]], [1, 0], users=["ann", "bo"])
    >>> bool(own_radius(model, "ann") < model.radius_[0])
    True
    """
    _refuse_other_radii(model)
    u = model.position(user)
    n, d = float(model.n_comparisons_[u]), model.n_features_in_
    alone = confidence_width(n, d, ridge=model.ridge_, kappa=model.kappa, failure=model.delta)
    return float(model.radius_[u]) * alone / model._width(n, d, len(model.users_))


def information_floor(model: OffC2PL) -> FloatArray:
    """What the radii divide by, shape (U,): λ_min(M_u), or λ̃_a N_u / 2 under item regularity.

    >>> model = OffC2PL(gamma=0.0, ridge=1.0, kappa=0.25).fit([[0.5], [1.0]], [1, 0], users=["ann", "bo"])
    >>> information_floor(model).round(9).tolist()
    [4.25, 5.0]
    """
    _refuse_other_radii(model)
    U, d = len(model.users_), model.n_features_in_
    widths = np.array([model._width(float(n), d, U) for n in model.n_comparisons_])
    return (widths / model.radius_) ** 2


@dataclass(frozen=True)
class NeighbourConditions:
    """Lemma 2: how much information decides who can be a neighbour.

    With f the information floor of a user (`information_floor`): two users with the same preference are joined when
    1/√f_u + 1/√f_v is below `surely_joined`, and are not when it is at least `surely_apart` (infinite for α = 1). A
    user with another preference is not joined when it is at least `bias_excluded`, which needs the true gap γ. Under
    item regularity N_u ≥ N_min is needed besides.
    """

    surely_joined: float
    surely_apart: float
    bias_excluded: float
    ridge_small_enough: bool  # λ ≤ 2 log(2U/δ) + d log(1 + 4κ min N / dλ)
    delta_small_enough: bool  # δ ≤ dλ / (4κ max N + dλ): printed with min N, proved for all


def neighbour_conditions(model: OffC2PL, gamma: float, true_gap: float | None = None) -> NeighbourConditions:
    """The constants of Lemma 2 at threshold `gamma`; `true_gap` is γ, the least distance between groups.

    >>> model = OffC2PL(gamma=0.0).fit([[0.5], [1.0]], [1, 0], users=["ann", "bo"])
    >>> neighbour_conditions(model, gamma=1.0, true_gap=1.0).bias_excluded
    0.0
    """
    _refuse_other_radii(model)
    d, n_users = model.n_features_in_, len(model.users_)
    log = np.log(2 * n_users / model.delta)
    low = model.kappa / (3 * (model.alpha + 1) * np.sqrt(2 * max(2, d) * log))
    high = model.kappa / (2 * (model.alpha - 1) * np.sqrt(2 * log)) if model.alpha > 1 else np.inf
    fewest, most = (4 * model.kappa * float(n) / (d * model.ridge_) for n in np.sort(model.n_comparisons_)[[0, -1]])
    excess = np.inf if true_gap is None else max(gamma - true_gap, 0.0)
    return NeighbourConditions(
        surely_joined=float(low * gamma),
        surely_apart=float(high * gamma) if gamma > 0 else 0.0,
        bias_excluded=float(high * excess) if excess > 0 else 0.0,
        ridge_small_enough=bool(model.ridge_ <= 2 * log + d * np.log1p(fewest)),
        delta_small_enough=bool(model.delta <= 1 / (1 + most)),
    )


@dataclass(frozen=True)
class OfflineBound:
    """Lemma 3 and Theorem 1 for one user.

    With probability 1 − δ: ‖θ̃ − θ‖_M̃ ≤ noise + bias_proved, and the pessimistic policy π loses at most
    `suboptimality` against the best policy π*, of which `noise_part` would be left without wrong neighbours:

        (2 β̃ + bias) ‖μ(π*) − w‖_{M̃⁻¹} + bias ‖μ(π) − w‖_{M̃⁻¹}

    The theorem is printed with π alone, its proof needs π*. As π* is unknown, its norm is bounded by the mean over
    contexts of the largest ‖φ − w‖_{M̃⁻¹}.
    """

    n_pooled: float  # Ñ_u = N_V
    n_differing: float  # N_W: comparisons of neighbours who want something else
    least_eigenvalue: float  # λ_min(M̃_u)
    noise: float  # β̃_u
    bias: float  # γ̂ √(d N_W) / 2, as Lemma 3 is printed
    bias_proved: float  # the same / κ, which is what its proof gives
    span: float  # ‖μ(π) − w‖_{M̃⁻¹} of the pessimistic policy, the concentratability coefficient
    best_span: float  # a bound on the same for the best policy; both 2/√λ_min when no candidates are given
    noise_part: float  # 2 β̃ · best_span
    suboptimality: float
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
    _refuse_other_radii(model)
    n_pooled, n_differing = _comparisons_of(model, user, differing)
    d = model.n_features_in_
    gamma = float(model.gamma_[model.position(user)])
    M = model.information(user)
    least = float(eigvalsh(M, subset_by_index=[0, 0])[0])
    width = model.width(user)
    bias = gamma * float(np.sqrt(d * n_differing)) / 2 if n_differing else 0.0
    if candidates is None:
        span = best_span = FEATURE_SPAN / float(np.sqrt(least))
    else:
        w = np.zeros(d) if reference is None else np.asarray(reference, dtype=np.float64)
        candidates = as_fitted(model, candidates)
        mean = model.policy(user, candidates, reference=w).mean
        belief = Belief.from_information(model.theta_[model.position(user)], M)
        span = float(belief.norm((mean - w)[None])[0])
        widest = np.maximum.reduceat(belief.norm(candidates.features - w), candidates.starts[:-1])
        best_span = float(candidates.weights @ widest)
    rate = None
    if isinstance(model.coverage, ItemRegularity):
        share = gamma * float(np.sqrt(n_differing / n_pooled)) if n_differing else 0.0
        rate = float(np.sqrt(d / model.coverage.smoothed)) * (1 / float(np.sqrt(n_pooled)) + share)
    return OfflineBound(
        n_pooled=n_pooled,
        n_differing=n_differing,
        least_eigenvalue=least,
        noise=width,
        bias=bias,
        bias_proved=bias / model.kappa,
        span=span,
        best_span=best_span,
        noise_part=2 * width * best_span,
        suboptimality=(2 * width + bias / model.kappa) * best_span + bias / model.kappa * span,
        regular_rate=rate,
    )


@dataclass(frozen=True)
class ActiveBound:
    """Theorem 2, Lemma 5 and their corollaries for a session with N answers."""

    n_answers: int
    least_before: float  # λ_min(M̃)
    least_after: float  # λ_min(M̃ᴺ)
    weak_directions: int  # d*: M̃ is (d*, N)-sample imbalanced
    guaranteed_gain: int  # ⌊N/d*⌋, if differences can point anywhere in the unit ball
    width: float  # β̄ᴺ of the proof
    suboptimality: float  # Theorem 2, with the constants of its proof
    suboptimality_planned: float  # with λ_min(M̃) + ⌊N/d*⌋ instead: what Corollary 2 can promise beforehand
    literal: bool  # were the questions the paper's: rule "coverage", repeats allowed, none skipped?
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
    _refuse_other_radii(model)
    user, N, d = session.user, session.n_answers, model.n_features_in_
    before, after = session.eigenvalues
    directions = _imbalance(before, N)
    n_pooled, n_differing = _comparisons_of(model, user, differing)
    gamma = float(model.gamma_[model.position(user)])
    bias = gamma * float(np.sqrt(d * n_differing)) / 2 / model.kappa if n_differing else 0.0
    failure = model.delta / (2 * max(N, 1))
    width = confidence_width(n_pooled + N, d, ridge=model.ridge_, kappa=model.kappa, failure=failure)
    rate = None
    if isinstance(model.coverage, ItemRegularity):
        smoothed = model.coverage.smoothed
        effective = n_pooled + N / (directions * smoothed)
        wrong = gamma * float(np.sqrt(n_differing)) if n_differing else 0.0
        rate = float(np.sqrt(d / smoothed)) * (1 + wrong) / float(np.sqrt(effective))

    gain = N // directions
    now, planned = float(after[0]), float(before[0]) + gain
    potential = float(np.log1p(4 * model.kappa * N / (model.ridge_ * d)))
    # the last two lines of the proof: the first is sharper, the second falls with λ_min, so a bound on it will do
    sharp = (d * np.sqrt(now) + np.sqrt(2 * d * N * potential)) / (d * now + N)
    monotone = np.sqrt(2 * d * (d * planned + 2 * N * potential)) / (d * planned + N)
    return ActiveBound(
        n_answers=N,
        least_before=float(before[0]),
        least_after=float(after[0]),
        weak_directions=directions,
        guaranteed_gain=gain,
        width=width,
        suboptimality=float(2 * (width + bias) * sharp),
        suboptimality_planned=float(2 * (width + bias) * monotone),
        literal=session.rule == "coverage" and session.repeat and len(session.log) == N,
        regular_rate=rate,
    )


def imbalance(M: FloatArray, n: int) -> int:
    """d*: the smallest number of weak directions with λ_{d*+1}(M) − λ_min(M) ≥ ⌈n/d*⌉  [paper: imbalance].

    >>> imbalance(np.diag([1.0, 1.0, 50.0]), 10)
    2
    """
    return _imbalance(eigvalsh(M), n)


def guaranteed_gain(M: FloatArray, n: int) -> int:
    """⌊n/d*⌋: by how much n questions raise λ_min at least, if differences fill the unit ball (Lemma 5).

    >>> guaranteed_gain(np.diag([1.0, 1.0, 50.0]), 10)
    5
    """
    return n // imbalance(M, n)


def _imbalance(eigenvalues: FloatArray, n: int) -> int:
    above = np.append(eigenvalues[1:], np.inf) - eigenvalues[0]  # λ_{k+1} − λ_min for k = 1, ..., d
    wanted = np.ceil(n / np.arange(1, len(eigenvalues) + 1))
    rounding = 1e-12 * max(float(eigenvalues[-1]), 1.0)
    return int(np.argmax(above >= wanted - rounding)) + 1


def _comparisons_of(model: OffC2PL, user: Hashable, differing: Sequence[Hashable]) -> tuple[float, float]:
    """N_V of the neighbourhood and N_W of the neighbours named."""
    members = model.members(model.position(user))
    wrong = {model.position(other) for other in differing}
    for v in sorted(wrong):
        if v not in members or v == model.position(user):
            raise InvalidParameter(f"{model.users_[v]!r} is not a neighbour of {user!r}; its comparisons are not used")
    return float(model.n_comparisons_[members].sum()), float(model.n_comparisons_[list(wrong)].sum())


def _refuse_other_radii(model: OffC2PL) -> None:
    """Calibrated radii and informed distances are not what the paper proves anything about."""
    if model.radius != "theory" or model.distance != "euclidean":
        raise InvalidParameter(
            "the paper's bounds are about radius='theory' and distance='euclidean'; fit the model with these"
        )
