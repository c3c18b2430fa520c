"""M-steps: variances and covariances where the evidence is highest, by numerical derivatives."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from prefkin.inference.ep import Convergence, Sites, run
from prefkin.inference.hierarchy import group_posterior, messages_of, user_moments
from prefkin.inference.likelihood import Logistic
from prefkin.inference.model import Design, Population
from prefkin.models.prefkin.covariance import STRUCTURES, Structure, diagonal_step, full_step
from prefkin.models.prefkin.partition.prior import ChineseRestaurant
from prefkin.models.prefkin.partition.search import log_evidence
from prefkin.models.prefkin.scales import MacKayStep

EXACT = Convergence(max_iter=600, tol=1e-9)


def answers(rng, n_users=30, n=25, d=3, apart=0.8, centres=None):
    X, owner = rng.normal(size=(n_users * n, d)), np.repeat(np.arange(n_users), n)
    centres = np.array([[1.0, -0.5, 0.3]]) if centres is None else centres
    theta = centres[np.arange(n_users) % len(centres), :d] + apart * rng.normal(size=(n_users, d))
    y = (rng.random(len(X)) < expit(np.einsum("ij,ij->i", X, theta[owner]))).astype(float)
    return Design.of(Logistic(), X, y, np.ones(len(X)), np.arange(n_users + 1) * n)


def slopes(design, fit, names, h=0.01):
    """Derivatives of log evidence in the logarithms of variances, sites matched anew."""

    def evidence(name, factor):
        population = replace(fit.population, **{name: getattr(fit.population, name) * factor})
        return log_evidence(design, run(design, fit.sites, fit.share, population, rules=EXACT))

    return [(evidence(name, np.exp(h)) - evidence(name, np.exp(-h))) / (2 * h) for name in names]


def test_mackays_step_ends_where_the_evidence_is_highest(rng):
    design = answers(rng)
    population = Population(1.0, 1.0, 1.0, np.zeros(3))
    share = np.ones((30, 1))
    fit = run(design, Sites.start(design, 2.0), share, population, m_step=MacKayStep(design.size), rules=EXACT)
    assert fit.converged
    assert np.abs(slopes(design, fit, ["within", "between"])).max() < 1e-3


def test_mackays_step_with_clusters_ends_where_the_evidence_is_highest():
    rng = np.random.default_rng(2)  # the group means have a common mean apart from 0
    design = answers(rng, 36, 30, apart=0.4, centres=1.5 * rng.normal(size=(6, 3)))
    share = np.zeros((36, 7))
    share[np.arange(36), np.arange(36) % 6] = 1.0
    share[:3] = [0, 0, 0, 0, 0, 0, 1]  # singletons
    population = Population(1.0, 1.0, 1.0, np.zeros(3), clustered=True, partition=ChineseRestaurant())
    fit = run(design, Sites.start(design, 2.0), share, population, m_step=MacKayStep(design.size), rules=EXACT)
    assert fit.population.top > 0.1
    print(fit.converged, fit.population, slopes(design, fit, ["within", "between", "top"]))
    assert np.abs(slopes(design, fit, ["within", "between", "top"])).max() < 1e-2


def prior_free(name, step):
    return Structure(name, "whitened", step)


@pytest.mark.parametrize("step", [diagonal_step, full_step])
def test_each_covariance_step_raises_the_evidence(rng, step):
    """One plain step of R Rᵀ at a time, sites held: minorise-maximise."""
    X, owner = rng.normal(size=(1200, 3)), np.repeat(np.arange(40), 30)
    theta = rng.normal(size=(40, 3)) * [2.0, 0.5, 0.1]
    y = (rng.random(1200) < expit(np.einsum("ij,ij->i", X, theta[owner]))).astype(float)
    design = Design.of(Logistic(), X, y, np.ones(1200), np.arange(41) * 30)
    structure = prior_free("free", step)
    population = replace(structure.start(design), between=1e-6)  # group mean known: R acts on users alone
    share, one = np.ones((40, 1)), np.ones(40)
    fit = run(design, Sites.start(design, 2.0), share, population, rules=EXACT)
    evidence = [log_evidence(design, fit)]
    for _ in range(8):
        rows = design.with_root(population.root)
        groups = group_posterior(messages_of(rows, *fit.sites, one, share, population), population)
        moments = user_moments(rows, *fit.sites[:2], one, share, groups, population, 2)
        population = replace(structure.m_step(design)(moments, groups, population)[0], between=1e-6)
        evidence.append(log_evidence(design, fit._replace(population=population)))
    assert (np.diff(evidence) > -1e-9).all()
    assert evidence[-1] > evidence[0] + 2


@pytest.mark.parametrize("name", ["diagonal", "full"])
def test_covariances_end_near_the_highest_evidence(rng, name):
    """Numerical derivatives along the axes, without the prior.

    The step takes the scores of users and not that of the group mean, which R stretches too: the evidence could still
    rise by what one user says, but not along the overall scale.
    """
    X, owner = rng.normal(size=(1200, 3)), np.repeat(np.arange(40), 30)
    theta = [1.0, 1.0, 1.0] + rng.normal(size=(40, 3)) * [2.0, 0.7, 0.3]
    y = (rng.random(1200) < expit(np.einsum("ij,ij->i", X, theta[owner]))).astype(float)
    design = Design.of(Logistic(), X, y, np.ones(1200), np.arange(41) * 30)
    structure = replace(STRUCTURES[name], dof=0.0)
    fit = run(
        design, Sites.start(design, 2.0), np.ones((40, 1)), structure.start(design), m_step=structure.m_step(design),
        learn=structure.learn, rules=EXACT,
    )  # fmt: skip
    root, h, found = fit.population.root, 0.02, []
    for i in range(3):
        stretch = np.eye(3)
        values = []
        for sign in (1, -1):
            stretch[i, i] = np.exp(sign * h)
            population = replace(fit.population, root=stretch @ root)
            values.append(log_evidence(design, run(design, fit.sites, fit.share, population, rules=EXACT)))
        found.append((values[0] - values[1]) / (2 * h))
    print(name, fit.converged, fit.n_iter, found)
    assert abs(sum(found)) < 0.01
    assert np.abs(found).max() < 2.0
