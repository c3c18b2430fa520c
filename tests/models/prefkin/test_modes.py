"""People whose sites did not settle: their answers decide, and evidence can be believed."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from prefkin import PrefKin, load
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Signed, expand
from prefkin.inference.quadratics.evidence import set_evidence
from prefkin.inference.steps import apart
from prefkin.models.prefkin.mixture import Prior, solved
from prefkin.models.prefkin.modes import at_their_modes, believable


def unsettled(rng, heaviest):
    """Three people, two of them in a group and one alone, with sites of where nobody is."""
    X, weights = rng.standard_normal((24, 2)), 10.0 ** rng.uniform(0.0, heaviest, 24)
    data = Signed(X, weights, np.array([0, 8, 16, 24]))
    sites, share = Sites.tangent(weights, np.full(24, 6.0)), np.array([[1.0], [1.0], [0.0]])
    return data, solved(expand(data, sites), sites, share, Prior(np.full(2, 0.3), 0.7, 2.0, 1.0))


@pytest.mark.parametrize("heaviest", [2.0, 6.0, 9.0])
def test_they_are_where_their_log_posterior_is_highest(rng, heaviest):
    data, found = unsettled(rng, heaviest)
    assert list(apart(found.sites, data, found.margin(data))) == [0, 1, 2]
    settled, prior = believable(found, data), found.prior

    def misfit(at):
        theta, centre = at[:6].reshape(3, 2), at[6:]
        margins = np.einsum("ij,ij->i", data.X, theta[np.repeat([0, 1, 2], 8)])
        apart = ((theta[:2] - centre) ** 2).sum() / prior.within + ((theta[2] - prior.m0) ** 2).sum() / prior.alone
        loss = data.weights @ np.logaddexp(0.0, -margins)
        return loss + 0.5 * (apart + ((centre - prior.m0) ** 2).sum() / prior.between)

    reached = np.concatenate([settled.mean.ravel(), settled.centres.mean[0]])
    best = min(
        (minimize(misfit, start, method=method, options={"maxiter": 20_000}) for start in (reached, np.zeros(8))
         for method in ("Powell", "BFGS")), key=lambda each: each.fun,
    )  # fmt: skip
    assert misfit(reached) == pytest.approx(best.fun, abs=1e-5, rel=1e-9)
    assert not apart(settled.sites, data, settled.margin(data)).size
    evidence = float(set_evidence(settled.centres.sums, prior.m0, prior.between)[0])
    evidence += float(settled.users.evidences(prior.m0, prior.alone)[2])
    assert evidence <= -misfit(reached)  # what is left to integrate is a normal law narrower than the prior


def test_those_whose_sites_agree_with_their_answers_stay(rng):
    data = Signed(rng.standard_normal((24, 2)), np.ones(24), np.array([0, 8, 16, 24]))
    sites, share = Sites.start(data.weights), np.ones((3, 1))
    found = solved(expand(data, sites), sites, share, Prior(np.zeros(2), 0.1, 1.0, 1.0))
    assert believable(found, data) is found


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


def test_centres_stay_where_others_who_shaped_them_are_not_here(rng):
    data, found = unsettled(rng, 6.0)
    others = found.centres.sums
    settled = at_their_modes(replace(found, others=others), data)
    assert settled.others is others
    assert np.array_equal(settled.centres.mean, found.centres.mean)
    assert not np.array_equal(at_their_modes(found, data).centres.mean, found.centres.mean)
