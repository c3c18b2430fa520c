"""What annotation tools export comes back as comparisons with the person attached."""

import json

import numpy as np
import pytest

from prefkin import read_comparisons
from prefkin.errors import InvalidTable

SHOWN = {"prompt": "Tea?", "left": "green", "right": "black"}
ITEMS = {"green": [1.0, 0.0], "black": [0.0, 1.0]}


def note(side, by, **more):
    return {"completed_by": by, "result": [{"type": "pairwise", "value": {"selected": side}}], **more}


def record(responses, **more):
    fields = {"prompt": "Tea?", "response_1": "green", "response_2": "black"}
    return {"id": "x", "fields": fields, "metadata": {}, "responses": responses, **more}


def read(tmp_path, content, **options):
    (tmp_path / "export.json").write_text(json.dumps(content))
    return read_comparisons(tmp_path / "export.json", **{"items": ITEMS} | options)


def test_tasks_of_label_studio(tmp_path):
    notes = [note("left", 7), note("right", {"id": 8, "email": "bo@x.org"}), note("left", 9, was_cancelled=True)]
    data = read(tmp_path, [{"id": 1, "data": SHOWN, "annotations": notes}, {"data": SHOWN, "annotations": []}])
    assert data.users.tolist() == [7, "bo@x.org"]
    assert data.y.tolist() == [1, 0]
    assert data.contexts.tolist() == ["Tea?"] * 2


def test_tasks_with_the_features_of_both_sides_need_no_items(tmp_path):
    shown = SHOWN | {"first": [1.0, 0.0], "second": [0.0, 1.0]}
    data = read(tmp_path, [{"data": shown, "annotations": [note("right", "ann")]}], items=None)
    assert (data.Z.tolist(), data.y.tolist(), data.users.tolist()) == ([[1.0, -1.0]], [0], ["ann"])


@pytest.mark.parametrize(
    "responses",
    [
        {"preference": [{"value": "response_1", "user_id": "5"}, {"value": "response_2", "user_id": "6"}]},
        {"order": [{"value": ["response_1", "response_2"], "user_id": "5"}, {"value": "response_2", "user_id": "6"}]},
        [
            {"question_name": "preference", "value": "response_1", "user": "5", "status": "submitted"},
            {"question_name": "preference", "value": "right", "user": "6"},
            {"question_name": "preference", "value": "right", "user": "7", "status": "discarded"},
        ],
    ],
)
def test_records_of_argilla(tmp_path, responses):
    data = read(tmp_path, [record(responses), record({})])
    assert (data.users.tolist(), data.y.tolist()) == (["5", "6"], [1, 0])


def test_texts_are_embedded_with_their_prompt(tmp_path):
    heard = []
    embed = lambda texts: heard.extend(texts) or np.eye(len(texts))  # noqa: E731
    data = read(tmp_path, [{"data": SHOWN, "annotations": [note("left", 7)]}], items=None, embed=embed)
    assert set(heard) == {"Tea?\n\ngreen", "Tea?\n\nblack"}
    assert data.y.tolist() == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": 1}, "a list of JSON objects is needed"),
        ([{"data": SHOWN, "annotations": []}], "nobody has answered any of the 1 entries"),
        ([{"id": 3, "data": SHOWN, "annotations": [{"result": []}]}], "task 3 .* without one pairwise answer"),
        ([record([{"value": "5 stars", "user": 1}])], "record 0 .* was answered '5 stars', which names neither"),
        ([{"fields": {"a": "b"}, "responses": []}], "record 0 .* has 1 fields"),
        ([], "empty"),
    ],
)
def test_what_is_no_comparison_is_refused_in_a_line(tmp_path, content, message):
    with pytest.raises(InvalidTable, match=f"export.json: .*{message}") as told:
        read(tmp_path, content)
    assert "\n" not in str(told.value)
