"""The paper's bounds: their numbers, and what can be checked of its claims by simulation."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from prefkin import KAPPA_UNIT_BALL, Candidates, ItemRegularity, OffC2PL
from prefkin.errors import InvalidParameter
from prefkin.evaluate.metrics import suboptimality_gap
from prefkin.models.off_c2pl.bounds import (
    active_bound,
    guaranteed_gain,
    imbalance,
    information_floor,
    neighbour_conditions,
    offline_bound,
    own_radius,
)
from tests.conftest import draw_answers
from tests.oracles import literal


def unit_ball(rng, shape, d):
    """Feature differences of actions in the unit ball, and a preference of norm 1: the paper's assumptions."""
    points = rng.standard_normal((*shape, d))
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


@pytest.mark.parametrize(("d", "n"), [(2, 30), (5, 20), (5, 300), (10, 8)])
def test_lemma_1_the_radius_covers_the_error(rng, d, n):
    """With probability at least 1 − δ; the bound is so wide that no miss is expected at all."""
    trials, delta, misses, worst = 150, 0.3, 0, 0.0
    for _ in range(trials):
        theta = unit_ball(rng, (), d)
        Z = unit_ball(rng, (n,), d) - unit_ball(rng, (n,), d)
        y = rng.random(n) < expit(Z @ theta)
        model = OffC2PL(0.0, delta=delta).fit(Z, y.astype(int))
        error = np.linalg.norm(model.own_theta_[0] - theta)
        misses += error > own_radius(model, 0)
        worst = max(worst, error / own_radius(model, 0))
    assert misses <= delta * trials
    assert worst < 1


def test_lemma_1_and_ci_are_the_printed_formulas(rng):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(0.0).fit(Z, y, users=users)
    for u in range(6):
        rows = users == u
        least = np.linalg.eigvalsh(literal.information(Z[rows], 1.0, KAPPA_UNIT_BALL))[0]
        lemma = literal.width(25, 3, 1.0, KAPPA_UNIT_BALL, 0.5, 0.05) / np.sqrt(least)  # 2U = 1: log(1/δ)
        assert own_radius(model, u) == pytest.approx(lemma, rel=1e-9)


@pytest.mark.long
def test_lemma_3_and_theorem_1_hold_in_simulation(rng):
    """Pooling two groups: ‖θ̃ − θ‖_M̃ ≤ noise + bias for every user, and the policy's gap is below the bound."""
    for _ in range(20):
        centres = unit_ball(rng, (2,), 3)
        gap = float(np.linalg.norm(centres[0] - centres[1]))
        users = np.repeat(np.arange(4), 80)
        Z = unit_ball(rng, (320,), 3) - unit_ball(rng, (320,), 3)
        y = (rng.random(320) < expit(np.einsum("ij,ij->i", Z, centres[users % 2]))).astype(int)
        model = OffC2PL(200.0).fit(Z, y, users=users)
        candidates = Candidates(unit_ball(rng, (6, 4), 3))
        for u in range(4):
            bound = offline_bound(model, u, differing=[v for v in range(4) if v % 2 != u % 2])
            off = model.theta_[u] - centres[u % 2]
            error = float(np.sqrt(off @ model.information(u) @ off))
            assert error <= bound.noise + bound.bias_proved * gap / 200.0  # the bias with the true gap in place of γ̂
            sharp = offline_bound(model, u, differing=[v for v in range(4) if v % 2 != u % 2], candidates=candidates)
            lost = suboptimality_gap(centres[u % 2], candidates, model.policy(u, candidates).actions)
            assert lost <= sharp.suboptimality <= bound.suboptimality
            assert bound.n_differing == 160
            assert bound.bias == pytest.approx(200.0 * np.sqrt(3 * 160) / 2)
            assert bound.bias_proved == pytest.approx(bound.bias / KAPPA_UNIT_BALL)
            assert bound.suboptimality == pytest.approx(2 * (bound.noise + bound.bias_proved) * bound.span)
            assert bound.noise_part < bound.suboptimality


