"""PrefKin at the paper's scale (U = 40, J = 8, d = 768): gap against the oracle, seconds, memory.

python benchmarks/paper_scale_prefkin.py --comparisons 100 1000 --seeds 3000 2
"""

import argparse
import resource
import time
import warnings

from regimes import gap, people

from prefkin import PrefKin
from prefkin.models.baselines import GroupShrinkage, per_user


def main():
    """Print a line per size and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", nargs="+", type=int, default=(100, 300, 1000))
    parser.add_argument("--seeds", nargs=2, type=int, default=(3000, 2), metavar=("FIRST", "COUNT"))
    parser.add_argument("--beta", type=float, default=4.0)
    parser.add_argument("--dim", type=int, default=768)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    first, count = args.seeds
    for n in args.comparisons:
        for seed in range(first, first + count):
            data, theta, label = people(seed, dim=args.dim, n=n, beta=args.beta)
            start = time.perf_counter()
            model = PrefKin(metric="isotropic").fit(data)
            seconds = time.perf_counter() - start
            rivals = [gap(rival.fit(data).theta_, theta) for rival in (per_user(), GroupShrinkage(label))]
            ours, memory = gap(model.theta_, theta), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            print(
                f"N={n} seed={seed}: own tuned {rivals[0]:.3f}, oracle {rivals[1]:.3f}, PrefKin {ours:.3f} "
                f"({ours / rivals[1]:.3f} of the oracle, {model.structure_}), {seconds:.0f} s, peak {memory:.1f} GB",
                flush=True,
            )


if __name__ == "__main__":
    main()
