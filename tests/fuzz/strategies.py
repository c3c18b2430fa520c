"""Odd numbers, labels, tables, files, folders, options, model files and states of sessions."""

import csv
import gzip
import io
import json
import os
import pickle
import zipfile

import numpy as np
import polars as pl
from hypothesis import strategies as st
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors

from prefkin.data.answers import SIDES
from prefkin.decide.states import sealed
from prefkin.models.files import _digest

SUFFIXES = (".csv", ".jsonl", ".parquet", ".npz", ".json", ".csv.gz", ".jsonl.gz")
VARIANTS = 7
ODD_NUMBERS = (0.0, -0.0, 1e-320, 1e-300, 1e-75, 1e75, 1e99, 1e308, -1e308, float("inf"), float("nan"), 2**53 + 1)
ODD_TEXTS = (
    "",
    " ",
    "1_5",
    "٣",
    "0x10",
    "1e400",
    "nan",
    "NA",
    "inf",
    "tie",
    "True",
    "a\0",
    "é",
    "e\u0301",
    "\u202e",
    "x" * 300,
)

modest = st.floats(-5.0, 5.0, width=16)
numbers = st.one_of(
    modest,
    st.floats(),
    st.sampled_from(ODD_NUMBERS),
    st.integers(-3, 3),
    st.sampled_from((2**63, 10**25, -(10**25))),
)
texts = st.one_of(st.text("abcdefgh", min_size=1, max_size=3), st.sampled_from(ODD_TEXTS), st.text(max_size=4))
labels = st.one_of(texts, st.integers(0, 5), st.none(), st.booleans(), numbers)
words = st.sampled_from([word for pair in SIDES for word in pair] + ["tie", "yes", "no", "Left "])
answers = st.one_of(st.sampled_from((0, 1)), st.sampled_from((0, 1)), words, labels)
messages = st.lists(
    st.one_of(
        st.fixed_dictionaries({"role": st.just("user"), "content": st.one_of(texts, st.none())}),
        st.dictionaries(st.sampled_from(("content", "text", "role")), labels, max_size=2),
    ),
    max_size=3,
)


def mostly(usual, odd):
    """The usual thing four times of five, so that most columns of a table are in order."""
    return st.integers(0, 4).flatmap(lambda draw: odd if draw == 0 else usual)


def column(entry, rows):
    return st.lists(entry, min_size=rows, max_size=rows)


@st.composite
def tables(draw):
    """Columns by name: one of the forms that are read, with whatever may be wrong in it."""
    rows = draw(st.integers(1, 5))
    vectors = mostly(st.lists(modest, min_size=2, max_size=2), st.one_of(st.lists(numbers, max_size=3), labels))
    features = mostly(modest, st.one_of(numbers, labels))
    names = mostly(st.sampled_from("pqr"), labels)
    forms = (
        {"user": names, "y": mostly(st.integers(0, 1), answers), "z0": features, "z1": features},
        {"user": names, "y": mostly(words, answers), "z": vectors},
        {"user": labels, "y": st.integers(0, 1), "first": vectors, "second": vectors},
        {"user": names, "winner": names, "loser": names},
        {"worker": names, "left": vectors, "right": vectors, "label": mostly(words, labels)},
        {"annotator": names, "prompt": texts, "chosen": mostly(messages, texts), "rejected": messages},
        {"users": names, "y": st.integers(0, 1), "Z": vectors, "weights": mostly(modest, numbers)},
        {"context": names, "action": labels, "phi0": features, "phi1": features, "weight": mostly(st.just(1), numbers)},
        {"item": labels, "phi": vectors},
    )
    chosen = dict(draw(st.sampled_from(forms)))
    if draw(st.booleans()):
        chosen |= draw(
            st.sampled_from(
                ({"context": labels}, {"weight": numbers}, {"weigth": numbers}, {"z3": modest}, {"": labels})
            )
        )
    table = {name: draw(column(entry, rows)) for name, entry in chosen.items()}
    if draw(st.integers(0, 9)) == 0:
        table.pop(draw(st.sampled_from(sorted(table))))
    return table


