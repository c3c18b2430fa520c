"""How long JSON lines of prompt, chosen and rejected take to read, beside polars, which reads the same file unchecked.

    python benchmarks/json_lines.py [--rows 1000000] [--chats]

Both read the same file in turns, in one process; CPU and wall time of the quickest of some turns.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from prefkin.data.formats import read_columns

LABELS = ("annotator", "prompt", "chosen", "rejected")


def write(path, rows, chats, rng):
    """Rows as TRL has them."""
    words = ["".join(map(chr, rng.integers(97, 123, rng.integers(2, 10)))) for _ in range(3000)]

    def text(length):
        said = " ".join(words[i] for i in rng.integers(0, len(words), length))
        return [{"role": "assistant", "content": said}] if chats else said

    some = [(text(20), text(30), text(30)) for _ in range(5000)]
    with path.open("w") as file:
        for row in range(rows):
            prompt, chosen, rejected = some[row % len(some)]
            line = {"prompt": prompt, "chosen": chosen, "rejected": rejected, "annotator": f"u{row % 500}"}
            file.write(json.dumps(line) + "\n")


def timed(read):
    """Wall and CPU seconds, and what came of it."""
    wall, cpu = time.perf_counter(), time.process_time()
    rows = read()
    return np.array([time.perf_counter() - wall, time.process_time() - cpu]), rows


def main():
    """Read the same file in turns."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--chats", action="store_true", help="lists of messages instead of texts")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "votes.jsonl"
        write(path, given.rows, given.chats, np.random.default_rng(0))
        readers = {
            "polars": lambda: len(pl.read_ndjson(path)),
            "prefkin": lambda: len(read_columns(path, LABELS)["annotator"]),
        }
        best = dict.fromkeys(readers, np.array([np.inf, np.inf]))
        for _ in range(given.turns):
            for name, read in readers.items():
                seconds, rows = timed(read)
                assert rows == given.rows
                best[name] = np.minimum(best[name], seconds)
        kind = "chats" if given.chats else "texts"
        print(f"{given.rows:,} rows of {kind}, {path.stat().st_size / 1e6:,.0f} MB")
        for name, (wall, cpu) in best.items():
            print(f"  {name:8} {wall:6.2f} s wall {cpu:6.2f} s CPU")
        wall, cpu = best["prefkin"] / best["polars"]
        print(f"  ratio    {wall:6.2f}        {cpu:6.2f}")


if __name__ == "__main__":
    main()
