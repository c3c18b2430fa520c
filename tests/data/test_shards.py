"""Data larger than memory: files in any order become shards with all rows of a user, once."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import prefkin
from prefkin.data import buckets
from prefkin.data.shards import MANIFEST, code_of, shard_name
from prefkin.errors import InvalidComparisons, InvalidTable, ShardError, UnknownUser


def votes(n=300, d=3, users=20, seed=0, text=False):
    rng = np.random.default_rng(seed)
    who = rng.integers(0, users, n)
    return pl.DataFrame(
        {
            "user": [f"u{w}" for w in who] if text else who,
            "y": rng.integers(0, 2, n),
            "z": rng.normal(size=(n, d)).astype(np.float32).tolist(),
        }
    )


def written(folder, frame, files=3):
    folder.mkdir(exist_ok=True)
    size = -(-len(frame) // files)
    for k in range(files):
        frame[k * size : (k + 1) * size].write_parquet(folder / f"part{k}.parquet")
    return folder


@pytest.mark.parametrize("text", [False, True])
def test_every_row_is_in_the_shard_of_its_user_once(tmp_path, text):
    frame = votes(text=text)
    data = prefkin.open_comparisons(written(tmp_path / "votes", frame), rows_a_shard=40)
    whole = prefkin.read_comparisons(frame).by_user()
    assert data.n_shards == 8
    assert (data.n_users, data.n_comparisons) == (len(whole), len(frame))
    seen = []
    for number in range(data.n_shards):
        if not data.users[number]:
            continue
        rows = data.shard(number)
        assert (data.shard_of(rows.labels) == number).all()
        for u, label in enumerate(rows.labels.tolist()):
            seen.append(label)
            mine, theirs = rows.of(u), whole.of(whole.index(label))
            np.testing.assert_array_equal(mine.Z, theirs.Z)  # also in the order of the files
            np.testing.assert_array_equal(mine.y, theirs.y)
    assert sorted(seen) == whole.labels.tolist()


def test_shards_together_are_the_data_as_read_into_memory(tmp_path):
    frame = votes().with_columns(weight=pl.lit(0.5), context=pl.int_range(pl.len()) // 2)
    data = prefkin.open_comparisons(written(tmp_path / "votes", frame), rows_a_shard=40)
    rows, whole = data.shards(range(data.n_shards)), prefkin.read_comparisons(frame).by_user()
    for mine, theirs in zip((*rows.rows, rows.starts, rows.labels), (*whole.rows, whole.starts, whole.labels)):
        np.testing.assert_array_equal(mine, theirs)
    both = np.unique(np.column_stack([rows.contexts, whole.contexts]), axis=0)
    assert len(both) == len(np.unique(whole.contexts))


def test_some_users_are_read_without_the_others(tmp_path):
    frame = votes()
    data = prefkin.open_comparisons(written(tmp_path / "votes", frame), rows_a_shard=40)
    rows, whole = data.of([7, 3]), prefkin.read_comparisons(frame).by_user()
    assert rows.labels.tolist() == [3, 7]
    np.testing.assert_array_equal(rows.of(1).Z, whole.of(whole.index(7)).Z)
    for nobody in ([3, 99], ["3"], [1.5]):
        with pytest.raises(UnknownUser, match="not among the 20"):
            data.of(nobody)


@pytest.mark.parametrize("form", ["columns", "sides", "side columns", "arrays"])
def test_features_may_be_written_in_several_ways(tmp_path, form):
    frame = votes(60)
    Z = np.array(frame["z"].to_list())
    rest = frame.drop("z")
    if form == "columns":
        given = rest.with_columns(**{f"z{k}": Z[:, k] for k in range(3)})
    elif form == "sides":
        given = rest.with_columns(first=pl.Series((Z + 1).tolist()), second=pl.Series(np.ones_like(Z).tolist()))
    elif form == "side columns":
        given = rest.with_columns(
            **{f"first{k}": Z[:, k] for k in range(3)}, **{f"second{k}": pl.lit(0.0) for k in range(3)}
        )
    else:
        given = rest.with_columns(z=pl.Series(Z.astype(np.float32), dtype=pl.Array(pl.Float32, 3)))
    data = prefkin.open_comparisons(written(tmp_path / "votes", given))
    whole = prefkin.read_comparisons(frame).by_user()
    np.testing.assert_allclose(data.shard(0).rows.Z, whole.rows.Z, atol=1e-6)


def test_it_is_done_once_and_again_when_files_change(tmp_path, monkeypatch):
    folder = written(tmp_path / "votes", votes())
    data = prefkin.open_comparisons(folder)
    monkeypatch.setattr(buckets, "_sort", lambda *_: pytest.fail("rows were sorted again"))
    assert prefkin.open_comparisons(folder) == data
    data.refuse_if_changed()
    monkeypatch.undo()
    votes(30, seed=1).write_parquet(folder / "part9.parquet")
    with pytest.raises(ShardError, match="changed since"):
        data.refuse_if_changed()
    other = prefkin.open_comparisons(folder, rows_a_shard=40)
    assert not data.home.exists()  # nobody can use them any more
    assert prefkin.open_comparisons(folder).n_comparisons == 330
    assert other.home.exists()


def test_a_run_that_was_stopped_goes_on_with_what_it_had(tmp_path, monkeypatch):
    folder, whole = written(tmp_path / "votes", votes()), tmp_path / "whole"
    prefkin.open_comparisons(folder, rows_a_shard=40, cache=whole)
    real, made = buckets.write_table, []

    def stopping(path, columns):
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(path)
        real(path, columns)

    monkeypatch.setattr(buckets, "write_table", stopping)
    with pytest.raises(KeyboardInterrupt):
        prefkin.open_comparisons(folder, rows_a_shard=40, cache=tmp_path / "cache")
    monkeypatch.setattr(buckets, "_sort", lambda *_: None)  # all of these are there
    before = {path: path.stat().st_mtime_ns for path in made}
    monkeypatch.setattr(buckets, "write_table", real)
    data = prefkin.open_comparisons(folder, rows_a_shard=40, cache=tmp_path / "cache")
    assert {path: path.stat().st_mtime_ns for path in made} == before
    for number in range(data.n_shards):
        name = shard_name(number)
        assert (data.home / name).read_bytes() == (whole / data.home.name / name).read_bytes()
    assert sorted(path.name for path in data.home.iterdir() if "shard-" not in path.name) == [
        ".lock",
        "plan.json",
        MANIFEST,
    ]


def test_with_little_room_on_the_disk_some_shards_are_made_at_a_time(tmp_path, monkeypatch):
    folder = written(tmp_path / "votes", votes())
    plenty, real = prefkin.open_comparisons(folder, rows_a_shard=40, cache=tmp_path / "plenty"), buckets._collect
    size = 300 * (4 * 3 + buckets.ROW_BYTES)
    monkeypatch.setattr(buckets.shutil, "disk_usage", lambda _: SimpleNamespace(free=int(1.4 * size)))
    beside = []

    def watched(sources, shard, home, sorted_rows):
        beside.append([path.name for path in home.glob("sorted-*")])
        return real(sources, shard, home, sorted_rows)

    monkeypatch.setattr(buckets, "_collect", watched)
    little = prefkin.open_comparisons(folder, rows_a_shard=40, cache=tmp_path / "little")
    assert beside == [[f"sorted-{turn}"] for turn in (0, 0, 1, 1, 2, 2, 3, 3)]
    assert not list(little.home.glob("sorted-*"))
    for number in range(8):
        name = shard_name(number)
        assert (little.home / name).read_bytes() == (plenty.home / name).read_bytes()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (
            lambda f: f.with_columns(y=pl.lit(0.5)),
            InvalidComparisons,
            r"row \d+ \(counted from 0\) of part0.parquet is a tie",
        ),
        (lambda f: f.with_columns(user=pl.lit(None, dtype=pl.Int64)), InvalidTable, "the user is missing in row 0"),
        (lambda f: f.with_columns(user=pl.lit(1.5)), InvalidTable, "of type Float64"),
        (lambda f: f.with_columns(y=pl.lit("left")), InvalidTable, "answers in column y are of type String; code 1"),
        (lambda f: f.drop("y"), InvalidTable, "lack column y; they have: user, z"),
        (lambda f: f.drop("z"), InvalidTable, "lack the features"),
        (lambda f: f.head(0), InvalidTable, "files are empty"),
        (lambda f: f.rename({"z": "z1"}), InvalidTable, "gap"),
        (lambda f: f.with_columns(z=pl.lit(3)), InvalidTable, "column z holds Int32; make it lists of numbers"),
        (lambda f: f.with_columns(z=pl.lit("3")), InvalidTable, "column z holds String"),
        (lambda f: f.with_columns(z=pl.lit(["a"])), InvalidTable, r"column z holds List\(String\)"),
        (lambda f: f.with_columns(z=pl.lit(None, pl.List(pl.Float32))), InvalidTable, "z is missing in row 0"),
        (lambda f: f.rename({"z": "first"}).with_columns(second=pl.lit(3)), InvalidTable, "column second holds Int32"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path, change, error, words):
    folder = written(tmp_path / "votes", change(votes(30)), files=1)
    with pytest.raises(error, match=words) as caught:
        prefkin.open_comparisons(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    assert list(tmp_path.iterdir()) == [folder]  # no home for shards that will never be


def test_rows_may_be_dropped(tmp_path):
    frame = votes(30).with_columns(y=pl.when(pl.int_range(pl.len()) < 3).then(0.5).otherwise(pl.col("y")))
    assert prefkin.open_comparisons(written(tmp_path / "votes", frame), drop="ties").n_comparisons == 27


def test_folders_that_are_none(tmp_path):
    with pytest.raises(ShardError, match="no such folder"):
        prefkin.open_comparisons(tmp_path / "nowhere")
    with pytest.raises(ShardError, match="no .parquet file"):
        prefkin.open_comparisons(tmp_path)
    written(tmp_path / "votes", votes())
    unnamed = tmp_path / "votes" / os.fsdecode(b"\xff.parquet")
    (tmp_path / "votes" / "part2.parquet").rename(unnamed)
    with pytest.raises(ShardError, match="this name is not UTF-8"):
        prefkin.open_comparisons(tmp_path / "votes")
    unnamed.unlink()
    (tmp_path / "votes" / "part1.parquet").write_bytes(b"PAR1 rubbish")
    with pytest.raises(InvalidTable, match="part1.parquet: not a readable"):
        prefkin.open_comparisons(tmp_path / "votes")


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("number", [0, 1, 3, 400])
def test_some_users_are_read_from_where_they_are(tmp_path, text, number):
    data = prefkin.open_comparisons(written(tmp_path / "votes", votes(4000, users=900, text=text)))
    everybody = data.shard(0)
    at = np.sort(np.random.default_rng(0).choice(len(everybody), number, replace=False))
    table = buckets.read_table(data.home / shard_name(0), only=everybody.labels[at])
    assert table["user"].tolist() == everybody.labels[at].tolist()
    assert [len(blob) for blob in table["y"]] == np.diff(everybody.starts)[at].tolist()
    scanned, here = pl.scan_parquet(data.home / shard_name(0)), pl.col("user").is_in(everybody.labels[at].tolist())
    read = len(buckets._around(scanned, here).collect())
    assert read <= number * buckets.USERS_AT_ONCE or read == len(everybody)


def test_damage_is_noticed(tmp_path):
    data = prefkin.open_comparisons(written(tmp_path / "votes", votes(2000, 16)))
    file = data.home / shard_name(0)
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 2] ^= 1
    file.write_bytes(whole)
    with pytest.raises(ShardError, match="damaged"):
        data.shard(0)
    file.write_bytes(whole[:100])
    with pytest.raises(ShardError, match="damaged"):
        data.shard(0)
    file.unlink()
    with pytest.raises(ShardError, match="gone"):
        data.shard(0)


def test_two_runs_do_not_meet(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    folder = written(tmp_path / "votes", votes())
    data = prefkin.open_comparisons(folder)
    (data.home / MANIFEST).unlink()
    with (data.home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ShardError, match="another run is at work"):
            prefkin.open_comparisons(folder)


def test_codes_spread_users_evenly_and_stay():
    for labels in (np.arange(10_000), np.array([f"user {k}" for k in range(10_000)])):
        counts = np.bincount((code_of(labels) % np.uint64(16)).astype(int), minlength=16)
        assert counts.min() > 500
        assert counts.max() < 750
    assert code_of(np.array([0, 1])).tolist() == [0, 6238072747940578789]
    assert int(code_of(np.array(["ann"]))[0]) == 11957940740637538957
