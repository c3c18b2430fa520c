"""`python -m tests.fuzz --count 100000 --seed 0`: odd inputs by the thousand, and what was found."""

import argparse
import itertools
import os
import signal
import sys
import time
import warnings
from collections import Counter

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.targets import TARGETS, tried

BATCH = 200


def inputs_of(target, count, number, found, shown):
    """Try so many inputs, from this seed; faults are counted by their first words and shown once."""

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(target.inputs())
    def one(value):
        found["tried"] += target.each
        if wrong := tried(target, value):
            key = wrong.partition(" <- ")[0][:60]
            found[key] += 1
            if found[key] == 1:
                shown.append((wrong, repr(value)[:1500]))

    one()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=TARGETS, action="append")
    given_ = parser.parse_args()
    chosen = {name: TARGETS[name] for name in given_.only or TARGETS}
    whole = sum(target.share for target in chosen.values())
    faults = 0
    # what a library writes to stderr by itself (a panic) is not what is looked for here
    sys.stderr = os.fdopen(os.dup(2), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    warnings.simplefilter("ignore")
    asked = []
    for number in (signal.SIGINT, signal.SIGTERM):  # what was tried until then counts
        signal.signal(number, lambda *_: asked.append(True))
    for name, target in chosen.items():
        start, wanted, found, shown = time.process_time(), round(given_.count * target.share / whole), Counter(), []
        for batch in itertools.count():
            if found["tried"] >= wanted or asked:
                break
            inputs_of(
                target,
                min(BATCH, -(-(wanted - found["tried"]) // target.each)),
                given_.seed * 1_000_003 + batch,
                found,
                shown,
            )
        count = found.pop("tried", 0)  # none, if somebody asked for the end
        faults += len(found)
        spent = time.process_time() - start
        print(
            f"{name}: {count} inputs, {sum(found.values())} faults of {len(found)} kinds, "
            f"{spent:.0f} s of CPU, {count / spent:.0f} a second",
            flush=True,
        )
        for wrong, value in shown[:20]:
            print(f"  {wrong}\n    {value}", flush=True)
    print(f"seed {given_.seed}: {'nothing found' if not faults else f'{faults} kinds of faults'}")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
