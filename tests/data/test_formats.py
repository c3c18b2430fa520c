"""Files as they come: damaged, lying or odd ones are one line that says so, and labels stay what they were."""

import contextlib
import gc
import gzip
import io
import json
import struct
import warnings
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from prefkin import Comparisons, OffC2PL, read_candidates, read_comparisons
from prefkin.data import formats
from prefkin.data.formats import read_columns
from prefkin.errors import InvalidComparisons, InvalidTable

BIG = 2**53


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_labels_that_differ_never_merge(tmp_path):
    labels = [BIG, BIG + 1, 1.5, "1", 1, "a", "a\0", None, 10**25]
    rows = [{"user": label, "y": 1, "z": [0.5]} for label in labels]
    read = read_comparisons(jsonl(tmp_path / "v.jsonl", rows), drop="missing")
    assert set(read.labels.tolist()) == set(labels) - {None}
    assert len(read.labels) == len(labels) - 1
    kept = Comparisons.from_arrays(np.ones((2, 1)), [1, 0], ["a", "a\0"])
    assert kept.labels.tolist() == ["a", "a\0"]
    with pytest.raises(InvalidComparisons, match="labels mix numbers and True"):
        read_comparisons(jsonl(tmp_path / "t.jsonl", [{"user": u, "y": 1, "z": [0.5]} for u in (1, True)]))


def test_whole_numbers_as_labels_stay_whole(tmp_path):
    rows = [{"user": u, "y": 1, "z": [0.5]} for u in (3, 1)]
    assert read_comparisons(jsonl(tmp_path / "v.jsonl", rows)).labels.dtype == np.int64


def test_a_table_that_was_read_is_closed(tmp_path):
    (tmp_path / "v.csv").write_text("user,y,z\na,1,0.5\n")
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        formats.read_columns(tmp_path / "v.csv")
        gc.collect()
    assert not given


def test_a_key_that_stands_twice_is_refused(tmp_path):
    (tmp_path / "v.jsonl").write_text('{"user": "a", "y": 1, "z": [0.5], "y": 0}\n')
    with pytest.raises(InvalidTable, match=r"v.jsonl: line 1: key 'y' stands twice"):
        read_comparisons(tmp_path / "v.jsonl")


@pytest.mark.parametrize("text", ["1_5", "٣", "0x10", "1e", "."])
def test_a_number_is_what_reads_as_one(tmp_path, text):
    (tmp_path / "v.csv").write_text(f"user,y,z0\na,1,1.5\na,0,{text}\n")
    with pytest.raises(InvalidTable, match=r"v.csv: (column z0 is not a number in row 1|.*could not parse .*z0)"):
        read_comparisons(tmp_path / "v.csv")
    for features in ([["1"], [text]], np.array([["1"], [text]]), np.array([[1.0], [text]], dtype=object)):
        with pytest.raises(InvalidComparisons, match="something other than numbers in row 1"):
            Comparisons.from_arrays(features, [1, 0], ["a", "a"])
        with pytest.raises(InvalidComparisons, match="something other than numbers in row 1"):
            OffC2PL(0.0).fit(features, [1, 0])
    with pytest.raises(InvalidComparisons, match="weights must be numbers, but row 1"):
        Comparisons.from_arrays([[1.0], [2.0]], [1, 0], ["a", "a"], weights=["1", text])


def test_texts_that_read_as_numbers_are_numbers():
    data = Comparisons.from_arrays([[" 1", "-2.5e1"], ["+.5", "3."]], ["1", "0"], ["a", "a"], weights=["1", "2"])
    assert data.Z.tolist() == [[1.0, -25.0], [0.5, 3.0]]


CHAT = [
    {
        "annotator": f"u{i % 2}",
        "prompt": [{"role": "user", "content": f"question {i}"}],
        "chosen": [{"role": "assistant", "content": f"good {i}"}, {"role": "user", "content": "thanks"}],
        "rejected": [{"role": "assistant", "content": f"bad {i}"}],
    }
    for i in range(4)
]


def sources(rows, folder):
    """The same rows from every kind of source."""
    table = pl.DataFrame(rows)
    table.write_parquet(folder / "v.parquet")
    yield jsonl(folder / "v.jsonl", rows)
    yield folder / "v.parquet"
    yield table
    yield pd.DataFrame(rows)
    yield pd.read_parquet(folder / "v.parquet")
    yield pa.Table.from_pylist(rows)


