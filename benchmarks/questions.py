"""Do PrefKin's questions teach more than random ones, and than the paper's rule?

    python benchmarks/questions.py --runs 30

30 users in 6 groups; after the fit one user is asked; the gap 1 − cos(estimate, truth) after the questions, mean and
standard error over runs, and the improvement over random pairs with the standard error of the paired difference.
"""

import argparse
import warnings

import numpy as np
from regimes import people
from scipy.special import expit

from prefkin import Candidates, PrefKin

CELLS = {
    "d20": {"dim": 20, "n": 40},
    "d20 imbalanced": {"dim": 20, "n": 40, "imbalance": "shared"},
    "d50": {"dim": 50, "n": 100},
    "d50 imbalanced": {"dim": 50, "n": 100, "imbalance": "shared"},
}
RULES = ("posterior", "coverage", "random")


def main():
    """Print a line per cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--first", type=int, default=5000)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "cell             questions  before   "
        + "   ".join(f"{rule:>16}" for rule in RULES)
        + "   posterior/random  coverage/random"
    )
    for name, cell in CELLS.items():
        gaps, before, questions = [], [], 2 * cell["dim"]
        for seed in range(args.first, args.first + args.runs):
            data, theta, _ = people(seed, users=30, groups=6, **cell)
            model = PrefKin(metric="isotropic").fit(data)
            rng = np.random.default_rng([seed, 2])
            user = int(rng.integers(30))
            candidates = Candidates(rng.standard_normal((100, 4, cell["dim"])))
            truth = theta[user]

            def gap(estimate, truth=truth):
                return 1 - estimate @ truth / np.linalg.norm(estimate) / np.linalg.norm(truth)

            before.append(gap(model.theta_[user]))
            ends = []
            for rule in RULES:
                session = model.session(user, candidates, rule=rule, random_state=seed)
                answers = np.random.default_rng([seed, 3])
                for _ in range(questions):
                    question = session.ask()
                    session.tell(question, bool(answers.random() < expit(session.difference(question) @ truth)))
                ends.append(gap(session.preference))
            gaps.append(ends)
        gaps = np.array(gaps)
        mean, error = gaps.mean(axis=0), gaps.std(axis=0, ddof=1) / np.sqrt(args.runs)
        better = [1 - mean[i] / mean[2] for i in (0, 1)]
        spread = [(gaps[:, i] - gaps[:, 2]).std(ddof=1) / np.sqrt(args.runs) / mean[2] for i in (0, 1)]
        cells = "   ".join(f"{m:.4f} ± {e:.4f}" for m, e in zip(mean, error, strict=True))
        gains = "    ".join(f"{b:+.0%} ± {s:.0%}" for b, s in zip(better, spread, strict=True))
        print(f"{name:16} {questions:9}  {np.mean(before):.4f}   {cells}   {gains}", flush=True)


if __name__ == "__main__":
    main()
