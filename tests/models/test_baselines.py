"""Rivals are tuned as well as their authors would: otherwise being ahead of them means nothing."""

import numpy as np
import pytest
from scipy.special import expit

from prefkin import Comparisons
from prefkin.inference.held_out import RIDGES, least_on_grid
from prefkin.models.baselines import GroupShrinkage, mixture_em, per_user, pooled, shrink_to_pooled


def recurring(rng, n_items=60, n_users=20, each=40, dim=15, spread=0.5):
    """People who differ by degrees answer about items that recur, and that have something which features do not say."""
    taste = 2.0 * (rng.standard_normal(dim) + spread * rng.standard_normal((n_users, dim)))
    return taste, *answers(rng, taste, n_items, each)


def answers(rng, taste, n_items, each):
    X = rng.standard_normal((n_items, taste.shape[1])) / np.sqrt(taste.shape[1])
    users = np.repeat(np.arange(len(taste)), each)
    first = rng.integers(0, n_items, len(users))
    second = (first + rng.integers(1, n_items, len(users))) % n_items
    score = X @ taste.T + rng.standard_normal(n_items)[:, None]
    y = (rng.random(len(users)) < expit(score[first, users] - score[second, users])).astype(float)
    return X, first, second, y, users


def new_items_loss(model, taste):
    X, first, second, y, users = answers(np.random.default_rng(99), taste, 2000, 300)
    p = model.predict_proba(X[first] - X[second], users=users)
    return float(-np.log(p[np.arange(len(y)), y.astype(int)]).mean())


def test_a_pooled_model_is_as_good_as_the_best_ridge_in_hindsight_on_new_items():
    behind = []
    for seed in range(4):
        taste, X, first, second, y, users = recurring(np.random.default_rng(seed))
        data = Comparisons.from_sides(X[first], X[second], y, users)
        model = pooled().fit(data)
        hindsight = [GroupShrinkage("all", ridge=ridge, pull=np.inf).fit(data) for ridge in RIDGES[3:9]]
        losses = [new_items_loss(one, taste) for one in [model, *hindsight]]
        behind.append(losses[0] - min(losses[1:]))
        assert RIDGES[0] < model.ridge_ < RIDGES[-1]
    assert np.mean(behind) < 0.01


@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_shrinkage_is_not_worse_than_either_of_its_ends(spread):
    behind = []
    for seed in range(4):
        taste, X, first, second, y, users = recurring(np.random.default_rng(seed), spread=spread, each=80)
        data = Comparisons.from_sides(X[first], X[second], y, users)
        losses = [new_items_loss(make().fit(data), taste) for make in (shrink_to_pooled, pooled, per_user)]
        behind.append(losses[0] - min(losses[1:]))
    assert np.mean(behind) < 0.005


def test_known_items_ask_for_less_ridge_than_new_ones():
    _, X, first, second, y, users = recurring(np.random.default_rng(0))
    data = Comparisons.from_sides(X[first], X[second], y, users)
    assert pooled(predict_for="known items").fit(data).ridge_ < pooled(predict_for="new items").fit(data).ridge_
    assert pooled().fit(data).ridge_ == pooled(predict_for="new items").fit(data).ridge_


def test_where_nothing_is_shared_people_are_drawn_to_nothing_and_everything_still_works(rng):
    users = np.repeat(np.arange(8), 60)
    Z = rng.standard_normal((480, 4))
    theta = 2.0 * np.concatenate([np.eye(4), -np.eye(4)])  # they cancel out
    y = (rng.random(480) < expit(np.einsum("ij,ij->i", Z, theta[users]))).astype(float)
    model = shrink_to_pooled().fit(Z, y, users=users)
    assert np.isfinite(model.theta_).all()
    assert np.isfinite(model.radius_).all()
    assert np.isfinite(model.width(0))
    assert np.isfinite(model.fold_in(Z[:5], y[:5]).theta).all()
    assert np.abs(model.theta_ - theta).mean() < 0.5


def test_groups_are_found_by_rows_that_do_not_judge_them():
    rng = np.random.default_rng(3)
    users = np.repeat(np.arange(16), 40)
    Z = rng.standard_normal((640, 5))
    theta = np.array([[2.0, 0, 0, 0, 0], [0, -2.0, 0, 0, 1.0]])[np.arange(16) % 2]
    y = (rng.random(640) < expit(np.einsum("ij,ij->i", Z, theta[users]))).astype(float)
    labels = mixture_em().fit(Z, y, users=users).labels_
    assert np.unique(labels).size == 2
    assert (labels[::2] == labels[0]).all()
    assert (labels[1::2] == labels[1]).all()


def test_a_walk_along_a_grid_looks_past_one_bump_and_no_further_than_needed():
    losses, asked = [5, 4, 3, 3.5, 1, 2, 3, 4, 5, 6], []

    def loss(k):
        asked.append(k)
        return losses[k]

    assert least_on_grid(loss, 2, 10) == 4
    assert set(asked) == {0, 1, 2, 3, 4, 5, 6}
    assert least_on_grid(lambda k: 0.0, 5, 10) == 3


@pytest.mark.parametrize("seed", range(6))
def test_answers_that_tell_nothing_can_be_fitted(seed):
    """Then nobody away from nothing predicts best, which is no estimate."""
    rng = np.random.default_rng(seed)
    users = np.append(np.repeat(np.arange(12), 30), 12)
    Z, y = rng.standard_normal((361, 2)), (rng.random(361) < 0.6).astype(int)
    model = shrink_to_pooled().fit(Z, y, users=users)
    assert np.isfinite(model.theta_).all()
    assert np.isfinite(model.own_theta_).all()
    assert np.isfinite(model._own_ridge)
