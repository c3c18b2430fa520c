"""How far people are from their group's centre, and centres from each other: τ² and ρ² where evidence is highest.

Around which mean m_0 the centres are, follows from both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.inference.quadratics import DENSE, STACKED_UP_TO, Terms
from prefkin.models.prefkin.mixture import Apart, Centres, Prior, inverse, pieces
from prefkin.models.prefkin.settings import LIMITS, SCALES, bounded

__all__ = ["Scaling", "common_mean", "with_common_mean"]

PROBES = 16  # vectors by which traces of products of large matrices are told, to some percent of a small correction


class Scaling(NamedTuple):
    """How τ² and ρ² should change: where evidence is highest, both ratios are 1.

    A variance is the sum of squares over the number of parameters that the data determine (MacKay, 1992): squares and
    parameters of users around their centres for τ², of centres around m_0 for ρ², of those alone for both.
    """

    within: float
    between: float
    determined: float  # parameters that speak about τ²
    centred: float  # and about ρ²

    @property
    def change(self) -> float:
        """The larger change of both, in logarithms."""
        return max(abs(float(np.log(self.within))), abs(float(np.log(self.between))))

    @classmethod
    def of(cls, terms: Terms, share: FloatArray, centres: Centres, apart: Apart, prior: Prior) -> Scaling:
        """Both changes, from everybody's terms for τ² and the posterior of the centres."""
        squares, known = _around(terms, share, centres)
        off = centres.mean - prior.m0
        centred, d = float((off**2).sum()) / prior.between, len(prior.m0)
        centres_known = len(off) * d - float(np.einsum("kii->", centres.doubt, dtype=np.float64)) / prior.between
        off = apart.terms.a - apart.terms.images(np.tile(prior.m0, (len(apart.who), 1)))
        more = float(apart.weight @ np.einsum("ud,ud->u", off, off))
        less = float(apart.weight @ np.einsum("uii->u", apart.terms.A, dtype=np.float64))
        squares, known = squares + more, known + less
        centred, centres_known = centred + prior.between * more, centres_known + prior.between * less
        return cls(_ratio(squares, known), _ratio(centred, centres_known), prior.within * known, centres_known)


def _ratio(squares: float, known: float) -> float:
    return float(np.clip(squares / max(known, 1e-12), 1.0 / SCALES.most, SCALES.most)) if known > 0.0 else 1.0


def _around(terms: Terms, share: FloatArray, centres: Centres) -> tuple[float, float]:
    """Squares of what draws users from their centres, Σ‖a − Am‖², and parameters behind it, Σ tr A − tr(A doubt A)."""
    d, known = len(centres.mean.T), float(share.sum(axis=1) @ np.einsum("uii->u", terms.A, dtype=np.float64))
    if d <= STACKED_UP_TO and share.size > DENSE:
        squares, (who, where) = 0.0, np.nonzero(share)
        for piece in pieces(len(who), d * d, LIMITS.in_cache):
            u, k = who[piece], where[piece]
            A, weight = terms.A[u], share[u, k]
            off = terms.a[u] - np.matmul(A, centres.mean[k][:, :, None])[:, :, 0]
            squares += float(weight @ np.einsum("ud,ud->u", off, off))
            known -= float(weight @ np.einsum("uij,uij->u", np.matmul(A, centres.doubt[k]), A))
        return squares, known
    if d <= STACKED_UP_TO:
        doubt = (share @ centres.doubt.reshape(-1, d * d)).reshape(-1, d, d)
        known -= float(np.einsum("uij,uij->", np.matmul(terms.A, doubt), terms.A))
        images = np.matmul(terms.A, centres.mean.T)
        return float(np.einsum("uk,udk->", share, (terms.a[:, :, None] - images) ** 2)), known
    signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0]), (d, PROBES)).astype(terms.A.dtype)
    seen = [
        np.column_stack([signs, doubt @ signs, mean]).astype(signs.dtype)
        for doubt, mean in zip(centres.doubt, centres.mean, strict=True)
    ]
    squares = 0.0
    for u, k in zip(*np.nonzero(share), strict=True):
        image = terms.A[u] @ seen[k]
        squares += share[u, k] * float(((terms.a[u] - image[:, -1]) ** 2).sum())
        known -= share[u, k] * float((image[:, :PROBES] * image[:, PROBES:-1]).sum(dtype=np.float64)) / PROBES
    return squares, known


def with_common_mean(centres: Centres, apart: Apart, prior: Prior) -> Prior:
    """The prior with m_0, and with σ² as it and its doubt say."""
    m0, covariance = common_mean(centres, apart, prior)
    return prior._replace(m0=m0, top=bounded(float(m0 @ m0 + np.trace(covariance)) / len(m0)))


def common_mean(centres: Centres, apart: Apart, prior: Prior) -> tuple[FloatArray, FloatArray]:
    """m_0 given who belongs where, and its covariance."""
    d, kept = len(prior.m0), centres.doubt / prior.between  # (I + ρ²A)⁻¹
    precision = np.eye(d) / prior.top + (len(kept) * np.eye(d) - kept.sum(axis=0, dtype=np.float64)) / prior.between
    precision += np.einsum("u,uij->ij", apart.weight, apart.terms.A)
    covariance = inverse(precision[None])[0]
    return covariance @ (np.einsum("kij,kj->i", kept, centres.sums.a) + apart.weight @ apart.terms.a), covariance
