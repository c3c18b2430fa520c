"""How soon does a newcomer get what they want? Questions from a mixture over groups against three other ways.

    python benchmarks/newcomers.py --runs 40
    python benchmarks/newcomers.py --speed         # how long a question and an answer take, and what a session holds

40 people are fitted; another one of the same kind, of whom nothing is known, is asked about 1,000 pairs. The gap is
1 − cos(estimate, truth), the relative regret of the greedy policy on fresh Gaussian contexts, after 0, 5, 10 and 20
answers: mean and standard error over newcomers. All ways hear the same random numbers when a question is answered.

    mixture   the belief is a mixture over groups and loners (or both spreads by degrees), questions by information
    normal    the same rule from one normal distribution with the mixture's mean and covariance
    random    the mixture, but any pair is asked
    told      starts in the group that holds most of those who truly are like the newcomer; in cells by degrees, where
              there is no group to tell, from the true mean and spread of people

"closed" is the share of the way from random to told that the mixture has gone after 10 answers, with a 90 % interval
over newcomers by bootstrap (in groups: by degrees nobody is told much); "against normal" and "against random" are mean
differences with their standard errors.
"""

import argparse
import time
import tracemalloc
import warnings

import numpy as np
from regimes import people
from scipy.special import expit

from prefkin import ActiveSession, Candidates, PrefKin
from prefkin.decide.population import Population

CELLS = {
    "8 groups, d = 10": {"dim": 10, "n": 100},
    "8 groups, d = 50": {"dim": 50, "n": 200},
    "by degrees, d = 10": {"dim": 10, "n": 100, "kind": "cloud", "spread": 0.5},
    "by degrees, d = 50": {"dim": 50, "n": 200, "kind": "cloud", "spread": 0.5},
}
STOPS = (0, 5, 10, 20)
WAYS = ("mixture", "normal", "random", "told")
KNOWN = 40
PAIRS = 1000


def ways(model, theta, label, newcomer):
    """What each way starts from, and its rule."""
    anybody = model._population
    whole = anybody.nobody
    one = Population(np.ones(1), whole.mean[None], whole.covariance[None])
    if len(np.unique(label)) > 1:
        alike = np.flatnonzero(label[:KNOWN] == label[newcomer])
        share = model.membership_[alike].sum(axis=0)
        k = int(np.argmax(share)) if len(share) == len(anybody) else 0
        told = Population(np.ones(1), anybody.means[[k]], anybody.covariances[[k]])
    else:
        middle = theta[:KNOWN].mean(axis=0)
        spread = float(np.mean((theta[:KNOWN] - middle) ** 2))
        told = Population(np.ones(1), middle[None], spread * np.eye(len(middle))[None])
    return dict(
        zip(
            WAYS,
            ((anybody, "information"), (one, "information"), (anybody, "random"), (told, "information")),
            strict=True,
        )
    )


def newcomers(seed, cell):
    """The gaps of one newcomer, (ways, stops); what the model saw; milliseconds for a question and its answer."""
    data, theta, label = people(seed, users=KNOWN + 1, **cell)
    if cell.get("kind") == "cloud":
        label = np.zeros(KNOWN + 1, dtype=int)
    model = PrefKin().fit(data.take(data.who < KNOWN))
    rng = np.random.default_rng([seed, 2])
    candidates = Candidates(rng.standard_normal((PAIRS, 2, cell["dim"])))
    truth, gaps, spent = theta[KNOWN], np.empty((len(WAYS), len(STOPS))), []
    for w, (population, rule) in enumerate(ways(model, theta, label, KNOWN).values()):
        session = ActiveSession.of_newcomer(population, candidates, rule=rule, rng=np.random.default_rng(seed))
        answers = np.random.default_rng([seed, 3])
        for n in range(STOPS[-1] + 1):
            if n in STOPS:
                estimate = session.preference
                size = max(float(np.linalg.norm(estimate)), 1e-300) * float(np.linalg.norm(truth))
                gaps[w, STOPS.index(n)] = 1 - estimate @ truth / size
            start = time.perf_counter()
            question = session.ask()
            session.tell(question, bool(answers.random() < expit(session.difference(question) @ truth)))
            if w == 0:
                spent.append(1e3 * (time.perf_counter() - start))
    return gaps, model.structure_, float(np.median(spent))


