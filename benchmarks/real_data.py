"""PrefKin against its tuned rivals on real people, split by post, topic or joke.

    PREFKIN_DATA=folder python benchmarks/real_data.py [tldr ukp jester20 jester50 jester200] --splits 10 5

The folder holds tldr/, ukpconvarg/ and jester/. Features: PCA of given sentence embeddings plus standardised lengths;
for Jester, the ten leading directions of other people's ratings.
Held-out log-loss: mean over splits, with the standard error of the paired difference to PrefKin.
"""

import argparse
import csv
import gzip
import json
import os
import warnings
from pathlib import Path

import numpy as np

from prefkin import Comparisons, PrefKin
from prefkin.baselines import mixture_em, per_user, pooled, shrink_to_pooled
from prefkin.metrics import held_out

METHODS = {
    "PrefKin": PrefKin,
    "per user": per_user,
    "pooled": pooled,
    "shrink to pooled": shrink_to_pooled,
    "mixture EM": mixture_em,
}


def components(rows, k):
    """The k leading principal components of `rows`, scaled to unit variance of the first."""
    centred = rows - rows.mean(axis=0)
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    return left[:, :k] * size[:k] / size[0] * np.sqrt(len(rows))


def lengths(texts):
    """Standardised log length in words."""
    count = np.log1p([len(text.split()) for text in texts])
    return ((count - count.mean()) / count.std())[:, None]


def tldr(folder):
    """Which of two summaries of a post is better?"""
    stored = np.load(folder / "tldr/mpnet768.npz")
    texts = stored["summaries"].tolist()
    features = np.hstack([components(stored["summary_emb"].astype(float), 15), lengths(texts)])
    place = {text: i for i, text in enumerate(texts)}
    rows = []
    for name in ("batch13.json", "batch18.json"):
        for line in (folder / "tldr" / name).read_text().splitlines():
            row = json.loads(line)
            first, second = (place.get(s["text"]) for s in row["summaries"])
            if first is not None and second is not None and first != second:
                rows.append((row["worker"], row["info"]["id"], first, second, row["choice"] == 0))
    return _table(rows, features, at_least=10)


def ukp(folder):
    """Which of two arguments is more convincing?"""
    stored = np.load(folder / "ukpconvarg/mpnet768.npz")
    texts = {}
    for line in (folder / "ukpconvarg/arguments.jsonl").read_text().splitlines():
        row = json.loads(line)
        texts[row["id"]] = row["text"]
    ids = stored["ids"].tolist()
    features = np.hstack([components(stored["emb"].astype(float), 20), lengths([texts.get(i, "") for i in ids])])
    place = {name: i for i, name in enumerate(ids)}
    rows = []
    with gzip.open(folder / "ukpconvarg/judgements.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if row["preferred"] != "tie" and row["first"] in place and row["second"] in place:
                pair = place[row["first"]], place[row["second"]]
                rows.append((row["worker"], row["topic"], *pair, row["preferred"] == "first"))
    return _table(rows, features, at_least=100, most=60)


def jester(folder, per_person, seed):
    """Which of two jokes did a person rate higher? Features from people who are not among the users."""
    ratings = np.load(folder / "jester/ratings.npz")["ratings"].astype(float)
    full = np.flatnonzero(np.isfinite(ratings).all(axis=1))
    rng = np.random.default_rng(seed)
    rng.shuffle(full)
    users, others = full[:60], full[60:]
    _, size, right = np.linalg.svd(ratings[others] - ratings[others].mean(axis=0), full_matrices=False)
    features = right[:10].T * size[:10] / size[0] * 10
    held = np.isin(np.arange(100), rng.permutation(100)[:30])
    train, test = [], []
    for user in users:
        for part, jokes, n in ((train, np.flatnonzero(~held), per_person), (test, np.flatnonzero(held), 150)):
            for _ in range(n):
                a, b = rng.choice(jokes, 2, replace=False)
                if ratings[user, a] != ratings[user, b]:
                    part.append((int(user), "", int(a), int(b), ratings[user, a] > ratings[user, b]))
    return [_rows(part, features) for part in (train, test)]


def _rows(rows, features):
    users, contexts, first, second, y = zip(*rows, strict=True)
    kept = list(contexts) if any(contexts) else None
    return Comparisons.from_sides(
        features[list(first)], features[list(second)], np.array(y), list(users), contexts=kept
    )


def _table(rows, features, at_least, most=None):
    counts = {}
    for row in rows:
        counts[row[0]] = counts.get(row[0], 0) + 1
    chosen = sorted((u for u, n in counts.items() if n >= at_least), key=lambda u: (-counts[u], u))[:most]
    return _rows([row for row in rows if row[0] in set(chosen)], features)


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
    folder = Path(os.environ.get("PREFKIN_DATA", "../shared/data"))
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
