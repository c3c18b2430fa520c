"""What is done with an odd input, and what must hold: it works, or one line says why not, and nothing else happens.

A check takes a folder of its own and an input, and returns what is wrong, or nothing.
"""

import contextlib
import io
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import prefkin
from prefkin import Candidates, Comparisons, OffC2PL, PrefKin, open_comparisons, read_candidates, read_comparisons
from prefkin.apps.cli.console import SUMMARY_FILE
from prefkin.apps.cli.findings import MEASURED
from prefkin.errors import PrefkinError
from prefkin.models.files import MODEL_FILE
from tests.conftest import draw_answers, prefkin_says
from tests.fuzz import strategies
from tests.kills import contents


@dataclass(frozen=True)
class Target:
    """Inputs and what must hold of them; `share`: how often it is tried in a long run."""

    inputs: Callable[[], st.SearchStrategy]
    check: Callable[[Path, Any], str | None]
    share: float
    each: int = 1  # inputs in one draw


def refusal(error, path):
    """What is wrong with a message: it must name the file and be one line."""
    text = str(error)
    if not text.startswith(str(path)):
        return f"the file is not named: {text:.200}"
    if "\n" in text or len(text) > 1500:
        return f"not one short line: {text:.200}"
    return None


def embed(texts):
    return np.array([[len(text), text.count("a")] for text in texts], dtype=float).reshape(-1, 2)


def check_files(folder, files):
    suffix, contents = files
    for content in contents:
        if wrong := check_file(folder, suffix, content):
            return f"{wrong} <- {content!r:.600}"
    return None


def check_file(folder, suffix, content):
    path = folder / f"input{suffix}"
    path.write_bytes(content)
    items = {name: [float(i), 1.0] for i, name in enumerate("pqr")}
    for read in (lambda: read_comparisons(path, items=items, embed=embed), lambda: read_candidates(path)):
        try:
            found = read()
        except PrefkinError as error:
            if wrong := refusal(error, path):
                return wrong
            continue
        if isinstance(found, Comparisons):
            if not (np.isfinite(found.Z).all() and np.isin(found.y, (0, 1)).all() and np.isfinite(found.weights).all()):
                return "comparisons that are none were accepted"
        elif not np.isfinite(found.features).all():
            return "candidates that are none were accepted"
    if Path("canary").exists() or (folder / "canary").exists():
        return "code out of a file was run"
    return None


KINDS = (OffC2PL(1.0), OffC2PL(1.5, radius="calibrated", distance="information"), PrefKin())


