"""PrefKin against its tuned rivals on real people: one command, every real set.

    PREFKIN_DATA=folder python benchmarks/real_data.py [SET ...] [--splits FIRST COUNT] [--methods NAME ...]

The folder holds choice/, conjoint/, ukpconvarg/, tldr/ and jester/. Each set says what is held out:

| set                              | people, features                             | held out                          |
|----------------------------------|----------------------------------------------|-----------------------------------|
| camera, electricity, train       | panels of choices, columns as they are       | 30 % of each person's choice sets |
| br2017, sw2022, immigration      | paired conjoint surveys; numbers, or levels  | 3 of 8, 1 of 3, 2 of 5 answers    |
| ukp                              | 60 busiest; 20 principal components, length  | a quarter of the topics           |
| ukp-minilm384-120, ukp-mpnet768-120 | 60 busiest, 120 training rows each; raw embeddings | the same                 |
| ukp-minilm384-all, ukp-mpnet768-all | 91 with at least 100 judgements, all rows | the same                          |
| ukp-pc16, -pc64, -pc250, -pc260, -pc384 | 60 busiest, 120 rows; components of minilm | the same                      |
| ukp-pcs                          | those five, and what changes from one to the next |                              |
| tldr, tldr-768                   | 15 components and length; raw mpnet          | a quarter of the posts            |
| jester20, jester50, jester200    | 60 people, 10 directions of others' ratings  | 30 % of the jokes                 |
| jester20k, jester50k, jester200k | the same                                     | other pairs of the same jokes     |
| jester-rankings                  | each ranks 10 jokes: 45 pairs as comparisons | 30 % of the jokes                 |

A choice becomes one comparison: the chosen option against one other, drawn from the set (the binary logit then has the
parameters of the conditional logit, and answers stay independent); the test rows are all others, each weighing
1 / (options − 1). "None" is an option whose features are 0. Sides are shuffled. Only people with rows in both parts.

The answers of a conjoint survey are independent pairs of profiles, each weighing 1, with the sides as they were shown.
A level is a column of 0 and 1; the first level of each attribute, in alphabetical order, has none.

PrefKin gets what a user would have: both sides, and contexts where rows share them (topics, posts); with `--bare` only
Z, y and users. Rivals (rivals.py) are tuned by folds that hold out what the test holds out.

Log-loss and accuracy: means over held-out answers. Slope: of answers on predicted log odds; 1 is honest, below 1 too
sure; its standard error leaves out one split at a time, since what is new is new to everybody at once. Difference: to
PrefKin, on the same answers (above 0: PrefKin is better), with a standard error clustered by person. Seconds: CPU, one
split.

The methods "units" and "mixed", which must be asked for, are PrefKin on features multiplied by numbers from 1e-3 to
1e3, and by a matrix of condition 100.
"""

import argparse
import csv
import gzip
import sys
import time
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from rivals import RIVALS, Panel, calibration_slope
from scipy.special import logit

from prefkin import Comparisons, PrefKin
from prefkin.data.triangles import topics_of_differences
from prefkin.reproduce.worlds.jester import read_jester
from prefkin.reproduce.worlds.pairs import components, data_folder
from prefkin.reproduce.worlds.tldr import read_tldr
from prefkin.reproduce.worlds.ukp import read_ukp

FOLDS = 3
CHANGES = ("units", "mixed")
PANELS = ("camera", "electricity", "train")
SURVEYS = {"br2017": 5, "sw2022": 2, "immigration": 3}  # answers of each respondent to learn from
COMPONENTS = tuple(f"ukp-pc{k}" for k in (16, 64, 250, 260, 384))
TEXTS = (
    *("ukp", "ukp-minilm384-120", "ukp-mpnet768-120", "ukp-minilm384-all", "ukp-mpnet768-all"),
    *COMPONENTS,
    *("tldr", "tldr-768"),
)
JOKES = (*(f"jester{n}{known}" for known in ("", "k") for n in (20, 50, 200)), "jester-rankings")
SETS = (*PANELS, *SURVEYS, *TEXTS, *JOKES)
TOO_LONG = {  # more than a minute a split
    (name, method)
    for name in ("ukp-minilm384-all", "ukp-mpnet768-all")
    for method in ("diag", "full", "rank", "mixture", "lore")
}


