"""The same data give the same model: in any order of rows and users, on any number of threads, with weights for copies."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from prefkin import Comparisons
from prefkin.data.rows import Rows, UserRows
from prefkin.execution.executor import threads
from prefkin.models.prefkin.covariance import STRUCTURES
from prefkin.models.prefkin.fitting import Specification, learn

ISOTROPIC = Specification(structures=(STRUCTURES["isotropic"],))


def answers(seed, groups=True, n_users=16, n=24, d=4):
    rng = np.random.default_rng(seed)
    centres = 2.0 * rng.normal(size=(3, d))
    theta = centres[np.arange(n_users) % 3] + 0.2 * rng.normal(size=(n_users, d)) if groups else (
        rng.normal(size=d) + 0.7 * rng.normal(size=(n_users, d))
    )  # fmt: skip
    users = np.repeat(np.arange(n_users), n)
    Z = rng.normal(size=(len(users), d))
    y = (rng.random(len(users)) < expit(np.einsum("ij,ij->i", Z, theta[users]))).astype(float)
    return Z, y, users


def same(one, other, order=None):
    order = np.arange(len(one.posterior)) if order is None else order
    assert one.candidate == other.candidate
    np.testing.assert_allclose(other.posterior.theta, one.posterior.theta[order], atol=1e-8)
    assert other.calibration.temperature == pytest.approx(one.calibration.temperature, abs=1e-8)
    for name, value in one.evidence.items():
        assert other.evidence[name] == pytest.approx(value, abs=1e-7)


@pytest.mark.parametrize("groups", [True, False])
def test_the_order_of_rows_and_users_does_not_matter(rng, groups):
    Z, y, users = answers(3, groups)
    one = learn(Comparisons.from_arrays(Z, y, users).by_user(), Specification())
    assert one.posterior.population.clustered == groups
    rows = rng.permutation(len(y))
    same(one, learn(Comparisons.from_arrays(Z[rows], y[rows], users[rows]).by_user(), Specification()))
    name = rng.permutation(16)
    other = learn(Comparisons.from_arrays(Z, y, name[users]).by_user(), Specification())
    same(one, other, np.argsort(name))


def test_threads_give_the_same_bytes():
    Z, y, users = answers(4)
    rows, found = Comparisons.from_arrays(Z, y, users).by_user(), []
    for n in (1, 2):
        with threads(n):
            learnt = learn(rows, ISOTROPIC)
        found.append((learnt.posterior.theta.tobytes(), learnt.posterior.share.tobytes(), learnt.calibration))
    assert found[0] == found[1]


def test_answers_exchanged_give_opposite_preferences():
    Z, y, users = answers(5, groups=False)
    one, other = (learn(Comparisons.from_arrays(*each, users).by_user(), ISOTROPIC) for each in ((Z, y), (-Z, 1 - y)))
    np.testing.assert_allclose(other.posterior.theta, one.posterior.theta, atol=1e-8)


def test_rows_of_weight_0_are_not_there(rng):
    Z, y, users = answers(6, groups=False)
    rows = Comparisons.from_arrays(Z, y, users).by_user()
    extra = np.repeat(np.arange(len(y)), 1 + (np.arange(len(y)) % 5 == 0))
    owner = rows.owner[extra]
    weights = np.ones(len(extra))
    weights[1:][extra[1:] == extra[:-1]] = 0.0
    starts = np.searchsorted(owner, np.arange(len(rows) + 1))
    more = UserRows(Rows(rows.rows.Z[extra], rows.rows.y[extra], weights), starts, rows.labels)
    plain = replace(rows, contexts=None, items=None)
    assert learn(more, ISOTROPIC).evidence["isotropic"] == pytest.approx(
        learn(plain, ISOTROPIC).evidence["isotropic"], abs=1e-6
    )
