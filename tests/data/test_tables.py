import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import prefkin
from prefkin.data.formats import FORMATS
from prefkin.data.storage import label_from_json, label_to_json, write_atomically
from prefkin.data.tables import read_candidates, read_comparisons, read_pairs
from prefkin.errors import FeaturesWarning, InvalidComparisons, InvalidTable, PrefkinError

Z = np.array([[0.5, -1.0], [0.25, 2.0], [1.0, 0.0]])
wide = pl.DataFrame({"user": ["ann", "bo", "ann"], "y": [1, 0, 1], "z0": Z[:, 0], "z1": Z[:, 1]})
listed = pl.DataFrame({"user": ["ann", "bo", "ann"], "y": [1, 0, 1], "z": Z.tolist()})
items = {"p": [1.0, 0.0], "q": [0.0, 0.0], "r": [0.0, 1.0]}


def write(frame, path):
    {".csv": frame.write_csv, ".parquet": frame.write_parquet, ".jsonl": frame.write_ndjson}[path.suffix](path)
    return path


def same(data):
    assert np.array_equal(data.Z, Z)
    assert data.y.tolist() == [1, 0, 1]
    assert data.users.tolist() == ["ann", "bo", "ann"]


@pytest.mark.parametrize("name", ["votes.csv", "votes.parquet", "votes.jsonl"])
def test_numbered_columns_are_read_from_every_format(tmp_path, name):
    data = read_comparisons(write(wide, tmp_path / name))
    same(data)
    assert data.feature_names == ("z0", "z1")


@pytest.mark.parametrize("name", ["votes.parquet", "votes.jsonl"])
def test_list_columns_are_read(tmp_path, name):
    same(read_comparisons(write(listed, tmp_path / name)))


def test_npz_is_read_with_its_own_names_or_mapped_ones(tmp_path):
    np.savez(tmp_path / "votes.npz", users=["ann", "bo", "ann"], y=[1, 0, 1], Z=Z)
    same(read_comparisons(tmp_path / "votes.npz"))
    np.savez(tmp_path / "sides.npz", who=["ann", "bo", "ann"], y=[1, 0, 1], first=Z + 1, second=np.ones((3, 2)))
    same(read_comparisons(tmp_path / "sides.npz", {"user": "who"}))


@pytest.mark.parametrize("convert", [lambda f: f, lambda f: f.to_pandas(), lambda f: f.to_arrow()])
@pytest.mark.parametrize("frame", [wide, listed])
def test_frames_of_every_kind_are_accepted(convert, frame):
    same(read_comparisons(convert(frame)))


def test_fixed_size_and_single_precision_lists_are_read():
    array = pa.FixedSizeListArray.from_arrays(pa.array(Z.ravel().astype(np.float32)), 2)
    same(read_comparisons(pa.table({"user": ["ann", "bo", "ann"], "y": [True, False, True], "z": array})))


def test_both_sides_context_and_weight_are_read():
    frame = pl.DataFrame(
        {
            "worker": ["a", "b"],
            "y": [1, 0],
            "first0": [1.0, 2],
            "second0": [0.5, 1],
            "context": ["q", "r"],
            "weight": [2, 1],
        }
    )
    data = read_comparisons(frame)
    assert data.Z.tolist() == [[0.5], [1.0]]
    assert data.contexts.tolist() == ["q", "r"]
    assert data.weights.tolist() == [2.0, 1.0]
    assert prefkin.Candidates.from_comparisons(data).sizes.tolist() == [2, 2]


def test_columns_can_be_mapped_and_feature_prefixes_too():
    frame = wide.rename({"user": "rater", "y": "won", "z0": "diff_0", "z1": "diff_1"})
    same(read_comparisons(frame, {"user": "rater", "y": "won", "z": "diff_"}))


def test_features_may_have_names_of_their_own(tmp_path):
    frame = wide.rename({"z0": "tone", "z1": "price"}).with_columns(length=pl.lit(3))
    for source in (frame, frame.to_pandas(), write(frame, tmp_path / "votes.csv"), write(frame, tmp_path / "v.jsonl")):
        data = read_comparisons(source, features=["tone", "price"])
        same(data)
        assert data.feature_names == ("tone", "price")
    assert read_comparisons(frame, features=["price"]).Z.tolist() == Z[:, 1:].tolist()


