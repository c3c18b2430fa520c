"""How fast each stage is, against its peers in the same process and run.

Times are CPU seconds on one thread; peers reach the same relative gradient, max|g| ≤ 1e-6 max|g at 0|, which is
checked afterwards. Peers that take long are measured on part of the work and scaled; the table says on which part.
Compiled code is loaded beforehand; what loading costs is a line of its own.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from ctypes import CDLL
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.spatial import cKDTree
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.data.comparisons import Comparisons
from prefkin.data.rows import Rows, UserRows
from prefkin.data.storage import write_atomically
from prefkin.decide.session import ActiveSession
from prefkin.evaluate.plots import as_png, plot_growth
from prefkin.execution.blas import single_threaded
from prefkin.inference import compiled
from prefkin.inference.estimate import estimate_users
from prefkin.models.off_c2pl.estimator import OffC2PL
from prefkin.models.off_c2pl.graph import Graph
from prefkin.models.off_c2pl.pooling import pool_estimates
from prefkin.models.off_c2pl.radius import KAPPA_UNIT_BALL, Measured
from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["GROWTH", "STAGES", "Figure", "Growth", "Peer", "run", "table"]

TOLERANCE = 1e-6
RIDGE = 1.0


@dataclass(frozen=True)
class Peer:
    """Another way to the same result: its CPU seconds, once per repeat, and on which part they were measured."""

    name: str
    seconds: list[float]
    part: str = ""
    gradient: float = np.nan  # largest relative gradient of its results


@dataclass(frozen=True)
class Figure:
    """One line of the table for each peer."""

    stage: str
    size: str
    seconds: list[float]  # ours, once per repeat
    peak: float  # MB above what was held before
    peers: list[Peer] = field(default_factory=list)
    gradient: float = np.nan
    note: str = ""


@dataclass(frozen=True)
class Growth:
    """CPU seconds as one size grows."""

    what: str  # such as "own estimates, users"
    sizes: list[int]
    seconds: list[float]

    @property
    def exponent(self) -> float:
        """The slope of log seconds over log size.

        >>> round(Growth("", [1, 2, 4], [3.0, 12.0, 48.0]).exponent, 6)
        2.0
        """
        return float(np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)[0])


# -- measuring -------------------------------------------------------------------------------------------------------


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds and the result."""
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


def repeated(work: Callable[[], Any], times: int) -> tuple[list[float], float, Any]:
    """CPU seconds of each time, MB by which the process grew at most the first time, and that time's result."""
    kept: list[Any] = []
    peak = peak_memory(lambda: kept.append(cpu(work)))
    seconds, result = kept[0]
    return [seconds, *(cpu(work)[0] for _ in range(times - 1))], peak, result


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


def relative_gradient(rows: Rows, theta: FloatArray) -> float:
    """max|gradient| / max|gradient at 0|.

    >>> relative_gradient(Rows(np.eye(2), np.ones(2), np.ones(2)), np.zeros(2))
    1.0
    """
    Z = rows.Z.astype(np.float64, copy=False)
    at_zero = np.abs(Z.T @ (rows.weights * (0.5 - rows.y))).max()
    slope = Z.T @ (rows.weights * (expit(Z @ theta) - rows.y)) + RIDGE * theta
    return float(np.abs(slope).max() / at_zero)


# -- data ------------------------------------------------------------------------------------------------------------