def as_bytes(table, suffix):
    """A table as a file; what a format cannot hold becomes text."""
    if suffix.endswith(".gz"):
        return gzip.compress(as_bytes(table, suffix.removesuffix(".gz")), mtime=0)
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    if suffix == ".json":
        return json.dumps(rows, default=str).encode()
    if suffix == ".jsonl":
        return "".join(json.dumps(row, default=str) + "\n" for row in rows).encode()
    if suffix == ".csv":
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(table)
        writer.writerows(table and [row.values() for row in rows])
        return text.getvalue().encode(errors="replace")
    buffer = io.BytesIO()
    if suffix == ".parquet":

        def plain(values):
            return [str(value).encode(errors="replace").decode() for value in values]

        columns = {}
        for name, values in table.items():
            try:
                columns[name] = pl.Series(name, values, strict=False)
            except Exception:
                columns[name] = pl.Series(name, plain(values))
        try:
            pl.DataFrame(columns).write_parquet(buffer)
        except Exception:  # what polars cannot write
            buffer = io.BytesIO()
            pl.DataFrame({name: plain(values) for name, values in table.items()}).write_parquet(buffer)
        return buffer.getvalue()
    arrays = {}
    for name, values in table.items():
        try:
            array = np.array(values)
        except (ValueError, OverflowError):
            array = np.array([str(value) for value in values])
        arrays[name or "unnamed"] = array.astype(str) if array.dtype.kind == "O" else array
    np.savez(buffer, **arrays)
    return buffer.getvalue()


@st.composite
def damaged(draw, content):
    """Bytes with a few of them changed, lost, doubled or added."""
    content = bytearray(content)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        many = draw(st.integers(1, 40))
        kind = draw(st.sampled_from(("flip", "cut", "lose", "double", "add")))
        if kind == "flip" and content:
            content[at] ^= draw(st.integers(1, 255))
        elif kind == "cut":
            del content[at:]
        elif kind == "lose":
            del content[at : at + many]
        elif kind == "double":
            content[at:at] = content[at : at + many]
        else:
            content[at:at] = draw(st.binary(max_size=10))
    return bytes(content)


class Canary:
    """Leaves a file behind when somebody unpickles it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def poisoned(path):
    """An NPZ file with an array of Python objects that make a folder when they are read."""
    array, buffer = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "|O", "fortran_order": False, "shape": (2,)})
    array.write(pickle.dumps([Canary(path), Canary(path)]))
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("users.npy", array.getvalue())
        for name, values in (("y", np.array([1, 0])), ("Z", np.eye(2))):
            one = io.BytesIO()
            np.save(one, values)
            archive.writestr(f"{name}.npy", one.getvalue())
    return buffer.getvalue()


@st.composite
def files(draw):
    """A suffix and files of that kind, more or less: one drawn, others of the same with damage, which is quick to make."""
    suffix, content = draw(one_file())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return suffix, [content, *(worn(content, rng) for _ in range(VARIANTS))]


def worn(content, rng):
    """Bytes changed, lost or doubled, or a number in them replaced by an odd one."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at, many, kind = int(rng.integers(len(content) + 1)), int(rng.integers(1, 60)), rng.integers(5)
        if kind == 0 and at < len(content):
            content[at] ^= int(rng.integers(1, 256))
        elif kind == 1:
            del content[at : at + many]
        elif kind == 2:
            content[at:at] = content[at : at + many]
        elif kind == 3:
            content[at : at + 1] = str(rng.choice(ODD_TEXTS)).encode()
        else:
            content[at : at + 1] = rng.bytes(int(rng.integers(1, 9)))
    return bytes(content)


@st.composite
def one_file(draw):
    """A suffix and the bytes of a file of that kind, more or less."""
    suffix = draw(st.sampled_from(SUFFIXES))
    kind = draw(st.integers(0, 19))
    if kind == 0:
        return suffix, draw(st.binary(max_size=60))
    if kind == 1:
        return suffix, poisoned("canary")
    content = as_bytes(draw(tables()), suffix)
    return suffix, draw(damaged(content)) if draw(st.booleans()) else content


# -- model files -----------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 100), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=4,
)


@st.composite
def model_files(draw, content):
    """A model file with bytes changed, or with other contents and a checksum that is right."""
    if draw(st.integers(0, 2)) == 0:
        return draw(damaged(content))
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["prefkin"])
    tensors = dict(from_safetensors(content))
    for _ in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):
            place = draw(st.sampled_from((header, header["about"], header["about"]))) if "about" in header else header
            if isinstance(place, dict) and place:
                name = draw(st.sampled_from(sorted(place)))
                place[name] = draw(json_values)
                if draw(st.integers(0, 4)) == 0:
                    place.pop(name)
            continue
        name = draw(st.sampled_from(sorted(tensors)))
        array = tensors[name]
        change = draw(st.sampled_from(("drop", "cut", "flat", "turn", "number", "type", "empty")))
        if change == "drop" and len(tensors) > 1:
            tensors.pop(name)
        elif change == "number" and array.size:
            array = array.astype(np.float64)
            array.flat[draw(st.integers(0, array.size - 1))] = float(draw(numbers))
            tensors[name] = array
        else:
            tensors[name] = {
                "cut": array[:-1],
                "flat": array.reshape(-1),
                "turn": array.T,
                "type": np.nan_to_num(array, posinf=1).astype(
                    draw(st.sampled_from(("float32", "int32", "bool", "uint8")))
                ),
                "empty": array[:0],
            }.get(change, array)
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    text = json.dumps(header)
    return to_safetensors(tensors, {"prefkin": text, "digest": _digest(text, tensors)})


