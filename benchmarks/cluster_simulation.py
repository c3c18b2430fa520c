"""How long a fit of many people would take on many workers: the simulation behind the table of docs/scale.md.

    python benchmarks/cluster_simulation.py [--ms 1.5] [--seeds 3]

A step is a task for each shard, taken by whichever worker is free; it begins when the one before is done and its sums
are added by the driver. Tasks vary (log-normal), some straggle, workers die and come back, and their task is done
again. Storage has so much bandwidth for all workers together. Nothing here ran on such a cluster: it is arithmetic with
chance.
"""

import argparse
import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

STEPS = (0.48, 0.09, 0.02, 0.13, 0.28)  # share of the CPU time of each step: place, move twice, match, posteriors


@dataclass(frozen=True)
class Setting:
    """What is assumed."""

    milliseconds: float  # CPU of a user, all steps
    user_bytes: float = 100 * 64 * 4.0 + 100 * 24.0  # features in, sites in and out, a step
    shard_bytes: float = 640e6  # of features: ten times the default, as many tasks as a scheduler likes
    sums_bytes: float = 8 * 8 * (64 * 64 + 65)  # of eight groups
    worker_bandwidth: float = 200e6
    storage_bandwidth: float = 20e9  # all workers together
    driver_bandwidth: float = 200e6
    driver_task: float = 2e-3  # seconds of scheduler and driver for each task
    spread: float = 0.15  # of log seconds of a task
    straggling: float = 0.01  # chance of a task to take
    straggler: float = 5.0  # times as long
    failures: float = 0.02  # of a worker, an hour
    restart: float = 60.0  # seconds until it is back


def step(rng: np.random.Generator, tasks: int, workers: int, seconds: float, given: Setting) -> tuple[float, int]:
    """Seconds until all tasks are done, and how many were lost with their worker."""
    free = [(0.0, worker) for worker in range(workers)]
    waiting, end, lost = deque(range(tasks)), 0.0, 0
    while waiting:
        waiting.popleft()
        now, worker = heapq.heappop(free)
        taken = seconds * float(np.exp(given.spread * rng.standard_normal()))
        taken *= given.straggler if rng.random() < given.straggling else 1.0
        fails = float(rng.exponential(3600.0 / given.failures))
        if fails < taken:
            lost += 1
            waiting.append(0)
            heapq.heappush(free, (now + fails + given.restart, worker))
        else:
            end = max(end, now + taken)
            heapq.heappush(free, (now + taken, worker))
    return end, lost


def fit(rng: np.random.Generator, users: float, workers: int, given: Setting) -> tuple[float, float, int]:
    """Hours of a fit, hours of it on the driver alone, tasks lost."""
    shard_users = given.shard_bytes / (100 * 64 * 4.0)
    tasks = int(np.ceil(users / shard_users))
    bandwidth = min(given.worker_bandwidth, given.storage_bandwidth / workers)
    read = shard_users * given.user_bytes / bandwidth
    alone = tasks * (given.driver_task + given.sums_bytes / given.driver_bandwidth)
    total, lost = 0.0, 0
    for share in STEPS:
        took, gone = step(rng, tasks, workers, share * 1e-3 * given.milliseconds * shard_users + read, given)
        total, lost = total + took + alone, lost + gone
    return total / 3600.0, len(STEPS) * alone / 3600.0, lost


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ms", type=float, default=1.5)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    given = Setting(args.ms)
    print(f"{given}\n")
    print("| users | workers | hours | ideal | driver alone, hours | tasks lost |\n|---|---|---|---|---|---|")
    for users in (1e8, 1e9):
        for workers in (32, 100, 320, 1000):
            found = np.array([fit(np.random.default_rng(seed), users, workers, given) for seed in range(args.seeds)])
            ideal = users * 1e-3 * given.milliseconds / workers / 3600.0
            hours, driver, lost = found.mean(axis=0)
            print(f"| {users:.0e} | {workers} | {hours:.2f} | {ideal:.2f} | {driver:.2f} | {lost:.0f} |", flush=True)


if __name__ == "__main__":
    main()