def test_both_sides_items_and_candidates_may_have_features_of_their_own_names():
    sides = {"first_tone": [1.0, 2], "second_tone": [0.5, 1]}
    data = read_comparisons(pl.DataFrame({"user": ["a", "b"], "y": [1, 0], **sides}), features=["tone"])
    assert (data.Z.tolist(), data.feature_names) == ([[0.5], [1.0]], ("tone",))
    won = {"user": ["a"], "best_tone": [1.0], "loser_tone": [3.0]}
    assert read_comparisons(pl.DataFrame(won), {"winner": "best"}, features=["tone"]).Z.tolist() == [[2.0]]
    named = pl.DataFrame({"item": ["p", "q"], "tone": [1.0, 0.0], "price": [0.0, 2.0]})
    votes = pl.DataFrame({"user": ["a"], "winner": ["p"], "loser": ["q"]})
    data = read_comparisons(votes, items=named, features=["price", "tone"])
    assert (data.Z.tolist(), data.feature_names) == ([[2.0, -1.0]], ("price", "tone"))
    cands = read_candidates(
        named.rename({"item": "action"}).with_columns(context=pl.lit("x")), features=["price", "tone"]
    )
    assert (cands.features.tolist(), cands.feature_names) == ([[0.0, 1.0], [2.0, 0.0]], ("price", "tone"))


def test_a_weight_may_be_a_feature():
    """Of things that weigh something: in a table of items it means nothing else, elsewhere where it is named so."""
    things = pl.DataFrame({"item": ["p", "q"], "price": [1.0, 0.0], "weight": [0.0, 2.0]})
    votes = pl.DataFrame({"user": ["a"], "winner": ["p"], "loser": ["q"]})
    with pytest.warns(FeaturesWarning, match="price,weight;"):
        data = read_comparisons(votes, items=things)
    assert (data.Z.tolist(), data.y.tolist()) == ([[1.0, -2.0]], [1.0])
    with pytest.warns(FeaturesWarning, match="price,weight;"):
        assert read_candidates(things).features.tolist() == [[1.0, 0.0], [0.0, 2.0]]
    differences = pl.DataFrame({"user": ["a", "b"], "y": [1, 0], "price": [1.0, 2.0], "weight": [-3.0, 2.0]})
    data = read_comparisons(differences, features=["price", "weight"])
    assert (data.Z.tolist(), data.weights.tolist()) == ([[1.0, -3.0], [2.0, 2.0]], [1.0, 1.0])


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (["tone", "weight of it"], "feature 'weight of it' is not among the columns; the table has: user, y, tone"),
        (["tone", "tone"], "feature 'tone' is named twice"),
        ("tone", "features must be a list of column names; got the single text 'tone'"),
        (["none"], "lacks the features"),
    ],
)
def test_named_features_that_are_not_there_are_refused(features, message):
    with pytest.raises(InvalidTable, match=message):
        read_comparisons(wide.rename({"z0": "tone", "z1": "price"}), features=features)


def test_a_new_format_is_one_entry(tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS, ".tsv", lambda path, _: {name: wide[name].to_numpy() for name in wide.columns})
    (tmp_path / "votes.tsv").write_text("anything")
    same(read_comparisons(tmp_path / "votes.tsv"))


def test_winner_loser_rows_get_sides_by_features_not_by_who_won():
    frame = pl.DataFrame({"user": ["a", "a", "a"], "winner": ["p", "q", "r"], "loser": ["q", "p", "p"]})
    data = read_comparisons(frame, items=items)
    assert data.Z.tolist() == [[1.0, 0.0], [1.0, 0.0], [1.0, -1.0]]
    assert data.y.tolist() == [1.0, 0.0, 0.0]


def test_left_right_label_rows_keep_their_sides():
    frame = pd.DataFrame({"worker": [7, 8], "left": ["p", "q"], "right": ["q", "r"], "label": ["q", "left"]})
    data = read_comparisons(frame, items=items)
    assert data.users.tolist() == [7, 8]
    assert data.y.tolist() == [0.0, 1.0]
    assert data.first.tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_items_can_be_a_table(tmp_path):
    path = write(pl.DataFrame({"item": list(items), "phi0": [1.0, 0, 0], "phi1": [0.0, 0, 1]}), tmp_path / "items.csv")
    frame = pl.DataFrame({"user": ["a"], "winner": ["r"], "loser": ["p"]})
    assert read_comparisons(frame, items=path).Z.tolist() == [[1.0, -1.0]]