def test_messages_are_embedded_by_their_contents_wherever_they_come_from(tmp_path):
    for source in sources(CHAT, tmp_path):
        heard = []

        def embed(texts, heard=heard):
            heard += texts
            return np.arange(2.0 * len(texts)).reshape(-1, 2)

        data = read_comparisons(source, embed=embed)
        assert set(heard) == {f"question {i}\n\n{said}" for i in range(4) for said in (f"good {i}\nthanks", f"bad {i}")}
        assert data.contexts.tolist() == [f"question {i}" for i in range(4)]


def test_messages_in_parts_and_calls_of_tools_are_read_and_others_refused():
    def texts(chosen):
        heard = []
        table = pd.DataFrame([{"user": "a", "chosen": chosen, "rejected": [{"role": "assistant", "content": "no"}]}])
        read_comparisons(table, embed=lambda given: heard.extend(given) or np.eye(len(given)))
        return heard

    parts = [{"type": "text", "text": "look"}, {"type": "image", "url": "x"}]
    assert "look\n\nseen" in texts([{"content": parts}, {"content": None}, {"content": "seen"}])
    with pytest.raises(InvalidTable, match="a message needs its text under 'content'"):
        texts([{"role": "assistant", "value": "hello"}])


def test_sides_that_are_features_are_answered_by_word(tmp_path):
    rows = [{"worker": "a", "left": [1, 2], "right": [2, 1], "label": label} for label in ("left", "right")]
    assert read_comparisons(jsonl(tmp_path / "v.jsonl", rows)).y.tolist() == [1.0, 0.0]
    rows[0]["label"] = "up"
    with pytest.raises(InvalidTable, match="v.jsonl: label 'up' in row 0"):
        read_comparisons(jsonl(tmp_path / "v.jsonl", rows))


def test_integers_that_numpy_does_not_know_are_read(tmp_path):
    (tmp_path / "y.csv").write_text(f"user,y,z0\na,1,0.5\na,{10**24},1\n")
    with pytest.raises(InvalidComparisons, match=r"y.csv: y must be 0 or 1, but row 1 .* 1e\+24"):
        read_comparisons(tmp_path / "y.csv")
    (tmp_path / "c.csv").write_text(f"context,action,phi0\nx,a,{10**24}\nx,b,1\n")
    assert read_candidates(tmp_path / "c.csv").features.max() == 1e24


def archive(path, **members):
    """An NPZ file of these arrays, or of these bytes where they are given as such."""
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            if not isinstance(content, bytes):
                buffer = io.BytesIO()
                np.save(buffer, content)
                content = buffer.getvalue()
            file.writestr(f"{name}.npy", content)
    return path


def header(text):
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + b"\0" * 64


USERS, ANSWERS = np.array(["a", "b"]), np.array([1, 0])


@pytest.mark.parametrize(
    "text",
    [
        "(((((",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 1000), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999999, 3), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-2, 3), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': 'x', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': '<f8'}",
        "é",
    ],
)
def test_arrays_that_lie_about_themselves_are_refused(tmp_path, text):
    path = archive(tmp_path / "v.npz", users=USERS, y=ANSWERS, Z=header(text))
    with pytest.raises(InvalidTable, match=r"v.npz: ") as told:
        read_comparisons(path)
    assert "\n" not in str(told.value)


def test_arrays_that_are_not_needed_are_not_read(tmp_path):
    lie = header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 1000), }")
    path = archive(tmp_path / "v.npz", other=lie, users=USERS, y=ANSWERS, Z=np.eye(2), scalar=np.float64(3))
    assert len(read_comparisons(path)) == 2


@pytest.mark.parametrize(
    ("at", "value"), [(6, 1), (8, 99)], ids=["encrypted", "an unknown compression"]
)  # of the local header; two bytes later in the directory
def test_archives_that_cannot_be_unpacked_are_refused(tmp_path, at, value):
    content = bytearray(archive(tmp_path / "v.npz", users=USERS, y=ANSWERS, Z=np.eye(2)).read_bytes())
    for mark, place in ((b"PK\x03\x04", at), (b"PK\x01\x02", at + 2)):
        start = content.find(mark)
        while start >= 0:
            content[start + place] |= value
            start = content.find(mark, start + 1)
    (tmp_path / "v.npz").write_bytes(content)
    with pytest.raises(InvalidTable, match="v.npz: not a readable .npz file"):
        read_comparisons(tmp_path / "v.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"users": np.array("a"), "y": ANSWERS, "Z": np.eye(2)}, "array users is a single value"),
        ({"users": USERS.astype(object), "y": ANSWERS, "Z": np.eye(2)}, "holds Python objects"),
        ({"users": USERS, "y": ANSWERS, "Z": np.eye(2) * 1j}, "complex"),
        (
            {"users": USERS, "y": ANSWERS, "Z": np.empty((0, 2))},
            "users has 2 rows but the features have 0|y has 2 rows",
        ),
    ],
)
def test_arrays_of_the_wrong_kind_are_named(tmp_path, arrays, message):
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises((InvalidTable, InvalidComparisons), match=f"v.npz: .*({message})"):
        read_comparisons(tmp_path / "v.npz")


