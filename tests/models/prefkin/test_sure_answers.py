"""People whose answers never contradict each other are not drawn to the middle more than their answers ask for."""

import warnings

import numpy as np
import pytest
from scipy.special import expit

from prefkin import PrefKin
from prefkin.errors import SeparationWarning
from prefkin.models.baselines import per_user


def log_loss(model, Z, y, users):
    chance = model.predict_proba(Z, users=users)[np.arange(len(y)), y.astype(int)]
    return -np.log(chance).mean()


def people(rng, n, theta, along=None):
    users = np.repeat(np.arange(len(theta)), n)
    Z = 0.1 * rng.normal(size=(len(users), theta.shape[1]))
    if along is not None:
        Z += np.outer(rng.normal(size=len(users)), along)
    return Z, users, np.einsum("ij,ij->i", Z, theta[users])


@pytest.mark.long
def test_sure_answers_are_foretold_as_surely_as_by_own_ridge(rng):
    tastes = rng.normal(size=(5, 30))
    theta = rng.dirichlet(np.ones(5), size=40) @ tastes
    along = 3 * tastes.mean(axis=0)
    Z, users, margin = people(rng, 30, theta, along)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeparationWarning)
        model, own = PrefKin().fit(Z, margin > 0, users=users), per_user().fit(Z, margin > 0, users=users)
    new, who, truth = people(rng, 60, theta, along)
    assert log_loss(model, new, truth > 0, who) < log_loss(own, new, truth > 0, who)


@pytest.mark.parametrize("groups", [1, 3])
def test_noisy_answers_stay_as_they_are(rng, groups):
    theta = rng.normal(size=(groups, 6))[np.arange(24) % groups] * 10
    Z, users, margin = people(rng, 60, theta)
    model = PrefKin().fit(Z, rng.random(len(margin)) < expit(margin), users=users)
    assert 0.8 < model.temperature_ < 1.25