def embed(texts):
    return [[len(text), text.count("e")] for text in texts]


def test_chosen_rejected_texts_go_through_the_embedding_once_each():
    seen = []

    def counting(texts):
        seen.append(texts)
        return embed(texts)

    frame = pl.DataFrame(
        {"annotator": ["a", "b"], "prompt": ["Q", "Q"], "chosen": ["eee", "no"], "rejected": ["no", "eee"]}
    )
    data = read_comparisons(frame, embed=counting)
    assert all(len(texts) == len(set(texts)) for texts in seen)
    assert data.y.tolist() == [1.0, 0.0]
    assert np.array_equal(data.Z[0], data.Z[1])
    assert data.contexts.tolist() == ["Q", "Q"]


def test_chosen_rejected_embeddings_and_chats_are_read(tmp_path):
    rows = [
        {"user_id": 1, "prompt": "Q", "chosen": [{"role": "assistant", "content": "yes"}],
         "rejected": [{"role": "assistant", "content": "no"}], "chosen_embedding": [1.0, 0.0], "rejected_embedding": [0.0, 1.0]}
    ]  # fmt: skip
    path = tmp_path / "chat.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    assert read_comparisons(path).Z.tolist() == [[1.0, -1.0]]
    assert read_comparisons(pl.read_ndjson(path).drop("chosen_embedding", "rejected_embedding"), embed=embed).dim == 2


def test_integer_users_stay_integers_where_some_are_missing():
    frame = pl.DataFrame({"user": [1, None, 2], "y": [1, 1, 0], "z0": [1.0, 2.0, 3.0]})
    assert read_comparisons(frame, drop="missing").users.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (
            wide.drop("user"),
            {},
            "lacks column user .* it has: y, z0, z1; name other columns with .*--map user=",
        ),
        (wide.drop("y"), {}, "lacks the answer"),
        (wide.drop("z0", "z1"), {}, "lacks the features"),
        (wide.drop("z0"), {}, "column z0 is missing, but there is z1"),
        (wide, {"columns": {"usr": "user"}}, "unknown field 'usr' in the column mapping; known: user, y"),
        (wide, {"columns": {"user": "usr"}}, r"column 'usr' \(for user\) is missing; the table has: user, y"),
        (wide, {"columns": {"z0": "tone"}}, "z0 is one of the features, which need no mapping: name them, features="),
        (wide, {"columns": {"z": "z0"}}, r"column z0 \(for z\) holds a number in each row, .*: features="),
        (wide, {"columns": {"y": "z0"}, "features": ["z0"]}, "column 'z0' is given as y and as a feature"),
        (wide.head(0), {}, "no rows"),
        (
            wide.with_columns(z0=pl.lit("x")),
            {},
            r"column z0 is not a number in row 0 \(counted from 0\): 'x'",
        ),
        (
            pl.DataFrame({"user": ["a"], "winner": ["p"], "loser": ["q"]}),
            {},
            "names items, whose features are not known",
        ),
        (
            pl.DataFrame({"user": ["a"], "winner": ["p"], "loser": ["X"]}),
            {"items": items},
            "item 'X' of column loser, row 0",
        ),
        (
            pl.DataFrame({"worker": ["a"], "left": ["p"], "right": ["q"], "label": ["r"]}),
            {"items": items},
            "label 'r' in row 0 .* is neither",
        ),
        (
            pl.DataFrame({"user": ["a"], "chosen": ["p"], "rejected": ["q"]}),
            {},
            "holds texts; give their embeddings",
        ),
        (
            pl.DataFrame({"user": ["a"], "chosen": ["p"], "rejected": ["q"]}),
            {"embed": lambda texts: [1.0]},
            "embed returned shape",
        ),
        ([1, 2], {}, "cannot read a list"),
    ],
)
def test_a_table_that_does_not_fit_is_named(frame, options, message):
    with pytest.raises(InvalidTable, match=message) as caught:
        read_comparisons(frame, **options)
    assert "\n" not in str(caught.value)


