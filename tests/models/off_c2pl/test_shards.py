"""Off-C²PL with users in shards: own estimates of everybody, pooled ones of those asked about, as in memory."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import prefkin
from prefkin.errors import InvalidParameter
from tests.folders import folder_of, people

USERS = 60


@pytest.fixture(scope="module")
def frame():
    return people(users=USERS, rows=40)


@pytest.fixture(scope="module")
def data(frame, tmp_path_factory):
    folder = folder_of(frame, tmp_path_factory.mktemp("votes") / "votes")
    return prefkin.open_comparisons(folder, rows_a_shard=500)


def both(frame, data, **parameters):
    order = np.argsort(frame["user"].to_numpy(), kind="stable")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        memory = prefkin.OffC2PL(**parameters).fit(prefkin.read_comparisons(frame[order]))
        return memory, prefkin.OffC2PL(**parameters).fit(data)


REGULAR = prefkin.ItemRegularity(lambda_a=2.0, sigma=0.1, set_size=2)


@pytest.mark.parametrize(
    "parameters",
    [
        {"gamma": 60.0},
        {"gamma": "under", "alpha": 1.0, "kappa": 0.25},
        {"gamma": "over", "kappa": 0.25},
        {"gamma": 40.0, "coverage": REGULAR},
        pytest.param({"gamma": 3.0, "radius": "calibrated"}, marks=pytest.mark.long),
        {"gamma": "auto", "kappa": 0.25},
    ],
)
def test_the_same_as_in_memory(frame, data, parameters):
    memory, large = both(frame, data, **parameters)
    order = np.argsort(large.users_)
    np.testing.assert_allclose(large.own_theta_[order], memory.own_theta_, atol=2e-6)
    np.testing.assert_allclose(large.radius_[order], memory.radius_, rtol=1e-6)
    for user in (0, 17):
        assert large.neighbours(user).tolist() == memory.neighbours(user).tolist()
        u = memory.position(user)
        here = large._in_shards.only([user])
        np.testing.assert_allclose(here.theta_[here.position(user)], memory.theta_[u], atol=2e-6)
        assert here.gamma_[here.position(user)] == pytest.approx(memory.gamma_[u], rel=1e-6)
        assert large.width(user) == pytest.approx(memory.width(user), rel=1e-6)
    Z = np.random.default_rng(0).normal(size=(4, 3))
    users = [0, 17, 0, 5]
    np.testing.assert_allclose(large.predict_proba(Z, users=users), memory.predict_proba(Z, users=users), atol=1e-6)
    assert large.explain(0, 3).joined == memory.explain(0, 3).joined


def test_it_comes_back_from_disk_and_takes_in_newcomers(frame, data, tmp_path):
    memory, large = both(frame, data, gamma=60.0, coverage=REGULAR)
    large.save(tmp_path / "kin")
    again = prefkin.load(tmp_path / "kin")
    assert again.neighbours(4).tolist() == large.neighbours(4).tolist() == memory.neighbours(4).tolist()
    Z, y = memory.comparisons(4).Z[:30], memory.comparisons(4).y[:30]
    one, other = again.fold_in(Z, y), memory.fold_in(Z, y)
    np.testing.assert_allclose(one.theta, other.theta, atol=2e-6)
    assert one.neighbours.tolist() == other.neighbours.tolist()
    cands = prefkin.Candidates(np.random.default_rng(0).normal(size=(4, 3, 3)))
    assert again.policy(4, cands).value == pytest.approx(memory.policy(4, cands).value, rel=1e-5)
    assert again.session(4, cands).ask() == memory.session(4, cands).ask()


def test_a_users_comparisons_keep_the_names_of_features(frame, tmp_path):
    columns = frame.select("user", "y", *(frame["z"].list.get(k).alias(f"z{k}") for k in range(3)))
    model = prefkin.OffC2PL(gamma=0.0).fit(prefkin.open_comparisons(folder_of(columns, tmp_path / "votes")))
    assert model.comparisons(4).feature_names == ("z0", "z1", "z2")


def test_what_is_not_offered_says_so(data):
    with pytest.raises(InvalidParameter, match="euclidean"):
        prefkin.OffC2PL(gamma=1.2, distance="information").fit(data)
    model = prefkin.OffC2PL(gamma=60.0).fit(data)
    with pytest.raises(InvalidParameter, match=r"neighbours\(user\)"):
        model.summary()
    with pytest.raises(AttributeError, match="theta_"):
        model.theta_  # noqa: B018
