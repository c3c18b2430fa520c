"""What is believed about somebody who may belong to any of several groups: θ ~ N(mean_k, C_k) with chance k.

Answers make some groups likelier and, within each, the preference better known. Nothing of size d × d is kept for a
person: with n answers, C_k loses the part that n vectors span.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtrs
from scipy.special import softmax

from prefkin.data.arrays import FloatArray
from prefkin.decide.belief import Belief, Margins
from prefkin.decide.rules.pool import Pool
from prefkin.inference.components import Components, propagate

__all__ = ["MixtureBelief", "Population"]

JITTER = 1e-10, 1e-12  # of a margin's variance, and in log odds: so that rows which say the same can be factored
NEGLIGIBLE = 1e-4  # chance below which a group has no say in what to ask next
ROWS_AT_ONCE = 1024  # pairs whose variance is computed in one product


class Population:
    """People in general: groups of them, and those who belong to none.

    >>> two = Population(np.array([3.0, 1.0]), np.array([[1.0], [-1.0]]), np.full((2, 1, 1), 0.1))
    >>> somebody = two.nobody
    >>> somebody.chance.tolist(), somebody.mean.tolist()
    ([0.75, 0.25], [0.5])
    """

    def __init__(self, weights: FloatArray, means: FloatArray, covariances: FloatArray, habit: float = 0.0) -> None:
        self.habit = habit  # log odds by which they take the first side, whatever is on it
        self.log_weights = np.log(weights / weights.sum())  # (K,)
        self.means, self.covariances = means, covariances  # (K, d), (K, d, d)
        self._variances: WeakKeyDictionary[Pool, FloatArray] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self.log_weights)

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.means.shape[1]

    @cached_property
    def nobody(self) -> MixtureBelief:
        """What is believed before the first answer."""
        return MixtureBelief(self, np.empty((0, self.dim)), np.empty(0), np.empty((len(self), 0, self.dim)))

    def belief(self, Z: FloatArray, y: FloatArray) -> MixtureBelief:
        """What is believed of somebody who answered `y` about the differences `Z`, (n, d)."""
        return self.nobody.hearing(Z, y)

    @cached_property
    def roots(self) -> FloatArray:
        """Roots of the covariances, (K, d, d)."""
        return np.array([Belief.from_covariance(self.means[0], C).root for C in self.covariances])

    def variances(self, pool: Pool) -> FloatArray:
        """Of the margins of all pairs, in the pool's units, (K, pairs); computed once for all people."""
        if pool not in self._variances:
            found: FloatArray = np.empty((len(self), len(pool)), dtype=np.float32)
            for k, C in enumerate(self.covariances):
                light = (C * pool.unit**2).astype(np.float32)
                for start in range(0, len(pool), ROWS_AT_ONCE):
                    Z = pool.Z[start : start + ROWS_AT_ONCE]
                    found[k, start : start + ROWS_AT_ONCE] = np.einsum("ij,ij->i", Z @ light, Z)
            self._variances[pool] = found
        return self._variances[pool]


class Part(NamedTuple):
    """One group's share in a belief: N(mean, C_k − VᵀV)."""

    group: int
    chance: float
    mean: FloatArray  # (d,)
    V: FloatArray  # (at most n or d, d)


