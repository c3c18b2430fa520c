"""What is said about all users takes time that grows with them, not with their square."""

import numpy as np

from prefkin import OffC2PL, PrefKin
from prefkin.models.off_c2pl.graph import Graph


def people(n_users):
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (2 * n_users, 2)), rng.integers(0, 2, 2 * n_users), np.repeat(np.arange(n_users), 2)


def test_nobody_looks_for_neighbours_of_those_who_have_none(monkeypatch):
    Z, y, users = people(300)
    model = OffC2PL(gamma=0.0).fit(Z, y, users=users)
    monkeypatch.setattr(Graph, "neighbours", None)  # would fail if it were called
    assert model.summary().alone == 300


def test_radii_of_many_are_those_of_each():
    Z, y, users = people(30)
    model = PrefKin().fit(Z, y, users=users)
    each = [np.trace(model.covariance(user)) for user in range(30)]
    together = np.einsum("uii->u", model._learnt.uncertainty.covariances(np.arange(30)))
    assert np.allclose(together, each, rtol=1e-9)