# -- states of sessions ----------------------------------------------------------------------------------------------


HUGE = {"state": 2**200, "inc": 1}


@st.composite
def states(draw, content):
    """Files of one session: one with other contents and a checksum that is right, others with damage."""
    state = json.loads(content)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(("log", "log", "entry", "entry", "pending", "rng", "any")))
        name, log = draw(st.sampled_from(sorted(state))), state.get("log")
        if place == "log" and isinstance(log, list) and log:
            at, change = draw(st.integers(0, len(log) - 1)), draw(st.sampled_from(("cut", "double", "undo")))
            changed = {"cut": log[:at], "double": [*log, log[at]], "undo": [*log[:at], "undo", *log[at:]]}
            state["log"] = changed[change]
        elif (
            place == "entry"
            and isinstance(log, list)
            and (entries := [each for each in log if isinstance(each, list) and len(each) == 4])
        ):
            draw(st.sampled_from(entries))[draw(st.integers(0, 3))] = draw(
                st.one_of(st.integers(-1, 3), st.booleans(), st.none(), json_values, numbers)
            )
        elif place == "pending":
            state["pending"] = draw(st.one_of(st.lists(st.integers(-1, 3), max_size=4), json_values))
        elif place == "rng":
            state["rng"] = draw(st.one_of(json_values, st.just(json.loads(content)["rng"] | {"state": HUGE})))
        else:
            state[name] = draw(json_values)
            if draw(st.booleans()):
                state.pop(name)
    state.pop("checksum", None)
    edited, rng = json.dumps(sealed(state)).encode(), np.random.default_rng(draw(st.integers(0, 2**32)))
    return [edited, *(worn(draw(st.sampled_from((content, edited))), rng) for _ in range(VARIANTS))]


# -- folders ---------------------------------------------------------------------------------------------------------


@st.composite
def folders(draw):
    """Parquet files of one folder, more or less; sometimes some of them are none."""
    tables_ = draw(st.lists(tables(), min_size=1, max_size=2))
    files_ = [as_bytes(table, ".parquet") for table in (*tables_, draw(st.sampled_from(tables_)))]
    return [draw(damaged(content)) if draw(st.integers(0, 3)) == 0 else content for content in files_]


# -- options ---------------------------------------------------------------------------------------------------------

values = st.one_of(
    st.sampled_from(
        (
            "0",
            "1",
            "-1",
            "0.5",
            "nan",
            "inf",
            "-inf",
            "1e308",
            "1e-320",
            "auto",
            "under",
            "99999999999999999999",
            "",
            "é",
            "\udce9",
        )
    ),
    numbers.map(str),
    texts.filter(lambda text: "\0" not in text),
)
FLAGS = {
    "fit": (
        *("--gamma", "--alpha", "--ridge", "--kappa", "--delta", "--radius", "--distance", "--regularity", "--metric"),
        *("--map", "--features", "--names", "--drop", "--items"),
    ),
    "audit": ("--map", "--features", "--names", "--drop", "--items"),
    "rank": ("--pessimism", "--scope", "--top", "--limit", "--map", "--features"),
    "predict": ("--pairs", "--map", "--features", "--items"),
    "plan": ("--candidates", "--budget", "--per-person", "--away", "--cost", "--map", "--features"),
    "update": ("--candidates", "--map", "--features", "--items", "--drop"),
    "report": ("--candidates", "--map", "--features", "--title"),
    "export": ("--user", "--each", "--plan", "--candidates", "--map", "--least", "--votes", "--encoder"),
    "ask": ("--user", "--state", "--candidates", "--tolerance", "--map", "--features"),
    "embed": ("--encoder", "--out", "--map", "--batch", "--cache"),
}


@st.composite
def commands(draw):
    """A command line: mostly one that could run."""
    name = draw(st.sampled_from(("fit", "fit", "fit", "audit", "rank")))
    start = {
        "fit": ["fit", "votes.csv", "--out", "made", "--no-pictures"],
        "audit": ["audit", "votes.csv"],
        "rank": ["rank", "kin", "--user", "u1", "--candidates", "cands.csv"],
    }[name]
    if name == "fit" and draw(st.integers(0, 59)):  # the paper's method takes a hundredth of the time
        start += ["--gamma", draw(st.sampled_from(("0", "1", "inf", "auto", "over")))]
    for _ in range(draw(st.integers(0, 2))):
        flag = draw(st.sampled_from(FLAGS[name]))
        sensible = {"--radius": "calibrated", "--distance": "information", "--scope": "context", "--names": "a,b"}
        value = draw(st.one_of(values, st.just(sensible.get(flag, "1"))))
        if flag == "--regularity" and draw(st.booleans()):
            value = ",".join(draw(st.lists(values, min_size=3, max_size=3)))
        if flag == "--map" and draw(st.booleans()):
            value = f"{draw(st.sampled_from(('user', 'y', 'z', 'nothing')))}={value}"
        start.append(f"{flag}={value}")
    return start, ""


