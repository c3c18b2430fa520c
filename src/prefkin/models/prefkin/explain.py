"""Why two users belong together, or not: log odds of the partition prior and of the answers.

The user's own message is taken out of the groups (leave-one-out); everybody else stays. Answers multiply the prior odds
of a group by how much better it explains the user's answers than the other groups and a singleton do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, gammaln, logsumexp

from prefkin.data.arrays import FloatArray, IntArray, above_zero
from prefkin.inference.ep import Sites, run
from prefkin.inference.factors import Factors
from prefkin.inference.hierarchy import group_posterior, user_factors
from prefkin.models.prefkin.posterior import Posterior
from prefkin.models.prefkin.shares import difference_covariance, own_share, rows_to_half
from prefkin.models.reports import Explanation

if TYPE_CHECKING:
    from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["LogOdds", "comparisons_to_turn", "equality_odds", "explained"]

MOST_DOUBLINGS = 13.0  # comparisons to turn a verdict: at most 2 to this power
ACCURACY = 0.2  # in doublings
CONTENDERS = 3  # other groups that are compared while comparisons are added


def explained(model: PrefKin, u: int, v: int) -> Explanation:
    """What `PrefKin.explain` says of the users at these positions."""
    user, other = model.users_[[u, v]].tolist()
    if u == v:
        return Explanation(True, 0.0, 0.5, f"{user!r} always uses its own comparisons.", probability=1.0)
    posterior = model._learnt.posterior
    probability = float(model._together(u)[v])
    difference = model.theta_[u] - model.theta_[v]
    distance = float(np.linalg.norm(difference))
    error = _length_error(difference, difference_covariance(model._learnt.uncertainty, u, v))
    estimates = f"their estimates are {distance:.3g} ± {error:.2g} apart"
    if model.structure_ == "groups":
        odds = _LeaveOneOut(posterior, u, v).log_odds()
        turning = comparisons_to_turn(posterior, u, v)
        text = _about_groups(user, other, probability, odds, turning, estimates)
    else:
        odds = LogOdds(equality_odds(posterior, u, v), 0.0)
        turning = rows_to_half(posterior, u, float(model._users.counts[u]))
        text = (
            f"No groups were found ({model.structure_}): both lean on what all users have in common, and "
            f"{estimates} (log odds {odds.answers:+.1f} for wanting exactly the same). Own answers decide "
            f"{own_share(posterior, u):.0%} of the estimate of {user!r}"
        )
        text += f"; about {_about(turning)} more would make it half." if 0 < turning < np.inf else "."
    return Explanation(
        bool(probability > 0.5), distance, probability - 0.5, text, probability=probability, distance_error=error,
        answers=odds.answers, prior=odds.prior, turning_comparisons=float(turning),
    )  # fmt: skip


def _about_groups(user: str, other: str, probability: float, odds: LogOdds, turning: float, estimates: str) -> str:
    joined = probability > 0.5
    text = (
        f"{user!r} and {other!r} are taken to want {'the same' if joined else 'different things'}: probability "
        f"{_in_digits(probability)} of one group (log odds {odds.total:+.1f}: answers {odds.answers:+.1f}, prior "
        f"{odds.prior:+.1f}), and {estimates}."
    )
    if np.isfinite(turning):
        as_who = "as the likeliest others would" if joined else f"as the group of {other!r} would"
        text += f" About {_about(turning)} more comparisons of {user!r} like those so far, but answered {as_who}, "
        text += "would turn that round."
    return text


# -- log odds ----------------------------------------------------------------------------------------------------------


class LogOdds(NamedTuple):
    """Log odds that a user belongs with another: prior and answers add up."""

    answers: float  # log Bayes factor of the user's answers for belonging there, against elsewhere
    prior: float  # log prior odds

    @property
    def total(self) -> float:
        """Posterior log odds."""
        return self.answers + self.prior


class _LeaveOneOut:
    """The groups without one user; the group of `other`, a new one where `other` is a singleton, is at `beside`."""

    def __init__(self, posterior: Posterior, user: int, other: int) -> None:
        population, both = posterior.population, np.array([user, other])
        likelihoods = posterior.factors(both)
        own = likelihoods.marginalise(population.within * posterior.spread[both])
        r, alone = posterior.share[user], population.variances(len(posterior.sizes))[-1] * posterior.spread[user]
        singleton = likelihoods[:1].marginalise(alone)
        Lam, eta = posterior.messages.Lam.copy(), posterior.messages.eta.copy()
        Lam[:-1] -= r[:-1, None, None] * own.Lam[0]
        eta[:-1] -= r[:-1, None] * own.eta[0]
        Lam[-1] -= r[-1] * singleton.Lam[0]
        eta[-1] -= r[-1] * singleton.eta[0]
        sizes = (posterior.sizes - r)[:-1]
        self.beside = int(np.argmax(posterior.share[other]))
        if self.beside == len(sizes):
            Lam, eta = np.insert(Lam, -1, own.Lam[1], axis=0), np.insert(eta, -1, own.eta[1], axis=0)
            sizes = np.append(sizes, 1.0)
        self.population, self.factor, self.spread = population, likelihoods[:1], float(posterior.spread[user])
        self.groups = group_posterior(Factors(Lam, eta, np.zeros(len(eta))), population)
        weights = population.partition.log_weights(np.maximum(sizes, 1e-9))
        self.prior = np.append(np.where(sizes > 1e-3, weights, -np.inf), population.partition.singleton)
        self.elsewhere = np.arange(len(self.prior)) != self.beside

    def evidence(self, factor: Factors, which: IntArray) -> FloatArray:
        """Log evidence of the user's answers in each of these components."""
        variances = self.spread * self.population.variances(len(self.prior))[which]
        repeated = factor[np.zeros(len(which), dtype=np.intp)].marginalise(variances)
        m, S = self.groups.means[which], self.groups.covs[which]
        s = repeated.eta - np.einsum("kij,kj->ki", repeated.Lam, m)
        P = np.eye(factor.dim) + S @ repeated.Lam
        drawn = np.einsum("ki,kij,kj->k", s, np.linalg.solve(P, S), s) - np.linalg.slogdet(P)[1]
        return repeated.level + 0.5 * (np.einsum("ki,ki->k", repeated.eta + s, m) + drawn)

    def log_odds(self) -> LogOdds:
        """Of belonging with `other`."""
        score = self.prior + self.evidence(self.factor, np.arange(len(self.prior)))
        prior = float(self.prior[self.beside] - logsumexp(self.prior[self.elsewhere]))
        return LogOdds(float(score[self.beside] - logsumexp(score[self.elsewhere])) - prior, prior)


