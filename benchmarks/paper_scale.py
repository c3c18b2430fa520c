"""Time and memory of one fit and one policy at the paper's scale; run it by hand: python benchmarks/paper_scale.py."""

import argparse
import resource
import time
import warnings

import numpy as np

from prefkin import Candidates, OffC2PL
from prefkin.data.synthetic import make_population
from prefkin.decide.policy import best_policy
from prefkin.errors import PrefkinWarning


def peak() -> float:
    """Largest resident memory so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    """Fit, then solve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=40)
    parser.add_argument("--comparisons", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--contexts", type=int, default=1000)
    parser.add_argument("--actions", type=int, default=100)
    args = parser.parse_args()
    warnings.simplefilter("ignore", PrefkinWarning)
    rng = np.random.default_rng(0)
    people = make_population(
        rng, n_users=args.users, n_groups=8, dim=args.dim, n_comparisons=args.comparisons, strength=4.0, n_held_out=1
    )
    data = people.data
    size = f"U={args.users} N={args.comparisons} d={args.dim}"
    print(f"{size}: data {data.Z.nbytes / 1e6:.0f} MB, peak so far {peak():.2f} GB")
    for gamma in (1.0, np.inf):
        start = time.perf_counter()
        model = OffC2PL(gamma).fit(data.Z, data.y, users=data.users)
        print(f"fit, gamma={gamma}: {time.perf_counter() - start:.1f} s, peak {peak():.2f} GB")
    del people, data
    features = rng.standard_normal((args.contexts, args.actions, args.dim))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    candidates, M = Candidates(features), model.information(0)
    for scale in (0.0, 0.001, 0.01, 1.0):
        start = time.perf_counter()
        found = best_policy(candidates, model.theta_[0], M, beta=scale * model.width(0))
        spent = time.perf_counter() - start
        print(f"policy of {args.contexts} contexts x {args.actions} actions, pessimism {scale}: {spent:.1f} s, {found}")
    print(f"peak {peak():.2f} GB, of which candidates {features.nbytes / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
