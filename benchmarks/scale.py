"""PrefKin on more people than memory holds: makes the data, fits them shard by shard, prints seconds and memory.

    python benchmarks/scale.py FOLDER [--users 10000] [--rows 100] [--dim 64] [--groups 8] [--memory 4GB] [--workers N]

Users belong to groups of equals (preferences of norm 3, features of norm √8), rows are in random order over files of
200,000. Seconds are by the clock, and of CPU in this process and its workers, which another program on the machine
changes less; memory is the most that all of them held together.
Bringing rows of users together is printed apart, since it is done once for all fits. FOLDER.shards holds as much again.

    python benchmarks/scale.py FOLDER --users 20000 --rows 40 --dim 32 --memory 100MB --check    how far from memory
    python benchmarks/scale.py FOLDER --users 10000 --times 1 2 4         seconds by the clock for so many Dask workers,
                                                                          and whether they found the same bytes
"""

import argparse
import hashlib
import os
import shutil
import threading
import time
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path

import numpy as np
import polars as pl
from scipy.special import expit

import prefkin
from prefkin.apps.cli.fit_folder import bytes_of
from prefkin.data.shards import ShardedComparisons
from prefkin.execution.cluster import on_workers
from prefkin.execution.executor import over_shards
from prefkin.execution.progress import reporting
from prefkin.inference.information import ball_radius
from prefkin.models.prefkin.everybody import everybody
from prefkin.models.prefkin.fitting import design_of, learn
from prefkin.models.prefkin.out_of_core.fit import _sample
from prefkin.models.prefkin.out_of_core.users import in_double
from prefkin.models.prefkin.parameters import specification_of
from prefkin.models.prefkin.settings import REPORTING

FILE_ROWS = 200_000


def generate(folder: Path, users: int, rows: int, dim: int, groups: int, seed: int = 0) -> None:
    """Files of comparisons in random order; each is there as a whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    centres = np.random.default_rng(seed).normal(size=(groups, dim))
    centres *= 3.0 / np.linalg.norm(centres, axis=1, keepdims=True)
    total = users * rows
    for number, start in enumerate(range(0, total, FILE_ROWS)):
        file = folder / f"part-{number:05d}.parquet"
        if file.exists():
            continue
        rng = np.random.default_rng([seed, number])
        at = np.arange(start, min(start + FILE_ROWS, total))
        owner = (at * 7_368_787) % total % users  # a step that shares no factor with any total used here
        Z = rng.normal(size=(len(at), dim), scale=1.0 / np.sqrt(dim)).astype(np.float32) * np.float32(np.sqrt(8.0))
        y = rng.random(len(at)) < expit(np.einsum("ij,ij->i", Z, centres[owner % groups]))
        frame = pl.DataFrame(
            {"user": owner, "y": y.astype(np.uint8), "z": pl.Series(Z, dtype=pl.Array(pl.Float32, dim))}
        )
        fresh = file.with_suffix(".new")
        frame.write_parquet(fresh, compression="uncompressed")
        fresh.replace(file)


class Clock:
    """Seconds of each stage, told by the labels of progress."""

    def __init__(self) -> None:
        self.seconds: dict[str, np.ndarray] = {}
        self.last, self.label = self.now(), "prior"

    @staticmethod
    def now() -> np.ndarray:
        """By the clock, and of CPU."""
        return np.array([time.monotonic(), used()[0]])

    def __call__(self, label: str, done: int, total: int) -> None:  # noqa: ARG002
        """As `reporting` asks for."""
        now = self.now()
        self.seconds[self.label] = self.seconds.get(self.label, np.zeros(2)) + now - self.last
        self.last, self.label = now, label if label.startswith(("everybody", "posteriors", "rows")) else "prior"


def yardstick() -> str:
    """What the machine is worth just now: other programs share its caches, too."""
    matrices, began = np.tile(np.eye(64), (500, 1, 1)), time.process_time()
    np.linalg.inv(matrices)
    taken = 2e3 * (time.process_time() - began)
    return f"{taken:.0f} µs of CPU for numpy's inverse of 64 x 64 at load {os.getloadavg()[0]:.0f}"


def used() -> tuple[float, float]:
    """CPU seconds and GB of this process and all that it started and that are there."""
    waiting, seconds, pages = [os.getpid()], 0.0, 0
    while waiting:
        process = Path(f"/proc/{waiting.pop()}")
        with suppress(OSError):
            told = (process / "stat").read_text().rpartition(")")[2].split()
            pages += int((process / "statm").read_text().split()[1])
            seconds += (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")
            for task in (process / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return seconds, pages * os.sysconf("SC_PAGESIZE") / 1e9


class Memory(threading.Thread):
    """The most GB that were held at once, looked at once a second: asking for it takes a while, too."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0.0
        self.start()

    def run(self) -> None:
        """Until the program ends."""
        while True:
            self.most = max(self.most, used()[1])
            time.sleep(1.0)


def check(data: ShardedComparisons) -> None:
    """The largest difference from passes over the same people in memory, under what the same sample taught."""
    model, some, specification = prefkin.PrefKin().fit(data), _sample(data), specification_of(prefkin.PrefKin())
    learnt = learn(some, specification).posterior
    rows = in_double(data.shards(range(data.n_shards)))
    found = everybody(design_of(rows, specification.likelihood), learnt)
    sizes = found.of_covariances(lambda C: np.array([np.einsum("uii->u", C), np.einsum("uij,uij->u", C, C)]))
    radii, at = REPORTING.caution * ball_radius(*sizes, model.level), np.argsort(model.users_)
    taught = f"{len(some):,} taught the hyperparameters"
    print(f"{len(at):,} users in {data.n_shards} shards, of whom {taught}: {model.structure_}", flush=True)
    for name, here, there in (
        ("thetas", model.theta_, found.theta),
        ("memberships", model.membership_[:, : found.share.shape[1]], found.share),
        ("radii", model.radius_, radii),
    ):
        print(f"{name} in shards and in memory differ by at most {np.abs(here[at] - there).max():.1e}", flush=True)


