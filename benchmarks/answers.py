"""How people answer, beside what they prefer: a habit of taking the first side, and answers that are never wrong.

    python benchmarks/answers.py [habit] [sure] [tastes] [--seeds 0 4]

habit: 40 people of 60 answers about 8 features, who differ by degrees or form four groups; everybody takes the first
side with log odds N(mean, spread²) more than they prefer it. Printed: the mean Kullback-Leibler divergence from the
true probabilities of preferring (without the habit) on fresh pairs, for PrefKin told both sides and told differences
alone, the habit found (mean and spread over people), and its correlation with the true one.

sure: 100 people of 50 answers about 50 features, mixtures of five tastes, answers without noise. "dominant" rows lie
along what all share, "low rank" in two directions, "decaying" ones shrink from feature to feature. Printed: held-out
log-loss and accuracy of PrefKin and of own, pooled and shrunken ridges tuned by held-out answers.

tastes: 200 people of 50 answers about 50 features, mixtures of five tastes, answers with noise: the setting in which a
covariance of low rank beside an isotropic one ("rank", rivals.py; rank 1, 2 or 4 by held-out answers) might help.

Means over seeds, in brackets standard deviations.
"""

import argparse
import warnings

import numpy as np
from rivals import RIVALS, Panel
from scipy.special import expit, xlogy

from prefkin import Comparisons, PrefKin
from prefkin.models.baselines import per_user, pooled, shrink_to_pooled

HABITS = [(0.0, 0.0), (0.5, 0.0), (0.5, 0.6), (0.0, 1.0)]
ROWS = ("plain", "dominant", "low rank", "decaying")


