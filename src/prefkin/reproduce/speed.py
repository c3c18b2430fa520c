"""How fast every public call is, against what one would write instead, in the same run.

Each row is a call from the README, made as a user makes it. Times are CPU seconds on one thread; fits on both sides
reach max|gradient| ≤ 1e-6 max|gradient at 0|, which is computed afterwards from the data and the estimates alone. What
would take too long instead is run in part and scaled: the table says on which part. Memory is what the process grew by;
the data it was given are not counted.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from ctypes import CDLL
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from prefkin import Candidates, OffC2PL, PrefKin, load, read_comparisons
from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.formats import as_csv
from prefkin.data.storage import write_atomically
from prefkin.errors import PrefkinWarning
from prefkin.execution.blas import single_threaded
from prefkin.execution.progress import reporting
from prefkin.execution.usage import children_seconds
from prefkin.models.off_c2pl.radius import KAPPA_UNIT_BALL
from prefkin.models.off_c2pl.threshold import JOINED_FRACTIONS

__all__ = ["STAGES", "Instead", "Row", "run", "table"]

TOLERANCE, RIDGE = 1e-6, 1.0
KNOWN = RIDGE / KAPPA_UNIT_BALL  # what M begins with in every direction


@dataclass(frozen=True)
class Instead:
    """What one would write instead: pieces of work, and how often each would be done."""

    name: str
    pieces: list[tuple[Callable[[], Any], float]]
    part: str = ""  # on which part it is measured

    def seconds(self) -> float:
        """CPU seconds of all the work."""
        return sum(times * cpu(work)[0] for work, times in self.pieces)


@dataclass(frozen=True)
class Row:
    """What a call takes, and what one would write instead takes on the same data."""

    call: str
    size: str
    seconds: list[float]  # CPU, once per repeat
    peak: float = float("nan")  # MB above what was held before
    instead: str = ""
    its_seconds: list[float] = field(default_factory=list)
    part: str = ""
    checked: str = ""
    stages: str = ""


# -- measuring -------------------------------------------------------------------------------------------------------


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds and the result."""
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


def peak_memory(work: Callable[[], Any]) -> float:
    """MB by which the process grows at most; NaN where the system does not tell."""

    def held(name: str) -> float:
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
        return float(line.split()[1]) / 1e3

    gc.collect()
    try:
        CDLL("libc.so.6").malloc_trim(0)  # give back what is free, so that it counts when it is used again
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = held("VmRSS")
    except (OSError, AttributeError):
        work()
        return float("nan")
    work()
    return held("VmHWM") - before


def measured(
    call: str,
    size: str,
    ours: Callable[[], Any],
    instead: Instead | None = None,
    check: Callable[[Any], str] = lambda _result: "",
    repeats: int = 1,
) -> Row:
    """The call and what one would write instead, in turns; then its memory, of a call of its own.

    To see the peak, free memory is given back and every page marked as untouched: the call after that pays for touching
    each again, twice what it takes otherwise at 100 MB. Such a call is not timed.
    """
    mine: list[float] = []
    theirs: list[float] = []
    result = None
    spent, last = Counter[str](), 0.0

    def hear(label: str, done: int, _total: int) -> None:
        nonlocal last
        now = time.process_time()
        spent[label] += now - last if done else 0.0  # type: ignore[assignment]
        last = now

    with reporting(hear):
        for _ in range(repeats):
            spent.clear()
            result = None  # one model is held at a time, as its users do: another copy of the rows is new memory
            last = time.process_time()
            seconds, result = cpu(ours)
            mine.append(seconds)
            if instead is not None:
                theirs.append(instead.seconds())
    stages = ", ".join(f"{label} {part:.2g}" for label, part in spent.most_common() if part > 0.05 * mine[-1])
    name, part = (instead.name, instead.part) if instead else ("", "")
    peak = peak_memory(ours)
    return Row(call, size, mine, peak, name, theirs, part, check(result), stages)


