"""Loaders of the original files: read right on small made-up files, and on the real ones where they are."""

import csv
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from prefkin.errors import InvalidTable
from prefkin.reproduce.worlds.jester import jester_world, read_jester
from prefkin.reproduce.worlds.pairs import ItemPairs, data_folder, embedded, pair_world, semi_synthetic_world
from prefkin.reproduce.worlds.tldr import read_tldr
from prefkin.reproduce.worlds.ukp import read_ukp
from prefkin.reproduce.worlds.world import NO_ANSWER


def tldr_files(folder, rng, workers=3, posts=12):
    """Two batches in the original form, and embeddings of the summaries."""
    folder.mkdir()
    lines, texts = [], []
    for post in range(posts):
        sides = [f"summary {side} of {post}" + " word" * int(rng.integers(5)) for side in "ab"]
        texts += sides
        about = {"info": {"id": f"t3_{post}", "post": "..."}, "summaries": [{"text": text} for text in sides]}
        lines += [{**about, "choice": int(rng.integers(2)), "worker": f"w{worker}"} for worker in range(workers)]
    (folder / "batch3.json").write_text("\n".join(json.dumps(line) for line in lines[::2]))
    (folder / "batch4.json").write_text("\n".join(json.dumps(line) for line in lines[1::2]))
    np.savez(folder / "mpnet768.npz", summaries=np.array(texts), summary_emb=rng.standard_normal((len(texts), 6)))
    return lines


def test_tldr_reads_the_original_lines(tmp_path, rng):
    lines = tldr_files(tmp_path / "tldr", rng)
    table = read_tldr(tmp_path)
    given = {(x["worker"], x["info"]["id"], x["summaries"][0]["text"], x["choice"] == 0) for x in lines}
    read = {
        (user, post, table.texts[first], bool(y))
        for user, post, first, y in zip(table.users.tolist(), table.contexts.tolist(), table.first, table.y)
    }
    assert read == given


def test_tldr_says_where_to_get_the_files(tmp_path):
    with pytest.raises(InvalidTable, match=r"no batch\*.json there; download"):
        read_tldr(tmp_path)
    (tmp_path / "tldr").mkdir()
    (tmp_path / "tldr" / "batch1.json").write_text('{"info": {}}')
    with pytest.raises(InvalidTable, match=r"batch1.json: line 1 is no comparison"):
        read_tldr(tmp_path)


def test_ukp_leaves_ties_out(tmp_path, rng):
    here = tmp_path / "ukpconvarg"
    here.mkdir()
    (here / "arguments.jsonl").write_text(
        "\n".join(json.dumps({"id": f"a{i}", "topic": f"t{i % 2}", "text": "word " * (i + 1)}) for i in range(4))
    )
    with gzip.open(here / "judgements.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["worker", "topic", "first", "second", "preferred"])
        writer.writerows(
            [["w", "t0", "a0", "a2", "first"], ["w", "t0", "a2", "a0", "tie"], ["v", "t1", "a1", "a3", "second"]]
        )
    np.savez(here / "mpnet768.npz", ids=np.array([f"a{i}" for i in range(4)]), emb=rng.standard_normal((4, 3)))
    table = read_ukp(tmp_path)
    assert table.users.tolist() == ["w", "v"]
    assert table.y.tolist() == [1.0, 0.0]
    assert table.item_context.tolist() == ["t0", "t1", "t0", "t1"]


@pytest.mark.parametrize("read", [read_ukp, read_jester])
def test_missing_files_are_named(read, tmp_path):
    with pytest.raises(InvalidTable, match="no such file; see docs/experiments.md and set PREFKIN_DATA"):
        read(tmp_path)


def test_a_folder_that_was_not_named_is_asked_for(monkeypatch):
    monkeypatch.delenv("PREFKIN_DATA", raising=False)
    with pytest.raises(InvalidTable, match="set PREFKIN_DATA to their folder"):
        data_folder()


def test_contexts_of_a_split_are_whole(tmp_path, rng):
    tldr_files(tmp_path / "tldr", rng, workers=4, posts=20)
    world = pair_world(read_tldr(tmp_path), rng, dim=3, at_least=5, asked=2, offline=4)
    assert not set(world.data.contexts) & set(world.held_out.contexts)
    assert world.n_users == 4
    assert (np.bincount(world.data.users)[:2] == 4).all()  # the rest of theirs are questions
    for pool in world.pools:
        assert (pool.answers[:, 0, 1] + pool.answers[:, 1, 0] == 1).all()


def test_too_few_people_are_refused(tmp_path, rng):
    tldr_files(tmp_path / "tldr", rng)
    with pytest.raises(InvalidTable, match="only 0 people have 1000 comparisons or more"):
        read_tldr(tmp_path).of_frequent(1000)


def test_jester_answers_are_ratings(rng):
    ratings = rng.integers(-10, 11, size=(40, 20)).astype(float)
    world = jester_world(
        ratings, np.random.default_rng(0), users=5, rows=30, dim=3, asked=1, pool_contexts=50, actions=3
    )
    assert np.array_equal(world.advantage > 0, world.data.y == 1)
    known = set(map(tuple, world.data.first)) | set(map(tuple, world.data.second))
    assert not known & set(map(tuple, world.contexts.features))  # jokes recommended are jokes not compared
    answers = world.pools[0].answers
    assert set(np.unique(answers[:, 0, 1])) <= {NO_ANSWER, 0, 1}
    assert world.reward.shape == (5, 300 * 3)


def test_semi_synthetic_people_are_planted_on_real_features(tmp_path, rng):
    tldr_files(tmp_path / "tldr", rng, workers=4, posts=20)
    table = read_tldr(tmp_path)
    world = semi_synthetic_world(
        table, rng, dim=3, users=6, groups=2, rows=15, strength=3.0, spread=0.5, at_least=5, asked=1, pool_contexts=9
    )
    features = table.features(3)
    differences = {tuple(np.round(a - b, 9)) for a in features for b in features}
    assert {tuple(row) for row in np.round(world.data.Z, 9)} <= differences
    assert world.group.shape == (6,)


def test_each_text_is_embedded_once(tmp_path):
    asked = []

    def embed(texts):
        asked.extend(texts)
        return np.array([[len(text), 1.0] for text in texts])

    first = embedded(["b", "a", "b"], tmp_path / "cache.npz", embed=embed)
    again = embedded(["a", "ccc", "b"], tmp_path / "cache.npz", embed=embed)
    assert sorted(asked) == ["a", "b", "ccc"]
    assert first.tolist() == [[1, 1], [1, 1], [1, 1]]
    assert again.tolist() == [[1, 1], [3, 1], [1, 1]]


REAL = Path(os.environ.get("PREFKIN_DATA", Path(__file__).parents[3] / "shared/data"))


@pytest.mark.skipif(not (REAL / "tldr").exists(), reason="no real data at $PREFKIN_DATA or ../shared/data")
def test_the_real_files_read_as_documented(monkeypatch):
    monkeypatch.setenv("PREFKIN_DATA", str(REAL))
    table = read_tldr(data_folder())
    assert isinstance(table, ItemPairs)
    assert table.embedding.shape[1] == 768
    assert len(np.unique(read_ukp(data_folder()).contexts)) == 32
    assert read_jester(data_folder()).shape[1] == 100
