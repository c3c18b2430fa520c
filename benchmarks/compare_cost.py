"""What `prefkin fit --compare` costs beside the fit itself.

    [PREFKIN_DATA=folder] python benchmarks/compare_cost.py [--people 90] [--answers 300] [--dim 384] [--seed 1] [--ukp]

Made people in four groups with features as long as embeddings are, or (`--ukp`) UKPConvArg's annotators with at least
100 judgements and texts as all-MiniLM-L6-v2 encodes them: about 27,000 rows of 384 features either way. Seconds are CPU
time of one `PrefKin().fit(data)` and of one `compare(data)`, every method on the same held-out answers.
"""

import argparse
import time
import warnings

import numpy as np
from real_data import texts
from scipy.special import expit

from prefkin import Comparisons, PrefKin
from prefkin.evaluate.compare import compare
from prefkin.reproduce.worlds.pairs import data_folder

GROUPS, STRENGTH = 4, 2.5  # standard deviation of log odds


def made(people, answers, dim, seed):
    """Answers of people in groups about pairs of unit-norm vectors."""
    rng = np.random.default_rng(seed)
    items = rng.standard_normal((1000, dim))
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    first, second = items[rng.integers(1000, size=(2, people * answers))]
    wanted, owner = rng.standard_normal((GROUPS, dim)), np.repeat(np.arange(people), answers)
    wanted *= STRENGTH / ((first - second) @ wanted.T).std(axis=0)[:, None]
    p = expit(np.einsum("ij,ij->i", first - second, wanted[owner % GROUPS]))
    return Comparisons.from_sides(first, second, (rng.random(len(p)) < p).astype(float), owner)


def main():
    """Seconds, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=90)
    parser.add_argument("--answers", type=int, default=300)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ukp", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    data = (
        texts(data_folder(), "ukp-minilm384-all") if args.ukp else made(args.people, args.answers, args.dim, args.seed)
    )
    print(f"{len(data)} answers of {len(data.labels)} people, {data.dim} features")
    seconds = []
    for work in (PrefKin().fit, compare):
        start = time.process_time()
        work(data)
        seconds.append(time.process_time() - start)
    print(f"fit {seconds[0]:.1f} s, compare {seconds[1]:.1f} s: {seconds[1] / seconds[0]:.2f} times the fit")


if __name__ == "__main__":
    main()