def test_ragged_lists_are_named_by_row():
    frame = pl.DataFrame({"user": ["a", "b"], "y": [1, 0], "z": [[1.0, 2.0], [1.0]]})
    with pytest.raises(InvalidComparisons, match="Z mixes dimensions: row 1"):
        read_comparisons(frame)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("votes.csv", b"", "votes.csv: the file is empty"),
        ("votes.parquet", b"PAR1 not really", "votes.parquet: not a readable .parquet file"),
        ("votes.npz", b"PK nothing", "votes.npz: not a readable .npz file"),
        ("votes.jsonl", b"{'user': 1", "votes.jsonl: line 1, column 2 is no JSON"),
        ("votes.xlsx", b"x", "files ending in .xlsx are not read; use"),
        (
            "votes.csv",
            b"user,y,z0\na,0.5,1\n",
            r"votes.csv: y must be 0 or 1, but row 0 \(counted from 0\) is a tie",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PrefkinError, match=message) as caught:
        read_comparisons(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_column_whose_name_has_line_ends_does_not_break_the_message(tmp_path):
    (tmp_path / "odd.csv").write_bytes(b'user,"a\nb\rc"\nann,1\n')
    with pytest.raises(InvalidTable) as told:
        read_comparisons(tmp_path / "odd.csv")
    assert "it has: user, a\\nb\\rc;" in str(told.value)
    assert len(str(told.value).splitlines()) == 1


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidTable, match=r"none.csv: no such file"):
        read_comparisons(tmp_path / "none.csv")


def test_objects_in_npz_are_refused_not_unpickled(tmp_path):
    np.savez(tmp_path / "votes.npz", users=np.array(["a", 1], dtype=object), y=[1, 0], Z=[[1.0], [2.0]])
    with pytest.raises(InvalidTable, match="holds Python objects"):
        read_comparisons(tmp_path / "votes.npz")


def test_candidates_are_read_by_context(tmp_path):
    frame = pl.DataFrame(
        {
            "context": ["b", "a", "b"],
            "action": ["x", "y", "z"],
            "phi0": [1.0, 2.0, 3.0],
            "weight": [1.0, 3.0, 1.0],
        }
    )
    candidates = read_candidates(write(frame, tmp_path / "cands.csv"))
    assert candidates.contexts.tolist() == ["b", "a"]
    assert candidates.actions.tolist() == ["x", "z", "y"]
    assert candidates.weights.tolist() == [0.25, 0.75]
    np.savez(tmp_path / "cands.npz", features=np.ones((2, 3, 4)), weights=[1, 1])
    assert len(read_candidates(tmp_path / "cands.npz")) == 2
    with pytest.raises(InvalidTable, match="weight differs within a context"):
        read_candidates(frame.with_columns(weight=pl.Series([1.0, 3.0, 2.0])))
    with pytest.raises(InvalidTable, match="lacks column action"):
        read_candidates(frame.drop("action"))


@pytest.mark.parametrize("label", ["a", 1, 2.5, True, None, ("a", (1, "b")), np.int64(3)])
def test_labels_survive_json(label):
    assert label_from_json(json.loads(json.dumps(label_to_json(label)))) == label


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_what_is_offered_for_a_table_of_items_works():
    """`columns` and --map are about the votes: no remedy for the items."""
    votes = pl.DataFrame({"user": ["a"], "winner": ["p"], "loser": ["q"]})
    for items in (
        pl.DataFrame({"itme": ["p", "q"], "phi0": [1.0, 0.0]}),
        pl.DataFrame({"n": ["p", "q"], "phi0": [1.0, 0.0]}),
    ):
        with pytest.raises(InvalidTable, match="rename") as told:
            read_comparisons(votes, items=items)
        assert "--map" not in str(told.value)
        renamed = items.rename({items.columns[0]: "item"})
        assert len(read_comparisons(votes, items=renamed)) == 1


def arena(winners):
    rows = {"judge": ["ann", "bo", "ann"], "model_a": ["p", "q", "p"], "model_b": ["q", "r", "r"], "winner": winners}
    return pl.DataFrame(rows)


def test_votes_of_an_arena_are_read():
    data = read_comparisons(arena(["model_a", "model_b", "p"]), items=items)
    assert (data.y.tolist(), data.users.tolist()) == ([1, 0, 1], ["ann", "bo", "ann"])
    assert data.items.tolist() == [["p", "q"], ["q", "r"], ["p", "r"]]
    chats = [[{"role": "user", "content": "q"}, {"role": "assistant", "content": f"said {i}"}] for i in range(3)]
    heard = []
    spoken = arena(["model_a", "model_b", "p"]).with_columns(
        conversation_a=pl.Series(chats), conversation_b=pl.Series(chats[::-1])
    )
    read_comparisons(spoken, embed=lambda texts: heard.extend(texts) or np.eye(len(texts)))
    assert set(heard) == {f"q\nsaid {i}" for i in range(3)}


