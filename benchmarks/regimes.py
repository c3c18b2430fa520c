"""PrefKin against an oracle that is told the true groups, and against tuned rivals, on synthetic people.

    python benchmarks/regimes.py [REGIME ...] --seeds 1000 8

Gap = 1 − cos(estimate, truth), the relative regret of the greedy policy on fresh Gaussian contexts. The oracle fits
each true group's centre and draws its users towards it, both strengths tuned by held-out answers. Mean and standard
error over seeds, and the ratio of the means with the standard error of the paired difference.
"""

import argparse
import time
import warnings

import numpy as np
from scipy.special import expit

from prefkin import Comparisons, PrefKin
from prefkin.models.baselines import GroupShrinkage, per_user, shrink_to_pooled

BASE = {"dim": 50, "n": 200}
REGIMES = {
    "base": BASE,
    "N100": {**BASE, "n": 100},
    "N50": {**BASE, "n": 50},
    "d10N100": {**BASE, "dim": 10, "n": 100},
    "d10N200": {**BASE, "dim": 10},
    "d10N1000": {**BASE, "dim": 10, "n": 1000},
    "shared imbalance": {**BASE, "imbalance": "shared"},
    "own imbalance": {**BASE, "imbalance": "own"},
    "unequal N": {**BASE, "unequal": True},
    "near": {**BASE, "kind": "near"},
    "no groups": {**BASE, "kind": "cloud", "spread": 0.5},
    "J20": {**BASE, "groups": 20},
    "J1": {**BASE, "groups": 1},
    "loners": {**BASE, "kind": "loners"},
    "U200": {**BASE, "users": 200},
}


def people(seed, *, dim, n, users=40, groups=8, beta=2.0, spread=0.2, kind="groups", imbalance=None, unequal=False):
    """Comparisons, true preferences and true groups."""
    rng = np.random.default_rng(seed)
    if kind == "loners":
        groups, label = 11, np.array([0] * 30 + list(range(1, 11)))
    else:
        label = rng.integers(0, groups, users)
    centres = rng.standard_normal((groups, dim))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    if kind == "near":
        middle = rng.standard_normal(dim)
        centres = np.sqrt(0.75) * middle / np.linalg.norm(middle) + np.sqrt(0.25) * centres
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    if kind == "cloud":
        centres[:] = centres[0]
    theta = beta * (centres[label] + spread / np.sqrt(dim) * rng.standard_normal((len(label), dim)))
    sizes = np.full(len(label), n)
    if unequal:
        sizes = np.round(n * np.exp(rng.uniform(-np.log(5), np.log(5), len(label)))).astype(int)
    rows = []
    for size in sizes:
        Z = rng.standard_normal((size, dim))
        if imbalance == "shared":
            Z[:, : dim // 2] *= 0.1
        elif imbalance == "own":
            Z[:, rng.permutation(dim)[: dim // 2]] *= 0.1
        rows.append(Z)
    owner, Z = np.repeat(np.arange(len(label)), sizes), np.concatenate(rows)
    y = rng.random(len(Z)) < expit(np.einsum("ij,ij->i", Z, theta[owner]))
    return Comparisons.from_arrays(Z, y, owner), theta, label


def gap(estimate, truth):
    """Mean over users of 1 − cos."""
    cosine = np.einsum("ij,ij->i", estimate, truth)
    return 1 - np.mean(cosine / np.linalg.norm(estimate, axis=1).clip(1e-300) / np.linalg.norm(truth, axis=1))


def main():
    """Print a line per regime."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("regimes", nargs="*", default=list(REGIMES))
    parser.add_argument("--seeds", nargs=2, type=int, default=(1000, 8), metavar=("FIRST", "COUNT"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    first, count = args.seeds
    print(
        f"{'regime':17} {'own tuned':>15} {'shrink to pooled':>17} {'oracle':>15} {'PrefKin':>15}  ratio       seconds"
    )
    for regime in args.regimes:
        gaps, seconds, seen = [], [], []
        for seed in range(first, first + count):
            data, theta, label = people(seed, **REGIMES[regime])
            start = time.perf_counter()
            model = PrefKin().fit(data)
            seconds.append(time.perf_counter() - start)
            seen.append(model.structure_)
            rivals = (per_user(), shrink_to_pooled(), GroupShrinkage(label))
            gaps.append([*(gap(rival.fit(data).theta_, theta) for rival in rivals), gap(model.theta_, theta)])
        gaps = np.array(gaps)
        mean, error = gaps.mean(axis=0), gaps.std(axis=0, ddof=1) / np.sqrt(count)
        reference = 1 if regime == "no groups" else 2
        ratio = mean[3] / mean[reference]
        spread = (gaps[:, 3] - gaps[:, reference]).std(ddof=1) / np.sqrt(count) / mean[reference]
        cells = "  ".join(f"{m:.4f} ± {e:.4f}" for m, e in zip(mean, error, strict=True))
        found = ", ".join(sorted(set(seen)))
        print(f"{regime:17} {cells}  {ratio:.3f} ± {spread:.3f}  {np.mean(seconds):.1f}  {found}", flush=True)


if __name__ == "__main__":
    main()
