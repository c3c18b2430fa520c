"""Label Studio's and Argilla's own packages accept what is written, and what they write is read."""

import json

import numpy as np
import polars as pl
import pytest

import prefkin
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

    records = json.loads((written / "argilla.json").read_text())
    for record in records:
        taken = rg.Record.from_dict(record)
        assert taken.fields["response_1"] == record["fields"]["response_1"]
        assert taken.metadata["asked"] == record["metadata"]["asked"]
