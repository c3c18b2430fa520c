"""How long fits of many people take.

    python benchmarks/fit_speed.py [covariance] [many] [estimates]

covariance: the full covariance of 100,000 people of 10 answers about 10 features, learnt from 2,000 of them and then,
as in a fit, from everybody; then `PrefKin(metric="full").fit`, which learns it from as many as its
budget allows, seeks groups and places everybody. many: `PrefKin().fit` of 20,000 people of 20 answers about 8 features.
estimates: `PrefKin().fit` of 1,000 people of 200 answers about 32 features, and scikit-learn's own logistic regression
of each of them. People differ by degrees, with correlated tastes. CPU seconds, one thread (set OMP_NUM_THREADS=1); a
first small fit compiles.
"""

import argparse
import time

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from prefkin import Comparisons, PrefKin
from prefkin.data.rows import only
from prefkin.models.prefkin.calibrate import fitted_in
from prefkin.models.prefkin.metric import Unit, learn_metric
from prefkin.models.prefkin.settings import METRIC


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
    """From everybody, and within a fit."""
    data, truth = people(100_000, 10, 10)
    rows = data.by_user()

    def from_everybody():
        some = fitted_in(only(rows, np.arange(0, len(rows), 50)), "full")
        return learn_metric(rows, "full", Unit.of(rows, "full"), some.for_others(rows), METRIC.rounds)

    found, took = seconds(from_everybody)
    learnt = found.prior.within * found.metric.covariance(np.eye(10))
    off = np.linalg.norm(learnt - truth) / np.linalg.norm(truth)
    print(f"covariance from 100,000 people of 10 features: {took:.1f} s, {off:.1%} from the truth", flush=True)
    _, took = seconds(lambda: PrefKin(metric="full", n_jobs=1).fit(data))
    print(f"PrefKin(metric='full').fit of them: {took:.1f} s", flush=True)


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
