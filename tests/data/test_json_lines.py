"""JSON lines: quick, and what Python's own reader finds in them."""

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefkin.data import json_lines
from prefkin.data.json_lines import read_json_lines
from prefkin.errors import InvalidTable

LABELS = ("user", "prompt", "chosen", "rejected")


def content(rows, **options):
    return "".join(json.dumps(row, **options) + "\n" for row in rows).encode()


def found(text, names=LABELS):
    frame, labels = read_json_lines(text, names)
    return {
        name: labels[name].tolist()
        if name in labels
        else frame[name].to_list()
        if name in frame
        else [None] * len(frame)
        for name in names
    }


CHAT = {"prompt": "a: b", "chosen": [{"role": "user", "content": 'say "x": now'}], "user": "u"}


def test_plain_rows_are_not_read_by_python(monkeypatch):
    monkeypatch.setattr(json_lines.json, "loads", None)
    many = [CHAT | {"user": f"u{i}", "z": [1.5, i]} for i in range(3)]
    frame, labels = read_json_lines(content(many), LABELS)
    assert labels == {}
    assert frame["user"].to_list() == ["u0", "u1", "u2"]
    assert frame["chosen"].to_list() == [CHAT["chosen"]] * 3


@pytest.mark.parametrize("at", [0, 5, 2500])  # beyond the rows from which types are taken
@pytest.mark.parametrize(
    "row",
    [
        '{"user": "a", "prompt": "q", "user": "b"}',
        '{"user": "a", "prompt": "q", "user" : "b"}',
        '{"user": "a", "user": "b"}',
        '{"user": "a", "prompt": "q", "\\u0075ser": "b"}',
        '{"user": "a", "prompt": {"x": 1, "x": 2}}',
        '{"user": "a", "prompt": "q", "new": {"x": "1", "x": "2"}}',
    ],
)
def test_a_key_that_stands_twice_is_found_wherever_it_is(at, row):
    lines = ['{"user": "u", "prompt": ": p"}'] * 3000
    lines[at] = row
    with pytest.raises(InvalidTable, match="stands twice in one JSON object"):
        read_json_lines("\n".join(lines).encode(), LABELS)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"user": "a" "y": 1}', "line 4, column 14 is no JSON: Expecting ',' delimiter; mend it"),
        ('{"user": "a",', "line 4, column 14 is no JSON"),
        ("nothing", "line 4, column 1 is no JSON: Expecting value"),
        ('{"user": "a", "y": NaN}', "line 4: NaN is no JSON; write null"),
        ('{"user": "\udcff"}', "line 4 is no JSON: 'utf-8' codec"),
        ("[1]", "line 4 is not a JSON object"),
        ('{"user": 1, "user": 2}', "line 4: key 'user' stands twice"),
    ],
)
def test_damage_is_named_by_the_line_of_the_file(row, message):
    text = '{"user": "a", "y": 1}\n\n{"user": "b", "y": 0}\n' + row + '\n{"user": "c", "y": 0}\n'
    with pytest.raises(InvalidTable, match=message):
        read_json_lines(text.encode(errors="surrogateescape"), LABELS)


@pytest.mark.parametrize("at", [0, 2500])
@pytest.mark.parametrize("odd", [7, "7", 7.5, 2**53 + 1, 10**25, None, True, ["a", "b"], [{"content": 5}]])
@pytest.mark.parametrize("usual", ["7", 7, [{"content": "x"}]])
def test_labels_are_what_json_has(at, odd, usual):
    values = [usual] * 3000
    values[at] = odd
    rows = [{"user": value, "y": 1} for value in values]
    try:
        read = found(content(rows))["user"]
    except pl.exceptions.PolarsError:
        assert isinstance(odd, list) != isinstance(usual, list)  # a list beside none is no column
        return
    assert [json.dumps(value) for value in read] == [json.dumps(value) for value in values]


def test_columns_of_later_rows_are_there():
    rows = [{"user": "a"}] * 2000 + [{"user": "b", "prompt": "late"}]
    assert found(content(rows))["prompt"] == [None] * 2000 + ["late"]


def test_halves_of_characters_are_not_merged():
    rows = [{"user": "\ud800"}, {"user": "\ud801"}, {"user": "\U0001f600"}]
    assert found(content(rows))["user"] == ["\ud800", "\ud801", "\U0001f600"]


def test_blank_lines_and_a_byte_order_mark_do_not_matter():
    text = b"\xef\xbb\xbf" + content([{"user": "a"}]) + b"\n   \t \r\n" + content([{"user": "b"}]).rstrip()
    assert found(text)["user"] == ["a", "b"]


texts = st.text(alphabet=st.sampled_from('":\\ ,{}[]a\té\U0001f600'), max_size=6)
values = st.one_of(texts, st.integers(-(2**70), 2**70), st.booleans(), st.none())
chats = st.lists(st.fixed_dictionaries({"role": texts}, optional={"content": texts}), max_size=2)
lines = st.fixed_dictionaries({}, optional={"user": values, "prompt": texts, "chosen": chats, 'x"\\': texts})


@given(st.lists(lines, min_size=1, max_size=5), st.booleans(), st.sampled_from([None, (",", ":"), (" , ", " : ")]))
def test_whatever_it_is_python_finds_the_same(rows, ascii, separators):
    try:
        read = found(content(rows, ensure_ascii=ascii, separators=separators))
    except pl.exceptions.PolarsError:
        return  # kinds that are no column
    for name, column in read.items():
        expected = [row.get(name) for row in rows]
        for one, other in zip(expected, column, strict=True):
            if isinstance(one, list):  # a key that is null is one that is not there
                one = [{key: part.get(key) for key in ("role", "content")} for part in one]
                other = [{key: part.get(key) for key in ("role", "content")} for part in other]
            assert type(one) is type(other)
            assert one == other