def test_the_span_is_measured_when_candidates_are_given(rng):
    Z, y, users = draw_answers(rng)
    model, candidates = OffC2PL(np.inf).fit(Z, y, users=users), Candidates(unit_ball(rng, (5, 4), 3))
    w = unit_ball(rng, (), 3)
    shift = model.policy(0, candidates, reference=w).mean - w
    span = float(np.sqrt(shift @ np.linalg.inv(model.information(0)) @ shift))
    assert offline_bound(model, 0, candidates=candidates, reference=w).span == pytest.approx(span)
    bound = offline_bound(model, 0, candidates=candidates, reference=w)
    assert span <= bound.best_span <= offline_bound(model, 0).span
    assert bound.suboptimality == pytest.approx(2 * bound.noise * bound.best_span)
    with pytest.raises(InvalidParameter, match="is not a neighbour"):
        offline_bound(model, 0, differing=[0])


def test_a_policy_that_hides_in_the_reference_is_not_promised_to_be_perfect():
    """Theorem 1 as printed would promise 0 here: the pessimistic policy has no uncertainty, but is not the best one."""
    Z = np.ones((50, 1))
    model = OffC2PL(0.0).fit(Z, np.arange(50) % 4 > 0)
    candidates = Candidates([[[0.0], [1.0]]])
    assert model.policy(0, candidates).actions.tolist() == [0]
    bound = offline_bound(model, 0, candidates=candidates)
    assert bound.span == 0
    assert bound.suboptimality > 1.0


def test_lemma_2_constants_are_the_printed_ones(rng):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(0.0, alpha=2.0, delta=0.01).fit(Z, y, users=users)
    conditions = neighbour_conditions(model, gamma=1.5, true_gap=1.0)
    log = np.log(2 * 6 / 0.01)
    assert conditions.surely_joined == pytest.approx(1.5 * model.kappa / (9 * np.sqrt(2 * 3 * log)))
    assert conditions.surely_apart == pytest.approx(1.5 * model.kappa / (2 * np.sqrt(2 * log)))
    assert conditions.bias_excluded == pytest.approx(0.5 * model.kappa / (2 * np.sqrt(2 * log)))
    assert conditions.ridge_small_enough
    assert conditions.delta_small_enough == (3 / (4 * model.kappa * 25 + 3) >= 0.01)
    assert neighbour_conditions(OffC2PL(0.0).fit(Z, y, users=users), gamma=1.0, true_gap=1.0).bias_excluded == 0
    floors = [np.linalg.eigvalsh(model.information(u))[0] for u in range(6)]
    assert np.allclose(information_floor(model), floors, rtol=1e-9)


def test_lemma_2_equal_users_with_enough_information_are_joined(rng):
    """The sufficient condition: 1/√λ_u + 1/√λ_v below `surely_joined` implies an edge between equal users."""
    Z = unit_ball(rng, (3000,), 2) - unit_ball(rng, (3000,), 2)
    y = (rng.random(3000) < expit(Z @ [0.6, -0.8])).astype(int)
    users = np.repeat([0, 1], 1500)
    model = OffC2PL(0.0).fit(Z, y, users=users)
    least = [np.linalg.eigvalsh(model.information(u))[0] for u in (0, 1)]
    needed = sum(1 / np.sqrt(x) for x in least)
    gamma = 1.0001 * needed / neighbour_conditions(model, 1.0).surely_joined
    assert len(OffC2PL(gamma).fit(Z, y, users=users).neighbours(0)) == 2


@given(
    eigenvalues=st.lists(st.floats(0.5, 60.0), min_size=1, max_size=6).map(sorted),
    n=st.integers(0, 40),
    seed=st.integers(0, 100),
)
def test_lemma_5_questions_on_the_unit_ball_gain_what_is_guaranteed(eigenvalues, n, seed):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((len(eigenvalues),) * 2))[0]
    M = basis @ np.diag(eigenvalues) @ basis.T
    start = np.linalg.eigvalsh(M)[0]
    promised = guaranteed_gain(M, n) if n else 0
    for _ in range(n):
        weakest = np.linalg.eigh(M)[1][:, 0]  # the unit vector with the largest ‖z‖_{M⁻¹}
        M = M + np.outer(weakest, weakest)
    assert np.linalg.eigvalsh(M)[0] - start >= promised - 1e-9


