"""From ratings to ranked jokes for somebody the model has never met, after 0, 5 and 10 questions (Jester).

    pip install implicit
    PREFKIN_DATA=... python benchmarks/recommender.py [--seeds 3] [--people 1000]

People are split before anything is fitted: those who are learnt from, 100 newcomers on whom the rivals are tuned, and
100 newcomers who are judged (both of them rated all 100 jokes). Jokes are split, too: questions are about one half, and
the other half is ranked. `Comparisons.from_ratings` describes jokes by 16 factors of the first group's ratings.

    prefkin       PrefKin().fit(...); model.session(None, jokes): asks what it wants to know; probabilities are its own
    random        the same, asked about random pairs
    popularity    the mean rating
    item kNN      popularity and, for each answer, how similar a joke is to the one preferred, less to the other one
    ALS, BPR      implicit's, on ratings above a person's mean; newcomers start as the mean person, and are moved by
                  `recalculate_user` on the jokes they preferred (ALS), or by the differences of the factors (BPR)

The rivals hear the answers that prefkin asked for. How much answers move them (and how many factors and neighbours),
and the slope that makes probabilities of scores, are chosen for each number of answers by the log-loss of the tuning
people.

NDCG@10 of the ranked half, with rating + 10 as gain; log-loss of all its pairs that differ by the margin of
`from_ratings`. Means and standard errors over newcomers of all seeds.
"""

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from prefkin import Candidates, Comparisons, PrefKin

STOPS = (0, 5, 10)
NEWCOMERS = 100
STEPS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def ndcg(scores, ratings, at=10):
    """How good the first ten are, beside the best ten."""
    gain, discount = ratings + 10.0, 1.0 / np.log2(np.arange(2, at + 2))
    best = np.sort(gain)[::-1][:at]
    return float((gain[np.argsort(-scores, kind="stable")[:at]] * discount).sum() / (best * discount).sum())


def log_loss(log_odds, y):
    """Mean surprise at answers 0 and 1."""
    return float(np.mean(np.logaddexp(0.0, np.where(y, -log_odds, log_odds))))


def judged_pairs(ratings, jokes, margin):
    """Pairs of a person that differ clearly, and whether the first was rated higher."""
    one, other = (jokes[side] for side in np.triu_indices(len(jokes), 1))
    difference = ratings[one] - ratings[other]
    clear = np.abs(difference) >= margin
    return one[clear], other[clear], difference[clear] > 0


def talk(model, features, asked, ratings, rule, rng):
    """One newcomer: the answers, and at each stop mean and standard deviation of worth as functions of features."""
    session = model.session(None, Candidates([features[asked]]), label="newcomer", rule=rule, rng=rng)
    answers, beliefs = [], []
    for n in range(STOPS[-1] + 1):
        if n in STOPS:
            beliefs.append(session.belief)
        if n == STOPS[-1]:
            break
        while True:
            question = session.ask()
            one, other = asked[question.first], asked[question.second]
            if ratings[one] != ratings[other]:
                break
            session.skip(question)
        session.tell(question, bool(ratings[one] > ratings[other]))
        answers.append((one, other) if ratings[one] > ratings[other] else (other, one))
    return answers, beliefs


def rivals(train, seed):
    """By name, some versions of each: (scores before any answer, function from answers to what moves them)."""
    own = np.nanmean(train, axis=1, keepdims=True)
    centred = train - own
    popular = np.nanmean(centred, axis=0)
    residual = np.nan_to_num(centred - popular)
    size = np.linalg.norm(residual, axis=0)
    similar = residual.T @ residual / np.outer(size, size)
    np.fill_diagonal(similar, 0.0)
    liked = csr_matrix(np.clip(np.nan_to_num(centred), 0.0, None))

    def nothing(_answers):
        return np.zeros_like(popular)

    def neighbours(k):
        kept = np.where(np.abs(similar) >= np.sort(np.abs(similar), axis=1)[:, -k, None], similar, 0.0)
        return popular, lambda answers: sum((kept[:, w] - kept[:, lo] for w, lo in answers), np.zeros_like(popular))

    def als(factors):
        model = AlternatingLeastSquares(factors=factors, regularization=1.0, random_state=seed, num_threads=1)
        model.fit(liked, show_progress=False)
        items, mean = model.item_factors, model.user_factors.mean(axis=0)

        def moved(answers):
            if not answers:
                return np.zeros_like(popular)
            row = np.bincount([w for w, _ in answers], minlength=len(popular)).astype(np.float32)
            return items @ model.recalculate_user(0, csr_matrix(5.0 * row[None, :]))

        return items @ mean, moved

    def bpr(factors):
        model = BayesianPersonalizedRanking(factors=factors, random_state=seed, num_threads=1)
        model.fit((liked > 0).astype(np.float32), show_progress=False)
        items, mean = model.item_factors, model.user_factors.mean(axis=0)

        def moved(answers):
            return items @ sum((items[w] - items[lo] for w, lo in answers), np.zeros_like(mean))

        return items @ mean, moved

    return {
        "popularity": [(popular, nothing)],
        "item kNN": [neighbours(k) for k in (10, 30, 99)],
        "ALS": [als(factors) for factors in (4, 16)],
        "BPR": [bpr(factors) for factors in (8, 32)],
    }


