"""Sets of like-minded people in a crowd: merged as in a small group, but each only with its likely partners.

All pairs of some thousand people are too many to weigh. Partners are those whose union would gain most evidence if all
answers told about the same directions, which takes one product of vectors a pair; the likeliest of them are weighed
exactly. A set's centre is better known than its members: partners are looked up anew whenever half of the sets are gone.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from scipy.sparse import csr_array

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.inference.quadratics import Terms
from prefkin.models.prefkin.mixture import Prior, joint_evidence, set_evidence
from prefkin.models.prefkin.settings import LIMITS

__all__ = ["merge_crowd", "summed_sets"]


def merge_crowd(users: Terms, prior: Prior, partition: IntArray, partners: int) -> IntArray:
    """Merge the two sets whose union gains most evidence, again and again, as long as any does."""
    while True:
        sums = summed_sets(users, partition)
        moved = _merged(sums, prior, partners)
        partition = np.unique(moved[partition], return_inverse=True)[1]
        if (n := int(partition.max()) + 1) == len(sums) or n == 1:
            return partition


def summed_sets(users: Terms, partition: IntArray) -> Terms:
    """Sums over the users of each set."""
    n, d = users.a.shape
    belongs = csr_array((np.ones(n), partition, np.arange(n + 1))).T.tocsr()
    return Terms((belongs @ users.A.reshape(n, d * d)).reshape(-1, d, d), belongs @ users.a, belongs @ users.level)


def _merged(sums: Terms, prior: Prior, partners: int) -> IntArray:
    """For each set the one it ends in, once half of them are gone or no union gains."""
    n = len(sums)
    score, into, version, left = set_evidence(sums, prior.m0, prior.between), np.arange(n), np.zeros(n, int), n
    one, other = _likely_pairs(sums, prior, 2 * partners)
    gain = _union(sums, one, other, prior) - score[one] - score[other]
    near = [dict[int, float]() for _ in range(n)]
    for i, j, value in zip(one.tolist(), other.tolist(), gain.tolist(), strict=True):
        near[i][j] = near[j][i] = value
    waiting = [(-value, i, j, 0, 0) for i, j, value in zip(one.tolist(), other.tolist(), gain.tolist(), strict=True) if value > 0.0]
    heapify(waiting)
    while waiting and left > n // 2:
        _, i, j, seen_i, seen_j = heappop(waiting)
        if version[i] != seen_i or version[j] != seen_j:
            continue
        version[i] += 1
        version[j] = -1
        into[j], left = i, left - 1
        sums.A[i] += sums.A[j]
        sums.a[i] += sums.a[j]
        sums.level[i] += sums.level[j]
        score[i] = set_evidence(sums[i], prior.m0, prior.between)
        both = near[i]
        for k, value in near[j].items():
            near[k].pop(j, None)
            if k != i:
                both[k] = max(value, both.get(k, -np.inf))
        both.pop(j, None)
        near[j] = {}
        if len(both) > partners:
            kept = sorted(both, key=lambda k: (-both[k], k))
            for k in kept[partners:]:
                near[k].pop(i, None)
            kept = kept[:partners]
        else:
            kept = sorted(both)
        rest = np.array(kept, dtype=np.intp)
        near[i] = {}
        if not len(rest):
            continue
        gains = _union(sums, np.full(len(rest), i), rest, prior) - score[i] - score[rest]
        for k, value in zip(kept, gains.tolist(), strict=True):
            near[i][k] = near[k][i] = value
            if value > 0.0:
                first, last = min(i, k), max(i, k)
                heappush(waiting, (-value, first, last, version[first], version[last]))
    while not np.array_equal(into, into[into]):
        into = into[into]
    return into


def _union(sums: Terms, one: IntArray, other: IntArray, prior: Prior) -> FloatArray:
    together = joint_evidence(sums, one, sums, other, np.ones(len(one)), prior.m0, prior.between)
    return together + sums.level[one] + sums.level[other]


def _likely_pairs(sums: Terms, prior: Prior, partners: int) -> tuple[IntArray, IntArray]:
    """Pairs of sets, the first before the second: of each set its likeliest partners.

    As if every set's information were a multiple w of the mean one, in whose units gains follow from a product of the
    vectors a and from w: f(a + a′, w + w′) − f(a, w) − f(a′, w′), f(a, w) = (r‖a‖²/(1 + rw) − d log(1 + rw))/2.
    """
    n, d = sums.a.shape
    if n <= partners + 1:
        return np.triu_indices(n, 1)
    mean = sums.A.mean(axis=0, dtype=np.float64)
    values, axes = np.linalg.eigh(mean)
    values = np.maximum(values, 1e-9 * values[-1])
    whitened = (sums.a - sums.A @ prior.m0) @ axes / np.sqrt(values)
    r = prior.between * float(np.exp(np.log(values).mean()))
    w = np.einsum("uii->u", sums.A, dtype=np.float64) / np.trace(mean)
    size = np.einsum("ud,ud->u", whitened, whitened)
    f = 0.5 * (r * size / (1.0 + r * w) - d * np.log1p(r * w))
    few, f32, size32, w32 = whitened.astype(np.float32), f.astype(np.float32), size.astype(np.float32), w.astype(np.float32)
    ones, others = [], []
    step = max(1, LIMITS.at_once // n)
    for start in range(0, n, step):
        block = slice(start, min(start + step, n))
        both = 1.0 + np.float32(r) * (w32[block, None] + w32)
        gain = few[block] @ few.T
        gain *= 2.0
        gain += size32
        gain += size32[block, None]
        gain *= np.float32(0.5 * r)
        gain /= both
        np.log(both, out=both)
        both *= np.float32(0.5 * d)
        gain -= both
        gain -= f32
        gain[np.arange(len(gain)), np.arange(block.start, block.stop)] = -np.inf
        best = np.argpartition(gain, n - partners, axis=1)[:, n - partners :]
        ones.append(np.repeat(np.arange(block.start, block.stop), partners))
        others.append(best.ravel())
    one, other = np.concatenate(ones), np.concatenate(others)
    code = np.unique(np.minimum(one, other) * n + np.maximum(one, other))
    return code // n, code % n