def people_with_habits(seed, mean, spread, groups, users=40, n=60, dim=8):
    """Both sides, answers, users, true habits; fresh differences, users and true probabilities."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(groups, dim))[rng.integers(groups, size=users)] if groups else rng.normal(size=dim)
    theta = (theta + (0.0 if groups else 0.6 * rng.normal(size=(users, dim)))) * 2.0 / np.sqrt(dim)
    owner, habit = np.repeat(np.arange(users), n), mean + spread * rng.normal(size=users)
    first, second = rng.normal(size=(2, len(owner), dim))
    y = rng.random(len(owner)) < expit(np.einsum("ij,ij->i", first - second, theta[owner]) + habit[owner])
    who = np.repeat(np.arange(users), 50)
    fresh = rng.normal(size=(len(who), dim)) - rng.normal(size=(len(who), dim))
    return first, second, y, owner, habit, fresh, who, expit(np.einsum("ij,ij->i", fresh, theta[who]))


def divergence(truth, said):
    """Mean Kullback-Leibler divergence."""
    return float(np.mean(sum(xlogy(p, p / q) for p, q in ((truth, said), (1 - truth, 1 - said)))))


def habits(seeds):
    """A line for each habit and population."""
    print("habit: people, mean, spread | both sides | differences | habit found: mean, spread, correlation")
    for groups in (None, 4):
        for mean, spread in HABITS:
            rows = []
            for seed in seeds:
                first, second, y, owner, habit, fresh, who, truth = people_with_habits(seed, mean, spread, groups)
                told = PrefKin(n_jobs=1).fit(Comparisons.from_sides(first, second, y, owner))
                plain = PrefKin(n_jobs=1).fit(first - second, y, users=owner)
                gaps = [divergence(truth, model.predict_proba(fresh, users=who)[:, 1]) for model in (told, plain)]
                varies = spread > 0 and told.habit_.std() > 0
                like = np.corrcoef(told.habit_, habit)[0, 1] if varies else np.nan
                rows.append([*gaps, told.habit_.mean(), told.habit_.std(), like])
            middle, doubt = np.mean(rows, axis=0), np.std(rows, axis=0)
            found = "  ".join(f"{m:.4f} ({s:.4f})" for m, s in zip(middle[:2], doubt[:2], strict=True))
            kind = "by degrees" if groups is None else f"{groups} groups"
            print(
                f"  {kind:11}{mean:4}{spread:5}   {found}   {middle[2]:.2f}, {middle[3]:.2f}, {middle[4]:.2f}",
                flush=True,
            )


def sure_people(seed, kind, users=100, n=50, dim=50, tastes=5):
    """Rows, answers and users to learn from, and to be asked."""
    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(tastes, dim))
    theta, plane = rng.dirichlet(np.ones(tastes), size=users) @ basis, rng.normal(size=(2, dim))

    def part(n):
        owner = np.repeat(np.arange(users), n)
        Z = rng.normal(size=(len(owner), dim))
        if kind == "dominant":
            Z = 0.1 * Z + np.outer(rng.normal(size=len(owner)), 5 * basis.mean(axis=0))
        elif kind == "low rank":
            Z = 0.01 * Z + rng.normal(size=(len(owner), 2)) @ plane
        elif kind == "decaying":
            Z = Z * np.arange(1, dim + 1) ** -1.5
        return Z, np.einsum("ij,ij->i", Z, theta[owner]) > 0, owner

    return part(n), part(100)


def sure(seeds):
    """A line for each kind of rows and method."""
    print("sure: rows, method | log-loss | accuracy")
    methods = {"PrefKin": lambda: PrefKin(n_jobs=1), "own": per_user, "pooled": pooled, "shrunken": shrink_to_pooled}
    for kind in ROWS:
        for name, make in methods.items():
            rows = []
            for seed in seeds:
                (Z, y, users), (fresh, answers, who) = sure_people(seed, kind)
                chance = make().fit(Z, y, users=users).predict_proba(fresh, users=who)[:, 1]
                said = np.where(answers, chance, 1 - chance)
                rows.append([-np.log(np.maximum(said, 1e-12)).mean(), np.mean(said > 0.5)])
            (loss, right), (doubt, spread) = np.mean(rows, axis=0), np.std(rows, axis=0)
            print(f"  {kind:10}{name:10}{loss:.4f} ({doubt:.4f})   {right:.4f} ({spread:.4f})", flush=True)


def people_of_tastes(seed, users=200, n=50, dim=50, tastes=5):
    """Comparisons to learn from, and rows, answers and users to be asked."""
    rng = np.random.default_rng(seed)
    theta = rng.dirichlet(np.ones(tastes), size=users) @ rng.normal(size=(tastes, dim)) * 2.0 / np.sqrt(dim)

    def part(n):
        owner = np.repeat(np.arange(users), n)
        Z = rng.normal(size=(len(owner), dim))
        return Z, rng.random(len(owner)) < expit(np.einsum("ij,ij->i", Z, theta[owner])), owner

    return part(n), part(100)


def mixed_tastes(seeds):
    """A line for each method."""
    print("tastes: method | log-loss")
    rows: dict[str, list[float]] = {}
    for seed in seeds:
        (Z, y, users), (fresh, answers, who) = people_of_tastes(seed)
        told = {}
        for kind in ("auto", "diagonal", "full"):
            model = PrefKin(metric=kind, n_jobs=1).fit(Z, y, users=users)
            told[f"PrefKin, {kind}"] = model.predict_proba(fresh, users=who)[:, 1]
        fold = np.random.default_rng([seed, 1]).permuted(np.tile(np.arange(50) % 3, (200, 1)), axis=1).ravel()
        panel = Panel(Z, y.astype(float), users, 200)
        for name in ("iso", "rank"):
            told[name] = RIVALS[name](panel, [(fold != k, fold == k) for k in range(3)], fresh, who).p
        for name, chance in told.items():
            rows.setdefault(name, []).append(float(-np.log(np.where(answers, chance, 1 - chance)).mean()))
    for name, losses in rows.items():
        print(f"  {name:20}{np.mean(losses):.4f} ({np.std(losses):.4f})", flush=True)


TABLES = {"habit": habits, "sure": sure, "tastes": mixed_tastes}


def main():
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(TABLES), metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 4), metavar=("FIRST", "COUNT"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in args.tables:
        TABLES[name](range(args.seeds[0], sum(args.seeds)))


if __name__ == "__main__":
    main()