# -- comparisons as arrays -------------------------------------------------------------------------------------------


@st.composite
def comparisons(draw):
    """Features, answers, users, weights: units, weights and repeats of every size."""
    n, d = draw(st.integers(2, 24)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    Z = rng.standard_normal((n, d)) * 10.0 ** np.array(draw(st.lists(st.integers(-30, 30), min_size=d, max_size=d)))
    if draw(st.booleans()):
        Z[rng.integers(n)] *= 10.0 ** draw(st.integers(-30, 30))
    if draw(st.booleans()):
        Z = Z[rng.integers(0, n, n)]
    if draw(st.integers(0, 3)) == 0:
        Z[rng.integers(n), rng.integers(d)] = draw(numbers)
    weights = 10.0 ** rng.uniform(*sorted(draw(st.tuples(st.integers(-12, 9), st.integers(-12, 9)))), n)
    y = rng.integers(0, 2, n) if draw(st.booleans()) else (Z.sum(axis=1) > 0).astype(int)
    return Z, y, rng.integers(0, draw(st.integers(1, 4)), n), weights if draw(st.booleans()) else None


AFTER = {
    "predict": ["predict", "people", "--pairs", "votes.csv", "--out", "made.csv"],
    "plan": ["plan", "people", "--candidates", "cands.csv", "--budget", "3", "--out", "made.csv"],
    "update": ["update", "people", "more.csv"],
    "report": ["report", "people", "--out", "made.html"],
    "export": ["export", "people", "--to", "labelstudio", "--candidates", "cands.csv", "--out", "made.json"],
    "rank": ["rank", "people", "--user", "u1", "--candidates", "cands.csv"],
    "ask": ["ask", "people", "--user", "u1", "--candidates", "cands.csv", "--state", "made.json"],
    "embed": ["embed", "texts.jsonl", "--encoder", "nothing", "--out", "made.parquet"],
}
READING = (
    (AFTER["predict"], ("votes.csv", "people")),
    (AFTER["plan"], ("cands.csv", "people")),
    (["update", "fit", "more.csv"], ("more.csv", "fit/summary.json")),
    (["report", "fit", "--out", "made.html", "--candidates", "cands.csv"], ("cands.csv", "fit/summary.json")),
    (
        [
            "export",
            "people",
            "--to",
            "argilla",
            "--candidates",
            "items.json",
            "--plan",
            "plan.csv",
            "--out",
            "made.json",
        ],
        ("items.json", "plan.csv"),
    ),
    (AFTER["rank"], ("cands.csv",)),
    (AFTER["ask"], ("cands.csv",)),
    (AFTER["embed"], ("texts.jsonl",)),
    (["audit", "votes.csv"], ("votes.csv",)),
)
"""Commands, and the files that each of them reads."""


@st.composite
def commands_on_damage(draw):
    """A command, a file that it reads, and how that is damaged."""
    command, files_ = draw(st.sampled_from(READING))
    return list(command), draw(st.sampled_from(files_)), draw(st.integers(0, 2**32))


FORMS = ("labelstudio", "argilla", "trl", "reward-head", "é")


@st.composite
def commands_after_a_fit(draw):
    """What one does with a model, with one or two options that may be odd; what is said to it while it runs."""
    name = draw(st.sampled_from(tuple(AFTER)))
    known = st.sampled_from(
        ("votes.csv", "cands.csv", "more.csv", "texts.jsonl", "people", "kin", "u1", "u9", "2", ".")
    )
    command = list(AFTER[name])
    if name == "export" and draw(st.booleans()):
        command[command.index("labelstudio")] = draw(st.sampled_from(FORMS))
    if draw(st.integers(0, 3)) == 0:
        command[1] = draw(st.one_of(known, texts.filter(lambda text: "\0" not in text)))
    odd = [
        f"{draw(st.sampled_from(FLAGS[name]))}={draw(st.one_of(values, known))}" for _ in range(draw(st.integers(0, 2)))
    ]
    said = draw(st.lists(st.sampled_from(("1", "2", "s", "u", "q", "left", "RIGHT ", "", "é")), max_size=5))
    return [*command, *odd], "\n".join(said)
