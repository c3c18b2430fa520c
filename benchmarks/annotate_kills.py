"""Twenty people answer while the server, and on PostgreSQL the database too, is killed a hundred times.

    python benchmarks/annotate_kills.py                     on SQLite
    python benchmarks/annotate_kills.py --postgresql        on a PostgreSQL of its own, in a temporary folder
    python benchmarks/annotate_kills.py --kills 10

Every acknowledged answer must be in the store exactly once, and everybody must go on with the question they had.
Interrupted (Ctrl-C), it counts what was done until then.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.apps.annotate.conftest import Cluster
from tests.apps.annotate.kills import kill_round
from tests.apps.annotate.test_kills import write_items


def main() -> int:
    """Kill, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--postgresql", action="store_true")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    given, begun = parser.parse_args(), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder, cluster = Path(name) / "work", None
        folder.mkdir()
        write_items(folder)
        url = str(folder / "answers.db")
        if given.postgresql:
            cluster = Cluster(Path(tempfile.mkdtemp(prefix="prefkin-pg-")))
            url = cluster.database("kills")
        done, acknowledged, problems = kill_round(folder, url, given.kills, cluster=cluster, seed=given.seed)
        if cluster is not None:
            cluster.stop()
    where = "PostgreSQL" if given.postgresql else "SQLite"
    print(
        f"{where}, seed {given.seed}: {done} kills in {time.monotonic() - begun:.0f} s, "
        f"{acknowledged} answers acknowledged; "
        + (f"{len(problems)} problems: {problems[:3]}" if problems else "each in the store exactly once")
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
