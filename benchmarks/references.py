"""Are estimates what they should be? Own estimates and posteriors beside references that share no code with them.

    python benchmarks/references.py estimates --people 2000 --seed 0

prints for each kind of person, ridge and number of features how far own estimates are from Newton's method in double
precision: as a share of their length with each feature in its own unit, where the data determine it, and in
probabilities.

    python benchmarks/references.py posteriors --people 200 --seed 0

prints for small problems of each kind how far PrefKin's posterior by degrees is from importance sampling under the same
prior: means in posterior standard deviations and in standard errors of the sampling, variances as ratios, and evidence;
and how many of all means and variances 2,000 independent draws would not tell from the sampled ones (three errors).
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.oracles.newton import ridge_logistic
from tests.oracles.odd_people import KINDS, determined, deviations, drawn
from tests.oracles.sampled import by_importance, small_problem

from prefkin.data.rows import Rows, UserRows
from prefkin.inference.many import estimate_users
from prefkin.inference.quadratics import Signed
from prefkin.models.prefkin.degrees import fit_degrees

DRAWS = 2000
RIDGES, FEATURES = (10.0, 1.0, 1e-3, 1e-6, 1e-9), (1, 3, 10, 30, 60)


def estimates(people, seed):
    """A line for each kind of person and ridge; the worst of all at the end."""
    each, worst, count, began = (
        max(people // (len(KINDS) * len(RIDGES) * len(FEATURES)), 1),
        np.zeros(2),
        0,
        time.time(),
    )
    for kind in KINDS:
        for ridge in RIDGES:
            seen = []
            for d in FEATURES:
                rng = np.random.default_rng([seed, KINDS.index(kind), RIDGES.index(ridge), d])
                drawn_people = [drawn(rng, kind, d, int(rng.integers(1, 4 * d + 2))) for _ in range(each)]
                rows = Rows(*(np.concatenate(part) for part in zip(*drawn_people, strict=True)))
                starts = np.concatenate([[0], np.cumsum([len(y) for _, y, _ in drawn_people])])
                found = estimate_users(UserRows(rows, starts, np.arange(each)), ridge=ridge)
                for theta, (Z, y, weights) in zip(found, drawn_people, strict=True):
                    wanted = ridge_logistic(Z, y, ridge, weights)
                    off, chances = deviations(theta, wanted, Z, weights)
                    seen.append((off if determined(wanted, Z, weights, ridge) else 0.0, chances))
            far = np.max(seen, axis=0)
            worst, count = np.maximum(worst, far), count + len(seen)
            print(f"{kind:14} ridge {ridge:<6g} {len(seen)} people: off by {far[0]:.1e}, probabilities {far[1]:.1e}")
    print(
        f"{count} people, seed {seed}: off by {worst[0]:.1e} of their length at most, probabilities by {worst[1]:.1e}; "
        f"{time.time() - began:.0f} s"
    )


def posteriors(problems, seed):
    """A line for each kind of problem."""
    began = time.time()
    for number, kind in enumerate(("plain", "repeats", "certain", "weights")):
        rng, seen = np.random.default_rng([seed, number]), []
        for _ in range(max(problems // 4, 1)):
            people = small_problem(rng, kind)
            starts = np.concatenate([[0], np.cumsum([len(weights) for _, weights in people])])
            X, weights = (np.concatenate(part) for part in zip(*people, strict=True))
            rows = UserRows(Rows(X, np.ones(len(X)), weights), starts, np.arange(len(people)))
            fit = fit_degrees(Signed.of_users(rows))
            exact = by_importance(people, fit.prior.within, fit.prior.top, rng)
            if exact.effective < 500:  # sampling knows too little
                continue
            spread = np.sqrt(np.einsum("uii->ui", exact.covariance))
            ratio = np.array([np.diag(fit.person(u).covariance()) for u in range(len(people))]) / spread**2
            off = np.abs(fit.mean - exact.mean)
            within = (off <= 3.0 * exact.error).all()
            error = np.sqrt(exact.error**2 + spread**2 / DRAWS)
            same = np.mean(off <= 3.0 * error)
            alike = np.mean(np.abs(ratio - 1.0) <= 3.0 * np.sqrt(2.0 / DRAWS + 2.0 / exact.effective))
            seen.append(((off / spread).max(), within, ratio.min(), ratio.max(), fit.evidence, same, alike))
        bias, within, least, most, evidence, same, alike = np.array(seen, dtype=float).T
        print(
            f"{kind:8} {len(seen)} problems: means off by {np.median(bias):.3f} sd (median), "
            f"{np.quantile(bias, 0.95):.2f} (95 %), {bias.max():.2f} (worst), {within.mean():.0%} within its error; "
            f"variances {least.min():.2f} to {most.max():.2f} times (median of the least {np.median(least):.2f}); "
            f"of {DRAWS:,} draws: {same.mean():.1%} of means, {alike.mean():.0%} of variances; "
            f"log evidence up to {evidence.max():.1f}"
        )
    print(f"seed {seed}, {time.time() - began:.0f} s")


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["estimates", "posteriors"])
    parser.add_argument("--people", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    (estimates if given.what == "estimates" else posteriors)(given.people, given.seed)


if __name__ == "__main__":
    main()