def tuned(versions, said, people, ranked, margin, stop):
    """The version, step and slope with the least log-loss of the tuning people, who said so much."""
    best = (np.inf, None)
    pairs = [judged_pairs(ratings, ranked, margin) for ratings in people]
    for start, move in versions:
        moved = [move(answers[:stop]) for answers in said]
        for step in STEPS:
            scores = [start + step * more for more in moved]
            gaps = np.concatenate([s[one] - s[other] for s, (one, other, _) in zip(scores, pairs, strict=True)])
            y = np.concatenate([right for _, _, right in pairs])
            found = minimize_scalar(lambda log, g=gaps, y=y: log_loss(np.exp(log) * g, y), (-2.0, 0.0))
            if found.fun < best[0]:
                best = (found.fun, (start, move, step, float(np.exp(found.x))))
    return best[1]


def run(ratings, seed, n_people):
    """Rows (method, stop, NDCG, log-loss), one for each judged newcomer."""
    rng = np.random.default_rng(seed)
    complete = rng.permutation(np.flatnonzero(np.isfinite(ratings).all(axis=1)))
    new, tuning = complete[:NEWCOMERS], complete[NEWCOMERS : 2 * NEWCOMERS]
    others = np.setdiff1d(np.arange(len(ratings)), complete[: 2 * NEWCOMERS])
    train = ratings[rng.choice(others, min(n_people, len(others)), replace=False)]
    who, what = np.nonzero(np.isfinite(train))
    data = Comparisons.from_ratings(who, what, train[who, what], random_state=seed)
    spread = train - np.nanmean(train, axis=1, keepdims=True)
    margin = 0.5 * float(np.sqrt(np.nanmean(spread**2)))
    model = PrefKin().fit(data)
    items = Candidates.from_items(data)
    features = items.features[np.argsort(items.actions)]
    shuffled = rng.permutation(ratings.shape[1])
    asked, ranked = shuffled[:50], shuffled[50:]
    rows = []

    def note(name, stop, scores, log_odds, person, y):
        rows.append((name, stop, ndcg(scores[ranked], person[ranked]), log_loss(log_odds, y)))

    said = {}
    for u in (*tuning, *new):
        person = ratings[u]
        one, other, y = judged_pairs(person, ranked, margin)
        for name, rule in (("prefkin", "information"), ("random", "random")):
            if u in tuning and name == "random":
                continue
            answers, beliefs = talk(model, features, asked, person, rule, np.random.default_rng([seed, int(u)]))
            if name == "prefkin":
                said[u] = answers
            if u in tuning:
                continue
            for stop, belief in zip(STOPS, beliefs, strict=True):
                Z = features[one] - features[other]
                odds = Z @ belief.mean / np.sqrt(1.0 + np.pi / 8.0 * belief.norm(Z) ** 2)
                note(name, stop, features @ belief.mean, odds, person, y)
    for name, versions in rivals(train, seed).items():
        for stop in STOPS:
            start, move, step, slope = tuned(versions, [said[u] for u in tuning], ratings[tuning], ranked, margin, stop)
            for u in new:
                scores = start + step * move(said[u][:stop])
                one, other, y = judged_pairs(ratings[u], ranked, margin)
                note(name, stop, scores, slope * (scores[one] - scores[other]), ratings[u], y)
    return rows


def main():
    """Print a line per method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--people", type=int, default=1000)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    with np.load(Path(os.environ["PREFKIN_DATA"]) / "jester" / "ratings.npz") as stored:
        ratings = stored["ratings"].astype(np.float64)
    rows = []
    with threadpool_limits(1):
        for seed in range(args.seeds):
            rows += run(ratings, seed, args.people)
            print(f"seed {seed} done", flush=True)
    newcomers = args.seeds * NEWCOMERS
    print(f"{newcomers} newcomers, {args.people} people learnt from, seeds 0 to {args.seeds - 1}")
    print(
        f"{'':12}"
        + "".join(f"{f'NDCG@10 after {n}':>20}" for n in STOPS)
        + "".join(f"{f'log-loss {n}':>20}" for n in STOPS)
    )
    for name in dict.fromkeys(row[0] for row in rows):
        cells = []
        for column in (2, 3):
            for stop in STOPS:
                values = np.array([row[column] for row in rows if row[:2] == (name, stop)])
                cells.append(f"{values.mean():.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}")
        print(f"{name:12}" + "".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    main()
