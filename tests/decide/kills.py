"""Programs that tell answers and save them, killed at random moments: is everything there that was acknowledged?

    python -m tests.decide.kills --rounds 100

Each round forks a program that resumes the session in a file, and goes on asking, telling, skipping, taking back and
saving; after each save it says so. It is killed (SIGKILL) at a random moment. Then the file must be whole, hold all that
was acknowledged in its order, and the next program must go on from there; at the end no temporary file is left.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from prefkin import Candidates, PrefKin
from prefkin.data.synthetic import demo_population
from prefkin.decide.states import read_state

LONGEST = 0.3  # seconds that a program lives


def talk(model, stories, user, path, said, rng):
    """Go on with the session until killed."""
    session = model.resume_session(path, stories) if path.exists() else model.session(user, stories, repeat=True)
    while True:
        what = rng.random()
        if what < 0.1 and session.log:
            session.undo()
        elif what < 0.15:
            session.skip(session.ask())
        else:
            session.tell(session.ask(), bool(rng.random() < 0.5))
        session.save(path)
        os.write(said, b"%d\n" % len(session.state()["log"]))


def kill(model, stories, user, path, rng):
    """One program; returns how many entries of the log it acknowledged, or None if it did not get that far."""
    hears, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(hears)
            talk(model, stories, user, path, said, rng)
        finally:
            os._exit(1)
    os.close(said)
    time.sleep(LONGEST * rng.random())
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the program ended by itself"
    with os.fdopen(hears, "rb") as lines:
        acknowledged = lines.read().split(b"\n")[:-1]  # a line without its end was not said
    return int(acknowledged[-1]) if acknowledged else None


def main(arguments=None):
    """Print what was found; any loss is an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    people, stories = demo_population(np.random.default_rng(args.seed))
    model = PrefKin(metric="isotropic", n_jobs=1).fit(people.data)
    shown = Candidates(stories.features.reshape(len(stories), -1, stories.dim)[:20])
    rng, logs, entries = np.random.default_rng(args.seed), {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(args.rounds):
            user = (None, "Ada")[turn % 2]
            path = Path(folder) / f"{user}.json"
            acknowledged = kill(model, shown, user, path, np.random.default_rng(rng.integers(2**32)))
            if not path.exists():
                assert acknowledged is None, "an acknowledged session is gone"
                continue
            log, before = read_state(path)["log"], logs.get(user, [])
            assert log[: len(before)] == before, "answers of an earlier program are gone"
            assert len(log) >= (acknowledged or 0), "an acknowledged answer is gone"
            model.resume_session(path, shown).ask()
            logs[user], entries = log, entries + (acknowledged or len(before)) - len(before)
        left = [file.name for file in Path(folder).iterdir() if file.name.startswith(".")]
        assert not left, f"temporary files are left: {left}"
    print(f"{args.rounds} kills, {entries} acknowledged answers, none lost, nothing left behind")


if __name__ == "__main__":
    sys.exit(main())