@pytest.mark.parametrize("tie", ["tie", "tie (bothbad)"])
def test_ties_of_an_arena_are_a_choice(tie):
    votes = arena(["model_a", tie, "model_b"])
    with pytest.raises(
        InvalidComparisons, match=r"row 1 .* is a tie; .*drop='ties'.*--drop ties.*ties='half'.*--ties half"
    ):
        read_comparisons(votes, items=items)
    assert read_comparisons(votes, items=items, drop="ties").dropped == {"ties": 1}
    data = read_comparisons(votes, items=items, ties="half")
    assert data.y.tolist() == [1, 1, 0, 0]
    assert data.weights.tolist() == [1, 0.5, 0.5, 1]
    assert data.items.tolist() == [["p", "q"], ["q", "r"], ["q", "r"], ["p", "r"]]
    with pytest.raises(InvalidComparisons, match="ties may be 'half'"):
        read_comparisons(votes, items=items, ties="both")


def test_half_a_tie_for_each_side_teaches_that_nothing_differs():
    Z, users = np.array([[1.0], [1.0], [1.0]]), ["a", "a", "a"]
    kept = prefkin.Comparisons.from_arrays(Z, [1, 0.5, np.nan], users, ties="half", drop="missing", weights=[1, 2, 1])
    assert (kept.y.tolist(), kept.weights.tolist()) == ([1, 1, 0], [1, 1, 1])


def test_answers_in_words_of_their_own_are_named_once():
    votes = wide.with_columns(y=pl.Series(["up", "down", "UP "]))
    assert read_comparisons(votes, positive="up").y.tolist() == [1, 0, 1]
    assert read_comparisons(votes, positive="down").y.tolist() == [0, 1, 0]
    assert read_comparisons(wide.with_columns(y=pl.Series([2, 1, 2])), positive="1").y.tolist() == [0, 1, 0]
    named = pl.DataFrame({"worker": ["a", "b"], "left": ["p", "q"], "right": ["q", "r"], "label": ["A", "B"]})
    assert read_comparisons(named, items=items, positive="A").y.tolist() == [1, 0]
    with pytest.raises(InvalidComparisons, match="'up', 'down' and, in row 2 .*, 'skip'"):
        read_comparisons(votes.with_columns(y=pl.Series(["up", "down", "skip"])), positive="up")
    with pytest.raises(InvalidComparisons, match="no answer is 'yse', which .* they are 'up', 'down', 'skip'"):
        read_comparisons(votes.with_columns(y=pl.Series(["up", "down", "skip"])), positive="yse")
    with pytest.raises(InvalidComparisons, match="no answer is 'yes'"):
        read_comparisons(votes.with_columns(y=pl.Series(["up", "up", "up"])), positive="yes")


def test_every_column_of_numbers_without_another_use_is_a_feature_and_that_is_said():
    votes = wide.rename({"z0": "tone", "z1": "price"}).with_columns(note=pl.lit("x"), weight=pl.lit(2))
    with pytest.warns(FeaturesWarning, match=r"without another use: tone,price; .*--features"):
        data = read_comparisons(votes)
    same(data)
    assert data.feature_names == ("tone", "price")
    sides = pl.DataFrame({"user": ["a"], "y": [1], "first_tone": [1.0], "second_tone": [3.0], "length": [5]})
    with pytest.warns(FeaturesWarning, match="without another use: tone; left out: length;"):
        data = read_comparisons(sides)
    assert (data.Z.tolist(), data.feature_names) == ([[-2.0]], ("tone",))


MARKS = ["id", "row_id", "timestamp", "created_at", "Date", "index", "", "itemId", "Unnamed: 0"]


@pytest.mark.parametrize("name", MARKS)
def test_marks_of_rows_are_no_features_unless_they_are_named(name):
    votes = wide.with_columns(pl.Series(name, range(1, len(wide) + 1)), acid=pl.lit(1.5), note=pl.lit("x"))
    votes = votes.rename({"z0": "tone", "z1": "price"})
    with pytest.warns(FeaturesWarning, match=f"use: tone,price,acid; left out: {name},note; to choose"):
        assert read_comparisons(votes).feature_names == ("tone", "price", "acid")
    assert read_comparisons(votes, features=["tone", name]).feature_names == ("tone", name)


