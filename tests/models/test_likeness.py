"""Who is like whom: the same whatever the units, right where the truth is known, and nobody is close for being unknown."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import expit

import prefkin
from prefkin import OffC2PL, PrefKin
from prefkin.data.synthetic import demo_population
from prefkin.models.baselines import mixture_em, pooled
from prefkin.models.likeness import Likeness
from tests.conftest import answers_by_degrees, people


@pytest.fixture(scope="module")
def by_degrees():
    Z, y, users = answers_by_degrees()
    return PrefKin().fit(Z, y, users=users)


@pytest.fixture(scope="module")
def grouped():
    return PrefKin().fit(demo_population(np.random.default_rng(0))[0].data)


def test_the_closest_are_those_who_would_choose_alike(by_degrees):
    found = by_degrees.closest(0, n=11)
    assert len(found) == 11
    assert 0 not in found.labels
    assert (np.diff(found.distance) >= 0).all()
    rows = by_degrees._users.rows.Z
    for label, alike in zip(found.labels, found.agreement, strict=True):
        same = np.sign(rows @ by_degrees.theta_[0]) == np.sign(rows @ by_degrees.theta_[label])
        assert alike == pytest.approx(same.mean(), abs=1e-12)
    assert found.probability[0] > 0.5 > found.probability[-1]
    assert "would choose alike" in str(found)


def test_neighbours_come_in_that_order_and_are_all_there(by_degrees):
    assert by_degrees.neighbours(0).tolist() == [0, *by_degrees.closest(0, n=11).labels.tolist()]
    labels, share = by_degrees.neighbours(0, weights=True)
    assert labels.tolist() == by_degrees.neighbours(0).tolist()
    assert share.sum() == pytest.approx(1.0)


def test_units_of_features_do_not_matter(by_degrees):
    Z, y, users = answers_by_degrees()
    units = np.array([1.0, 1000.0, 0.01])
    one, other = (PrefKin(metric="diagonal").fit(Z * u, y, users=users).closest(3, 4) for u in (1.0, units))
    assert one.labels.tolist() == other.labels.tolist()
    assert one.distance == pytest.approx(other.distance, rel=1e-3)


def test_being_sure_is_calibrated():
    """Somebody said to be closer than another with probability p is, in about that share of cases."""
    said, true = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        theta = np.array([1.5, -1.0, 0.5]) + 0.8 * rng.standard_normal((14, 3))
        users = np.repeat(np.arange(14), 40)
        Z = rng.standard_normal((560, 3))
        y = rng.random(560) < expit(np.einsum("ij,ij->i", Z, theta[users]))
        model = PrefKin(metric="isotropic").fit(Z, y.astype(int), users=users)
        for user in range(0, 14, 2):
            apart = np.linalg.norm(theta - theta[user], axis=1)
            others = np.delete(np.arange(14), user)
            found = model.closest(user, n=13)
            said += found.probability.tolist()
            true += [(apart[label] < apart[others]).mean() + 0.5 / 13 for label in found.labels]
    chance, happened = np.array(said), np.array(true)
    for some in (chance < 0.35, chance > 0.65):
        assert some.sum() > 40
        assert chance[some].mean() == pytest.approx(happened[some].mean(), abs=0.06)


def test_nobody_is_close_for_being_unknown(rng):
    theta = np.array([2.0, -1.0]) + 0.7 * rng.standard_normal((10, 2))
    sizes = [100] * 9 + [2]
    users = np.repeat(np.arange(10), sizes)
    Z = rng.standard_normal((len(users), 2))
    y = (rng.random(len(users)) < expit(np.einsum("ij,ij->i", Z, theta[users]))).astype(int)
    model = PrefKin(metric="isotropic").fit(Z, y, users=users)
    assert all(model.closest(u, 1).labels[0] != 9 for u in range(9))


def test_everybodys_nearest_is_found_without_comparing_all():
    rows = people(3, [3] * 400, 5).rows
    known = Likeness(rows, np.random.default_rng(1).standard_normal((400, 5)))
    known.doubt[:] = np.random.default_rng(2).uniform(0.0, 2.0, 400)
    every = np.array([known.from_(u) for u in range(400)])
    np.fill_diagonal(every, np.inf)
    best = every[np.arange(400), known.nearest()]
    assert (best == every.min(axis=1)).mean() > 0.97
    pairs = known.pairs_of_people(5)
    assert every[pairs[0]] == pytest.approx(every.min())
    assert all(every[a, b] <= every[c, d] for (a, b), (c, d) in pairwise(pairs))


def test_groups_have_labels_members_centres_and_words(grouped):
    groups = grouped.groups_
    assert sorted(label for group in groups for label in group.members) == sorted(grouped.users_)
    for group in groups:
        u = grouped.position(group.members[0])
        assert grouped.membership_[u, group.label] == group.probability[0] == group.probability.max()
        assert np.corrcoef(group.centre, grouped.theta_[u])[0, 1] > 0.9
    assert str(groups[0]) == "group 0, 8 people: likes short; dislikes detailed"
    assert str(groups[0]) in str(grouped.summary())


def test_where_there_are_no_groups_the_summary_ranks_pairs_of_people(by_degrees):
    assert by_degrees.groups_ == ()
    first, *_ = by_degrees.summary().alike
    assert by_degrees.closest(first.one, 1).labels.tolist() == [first.other]
    assert f"{first.one} and {first.other}" in str(by_degrees.summary())


def test_every_model_says_who_is_close(tmp_path):
    Z, y, users = answers_by_degrees()
    Z = Z / 2
    for model in (OffC2PL(gamma=0.0), pooled(), mixture_em()):
        found = model.fit(Z, y, users=users).closest(1, 3)
        assert len(found) == 3
        assert ((found.probability >= 0) & (found.probability <= 1)).all()
    assert [len(group) for group in model.groups_] == np.sort(np.bincount(model.labels_))[::-1].tolist()
    kin = PrefKin().fit(Z, y, users=users)
    kin.save(tmp_path / "kin")
    assert str(prefkin.load(tmp_path / "kin").closest(1)) == str(kin.closest(1))


def test_one_person_is_close_to_nobody():
    alone = OffC2PL(gamma=0.0).fit([[1.0], [0.5]], [1, 0], users=["ann"] * 2)
    assert str(alone.closest("ann")) == "there is nobody beside 'ann'"
    with pytest.raises(prefkin.PrefkinError, match="n must be a whole number of at least 1"):
        alone.closest("ann", 0)
