"""Why somebody counts for somebody else, or not: what speaks for it, in numbers and words, and what would change it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from prefkin.data.arrays import FloatArray
from prefkin.data.folds import only
from prefkin.inference.propagation import above_zero
from prefkin.models.prefkin.odds import comparisons_to_turn, difference_covariance, equality_odds, joining_odds
from prefkin.models.reports import Explanation

if TYPE_CHECKING:
    from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["explained", "own_share", "rows_to_half"]


def explained(model: PrefKin, u: int, v: int) -> Explanation:
    """Of the users at these positions."""
    user, other = model.users_[[u, v]].tolist()
    if u == v:
        return Explanation(True, 0.0, 0.5, f"{user!r} always uses its own comparisons.", probability=1.0)
    mixture, metric = model._fitted.mixture, model._fitted.metric
    chance = float(model._togetherness(u)[v])
    joined = bool(chance > 0.5)
    apart = model.theta_[u] - model.theta_[v]
    distance = float(np.linalg.norm(apart))
    error = _length_error(apart, metric.covariance(difference_covariance(mixture, u, v)))
    estimates = f"their estimates are {distance:.3g} ± {error:.2g} apart"
    if model.structure_ == "groups":
        odds = joining_odds(mixture, u, v)
        answers, prior = odds.answers, odds.prior
        turning = comparisons_to_turn(mixture, u, v, metric.signed(only(model._users, np.array([u]))))
        verdict = "want the same" if joined else "want different things"
        text = (
            f"{user!r} and {other!r} are taken to {verdict}: probability {_chance(chance)} of one group (log odds "
            f"{odds.total:+.1f}: answers {answers:+.1f}, prior {prior:+.1f}), and {estimates}."
        )
        as_who = "as the likeliest others would" if joined else f"as the group of {other!r} would"
        if np.isfinite(turning):
            more = f"About {_about(turning)} more comparisons of {user!r}"
            text += f" {more} like those so far, but answered {as_who}, would turn that round."
    else:
        answers, prior = equality_odds(mixture, u, v), 0.0
        share, turning = own_share(model, u), rows_to_half(model, u)
        text = (
            f"No groups were found ({model.structure_}): both lean on what all users have in common, and "
            f"{estimates} (log odds {answers:+.1f} for wanting exactly the same). Own answers decide {share:.0%} "
            f"of the estimate of {user!r}"
        )
        text += f"; about {_about(turning)} more would make it half." if 0 < turning < np.inf else "."
    return Explanation(
        joined,
        distance,
        chance - 0.5,
        text,
        probability=chance,
        distance_error=error,
        answers=answers,
        prior=prior,
        turning_comparisons=turning,
    )


def own_share(model: PrefKin, position: int, copies: float = 1.0) -> float:
    """How much of the estimate the user's own answers decide, had there been so many `copies` of them."""
    mixture = model._fitted.mixture
    if mixture.others is None:
        lonely = len(model.members(position)) == 1
    else:
        lonely = float(mixture.share[position].max(initial=0.0)) <= 0.5
    variance = copies * (mixture.prior.alone if lonely else mixture.prior.within)
    return variance * float(np.trace(mixture.users.some(np.array([position])).at(variance).A[0])) / model._users.dim


def rows_to_half(model: PrefKin, position: int) -> float:
    """More comparisons like those there are, until own answers decide half of the estimate; 0 if they do."""
    if own_share(model, position) >= 0.5:
        return 0.0
    if own_share(model, position, 1e9) < 0.5:  # directions that such comparisons never touch
        return np.inf
    low, high = 1.0, 1e9
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if own_share(model, position, middle) >= 0.5 else (middle, high)
    return float((high - 1.0) * model._users.counts[position])


def _about(count: float) -> str:
    """A count to two digits, in plain digits."""
    return f"{float(f'{np.ceil(count):.2g}'):,.0f}"


def _chance(probability: float) -> str:
    """A probability in two digits, never 0 or 1."""
    return "under 0.001" if probability < 0.001 else "over 0.999" if probability > 0.999 else f"{probability:.2g}"


def _length_error(mean: FloatArray, C: FloatArray) -> float:
    """Standard deviation of ‖x‖ for x ~ N(mean, C): ‖x‖² as a Gamma law with the same mean and variance."""
    square = float(mean @ mean) + float(np.trace(C))
    variance = 2.0 * float((C * C).sum()) + 4.0 * float(mean @ C @ mean)
    if not variance > 1e-8 * square**2:  # then ‖x‖ hardly varies, and differences of large numbers would decide
        return float(np.sqrt(variance / above_zero(4.0 * square)))
    shape = square**2 / variance
    length = np.exp(gammaln(shape + 0.5) - gammaln(shape)) * np.sqrt(variance / square)
    return float(np.sqrt(max(square - length**2, 0.0)))
