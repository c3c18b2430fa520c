"""Are radii honest? Coverage of 95 % radii and calibration of probabilities, over strengths and sizes.

    python benchmarks/coverage.py --seeds 4000 8                       # PrefKin
    python benchmarks/coverage.py --seeds 7000 8 --model OffC2PL       # OffC2PL(radius="calibrated")

Each cell: 30 users in 5 groups, d = 20; coverage is the share of users whose true preference lies within `radius_` of
`theta_` (PrefKin) or `own_theta_` (OffC2PL); "95 % at" is the 95 % quantile of error / radius (1: honest); slope is the
factor on the log-odds that fits fresh answers best (1: honest; below 1: too sure); "norm ratio" is estimated over true;
"warned" counts the fits whose radius came with a warning.
"""

import argparse
import warnings

import numpy as np
from regimes import people
from scipy.optimize import minimize_scalar
from scipy.special import expit

from prefkin import OffC2PL, PrefKin
from prefkin.errors import CalibrationWarning


def kin(data):
    """The model and the estimate that its radius is about."""
    model = PrefKin().fit(data)
    return model, model.theta_


def own(data, ridge=1.0):
    """Likewise; nobody is pooled, since the radius is about own estimates."""
    model = OffC2PL(gamma=0.0, ridge=ridge, radius="calibrated").fit(data)
    return model, model.own_theta_


MODELS = {"PrefKin": kin, "OffC2PL": own, "OffC2PL-auto": lambda data: own(data, "auto")}


def main():
    """Print a line per cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs=2, type=int, default=(2000, 4), metavar=("FIRST", "COUNT"))
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--model", choices=list(MODELS), default="PrefKin", help="-auto: with ridge='auto'")
    args = parser.parse_args()
    first, count = args.seeds
    print("beta  N/d   coverage        95 % at  slope           norm ratio  warned")
    for beta in (1.0, 2.0, 4.0, 8.0):
        for ratio in (0.5, 1.0, 4.0, 20.0):
            covered, slopes, norms, ratios, warned = [], [], [], [], 0
            for seed in range(first, first + count):
                size = int(ratio * args.dim)
                data, theta, _ = people(seed, dim=args.dim, n=size, users=30, groups=5, beta=beta)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    model, estimate = MODELS[args.model](data)
                    ratios.append(np.linalg.norm(estimate - theta, axis=1) / model.radius_)
                warned += any(issubclass(one.category, CalibrationWarning) for one in caught)
                covered.append(np.mean(ratios[-1] <= 1))
                norms.append(np.mean(np.linalg.norm(estimate, axis=1) / np.linalg.norm(theta, axis=1)))
                rng = np.random.default_rng([seed, 1])
                owner = np.repeat(np.arange(30), 200)
                Z = rng.standard_normal((len(owner), args.dim))
                chance = expit(np.einsum("ij,ij->i", Z, theta[owner]))
                margin = model.decision_function(Z, users=owner)

                def loss(slope, margin=margin, chance=chance):
                    wrong = (1 - chance) * np.logaddexp(0, slope * margin)
                    return np.mean(chance * np.logaddexp(0, -slope * margin) + wrong)

                slopes.append(minimize_scalar(loss, bounds=(0.05, 5), method="bounded").x)
            error = [np.std(values, ddof=1) / np.sqrt(count) for values in (covered, slopes)]
            print(
                f"{beta:4g}  {ratio:4g}  {np.mean(covered):.3f} ± {error[0]:.3f}   {np.quantile(ratios, 0.95):.2f}     "
                f"{np.mean(slopes):.3f} ± {error[1]:.3f}   "
                f"{np.mean(norms):.2f}        {warned}/{count}",
                flush=True,
            )


if __name__ == "__main__":
    main()
