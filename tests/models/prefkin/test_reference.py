"""Posteriors beside importance sampling under the same prior, which shares no code, and beside the mode of many copies."""

import numpy as np
import pytest
from scipy.optimize import minimize

from prefkin import PrefKin
from prefkin.inference.likelihood import Logistic
from prefkin.inference.model import Design
from prefkin.models.prefkin.covariance import STRUCTURES
from prefkin.models.prefkin.partition.search import log_evidence
from prefkin.models.prefkin.posterior import Posterior
from prefkin.models.prefkin.selection import Candidate
from tests.oracles.sampled import by_importance, small_problem


@pytest.mark.xfail(
    strict=False,
    reason="means are off by up to 0.38 deviations (median 0.08), variances down to 0.12 of the sampled ones",
)
def test_weights_over_decades_lead_no_posterior_astray():
    rng, off, widths = np.random.default_rng(15), [], []
    for _ in range(12):
        people = small_problem(rng, "weights")
        X, weights = (np.concatenate(part) for part in zip(*people, strict=True))
        starts = np.concatenate([[0], np.cumsum([len(each) for _, each in people])])
        design = Design.of(Logistic(), X, np.ones(len(X)), weights, starts)
        fit = Candidate(STRUCTURES["isotropic"]).fit(design)
        posterior, population = Posterior.of(design, fit), fit.population
        sampled = by_importance(people, population.within, population.between, rng)
        spread = np.sqrt(np.einsum("uii->ui", sampled.covariance))
        if sampled.effective > 500:  # else sampling knows too little
            off.append((np.abs(posterior.theta - sampled.mean) / spread).max())
            variances = np.einsum("uii->ui", posterior.covariances(np.arange(len(people))))
            widths.extend(variances / spread**2)
        assert log_evidence(design, fit) <= 0.0
    assert len(off) >= 6
    assert np.median(off) < 0.05
    assert max(off) < 0.25
    assert np.concatenate(widths).min() > 0.5
    assert np.concatenate(widths).max() < 1.5


@pytest.mark.filterwarnings("ignore::prefkin.errors.CalibrationWarning")  # these weights are not counts, as it says,
@pytest.mark.filterwarnings("ignore::prefkin.errors.ConvergenceWarning")  # and differ from others' by much
@pytest.mark.parametrize(
    "copies",
    [
        pytest.param(
            30,
            marks=[
                pytest.mark.long,
                pytest.mark.xfail(reason="4 people of 12 are sure of their group, 7 are needed", strict=False),
            ],
        ),
        1000,
        pytest.param(
            1_000_000,
            marks=[
                pytest.mark.long,
                pytest.mark.xfail(reason="an estimate is 1459 log units behind the mode, 5 are allowed", strict=False),
            ],
        ),
    ],
)
def test_answers_given_many_times_are_not_contradicted(copies):
    rng = np.random.default_rng(3)
    centres, users = 2.0 * rng.standard_normal((3, 4)), np.repeat(np.arange(12), 20)
    Z = rng.standard_normal((240, 4))
    y = (rng.random(240) < 1.0 / (1.0 + np.exp(-np.einsum("ij,ij->i", Z, centres[users % 3])))).astype(int)
    model = PrefKin().fit(Z, y, users=users, sample_weight=np.full(240, float(copies)))

    def explained(theta):
        return np.bincount(users, (2 * y - 1) * np.einsum("ij,ij->i", Z, theta[users]) > 0.0) / 20

    assert (explained(model.theta_) >= explained(model.own_theta_) - 0.1).all()
    posterior, root = model._learnt.posterior, model._learnt.posterior.population.root
    root = np.eye(4) if root is None else np.diag(root) if root.ndim == 1 else root
    sure = np.flatnonzero(posterior.share.max(axis=1) > 0.99)  # of where they belong, and so of one prior
    assert len(sure) > 6
    for user in sure:
        c = int(posterior.share[user].argmax())
        centre, variance = posterior.groups.means[c], posterior.population.variances(posterior.share.shape[1])[c]
        own = users == user
        rows = (2 * y[own] - 1)[:, None] * (Z[own] @ root)

        def misfit(theta, rows=rows, centre=centre, variance=variance):
            return copies * np.logaddexp(0.0, -rows @ theta).sum() + 0.5 * ((theta - centre) ** 2).sum() / variance

        best = minimize(misfit, posterior.t[user], method="Powell", options={"maxiter": 10_000}).fun
        assert misfit(posterior.t[user]) < best + 0.5 * 4 + 3.0  # as far as a draw from the posterior falls behind
    assert max(model.evidence_.values()) <= 0.0
