import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from prefkin import Candidates, PrefKin
from prefkin.apps.annotate.app import make_app
from prefkin.apps.annotate.engine import Engine
from prefkin.apps.annotate.items import Items
from prefkin.apps.annotate.knowledge import Knowledge
from prefkin.apps.annotate.learning import Learner
from prefkin.apps.annotate.outlook import Course
from prefkin.apps.annotate.project import Project
from prefkin.apps.annotate.server import make_links
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


@pytest.fixture(scope="session", autouse=True)
def played_once():
    """The forecast of a project where nothing is known yet depends on its items alone: played once for each."""
    played, kept = Course.played, {}

    def remembered(knowledge, items, *size):
        if knowledge.model is not None:
            return played(knowledge, items, *size)
        key = (items.candidates.features.tobytes(), items.candidates.starts.tobytes(), *size)
        if key not in kept:
            kept[key] = played(knowledge, items, *size)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Course, "played", remembered)
        yield


@pytest.fixture
def items():
    return make_items()


@pytest.fixture
def store(items, tmp_path):
    store = Store.create(str(tmp_path / "answers.db"), items)
    yield store
    store.close()


class World:
    """A project with a client for it, and its links."""

    def __init__(self, store, items, **settings):
        knowledge = Knowledge(None)
        self.engine = Engine(store, items, knowledge, rng=random.Random(0))
        self.project = Project(self.engine, Learner(self.engine, knowledge.fitted, 10**9), **settings)
        self.client = TestClient(make_app(self.project), base_url="http://127.0.0.1:8000", follow_redirects=False)
        self.links = make_links(store, "http://127.0.0.1:8000", ["Ada", "Ben"], True, None)
        self.store = store

    def token(self, who):
        link = {"open": self.links.open, "organiser": self.links.organiser}.get(who) or self.links.people[who]
        return link.rpartition("/")[2]

    def call(self, method, path, who=None, **more):
        headers = more.pop("headers", {})
        if who is not None:
            headers["Authorization"] = f"Bearer {self.token(who)}"
        return self.client.request(method, path, headers=headers, **more)

    def stop(self):
        self.project.learner.stop()
        self.engine.stop()


@pytest.fixture
def world(store, items):
    world = World(store, items)
    yield world
    world.stop()


class Server:
    """`prefkin annotate` as a process of its own, with its links."""

    def __init__(self, folder, *args):
        self.folder, self.args = folder, [str(arg) for arg in args]
        if "--links" not in self.args:
            self.args += ["--links", str(Path(tempfile.mkdtemp()) / "links.json")]
        self.file = Path(self.args[self.args.index("--links") + 1])
        if "--port" not in self.args:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.args += ["--port", str(free.getsockname()[1])]
        self.url = f"http://127.0.0.1:{self.args[self.args.index('--port') + 1]}"
        self.log = Path(tempfile.mkdtemp()) / "log.txt"

    def start(self):
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "prefkin", "annotate", *self.args], cwd=self.folder, stdout=log, stderr=log
            )
        until = time.monotonic() + 180
        while True:
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < until, self.said()
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/static/icon.svg", timeout=5).read()
                break
            time.sleep(0.05)
        self.links = json.loads(self.file.read_text())
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def said(self):
        return self.log.read_text()

    def call(self, method, path, token, body=None):
        """JSON over HTTP; `token` may be a link."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token.rpartition('/')[2]}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read())

    __enter__ = start

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()


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
        for left in (self.folder / "data/postmaster.pid", *self.folder.glob(".s.PGSQL*")):
            left.unlink(missing_ok=True)  # who died may stay a zombie, which PostgreSQL takes for alive

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
def postgres():
    if _programs() is None:
        pytest.skip("no PostgreSQL server here; install it: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="prefkin-pg-") as folder:  # pytest's own folders are closed to others
        cluster = Cluster(Path(folder))
        yield cluster
        cluster.stop()