def draw_users(n_users: int, n: int, d: int, kind: str, rng: np.random.Generator, groups: int = 0) -> UserRows:
    """Users with `n` comparisons each.

    Kinds: gaussian, unit (norm 1), ill (scales over two decades), embedding (norm 1, eigenvalues falling as 1/k, no
    axis special).
    """
    Z = rng.standard_normal((n_users * n, d))
    if kind == "ill":
        Z *= 3.0 * np.logspace(0, -2, d)
    if kind == "embedding":
        Z = (Z * np.arange(1, d + 1) ** -0.5) @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    if kind in ("unit", "embedding"):
        Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    theta = rng.standard_normal((groups or n_users, d))
    theta *= 2.0 / np.linalg.norm(theta, axis=1, keepdims=True)
    if groups:
        theta = theta[np.arange(n_users) % groups]
    y = (rng.random(n_users * n) < expit(np.einsum("ij,ij->i", Z, np.repeat(theta, n, axis=0)))).astype(np.float64)
    return UserRows(Rows(Z, y, np.ones(n_users * n)), np.arange(n_users + 1) * n, np.arange(n_users))


# -- peers -----------------------------------------------------------------------------------------------------------


def by_sklearn(rows: Rows, solver: str) -> FloatArray:
    """scikit-learn at the tolerance: its own is on the mean loss."""
    wanted = TOLERANCE * float(np.abs(rows.Z.T @ (0.5 - rows.y)).max()) / len(rows.y)
    model = LogisticRegression(C=1.0 / RIDGE, fit_intercept=False, solver=solver, tol=wanted, max_iter=100_000)
    theta: FloatArray = model.fit(rows.Z, rows.y).coef_[0] if 0 < rows.y.mean() < 1 else np.zeros(rows.Z.shape[1])
    return theta


def by_scipy(rows: Rows) -> FloatArray:
    """L-BFGS-B on loss and gradient."""
    Z, y, _ = rows

    def loss(theta: FloatArray) -> tuple[float, FloatArray]:
        margin = Z @ theta
        value = np.logaddexp(0.0, (1.0 - 2.0 * y) * margin).sum() + RIDGE / 2.0 * (theta @ theta)
        return value, Z.T @ (expit(margin) - y) + RIDGE * theta

    wanted = TOLERANCE * float(np.abs(Z.T @ (0.5 - y)).max())
    options = {"gtol": wanted, "ftol": 0.0, "maxiter": 10_000, "maxfun": 20_000}
    theta: FloatArray = minimize(loss, np.zeros(Z.shape[1]), jac=True, method="L-BFGS-B", options=options).x
    return theta


LOOPS: dict[str, Callable[[Rows], FloatArray]] = {
    "scikit-learn lbfgs, a loop": lambda rows: by_sklearn(rows, "lbfgs"),
    "scikit-learn newton-cholesky, a loop": lambda rows: by_sklearn(rows, "newton-cholesky"),
    "scipy L-BFGS, a loop": by_scipy,
}


def loop_peers(sets: list[Rows], total: int, repeats: int, names: list[str]) -> list[Peer]:
    """Fits of some sets one after the other, scaled to all."""
    peers = []
    for name in names:
        LOOPS[name](sets[0])
        timed = [cpu(lambda fit=LOOPS[name]: [fit(rows) for rows in sets]) for _ in range(repeats)]  # type: ignore[misc]
        worst = max(relative_gradient(rows, theta) for rows, theta in zip(sets, timed[0][1], strict=True))
        scale = total / len(sets)
        part = "" if scale == 1 else f"{len(sets)} of {total:,}"
        peers.append(Peer(name, [seconds * scale for seconds, _ in timed], part, worst))
    return peers


# -- stages ----------------------------------------------------------------------------------------------------------


