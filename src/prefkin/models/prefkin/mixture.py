"""A mixture prior over users, and what it says once the users' answers are in.

    θ_u = N(m_k, τ² I) for u in group k,   m_k = N(m_0, ρ² I),   alone: N(m_0, (τ² + ρ²) I),   m_0 = N(0, σ² I).

τ² small: groups of equals; one group with τ² large: people who differ by degrees around a common mean; τ² → 0 in one
group: everybody alike. `person` is the posterior of one user; `groups` searches for the partition, `degrees` fits one
group, `scales` finds τ² and ρ².
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.execution.executor import for_each
from prefkin.inference.modes import Around, matched
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import STACKED_UP_TO, ByMatrices, Quadratics, Signed, Terms, mirrored
from prefkin.inference.quadratics.evidence import STACKED_CHOLESKY, set_evidence
from prefkin.inference.steps import farthest, improved
from prefkin.models.prefkin.person import Part, Person
from prefkin.models.prefkin.settings import LIMITS

__all__ = [
    "AllTerms",
    "Apart",
    "Centres",
    "Mixture",
    "Others",
    "Prior",
    "alone_in",
    "covariances",
    "finished",
    "inverse",
    "nobody",
    "pieces",
    "solved",
]


class Prior(NamedTuple):
    """What is assumed about users before their answers."""

    m0: FloatArray  # (d,)
    within: float  # τ²
    between: float  # ρ²
    top: float  # σ²
    lonely: float = 0.0  # log weight of standing alone, where joining a group of n others weighs log n

    @property
    def alone(self) -> float:
        """τ² + ρ², around m_0, for somebody in no group."""
        return self.within + self.between

    def stretched(self, factor: float) -> Prior:
        """The prior of preferences `factor` times as strong."""
        m0, within, between = factor * self.m0, factor**2 * self.within, factor**2 * self.between
        return self._replace(m0=m0, within=within, between=between)

    def start(self, data: Signed) -> Sites:
        """Sites of people of whom it is not known where they belong."""
        return Sites.start(data.weights, (self.alone + float(np.mean(self.m0**2))) * data.sizes)


def pieces(n: int, size: int, room: int = LIMITS.at_once) -> Iterator[slice]:
    """Slices of n matrices of `size` numbers that fit in so much room together."""
    step = max(1, room // size)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def inverse(matrices: FloatArray) -> FloatArray:
    """Inverses of symmetric positive definite matrices, (k, d, d)."""
    if matrices.shape[-1] <= STACKED_CHOLESKY:
        return np.asarray(np.linalg.inv(matrices), dtype=np.float64)
    potrf, potri = get_lapack_funcs(("potrf", "potri"), (matrices,))

    def one(matrix: FloatArray) -> FloatArray:
        return mirrored(potri(potrf(matrix.T, lower=True, clean=False)[0], lower=True, overwrite_c=True)[0])

    return np.array(for_each(one, list(matrices), label="inverses"), dtype=matrices.dtype).reshape(matrices.shape)


@dataclass(frozen=True, eq=False)
class Centres:
    """What is known about each group's centre."""

    sums: Terms
    mean: FloatArray  # (K, d)
    doubt: FloatArray  # (K, d, d) covariance

    @classmethod
    def of(cls, sums: Terms, prior: Prior) -> Centres:
        """Posterior of m_k given the answers of its users."""
        d = len(prior.m0)
        few = sums.A.dtype.type(prior.between)
        doubt = few * inverse(np.eye(d, dtype=sums.A.dtype) + few * sums.A)
        return cls(sums, np.einsum("kij,kj->ki", doubt, sums.a + prior.m0 / prior.between), doubt)


@dataclass(frozen=True, eq=False)
class Others:
    """People who are known by the sums over them only."""

    sizes: FloatArray  # (K,) how many of them each group has
    by_degrees: bool  # are they one group in which everybody certainly is?