class MixtureBelief(Belief):
    """A person of this population, after some answers; wherever one normal distribution is asked for, the nearest."""

    def __init__(
        self,
        population: Population,
        X: FloatArray,
        side: FloatArray,
        images: FloatArray,
        before: Components | None = None,
    ) -> None:
        self.__dict__.update(population=population, X=X, side=side, images=images, before=before)

    population: Population
    X: FloatArray  # rows (2y − 1) z, (n, d)
    side: FloatArray  # 2y − 1: 1 where the first side was preferred, (n,)
    images: FloatArray  # C_k x of each, (K, n, d)
    before: Components | None  # what was found before the last of them

    def hearing(self, Z: FloatArray, y: FloatArray) -> MixtureBelief:
        """What is believed when these answers are heard, too."""
        side = 2.0 * y - 1.0
        X = side[:, None] * Z
        return MixtureBelief(
            self.population,
            np.concatenate([self.X, X]),
            np.concatenate([self.side, side]),
            np.concatenate([self.images, np.matmul(X, self.population.covariances)], axis=1),
            self._components if len(self.X) else None,
        )

    def without_last(self) -> MixtureBelief:
        """With one answer less: the others heard again, so that it is the same to the last digit."""
        found = self.population.nobody
        for x, side in zip(self.X[:-1, None], self.side[:-1, None], strict=True):
            found = found.hearing(side * x, 0.5 * (1.0 + side))
        return found

    @cached_property
    def _components(self) -> Components:
        n, d = self.X.shape
        offset = self.population.means @ self.X.T + self.population.habit * self.side
        if n > d:
            L = np.matmul(self.X, self.population.roots)
        else:
            L = np.matmul(self.images, self.X.T)
            relative, absolute = JITTER
            variance = np.einsum("kii->ki", L)
            variance += relative * variance + absolute
            L = np.linalg.cholesky(0.5 * (L + L.transpose(0, 2, 1)))
        return propagate(L, offset, self.population.log_weights, self.before)

    @cached_property
    def chance(self) -> FloatArray:
        """The chance that this person is of each group, (K,)."""
        known = self.population.log_weights
        return softmax(known + self._components.evidence) if len(self.X) else np.exp(known)

    @cached_property
    def means(self) -> FloatArray:
        """E θ in each group, (K, d)."""
        if not len(self.X):
            return self.population.means
        found = self._components
        return self.population.means + np.einsum("kn,knd->kd", found.nu - found.tau * found.margin, self.images)

    @cached_property
    def mean(self) -> FloatArray:
        """E θ, (d,)."""
        return self.chance @ self.means

    @cached_property
    def parts(self) -> list[Part]:
        """The groups that matter."""
        who = np.flatnonzero(self.chance >= NEGLIGIBLE)
        chance = self.chance[who] / self.chance[who].sum()
        return [Part(int(k), float(c), self.means[k], self._gone(int(k))) for k, c in zip(who, chance, strict=True)]

    def _gone(self, k: int) -> FloatArray:
        """V with VᵀV what the answers took from C_k; no more rows than answers or features."""
        n, d = self.X.shape
        if n == 0:
            return np.empty((0, d))
        root = np.sqrt(self._components.tau[k])
        if n <= d:
            B = root[:, None] * (self.images[k] @ self.X.T) * root
            B.flat[:: n + 1] += 1.0
            factor, _ = dpotrf(B, lower=1)
            V, _ = dtrtrs(factor, root[:, None] * self.images[k], lower=1)
            return np.ascontiguousarray(V)
        white = self.X @ self.population.roots[k]
        values, axes = np.linalg.eigh(white.T @ (self._components.tau[k][:, None] * white))
        share = np.maximum(values, 0.0) / (1.0 + np.maximum(values, 0.0))
        return (np.sqrt(share) * (self.population.roots[k] @ axes)).T

    @cached_property
    def radius(self) -> float:
        """√tr C, without C."""
        square = 0.0
        for part in self.parts:
            off = part.mean - self.mean
            left = np.trace(self.population.covariances[part.group]) - float((part.V**2).sum())
            square += part.chance * (left + float(off @ off))
        return float(np.sqrt(max(square, 0.0)))

    @cached_property
    def covariance(self) -> FloatArray:
        """C of the mixture as a whole, (d, d)."""
        C = np.zeros((len(self.mean), len(self.mean)))
        for part in self.parts:
            off = part.mean - self.mean
            C += part.chance * (self.population.covariances[part.group] - part.V.T @ part.V + np.outer(off, off))
        return 0.5 * (C + C.T)

    @cached_property
    def root(self) -> FloatArray:
        """A root of `covariance`."""
        return Belief.from_covariance(self.mean, self.covariance).root

    def draws(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Preferences from the mixture itself, (d, n)."""
        chance = np.array([part.chance for part in self.parts])
        found = []
        for part, many in zip(self.parts, rng.multinomial(n, chance / chance.sum()), strict=True):
            C = self.population.covariances[part.group] - part.V.T @ part.V
            found.append(Belief.from_covariance(part.mean, C).draws(int(many), rng))
        return np.concatenate(found, axis=1)

    def margins(self, pool: Pool) -> Margins:
        """Of all pairs, in each group that matters."""
        before, unit = self.population.variances(pool), pool.unit
        mean = (unit * np.array([part.mean for part in self.parts])).astype(np.float32) @ pool.Z.T
        variance = np.empty_like(mean)
        for k, part in enumerate(self.parts):
            told = (unit * part.V).astype(np.float32) @ pool.Z.T
            variance[k] = before[part.group] - np.einsum("nz,nz->z", told, told)
        np.maximum(variance, 0.0, out=variance)
        return Margins(np.array([part.chance for part in self.parts], dtype=np.float32), mean, variance)
