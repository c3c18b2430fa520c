"""Many estimates at once are the estimates of each, for any number of threads, with the work it promises."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from prefkin import Comparisons, OffC2PL
from prefkin.data.rows import Rows, UserRows
from prefkin.execution.executor import threads
from prefkin.inference import _kernels, many, shared
from prefkin.inference.estimate import fit_preference
from prefkin.inference.loss import TOLERANCE
from prefkin.inference.many import estimate_users, fit_sets
from prefkin.inference.sets import Sets
from tests.conftest import allocated, people, relative_gradient
from tests.oracles.newton import ridge_logistic
from tests.oracles.odd_people import KINDS, determined, deviations, drawn

SHAPES = {
    "many small": ([30, 1, 7, 64, 300, 12], 5),
    "nobody answered": ([0, 30, 0], 3),
    "fewer rows than features": ([3, 8, 20], 40),
    "one feature": ([5, 50], 1),
    "many features": ([250, 40], 210),
    "several tiles": ([5, 50] * 10 + [600], 30),
}


def newtons(users, ridge):
    return np.array([fit_preference(users.of(u), ridge=ridge) for u in range(len(users))])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ridge", [0.01, 1.0, 1e6])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_estimates_of_all_are_newtons_of_each(shape, ridge, dtype):
    users = people(0, *SHAPES[shape], dtype=dtype)
    slow, fast = newtons(users, ridge), estimate_users(users, ridge=ridge)
    for user in np.flatnonzero(users.counts):
        assert relative_gradient(users.of(user), fast[user], ridge) <= 1.01 * TOLERANCE
    assert np.abs(fast - slow).max() <= 2e-4 * np.abs(slow).max()


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1000),
    ill=st.booleans(),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
    d=st.integers(1, 20),
    ridge=st.sampled_from([1e-3, 1.0, 100.0]),
    started=st.booleans(),
    drawn=st.booleans(),
)
def test_every_estimate_keeps_the_tolerance(seed, ill, scale, d, ridge, started, drawn):
    rng = np.random.default_rng(seed)
    users = people(seed, rng.integers(0, 60, size=6), d, scale, ill)
    centre = drawn * rng.standard_normal((6, d))
    start = rng.standard_normal((6, d)) if started else None
    found = fit_sets(users.rows, Sets.each(users.starts), ridge=ridge, centre=centre, start=start)
    for user in np.flatnonzero(users.counts):
        assert relative_gradient(users.of(user), found[user], ridge, centre[user]) <= 1.01 * TOLERANCE


def test_kernels_solve_nearly_all_by_themselves(monkeypatch):
    monkeypatch.setattr(many, "fit_preference", None)  # would fail if it were called
    for sizes, d, ill in (([60] * 40, 20, False), ([60] * 40, 20, True), ([400] * 3, 250, False)):
        estimate_users(people(3, sizes, d, ill=ill), ridge=1.0)


@pytest.mark.parametrize(("n_users", "n", "d"), [(40, 30, 5), (10, 60, 100), (10, 100, 210)])
def test_a_start_that_is_good_already_is_kept(n_users, n, d):
    users = people(14, [n] * n_users, d)
    theta = estimate_users(users, ridge=1.0)
    again = fit_sets(users.rows, Sets.each(users.starts), ridge=1.0, start=theta)
    assert max(relative_gradient(users.of(u), again[u], 1.0) for u in range(n_users)) <= 1.01 * TOLERANCE
    assert np.abs(again - theta).max() <= 1e-5 * np.abs(theta).max()


@pytest.mark.parametrize("less", [1e-8, 1e-5])
def test_answers_that_nearly_cancel_are_solved_all_the_same(less):
    users = people(15, [40] * 20, 4)
    Z, y, weights = users.rows
    Z[1::2], y[1::2], weights[1::2] = Z[::2], 1.0 - y[::2], weights[::2] * (1.0 - less)
    theta = estimate_users(users, ridge=1.0)
    for u in range(20):
        assert relative_gradient(users.of(u), theta[u], 1.0) <= 1.01 * TOLERANCE


def test_nobody_depends_on_who_is_beside_them(monkeypatch, rng):
    users = people(12, rng.integers(0, 50, size=50), 7)
    together = estimate_users(users, ridge=1.0)
    order = rng.permutation(50)[:33]
    starts = np.concatenate([[0], np.cumsum(np.diff(users.starts)[order])])
    monkeypatch.setattr(many, "CHUNK_NUMBERS", 700)
    fewer = estimate_users(UserRows(Rows.join([users.of(u) for u in order]), starts, order), ridge=1.0)
    assert np.array_equal(fewer, together[order])


def test_what_kernels_do_not_solve_is_newtons(monkeypatch):
    users = people(1, [20, 30] * 10, 4)
    monkeypatch.setattr(_kernels, "descend", lambda *arguments: None)  # reaches nothing
    assert np.array_equal(estimate_users(users, ridge=1.0), newtons(users, 1.0))


@pytest.mark.parametrize("shape", SHAPES)
def test_estimates_do_not_depend_on_threads(monkeypatch, shape):
    monkeypatch.setattr(many, "CHUNK_NUMBERS", 50)
    users = people(2, *SHAPES[shape])
    with threads(1):
        one = estimate_users(users, ridge=1.0)
    for n_jobs in (2, 5):
        with threads(n_jobs):
            assert np.array_equal(estimate_users(users, ridge=1.0), one)


@pytest.mark.parametrize(("scale", "d"), [(1e-30, 6), (1e10, 6), (1e20, 6), (1e40, 6), (1e10, 200), (1e20, 200)])
@pytest.mark.parametrize("which", [slice(None), slice(0, 1)])  # all features, or one in other units than the rest
def test_features_in_any_units_are_solved(scale, d, which):
    users = people(11, [60, 0, 40], d)
    users.rows.Z[:, which] *= scale
    found = estimate_users(users, ridge=1.0)
    for user in (0, 2):
        assert relative_gradient(users.of(user), found[user], 1.0) <= 1.01 * TOLERANCE


def test_other_units_and_a_ridge_to_match_are_the_same_estimate():
    users = people(21, [60] * 5, 6)
    plain = estimate_users(users, ridge=1e-12)
    users.rows.Z[:, 2] *= 1e5
    other = estimate_users(users, ridge=1e-12)
    other[:, 2] *= 1e5
    assert np.allclose(other, plain, rtol=1e-5, atol=1e-7)


def passes_of(users):
    seen, descend = [], _kernels.descend

    def watched(*arguments):
        descend(*arguments)
        seen.append(arguments[-2].copy())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_kernels, "descend", watched)
        estimate_users(users, ridge=1.0)
    return np.concatenate(seen)


def test_estimates_take_few_passes_over_the_rows():
    small = passes_of(people(3, [200] * 20, 32))
    assert small.mean() < 20  # twice: roughly in float32, then a Newton step
    assert small.max() < 30
    rng = np.random.default_rng(4)
    Z = rng.standard_normal((400, 300))
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    y = (rng.random(400) < expit(3 * Z[:, 0])).astype(float)
    assert passes_of(UserRows(Rows(Z, y, np.ones(400)), np.array([0, 400]), np.arange(1))).max() <= 30


def test_what_takes_many_steps_is_left_to_newtons_method():
    rng = np.random.default_rng(5)
    Z = (rng.standard_normal((500, 300)) * np.arange(1, 301) ** -1.5) @ np.linalg.qr(rng.standard_normal((300, 300)))[0]
    y = (rng.random(500) < expit(Z @ rng.standard_normal(300))).astype(float)
    users = UserRows(Rows(Z, y, np.ones(500)), np.array([0, 500]), np.arange(1))
    theta = estimate_users(users, ridge=1e-3)
    assert relative_gradient(users.rows, theta[0], 1e-3) <= 1.01 * TOLERANCE


# -- sets that share parcels -------------------------------------------------------------------------------------------


def overlapping_sets(rng, n_users):
    return [np.union1d(np.flatnonzero(rng.random(n_users) < 0.5), [u]) for u in range(n_users)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [6, 140])
def test_sets_that_share_users_are_fitted_as_if_alone(rng, dtype, d):
    n = 30 if d < 100 else 18
    users = people(8, rng.integers(5, 40, size=n), d, dtype=dtype)
    members = overlapping_sets(rng, n)
    sets, ridge = Sets.of(users.starts, members), rng.uniform(0.5, 2.0, n)
    centre = rng.standard_normal((n, d)) / d
    assert shared.worth_sharing(sets)
    found = fit_sets(users.rows, sets, ridge=ridge, centre=centre)
    for theta, some, penalty, towards in zip(found, members, ridge, centre, strict=True):
        assert relative_gradient(users.of_many(some), theta, penalty, towards) <= 1.01 * TOLERANCE
        alone = fit_preference(users.of_many(some), ridge=penalty, centre=towards)
        assert np.allclose(theta, alone, atol=2e-5)
    with threads(3):
        assert np.array_equal(fit_sets(users.rows, sets, ridge=ridge, centre=centre), found)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_shared_sets_are_solved_whatever_float32_can_tell(rng, offset):
    users = people(16, [30] * 40, 6)
    users.rows.Z[:] += offset
    members = overlapping_sets(rng, 40)
    found = fit_sets(users.rows, Sets.of(users.starts, members), ridge=1e-3)
    for theta, some in zip(found, members, strict=True):
        assert relative_gradient(users.of_many(some), theta, 1e-3) <= 1.01 * TOLERANCE


def hard_sets(rng, kind, d):
    several = [drawn(rng, kind, d, int(rng.integers(2, 3 * min(d, 10) + 2))) for _ in range(24)]
    rows = Rows(*(np.concatenate(part) for part in zip(*several, strict=True)))
    starts = np.concatenate([[0], np.cumsum([len(y) for _, y, _ in several])])
    return rows, Sets.of(starts, [np.sort(rng.choice(24, 12, replace=False)) for _ in range(24)])


@pytest.mark.parametrize(
    ("kind", "d"),
    [
        *((kind, d) for kind in KINDS for d in (1, 3)),
        ("plain", 130),
        *(pytest.param(kind, 10, marks=pytest.mark.long) for kind in KINDS),
        pytest.param("one heavy row", 130, marks=pytest.mark.long),
    ],
)
def test_pooled_estimates_equal_newtons_method(kind, d):
    """A small gradient is no proof: with one heavy row probabilities used to be off by .008."""
    rows, sets = hard_sets(np.random.default_rng([KINDS.index(kind), d]), kind, d)
    assert shared.worth_sharing(sets)
    for ridge in (1.0, 1e-3, 1e-9) if d < 100 else (1.0,):
        found = fit_sets(rows, sets, ridge=ridge)
        for s in range(0, 24, 4):
            Z, y, weights = sets.rows(rows, s)
            wanted = ridge_logistic(Z, y, ridge, weights)
            apart, chances = deviations(found[s], wanted, Z, weights, ridge)
            assert chances < 1e-6
            assert apart < 1e-6 or not determined(wanted, Z, weights, ridge)


@pytest.mark.parametrize(("kind", "seed"), [("repeats", 56), ("weights", 35)])
def test_pooled_estimates_do_not_trust_what_float32_has_rounded(monkeypatch, kind, seed):
    """Where float32 rounds otherwise, steps seemed short by curvature that was rounding, and estimates were off by 1e-4."""
    misses, noise = _kernels.misses, np.random.default_rng(seed)

    def rounded_otherwise(margin, y, weights):
        misses(margin, y, weights)
        margin *= 1.0 + np.float32(6e-8) * noise.standard_normal(margin.shape).astype(np.float32)

    monkeypatch.setattr(_kernels, "misses", rounded_otherwise)
    rows, sets = hard_sets(np.random.default_rng([seed, KINDS.index(kind), 1]), kind, 1)
    found = fit_sets(rows, sets, ridge=1e-3)
    wanted = np.array([ridge_logistic(*sets.rows(rows, s)[:2], 1e-3, sets.rows(rows, s).weights) for s in range(24)])
    assert (np.abs(found - wanted) <= TOLERANCE * np.abs(wanted)).all()


def test_shared_sets_with_copied_features_are_solved(rng):
    users = people(17, [30] * 40, 6)
    users.rows.Z[:] = 1e4 * users.rows.Z[:, [0, 0, 1, 2, 3, 4]]
    members = overlapping_sets(rng, 40)
    found = fit_sets(users.rows, Sets.of(users.starts, members), ridge=1.0)
    for theta, some in zip(found, members, strict=True):
        assert relative_gradient(users.of_many(some), theta, 1.0) <= 1.01 * TOLERANCE


def test_shared_sets_take_few_gradients(monkeypatch, rng):
    users = people(9, [50] * 40, 8)
    users.rows.y[:] = rng.random(2000) < expit(users.rows.Z @ rng.standard_normal(8))  # all alike
    members, calls, gradients = overlapping_sets(rng, 40), [], shared._Block._gradients
    start = np.array([estimate_users(users, ridge=1.0)[s].mean(axis=0) for s in members])
    monkeypatch.setattr(shared._Block, "_gradients", lambda *a: calls.append(1) or gradients(*a))
    fit_sets(users.rows, Sets.of(users.starts, members), ridge=1.0, start=start)
    assert len(calls) <= 8


# -- allocations and loading -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_users", "d"), [(400, 32), (40, 300)])
def test_data_are_not_copied_for_estimates(monkeypatch, n_users, d):
    monkeypatch.setattr(many, "CHUNK_NUMBERS", 2**16)
    users = people(12, [400] * n_users, d, dtype=np.float32)
    with threads(1):
        assert allocated(lambda: estimate_users(users, ridge=1.0)) < users.rows.Z.nbytes / 4


def test_float32_features_stay_float32_in_the_papers_algorithm():
    users = people(11, [40] * 5, 3, scale=0.3)
    Z, y, owner = users.rows.Z.astype(np.float32), users.rows.y, np.repeat(np.arange(5), 40)
    data = Comparisons.from_arrays(Z, y, owner)
    assert data.Z is Z
    light, full = OffC2PL(gamma=np.inf).fit(data), OffC2PL(gamma=np.inf).fit(Z.astype(float), y, users=owner)
    assert light._users.rows.Z is Z  # in order already: no copy
    assert OffC2PL(gamma=np.inf).fit(Z, y, users=owner)._users.rows.Z.dtype == np.float32
    assert np.allclose(light.theta_, full.theta_, atol=1e-5)
    assert np.allclose(light.radius_, full.radius_)
    assert light.theta_.dtype == light.information(0).dtype == np.float64
    assert light.fold_in(Z[:7], y[:7]).theta.dtype == np.float64


@pytest.mark.long
def test_the_first_use_ever_says_that_it_compiles(tmp_path):
    code = "import prefkin; prefkin.OffC2PL(gamma=0).fit([[0.5], [1.0]], [1, 0])"

    def run():
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": "", "NUMBA_CACHE_DIR": str(tmp_path)},
        )
        return done.stderr.splitlines()

    assert [line for line in run() if "compil" in line] == [many.COMPILING]
    assert not [line for line in run() if "compil" in line]


MATCHED = """
import numpy as np
from prefkin.inference.ep import Convergence, Sites, run
from prefkin.inference.likelihood import Logistic
from prefkin.inference.model import Design, Population
X = np.random.default_rng(0).normal(size=(270, 64))
design = Design.of(Logistic(), X, (X[:, 0] > 0.3).astype(float), np.ones(270), np.arange(4) * 90)
population = Population(0.3, 0.5, 1.0, np.zeros(64))
fit = run(design, Sites.start(design, 2.0), np.ones((3, 1)), population, rules=Convergence(max_iter=5))
print(*(part.tobytes().hex() for part in (*fit.sites, fit.moments.t, fit.groups.covs, fit.messages.level)))
"""


@pytest.mark.long
def test_whoever_compiles_finds_the_same_bytes_as_whoever_loads(tmp_path):
    """Parts of kernels were called in a copy of their own by the process that compiled them, which rounds otherwise."""

    def run():
        env = {"PATH": "", "NUMBA_CACHE_DIR": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.run([sys.executable, "-c", MATCHED], capture_output=True, check=True, env=env).stdout

    assert run() == run()
