"""docs/extending.md: what is defined there works as an argument of PrefKin, in at most 60 lines each."""

import re
from inspect import signature
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest

from prefkin import Comparisons, PrefKin
from prefkin.models.prefkin.covariance import STRUCTURES
from prefkin.models.prefkin.fitting import Specification, learn

TEXT = (Path(__file__).parent.parent / "docs/extending.md").read_text()
STUDENT, LAPLACE, BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
ISOTROPIC = (STRUCTURES["isotropic"],)


def run(block, model=None):
    """The names that a block leaves; without a model nothing is fitted."""
    names = {"__name__": "extension", "PrefKin": model or MagicMock()}
    exec(block.replace("from prefkin import PrefKin\n", ""), names)
    return names


def rows_of(names):
    return Comparisons.from_arrays(names["Z"], names["y"].astype(float), names["users"]).by_user()


def distance(theta, names):
    return float(np.sqrt(np.mean((theta - names["theta"]) ** 2)))


def test_each_extension_is_short():
    assert all(len(block.splitlines()) <= 60 for block in (STUDENT, LAPLACE, BLOCKS))


def test_a_student_t_population_suits_users_far_from_all_others():
    names = run(STUDENT)
    held_out, distances = np.zeros(2), np.zeros(2)
    for seed in range(2):
        names["Z"], names["y"], names["users"], names["theta"] = names["heavy_tailed"](np.random.default_rng(seed))
        for i, options in enumerate(({}, {"law": names["StudentT"](3.0)})):
            learnt = learn(rows_of(names), Specification(structures=ISOTROPIC, **options))
            held_out[i] += learnt.losses["isotropic"]
            distances[i] += distance(learnt.posterior.theta, names)
    assert held_out[1] < held_out[0] - 2.0
    assert distances[1] < 0.97 * distances[0]


def test_laplaces_approximation_is_close_to_tilted_moments():
    names = run(LAPLACE)
    both = [
        learn(rows_of(names), Specification(structures=ISOTROPIC, **options)).posterior
        for options in ({}, {"likelihood": names["LaplaceLogistic"]()})
    ]
    one, other = (posterior.theta for posterior in both)
    assert not np.allclose(one, other, atol=1e-4)
    assert np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.98
    assert distance(other, names) < 1.1 * distance(one, names)


def test_laplaces_log_mass_has_the_derivatives_it_says():
    likelihood, h = run(LAPLACE)["LaplaceLogistic"](), 1e-5
    y, power, c, s = np.array([0.0, 1.0]), np.array([1.0, 0.4]), np.array([0.3, -2.0]), np.array([0.01, 0.01])
    up, down = (likelihood.tilted(y, power, c + sign * h, s)[0] for sign in (1, -1))
    _, first, second = likelihood.tilted(y, power, c, s)
    np.testing.assert_allclose((up - down) / (2 * h), first, rtol=0.01)  # the curvature is taken as constant
    assert (second < 0).all()


def test_a_covariance_by_blocks_is_learnt_with_its_zeros():
    names = run(BLOCKS)
    learnt = learn(rows_of(names), Specification(structures=(names["by_blocks"], *ISOTROPIC)))
    assert learnt.candidate == "blocks"
    assert learnt.losses["blocks"] < learnt.losses.get("isotropic", np.inf) - 5.0
    alone = learn(rows_of(names), Specification(structures=(names["by_blocks"],)))
    C = alone.posterior.population.covariance(np.eye(8))
    assert np.abs(C[:3, 3:]).max() < 1e-9 * np.abs(C).max()
    correlation = C / np.sqrt(np.outer(np.diag(C), np.diag(C)))
    assert correlation[:3, :3].min() > 0.7
    assert correlation[3:, 3:].min() > 0.7


@pytest.mark.parametrize(("block", "one", "other"), [
    (STUDENT, "gaussian", "student"), (LAPLACE, "moments", "modes"), (BLOCKS, "isotropic", "blockwise"),
])  # fmt: skip
def test_extensions_are_arguments_of_prefkin(block, one, other):
    model = PrefKin
    if "population" not in signature(PrefKin).parameters:
        model = pytest.importorskip("prefkin.models.prefkin.estimator").PrefKin
    names = run(block, model)
    distances = [distance(names[name].theta_, names) for name in (one, other)]
    assert distances[1] < 1.03 * distances[0]
    assert not np.array_equal(names[one].theta_, names[other].theta_)
    p = names[other].predict_proba(names["Z"], users=names["users"])[:, 1]
    assert np.mean((p > 0.5) == names["y"]) > 0.6