def test_a_damaged_parquet_file_is_read_or_refused_wherever_the_damage_is(tmp_path):
    rng = np.random.default_rng(3)
    table = pl.DataFrame({"user": ["a", "b"] * 20, "y": [1, 0] * 20, "z": rng.standard_normal((40, 3)).tolist()})
    table.write_parquet(tmp_path / "v.parquet")
    whole = (tmp_path / "v.parquet").read_bytes()
    refused = 0
    for at in rng.integers(0, len(whole), 60):
        damaged = bytearray(whole)
        damaged[at] ^= int(rng.integers(1, 256))
        (tmp_path / "bad.parquet").write_bytes(damaged)
        with contextlib.suppress(InvalidTable, InvalidComparisons):  # and nothing else
            read_comparisons(tmp_path / "bad.parquet")
            refused -= 1
        refused += 1
    assert refused > 5


def test_a_panic_of_polars_is_one_line(tmp_path, monkeypatch):
    def panic(_source):
        raise pl.exceptions.PanicException("called unwrap()\nsomewhere")

    pl.DataFrame({"user": ["a"], "y": [1], "z0": [1.0]}).write_parquet(tmp_path / "v.parquet")
    monkeypatch.setattr(pl, "read_parquet", panic)
    with pytest.raises(InvalidTable, match=r"v.parquet: not a readable .parquet file: called unwrap\(\)$"):
        read_comparisons(tmp_path / "v.parquet")


def test_a_header_beyond_all_measure_is_refused(tmp_path):
    (tmp_path / "v.csv").write_text("user,y,z0," + "x" * 200_000 + "\na,1,1,1\n")
    with pytest.raises(InvalidTable, match="v.csv: not a readable .csv file: field larger"):
        read_comparisons(tmp_path / "v.csv")