def closed(gaps):
    """The share of the way from random to told that the mixture has gone."""
    mixture, _, anything, told = gaps.mean(axis=0)
    return (anything - mixture) / (anything - told)


def speed(dim, pairs=10_000, groups=8, answers=40):
    """Print milliseconds of processor time for a question and for an answer, and bytes of a session."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((groups, dim))
    centres *= 3.0 / np.linalg.norm(centres, axis=1, keepdims=True)
    unit = np.eye(dim) / dim
    covariances = np.array([0.3 * unit] * groups + [9.0 * unit])
    everybody = Population(np.ones(groups + 1), np.vstack([centres, np.zeros(dim)]), covariances)
    candidates = Candidates(rng.standard_normal((pairs, 2, dim)))
    start = time.process_time()
    ActiveSession.of_newcomer(everybody, candidates).ask()
    once = time.process_time() - start

    def talk(spent):
        session = ActiveSession.of_newcomer(everybody, candidates)
        for _ in range(answers):
            begin = time.process_time()
            question = session.ask()
            asked = time.process_time()
            session.tell(question, bool(rng.random() < expit(session.difference(question) @ centres[0])))
            spent.append((asked - begin, time.process_time() - asked))
        session.ask()
        return session

    talk(spent := [])
    tracemalloc.start()
    session = talk([])
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert session.n_answers == answers
    for first, last in ((0, 5), (5, 10), (10, 20), (20, 40)):
        ask, tell = 1e3 * np.median(spent[first:last], axis=0)
        print(f"d = {dim}, {pairs} pairs, answers {first:2} to {last}: ask {ask:5.1f} ms, tell {tell:5.1f} ms")
    print(f"d = {dim}: once for all sessions {once:.2f} s; a session with {answers} answers holds {held / 1e6:.2f} MB")


def main():
    """Print a line per cell and number of answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40, help="newcomers a cell, each with people of their own")
    parser.add_argument("--first", type=int, default=9000, help="the first seed")
    parser.add_argument("--cells", nargs="*", default=list(CELLS), choices=list(CELLS))
    parser.add_argument("--speed", action="store_true", help="measure time and memory at d = 64 and 768 instead")
    args = parser.parse_args()
    if args.speed:
        speed(64)
        speed(768)
        return
    warnings.simplefilter("ignore")
    print(f"{args.runs} newcomers a cell, seeds from {args.first}; {KNOWN} people known, {PAIRS} pairs")
    print(
        "cell                answers  " + "  ".join(f"{way:>15}" for way in WAYS) + "   against normal   against random"
    )
    for name in args.cells:
        found = [newcomers(seed, CELLS[name]) for seed in range(args.first, args.first + args.runs)]
        gaps = np.array([gap for gap, _, _ in found])
        error = np.sqrt(args.runs)
        for stop, after in enumerate(STOPS):
            now = gaps[:, :, stop]
            mean, spread = now.mean(axis=0), now.std(axis=0, ddof=1) / error
            cells = "  ".join(f"{m:.4f} ± {s:.4f}" for m, s in zip(mean, spread, strict=True))
            against = [now[:, 0] - now[:, other] for other in (1, 2)]
            paired = "  ".join(f"{off.mean():+.4f} ± {off.std(ddof=1) / error:.4f}" for off in against)
            print(f"{name:18} {after:8}  {cells}  {paired}", flush=True)
        line = ""
        if CELLS[name].get("kind") != "cloud":
            rng, at = np.random.default_rng(0), STOPS.index(10)
            draws = [closed(gaps[rng.integers(args.runs, size=args.runs), :, at]) for _ in range(1000)]
            low, high = np.quantile(draws, [0.05, 0.95])
            line = f"closed after 10: {closed(gaps[:, :, at]):.2f} ({low:.2f} to {high:.2f}); "
        seen = ", ".join(f"{kind} {sum(k == kind for _, k, _ in found)}" for kind in sorted({k for _, k, _ in found}))
        milliseconds = np.median([ms for _, _, ms in found])
        print(f"{'':18} {line}seen: {seen}; {milliseconds:.1f} ms for a question and its answer", flush=True)


if __name__ == "__main__":
    main()
