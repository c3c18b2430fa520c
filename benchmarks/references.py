"""Are estimates what they should be? Own estimates and posteriors beside references that share no code with them.

    python benchmarks/references.py estimates --people 2000 --seed 0

prints for each kind of person, ridge and number of features how far own estimates are from Newton's method in double
precision: as a share of their length with each feature in its own unit, where the data determine it, and in
probabilities.

    python benchmarks/references.py posteriors --people 200 --seed 0

prints for small problems of each kind how far PrefKin's posterior under continuous heterogeneity is from importance
sampling under the same hyperparameters: means in posterior standard deviations, variances as ratios; and how many of
all means and variances are within two and three standard errors of the sampled ones. Beside it a second, independent
sampling: so many would exact posteriors be.

    python benchmarks/references.py weights --people 40 --seed 0

fits so many small sets of answers whose weights differ by 3, 6, 9 and 12 powers of ten, and counts those whose fit
fails, is not finite, or claims a log evidence above 0, which no answers of yes or no have.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.special import expit

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.oracles.newton import ridge_logistic
from tests.oracles.odd_people import KINDS, determined, deviations, drawn
from tests.oracles.sampled import by_importance, small_problem

from prefkin import PrefKin
from prefkin.data.rows import Rows, UserRows
from prefkin.inference.likelihood import Logistic
from prefkin.inference.many import estimate_users
from prefkin.inference.model import GAUSSIAN
from prefkin.models.prefkin.covariance import STRUCTURES
from prefkin.models.prefkin.fitting import design_of
from prefkin.models.prefkin.posterior import Posterior
from prefkin.models.prefkin.selection import fit_continuous

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
                    off, chances = deviations(theta, wanted, Z, weights, ridge)
                    seen.append((off if determined(wanted, Z, weights, ridge) else 0.0, chances))
            far = np.max(seen, axis=0)
            worst, count = np.maximum(worst, far), count + len(seen)
            print(f"{kind:14} ridge {ridge:<6g} {len(seen)} people: off by {far[0]:.1e}, probabilities {far[1]:.1e}")
    print(
        f"{count} people, seed {seed}: off by {worst[0]:.1e} of their length at most, probabilities by {worst[1]:.1e}; "
        f"{time.time() - began:.0f} s"
    )


def posteriors(problems, seed):
    """Three lines for each kind of problem."""
    began = time.time()
    for number, kind in enumerate(("plain", "repeats", "certain", "weights")):
        rng, seen, left_out = np.random.default_rng([seed, number]), {}, 0
        for _ in range(max(problems // 4, 1)):
            people = small_problem(rng, kind)
            starts = np.concatenate([[0], np.cumsum([len(weights) for _, weights in people])])
            X, weights = (np.concatenate(part) for part in zip(*people, strict=True))
            rows = UserRows(Rows(X, np.ones(len(X)), weights), starts, np.arange(len(people)))
            design = design_of(rows, Logistic())
            found = Posterior.of(design, fit_continuous(design, STRUCTURES["isotropic"], GAUSSIAN))
            law, covariances = found.population, found.covariances(np.arange(len(people)))
            exact, again = (by_importance(people, law.within, law.between, rng) for _ in range(2))
            if min(exact.effective, again.effective) < 500:  # sampling knows too little
                left_out += 1
                continue
            zero = np.zeros(exact.mean.shape)
            for name, mean, covariance, error, doubt in (
                ("PrefKin", found.theta, covariances, zero, zero),
                ("sampled again", again.mean, again.covariance, again.error, again.doubt),
            ):
                variance, wanted = (np.einsum("uii->ui", each) for each in (covariance, exact.covariance))
                off, ratio = np.abs(mean - exact.mean), variance / wanted
                errors = off / np.hypot(error, exact.error), np.abs(variance - wanted) / np.hypot(doubt, exact.doubt)
                seen.setdefault(name, []).append(np.stack([off / np.sqrt(wanted), ratio, *errors]).reshape(4, -1))
        for name, each in seen.items():
            off, ratio, of_mean, of_variance = np.concatenate(each, axis=1)
            print(
                f"{kind:8} {name:13} {len(each)} problems ({left_out} left out), {len(off)} means: off by "
                f"{np.median(off):.3f} sd (median), {np.quantile(off, 0.95):.3f} (95 %), {off.max():.2f} (worst); "
                f"variances {np.quantile(ratio, 0.05):.2f} to {np.quantile(ratio, 0.95):.2f} (90 %), "
                f"{ratio.min():.2f} to {ratio.max():.2f} times; within 2 and 3 errors: "
                f"means {np.mean(of_mean < 2):.1%}, {np.mean(of_mean < 3):.1%}, "
                f"variances {np.mean(of_variance < 2):.1%}, {np.mean(of_variance < 3):.1%}",
                flush=True,
            )
    print(f"seed {seed}, {time.time() - began:.0f} s")


def weights(people, seed):
    """A line for each number of powers of ten."""
    warnings.simplefilter("ignore")  # of separable answers
    for powers, units in ((3, 0), (6, 0), (9, 0), (12, 0), (6, 3), (12, 3)):
        wrong = []
        for number in range(people):
            rng = np.random.default_rng([seed, powers, number])
            n_users, n, d = (int(rng.integers(*between)) for between in ((1, 14), (1, 25), (1, 7)))
            users, Z = np.repeat(np.arange(n_users), n), rng.standard_normal((n_users * n, d))
            centres = rng.choice([0.5, 2.0, 20.0]) * rng.standard_normal((3, d))
            y = rng.random(len(Z)) < expit(np.einsum("ij,ij->i", Z, centres[users % 3]))
            weight = 10.0 ** rng.uniform(min(0, 9 - powers), min(powers, 9), len(Z))
            Z *= 10.0 ** rng.uniform(-units, units, d)
            try:
                model = PrefKin(n_jobs=1).fit(Z, y.astype(int), users=users, sample_weight=weight)
                numbers = np.concatenate([model.theta_.ravel(), model.radius_])
                if not (np.isfinite(numbers).all() and max(model.evidence_.values()) <= 0.0):
                    wrong.append(f"{number}: log evidence {max(model.evidence_.values()):.3g}")
            except np.linalg.LinAlgError as error:
                wrong.append(f"{number}: {error}")
        apart = f"weights {powers} powers of ten apart" + (f", units {2 * units}" if units else "")
        print(f"{apart}: {len(wrong)} of {people} wrong {wrong}", flush=True)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["estimates", "posteriors", "weights"])
    parser.add_argument("--people", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    {"estimates": estimates, "posteriors": posteriors, "weights": weights}[given.what](given.people, given.seed)


if __name__ == "__main__":
    main()
