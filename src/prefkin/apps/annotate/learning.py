"""Groups and prior are learnt again from time to time, in another process, from everything answered so far.

The process reads a folder and writes into it: `votes.npz` becomes a model, a map of users, and who answers carelessly.
If it fails, people go on with what was known before. It reads a pipe that the server holds open, so that it ends, and
takes the folder with it, when the server is killed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from prefkin.apps.annotate.engine import Engine
from prefkin.apps.annotate.knowledge import Fitted, Knowledge, answers_of
from prefkin.data.tables import read_comparisons
from prefkin.errors import PrefkinError, PrefkinWarning
from prefkin.evaluate.audit import SUSPICIOUS, chance_p_values
from prefkin.evaluate.plots import as_png, can_draw, plot_users
from prefkin.models.files import MODEL_FILE, load
from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["Learner", "Lesson"]

GROWTH = 0.2  # learn again when there are so many more answers, as a share of those learnt from
PATIENCE = 10.0  # and after so many times as long as it took
RETRY = 60.0  # seconds after a failure
LONGEST = 3600.0  # seconds, then it is given up
log = logging.getLogger("prefkin.annotate")


@dataclass(frozen=True)
class Lesson:
    """What was learnt beside the model, for the organiser."""

    answers: int  # of people here, learnt from
    took: float  # seconds
    careless: frozenset[str] = frozenset()  # who answers no better than chance by any model
    picture: bytes = field(default=b"", repr=False)  # a map of users


class Learner:
    """Learns again when there is enough new: at the start, and every so many answers; or when asked to."""

    def __init__(self, engine: Engine, base: Fitted, every: int) -> None:
        self.engine, self.base, self.every = engine, base.alone(), every
        self.lesson: Lesson | None = None
        self.failed, self.at_work = "", False
        self._wanted, self._stopped = threading.Event(), threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)
        self._thread.start()

    def now(self) -> None:
        """Learn again as soon as possible."""
        self._wanted.set()

    def stop(self) -> None:
        """Give up what is being learnt."""
        self._stopped.set()
        self._wanted.set()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        rest = 1.0
        while not self._stopped.is_set():
            asked = self._wanted.wait(timeout=rest)
            self._wanted.clear()
            if self._stopped.is_set():
                return
            begun = time.monotonic()
            try:
                if asked or self._due():
                    self.at_work = True
                    self._learn()
                    self.failed = ""
            except Exception as error:  # whatever it was: nothing is lost, and it will be tried again
                failed = f"{type(error).__name__}: {error}"[:200]
                log.warning("learning failed, people go on as before: %s", failed)
                self.failed = failed  # last: whoever sees it finds it logged
            self.at_work = False
            rest = max(RETRY if self.failed else 1.0, PATIENCE * (time.monotonic() - begun))

    def _due(self) -> bool:
        known = 0 if self.lesson is None else self.lesson.answers
        return answers_of(self.engine.store.histories()) - known >= max(self.every, GROWTH * known)

    def _learn(self) -> None:
        begun, histories = time.monotonic(), self.engine.store.histories()
        data = self.base.with_answers(self.engine.items, histories)
        if data is None:
            return
        with tempfile.TemporaryDirectory(prefix="prefkin-") as name:
            folder = Path(name)
            users = data.users.astype(str)
            np.savez(folder / "votes.npz", Z=data.Z, y=data.y, users=users, weights=data.weights)
            with _held_open() as pipe:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__, name], stdin=pipe, stderr=subprocess.PIPE
                )
                _, said = self._process.communicate(timeout=LONGEST)
            if self._stopped.is_set():
                return
            if self._process.returncode != 0:
                last = said.decode(errors="replace").strip().splitlines()[-1:]
                raise PrefkinError(f"the process ended with {self._process.returncode}: {''.join(last)}")
            knowledge = Knowledge(load(folder))
            about = json.loads((folder / "about.json").read_text())
            picture = (folder / "map.png").read_bytes() if (folder / "map.png").is_file() else b""
        self.engine.learn(knowledge)
        took = time.monotonic() - begun
        self.lesson = Lesson(answers_of(histories), took, frozenset(about["careless"]), picture)


@contextlib.contextmanager
def _held_open() -> Iterator[int]:
    """The end of a pipe from which there is nothing to read until this process has ended, however it ends."""
    end, held = os.pipe()
    try:
        yield end
    finally:
        os.close(end)
        os.close(held)


def _end_with_the_server(folder: Path) -> None:
    """Wait for the other end of the pipe to be closed; then nobody wants to know any more."""
    os.read(sys.stdin.fileno(), 1)  # not through sys.stdin, whose lock would be held when this process ends otherwise
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def learn(folder: Path) -> None:
    """What the other process does."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(10)  # people come first
    data = read_comparisons(folder / "votes.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefkinWarning)
        model = PrefKin(n_jobs=1).fit(data)
        users = data.by_user()
        careless = [str(label) for label in users.labels[chance_p_values(users) < SUSPICIOUS]]
        if can_draw():
            (folder / "map.png").write_bytes(as_png(plot_users(model)))
    (folder / "about.json").write_text(json.dumps({"careless": careless}))
    model.save(folder / MODEL_FILE)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_server, args=[Path(sys.argv[1])], daemon=True).start()
    learn(Path(sys.argv[1]))