def test_texts_of_digits_and_truths_are_no_features():
    votes = pl.DataFrame({"user": list("aabb"), "y": [1, 0, 1, 0], "price": [1, 2, 3, 4], "time": [3, 1, 2, 5]})
    votes = votes.with_columns(postcode=pl.Series(["94110", "10115", "75001", "20095"]))
    frame = votes.to_pandas().assign(seen=pd.Series([True, None, False, True], dtype=object))
    with pytest.warns(FeaturesWarning, match="use: price,time; left out: postcode,seen;"):
        assert read_comparisons(frame).feature_names == ("price", "time")


@pytest.mark.parametrize("slip", ["abc", "1,5"])
@pytest.mark.parametrize("how", ["csv", "polars", "pandas"])
def test_a_slip_in_a_column_of_differences_is_told_by_its_row(tmp_path, slip, how):
    votes = pl.DataFrame(
        {"user": list("aabb"), "y": [1, 0, 1, 0], "price": [1, 2, 3, 4], "tone": ["1", "", slip, "-2.5"]}
    )
    votes.write_csv(tmp_path / "v.csv")
    source = {"csv": tmp_path / "v.csv", "polars": votes, "pandas": votes.to_pandas()}[how]
    told = rf"column tone is not a number in row 2 .*: '{slip}'; mend it, or choose other features: features="
    with pytest.warns(FeaturesWarning, match="price,tone"), pytest.raises(InvalidTable, match=told):
        read_comparisons(source)
    votes = votes.with_columns(tone=pl.Series(["one", "", slip, "2"]))
    with pytest.warns(FeaturesWarning, match="use: price; left out: tone;"):
        assert read_comparisons(votes).dim == 1


@pytest.mark.parametrize(("one", "other"), [("left", "right"), ("a", "b"), ("option_a", "option_b")])
def test_sides_have_other_names_too(one, other):
    table = {"user": ["x"], "y": ["left"], f"{one}_tone": [1.0], f"{other}_tone": [3.0], f"{one}_id": ["p"]}
    votes = pl.DataFrame(table)
    with pytest.warns(FeaturesWarning, match="without another use: tone;"):
        data = read_comparisons(votes)
    assert (data.Z.tolist(), data.y.tolist(), data.feature_names) == ([[-2.0]], [1.0], ("tone",))
    assert data.first.tolist() == [[1.0]]  # sides are known, so that a habit of taking the left one can be seen
    assert read_comparisons(votes, features=["tone"]).Z.tolist() == [[-2.0]]
    assert read_pairs(votes, features=["tone"]).Z.tolist() == [[-2.0]]
    assert read_comparisons(votes, features=[f"{one}_tone"]).Z.tolist() == [[1.0]]  # whoever says what they mean


def test_a_table_of_items_is_enough_as_candidates():
    table = pl.DataFrame({"item": ["p", "q"], "tone": [1.0, 0.0], "price": [0.0, 2.0]})
    cands = read_candidates(table, features=["tone", "price"])
    assert (cands.sizes.tolist(), cands.contexts.tolist(), cands.actions.tolist()) == ([2], ["all"], ["p", "q"])
    with pytest.warns(FeaturesWarning):
        assert read_candidates(table).feature_names == ("tone", "price")
    with pytest.raises(InvalidTable, match=r"column item is no name in row 0 .*: \['p'\]"):
        read_candidates(pl.DataFrame({"item": [["p"]], "phi0": [1.0]}))
    with pytest.raises(InvalidTable, match="'p' stands twice"):
        read_candidates(pl.concat([table, table]), features=["tone"])


@pytest.mark.parametrize("slip", ["nan", "n.a.", "1,5"])
def test_one_slip_in_a_column_of_numbers_does_not_drop_the_feature(tmp_path, slip):
    path = tmp_path / "votes.csv"
    rows = ["user,y,first_salt,first_fat,second_salt,second_fat", "ann,1,.1,.2,.3,.4", f'bo,0,.5,.6,.7,"{slip}"']
    path.write_text("\n".join(rows) + "\n")
    with pytest.warns(FeaturesWarning), pytest.raises(PrefkinError, match="row 1"):
        read_comparisons(path)
