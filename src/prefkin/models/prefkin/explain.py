"""Why somebody counts for somebody else, or not: what speaks for it, in numbers and words, and what would change it.

Everybody but `user` is left where they are. The group of `other` has prior odds by its size (the prior of
`groups`); the answers multiply them by how much better that group explains `user`'s answers than others do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, gammaln, logit, logsumexp

from prefkin.data.arrays import FloatArray, above_zero
from prefkin.data.rows import only
from prefkin.inference.quadratics import Signed, Terms
from prefkin.inference.quadratics.evidence import set_evidence
from prefkin.models.prefkin.mixture import Centres, Mixture
from prefkin.models.prefkin.places import place
from prefkin.models.prefkin.settings import LIMITS
from prefkin.models.reports import Explanation

if TYPE_CHECKING:
    from prefkin.models.prefkin.estimator import PrefKin

__all__ = [
    "Odds",
    "comparisons_to_turn",
    "difference_covariance",
    "equality_odds",
    "explained",
    "joining_odds",
    "own_share",
    "rows_to_half",
]

ALMOST = 1e-9  # a probability, or members, that are none but for rounding
STILL = 0.01  # change of a margin that decides nothing
FEWEST, MOST, NEARLY = 0.0, 17.0, 0.1  # comparisons to turn a verdict, as powers of 2


def explained(model: PrefKin, u: int, v: int) -> Explanation:
    """What `PrefKin.explain` says of the users at these positions."""
    user, other = model.users_[[u, v]].tolist()
    if u == v:
        return Explanation(True, 0.0, 0.5, f"{user!r} always uses its own comparisons.", probability=1.0)
    mixture, metric = model._fitted.mixture, model._fitted.metric
    chance = float(model._together(u)[v])
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


# -- log odds --------------------------------------------------------------------------------------------------------


class Odds(NamedTuple):
    """Log odds that a user belongs with another: prior and answers add up."""

    answers: float  # log Bayes factor of the user's answers for belonging there, against elsewhere
    prior: float  # log prior odds

    @property
    def total(self) -> float:
        """Posterior log odds."""
        return self.answers + self.prior


def joining_odds(mixture: Mixture, user: int, other: int) -> Odds:
    """Log odds that `user` belongs with `other`, everybody else left where they are."""
    around, beside = _without(mixture, user, other)
    prior, fits = _scores(around, mixture, user)
    elsewhere = np.arange(len(fits)) != beside
    prior_odds = float(prior[beside] - logsumexp(prior[elsewhere]))
    total = float(prior[beside] + fits[beside] - logsumexp((prior + fits)[elsewhere]))
    return Odds(total - prior_odds, prior_odds)


def comparisons_to_turn(mixture: Mixture, user: int, other: int, data: Signed) -> float:
    """About how many more comparisons would change whether `user`, whose rows are `data`, belongs with `other`.

    The rows so far come again and again, with answers as a member of `other`'s group would give them on average; or,
    when the two belong together, a member of the likeliest other group (the user's own answers taken alone, where there
    is no other). The user is placed anew with both kinds of rows. Infinity: not with rows like these.
    """
    around, beside = _without(mixture, user, other)
    prior, fits = _scores(around, mixture, user)
    score, X, weights = prior + fits, data.X, data.weights
    elsewhere = np.arange(len(score)) != beside
    joined = score[beside] > logsumexp(score[elsewhere])
    if not joined:
        truth = around.centres.mean[beside]
    elif (groups := np.flatnonzero(elsewhere[:-1] & (around.sizes > ALMOST))).size:
        truth = around.centres.mean[groups[np.argmax(score[groups])]]
    else:
        alone = mixture.prior.alone
        truth = mixture.users.some(np.array([user])).at(alone).posterior_means(mixture.prior.m0[None], alone)[0]
    p, share = expit(X @ truth), 1.0 / above_zero(weights.sum())
    rows, ends = np.vstack([X, -X]), np.array([0, 2 * len(X)])  # a row that comes again counts more

    def log_odds(doublings: float) -> float:
        """Of belonging with `other` after 2^doublings comparisons more."""
        n = 2.0**doublings * share
        more = Signed(rows, np.concatenate([weights * (1.0 + n * p), n * weights * (1.0 - p)]), ends)
        placed = place(around, more, still=STILL)
        return float(logit(np.clip(placed.share[0, beside], ALMOST, 1.0 - ALMOST)))

    few, many = log_odds(FEWEST), log_odds(MOST)
    if (many > 0.0) == joined:
        return np.inf
    return 2.0**FEWEST if (few > 0.0) != joined else float(2.0 ** brentq(log_odds, FEWEST, MOST, xtol=NEARLY))


def _without(mixture: Mixture, user: int, other: int) -> tuple[Mixture, int]:
    """The mixture with `user` taken out, and the group of `other` among them: one of its own, should it stand alone."""
    prior, sums, share, others = mixture.prior, mixture.centres.sums, mixture.share.copy(), mixture.others
    taken = mixture.terms_of(np.array([user]))
    mine = share[user].copy()
    A = sums.A - mine[:, None, None] * taken.A
    a = sums.a - mine[:, None] * taken.a
    share[user] = 0.0
    beside = int(np.argmax(mixture.weights[other]))
    if beside == share.shape[1]:
        own = mixture.terms_of(np.array([other]))
        A, a = np.concatenate([A, own.A]), np.concatenate([a, own.a])
        share = np.column_stack([share, np.arange(len(share)) == other])
        others = None if others is None else replace(others, sizes=np.append(others.sizes, 0.0))
    centres = Centres.of(Terms(A, a, np.zeros(len(a))), prior)
    return replace(mixture, share=share, centres=centres, others=others), beside


def _scores(around: Mixture, mixture: Mixture, user: int) -> tuple[FloatArray, FloatArray]:
    """Log prior (up to a constant) and log evidence of the user's answers for each group; last: alone."""
    prior, sums, one = mixture.prior, around.centres.sums, mixture.users.some(np.array([user]))
    joined = sums + one.at(prior.within)
    fits = set_evidence(joined, prior.m0, prior.between) - set_evidence(sums, prior.m0, prior.between)
    sizes = np.where(around.sizes < ALMOST, 0.0, around.sizes)
    with np.errstate(divide="ignore"):
        odds = np.append(np.log(sizes), prior.lonely)
    return odds, np.append(fits, one.evidences(prior.m0, prior.alone))


def equality_odds(mixture: Mixture, user: int, other: int) -> float:
    """Log Bayes factor of the two wanting exactly the same, against being two people drawn from the first group."""
    both, centre, spread = mixture.users.some(np.array([user, other])), mixture.centres.mean[0], mixture.prior.within
    each = both.at(0.0)
    same = float(set_evidence(each[0] + each[1], centre, spread))
    return same - float(both.evidences(centre, spread).sum())


def difference_covariance(mixture: Mixture, user: int, other: int) -> FloatArray:
    """Posterior covariance of θ_u − θ_v: what they may share, a group's centre, is in doubt for both alike."""
    C = mixture.person(user).covariance() + mixture.person(other).covariance()
    G = np.eye(len(C)) - mixture.prior.within * mixture.terms_of(np.array([user, other])).A
    together = mixture.share[user] * mixture.share[other]
    for k in np.flatnonzero(together > LIMITS.unlikely):
        cross = G[0] @ mixture.centres.doubt[k] @ G[1]
        C -= together[k] * (cross + cross.T)
    return C
