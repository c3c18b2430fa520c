import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from prefkin import Candidates, PrefKin
from prefkin.apps.annotate.items import Items
from prefkin.apps.annotate.store import Store
from prefkin.data.synthetic import demo_population


def make_items(n=30, actions=3, dim=4, seed=0):
    features = np.random.default_rng(seed).standard_normal((n, actions, dim))
    labels = [f"story {x}" for x in range(n)]
    texts = tuple(f"**Text** {x}-{a}" for x in range(n) for a in range(actions))
    return Items(Candidates(features, contexts=labels), texts, ("",) * len(texts), tuple(f"About {x}?" for x in labels))


@pytest.fixture(scope="session")
def readers():
    """A model of 24 readers in three groups, six features."""
    return PrefKin().fit(demo_population(np.random.default_rng(0))[0].data)


@pytest.fixture
def items():
    return make_items()


@pytest.fixture
def store(items, tmp_path):
    store = Store.create(str(tmp_path / "answers.db"), items)
    yield store
    store.close()


# -- PostgreSQL ------------------------------------------------------------------------------------------------------


def _programs():
    """Where PostgreSQL's server programs are: on the PATH, or where Debian puts them."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    places += [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    wanted = ("postgres", "initdb", "pg_ctl", "createdb")
    return next((place for place in places if all((place / name).is_file() for name in wanted)), None)


class Cluster:
    """A PostgreSQL of its own in a temporary folder, reached through a socket there; it can be killed and started."""

    def __init__(self, folder: Path):
        self.programs, self.folder = _programs(), folder
        self.as_user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
        if self.as_user:  # PostgreSQL refuses to run as root
            for place in (folder, *folder.parents[:2]):
                place.chmod(0o755)
            shutil.chown(folder, "postgres", "postgres")
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "prefkin", "--no-sync")
        self.start()

    def _run(self, program, *args):
        subprocess.run([self.programs / program, *args], check=True, capture_output=True, cwd="/", **self.as_user)

    def start(self):
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder}"
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), "-o", options, "start"
        )

    def kill(self):
        """SIGKILL, to the server and all that serve for it, as when a machine's power goes."""
        parent = int((self.folder / "data/postmaster.pid").read_text().split()[0])
        children = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True).stdout.split()
        for process in [parent, *map(int, children)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, 9)

    def stop(self):
        subprocess.run(
            [self.programs / "pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "stop"],
            capture_output=True,
            cwd="/",
            **self.as_user,
        )

    def database(self, name):
        self._run("createdb", "-h", str(self.folder), "-U", "prefkin", name)
        return f"postgresql:///{name}?host={self.folder}&user=prefkin"


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    if _programs() is None:
        pytest.skip("no PostgreSQL server here; install it: apt-get install postgresql")
    cluster = Cluster(tmp_path_factory.mktemp("pg"))
    yield cluster
    cluster.stop()
