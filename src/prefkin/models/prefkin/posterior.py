"""What is known about some people in the end, as it is looked up later: a row each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prefkin.data.arrays import FloatArray, IntArray, LabelArray
from prefkin.data.shards import Table
from prefkin.inference.information import ball_radius
from prefkin.inference.quadratics import Signed, per_user_sum
from prefkin.models.prefkin.arrays import Arrays
from prefkin.models.prefkin.calibrate import Fitted, losses_by_temperature
from prefkin.models.prefkin.settings import TRUST

__all__ = ["Posteriors"]


class Posteriors(NamedTuple):
    """Of some people, as they are looked up later."""

    counts: FloatArray  # (n,) comparisons, by weight
    theta: FloatArray  # (n, d)
    size: FloatArray  # (n,) tr C, of which radii are made
    square: FloatArray  # (n,) tr C²
    weights: FloatArray  # (n, K + 1)
    from_others: FloatArray  # (n,)
    sites: FloatArray  # (3, rows), or 6 of them where there is a wider mixture
    loss: FloatArray  # at each temperature

    @classmethod
    def of(cls, fitted: Fitted, data: Signed, judged: IntArray) -> Posteriors:
        """The temperature is `judged` by some of them."""
        mixture, C, loss = fitted.mixture, fitted.covariances(slice(None)), np.zeros(1)
        if len(judged):
            loss = losses_by_temperature(mixture.some(data, judged), data.some(judged))
        own = np.einsum("uii->u", mixture.terms_of(np.arange(len(data))).A, dtype=np.float64)
        from_others = 1.0 - mixture.prior.within * own / data.dim
        return cls(
            per_user_sum(data.weights, data.starts),
            fitted.metric.preferences(mixture.mean),
            np.einsum("uii->u", C),
            np.einsum("uij,uij->u", C, C),
            mixture.weights,
            np.where(mixture.share.max(axis=1, initial=0.0) > 0.5, from_others, 0.0),
            np.array([site for each in (mixture, fitted.wide) if each is not None for site in each.sites[:3]]),
            loss,
        )

    @classmethod
    def joined(cls, parts: Sequence[Posteriors]) -> Posteriors:
        """One after the other."""
        found = {name: [getattr(part, name) for part in parts] for name in cls._fields}
        sites, loss = np.concatenate(found.pop("sites"), axis=1), sum(found.pop("loss"), start=np.zeros(1))
        return cls(**{name: np.concatenate(each) for name, each in found.items()}, sites=sites, loss=loss)

    def table(self, labels: LabelArray, starts: IntArray, level: float) -> Table:
        """A row each."""
        place, (n, columns) = np.argmax(self.weights, axis=1), self.weights.shape
        thin = csr_array(self.weights[:, :-1])
        begins = thin.indptr.tolist()
        return {
            "user": labels,
            "comparisons": self.counts,
            "theta": self.theta,
            "radius": TRUST.caution * ball_radius(self.size, self.square, level),
            "group": np.where(place == columns - 1, -1, place),
            "probability": self.weights[np.arange(n), place],
            "groups": [thin.indices[a:b].astype("<i4").tobytes() for a, b in pairwise(begins)],
            "shares": [thin.data[a:b].astype("<f8").tobytes() for a, b in pairwise(begins)],
            "sites": [np.ascontiguousarray(self.sites[:, a:b]).tobytes() for a, b in pairwise(starts.tolist())],
        }

    @property
    def told(self) -> Arrays:
        """Sums over them: likeliest members; how many are uncertain, what comes from others, comparisons."""
        counts = np.bincount(np.argmax(self.weights, axis=1), minlength=self.weights.shape[1])
        uncertain = float((self.weights.max(axis=1) < TRUST.certain_place).sum())
        return {"counts": counts, "sums": np.array([uncertain, self.from_others.sum(), self.counts.sum()])}
