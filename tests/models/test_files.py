import io
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import prefkin
from prefkin import Candidates, ItemRegularity, OffC2PL, PrefKin
from prefkin.errors import ModelFileError
from prefkin.models.baselines import mixture_em
from prefkin.models.files import _digest
from tests.conftest import draw_answers


@pytest.fixture
def model(rng):
    Z, y, users = draw_answers(rng)
    return OffC2PL(52.0, alpha=1.2).fit(Z, y, users=[("group", int(u)) for u in users])


@pytest.fixture(scope="module")
def saved():
    """A model file of each kind, as bytes."""
    Z, y, users = draw_answers(np.random.default_rng(3), n_users=3)
    files = {}
    for kind in (OffC2PL, PrefKin):
        kind().fit(Z, y, users=users).save(content := io.BytesIO())
        files[kind.__name__] = content.getvalue()
    return files


def test_a_saved_model_is_the_same_model(model, tmp_path, rng):
    model.save(tmp_path / "kin")
    again = prefkin.load(tmp_path / "kin")
    assert again.get_params() == model.get_params()
    assert again.users_.tolist() == model.users_.tolist()
    for name in ("theta_", "own_theta_", "radius_", "gamma_", "n_comparisons_"):
        assert np.array_equal(getattr(again, name), getattr(model, name))
    user, candidates = ("group", 2), Candidates(rng.standard_normal((3, 4, 3)))
    assert again.neighbours(user).tolist() == model.neighbours(user).tolist()
    assert np.array_equal(again.information(user), model.information(user))
    assert again.policy(user, candidates).value == model.policy(user, candidates).value
    assert again.session(user, candidates).plan(3) == model.session(user, candidates).plan(3)
    Z = rng.standard_normal((2, 3))
    assert np.array_equal(again.predict(Z, users=[user, user]), model.predict(Z, users=[user, user]))
    assert np.array_equal(again.fold_in(Z, [1, 0]).theta, model.fold_in(Z, [1, 0]).theta)


@pytest.mark.parametrize(
    "users", [[1, 2, 1], ["a", "b", "a"], [1.5, 2.5, 1.5], [1, "1", 1], np.array([3, 4, 3], dtype=np.int32)]
)
def test_labels_keep_their_type(users, tmp_path):
    OffC2PL(0.0).fit(np.eye(3), [1, 0, 1], users=users).save(tmp_path / "kin")
    labels = prefkin.load(tmp_path / "kin").users_.tolist()
    assert labels == sorted(set(users), key=list(users).index)
    assert [type(label) for label in labels] == [type(x) for x in np.asarray(users, dtype=object)[[0, 1]].tolist()]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_features_come_back_in_the_precision_they_were_fitted_in(kind, tmp_path, rng):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(0.0).fit(Z.astype(np.float32).astype(kind), y, users=users)  # float64 is narrowed on disk, too
    model.save(tmp_path / "kin")
    again = prefkin.load(tmp_path / "kin")
    assert again._users.rows.Z.dtype == model._users.rows.Z.dtype == kind
    assert np.array_equal(again._users.rows.Z, model._users.rows.Z)


def test_item_regularity_and_class_names_survive(tmp_path):
    model = OffC2PL(0.0, coverage=ItemRegularity(0.5, 0.1, 2)).fit(np.eye(2), ["no", "yes"], positive="yes")
    model.save(tmp_path / "kin")
    again = prefkin.load(tmp_path / "kin")
    assert again.coverage == model.coverage
    assert again.classes_.tolist() == ["no", "yes"]


def test_a_damaged_file_is_refused_wherever_the_damage_is(model, tmp_path):
    model.save(tmp_path / "kin")
    whole = (tmp_path / "kin").read_bytes()
    for at in np.linspace(0, len(whole) - 1, 60).astype(int):
        damaged = bytearray(whole)
        damaged[at] ^= 0x15
        (tmp_path / "bad").write_bytes(damaged)
        with pytest.raises(ModelFileError) as caught:
            prefkin.load(tmp_path / "bad")
        assert "\n" not in str(caught.value)
    (tmp_path / "bad").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelFileError, match="not a prefkin model, or a damaged one"):
        prefkin.load(tmp_path / "bad")