def test_lemma_5_holds_for_sessions_whose_pairs_reach_the_unit_ball(rng):
    """Axis-parallel data: the strongest unit difference is along an axis, and those are offered."""
    Z = np.repeat(np.eye(4), [1, 2, 30, 50], axis=0)
    model = OffC2PL(0.0, ridge=0.5).fit(Z, rng.integers(0, 2, len(Z)))
    session = model.session(0, Candidates([[e / 2, -e / 2] for e in np.eye(4)]), repeat=True)
    for _ in range(17):
        session.tell(session.ask(), bool(rng.random() < 0.5))
    bound = active_bound(model, session)
    assert bound.weak_directions == imbalance(model.information(0), 17) == 2
    assert bound.guaranteed_gain == 8
    assert bound.least_after - bound.least_before >= 8 - 1e-9
    assert bound.suboptimality <= bound.suboptimality_planned
    assert bound.literal


@given(seed=st.integers(0, 200), n=st.integers(1, 60))
def test_what_is_promised_beforehand_is_not_less_than_what_holds_afterwards(seed, n):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    Z = rng.standard_normal((int(rng.integers(1, 30)), d)) * np.geomspace(0.05, 1.0, d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = OffC2PL(0.0, ridge=float(rng.choice([0.01, 1.0]))).fit(Z, rng.integers(0, 2, len(Z)))
    axes = np.linalg.eigh(model.information(0))[1].T
    session = model.session(0, Candidates([[e / 2, -e / 2] for e in axes]), repeat=True)
    for question in session.plan(n):
        session.tell(question, True)
    bound = active_bound(model, session)
    assert bound.n_answers == n
    assert bound.least_after >= bound.least_before + bound.guaranteed_gain - 1e-9
    assert bound.suboptimality <= bound.suboptimality_planned * (1 + 1e-9)


@pytest.mark.parametrize(("spectrum", "n", "expected"), [([1, 1, 50], 10, 2), ([1, 50, 50], 10, 1), ([1, 1, 1], 10, 3), ([1, 6, 50], 5, 1), ([1, 5.9, 50], 5, 2)])  # fmt: skip
def test_imbalance_is_the_smallest_number_of_weak_directions(spectrum, n, expected):
    assert imbalance(np.diag(np.array(spectrum, dtype=float)), n) == expected


def test_theorem_2_is_the_last_line_of_its_proof(rng):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(60.0).fit(Z, y, users=users)
    session = model.session(1, Candidates(unit_ball(rng, (20, 3), 3)))
    for _ in range(10):
        session.tell(session.ask(), bool(rng.random() < 0.5))
    bound = active_bound(model, session, differing=[2])
    k, d, N = model.kappa, 3, 10
    lam = np.linalg.eigvalsh(session.information)[0]
    width = (2 * np.sqrt(d * np.log(1 + 4 * k * (150 + N) / d) + 2 * np.log(2 * N / 0.05)) + np.sqrt(k)) / k
    expected = (2 * width + 60.0 * np.sqrt(d * 25) / k) / (d * lam + N)
    expected *= d * np.sqrt(lam) + np.sqrt(2 * d * N * np.log(1 + 4 * k * N / d))
    assert bound.width == pytest.approx(width)
    assert bound.suboptimality == pytest.approx(expected)
    assert bound.regular_rate is None


def test_no_questions_leave_theorem_1s_order(rng):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(60.0).fit(Z, y, users=users)
    bound = active_bound(model, model.session(1, Candidates(unit_ball(rng, (5, 3), 3))))
    assert (bound.n_answers, bound.guaranteed_gain) == (0, 0)
    assert bound.least_before == bound.least_after
    assert bound.suboptimality == pytest.approx(2 * bound.width / np.sqrt(bound.least_before))


def test_the_corollaries_for_item_regularity_are_the_printed_rates(rng):
    Z, y, users = draw_answers(rng, sizes=[600, 700], dim=2)
    regular = ItemRegularity(0.9, 0.05, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = OffC2PL(1e4, coverage=regular).fit(Z, y, users=users)
    s = regular.smoothed
    bound = offline_bound(model, 0, differing=[1])
    assert bound.regular_rate == pytest.approx(np.sqrt(2 / s) * (1 / np.sqrt(1300) + 1e4 * np.sqrt(700 / 1300)))
    session = model.session(0, Candidates(unit_ball(rng, (20, 3), 2)))
    for _ in range(6):
        session.tell(session.ask(), True)
    active = active_bound(model, session, differing=[1])
    effective = 1300 + 6 / (active.weak_directions * s)
    assert active.regular_rate == pytest.approx(np.sqrt(2 / s) * (1 + 1e4 * np.sqrt(700)) / np.sqrt(effective))