@dataclass(frozen=True, eq=False)
class Split:
    """What is learnt from, what is asked, and folds of the former that are like the latter."""

    train: Comparisons
    test: Comparisons
    folds: list  # of masks: rows to learn from, rows to be judged by
    asks: str  # "new items" or "known items"


# -- what is held out --------------------------------------------------------------------------------------------------


def spread_folds(users, rng):
    """Each person's rows, dealt evenly."""
    shuffled = rng.permutation(len(users))
    fold = np.empty(len(users), dtype=int)
    for user in np.unique(users):
        own = shuffled[users[shuffled] == user]
        fold[own] = (np.arange(len(own)) + rng.integers(FOLDS)) % FOLDS
    return [(fold != k, fold == k) for k in range(FOLDS)]


def context_folds(contexts, rng):
    """Contexts stay whole."""
    labels, place = np.unique(contexts, return_inverse=True)
    fold = (rng.permutation(len(labels)) % FOLDS)[place]
    return [(fold != k, fold == k) for k in range(FOLDS)]


def item_folds(first, second, rng):
    """Rows with both items in a part are judged by rows with none in it."""
    part = rng.permutation(max(first.max(), second.max()) + 1) % FOLDS
    return [((part[first] != k) & (part[second] != k), (part[first] == k) & (part[second] == k)) for k in range(FOLDS)]


# -- the sets ----------------------------------------------------------------------------------------------------------


def panel(folder, name, seed):
    """Choices as pairs: one pair per choice to learn from, all others to be asked."""
    rng = np.random.default_rng(seed)
    with np.load(folder / "choice" / f"{name}.npz") as stored:
        users, options, chosen = stored["users"], stored["options"].astype(float), stored["chosen"]
    held = np.zeros(len(users), dtype=bool)
    for user in np.unique(users):
        own = np.flatnonzero(users == user)
        held[rng.permutation(own)[: max(1, round(0.3 * len(own)))]] = True
    others = options.shape[1] - 1
    other = (chosen + 1 + rng.integers(others, size=len(users))) % (others + 1)

    def pairs(sets, other, weight):
        taken, left = options[sets, chosen[sets]], options[sets, other]
        y = rng.integers(2, size=len(sets))
        first, second = np.where(y[:, None] == 1, taken, left), np.where(y[:, None] == 1, left, taken)
        differ = (first != second).any(axis=1)
        weights = np.full(differ.sum(), weight)
        return Comparisons.from_sides(first[differ], second[differ], y[differ], users[sets][differ], weights=weights)

    learnt, asked = np.flatnonzero(~held), np.repeat(np.flatnonzero(held), others)
    each = (chosen[asked] + 1 + np.tile(np.arange(others), held.sum())) % (others + 1)
    train = pairs(learnt, other[learnt], 1.0)
    return Split(train, pairs(asked, each, 1.0 / others), spread_folds(train.users, rng), "known items")