@cache
def fitted(kind):
    """A small model: one of KINDS, by its place."""
    Z, y, users = draw_answers(np.random.default_rng(5), n_users=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KINDS[kind].fit(Z, y, users=users)


@cache
def saved(kind):
    """The bytes of a small model."""
    fitted(kind).save(content := io.BytesIO())
    return content.getvalue()


def model_files():
    return st.sampled_from([saved(kind) for kind in range(len(KINDS))]).flatmap(strategies.model_files)


def check_model(folder, content):
    path = folder / "model.safetensors"
    path.write_bytes(content)
    try:
        model = prefkin.load(path)
    except PrefkinError as error:
        return refusal(error, path)
    users, d = model.users_.tolist(), model.n_features_in_
    stories = Candidates(np.ones((1, 2, d)) * [[[1.0], [-1.0]]])
    with contextlib.suppress(PrefkinError):
        if not np.isfinite(model.predict_proba(np.ones((1, d)), users=users[:1])).all():
            return "probabilities that are none"
        model.policy(users[0], stories)
        str(model.summary())
        model.neighbours(users[0])
        model.save(folder / "again")
    return None


STORIES = Candidates(np.random.default_rng(8).standard_normal((3, 3, 3)))


@cache
def sessions():
    """Models, and the state of a session of each: with answers, one that was taken back, and a question to come."""
    found = []
    paper, kin = fitted(0), fitted(2)
    for model, user in ((paper, 1), (kin, 1), (kin, None)):
        session = model.session(user, STORIES)
        for answer in (True, False, True):
            session.tell(session.ask(), answer)
        session.undo()
        session.skip(session.ask())
        session.ask()
        found.append((model, json.dumps(session.state()).encode()))
    return found


def states():
    return st.sampled_from(range(3)).flatmap(
        lambda which: st.tuples(st.just(which), strategies.states(sessions()[which][1]))
    )


def check_states(folder, files):
    which, contents = files
    for content in contents:
        if wrong := check_state(folder, sessions()[which][0], content):
            return f"{wrong} <- {content!r:.900}"
    return None


def check_state(folder, model, content):
    """A session that goes on has learnt what its answers teach, and goes on being saved."""
    path = folder / "session.json"
    path.write_bytes(content)
    try:
        session = model.resume_session(path, STORIES)
    except PrefkinError as error:
        return refusal(error, path)
    newcomer = session.label if session.user is None else None
    fresh = model.session(session.user, STORIES, rule=session.rule, repeat=session.repeat, label=newcomer)
    for question, answer in session.log:
        if answer is None:
            fresh.skip(question)
        else:
            fresh.tell(question, answer)
    if not np.allclose(fresh.theta, session.theta, rtol=1e-6, atol=1e-9):
        return f"another estimate than the answers teach: {session.theta} for {fresh.theta}"
    before = session.n_answers
    with contextlib.suppress(PrefkinError):  # every pair was asked
        session.tell(session.ask(), True)
        before += 1
    session.save(path)
    if model.resume_session(path, STORIES).n_answers != before:
        return "an answer was lost"
    if sorted(folder.iterdir()) != [path]:
        return f"left behind: {sorted(folder.iterdir())}"
    return None


def check_folder(folder, contents):
    """Comparisons out of a folder of Parquet files."""
    votes = folder / "votes"
    votes.mkdir()
    for number, content in enumerate(contents):
        (votes / f"part{number}.parquet").write_bytes(content)
    try:
        data = open_comparisons(votes)
        shards = list(data)
        OffC2PL(0.0).fit(data)
    except PrefkinError as error:
        return refusal(error, votes)
    if not all(np.isfinite(rows.rows.Z).all() and np.isin(rows.rows.y, (0, 1)).all() for rows in shards):
        return "comparisons that are none were accepted"
    return None


@cache
def workplace():
    """A folder with votes, candidates and a fitted model, to be copied."""
    folder = Path(tempfile.mkdtemp(prefix="prefkin_fuzz_"))
    Z, y, users = draw_answers(np.random.default_rng(6), n_users=3, dim=2, sizes=[8] * 3)
    rows = [f"u{u},{a},{z[0]},{z[1]}" for u, a, z in zip(users, y, Z, strict=True)]
    (folder / "votes.csv").write_text("\n".join(["user,y,z0,z1", *rows]) + "\n")
    (folder / "cands.csv").write_text("context,action,phi0,phi1\nx,a,1,0\nx,b,0,1\n")
    (folder / "more.csv").write_text("user,y,z0,z1\nu1,1,0.5,0.2\nu9,0,-0.1,1\n")
    (folder / "texts.jsonl").write_text('{"user": "u1", "prompt": "p", "chosen": "a", "rejected": "b"}\n')
    items = [{"context": "x", "action": name, "text": name, "phi": [i, 1]} for i, name in enumerate("ab")]
    (folder / "items.json").write_text(json.dumps(items))
    (folder / "plan.csv").write_text("user,context,first,second\nu1,x,a,b\n")
    OffC2PL(1.0).fit(read_comparisons(folder / "votes.csv")).save(folder / "kin")
    PrefKin().fit(read_comparisons(folder / "votes.csv")).save(folder / "people")
    (folder / "fit").mkdir()
    shutil.copy(folder / "people", folder / "fit" / MODEL_FILE)
    facts = {"method": "PrefKin", "verdict": "so", "comparison": [dict.fromkeys(MEASURED, 0.5) | {"method": "PrefKin"}]}
    (folder / "fit" / SUMMARY_FILE).write_text(json.dumps(facts))
    return folder


def check_command(folder, line):
    command, said = line
    shutil.copytree(workplace(), folder, dirs_exist_ok=True)
    return in_order(folder, command, said)


def check_damage(folder, line):
    """A command whose input is damaged."""
    command, name, number = line
    shutil.copytree(workplace(), folder, dirs_exist_ok=True)
    (folder / name).write_bytes(strategies.worn((folder / name).read_bytes(), np.random.default_rng(number)))
    return in_order(folder, command, "1\n2\n")


def in_order(folder, command, said):
    """It works, or says why not in a line and leaves everything as it was."""
    before = contents(folder)
    done = prefkin_says(*command, cwd=folder, said=said)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    if done.returncode not in (0, 2):
        return f"exit code {done.returncode}: {done.stderr:.200}"
    if "unexpected" in done.stderr or "Traceback" in done.stderr:
        return done.stderr[:300]
    if len(lines) != (done.returncode == 2):
        return f"{len(lines)} lines at exit code {done.returncode}: {done.stderr:.200}"
    after = contents(folder)
    if done.returncode == 2 and after != before:
        return f"left behind: {sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))[:3]}"
    if any(part.startswith(".") for name in after for part in Path(name).parts):
        return f"temporary files: {sorted(after)[:3]}"
    return None


def check_fit(make):
    """A check that fits: finite estimates, or a line."""

    def check(_folder, data):
        Z, y, users, weights = data
        try:
            model = make().fit(Comparisons.from_arrays(Z, y, users, weights=weights))
        except PrefkinError as error:
            return f"not one line: {error}" if "\n" in str(error) else None
        p = model.predict_proba(Z, users=users)
        if not (np.isfinite(model.theta_).all() and np.isfinite(p).all()):
            return "estimates or probabilities that are not finite"
        return None

    return check


TARGETS = {
    "readers": Target(strategies.files, check_files, 0.6, 1 + strategies.VARIANTS),
    "folders": Target(strategies.folders, check_folder, 0.02),
    "models": Target(model_files, check_model, 0.15),
    "states": Target(states, check_states, 0.15, 1 + strategies.VARIANTS),
    "options": Target(strategies.commands, check_command, 0.04),
    "after": Target(strategies.commands_after_a_fit, check_command, 0.03),
    "damage": Target(strategies.commands_on_damage, check_damage, 0.03),
    "fits": Target(strategies.comparisons, check_fit(lambda: OffC2PL(0.0)), 0.01),
}


def tried(target, value):
    """One input, in a folder of its own: what is wrong, or nothing. No exception but ours may come out."""
    with (
        tempfile.TemporaryDirectory(prefix="prefkin_fuzz_") as folder,
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
    ):
        warnings.simplefilter("ignore")
        try:
            return target.check(Path(folder), value)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            last = error.__traceback__
            while last.tb_next is not None:
                last = last.tb_next
            where = f"{Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}"
            return f"{type(error).__name__} at {where}: {error!s:.150}"