def own_estimates(quick: bool, repeats: int) -> Iterator[Figure]:
    """θ̂_u of every user from its own rows."""
    sizes = [(5000, 200, 32, "gaussian"), (5000, 200, 32, "ill"), (100_000, 50, 16, "gaussian"), (2000, 40, 64, "unit")]
    sizes += [(40, 1000, 768, kind) for kind in ("gaussian", "unit", "embedding")]
    if quick:
        sizes = [
            (1000, 200, 32, "gaussian"),
            (1000, 200, 32, "ill"),
            (5000, 50, 16, "gaussian"),
            (4, 1000, 768, "unit"),
        ]
    for n_users, n, d, kind in sizes:
        users = draw_users(n_users, n, d, kind, np.random.default_rng(0))

        def ours(users: UserRows = users) -> FloatArray:
            return estimate_users(users, ridge=RIDGE, n_jobs=1)

        seconds, peak, theta = repeated(ours, repeats)
        some = np.linspace(0, n_users - 1, min(n_users, 8 if d > 200 else 200)).astype(int)
        names = list(LOOPS) if d <= 200 else ["scikit-learn lbfgs, a loop", "scipy L-BFGS, a loop"]
        yield Figure(
            "own",
            f"U={n_users:,} N={n} d={d} {kind}",
            seconds,
            peak,
            loop_peers([users.of(u) for u in some], n_users, repeats, names),
            max(relative_gradient(users.of(u), theta[u]) for u in range(min(n_users, 500))),
        )


def eigenvalues(quick: bool, repeats: int) -> Iterator[Figure]:
    """λ_min(M_u) of every user."""
    for n_users, n, d in [(4 if quick else 10, 1000, 768), (500 if quick else 5000, 200, 32), (10, 500, 768)]:
        users = draw_users(n_users, n, d, "gaussian", np.random.default_rng(1))
        ours = lambda users=users: Measured().floor(users, ridge=RIDGE, kappa=0.1, n_jobs=1)  # noqa: E731
        some = range(min(n_users, 200))
        full = lambda users=users, some=some: [  # noqa: E731
            np.linalg.eigvalsh(users.of(u).Z.T @ users.of(u).Z)[0] for u in some
        ]
        least = lambda users=users, some=some: [  # noqa: E731
            eigh(users.of(u).Z.T @ users.of(u).Z, eigvals_only=True, subset_by_index=[0, 0])[0] for u in some
        ]
        (seconds, peak, floor), scale = repeated(ours, repeats), n_users / len(some)
        part = "" if scale == 1 else f"{len(some)} of {n_users:,}"
        peers, reference = [], np.zeros(1)
        for name, peer in (("Gram matrix + eigvalsh", full), ("Gram matrix + eigh of one", least)):
            theirs = [cpu(peer) for _ in range(repeats)]
            reference = np.array(theirs[0][1])
            peers.append(Peer(name, [once * scale for once, _ in theirs], part))
        off = np.abs(floor[: len(some)] / (np.maximum(reference, 0.0) + RIDGE / 0.1) - 1.0).max()
        yield Figure(
            "eigenvalue",
            f"U={n_users:,} N={n} d={d}",
            seconds,
            peak,
            peers,
            note=f"largest relative difference {off:.0e}",
        )


def draw_graph(n_users: int, d: int, rng: np.random.Generator) -> Graph:
    """Ten groups with noisy estimates; the threshold joins about a tenth of the pairs."""
    theta = rng.standard_normal((10, d))
    theta *= 2.0 / np.linalg.norm(theta, axis=1, keepdims=True)
    theta = theta[np.arange(n_users) % 10] + 0.2 * rng.standard_normal((n_users, d))
    radius = 30.0 + 0.05 * np.abs(rng.standard_normal(n_users))
    one, other = rng.integers(n_users, size=(2, 4000))
    needed = np.linalg.norm(theta[one] - theta[other], axis=1) + radius[one] + radius[other]
    gamma = np.full(n_users, float(np.quantile(needed[one != other], 0.1)))
    return Graph(theta, radius, gamma, 1.0, np.ones(n_users, dtype=bool))


