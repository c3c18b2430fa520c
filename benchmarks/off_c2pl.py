"""The paper's algorithm, literal and with what makes it usable, next to own data and to an oracle, on synthetic people.

    python benchmarks/off_c2pl.py [REGIME ...] --seeds 7000 8

Regimes, gap and oracle are those of regimes.py. "literal" is the paper's estimates, radii and distances with
gamma="auto". Mean and standard error over seeds of the gap, and for each variant the mean share of the neighbours that
are truly of the same group (precision) and the mean share of the same group that are neighbours (recall).
"""

import argparse
import time
import warnings

import numpy as np
from regimes import REGIMES, gap, people

from prefkin import OffC2PL
from prefkin.models.baselines import GroupShrinkage, per_user

VARIANTS = {
    "literal": {},
    "ridge auto": {"ridge": "auto"},
    "calibrated, ridge auto": {"radius": "calibrated", "ridge": "auto"},
    "information, ridge auto": {"distance": "information", "ridge": "auto"},
    "information, gamma 1.1": {"distance": "information", "gamma": 1.1, "ridge": "auto"},
}


def found(model, label):
    """Precision and recall of the neighbours, over users."""
    joined = np.array([np.isin(np.arange(len(label)), model.members(u)) for u in range(len(label))])
    same = label[:, None] == label
    np.fill_diagonal(joined, False)
    np.fill_diagonal(same, False)
    return (joined & same).sum() / max(joined.sum(), 1), (joined & same).sum() / max(same.sum(), 1)


def main():
    """Print a block per regime."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("regimes", nargs="*", default=["base", "own imbalance", "N100"])
    parser.add_argument("--seeds", nargs=2, type=int, default=(7000, 8), metavar=("FIRST", "COUNT"))
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    first, count = args.seeds
    for regime in args.regimes:
        results = {}
        for seed in range(first, first + count):
            data, theta, label = people(seed, **REGIMES[regime])
            for name, rival in (("own tuned", per_user()), ("oracle", GroupShrinkage(label))):
                start = time.perf_counter()
                value = gap(rival.fit(data).theta_, theta)
                results.setdefault(name, []).append((value, np.nan, np.nan, time.perf_counter() - start))
            for name in args.variants:
                start = time.perf_counter()
                model = OffC2PL(**VARIANTS[name]).fit(data)
                seconds = time.perf_counter() - start
                results.setdefault(name, []).append((gap(model.theta_, theta), *found(model, label), seconds))
        print(f"{regime:25} gap               precision  recall  seconds")
        for name, rows in results.items():
            mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / np.sqrt(count)
            print(
                f"  {name:23} {mean[0]:.4f} ± {error[0]:.4f}   {mean[1]:.2f}       {mean[2]:.2f}    {mean[3]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
