"""Pairs made of choices among several, against the exact conditional logit: one command, three panels.

    PREFKIN_DATA=folder python benchmarks/choices.py [camera electricity train] [--splits FIRST COUNT] [--methods NAME]

A quarter of each person's choices is held out; features are divided by their standard deviation. `PrefKin` learns from
`Comparisons.from_choices`, which makes weighted pairs. "exact" is what conjoint analysts use: preferences of people
from N(μ, Σ) with any Σ, choices by the conditional logit, no approximation but that of sampling (Metropolis steps for
each person, Gibbs steps for μ and Σ under the customary prior, Σ ~ IW(d + 3, (d + 3) I)). "one for all" are pooled
ridges: of the same weighted pairs and of the exact likelihood, the ridge of each that suits the test best.

Log-loss of held-out choices among all of their options, averaged over what is not known about a person; in brackets the
standard error of the difference to the first method, clustered by person. Pairs: the chosen against each other one.
"""

import argparse
import time
import warnings

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import invwishart

from prefkin import Comparisons, PrefKin
from prefkin.reproduce.worlds.pairs import data_folder

PANELS = ("camera", "electricity", "train")
ROUNDS, WARM_UP, EVERY = 4000, 1000, 10  # of sampling
DRAWS = 400  # from PrefKin's posterior of a person
RIDGES = 10.0 ** np.arange(-2, 3.0)


def read(folder, name):
    """People (T,), options (T, A, d) in standard deviations, and which was chosen (T,)."""
    with np.load(folder / "choice" / f"{name}.npz") as stored:
        users, options, chosen = stored["users"], stored["options"].astype(float), stored["chosen"].astype(int)
    order = np.argsort(users, kind="stable")
    users, options, chosen = np.unique(users[order], return_inverse=True)[1], options[order], chosen[order]
    size = options.reshape(-1, options.shape[2]).std(axis=0)
    return users, options / np.where(size > 0, size, 1.0), chosen


def held_out(users, rng):
    """A quarter of each person's choices, at least one."""
    held = np.zeros(len(users), dtype=bool)
    for user in np.unique(users):
        own = np.flatnonzero(users == user)
        held[rng.permutation(own)[: max(1, round(len(own) / 4))]] = True
    return held


def losses(utilities, chosen):
    """Of the choice and of its pairs, (T,) each; utilities (draws, T, A) are averaged over in probability."""
    rows, n = np.arange(len(chosen)), len(utilities)
    choice = -(logsumexp(log_softmax(utilities, axis=2)[:, rows, chosen], axis=0) - np.log(n))
    ahead = utilities[:, rows, chosen][:, :, None] - utilities
    pair = -(logsumexp(-np.logaddexp(0.0, -ahead), axis=0) - np.log(n))
    pair[rows, chosen] = 0.0
    return choice, pair.sum(axis=1) / (utilities.shape[2] - 1)


def prefkin(train, test, rng):
    """Weighted pairs; utilities of draws from each person's posterior, as `predict_proba` knows it."""
    users, options, chosen = train
    model = PrefKin(n_jobs=1).fit(Comparisons.from_choices(options, chosen, users))
    noise = rng.standard_normal((DRAWS, options.shape[2]))
    roots = [_root(model.covariance(user)) for user in model.users_]
    theta = np.array([mean + noise @ root.T for mean, root in zip(model.theta_, roots, strict=True)])
    return model.temperature_ * np.einsum("tad,tsd->sta", test[1], theta[test[0]], optimize=True)


def _root(covariance):
    values, axes = np.linalg.eigh(covariance)
    return axes * np.sqrt(np.maximum(values, 0.0))


