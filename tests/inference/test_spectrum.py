"""Smallest eigenvalues, without decompositions where there are many features."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prefkin.inference.spectrum
from prefkin.data.rows import Rows
from prefkin.execution.executor import threads
from prefkin.inference import _kernels
from prefkin.inference.spectrum import least_eigenvalue, least_eigenvalues
from tests.conftest import allocated, people
from tests.oracles import literal


@pytest.mark.parametrize(("n", "d", "power"), [(300, 250, 0.0), (300, 250, 0.5), (255, 250, 0.0), (900, 250, 0.0)])
def test_the_least_of_many_eigenvalues_needs_no_decomposition(monkeypatch, rng, n, d, power):
    Z = (rng.standard_normal((n, d)) * np.arange(1, d + 1) ** -power) @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows = Rows(Z, np.ones(n), rng.uniform(0.5, 2.0, n))
    exact = np.linalg.eigvalsh(literal.information(Z, 0.0, 1.0, rows.weights))[0]
    monkeypatch.setattr(prefkin.inference.spectrum, "eigh", None)
    assert least_eigenvalue(rows) == pytest.approx(exact, rel=1e-8)


def test_a_singular_matrix_has_least_eigenvalue_zero(rng):
    Z = rng.standard_normal((400, 200)) @ rng.standard_normal((200, 250))
    assert least_eigenvalue(Rows(Z, np.ones(400), np.ones(400))) == pytest.approx(0.0, abs=1e-7)


@given(seed=st.integers(0, 500), d=st.integers(1, 40), rank=st.integers(0, 60), power=st.sampled_from([0.0, 2.0, 6.0]))
def test_the_kernels_eigenvalue_is_lapacks(seed, d, rank, power):
    X = np.random.default_rng(seed).standard_normal((rank, d)) * np.arange(1, d + 1) ** -power
    M = X.T @ X
    found = np.empty(1)
    _kernels.least_eigenvalues(M[None].copy(), np.empty(d), found)
    values = np.linalg.eigvalsh(M)
    assert found[0] == pytest.approx(max(values[0], 0.0), abs=1e-13 * max(values[-1], 1e-300) * d)


@pytest.mark.parametrize("sizes", [[40, 3, 12, 60], [40, 40, 40]])
def test_eigenvalues_of_many_users_are_those_of_each(sizes):
    users = people(6, sizes, 12)
    each = [least_eigenvalue(users.of(u)) for u in range(len(sizes))]
    assert np.allclose(least_eigenvalues(users.rows, users.starts), each)


def test_data_are_not_copied_for_eigenvalues(monkeypatch):
    monkeypatch.setattr(prefkin.inference.spectrum, "STACK_NUMBERS", 2**16)
    users = people(12, [400] * 400, 16, dtype=np.float32)
    with threads(1):
        assert allocated(lambda: least_eigenvalues(users.rows, users.starts)) < users.rows.Z.nbytes / 4
