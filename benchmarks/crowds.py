"""PrefKin on crowds of many groups, against the true groups, and against k-means that is told how many there are.

    python benchmarks/crowds.py [PEOPLE:GROUPS ...] --seeds 9000 4 [--kind equal|uneven|loners|cloud] [--spread 0.2]

Gap = 1 − cos(estimate, truth), as in benchmarks/regimes.py. The rivals pool the rows of each group with one ridge,
tuned by held-out answers: true groups, k-means on own estimates, everybody alone, everybody together. "uneven": sizes
from a few hundred down to single people; "loners": half of the people belong to nobody; "cloud": there are no groups.
Seconds are CPU time of one fit; memory is what the process held at most.
"""

import argparse
import resource
import time
import warnings

import numpy as np
from scipy.special import expit
from sklearn.cluster import KMeans

from prefkin import Comparisons, PrefKin
from prefkin.models.baselines import GroupShrinkage, per_user, pooled

KINDS = ("equal", "uneven", "loners", "cloud")


def seats(rng, users, groups, kind):
    """Who belongs where: groups about as large as each other, of all sizes, or only for half of the people."""
    if kind == "uneven":
        weights = 1.0 / np.arange(1, groups + 1)
        return rng.choice(groups, users, p=weights / weights.sum())
    if kind == "loners":
        few = users // 2
        return np.concatenate([rng.integers(0, groups, users - few), groups + np.arange(few)])
    return np.arange(users) if kind == "cloud" else rng.permutation(users) % groups


def crowd(seed, users, groups, *, dim=16, n=50, beta=3.0, spread=0.0, kind="equal"):
    """Comparisons, true preferences and true groups."""
    rng = np.random.default_rng(seed)
    label = seats(rng, users, groups, kind)
    centres = rng.standard_normal((label.max() + 1, dim))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    theta = beta * (centres[label] + spread / np.sqrt(dim) * rng.standard_normal((users, dim)))
    owner, Z = np.repeat(np.arange(users), n), rng.standard_normal((users * n, dim))
    y = rng.random(len(Z)) < expit(np.einsum("ij,ij->i", Z, theta[owner]))
    return Comparisons.from_arrays(Z, y, owner), theta, label


def gap(estimate, truth):
    """Mean over users of 1 − cos."""
    cosine = np.einsum("ij,ij->i", estimate, truth)
    return 1 - np.mean(cosine / np.linalg.norm(estimate, axis=1).clip(1e-300) / np.linalg.norm(truth, axis=1))


def told_the_number(own, number):
    """k-means on own estimates, the best of three starts."""
    return KMeans(number, n_init=3, random_state=0).fit_predict(own)


def main():
    """Print a line per crowd and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("crowds", nargs="*", default=["1000:40", "3000:100", "1000:200"], metavar="PEOPLE:GROUPS")
    parser.add_argument("--seeds", nargs=2, type=int, default=(9000, 4), metavar=("FIRST", "COUNT"))
    parser.add_argument("--kind", choices=KINDS, default="equal")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--answers", type=int, default=50)
    parser.add_argument("--beta", type=float, default=3.0)
    parser.add_argument("--spread", type=float, default=0.0, help="of people within their group, over beta")
    parser.add_argument("--alone", action="store_true", help="PrefKin and the true groups only")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    names = ("PrefKin", "true groups", "k-means", "own", "pooled")
    print(f"{'crowd':>10} {'seed':>5} " + " ".join(f"{name:>11}" for name in names) + "   CPU s     GB  saw")
    for each in args.crowds:
        users, groups = (int(part) for part in each.split(":"))
        for seed in range(args.seeds[0], args.seeds[0] + args.seeds[1]):
            shape = {"dim": args.dim, "n": args.answers, "beta": args.beta, "spread": args.spread, "kind": args.kind}
            data, theta, label = crowd(seed, users, groups, **shape)
            start = time.process_time()
            model = PrefKin().fit(data)
            seconds = time.process_time() - start
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            found = model.summary()
            # within groups of equals nobody is drawn away from the centre: told so, rivals have less to tune
            pull = np.inf if args.spread == 0 and args.kind != "cloud" else "auto"
            gaps = [gap(model.theta_, theta), gap(GroupShrinkage(label, pull=pull).fit(data).theta_, theta)]
            if not args.alone:
                own = per_user().fit(data)
                guess = told_the_number(own.theta_, min(label.max() + 1, users - 1))
                gaps.append(gap(GroupShrinkage(guess, pull=pull).fit(data).theta_, theta))
                gaps += [gap(own.theta_, theta), gap(pooled().fit(data).theta_, theta)]
            cells = " ".join(f"{value:11.4f}" for value in gaps) + " " * 12 * (len(names) - len(gaps))
            saw = f"{found.structure}, {len(found.sizes)} groups, {found.alone} alone"
            print(f"{each:>10} {seed:5d} {cells} {seconds:7.1f} {memory:6.2f}  {saw}", flush=True)


if __name__ == "__main__":
    main()
