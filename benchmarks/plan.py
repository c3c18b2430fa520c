"""Questions planned for all people together, against the same number spread evenly and chosen for each person alone.

    python benchmarks/plan.py [groups degrees ukp-groups ukp-degrees] --runs 6 [--people 40] [--first 7000]

After a fit on 15 answers each, questions are asked, and `update` takes the answers in. Planned: `model.plan_questions`
for a quarter of the questions at a time, and `update` in between. Evenly: as many for each person, by rule "posterior"
of `model.session`, which hears each answer before it asks the next. Loss: what estimates cost in log-loss over knowing
the truth, mean over people and 2,000 pairs. Saved: the share of questions that planning needs less than the even spread
for the loss that this one ends with (by the line between quarters; negative: more), by the mean losses over runs, with
the standard error of leaving out one run at a time; and mean and standard error of each run's own. Less: by how much
the last loss of planning is below that of the even spread, mean and standard error over runs.
People in four groups, or who differ by degrees; features are normal, or (ukp) 20 principal components of the texts of
UKPConvArg in PREFKIN_DATA, with planted preferences.
"""

import argparse
import warnings
from copy import deepcopy

import numpy as np
from scipy.special import expit

from prefkin import Candidates, Comparisons, PrefKin
from prefkin.reproduce.worlds.pairs import components, data_folder

WORLDS = ("groups", "degrees", "ukp-groups", "ukp-degrees")
PARTS, EACH = 4, 8  # of the questions after which is looked; questions per person in all
START, DIM, STRENGTH = 15, 20, 3.0


def features(kind, rng):
    """Items, (n, d), of which two differ by a vector of norm 1 on average (root mean square)."""
    if kind.startswith("ukp"):
        with np.load(data_folder() / "ukpconvarg" / "minilm384.npz") as stored:
            X = components(stored["emb"].astype(float), DIM)
    else:
        X = rng.standard_normal((400, DIM))
    X = X - X.mean(axis=0)
    return X / np.sqrt(2.0 * (X**2).sum(axis=1).mean())


def preferences(kind, people, rng):
    """True ones, (people, d)."""
    if kind.endswith("groups"):
        centres = rng.standard_normal((4, DIM))
        theta = centres[np.arange(people) % 4] + 0.15 * rng.standard_normal((people, DIM))
    else:
        theta = rng.standard_normal(DIM) + 0.8 * rng.standard_normal((people, DIM))
    return STRENGTH * theta


def answers(theta, Z, rng):
    """Noisy."""
    return (rng.random(len(Z)) < expit(np.einsum("ij,ij->i", Z, theta))).astype(float)


def pairs(items, n, rng):
    """Differences of n pairs of items."""
    return items[rng.integers(len(items), size=n)] - items[rng.integers(len(items), size=n)]


def excess(model, theta, Z):
    """Mean log-loss over that of the truth."""
    total = 0.0
    for u, truth in enumerate(theta):
        p, q = expit(Z @ truth), model.predict_proba(Z, users=[u] * len(Z))[:, 1]
        total += float(np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))))
    return total / len(theta)


def run(kind, people, seed):
    """Losses after each quarter of the questions, planned and evenly."""
    rng = np.random.default_rng([seed, 1])
    items, theta = features(kind, rng), preferences(kind, people, rng)
    owner, Z = np.repeat(np.arange(people), START), pairs(items, people * START, rng)
    data, test = Comparisons.from_arrays(Z, answers(theta[owner], Z, rng), owner), pairs(items, 2000, rng)
    cands = Candidates(items[rng.permutation(len(items))[:300]].reshape(100, 3, DIM))
    model = PrefKin(metric="isotropic", n_jobs=1).fit(data)
    replies, budget = np.random.default_rng([seed, 2]), people * EACH
    rows = [[] for _ in range(EACH)]  # everybody's first question, everybody's second, ...
    for u in range(people):
        session = model.session(u, cands)
        for turn in range(EACH):
            question = session.ask()
            z = session.difference(question)
            y = answers(theta[[u]], z[None], replies)[0]
            session.tell(question, bool(y))
            rows[turn].append((u, z, y))
    theirs = tuple(np.array(column) for column in zip(*(row for turn in rows for row in turn), strict=True))
    losses, ours = [[excess(model, theta, test)] * 2], deepcopy(model)
    for part in range(1, PARTS + 1):
        plan = ours.plan_questions(cands, budget // PARTS)
        who = np.array([user for user, _ in plan])
        Z = np.array([cands.of(q.context)[q.first] - cands.of(q.context)[q.second] for _, q in plan])
        ours.update(Z, answers(theta[who], Z, replies), users=who)
        n = budget * part // PARTS
        alone = deepcopy(model).update(theirs[1][:n], theirs[2][:n], users=theirs[0][:n])
        losses.append([excess(each, theta, test) for each in (ours, alone)])
    return np.array(losses), model.structure_


def saved(losses):
    """Share of questions that planning needs less for the last loss of the even spread."""
    asked, goal = np.linspace(0.0, 1.0, len(losses)), losses[-1, 1]
    ours = np.minimum.accumulate(losses[:, 0])
    if ours[-1] > goal:  # more than all: as the last quarter goes on
        pace = (ours[-2] - ours[-1]) / (asked[-1] - asked[-2])
        return -(ours[-1] - goal) / max(pace, 1e-9)
    return 1.0 - float(np.interp(-goal, -ours, asked))


def main():
    """Print a line per world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="*", default=list(WORLDS))
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--people", type=int, default=40)
    parser.add_argument("--first", type=int, default=7000)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for kind in args.worlds:
        found = list[np.ndarray]()
        for seed in range(args.first, args.first + args.runs):
            losses, saw = run(kind, args.people, seed)
            found.append(losses)
            print(
                f"{kind}, run {seed}, seen as {saw}: {losses[-1, 0]:.4f} planned, {losses[-1, 1]:.4f} evenly",
                flush=True,
            )
        tell(kind, args.people, np.array(found))


def tell(kind, people, found):
    """Print means over runs, and what was saved."""
    losses, n = found.mean(axis=0), len(found)
    print(f"{kind}: {n} runs of {people} people; {EACH} questions each over {START} answers")
    for name, values in zip(("planned", "evenly"), losses.T, strict=True):
        print(f"  {name:8}" + "".join(f"  {value:.4f}" for value in values))
    without = [saved(np.delete(found, i, axis=0).mean(axis=0)) for i in range(n)] if n > 1 else [np.nan]
    less, each = 1.0 - found[:, -1, 0] / found[:, -1, 1], [saved(one) for one in found]
    print(
        f"  saved {saved(losses):+.0%} ± {np.std(without) * np.sqrt(n - 1):.0%} of the questions, run by run "
        f"{np.mean(each):+.0%} ± {error(each):.0%}; less {less.mean():+.1%} ± {error(less):.1%}",
        flush=True,
    )


def error(values):
    """Standard error of the mean."""
    return np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan


if __name__ == "__main__":
    main()
