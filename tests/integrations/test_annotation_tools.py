"""Label Studio's and Argilla's own packages accept what is written, and what they write is read."""

import json
import uuid

import numpy as np
import polars as pl
import pytest

import prefkin
from prefkin.data.exports import TOOLS, Given, Shown, exported_rows
from tests.conftest import draw_answers, prefkin_says

pytestmark = pytest.mark.integrations

LABELING = """<View><Text name="prompt" value="$prompt"/><Pairwise name="comparison" toName="left,right"/>
<Text name="left" value="$left"/><Text name="right" value="$right"/></View>"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Tasks and records for six people."""
    path, rng = tmp_path_factory.mktemp("work"), np.random.default_rng(7)
    Z, y, users = draw_answers(rng, sizes=[40] * 6)
    pl.DataFrame({"user": [f"user {u}" for u in users], "y": y, "z": Z.tolist()}).write_parquet(path / "votes.parquet")
    pl.DataFrame(
        {
            "context": ["tea"] * 5,
            "action": [f"cup {k}" for k in range(5)],
            "text": [f"Text of cup {k}." for k in range(5)],
            "prompt": ["Which?"] * 5,
            "phi": rng.standard_normal((5, 3)).tolist(),
        }
    ).write_parquet(path / "items.parquet")
    assert prefkin_says("fit", "votes.parquet", "--out", "kin", "--no-pictures", cwd=path).returncode == 0
    for form in ("labelstudio", "argilla"):
        done = prefkin_says(
            "export", "kin", "--to", form, "--candidates", "items.parquet", "--out", f"{form}.json", cwd=path
        )
        assert done.returncode == 0, done.stderr
    return path


def test_label_studio_accepts_tasks_and_their_answers_are_fitted(written):
    from label_studio_sdk.label_interface import LabelInterface
    from label_studio_sdk.types import ImportApiRequest

    interface = LabelInterface(LABELING)
    tasks = json.loads((written / "labelstudio.json").read_text())
    for task in tasks:
        assert interface.validate_task(task)
        ImportApiRequest.model_validate(task)
    for number, task in enumerate(tasks):
        region = interface.get_control("comparison").label("left")._dict()
        annotation = {"id": number, "completed_by": 1 + number % 2, "result": [region], "was_cancelled": False}
        task["annotations"] = [annotation]
    (written / "answered.json").write_text(json.dumps(tasks))
    data = prefkin.read_comparisons(written / "answered.json", {"user": "asked"})
    assert sorted(set(data.users.tolist())) == [f"user {u}" for u in range(6)]
    assert data.y.tolist() == [1.0] * len(tasks)
    np.testing.assert_allclose(data.first, [task["data"]["first"] for task in tasks])


def test_argilla_takes_records_and_their_answers_are_read(written):
    import argilla as rg

    records, answered = json.loads((written / "argilla.json").read_text()), []
    for record in records:
        taken = rg.Record.from_dict(record)
        assert taken.fields["response_1"] == record["fields"]["response_1"]
        assert taken.metadata["asked"] == record["metadata"]["asked"]
        answer = rg.Response(question_name="preference", value="response_2", user_id=uuid.uuid4())
        answered.append(rg.Record(**record, responses=[answer]).to_dict())
    (written / "answered.json").write_text(json.dumps(answered, default=str))
    items = {row["text"]: row["phi"] for row in pl.read_parquet(written / "items.parquet").iter_rows(named=True)}
    data = prefkin.read_comparisons(written / "answered.json", {"user": "asked"}, items=items)
    assert sorted(set(data.users.tolist())) == [f"user {u}" for u in range(6)]
    assert data.y.tolist() == [0.0] * len(records)


def test_both_take_in_answers_that_were_given_elsewhere():
    """What `prefkin answers --as` writes of a study; both sides and everybody's answers come back."""
    import argilla as rg
    from label_studio_sdk.label_interface import LabelInterface
    from label_studio_sdk.types import ImportApiRequest

    answers = (Given("Zoe", 0, 1.5), Given("Bo", 1))
    sides = np.array([1.0, 0.0]), np.array([0.0, 2.0])
    pair = Shown("tea", "Which?", ("green", "black"), ("Green tea.", "Black tea."), sides, answers=answers)
    [task], [record] = (json.loads(TOOLS[name]([pair])) for name in ("labelstudio", "argilla"))
    assert LabelInterface(LABELING).validate_task({"data": task["data"]})  # it cannot validate a Pairwise of its own
    notes = [note | {"completed_by": 1} for note in task["annotations"]]  # emails are for its server to resolve
    ImportApiRequest.model_validate(task | {"annotations": notes})
    taken = rg.Record.from_dict(record)
    assert [(one.value, one.user_id) for one in taken.responses] == [("response_1", "Zoe"), ("response_2", "Bo")]
    for written in ([task], [taken.to_dict()]):
        rows = exported_rows(written)
        assert [row["user"] for row in rows] == ["Zoe", "Bo"]
        assert [row.get("label", row.get("y")) for row in rows] == ["left", "right"]