def awake(number: int) -> None:  # noqa: ARG001 - as all work over shards
    """What a worker imports before its first task; long enough that each of them takes one."""
    for module in ("prefkin.models.prefkin.out_of_core.fit", "prefkin.data.buckets"):
        import_module(module)
    time.sleep(1.0)


def times(data: ShardedComparisons, workers: list[int]) -> None:
    """Seconds by the clock of all passes after the prior, for so many workers, once they have started."""
    for number in workers:
        for fit in (data.home / "fits").glob("*"):
            for found in ("first", "second", "third", "people"):
                shutil.rmtree(fit / found, ignore_errors=True)
        with on_workers(number):
            over_shards(awake, range(3 * number), label="start")
            with reporting(clock := Clock()):
                model = prefkin.PrefKin().fit(data)
                clock("end", 0, 0)
        found = hashlib.sha256(model.theta_.tobytes() + model.membership_.tobytes() + model.radius_.tobytes())
        passes = sum(seconds[0] for label, seconds in clock.seconds.items() if label != "prior")
        load = os.getloadavg()[0]
        print(
            f"{number} workers: {passes:.1f} s by the clock after the prior, load of the machine {load:.1f}; "
            f"thetas, memberships and radii {found.hexdigest()[:16]}",
            flush=True,
        )


def main() -> None:
    """One run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    for name, value in (("users", 10_000), ("rows", 100), ("dim", 64), ("groups", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--neighbours", type=int, default=1000, help="of the user for whom OffC2PL pools")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--times", type=int, nargs="+")
    args = parser.parse_args()
    memory, began = Memory(), time.monotonic()
    generate(args.folder, args.users, args.rows, args.dim, args.groups)
    print(f"{args.users:,} users x {args.rows} x {args.dim} made: {time.monotonic() - began:.0f} s", flush=True)
    began = time.monotonic()
    data = prefkin.open_comparisons(args.folder, memory=bytes_of(args.memory))
    print(f"{data}: brought together in {time.monotonic() - began:.0f} s, {memory.most:.1f} GB", flush=True)
    memory.most = 0.0
    if args.check:
        check(data)
    if args.times:
        times(data, args.times)
    if args.check or args.times:
        return
    with on_workers(args.workers) if args.workers else nullcontext(), reporting(clock := Clock()):
        before, began = yardstick(), clock.now()
        model = prefkin.PrefKin(n_jobs=args.threads).fit(data)
        taken = clock.now() - began
        clock("end", 0, 0)
    for label, seconds in clock.seconds.items():
        each = 1e3 * seconds[1] / args.users
        print(f"  {label}: {seconds[0]:.1f} s, CPU {seconds[1]:.1f} s, {each:.2f} ms a user", flush=True)
    passes = sum(seconds[1] for label, seconds in clock.seconds.items() if label != "prior")
    print(f"  all passes after the prior: {1e3 * passes / args.users:.2f} ms of CPU a user", flush=True)
    print(
        f"fitted in {taken[0]:.0f} s, CPU {taken[1]:.0f} s, {memory.most:.1f} GB; {before}, then {yardstick()}",
        flush=True,
    )
    print(model.summary(), flush=True)
    right = model._in_shards.counts[:-1]
    print(f"largest groups: {sorted(right.tolist())[::-1][: args.groups]}")
    with Told(memory, "{:,} predictions, one a user", n := min(args.users, 20_000)):
        model.predict_proba(np.ones((n, args.dim)), users=np.arange(n))
    some = np.arange(0, args.users, 100)
    Z, y = np.random.default_rng(1).normal(size=(len(some), args.dim)).astype(np.float32), some // 100 % 2
    with Told(memory, "new answers of {:,} users", len(some)):
        model.update(Z, y, users=some)
    paper = prefkin.OffC2PL(gamma=1.0, radius="theory", n_jobs=args.threads)
    told = Told(memory, "OffC2PL, {:,} own estimates and radii", args.users)
    with on_workers(args.workers) if args.workers else nullcontext(), told:
        paper.fit(data)
    paper._in_shards.gamma = joining(paper, 0, min(args.neighbours, args.users - 1))
    with Told(memory, "OffC2PL, neighbours of {} user, pooled", 1):
        found = paper._in_shards.only([0])
    print(f"{len(found.neighbours(0)) - 1:,} neighbours beside the user", flush=True)


def joining(paper: prefkin.OffC2PL, user: int, number: int) -> float:
    """The threshold at which a user is joined with so many others."""
    at, alpha = paper._in_shards.position(user), paper.alpha
    theta, radius = paper.own_theta_, paper.radius_
    needed = np.linalg.norm(theta - theta[at], axis=1) + alpha * (radius + radius[at])
    needed[at] = -np.inf
    return float(np.partition(needed, number)[number]) + 1e-9


class Told:
    """What is done in the block, with seconds by the clock and of CPU, and memory."""

    def __init__(self, memory: Memory, what: str, number: int) -> None:
        self.memory, self.what = memory, what.format(number)

    def __enter__(self) -> None:
        self.memory.most, self.began = used()[1], Clock.now()

    def __exit__(self, *_: object) -> None:
        taken = Clock.now() - self.began
        print(f"{self.what}: {taken[0]:.1f} s, CPU {taken[1]:.1f} s, {self.memory.most:.1f} GB", flush=True)


if __name__ == "__main__":
    main()
