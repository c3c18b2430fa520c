"""The program ended at any moment: `python -m tests.kills fit --count 100 --seed 0` (also the other jobs).

fit         SIGKILL: the folder holds the former fit or the new one, whole, and nothing stands beside it
reproduce   SIGKILL of the parent of two workers: finished trials stay, no process and no temporary file does
interrupts  Ctrl-C in the first second: one line, exit code 130, nothing written
commands    Ctrl-C at any moment of update, plan, report, predict, export: one line, and all is written or nothing
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import prefkin
from prefkin.errors import PrefkinError
from prefkin.models.files import MODEL_FILE
from tests.conftest import draw_answers

ENDS_WITHIN = 20.0  # seconds until the last process of a killed run must be gone


def start(*args, cwd, **options):
    """The program in a session of its own, so that whatever it starts can be found."""
    command = [sys.executable, "-m", "prefkin", *map(str, args)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | options
    return subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, start_new_session=True, **quiet)


def living(session):
    """Processes of a session that are not waiting to be collected."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
            if int(of) == session and state != "Z":
                found.append(int(stat.parent.name))
    return found


def left_alive(session):
    """What still lives after a while."""
    until = time.monotonic() + ENDS_WITHIN
    while (found := living(session)) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def votes(folder):
    Z, y, users = draw_answers(np.random.default_rng(7), sizes=[20] * 4)
    rows = [f"u{u},{a},{','.join(map(repr, z.tolist()))}" for u, a, z in zip(users, y, Z, strict=True)]
    (folder / "votes.csv").write_text("\n".join(["user,y,z0,z1,z2", *rows]) + "\n")


def whole_fit(folder):
    """Which fit a folder holds, if all of it is of one fit: its threshold."""
    names = {path.name for path in (folder / "kin").iterdir()}
    model = prefkin.load(folder / "kin")
    facts = json.loads((folder / "kin" / "summary.json").read_text())
    thresholds, written = {str(float(gamma)) for gamma in facts["gamma"]}, {"summary.json", "users.csv", "groups.csv"}
    if names != {MODEL_FILE, *written} or thresholds != {str(model.gamma)}:
        raise ValueError(f"{sorted(names)}, model {model.gamma}, summary {facts['gamma'][:1]}")
    if {path.name for path in folder.iterdir()} != {"votes.csv", "kin"}:
        raise ValueError(f"left behind: {sorted(path.name for path in folder.iterdir())}")
    return model.gamma


def kill_fits(count, rng):
    """What went wrong, kill by kill; how often the new fit was there."""
    with tempfile.TemporaryDirectory(prefix="prefkin_kills_") as name:
        folder, wrong, new = Path(name), [], 0
        votes(folder)
        command = ("fit", "votes.csv", "--no-pictures", "--out", "kin", "--gamma")
        began = time.monotonic()
        assert start(*command, "0", cwd=folder).wait() == 0
        seconds, now = time.monotonic() - began, whole_fit(folder)
        for number in range(count):
            former, wanted = now, float("inf") if now == 0 else 0.0
            running = start(*command, wanted, cwd=folder)
            time.sleep(rng.uniform(0.3, 1.1) * seconds)  # before, it imports
            running.send_signal(signal.SIGKILL)
            running.wait()
            try:
                now = whole_fit(folder)
            except (PrefkinError, ValueError, OSError) as error:
                wrong.append(f"kill {number}: {error}")
            new += now != former
            if alive := left_alive(running.pid):
                wrong.append(f"kill {number}: processes {alive} live on")
        return wrong, f"{new} times the new fit was there, {count - new} times the former one"


def kill_reproductions(count, rng):
    with tempfile.TemporaryDirectory(prefix="prefkin_kills_") as name:
        folder, wrong, kept, ends = Path(name), [], {}, 0
        trials = "exp4_synthetic_quick.trials.jsonl"
        for number in range(count):
            command = ("exp4", "--quick", "--runs", 20 * count, "--processes", 2, "--out", "here")
            running = start("reproduce", *command, cwd=folder)
            if number % 2:  # in the middle of the work
                until = time.monotonic() + 120.0
                while len(finished(folder / "here" / trials)) <= len(kept) and time.monotonic() < until:
                    time.sleep(0.05)
                time.sleep(rng.uniform(0.0, 1.0))
            else:  # at any moment, imports included
                time.sleep(rng.uniform(0.0, 12.0))
            seen = finished(folder / "here" / trials)  # on disk, so the program may have told of them
            running.send_signal(signal.SIGKILL)
            running.wait()
            if alive := left_alive(running.pid):
                wrong.append(f"kill {number}: processes {alive} live on")
                for process in alive:
                    os.kill(process, signal.SIGKILL)
            now = finished(folder / "here" / trials)
            if lost := [key for key, rows in (kept | seen).items() if now.get(key) != rows]:
                wrong.append(f"kill {number}: {len(lost)} trials lost")
            kept = now
            ends += (folder / "here" / trials).exists() and not (folder / "here" / trials).read_bytes().endswith(b"\n")
            if odd := sorted(set(contents(folder)) - {f"here/{trials}"}):
                wrong.append(f"kill {number}: left behind {odd}")
        return wrong, f"{len(kept)} trials were finished, {ends} times in the middle of a line"


