"""Groups that a search has missed or joined before are found."""

import numpy as np
import pytest

from prefkin import PrefKin
from prefkin.evaluate.metrics import pair_precision_recall
from prefkin.reproduce.contracts import seed_of
from prefkin.reproduce.worlds.planted import synthetic_world


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::prefkin.errors.SeparationWarning")  # true of 200 answers for 768 features
@pytest.mark.parametrize(
    ("run", "rows", "found", "gap"),
    [
        pytest.param(
            *(119, 1000, 1.0, 0.15),
            marks=pytest.mark.xfail(reason="the groups are found, but the mean gap is 0.158", strict=False),
        ),
        pytest.param(
            *(101, 200, 0.95, 0.41),
            marks=pytest.mark.xfail(reason="all 40 people in one group: precision 0.117", strict=False),
        ),
    ],
)
def test_groups_are_found_with_many_features(run, rows, found, gap):
    """Trials of Experiment 1. In one, sites matched to right groups promised more for 34 people together; in the other,
    people of a group were left apart by a search that started from too little variance within groups."""
    rng = np.random.default_rng(seed_of("exp1", "synthetic", run))
    world = synthetic_world(rng, users=40, groups=8, dim=768, rows=rows, strength=8.0, spread=0.6)
    model = PrefKin().fit(world.data)
    precision, recall = pair_precision_recall([model.members(user) for user in range(40)], world.group)
    assert precision == 1.0
    assert recall >= found
    assert world.fresh_gap(model.theta_).mean() < gap


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::prefkin.errors.SeparationWarning")
@pytest.mark.parametrize("seed", [6503, 6504, 6507])
def test_sure_people_do_not_move_where_sites_that_are_flat_promise_more(seed):
    """As many answers as features, nearly all certain: half of 30 people ended in other people's groups."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 5, 30)
    centres = rng.standard_normal((5, 20))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    theta = 8.0 * (centres[group] + 0.2 / np.sqrt(20) * rng.standard_normal((30, 20)))
    Z = rng.standard_normal((600, 20))
    y = rng.random(600) < 1.0 / (1.0 + np.exp(-np.einsum("ij,ij->i", Z, np.repeat(theta, 20, axis=0))))
    model = PrefKin().fit(Z, y, users=np.repeat(np.arange(30), 20))
    assert pair_precision_recall([model.members(user) for user in range(30)], group) == (1.0, 1.0)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::prefkin.errors.SeparationWarning")
@pytest.mark.parametrize(("users", "n", "dim"), [(24, 20, 32), (30, 16, 24)])
def test_of_few_answers_too_one_of_weight_two_is_two_and_one_of_weight_zero_none(users, n, dim):
    rng, who = np.random.default_rng(0), np.repeat(np.arange(users), n)
    centres, Z = 2.0 * rng.standard_normal((3, dim)), 2.0 / np.sqrt(dim) * rng.standard_normal((users * n, dim))
    y = rng.random(users * n) < 1.0 / (1.0 + np.exp(-np.einsum("ij,ij->i", Z, centres[who % 3])))
    twice, other = np.tile(np.arange(users * n), 2), rng.standard_normal(Z.shape)
    none = np.repeat([1.0, 0.0], users * n)

    def theta(Z, rows, weights):
        return PrefKin().fit(Z, y[rows], users=who[rows], sample_weight=weights).theta_

    one, two = theta(Z, slice(None), np.ones(users * n)), theta(Z, slice(None), np.full(users * n, 2.0))
    assert np.allclose(two, theta(Z[twice], twice, None), atol=1e-9)
    assert np.allclose(one, theta(np.concatenate([Z, other]), twice, none), atol=1e-9)