def exact(train, test, rng):
    """The conditional logit, people from N(μ, Σ): utilities of draws from the joint posterior."""
    users, options, chosen = train
    people, d = users.max() + 1, options.shape[2]
    starts = np.searchsorted(users, np.arange(people))
    ahead = options - options[np.arange(len(users)), chosen][:, None]

    def likelihood(theta):
        return -np.add.reduceat(logsumexp(np.einsum("tad,td->ta", ahead, theta[users]), axis=1), starts)

    mean, wide, theta = np.zeros(d), np.eye(d), np.zeros((people, d))
    p = np.full(options.shape[:2], 1 / options.shape[1])
    centred = options - np.einsum("ta,tad->td", p, options)[:, None]
    known = np.add.reduceat(np.einsum("ta,tad,tae->tde", p, centred, centred, optimize=True), starts)
    now, drawn = likelihood(theta), []
    pace, taken = np.full(people, 2.4 / np.sqrt(d)), np.zeros(people)
    for turn in range(ROUNDS):
        precision = np.linalg.inv(wide)
        if turn % 50 == 0:  # proposals as wide as what is not known; from the warm-up's end on they stay
            if 0 < turn <= WARM_UP:
                pace *= np.exp(np.clip(taken / 50 - 0.3, -0.2, 0.2))
                p = softmax(np.einsum("tad,td->ta", options, theta[users]), axis=1)
                centred = options - np.einsum("ta,tad->td", p, options)[:, None]
                known = np.add.reduceat(np.einsum("ta,tad,tae->tde", p, centred, centred, optimize=True), starts)
            if turn <= WARM_UP:
                steps = np.linalg.cholesky(np.linalg.inv(known + precision))
            taken[:] = 0
        new = theta + pace[:, None] * np.einsum("uij,uj->ui", steps, rng.standard_normal((people, d)))
        later, off, off_new = likelihood(new), theta - mean, new - mean
        gain = (
            later
            - now
            + 0.5
            * (
                np.einsum("ui,ij,uj->u", off, precision, off, optimize=True)
                - np.einsum("ui,ij,uj->u", off_new, precision, off_new, optimize=True)
            )
        )
        better = np.log(rng.random(people)) < gain
        theta, now = np.where(better[:, None], new, theta), np.where(better, later, now)
        taken += better
        mean = rng.multivariate_normal(theta.mean(axis=0), wide / people)
        off = theta - mean
        wide = invwishart.rvs(d + 3 + people, (d + 3) * np.eye(d) + off.T @ off, random_state=rng).reshape(d, d)
        if turn >= WARM_UP and turn % EVERY == 0:
            drawn.append(np.einsum("tad,td->ta", test[1], theta[test[0]]))
    return np.array(drawn)


def pooled(train, test, pairs: bool):
    """One preference for all: of weighted pairs, or of the exact likelihood; the ridge that suits the test best."""
    users, options, chosen = train
    data, rows = Comparisons.from_choices(options, chosen, users), np.arange(len(chosen))
    Z, weights = data.Z * (2 * data.y - 1)[:, None], data.weights

    def of_pairs(theta, ridge):
        margin = Z @ theta
        return weights @ np.logaddexp(0, -margin) + ridge / 2 * theta @ theta

    def of_choices(theta, ridge):
        return -log_softmax(options @ theta, axis=1)[rows, chosen].sum() + ridge / 2 * theta @ theta

    found = [minimize(of_pairs if pairs else of_choices, np.zeros(options.shape[2]), ridge).x for ridge in RIDGES]
    return min(((test[1] @ theta)[None] for theta in found), key=lambda u: losses(u, test[2])[0].mean())


METHODS = {
    "PrefKin": prefkin,
    "exact": exact,
    "one for all, pairs": lambda train, test, _: pooled(train, test, True),
    "one for all, exact": lambda train, test, _: pooled(train, test, False),
}


def clustered(gap, users):
    """Standard error of a mean, clustered by person."""
    total = np.bincount(users, gap - gap.mean())
    return np.sqrt((total**2).sum()) / len(gap)


def main():
    """Print a table per panel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("panels", nargs="*", default=list(PANELS), metavar="PANEL")
    parser.add_argument("--splits", nargs=2, type=int, default=(20, 5), metavar=("FIRST", "COUNT"))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="NAME")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in args.panels:
        users, options, chosen = read(data_folder(), name)
        found, seconds, who = {method: [] for method in args.methods}, dict.fromkeys(args.methods, 0.0), []
        for seed in range(args.splits[0], sum(args.splits)):
            held = held_out(users, np.random.default_rng(seed))
            train, test = ((users[rows], options[rows], chosen[rows]) for rows in (~held, held))
            who.append(test[0])
            for method in args.methods:
                start = time.process_time()
                found[method].append(losses(METHODS[method](train, test, np.random.default_rng([seed, 1])), test[2]))
                seconds[method] += time.process_time() - start
        print(f"{name}: {args.splits[1]} splits, {options.shape[1]} options, {options.shape[2]} features")
        ours = np.concatenate(found[args.methods[0]], axis=1)
        for method, parts in found.items():
            loss = np.concatenate(parts, axis=1)
            error = clustered(loss[0] - ours[0], np.concatenate(who))
            print(
                f"  {method:20} choices {loss[0].mean():.4f} ({error:.4f})  pairs {loss[1].mean():.4f}  "
                f"{seconds[method] / args.splits[1]:6.1f} CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()
