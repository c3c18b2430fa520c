"""How long fits of many people take.

    python benchmarks/fit_speed.py [covariance] [many] [estimates]

covariance: `PrefKin(metric="full").fit` of 100,000 people of 10 answers about 10 features, which learns their
covariance from a sample and places everybody, and how far that covariance is from the true one. many: `PrefKin().fit`
of 20,000 people of 20 answers about 8 features. estimates: `PrefKin().fit` of 1,000 people of 200 answers about 32
features, and scikit-learn's own logistic regression of each of them. People differ by degrees, with correlated tastes.
CPU seconds, one thread (set OMP_NUM_THREADS=1); a first small fit compiles.
"""

import argparse
import time

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from prefkin import Comparisons, PrefKin


def people(users, n, dim, seed=0):
    """Comparisons, and the covariance of the people who gave them."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((dim, dim)) / dim
    theta = rng.standard_normal(dim) / np.sqrt(dim) + 2.0 * rng.standard_normal((users, dim)) @ root.T
    owner, Z = np.repeat(np.arange(users), n), rng.standard_normal((users * n, dim))
    y = rng.random(len(Z)) < expit(np.einsum("ij,ij->i", Z, theta[owner]))
    return Comparisons.from_arrays(Z, y, owner), 4.0 * root @ root.T


def seconds(work):
    """What it returns, and CPU seconds."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def covariance():
    """Of many people with few answers."""
    data, truth = people(100_000, 10, 10)
    model, took = seconds(lambda: PrefKin(metric="full", n_jobs=1).fit(data))
    population = model._learnt.posterior.population
    learnt = population.within * population.covariance(np.eye(10))
    off = np.linalg.norm(learnt - truth) / np.linalg.norm(truth)
    print(
        f"PrefKin(metric='full').fit of 100,000 people of 10 features: {took:.1f} s, {model.structure_}; "
        f"covariance {off:.1%} from the truth",
        flush=True,
    )


def many():
    """20,000 people."""
    model, took = seconds(lambda: PrefKin(n_jobs=1).fit(people(20_000, 20, 8)[0]))
    print(f"20,000 people of 20 answers about 8 features: {took:.1f} s, {model.structure_}", flush=True)


def estimates():
    """Beside scikit-learn."""
    data, _ = people(1000, 200, 32)
    model, took = seconds(lambda: PrefKin(n_jobs=1).fit(data))
    print(f"1,000 people of 200 answers about 32 features: {took:.1f} s, {model.structure_}", flush=True)

    def alone():
        for user in range(1000):
            own = data.users == user
            LogisticRegression(fit_intercept=False).fit(data.Z[own], data.y[own])

    print(f"scikit-learn, everybody alone: {seconds(alone)[1]:.1f} s", flush=True)


TABLES = {"covariance": covariance, "many": many, "estimates": estimates}


def main():
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(TABLES), metavar="TABLE", help=", ".join(TABLES))
    args = parser.parse_args()
    PrefKin(n_jobs=1).fit(people(20, 20, 4)[0])
    for name in args.tables:
        TABLES[name]()


if __name__ == "__main__":
    main()
