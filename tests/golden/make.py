"""Store the results of today's code, or compare the code in use with the stored ones.

    PYTHONPATH=TREE/src:. python -m tests.golden.make                 # store
    PYTHONPATH=TREE/src:. python -m tests.golden.make --compare       # print the differences of each problem

Golden values come from one commit, which manifest.json names; store them again only for a decided change of results.
PREFKIN_ESTIMATOR=module:Class names another estimator.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

import prefkin
from tests.golden.problems import PROBLEMS
from tests.golden.results import Results, differences, preference_for_groups, results

VALUES = Path(__file__).parent / "values"
MANIFEST = VALUES / "manifest.json"


def stored(name: str) -> Results:
    """The golden values of a problem."""
    with np.load(VALUES / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


def computed(name: str) -> Results:
    """The values of the code in use."""
    with tempfile.TemporaryDirectory() as folder:
        return results(PROBLEMS[name](), Path(folder) / "answers")


def manifest() -> dict[str, object]:
    """Commit and versions of the code in use."""
    home = Path(prefkin.__file__).parent
    commit = subprocess.run(
        ["git", "-C", str(home), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "numba")}
    return {"commit": commit, "prefkin": prefkin.__version__, "python": platform.python_version(), **packages}


def compare(names: list[str]) -> None:
    """A table: a column for each difference, a line for each problem."""
    for number, name in enumerate(names):
        began, gold = time.process_time(), stored(name)
        found = computed(name)
        far = differences(gold, found)
        if number == 0:
            print(f"{'':16} " + " ".join(f"{i + 1:>8}" for i in range(len(far))) + "   groups over continuous; CPU s")
        structures = f"{gold['structure']}" + (
            "" if gold["structure"] == found["structure"] else f" -> {found['structure']}"
        )
        print(
            f"{name:16} "
            + " ".join(f"{value:8.1e}" for value in far.values())
            + f"   {preference_for_groups(gold):+.1f} -> {preference_for_groups(found):+.1f} {structures}; "
            + f"{time.process_time() - began:.1f}",
            flush=True,
        )
    for number, title in enumerate(far, start=1):
        print(f"{number:3} {title}")


def main() -> None:
    """Store or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(PROBLEMS), metavar="PROBLEM", help=", ".join(PROBLEMS))
    parser.add_argument("--compare", action="store_true", help="print differences instead of storing")
    args = parser.parse_args()
    if args.compare:
        compare(args.names)
        return
    VALUES.mkdir(exist_ok=True)
    for name in args.names:
        began = time.process_time()
        np.savez_compressed(VALUES / f"{name}.npz", **computed(name))
        size = (VALUES / f"{name}.npz").stat().st_size
        print(f"{name:16} {time.process_time() - began:5.1f} s  {size / 1000:5.1f} kB", flush=True)
    MANIFEST.write_text(json.dumps(manifest(), indent=1) + "\n")


if __name__ == "__main__":
    main()
