"""Weights over many powers of ten: evidence can be believed, and files bring the fit back."""

import warnings

import numpy as np
import pytest
from scipy.special import expit

from prefkin import PrefKin, load


def fit_heavy(powers, number, units):
    """People in three groups, whose answers count by so many powers of ten, in units as many apart."""
    rng = np.random.default_rng([0, powers, number])
    n_users, n, d = (int(rng.integers(*between)) for between in ((1, 14), (1, 25), (1, 7)))
    users, Z = np.repeat(np.arange(n_users), n), rng.standard_normal((n_users * n, d))
    centres = rng.choice([0.5, 2.0, 20.0]) * rng.standard_normal((3, d))
    y = rng.random(len(Z)) < expit(np.einsum("ij,ij->i", Z, centres[users % 3]))
    weights = 10.0 ** rng.uniform(9 - powers, 9, len(Z))
    Z *= 10.0 ** rng.uniform(-units, units, d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PrefKin(n_jobs=1).fit(Z, y.astype(int), users=users, sample_weight=weights)


@pytest.mark.parametrize(
    ("powers", "number", "units"), [(9, 3, 0), (12, 11, 0), (12, 16, 0), pytest.param(12, 4, 3, marks=pytest.mark.long)]
)
def test_weights_over_many_powers_of_ten_claim_no_evidence_above_zero(powers, number, units):
    """Found by `benchmarks/references.py weights`: by up to 10²⁰, before."""
    model = fit_heavy(powers, number, units)
    assert max(model.evidence_.values()) <= 0.0
    assert np.isfinite(model.theta_).all()


def test_a_fit_in_which_somebody_was_astray_comes_back_from_its_file(tmp_path):
    model = fit_heavy(9, 2, 0)
    model.save(tmp_path / "kin")
    assert np.allclose(load(tmp_path / "kin").theta_, model.theta_, rtol=1e-12)