def rewritten(path, change, arrays=lambda tensors: {}):
    """The file with another header and other arrays, and a checksum that is right."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as archive:
        header = json.loads(archive.metadata()["prefkin"])
    tensors = load_file(path)
    tensors |= arrays(tensors)
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items() if array is not None}
    text = json.dumps({**header, **(change(header) if callable(change) else change)})
    save_file(tensors, path, {"prefkin": text, "digest": _digest(text, tensors)})


@pytest.mark.parametrize(
    "arrays",
    [
        lambda t: {"Z": None},
        lambda t: {"Z": t["Z"][:-1]},
        lambda t: {"Z": t["Z"].ravel()},
        lambda t: {"Z": t["Z"] * np.nan},
        lambda t: {"Z": t["Z"] * 1e80},
        lambda t: {"y": t["y"] + 0.5},
        lambda t: {"weights": -t["weights"]},
        lambda t: {"starts": t["starts"][::-1]},
        lambda t: {"starts": t["starts"] * 0},
        lambda t: {"own_theta": t["own_theta"][:, :1]},
        lambda t: {"radius": t["radius"] * np.nan},
        lambda t: {"radius": None},
        lambda t: {"theta": t["theta"] * np.inf} if "theta" in t else {"share": t["share"] + 1},
        lambda t: {"theta": t["theta"] * 1e308} if "theta" in t else {"m0": t["m0"] + 1e308},
        lambda t: {"own_theta": t["own_theta"] * 1e200},
        lambda t: {"gamma": t["gamma"][:2]} if "gamma" in t else {"m0": t["m0"][:1]},
        lambda t: {"enough": None} if "gamma" in t else {"site_pull": None, "nu": None},
    ],
)
@pytest.mark.parametrize("kind", ["OffC2PL", "PrefKin"])
def test_arrays_that_no_fit_gives_are_refused_whatever_the_checksum_says(arrays, kind, saved, tmp_path):
    (tmp_path / "kin").write_bytes(saved[kind])
    rewritten(tmp_path / "kin", {}, arrays)
    with pytest.raises(ModelFileError, match="kin: its contents do not fit together") as told:
        prefkin.load(tmp_path / "kin")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": [0, 0, 1]},
        {"labels": [0, 1]},
        {"labels": [[0], [1], [2]]},
        {"labels": None},
        {"labels_dtype": "V9"},
        {"labels_dtype": "<U1000000000"},
        {"labels_dtype": "nonsense"},
        {"labels_dtype": "|i1", "labels": [1, 2, 1000]},
        {"about": None},
        {"about": {}},
        {"narrowed": 3},
        lambda header: {"about": header["about"] | {"n_jobs": "many"}},
        lambda header: {"about": header["about"] | {"classes": [0]}},
        lambda header: {"about": header["about"] | {"classes": [1, 1]}},
        lambda header: {"about": header["about"] | {"positive": "left"}},
        lambda header: {"about": header["about"] | {"feature_names": ["a"]}},
        lambda header: {"about": header["about"] | {"feature_names": 3}},
        lambda header: {"about": header["about"] | {"heat": "hot", "ridge_used": "auto", "calibration": 1}},
    ],
)
@pytest.mark.parametrize("kind", ["OffC2PL", "PrefKin"])
def test_headers_that_no_fit_gives_are_refused_whatever_the_checksum_says(change, kind, saved, tmp_path):
    (tmp_path / "kin").write_bytes(saved[kind])
    rewritten(tmp_path / "kin", change)
    try:
        prefkin.load(tmp_path / "kin")
        refused = change in ({"labels_dtype": "V9"}, {"labels_dtype": "<U1000000000"})  # what is not needed is not read
    except ModelFileError as error:
        refused = str(error).startswith(str(tmp_path / "kin")) and "\n" not in str(error)
    assert refused


def test_a_gain_of_another_length_is_refused(saved, tmp_path):
    """summary() took it apart."""
    (tmp_path / "kin").write_bytes(saved["PrefKin"])
    rewritten(tmp_path / "kin", lambda header: {"about": header["about"] | {"over_pooled": [0.1]}})
    with pytest.raises(ModelFileError, match="kin: its contents do not fit together"):
        prefkin.load(tmp_path / "kin")


def test_a_baseline_is_read_by_the_names_that_0_2_0_wrote(tmp_path, rng):
    Z, y, users = draw_answers(rng)
    model = mixture_em().fit(Z, y, users=users)
    model.save(tmp_path / "kin")
    numbers = {"ridge_": 3.0, "pull_": None, "heat_": 0.875}
    groups = np.array([0, 0, 0, 0, 0, len(model.centres_) - 1])
    rewritten(tmp_path / "kin", lambda h: {"about": h["about"] | {"numbers": numbers}}, lambda t: {"seats": groups})
    again = prefkin.load(tmp_path / "kin")
    assert (again.ridge_, again.pull_, again.temperature_) == (3.0, np.inf, 0.875)
    assert np.array_equal(again.labels_, groups)


def test_a_model_that_may_not_be_read_is_not_called_damaged(model, tmp_path, monkeypatch):
    model.save(tmp_path / "kin")

    def forbidden(self, *_args, **_kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.open", forbidden)
    with pytest.raises(ModelFileError, match="kin: cannot be read: Permission denied$"):
        prefkin.load(tmp_path / "kin")


def test_a_model_in_a_file_whose_name_is_no_text_is_read(model, tmp_path):
    model.save(tmp_path / "caf\udce9")
    assert prefkin.load(tmp_path / "caf\udce9").users_.tolist() == model.users_.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "written in format 99, this prefkin reads format 1"),
        ({"kind": "Other"}, "kind 'Other'"),
    ],
)
def test_other_versions_and_kinds_are_refused(model, tmp_path, change, message):
    model.save(tmp_path / "kin")
    rewritten(tmp_path / "kin", change)
    with pytest.raises(ModelFileError, match=message):
        prefkin.load(tmp_path / "kin")


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="no such model file"):
        prefkin.load(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ModelFileError, match="not a prefkin model"):
        prefkin.load(tmp_path / "text")
    save_file({"x": np.ones(1)}, tmp_path / "foreign")
    with pytest.raises(ModelFileError, match="not a prefkin model"):
        prefkin.load(tmp_path / "foreign")


def test_labels_that_cannot_be_stored_are_named(tmp_path):
    model = OffC2PL(0.0).fit(np.eye(2), [1, 0], users=[frozenset({1}), frozenset({2})])
    with pytest.raises(ModelFileError, match="label of type frozenset"):
        model.save(tmp_path / "kin")
    assert list(tmp_path.iterdir()) == []


def test_the_bytes_of_a_file_follow_from_the_model(tmp_path):
    model = prefkin.OffC2PL(gamma=0.0).fit([[0.5], [1.0]], [1, 0], users=["ann", "bo"])
    for name in "abcdefgh":
        model.save(tmp_path / name)
    assert len({(tmp_path / name).read_bytes() for name in "abcdefgh"}) == 1
