"""What taking in new answers costs beside a fit, and how far from a fit on everything the outcome is.

    python benchmarks/update.py [PEOPLE] [--share 0.01] [--groups 10] [--dim 16] [--answers 50] [--seed 1]

A crowd in groups as in benchmarks/crowds.py. `--share` of the people have new answers: two thirds of them give a fifth
of their answers later, a third is new. Seconds are CPU time of one fit and of one update; error is the mean distance
between estimate and truth, of those who answered again, before and after, and by a fit on everything (`--refit`).
"""

import argparse
import time
import warnings

import numpy as np
from crowds import crowd

from prefkin import PrefKin


def error(model, theta, who):
    """Mean distance between estimate and truth."""
    return float(np.mean([np.linalg.norm(model.theta_[model.position(u)] - theta[u]) for u in who.tolist()]))


def main():
    """Print seconds and errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("people", nargs="?", type=int, default=100_000)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--answers", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--refit", action="store_true", help="also fit on everything")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    data, theta, _ = crowd(args.seed, args.people, args.groups, dim=args.dim, n=args.answers)
    drawn = np.random.default_rng(args.seed).permutation(args.people)
    again, strangers = np.split(drawn[: int(args.share * args.people)], [int(args.share * args.people * 2 / 3)])
    place = np.tile(np.arange(args.answers), args.people)
    later = np.isin(data.users, strangers) | (np.isin(data.users, again) & (place >= 0.8 * args.answers))
    start = time.process_time()
    model = PrefKin().fit(data.take(~later))
    fit = time.process_time() - start
    before, more = error(model, theta, again), data.take(later)
    start = time.process_time()
    model.update(more)
    update = time.process_time() - start
    print(f"{args.people} people, {args.dim} features, {args.answers} answers each; {model.summary().structure}")
    print(f"fit {fit:.1f} s, update of {len(again)} people and {len(strangers)} new ones {update:.2f} s", end=": ")
    print(f"{update / fit:.1%} of a fit; log evidence for learning the prior again {model.refit_gain_:+.1f}")
    print(f"error of those who answered again: {before:.3f} before, {error(model, theta, again):.3f} after", end="")
    if args.refit:
        print(f", {error(PrefKin().fit(data), theta, again):.3f} by a fit on everything", end="")
    print()


if __name__ == "__main__":
    main()