def process(*arguments: str, env: Mapping[str, str] | None = None, cwd: str | None = None) -> float:
    """CPU seconds of Python in a process of its own."""
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
    begun = children_seconds()
    code = subprocess.call([sys.executable, *arguments], cwd=cwd, env=surroundings, stdout=subprocess.DEVNULL)
    if code:
        raise RuntimeError(f"python {' '.join(arguments)[:100]} ended with {code}")
    return children_seconds() - begun


def started(call: str, size: str, ours: list[str], instead: str, theirs: str, cwd: str | None = None) -> Row:
    """A process against another one, in turns."""
    pairs = [(process(*ours, cwd=cwd), process("-c", theirs, cwd=cwd)) for _ in range(3)]
    return Row(call, size, [one for one, _ in pairs], instead=instead, its_seconds=[other for _, other in pairs])


# -- data, and what one would write instead --------------------------------------------------------------------------


def draw(n_users: int, n: int, d: int, groups: int = 0, seed: int = 0) -> tuple[FloatArray, FloatArray, IntArray]:
    """Z, y and users: `n` comparisons each, preferences of norm 2, everybody's own or those of a few groups."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((groups or n_users, d))
    theta = (2.0 * theta / np.linalg.norm(theta, axis=1, keepdims=True))[np.arange(n_users) % (groups or n_users)]
    Z, users = rng.standard_normal((n_users * n, d)), np.repeat(np.arange(n_users), n)
    y = rng.random(len(Z)) < expit(np.einsum("ndk,nk->nd", Z.reshape(n_users, n, d), theta).ravel())
    return Z, y.astype(np.float64), users


def by_sklearn(Z: FloatArray, y: FloatArray) -> FloatArray:
    """scikit-learn at the tolerance: its own is on the mean loss."""
    wanted = TOLERANCE * float(np.abs(Z.T @ (0.5 - y)).max()) / len(y)
    model = LogisticRegression(C=1.0 / RIDGE, fit_intercept=False, solver="lbfgs", tol=wanted, max_iter=100_000)
    theta: FloatArray = model.fit(Z, y).coef_[0] if 0 < y.mean() < 1 else np.zeros(Z.shape[1])
    return theta


def own_by_loop(Z: FloatArray, y: FloatArray, n: int, some: IntArray) -> list[tuple[FloatArray, float]]:
    """Estimate and least eigenvalue of some users, one after the other."""
    found = []
    for u in some:
        rows = slice(u * n, (u + 1) * n)
        M = KNOWN * np.eye(Z.shape[1]) + Z[rows].T @ Z[rows]
        found.append((by_sklearn(Z[rows], y[rows]), float(np.linalg.eigvalsh(M)[0])))
    return found


def relative_gradient(Z: FloatArray, y: FloatArray, theta: FloatArray) -> float:
    """max|gradient| / max|gradient at 0|.

    >>> relative_gradient(np.eye(2), np.ones(2), np.zeros(2))
    1.0
    """
    slope = Z.T @ (expit(Z @ theta) - y) + RIDGE * theta
    return float(np.abs(slope).max() / np.abs(Z.T @ (0.5 - y)).max())


def some_of(n_users: int, most: int) -> IntArray:
    """Users spread over all."""
    return np.linspace(0, n_users - 1, min(n_users, most)).astype(np.intp)


def often(quick: bool) -> Callable[..., Row]:
    """`measured`, three times unless it is to be quick."""
    return partial(measured, repeats=1 if quick else 3)


def own_checked(model: OffC2PL, Z: FloatArray, y: FloatArray, n: int, some: IntArray) -> str:
    """Gradients at our estimates and at theirs; radii are one number over √λ_min, so they must be in proportion."""
    loop = own_by_loop(Z, y, n, some)
    rows = [slice(u * n, (u + 1) * n) for u in some]
    ours = max(relative_gradient(Z[r], y[r], model.own_theta_[u]) for r, u in zip(rows, some, strict=True))
    theirs = max(relative_gradient(Z[r], y[r], theta) for r, (theta, _) in zip(rows, loop, strict=True))
    scaled = model.radius_[some] * np.sqrt([least for _, least in loop])
    return f"gradients {ours:.0e}, {theirs:.0e}; radii {scaled.max() / scaled.min() - 1.0:.0e}"


# -- rows ------------------------------------------------------------------------------------------------------------


def own_loop(Z: FloatArray, y: FloatArray, n: int, note: str = "") -> Instead:
    """Everybody's own estimate and radius, measured on some users."""
    n_users = len(Z) // n
    some = some_of(n_users, 4 if Z.shape[1] > 200 else min(100, max(20, n_users // 20)))
    part = "" if len(some) == n_users else f"{len(some)} of {n_users:,} users"
    name = f"loop of scikit-learn, Gram matrix + eigvalsh{note}"
    return Instead(name, [(lambda: own_by_loop(Z, y, n, some), n_users / len(some))], part)


def alone(quick: bool) -> Iterator[Row]:
    """Everybody's own estimate and radius, nobody joined."""

    def row(n_users: int, n: int, d: int) -> Row:
        Z, y, users = draw(n_users, n, d)
        some = some_of(n_users, 20 if d < 200 else 4)
        return often(quick)(
            "OffC2PL(gamma=0).fit",
            f"U={n_users:,} N={n} d={d}",
            lambda: OffC2PL(gamma=0.0, n_jobs=1).fit(Z, y, users=users),
            own_loop(Z, y, n),
            lambda model: own_checked(model, Z, y, n, some),
        )

    sizes = [(2000, 200, 32), (100_000, 50, 16), (40, 1000, 768)]
    yield from (row(*size) for size in ([(20, 100, 16), (40, 30, 8), (2, 250, 201)] if quick else sizes))


def joined(quick: bool) -> Iterator[Row]:
    """Algorithm 1 where every neighbourhood is another one."""
    n_users, n, d = (200, 40, 8) if quick else (4000, 200, 32)
    Z, y, users = draw(n_users, n, d, groups=n_users // 100 or 1, seed=3)
    apart = OffC2PL(gamma=0.0, n_jobs=1).fit(Z, y, users=users)
    one, other = np.random.default_rng(0).integers(n_users, size=(2, 100_000))
    needed = np.linalg.norm(apart.own_theta_[one] - apart.own_theta_[other], axis=1)
    needed += apart.radius_[one] + apart.radius_[other]
    gamma = float(np.quantile(needed[one != other], 0.02))  # joins about 2 % of the pairs
    few, fewer = some_of(n_users, 100), some_of(n_users, 10)

    def near(u: int) -> IntArray:
        distance = np.linalg.norm(apart.own_theta_ - apart.own_theta_[u], axis=1)
        joined = distance + apart.radius_ + apart.radius_[u] < gamma
        joined[u] = True
        return np.flatnonzero(joined)

    def pool(u: int) -> tuple[FloatArray, FloatArray]:
        rows = (near(u)[:, None] * n + np.arange(n)).ravel()
        return Z[rows], y[rows]

    loop = Instead(
        "the same, then distances and scikit-learn per neighbourhood",
        [
            (lambda: own_by_loop(Z, y, n, few), n_users / len(few)),
            (lambda: [by_sklearn(*pool(u)) for u in fewer], n_users / len(fewer)),
        ],
        f"{len(few)} and {len(fewer)} of {n_users:,} users",
    )

    def check(model: OffC2PL) -> str:
        ours = max(relative_gradient(*pool(u), model.theta_[u]) for u in fewer)
        sets = [tuple(model.members(u)) for u in range(n_users)]
        if any(sets[u] != tuple(near(u)) for u in fewer):
            raise RuntimeError("the loop finds other neighbours")
        return f"gradients {ours:.0e}; {len(set(sets)):,} neighbourhoods of {np.mean([len(s) for s in sets]):.0f}"

    model = OffC2PL(gamma=gamma, n_jobs=1)
    size = f"U={n_users:,} N={n} d={d}, all distinct"
    yield measured("OffC2PL(gamma=...).fit", size, lambda: model.fit(Z, y, users=users), loop, check)
    yield chosen(quick)


def chosen(quick: bool) -> Row:
    """Algorithm 1 with its default, a threshold chosen by held-out answers."""
    n_users, n, d = (8, 30, 6) if quick else (40, 300, 768)
    Z, y, users = draw(n_users, n, d, groups=n_users // 4, seed=5)
    by_user, answers = Z.reshape(n_users, n, d), y.reshape(n_users, n)
    own = np.array([by_sklearn(*rows) for rows in zip(by_user, answers, strict=True)])
    few, folds = some_of(n_users, 2), 3

    def pooled(u: int, fraction: float) -> FloatArray:  # of those nearest, two thirds of the rows each
        nearest = np.argsort(np.linalg.norm(own - own[u], axis=1))[: max(1, round(fraction * n_users))]
        kept = slice(n * (folds - 1) // folds)
        return by_sklearn(by_user[nearest, kept].reshape(-1, d), answers[nearest, kept].ravel())

    def check(model: OffC2PL) -> str:
        rows = [np.isin(users, model.members(u)) for u in few]
        reached = [relative_gradient(Z[own], y[own], model.theta_[u]) for own, u in zip(rows, few, strict=True)]
        return f"gradients {max(reached):.0e}"

    loop = Instead(
        f"scikit-learn per user and fold for {len(JOINED_FRACTIONS)} thresholds",
        [(lambda: [pooled(u, fraction) for u in few for fraction in JOINED_FRACTIONS], folds * n_users / len(few))],
        f"{len(few)} of {n_users} users, one of {folds} folds",
    )
    size = f"U={n_users} N={n} d={d}"
    return measured("OffC2PL().fit", size, lambda: OffC2PL(n_jobs=1).fit(Z, y, users=users), loop, check)


def kin(quick: bool) -> Iterator[Row]:
    """PrefKin, against what everybody's own estimates cost by loops; then what the fitted model is asked."""

    def rows(n_users: int, n: int, d: int) -> Iterator[Row]:
        Z, y, users = draw(n_users, n, d, groups=8, seed=10)
        model, size = PrefKin(n_jobs=1, random_state=0), f"U={n_users:,} N={n} d={d}"
        yield measured(
            "PrefKin().fit",
            size,
            lambda: model.fit(Z, y, users=users),
            own_loop(Z, y, n, ": own estimates only"),
            lambda model: str(model.summary()).splitlines()[0].partition(": ")[2],
        )
        stories = Candidates(np.random.default_rng(0).standard_normal((50, 4, d)))
        again = often(quick)
        yield again("PrefKin: explain", size, lambda: model.explain(0, 1))
        yield again("PrefKin: policy", f"{size}, 50 contexts", lambda: model.policy(0, stories))
        alone = Instead("scikit-learn on the new rows alone", [(lambda: by_sklearn(Z[:15], y[:15]), 1.0)])
        yield again("PrefKin: fold_in", f"{size}, 15 answers", lambda: model.fold_in(Z[:15], y[:15]), alone)

    for size in [(24, 40, 6)] if quick else [(1000, 200, 32), (40, 1000, 768)]:
        yield from rows(*size)


def predicted(quick: bool) -> Iterator[Row]:
    """Probabilities from a model of many users: one row, and many."""
    n_users, n_rows, d = (30, 300, 4) if quick else (10_000, 100_000, 16)
    Z, y, users = draw(n_users, 20, d, groups=8, seed=11)
    asked = np.random.default_rng(1).permutation(len(Z))[:n_rows]
    new, who = Z[asked], users[asked]

    def rows(model: Any) -> Iterator[Row]:
        theta, place = model.theta_, {u: k for k, u in enumerate(model.users_.tolist())}

        def over_users() -> FloatArray:
            p = np.empty(len(new))
            for u in range(n_users):
                mine = who == u
                p[mine] = expit(new[mine] @ theta[u])
            return p

        def off(p: FloatArray) -> str:
            return f"within {np.abs(p[:, 1] - over_users()).max():.0e} of the sigmoid of the estimate"

        def one_by_one() -> None:
            for k in range(100):
                model.predict_proba(new[k : k + 1], users=who[k : k + 1])

        def looked_up() -> None:
            for k in range(100):
                expit(new[k] @ theta[place[int(who[k])]])

        name = f"{type(model).__name__}: predict_proba"
        simple = Instead("numpy, the user's estimate looked up", [(looked_up, 1.0)])
        yield often(quick)(name, f"100 times one row; {n_users:,} users", one_by_one, simple)
        loop = Instead("loop over users", [(over_users, 1.0)])
        size = f"{n_rows:,} rows of {n_users:,} users"
        yield often(quick)(name, size, lambda: model.predict_proba(new, users=who), loop, off)

    for model in (OffC2PL(gamma=0.0, n_jobs=1), PrefKin(n_jobs=1, random_state=0)):
        yield from rows(model.fit(Z, y, users=users))


def questions(quick: bool) -> Iterator[Row]:
    """A conversation: each question chosen, each answer learnt from, in turn."""
    pool, n, d, rounds = (60, 100, 32, 10) if quick else (1000, 1000, 768, 500)
    Z, y, users = draw(1, n, d, seed=4)
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    rng = np.random.default_rng(4)
    pairs = rng.standard_normal((pool, 2, d)) / np.sqrt(d)
    differences, candidates = pairs[:, 0] - pairs[:, 1], Candidates(pairs)
    answers = (rng.random(rounds) < 0.5).tolist()
    model = OffC2PL(gamma=0.0, n_jobs=1).fit(Z, y, users=users)
    asked: list[FloatArray] = []

    def talk() -> Any:
        session = model.session(0, candidates, rule="coverage")
        asked.clear()
        for answer in answers:
            question = session.ask()
            asked.append(session.difference(question))
            session.tell(question, answer)
        return session

    def one_round() -> None:  # in the middle of the conversation
        so_far = np.vstack([Z, differences[: rounds // 2]])
        inverse = np.linalg.inv(KNOWN * np.eye(d) + so_far.T @ so_far)
        np.argmax(np.einsum("ij,ij->i", differences @ inverse, differences))
        by_sklearn(so_far, np.append(y, answers[: rounds // 2]))

    def check(session: Any) -> str:
        reached = relative_gradient(np.vstack([Z, *asked]), np.append(y, answers), session.theta)
        return f"gradient {reached:.0e}"

    name, part = "inverse, scores of all, scikit-learn, each round", f"the middle one of {rounds}"
    naive = Instead(name, [(one_round, rounds)], part)
    size = f"N={n} d={d}, {pool:,} pairs"
    yield often(quick)(f"{rounds} x session.ask, tell (coverage)", size, talk, naive, check)


def files(quick: bool) -> Iterator[Row]:
    """Tables in, models out and in."""
    n_users, n, d = (40, 20, 8) if quick else (2000, 200, 32)
    Z, y, users = draw(n_users, n, d)
    model = OffC2PL(gamma=0.0, n_jobs=1).fit(Z, y, users=users)
    with tempfile.TemporaryDirectory() as folder:
        votes, kept, plain = (Path(folder) / name for name in ("votes.parquet", "kin", "kin.npz"))
        names = [f"z{i}" for i in range(d)]
        pl.DataFrame({"user": users, "y": y, **{name: Z[:, i] for i, name in enumerate(names)}}).write_parquet(votes)

        def stacked() -> Any:
            frame = pl.read_parquet(votes)
            return frame.select(names).to_numpy(), frame["y"].to_numpy(), frame["user"].to_numpy()

        size = f"{len(Z):,} rows, d={d}"
        by_hand = Instead("polars + numpy, unchecked", [(stacked, 1.0)])
        again = often(quick)
        yield again("read_comparisons", f"{size}, Parquet", lambda: read_comparisons(votes), by_hand)
        bare = {"Z": Z, "y": y, "users": users, "theta": model.theta_}
        saved = Instead("numpy.savez", [(lambda: np.savez(plain, **bare), 1.0)])  # type: ignore[arg-type]
        yield again("model.save", size, lambda: model.save(kept), saved)
        loaded = Instead("numpy.load", [(lambda: dict(np.load(plain)), 1.0)])
        yield again("prefkin.load", size, lambda: load(kept), loaded)


FIRST = """
import numpy as np
Z, users = np.random.default_rng(0).standard_normal((10_000, 32)), np.repeat(np.arange(50), 200)
y = (Z[:, 0] > 0).astype(float)
"""
IMPORT = "from sklearn.linear_model import LogisticRegression"
LOOP = f"""{IMPORT}
for u in np.unique(users):
    mine, answers = Z[users == u], y[users == u]
    tol = {TOLERANCE} * abs(mine.T @ (0.5 - answers)).max() / len(mine)
    LogisticRegression(fit_intercept=False, tol=tol, max_iter=100_000).fit(mine, answers)
"""
READ = """
import numpy as np, polars as pl
frame = pl.read_csv("votes.csv")
Z, y, users = frame.drop("user", "y").to_numpy(), frame["y"].to_numpy(), frame["user"].to_numpy()
"""


def starting(quick: bool) -> Iterator[Row]:  # noqa: ARG001
    """Processes of their own: what it costs to begin, and to begin for the first time."""
    yield started("import prefkin", "", ["-c", "import prefkin"], "import numpy", "import numpy")
    yield started("from prefkin import OffC2PL", "", ["-c", "from prefkin import OffC2PL"], IMPORT, IMPORT)
    yield started("prefkin --help", "", ["-m", "prefkin", "--help"], "import numpy", "import numpy")
    with tempfile.TemporaryDirectory() as folder:
        fit = FIRST + "import prefkin; prefkin.OffC2PL(gamma=0.0, n_jobs=1).fit(Z, y, users=users)"
        for call in ("first OffC2PL(gamma=0).fit after installation", "OffC2PL(gamma=0).fit in a new process"):
            mine = [process("-W", "ignore", "-c", fit, env={"NUMBA_CACHE_DIR": folder})]
            theirs, size = [process("-c", FIRST + LOOP)], "U=50 N=200 d=32, with imports"
            yield Row(call, size, mine, instead="loop of scikit-learn", its_seconds=theirs)
        Z, y, users = draw(24, 40, 6, groups=3)
        votes = {"user": users, "y": y, **{f"z{i}": Z[:, i] for i in range(6)}}
        write_atomically(Path(folder) / "votes.csv", as_csv(votes))
        command = ["-m", "prefkin", "fit", "votes.csv", "--out", "kin", "--no-pictures"]
        own = "polars, loop of scikit-learn: own estimates only"
        yield started("prefkin fit", "U=24 N=40 d=6, CSV, with imports", command, own, READ + LOOP, cwd=folder)


STAGES: dict[str, Callable[[bool], Iterator[Row]]] = {
    "alone": alone,
    "joined": joined,
    "questions": questions,
    "prefkin": kin,
    "predict": predicted,
    "files": files,
    "start": starting,
}


def run(stages: list[str], out: Path, *, quick: bool, tell: Callable[[str], None] = lambda _line: None) -> str:
    """Measure the rows of these stages; the table, which is also in `out`, as far as it is, after every row."""
    rows: list[Row] = []
    with single_threaded(), warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefkinWarning)
        for stage in stages:
            tell(stage)
            for row in STAGES[stage](quick):
                rows.append(row)
                write_atomically(out / "performance.md", table(rows).encode())
    return table(rows)


def table(rows: list[Row]) -> str:
    """Markdown: one line per call and size."""
    lines = [
        "| call | size | CPU s | peak MB | instead | its CPU s | measured on | ratio (range) | checked | of which |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row.call, row.size, f"{np.median(row.seconds):.3g}", f"{row.peak:.0f}".replace("nan", "")]
        if row.its_seconds:
            ratios = np.array(row.its_seconds) / np.array(row.seconds)
            spread = f" ({ratios.min():.3g} to {ratios.max():.3g})" if len(ratios) > 1 else ""
            cells += [row.instead, f"{np.median(row.its_seconds):.3g}", row.part, f"{np.median(ratios):.3g}{spread}"]
        else:
            cells += ["", "", "", ""]
        lines.append(f"| {' | '.join([*cells, row.checked, row.stages])} |")
    return "\n".join(lines) + "\n"
