"""PrefKin against its tuned rivals on real people, split by post, topic or joke.

    PREFKIN_DATA=folder python benchmarks/real_data.py [tldr ukp jester20 jester50 jester200] --splits 10 5

The folder holds tldr/, ukpconvarg/ and jester/. Features: PCA of given sentence embeddings plus standardised lengths;
for Jester, the ten leading directions of other people's ratings.
Held-out log-loss: mean over splits, with the standard error of the paired difference to PrefKin.
"""

import argparse
import warnings

import numpy as np

from prefkin import Comparisons, PrefKin
from prefkin.evaluate.metrics import held_out
from prefkin.models.baselines import mixture_em, per_user, pooled, shrink_to_pooled
from prefkin.reproduce.worlds.jester import read_jester
from prefkin.reproduce.worlds.pairs import data_folder
from prefkin.reproduce.worlds.tldr import read_tldr
from prefkin.reproduce.worlds.ukp import read_ukp

METHODS = {
    "PrefKin": PrefKin,
    "per user": per_user,
    "pooled": pooled,
    "shrink to pooled": shrink_to_pooled,
    "mixture EM": mixture_em,
}


def tldr(folder):
    """Which of two summaries of a post is better? People with at least 10 comparisons."""
    table = read_tldr(folder).of_frequent(10)
    return table.comparisons(table.features(15))


def ukp(folder):
    """Which of two arguments is more convincing? The 60 busiest people."""
    table = read_ukp(folder).of_frequent(100, 60)
    return table.comparisons(table.features(20))


def jester(folder, per_person, seed):
    """Which of two jokes did a person rate higher? Features from people who are not among the users."""
    ratings, rng = read_jester(folder), np.random.default_rng(seed)
    order = np.arange(len(ratings))
    rng.shuffle(order)
    users, others = order[:60], order[60:]
    _, size, right = np.linalg.svd(ratings[others] - ratings[others].mean(axis=0), full_matrices=False)
    features = right[:10].T * size[:10] / size[0] * 10
    held = np.isin(np.arange(100), rng.permutation(100)[:30])
    parts = []
    drawn = {user: [] for user in users}
    for user in users:
        for jokes, n in ((np.flatnonzero(~held), per_person), (np.flatnonzero(held), 150)):
            pairs = np.array([rng.choice(jokes, 2, replace=False) for _ in range(n)])
            drawn[user].append(pairs[ratings[user, pairs[:, 0]] != ratings[user, pairs[:, 1]]])
    for part in (0, 1):
        owner = np.repeat(users, [len(drawn[user][part]) for user in users])
        first, second = np.concatenate([drawn[user][part] for user in users]).T
        better = ratings[owner, first] > ratings[owner, second]
        parts.append(Comparisons.from_sides(features[first], features[second], better, owner))
    return parts


def split(data, seed, share=0.3):
    """Train and test rows, contexts kept whole, only users who have some of both."""
    contexts = np.unique(data.contexts)
    test = np.isin(data.contexts, np.random.default_rng(seed).permutation(contexts)[: int(share * len(contexts))])
    both = np.isin(data.users, np.intersect1d(np.unique(data.users[test]), np.unique(data.users[~test])))
    return data.take(~test & both), data.take(test & both)


def main():
    """Print a line per data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=["tldr", "ukp", "jester20", "jester50", "jester200"])
    parser.add_argument("--splits", nargs=2, type=int, default=(10, 5), metavar=("FIRST", "COUNT"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    first, count = args.splits
    folder = data_folder()
    print(f"{'data':10}" + "".join(f"{name:>24}" for name in METHODS) + "   PrefKin / best rival")
    for name in args.sets:
        losses, seen = [], set()
        whole = {"tldr": tldr, "ukp": ukp}[name](folder) if name in ("tldr", "ukp") else None
        for seed in range(first, first + count):
            if whole is None:
                train, test = jester(folder, int(name.removeprefix("jester")), seed)
            else:
                train, test = split(whole, seed)
            models = [make().fit(train) for make in METHODS.values()]
            seen.add(models[0].structure_)
            losses.append([held_out(model, test).log_loss for model in models])
        losses = np.array(losses)
        error = (losses - losses[:, :1]).std(axis=0, ddof=1) / np.sqrt(count)
        cells = "".join(f"{m:>15.4f} ± {e:.4f}" for m, e in zip(losses.mean(axis=0), error, strict=True))
        ratio = losses[:, 0].mean() / losses[:, 1:].mean(axis=0).min()
        print(f"{name:10}{cells}   {ratio:.4f}  ({', '.join(sorted(seen))})", flush=True)


if __name__ == "__main__":
    main()