@lru_cache(maxsize=1)
def survey(folder, name):
    """The answers of a paired conjoint survey."""
    with gzip.open(folder / "conjoint" / f"{name}.csv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    sides: tuple[list, list] = ([], [])
    names = []
    for attribute in (column.removeprefix("first_") for column in rows[0] if column.startswith("first_")):
        shown = [np.array([row[f"{side}_{attribute}"] for row in rows]) for side in ("first", "second")]
        if name == "br2017":  # numbers
            names.append(attribute)
            for side, values in zip(sides, shown, strict=True):
                side.append(values.astype(float))
            continue
        for level in np.unique(shown)[1:]:
            names.append(f"{attribute}: {level}")
            for side, values in zip(sides, shown, strict=True):
                side.append((values == level).astype(float))
    y = [row["y"] == "1" if "y" in row else row["answer"] == "first" for row in rows]
    first, second = (np.column_stack(side) for side in sides)
    return Comparisons.from_sides(first, second, np.array(y), [row["user"] for row in rows], feature_names=names)


def of_survey(folder, name, seed):
    """A fixed number of each respondent's answers to learn from, all others to be asked."""
    data, rng = survey(folder, name), np.random.default_rng(seed)
    held = np.zeros(len(data), dtype=bool)
    for user in range(len(data.labels)):
        held[rng.permutation(np.flatnonzero(data.who == user))[SURVEYS[name] :]] = True
    differ = data.Z.any(axis=1)
    train = data.take(~held & differ)
    return Split(
        train, data.take(held & differ & np.isin(data.users, train.users)), spread_folds(train.who, rng), "known items"
    )


@lru_cache(maxsize=1)
def texts(folder, name):
    """Comparisons of texts, by name."""
    if name.startswith("tldr"):
        table = read_tldr(folder).of_frequent(10)
        return table.comparisons(table.embedding if name == "tldr-768" else table.features(15))
    table = read_ukp(folder).of_frequent(100, None if name.endswith("all") else 60)
    if name == "ukp":
        return table.comparisons(table.features(20))
    if "mpnet" in name:
        return table.comparisons(table.embedding)
    with (
        np.load(folder / "ukpconvarg" / "mpnet768.npz") as one,
        np.load(folder / "ukpconvarg" / "minilm384.npz") as other,
    ):
        place = {key: i for i, key in enumerate(other["ids"].tolist())}
        small = other["emb"].astype(float)[[place[key] for key in one["ids"].tolist()]]
    return table.comparisons(components(small, int(name.removeprefix("ukp-pc"))) if "-pc" in name else small)


def of_texts(folder, name, seed):
    """A quarter of the contexts held out."""
    data, rng = texts(folder, name), np.random.default_rng(seed)
    contexts = np.unique(data.contexts)
    held = np.isin(data.contexts, rng.permutation(contexts)[: round(len(contexts) / 4)])
    keep = np.ones(len(data), dtype=bool)
    if name.endswith("-120") or "-pc" in name:
        for user in data.labels:
            keep[rng.permutation(np.flatnonzero((data.users == user) & ~held))[120:]] = False
    keep &= np.isin(data.users, np.intersect1d(data.users[held], data.users[~held & keep]))
    train = data.take(~held & keep)
    return Split(train, data.take(held & keep), context_folds(train.contexts, rng), "new items")


def of_jokes(folder, name, seed):
    """Which of two jokes did a person rate higher? Features from people who are not among the users."""
    ratings, rng = read_jester(folder), np.random.default_rng(seed)
    order = rng.permutation(len(ratings))
    users, others = order[:60], order[60:]
    _, size, right = np.linalg.svd(ratings[others] - ratings[others].mean(axis=0), full_matrices=False)
    features = right[:10].T * size[:10] / size[0] * 10
    shuffled = rng.permutation(100)
    new, known = shuffled[:30], shuffled[30:]
    same, number = name.endswith("k"), name.removeprefix("jester").rstrip("k")

    def drawn(jokes, n):
        return np.array([rng.choice(jokes, 2, replace=False) for _ in range(n)])

    rows: list[list] = [[], []]
    for user in users:
        if name == "jester-rankings":
            some = rng.choice(known, 10, replace=False)
            train = rng.permuted(some[np.array(np.triu_indices(10, 1)).T], axis=1)
        else:
            train = drawn(known, int(number))
        test = drawn(known if same else new, 150)
        if same:
            seen = {frozenset(pair) for pair in train.tolist()}
            test = test[[frozenset(pair) not in seen for pair in test.tolist()]]
        for part, pairs in zip(rows, (train, test), strict=True):
            differ = ratings[user, pairs[:, 0]] != ratings[user, pairs[:, 1]]
            part.append(np.column_stack([np.full(differ.sum(), user), pairs[differ]]))
    made = []
    for part in rows:
        owner, first, second = np.concatenate(part).T
        better = ratings[owner, first] > ratings[owner, second]
        made.append(Comparisons.from_sides(features[first], features[second], better, owner))
    _, first, second = np.concatenate(rows[0]).T
    folds = spread_folds(made[0].users, rng) if same else item_folds(first, second, rng)
    return Split(*made, folds, "known items" if same else "new items")


def draw(folder, name, seed) -> Split:
    """A split of a set."""
    read = panel if name in PANELS else of_survey if name in SURVEYS else of_texts if name in TEXTS else of_jokes
    return read(folder, name, seed)


def changed(split: Split, how: str, seed: int) -> Split:
    """The same answers about features in other units, or mixed."""
    d, rng = split.train.dim, np.random.default_rng([seed, 7])
    M = np.diag(rng.permutation(np.geomspace(1e-3, 1e3, d)))
    if how == "mixed":
        left, right = (np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(2))
        M = left * np.geomspace(1.0, 100.0, d) @ right

    def of(data):
        return replace(data, **{each: getattr(data, each) @ M for each in ("Z", "first", "second")})

    return replace(split, train=of(split.train), test=of(split.test))


# -- methods -----------------------------------------------------------------------------------------------------------


def prefkin(split: Split, bare: bool):
    """The default; told what is asked where it can be told."""
    train, told = split.train, {}
    if bare:
        train = Comparisons.from_arrays(train.Z, train.y, train.users)
    elif "predict_for" in PrefKin().get_params():
        told = {"predict_for": split.asks}
    model = PrefKin(n_jobs=1, **told).fit(train)
    return model.predict_proba(split.test.Z, users=split.test.users)[:, 1], model.structure_


def rival(name, split: Split):
    """A rival's probabilities."""
    train, test = split.train, split.test
    order = np.argsort(train.who, kind="stable")
    rows = Panel(train.Z[order], train.y[order], train.who[order], len(train.labels))
    folds = [(learn[order], judge[order]) for learn, judge in split.folds]
    forecast = RIVALS[name](rows, folds, test.Z, np.searchsorted(train.labels, test.users))
    return forecast.p, forecast.note


# -- results -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Result:
    """One method on one split."""

    set: str
    split: int
    method: str
    signed: np.ndarray  # log odds of the answers that were given
    weights: np.ndarray
    users: np.ndarray
    seconds: float
    note: str

    def row(self) -> dict:
        """What is printed and stored."""
        loss, share = np.logaddexp(0, -self.signed), self.weights / self.weights.sum()
        return {
            "set": self.set,
            "split": self.split,
            "method": self.method,
            "log_loss": float(share @ loss),
            "accuracy": float(share @ (0.5 + 0.5 * np.sign(self.signed))),
            "slope": calibration_slope(self.signed, self.weights),
            "seconds": self.seconds,
            "answers": len(self.signed),
            "note": self.note,
        }


def run(name, seed, method, split: Split, bare: bool) -> Result:
    """Fit, predict, and time both."""
    before = time.process_time()
    split = changed(split, method, seed) if method in CHANGES else split
    p, note = prefkin(split, bare) if method in ("PrefKin", *CHANGES) else rival(method, split)
    seconds = time.process_time() - before
    test = split.test
    odds = logit(np.clip(p, 1e-12, 1 - 1e-12))
    return Result(name, seed, method, (2 * test.y - 1) * odds, test.weights, test.users, seconds, note)


def difference(one: list[Result], other: list[Result]) -> tuple[float, float]:
    """Mean log-loss of `one` less that of `other` on the same answers, and its standard error clustered by person."""
    gap = np.concatenate(
        [np.logaddexp(0, -a.signed) - np.logaddexp(0, -b.signed) for a, b in zip(one, other, strict=True)]
    )
    weights, users = np.concatenate([r.weights for r in one]), np.concatenate([r.users for r in one])
    mean = float(np.average(gap, weights=weights))
    _, who = np.unique(users, return_inverse=True)
    total = np.bincount(who, weights * (gap - mean))
    return mean, float(np.sqrt((total**2).sum() * len(total) / max(len(total) - 1, 1)) / weights.sum())


def joined(results: list[Result]) -> Result:
    """Several splits as one."""
    parts = {key: np.concatenate([getattr(r, key) for r in results]) for key in ("signed", "weights", "users")}
    return replace(results[0], **parts, seconds=float(np.mean([r.seconds for r in results])), note="")


def slope_error(results: list[Result]) -> float:
    """Standard error of the slope over all splits, by leaving out one at a time."""
    n = len(results)
    if n == 1:
        return np.nan
    without = [joined(results[:k] + results[k + 1 :]).row()["slope"] for k in range(n)]
    return float(np.sqrt((n - 1) * np.var(without)))


def table(name, found: dict[str, list[Result]]) -> str:
    """A set's methods over all splits."""
    first = next(iter(found))
    lines = [f"{name} ({len(found[first])} splits)"]
    lines.append(f"  {'method':10}{'log-loss':>10}{'accuracy':>10}{'slope':>14}{'CPU s':>10}   to {first}")
    losses = {}
    for method, results in found.items():
        whole = joined(results).row()
        losses[method] = whole["log_loss"]
        gap = "" if method == first else "{:+.4f} ({:.4f})".format(*difference(results, found[first]))
        lines.append(
            f"  {method:10}{whole['log_loss']:10.4f}{whole['accuracy']:10.4f}{whole['slope']:8.3f} "
            f"({slope_error(results):.2f}){whole['seconds']:9.1f}   {gap}"
        )
    if first == "PrefKin" and len(losses) > 1:
        rivals = {method: loss for method, loss in losses.items() if method != first}
        least = min(rivals, key=rivals.__getitem__)
        lines.append(f"  PrefKin / best rival ({least}): {losses[first] / rivals[least]:.4f}")
    return "\n".join(lines)


def steps(losses: dict[str, dict[str, float]]) -> str:
    """What log-loss changes by from one number of components to the next, for each method."""
    lines = [f"  {'from, to':22}" + "".join(f"{method:>10}" for method in losses[COMPONENTS[0]])]
    for one, other in pairwise(COMPONENTS):
        moved = "".join(f"{losses[other][method] - loss:+10.4f}" for method, loss in losses[one].items())
        lines.append(f"  {one + ', ' + other.removeprefix('ukp-'):22}{moved}")
    return "\n".join(lines)


def topics(folder, sets, seeds) -> None:
    """Print how many topics the training rows of texts are about, and as how many parts differences alone tell them."""
    for name in sets:
        for seed in seeds:
            train = draw(folder, name, seed).train
            before = time.process_time()
            found = topics_of_differences(train.Z)
            seconds, there = time.process_time() - before, train.contexts
            if found is None:
                print(f"{name:18} {seed:3} no differences that add up", flush=True)
                continue
            large = np.flatnonzero(np.bincount(found) >= 20)
            mixed = sum(len(np.unique(there[found == part])) > 1 for part in large)
            held = np.isin(found, large).mean()
            print(
                f"{name:18} {seed:3} {len(np.unique(there))} topics as {found.max() + 1} parts, {len(large)} with "
                f"20 rows or more hold {held:.1%} of the rows, {mixed} of these mix topics; {seconds:.1f} s",
                flush=True,
            )


def main() -> None:
    """Print a line per set, split and method, and a table per set."""
    methods = ["PrefKin", *RIVALS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS), metavar="SET", help=", ".join(SETS))
    parser.add_argument("--splits", nargs=2, type=int, default=(10, 5), metavar=("FIRST", "COUNT"))
    parser.add_argument(
        "--methods",
        nargs="+",
        default=methods,
        choices=[*methods, *CHANGES],
        metavar="NAME",
        help=", ".join((*methods, *CHANGES)),
    )
    parser.add_argument("--bare", action="store_true", help="PrefKin is given Z, y and users, nothing else")
    parser.add_argument("--topics", action="store_true", help="of texts: topics, and parts that differences tell")
    parser.add_argument("--out", type=Path, help="csv file for the rows")
    args = parser.parse_args()
    if unknown := sorted(set(args.sets) - {*SETS, "ukp-pcs"}):
        parser.error(f"no set {unknown[0]!r}; there are {', '.join(SETS)} and ukp-pcs")
    warnings.simplefilter("ignore")
    if args.topics:
        topics(data_folder(), args.sets, range(args.splits[0], sum(args.splits)))
        return
    folder, rows, losses = data_folder(), [], {}
    for name in [each for one in args.sets for each in (COMPONENTS if one == "ukp-pcs" else (one,))]:
        found: dict[str, list[Result]] = {}
        for seed in range(args.splits[0], sum(args.splits)):
            split = draw(folder, name, seed)
            for method in args.methods:
                if (name, method) in TOO_LONG:
                    print(f"{name:18} {seed:3} {method:9} -", flush=True)
                    continue
                try:
                    result = run(name, seed, method, split, args.bare)
                except np.linalg.LinAlgError as error:  # said, and not hidden in a mean over the other splits
                    print(f"{name:18} {seed:3} {method:9} - ({error})", flush=True)
                    continue
                found.setdefault(method, []).append(result)
                rows.append(row := result.row())
                print(
                    f"{name:18} {seed:3} {method:9} {row['log_loss']:.4f} {row['accuracy']:.4f} {row['slope']:6.3f} "
                    f"{row['seconds']:7.1f} s  {row['note']}",
                    flush=True,
                )
                if args.out:
                    with args.out.open("w", newline="") as file:
                        writer = csv.DictWriter(file, list(row))
                        writer.writeheader()
                        writer.writerows(rows)
        whole = {method: results for method, results in found.items() if len(results) == args.splits[1]}
        losses[name] = {method: joined(results).row()["log_loss"] for method, results in whole.items()}
        print(f"\n{table(name, whole)}\n", flush=True)
    if "ukp-pcs" in args.sets:
        print(steps(losses))


if __name__ == "__main__":
    sys.exit(main())