def finished(path):
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            trial = json.loads(line)
            found[trial["trial"]] = trial["rows"]
    return found


def interrupt(count, _rng):
    """From the first moment on, at equal distances; `early`: before Python had given us control."""
    with tempfile.TemporaryDirectory(prefix="prefkin_kills_") as name:
        folder, wrong, early = Path(name), [], 0
        votes(folder)
        before = contents(folder)
        for number in range(count):
            running = start("fit", "votes.csv", "--out", "kin", cwd=folder, stderr=subprocess.PIPE, text=True)
            time.sleep((number + 1) / count)
            running.send_signal(signal.SIGINT)
            said = running.communicate()[1]
            one_line = said == "prefkin: interrupted; nothing was written\n" and running.returncode == 130
            early += not one_line and "prefkin/" not in said
            if not one_line:
                wrong.append(f"after {(number + 1) / count:.2f} s: exit code {running.returncode}, {said[-300:]!r}")
            if contents(folder) != before:
                wrong.append(f"after {(number + 1) / count:.2f} s: something was written")
        return wrong, f"{early} of the faults came before Python had started the program"


COMMANDS = (
    ("update", "kin", "more.csv"),
    ("plan", "kin", "--candidates", "stories.csv", "--budget", "20", "--out", "questions.csv"),
    ("report", "kin", "--out", "report.html"),
    ("predict", "kin", "--pairs", "votes.csv", "--out", "predicted.csv"),
    ("export", "kin", "--to", "reward-head", "--out", "heads"),
)


def interrupt_commands(count, rng):
    """What went wrong, interrupt by interrupt; how often it came too late."""
    with tempfile.TemporaryDirectory(prefix="prefkin_kills_") as name:
        fitted, folder, wrong, late = Path(name) / "fitted", Path(name) / "now", [], 0
        fitted.mkdir()
        votes(fitted)
        lines = (fitted / "votes.csv").read_text().splitlines()
        (fitted / "more.csv").write_text("\n".join([lines[0], *(f"new{line}" for line in lines[1:40])]) + "\n")
        rows = (f"{at // 4},{at % 4},{','.join(line.split(',')[2:])}" for at, line in enumerate(lines[1:41]))
        (fitted / "stories.csv").write_text("\n".join(["context,action,phi0,phi1,phi2", *rows]) + "\n")
        assert start("fit", "votes.csv", "--no-pictures", "--out", "kin", cwd=fitted).wait() == 0
        before, usual = contents(fitted), {}
        for number in range(count + len(COMMANDS)):
            command = COMMANDS[number % len(COMMANDS)]
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(fitted, folder)
            began = time.monotonic()
            running = start(*command, cwd=folder, stderr=subprocess.PIPE, text=True)
            if command in usual:
                time.sleep(rng.uniform(0.1, 1.0) * usual[command][0])
                running.send_signal(signal.SIGINT)
            said = running.communicate()[1]
            after = contents(folder)
            if command not in usual:
                assert running.returncode == 0, said
                usual[command] = time.monotonic() - began, set(after)
                continue
            stopped = running.returncode == 130 and said.count("\n") == 1 and said.startswith("prefkin: interrupted; ")
            whole = set(after) == usual[command][1] and all(
                after[file] == content for file, content in before.items() if not file.startswith("kin/")
            )
            late += running.returncode == 0
            nothing = after == before
            if not (
                (stopped and (nothing or (whole and "nothing was" not in said))) or (running.returncode == 0 and whole)
            ):
                odd = sorted(set(after) ^ set(before))
                wrong.append(f"{' '.join(command)}: exit code {running.returncode}, {said[-300:]!r}, files {odd}")
            if alive := left_alive(running.pid):
                wrong.append(f"{' '.join(command)}: processes {alive} live on")
        return wrong, f"{late} times the command had finished"


JOBS = {
    "fit": kill_fits,
    "reproduce": kill_reproductions,
    "interrupts": interrupt,
    "commands": interrupt_commands,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell in the background ignores, children would
    wrong, remark = JOBS[given.job](given.count, np.random.default_rng(given.seed))
    print(f"{given.job}: {given.count} times, seed {given.seed}, {len(wrong)} faults; {remark}")
    for line in wrong[:20]:
        print(f"  {line}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