def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    (tmp_path / "v.csv").write_text("user,y,z0\na,1,1\n")

    def forbidden(self, *_args, **_kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.open", forbidden)
    with pytest.raises(InvalidTable, match=r"v.csv: cannot be read: Permission denied$"):
        read_comparisons(tmp_path / "v.csv")


def test_file_names_that_are_no_text_are_read(tmp_path):
    table = pl.DataFrame({"user": ["a", "b"], "y": [1, 0], "z0": [0.5, 1.0]})
    contents = {"csv": table.write_csv().encode(), "jsonl": table.write_ndjson().encode()}
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    for suffix, content in (contents | {"parquet": buffer.getvalue()}).items():
        path = tmp_path / f"caf\udce9.{suffix}"
        path.write_bytes(content)
        assert len(read_comparisons(path)) == 2


@pytest.mark.parametrize("side", [[], {}, [[1], [2, 3]]])
def test_sides_that_are_no_names_are_refused(tmp_path, side):
    rows = [{"worker": "a", "left": side, "right": side, "label": "left"}]
    with pytest.raises((InvalidTable, InvalidComparisons), match="v.jsonl: "):
        read_comparisons(jsonl(tmp_path / "v.jsonl", rows), items={"p": [1.0]})


def test_rows_of_words_are_refused_in_one_line():
    with pytest.raises(InvalidComparisons, match="something other than numbers in row 0") as told:
        Comparisons.from_arrays(np.array([["long text " * 9] * 3]), [1], ["a"])
    assert "\n" not in str(told.value)


VOTES = [{"user": "007", "y": 1, "z": [0.5, 1.0]}, {"user": "b", "y": 0, "z": [1.0, 0.0]}]
WIDE = "user,y,z0,z1\n007,1,0.5,1\nb,0,1,0\n"


def packed(content, how):
    if how == ".gz":
        return gzip.compress(content)
    return pa.Codec("zstd").compress(content, asbytes=True)


@pytest.mark.parametrize("how", [".gz", ".zst"])
@pytest.mark.parametrize(
    ("suffix", "content"),
    [(".csv", WIDE), (".jsonl", "".join(json.dumps(row) + "\n" for row in VOTES)), (".json", json.dumps(VOTES))],
)
def test_compressed_files_are_read(tmp_path, suffix, content, how):
    path = tmp_path / f"v{suffix}{how}"
    path.write_bytes(packed(content.encode(), how))
    data = read_comparisons(path)
    assert (data.users.tolist(), data.Z.tolist()) == (["007", "b"], [[0.5, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize("how", [".gz", ".zst"])
def test_compressed_files_that_are_cut_or_none_are_refused_in_a_line(tmp_path, how):
    whole = packed(WIDE.encode() * 50, how)
    for content in (whole[: len(whole) // 2], b"no such thing", packed(b"", how)):
        (tmp_path / f"v.csv{how}").write_bytes(content)
        with pytest.raises(InvalidTable, match=rf"v.csv{how}: ") as told:
            read_comparisons(tmp_path / f"v.csv{how}")
        assert "\n" not in str(told.value)
    (tmp_path / f"v.npz{how}").write_bytes(whole)
    with pytest.raises(InvalidTable, match="compressed inside; unpack it"):
        read_comparisons(tmp_path / f"v.npz{how}")


def test_folders_of_parquet_files_are_one_table(tmp_path):
    for shard in range(3):
        pl.DataFrame(VOTES).write_parquet(tmp_path / f"train-{shard:05}-of-00003.parquet")
    assert len(read_comparisons(tmp_path)) == 6
    pl.DataFrame(VOTES).with_columns(more=1).write_parquet(tmp_path / "train-00003-of-00003.parquet")
    with pytest.raises(InvalidTable, match="train-00003-of-00003.parquet has other columns than train-00000"):
        read_comparisons(tmp_path)
    pl.DataFrame(VOTES).write_parquet(tmp_path / "test-00000-of-00001.parquet")
    with pytest.raises(InvalidTable, match=r"files of several tables \(test, train\)"):
        read_comparisons(tmp_path)


def test_folders_of_saved_datasets_are_read_without_their_library(tmp_path):
    """As `save_to_disk` writes them: Arrow streams, and a list of them."""
    names = [f"data-0000{shard}-of-00002.arrow" for shard in range(2)]
    for name in names:
        pl.DataFrame(VOTES).write_ipc_stream(tmp_path / name)
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    assert len(read_comparisons(tmp_path)) == 4
    (tmp_path / names[1]).write_bytes((tmp_path / names[1]).read_bytes()[:100])
    with pytest.raises(InvalidTable, match=str(tmp_path)):
        read_comparisons(tmp_path)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(InvalidTable, match=r"holds the splits train, test; give one of them, .*train"):
        read_comparisons(tmp_path)


def test_a_folder_with_nothing_to_read_is_refused(tmp_path):
    with pytest.raises(InvalidTable, match="a folder without Parquet files and no saved dataset; give a file"):
        read_comparisons(tmp_path)


@pytest.mark.integrations
def test_datasets_of_hugging_face_are_read_as_objects_and_as_folders(tmp_path):
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_list(CHAT * 3)
    heard = []
    for source in (whole, whole.select([3, 1])):
        data = read_comparisons(source, embed=lambda texts: heard.extend(texts) or np.eye(len(texts)))
        assert data.users.tolist() == source["annotator"]
    whole.save_to_disk(tmp_path / "set", num_shards=2)
    assert len(read_comparisons(tmp_path / "set", embed=lambda texts: np.eye(len(texts)))) == 12
    for source, message in (
        (datasets.DatasetDict(train=whole), "splits train"),
        (whole.to_iterable_dataset(), "stream"),
    ):
        with pytest.raises(InvalidTable, match=message):
            read_comparisons(source)


LETTER = "user,y,z0\nann,1,.5\nJosé,0,.3\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (LETTER.encode("latin-1"), r"the text is not in UTF-8 but maybe in Latin-1 \(see line 3\); save it as UTF-8"),
        (LETTER.encode("utf-16"), "not in UTF-8 but maybe in UTF-16"),
        (LETTER.encode() + b"bo,1,1,5\n", r"row 2 \(counted from 0\) has 4 fields, but there are 3 columns; mend it"),
        (LETTER.replace(",", ";").encode(), "columns are separated by ';' there; save it with commas"),
        (LETTER.replace(",", "\t").encode(), r"columns are separated by '\\t' there"),
    ],
)
def test_what_ails_a_csv_file_is_told_with_the_remedy(tmp_path, content, told):
    (tmp_path / "v.csv").write_bytes(content)
    (tmp_path / "v.csv.gz").write_bytes(gzip.compress(content))
    for name in ("v.csv", "v.csv.gz"):
        with pytest.raises(InvalidTable, match=told):
            read_columns(tmp_path / name)