def graph_of_all(quick: bool, repeats: int) -> Iterator[Figure]:
    """The connection test for all pairs."""
    for n_users in [2000] if quick else [10_000, 100_000]:
        points = draw_graph(n_users, 32, np.random.default_rng(2))

        def ours(points: Graph = points) -> Any:
            fresh = Graph(points.theta, points.radius, points.gamma, points.alpha, points.enough)
            return fresh.census(n_jobs=1)

        some = range(0, n_users, n_users // 50)
        tree = cKDTree(points.theta)
        reach = points.gamma - points.radius - points.radius.min()

        def by_rows(points: Graph = points, some: range = some) -> list[int]:
            return [int(points.connected(u).sum()) for u in some]

        def by_tree(
            points: Graph = points, some: range = some, tree: Any = tree, reach: FloatArray = reach
        ) -> list[int]:
            counts = []
            for u in some:
                near = np.array(tree.query_ball_point(points.theta[u], reach[u]))
                needed = np.linalg.norm(points.theta[near] - points.theta[u], axis=1) + points.radius[near]
                counts.append(int((needed + points.radius[u] < points.gamma[u]).sum()))
            return counts

        rivals: list[tuple[str, Callable[..., list[int]]]] = [
            ("numpy, row by row", by_rows),
            ("KD-tree, row by row", by_tree),
        ]
        if find_spec("faiss") is not None:
            rivals.append(("faiss flat index, a batch of rows", _by_faiss(points, some, reach)))
        seconds, peak, counted = repeated(ours, repeats if n_users < 50_000 else 1)
        scale = n_users / len(some)
        peers: list[Peer] = []
        for name, peer in rivals:
            theirs = [cpu(peer) for _ in range(repeats)]
            if not np.array_equal(theirs[0][1], counted.degree[list(some)]):
                raise RuntimeError(f"{name} counts other neighbours")
            peers.append(Peer(name, [once * scale for once, _ in theirs], f"{len(some)} of {n_users:,} rows"))
        yield Figure(
            "graph",
            f"U={n_users:,} d=32, {counted.degree.mean() / n_users:.0%} joined",
            seconds,
            peak,
            peers,
            note=f"{counted.exact:,} pairs needed the exact test",
        )


def _by_faiss(points: Graph, some: range, reach: FloatArray) -> Callable[[], list[int]]:
    """Candidates by range search in float32, a little too wide, then the exact test."""
    faiss = import_module("faiss")
    light = points.theta.astype(np.float32)
    index = faiss.IndexFlatL2(light.shape[1])
    index.add(light)

    def count() -> list[int]:
        widest = float(reach[list(some)].max()) ** 2 * (1.0 + 1e-4)
        ends, _, found = index.range_search(light[list(some)], widest)
        counts = []
        for k, u in enumerate(some):
            near = found[ends[k] : ends[k + 1]]
            needed = np.linalg.norm(points.theta[near] - points.theta[u], axis=1) + points.radius[near]
            counts.append(int((needed + points.radius[u] < points.gamma[u]).sum()))
        return counts

    return count


def pooled_estimates(quick: bool, repeats: int) -> Iterator[Figure]:
    """θ̃ of every user, all neighbourhoods distinct."""
    n_users, n, d = (500, 100, 16) if quick else (5000, 200, 32)
    rng = np.random.default_rng(3)
    groups = n_users // 100
    users = draw_users(n_users, n, d, "gaussian", rng, groups=groups)
    own = estimate_users(users, ridge=RIDGE)
    sets: list[IntArray] = []
    for u in range(n_users):
        friends = (np.arange(n_users) % groups == u % groups) & (rng.random(n_users) < 0.9)
        friends[u] = True
        sets.append(np.flatnonzero(friends))

    def ours() -> FloatArray:
        return pool_estimates(users, sets, own, ridge=RIDGE, n_jobs=1)

    seconds, peak, theta = repeated(ours, repeats)
    some = [users.of_many(sets[u]) for u in range(0, n_users, n_users // 10)]
    worst = max(
        relative_gradient(rows, theta[u]) for rows, u in zip(some, range(0, n_users, n_users // 10), strict=True)
    )
    yield Figure(
        "pooled",
        f"U={n_users:,} N={n} d={d}, {np.mean([len(s) for s in sets]):.0f} neighbours each",
        seconds,
        peak,
        loop_peers(some, n_users, repeats, ["scikit-learn lbfgs, a loop", "scikit-learn newton-cholesky, a loop"]),
        worst,
    )


def planned_questions(quick: bool, repeats: int) -> Iterator[Figure]:
    """A questionnaire with the estimates after each answer."""
    for pool, d, rounds in [(1000, 128, 60)] if quick else [(1000, 768, 500), (100_000, 768, 500)]:
        rng = np.random.default_rng(4)
        known = draw_users(1, 500, d, "unit", rng).rows
        pairs = np.zeros((pool, 2, d))
        pairs[:, 0] = rng.standard_normal((pool, d))
        pairs[:, 0] *= (rng.uniform(0.5, 1.5, pool) / np.linalg.norm(pairs[:, 0], axis=1))[:, None]
        candidates = Candidates(pairs)
        differences = pairs[:, 0].copy()
        del pairs
        answers = rng.random(rounds) < 0.5

        def ours(
            known: Rows = known,
            candidates: Candidates = candidates,
            answers: Any = answers,
            rounds: int = rounds,
            d: int = d,
        ) -> ActiveSession:
            session = ActiveSession(known, candidates, theta=np.zeros(d), ridge=RIDGE, kappa=KAPPA_UNIT_BALL)
            session.tell_all(session.plan(rounds), [bool(answer) for answer in answers])
            return session

        seconds, peak, session = repeated(ours, repeats if pool < 50_000 else 1)
        half = len(known.y) + rounds // 2
        rows = Rows(*(part[:half] for part in session.listener.rows))

        def naive(rows: Rows = rows, differences: FloatArray = differences, d: int = d) -> None:
            information = RIDGE / KAPPA_UNIT_BALL * np.eye(d) + rows.Z.T @ rows.Z
            inverse = np.linalg.inv(information)
            np.argmax(np.einsum("ij,ij->i", differences @ inverse, differences))
            by_sklearn(rows, "lbfgs")

        theirs = [cpu(naive)[0] * rounds for _ in range(repeats)]
        yield Figure(
            "plan",
            f"{rounds} of {pool:,} pairs, N=500 d={d}",
            seconds,
            peak,
            [
                Peer(
                    "inverse, scores of all, scikit-learn lbfgs, each round",
                    theirs,
                    f"the middle one of {rounds} rounds",
                )
            ],
            relative_gradient(session.listener.rows, session.theta),
        )


def threads(quick: bool, repeats: int) -> Iterator[Figure]:
    """The clock with one thread and with two."""
    users = draw_users(2000 if quick else 20_000, 200, 32, "gaussian", np.random.default_rng(5))

    def clock(n_jobs: int) -> float:
        begun = time.perf_counter()
        estimate_users(users, ridge=RIDGE, n_jobs=n_jobs)
        return time.perf_counter() - begun

    pairs = [(clock(2), clock(1)) for _ in range(max(repeats, 3))]
    yield Figure(
        "threads",
        f"U={len(users):,} N=200 d=32, by the clock",
        [two for two, _ in pairs],
        float("nan"),
        [Peer("one thread", [one for _, one in pairs])],
    )


def large(quick: bool, repeats: int) -> Iterator[Figure]:  # noqa: ARG001
    """Algorithm 1 on many users with float32 features: memory beside the data."""
    n_users, n, d, groups = (2000, 100, 64, 10) if quick else (100_000, 100, 64, 10)
    rng = np.random.default_rng(6)
    theta = rng.standard_normal((groups, d))
    theta *= 16.0 / np.linalg.norm(theta, axis=1, keepdims=True)
    Z: Any = np.empty((n_users * n, d), dtype=np.float32)
    y, who = np.empty(n_users * n), np.repeat(np.arange(n_users), n)
    for at in range(0, len(Z), 100_000):
        part = slice(at, at + 100_000)
        rng.standard_normal(out=Z[part], dtype=np.float32)
        Z[part] *= np.float32(1.0 / np.sqrt(d))
        margin = np.einsum("ij,ij->i", Z[part], theta[who[part] % groups])
        y[part] = rng.random(len(margin)) < expit(margin)
    rows = UserRows(Rows(Z, y, np.ones(len(y))), np.arange(n_users + 1) * n, np.arange(n_users))
    megabytes = Z.nbytes / 1e6

    def one_user() -> tuple[Graph, FloatArray]:
        model = OffC2PL(gamma=1.0, n_jobs=1)
        model._prepare(rows)
        points = model._locate(rows)
        needed = points.distances(0) + points.allowances(0)
        gamma = float(np.sort(needed[1:])[n_users // groups])
        graph = Graph(points.theta, points.radius, np.full(n_users, gamma), 1.0, points.enough)
        return graph, pool_estimates(rows, [graph.neighbours(0)], points.theta, ridge=RIDGE, n_jobs=1)

    seconds, peak, (graph, _) = repeated(one_user, 1)
    size = f"U={n_users:,} N={n} d={d} float32, {megabytes:,.0f} MB of features"
    yield Figure("large", f"{size}: one user", seconds, peak, note=f"{graph.neighbours(0).size:,} neighbours")
    data = Comparisons.from_arrays(Z, y, who)
    model = OffC2PL(gamma=np.inf, n_jobs=1)
    seconds, peak, _ = repeated(lambda: model.fit(data), 1)
    yield Figure("large", f"{size}: fit of all users, everybody joined", seconds, peak)


def prefkin_fit(quick: bool, repeats: int) -> Iterator[Figure]:
    """`PrefKin().fit` against what everybody's own estimates, and eigenvalues, cost by loops."""
    for n_users, n, d in [(200, 100, 16)] if quick else [(1000, 200, 32), (40, 1000, 768)]:
        users = draw_users(n_users, n, d, "gaussian", np.random.default_rng(10), groups=8)
        data = Comparisons.from_arrays(users.rows.Z, users.rows.y, np.repeat(users.labels, n))
        model = PrefKin(n_jobs=1, random_state=0)
        seconds, peak, _ = repeated(lambda data=data, model=model: model.fit(data), 1)  # type: ignore[misc]
        some = np.linspace(0, n_users - 1, 8 if d > 200 else min(n_users, 200)).astype(int)
        (loop,) = loop_peers([users.of(u) for u in some], n_users, repeats, ["scikit-learn lbfgs, a loop"])
        grams = [
            cpu(lambda users=users, some=some: [np.linalg.eigvalsh(users.of(u).Z.T @ users.of(u).Z) for u in some])[0]  # type: ignore[misc]
            for _ in range(repeats)
        ]
        with_eigenvalues = [own + gram * n_users / len(some) for own, gram in zip(loop.seconds, grams, strict=True)]
        peers = [loop, Peer("the same and Gram matrix + eigvalsh", with_eigenvalues, loop.part)]
        found = f"saw {model.structure_}, {model.membership_.shape[1] - 1} blocks"
        yield Figure("prefkin", f"U={n_users:,} N={n} d={d}", seconds, peak, peers, note=found)


def machine(quick: bool, repeats: int) -> Iterator[Figure]:  # noqa: ARG001
    """What one core can do at most: the limits that the other stages are to be held against."""
    for kind, name in ((np.float32, "sgemm"), (np.float64, "dgemm")):
        matrix = np.ones((1024, 1024), dtype=kind)
        best = min(cpu(lambda matrix=matrix: matrix @ matrix)[0] for _ in range(5))  # type: ignore[misc]
        yield Figure("machine", name, [best], float("nan"), note=f"{2 * 1024**3 / best / 1e9:.0f} GFlop/s")
    for megabytes in (3, 800):
        numbers = np.ones(megabytes * 250_000, dtype=np.float32)
        times = 800 // megabytes

        def read(numbers: Any = numbers, times: int = times) -> None:
            for _ in range(times):
                numbers @ numbers

        best = min(cpu(read)[0] for _ in range(3))
        speed = megabytes * times / best / 1e3
        yield Figure("machine", f"reading {megabytes} MB", [best / times], float("nan"), note=f"{speed:.0f} GB/s")


STAGES: dict[str, Callable[[bool, int], Iterator[Figure]]] = {
    "machine": machine,
    "own": own_estimates,
    "eigenvalue": eigenvalues,
    "graph": graph_of_all,
    "pooled": pooled_estimates,
    "plan": planned_questions,
    "prefkin": prefkin_fit,
    "threads": threads,
    "large": large,
}
GROWTH = "growth"  # a stage too: curves instead of lines of the table


def growth(quick: bool) -> Iterator[Growth]:
    """How CPU time grows with each size, the others fixed."""
    small = 4 if quick else 1

    def own(n_users: int, n: int, d: int) -> float:
        users = draw_users(n_users, n, d, "gaussian", np.random.default_rng(7))
        return min(cpu(lambda: estimate_users(users, ridge=RIDGE, n_jobs=1))[0] for _ in range(3))

    sizes = [1000 // small * k for k in (1, 2, 4, 8)]
    yield Growth("own estimates: users (N=100, d=32)", sizes, [own(size, 100, 32) for size in sizes])
    sizes = [50, 100, 200, 400]
    yield Growth("own estimates: comparisons (d=32)", sizes, [own(2000 // small, size, 32) for size in sizes])
    sizes = [8, 16, 32, 64]
    yield Growth("own estimates: features (N=200)", sizes, [own(2000 // small, 200, size) for size in sizes])
    sizes = [4000 // small * k for k in (1, 2, 4)]
    yield Growth("graph: users (d=32)", sizes, [_graph_seconds(size) for size in sizes])
    sizes = [500, 1000, 2000] if quick else [1000, 10_000, 100_000]
    yield Growth("PrefKin: users (N=50, d=16, 8 groups)", sizes, [_prefkin_seconds(size) for size in sizes])
    sizes = [4000 // small * k for k in (1, 2, 4)]
    yield Growth("100 questions: pairs in the pool (d=128)", sizes, [_plan_seconds(size) for size in sizes])


def _graph_seconds(n_users: int) -> float:
    points = draw_graph(n_users, 32, np.random.default_rng(8))

    def fresh() -> Any:
        return Graph(points.theta, points.radius, points.gamma, 1.0, points.enough).census(n_jobs=1)

    return min(cpu(fresh)[0] for _ in range(3))


def _prefkin_seconds(n_users: int) -> float:
    users = draw_users(n_users, 50, 16, "gaussian", np.random.default_rng(11), groups=8)
    data = Comparisons.from_arrays(users.rows.Z, users.rows.y, np.repeat(users.labels, 50))
    return cpu(lambda: PrefKin(n_jobs=1, random_state=0).fit(data))[0]


def _plan_seconds(pool: int) -> float:
    rng = np.random.default_rng(9)
    candidates, known = Candidates(rng.standard_normal((pool, 2, 128))), draw_users(1, 200, 128, "unit", rng).rows

    def plan() -> Any:
        return ActiveSession(known, candidates, theta=np.zeros(128), ridge=RIDGE, kappa=KAPPA_UNIT_BALL).plan(100)

    return min(cpu(plan)[0] for _ in range(3))


# -- all of it -------------------------------------------------------------------------------------------------------


def run(stages: list[str], out: Path, *, quick: bool, tell: Callable[[str], None] = lambda _line: None) -> str:
    """Measure the stages, write table and picture into `out`, and return the table."""
    repeats, before = 2 if quick else 3, compiled.WORTH_LOADING
    out.mkdir(parents=True, exist_ok=True)
    figures: list[Figure] = []
    compiled.WORTH_LOADING = 0.0  # the kernels are measured, also where sizes are too small to load them
    try:
        with single_threaded():
            loading = _load_seconds()
            for stage in (stage for stage in stages if stage != GROWTH):
                tell(stage)
                for figure in STAGES[stage](quick, repeats):
                    figures.append(figure)
                    write_atomically(out / "performance.md", table(figures, loading).encode())
            if GROWTH in stages:
                tell(GROWTH)
            curves = list(growth(quick)) if GROWTH in stages else []
    finally:
        compiled.WORTH_LOADING = before
    text = table(figures, loading)
    if not curves:
        return text
    picture = plot_growth([(curve.what, curve.sizes, curve.seconds, curve.exponent) for curve in curves])
    write_atomically(out / "growth.png", as_png(picture))
    text += "\n| CPU time grows with | as size to the power of |\n|---|---|\n"
    text += "".join(
        f"| {curve.what}, {curve.sizes[0]:,} to {curve.sizes[-1]:,} | {curve.exponent:.2f} |\n" for curve in curves
    )
    write_atomically(out / "performance.md", text.encode())
    return text


def _load_seconds() -> float:
    """What the first use in a process costs: numba, and kernels from its cache (or compiled, the first time ever)."""
    begun = time.process_time()
    for n_users, n, d in ((3, 10, 2), (1, 210, 200)):
        users = draw_users(n_users, n, d, "gaussian", np.random.default_rng(0))
        for kind in (np.float64, np.float32):
            rows: Any = users.rows._replace(Z=users.rows.Z.astype(kind))
            estimate_users(UserRows(rows, users.starts, users.labels), ridge=RIDGE, n_jobs=1)
            if compiled.compiled_kernels(0.0) is not None and d < compiled.TOGETHER_FEATURES:
                theta, work, each = (
                    np.zeros((n_users, d)),
                    np.zeros((n_users, 4), dtype=np.int64),
                    np.arange(n_users + 1),
                )
                sets = users.starts[:-1], users.starts[1:], each, each[:-1]
                import_module("prefkin.inference.kernels").descend_together(*rows, *sets, RIDGE, 1e-6, theta, work)
    draw_graph(50, 3, np.random.default_rng(0)).census(n_jobs=1)
    if compiled.compiled_kernels(0.0) is not None:
        import_module("prefkin.inference.kernels").misses(np.zeros((1, 1), dtype=np.float32), np.zeros(1), np.zeros(1))
    return time.process_time() - begun


def table(figures: list[Figure], loading: float) -> str:
    """Markdown: one line for each stage, size and peer."""
    lines = [
        "| stage | size | CPU s | peak MB | peer | its CPU s | measured on | ratio (range) | gradients, ours and its |",
        "|---|---|---|---|---|---|---|---|---|",
        f"| first use | numba and all kernels, from cache or compiled | {loading:.2g} | | | | | | |",
    ]
    for figure in figures:
        ours = f"| {figure.stage} | {figure.size} | {np.median(figure.seconds):.3g} | {figure.peak:.0f} |"
        if not figure.peers:
            lines.append(f"{ours} | | | | {figure.note} |")
        for peer in figure.peers:
            ratios = np.array(peer.seconds) / np.array(figure.seconds)  # repeat by repeat, or all to our only run
            spread = f"{ratios.min():.3g} to {ratios.max():.3g}"
            checked = figure.note if np.isnan(figure.gradient) else f"{figure.gradient:.0e}, {peer.gradient:.0e}"
            lines.append(
                f"{ours} {peer.name} | {np.median(peer.seconds):.3g} | {peer.part} | "
                f"{np.median(ratios):.3g} ({spread}) | {checked} |"
            )
    return "\n".join(lines).replace("nan", "") + "\n"