def comparisons_to_turn(posterior: Posterior, user: int, other: int) -> float:
    """About how many more comparisons would change whether `user` belongs with `other`; infinity: none would.

    The user's rows come again and again, with the answers that the group of `other` expects; or, where the two belong
    together, that the likeliest other group, or the user as a singleton, expects. EP runs anew with both kinds of rows.
    """
    around = _LeaveOneOut(posterior, user, other)
    population, groups, last = posterior.population, around.groups, len(around.prior) - 1
    score = around.prior + around.evidence(around.factor, np.arange(last + 1))
    some = np.argsort(np.where(around.elsewhere, -score, -np.inf))[: CONTENDERS + 1]  # `beside` first, then its rivals
    joined = bool(score[around.beside] > logsumexp(score[around.elsewhere]))
    target = around.beside
    if joined:
        others = np.delete(np.arange(last), around.beside)
        target = int(others[np.argmax(score[others])]) if np.isfinite(score[others]).any() else last
    mean = groups.means[target]
    if target == last:  # a singleton answers like the user alone
        variance = population.variances(last + 1)[-1]
        P = np.eye(len(mean)) + variance * around.factor.Lam[0]
        mean = np.linalg.solve(P, mean + variance * around.factor.eta[0])
    design = posterior.design.users(np.array([user]))
    expected = expit(design.X @ population.preferences(mean[None])[0])
    expected = np.where(design.y > 0.5, expected, 1.0 - expected)  # of the answer that was given
    each = design.weight / above_zero(design.weight.sum())

    def log_odds(doublings: float) -> float:
        n = 2.0**doublings * each
        weight = np.concatenate([design.weight + n * expected, n * (1.0 - expected)])
        X, y, offset = np.vstack([design.X] * 2), np.append(design.y, 1.0 - design.y), np.tile(design.offset, 2)
        more = replace(design, X=X, y=y, weight=weight, offset=offset, starts=np.array([0, len(weight)]))
        start = Sites.start(more, population.within * more.with_root(population.root).size)
        rows, found = more.with_root(population.root), []
        for c in some:
            share = np.eye(last + 1)[[c]]
            sites = run(more, start, share, population, groups=groups).sites
            found.append(around.prior[c] + around.evidence(user_factors(rows, *sites), np.array([c]))[0])
        return float(found[0] - logsumexp(found[1:]))

    few, many = log_odds(0.0), log_odds(MOST_DOUBLINGS)
    if (many > 0.0) == joined:
        return np.inf
    if (few > 0.0) != joined:
        return 1.0
    return float(2.0 ** brentq(log_odds, 0.0, MOST_DOUBLINGS, xtol=ACCURACY))


def equality_odds(posterior: Posterior, user: int, other: int) -> float:
    """Log Bayes factor of equal preferences, against two users drawn from the first group."""
    each, mean = posterior.factors(np.array([user, other])), posterior.groups.means[0]
    same = (each[:1] + each[1:]).log_integral(mean, posterior.population.within)
    return float(same[0] - each.log_integral(mean, posterior.population.within).sum())


# -- in words ----------------------------------------------------------------------------------------------------------


def _length_error(mean: FloatArray, C: FloatArray) -> float:
    """Standard deviation of ‖x‖ for x ~ N(mean, C): ‖x‖² as a Gamma law with the same mean and variance."""
    square = float(mean @ mean) + float(np.trace(C))
    variance = 2.0 * float((C * C).sum()) + 4.0 * float(mean @ C @ mean)
    if not variance > 1e-8 * square**2:  # then differences of large numbers would decide
        return float(np.sqrt(variance / above_zero(4.0 * square)))
    shape = square**2 / variance
    length = np.exp(gammaln(shape + 0.5) - gammaln(shape)) * np.sqrt(variance / square)
    return float(np.sqrt(max(square - length**2, 0.0)))


def _about(count: float) -> str:
    """A count to two digits, in plain digits."""
    return f"{float(f'{np.ceil(count):.2g}'):,.0f}"


def _in_digits(probability: float) -> str:
    """A probability in two digits, never 0 or 1."""
    return "under 0.001" if probability < 0.001 else "over 0.999" if probability > 0.999 else f"{probability:.2g}"