@dataclass(frozen=True, eq=False)
class Mixture:
    """Who belongs where, by probability, and everybody's posterior under that."""

    users: Quadratics
    share: FloatArray  # (U, K) probability of each group; what is missing to 1 is the probability of standing alone
    mean: FloatArray  # (U, d) posterior mean of each user
    prior: Prior
    centres: Centres
    sites: Sites  # from which the users' quadratics are
    evidence: float  # log evidence of the data and of who belongs together
    terms: Terms | None = None  # everybody's for τ², while a search goes on
    others: Others | None = None  # who shaped the groups and is not here

    def __len__(self) -> int:
        return len(self.share)

    @cached_property
    def weights(self) -> FloatArray:
        """(U, K + 1) probability of each group and, last, of standing alone."""
        return np.column_stack([self.share, alone_in(self.share)])

    @property
    def by_degrees(self) -> bool:
        """One group in which everybody certainly is."""
        if self.others is not None:
            return self.others.by_degrees
        return self.share.shape[1] == 1 and bool((self.share == 1.0).all())

    @cached_property
    def sizes(self) -> FloatArray:
        """(K,) members of each group, by probability."""
        here = self.share.sum(axis=0)
        return here if self.others is None else here + self.others.sizes

    @cached_property
    def evidences(self) -> FloatArray:
        """(K,) log evidence of each group, as if all levels were 0."""
        bare = replace(self.centres.sums, level=np.zeros(len(self.centres.sums)))
        return set_evidence(bare, self.prior.m0, self.prior.between)

    def terms_of(self, users: IntArray) -> Terms:
        """Terms of some users for τ²: those that are held, or made now."""
        return self.users.some(users).at(self.prior.within) if self.terms is None else self.terms[users]

    def person(self, user: int) -> Person:
        """One user's posterior: a law for each group to which they may belong, and for standing alone."""
        prior, parts, who = self.prior, list[Part](), np.array([user])
        for k in np.flatnonzero(self.weights[user] > LIMITS.unlikely):
            alone = k == self.share.shape[1]
            variance = prior.alone if alone else prior.within
            terms = self.users.some(who).at(variance) if alone else self.terms_of(who)
            mean = terms.posterior_means((prior.m0 if alone else self.centres.mean[k])[None], variance)[0]
            doubt = None if alone else self.centres.doubt[k]
            parts.append(Part(float(self.weights[user, k]), variance, terms.A[0], mean, doubt))
        return Person(parts)

    def some(self, data: Signed, users: IntArray) -> Mixture:
        """The same groups with some of the users; `data` are the rows of all."""
        return replace(
            self,
            users=self.users.some(users),
            share=self.share[users],
            mean=self.mean[users],
            sites=self.sites.of(data.rows_of(users)),
            terms=None if self.terms is None else self.terms[users],
        )

    def moved(self, data: Signed) -> FloatArray:
        """How far any of a user's margins is from where its site was matched, (U,)."""
        return farthest(self.margin(data) - self.sites.at, data.starts)

    def margin(self, data: Signed) -> FloatArray:
        """Mean of the margin of each row, (n,)."""
        margin = np.empty(len(data.X))
        centre = self.mean.astype(data.X.dtype, copy=False)
        for user in range(len(data)):
            own = data.own(user)
            np.matmul(data.X[own], centre[user], out=margin[own], casting="same_kind")
        return margin

    def refined(self, data: Signed, stretch: float = 1.0, step: float = 1.0) -> Sites:
        """The sites of everybody's rows, matched to what is now believed about their margins, `stretch` times that."""
        mean, variance = self.margins(data)
        if stretch == 1.0:
            return matched(self.sites, data, mean, variance, self.around, step)
        return improved(self.sites.stretched(stretch), data, stretch * mean, stretch**2 * variance, step)

    def around(self, users: IntArray) -> Around:
        """The prior of some users in the likeliest of their groups.

        That of nobody's group where the centre is nowhere near: then it follows from sites that have not settled.
        """
        prior, group = self.prior, np.argmax(self.weights[users], axis=1)
        centres = np.concatenate([self.centres.mean, prior.m0[None]])
        far = ((centres - prior.m0) ** 2).sum(axis=1) > LIMITS.farthest**2 * len(prior.m0) * prior.between
        alone = (group == self.share.shape[1]) | far[group]
        centre = np.where(alone[:, None], prior.m0, centres[group])
        return Around(users, centre, np.where(alone, prior.alone, prior.within))

    def margins(self, data: Signed) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the margin of each row of these users, (n,) each."""
        mean, variance = self.margin(data), np.empty(len(data.X))
        if data.dim > STACKED_UP_TO:

            def one(user: int) -> None:
                own = data.own(user)
                variance[own] = self.person(user).variance(data.X[own])

            for_each(one, range(len(self)), label="uncertainty of margins")
            return mean, variance
        sure = self.share.max(axis=1, initial=0.0) >= 1.0 - LIMITS.unlikely
        torn = np.flatnonzero(~sure)
        for piece in pieces(len(torn), data.dim**2, LIMITS.in_cache):
            who = torn[piece]
            for user, C in zip(who.tolist(), covariances(self, who), strict=True):
                own = data.own(user)
                X = data.X[own]
                np.einsum("ij,ij->i", X @ C, X, out=variance[own])
        within = self.prior.within
        for user in np.flatnonzero(sure).tolist():  # xᵀ(τ²G + G doubt G)x from Gx, without the matrix in between
            A = self.terms_of(np.array([user])).A[0] if self.terms is None else self.terms.A[user]
            own = data.own(user)
            X, doubt = data.X[own], self.centres.doubt[np.argmax(self.share[user])]
            through = X - within * np.matmul(X, A)
            np.einsum("ij,ij->i", through @ doubt + within * X, through, out=variance[own])
        return mean, np.maximum(variance, 0.0, out=variance)


def covariances(mixture: Mixture, users: slice | IntArray) -> FloatArray:
    """C_u of some users, (n, d, d): Σ_k w_k (τ²G + G doubt_k G + the spread of the parts' means)."""
    who = np.arange(*users.indices(len(mixture))) if isinstance(users, slice) else users
    d = len(mixture.prior.m0)
    found = np.empty((len(who), d, d))
    for piece in pieces(len(who), d * d, LIMITS.on_the_way):
        found[piece] = _covariances(mixture, who[piece])
    return found


def _covariances(mixture: Mixture, who: IntArray) -> FloatArray:
    """`covariances`, in one go."""
    prior, centres = mixture.prior, mixture.centres
    share, weights, d = mixture.share[who], mixture.weights[who], len(prior.m0)
    terms = mixture.terms_of(who)
    G = -prior.within * terms.A
    np.einsum("uii->ui", G)[...] += 1.0
    C = np.matmul(G, (share @ centres.doubt.reshape(-1, d * d)).reshape(-1, d, d))
    np.einsum("uii->ui", C)[...] += prior.within * share.sum(axis=1)[:, None]
    C = np.matmul(C, G)
    alone = np.flatnonzero(weights[:, -1] > LIMITS.unlikely)
    if alone.size:
        apart, w = mixture.users.some(who[alone]).at(prior.alone), weights[alone, -1]
        C[alone] -= (prior.alone**2 * w)[:, None, None] * apart.A
        off = apart.posterior_means(np.broadcast_to(prior.m0, apart.a.shape), prior.alone) - mixture.mean[who[alone]]
        C[alone] += w[:, None, None] * off[:, :, None] * off[:, None, :]
        np.einsum("uii->ui", C)[alone] += (prior.alone * w)[:, None]
    torn = np.flatnonzero(weights.max(axis=1) < 1.0 - LIMITS.unlikely)
    if torn.size:
        used = np.flatnonzero(share[torn].any(axis=0))
        means, some = centres.mean[used], terms[torn]
        images = np.matmul(some.A, means.T).transpose(0, 2, 1)
        off = (means + prior.within * (some.a[:, None] - images)) - mixture.mean[who[torn], None]  # (torn, used, d)
        C[torn] += np.matmul((share[torn][:, used, None] * off).transpose(0, 2, 1), off)
    return 0.5 * (C + C.transpose(0, 2, 1))


def solved(
    users: Quadratics,
    sites: Sites,
    share: FloatArray,
    prior: Prior,
    evidence: float = -np.inf,
    *,
    terms: Terms | None = None,
    centres: Centres | None = None,
) -> Mixture:
    """Everybody's posterior with these memberships; `terms` are for τ², `centres` those of the groups, where known."""
    every = AllTerms(users, prior.within, terms)
    centres = Centres.of(every.summed(share), prior) if centres is None else centres
    middle, trust, mean = share @ centres.mean, share.sum(axis=1), np.empty((len(share), users.dim))
    for piece, own in every:
        mean[piece] = own.posterior_means(middle[piece], prior.within, trust[piece])
    alone = alone_in(share)
    apart = np.flatnonzero(alone > LIMITS.unlikely / 2.0)
    if len(apart):
        w = alone[apart]
        mean[apart] += users.some(apart).posterior_means(w[:, None] * prior.m0, prior.alone, w)
    return Mixture(users, share, mean, prior, centres, sites, evidence, every.terms)


def nobody(centres: Centres, prior: Prior, others: Others, evidence: float = -np.inf) -> Mixture:
    """Groups without any of their members."""
    K, d = centres.mean.shape
    users = ByMatrices(np.empty((0, d, d)), np.empty((0, d)), np.empty(0))
    none = np.empty(0)
    return Mixture(
        users, np.empty((0, K)), np.empty((0, d)), prior, centres, Sites(none, none, none, none), evidence, None, others
    )


class AllTerms:
    """Everybody's terms for τ²: held, or made a few users at a time where there is no room for all."""

    def __init__(self, users: Quadratics, within: float, terms: Terms | None = None) -> None:
        self.users, self.within = users, within
        fits = len(users) * users.dim**2 <= LIMITS.most_numbers
        self.terms = users.at(within) if terms is None and fits else terms

    def __iter__(self) -> Iterator[tuple[slice, Terms]]:
        if self.terms is not None:
            yield slice(0, len(self.users)), self.terms
            return
        for piece in pieces(len(self.users), self.users.dim**2):
            yield piece, self.users.some(np.arange(piece.start, piece.stop)).at(self.within)

    def summed(self, share: FloatArray) -> Terms:
        """Sums over each group, to which user u belongs by share[u, k]."""
        return reduce(add, (terms.summed(share[piece]) for piece, terms in self))


class Apart(NamedTuple):
    """Those who may stand alone, and their terms in m_0."""

    who: IntArray  # (n,)
    weight: FloatArray  # (n,) how probable that is
    terms: Terms

    @classmethod
    def of(cls, users: Quadratics, share: FloatArray, prior: Prior) -> Apart:
        """Whoever may be alone, with terms under the prior of somebody in no group."""
        alone = alone_in(share)
        who = np.flatnonzero(alone > LIMITS.unlikely / 2.0)
        return cls(who, alone[who], users.some(who).at(prior.alone) if len(who) else Terms.zeros(0, users.dim))


def finished(mixture: Mixture) -> Mixture:
    """The mixture without terms, which only a search needs: they are made when they are asked for."""
    return replace(mixture, terms=None)


def alone_in(share: FloatArray) -> FloatArray:
    """(U,) the probability of standing alone that `share` leaves."""
    return np.maximum(1.0 - share.sum(axis=1), 0.0)
