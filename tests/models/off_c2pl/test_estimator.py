import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefkin import KAPPA_UNIT_BALL, Candidates, Comparisons, ItemRegularity, OffC2PL
from prefkin.errors import AssumptionWarning, InvalidComparisons, InvalidParameter, NoEdgeWarning, UnknownUser
from prefkin.models.off_c2pl.threshold import different_users, gap_bounds
from tests.conftest import draw_answers
from tests.oracles import literal


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoEdgeWarning)
        yield


def literal_users(Z, y, users, ridge=1.0, kappa=KAPPA_UNIT_BALL, delta=0.05):
    labels = np.unique(users)
    theta = np.array([literal.optimum(Z[users == u], y[users == u], ridge) for u in labels])
    radii = np.array([literal.radius(Z[users == u], ridge, kappa, len(labels), delta) for u in labels])
    return theta, radii


@given(
    seed=st.integers(0, 500),
    alpha=st.sampled_from([1.0, 1.7]),
    ridge=st.sampled_from([0.3, 2.0]),
    kappa=st.sampled_from([KAPPA_UNIT_BALL, 0.25]),
    delta=st.sampled_from([0.01, 0.3]),
    level=st.floats(0.1, 0.9),
)
def test_algorithm_1_is_the_one_printed(seed, alpha, ridge, kappa, delta, level):
    rng = np.random.default_rng(seed)
    Z, y, users = draw_answers(rng, sizes=rng.integers(1, 12, 5).tolist(), dim=3)
    theta, radii = literal_users(Z, y, users, ridge, kappa, delta)
    needed = [np.linalg.norm(theta[u] - theta[v]) + alpha * (radii[u] + radii[v]) for u in range(5) for v in range(u)]
    gamma = float(np.quantile(needed, level)) + 1e-5
    model = OffC2PL(gamma, alpha=alpha, ridge=ridge, kappa=kappa, delta=delta).fit(Z, y, users=users)
    assert np.abs(model.own_theta_ - theta).max() < 1e-6
    assert np.allclose(model.radius_, radii, rtol=1e-9)
    joined = literal.edges(theta, radii, gamma, alpha)
    for u in range(5):
        members = [u, *(v for v in range(5) if (u, v) in joined)]
        assert sorted(model.neighbours(u).tolist()) == sorted(members)
        rows = np.isin(users, members)
        assert np.abs(model.theta_[u] - literal.optimum(Z[rows], y[rows], ridge)).max() < 1e-6
        assert np.allclose(model.information(u), literal.information(Z[rows], ridge, kappa), rtol=1e-9)
        assert model.width(u) == pytest.approx(literal.width(rows.sum(), 3, ridge, kappa, 5, delta), rel=1e-9)


def test_gamma_zero_is_the_single_user_method_bit_for_bit(rng):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(gamma=0).fit(Z, y, users=users)
    assert np.array_equal(model.theta_, model.own_theta_)
    for u in range(6):
        alone = OffC2PL(gamma=0).fit(Z[users == u], y[users == u])
        assert np.array_equal(alone.theta_[0], model.theta_[u])


def test_gamma_infinite_pools_everybody(rng):
    Z, y, users = draw_answers(rng, sizes=[10, 20, 30, 30, 30, 40])
    model = OffC2PL(gamma=np.inf).fit(Z, y, users=users)
    labels, share = model.neighbours(2, weights=True)
    assert dict(zip(labels.tolist(), share.tolist(), strict=True)) == pytest.approx(
        {0: 1 / 16, 1: 2 / 16, 2: 3 / 16, 3: 3 / 16, 4: 3 / 16, 5: 4 / 16}
    )
    assert all(len(model.neighbours(u)) == 6 for u in range(6))
    assert np.allclose(model.theta_[0], literal.optimum(Z, y, 1.0), atol=1e-6)


@pytest.fixture(scope="module")
def apart():
    """Answers, λ and κ at which radii are small enough for some pairs to be certainly different; estimates, radii."""
    answers = draw_answers(np.random.default_rng(20_26), sizes=[4000, 4000, 3000, 3000, 5], dim=2, strength=9.0)
    settings = {"ridge": 20.0, "kappa": 0.25}
    return answers, settings, literal_users(*answers, **settings)


@pytest.mark.parametrize("policy", ["under", "over"])
def test_appendix_thresholds_are_per_user_and_zero_when_nobody_certainly_differs(apart, policy, quiet):
    (Z, y, users), settings, (theta, radii) = apart
    model = OffC2PL(gamma=policy, **settings).fit(Z, y, users=users)
    expected = [literal.appendix_gamma(theta, radii, 1.0, u, policy == "over") for u in range(5)]
    assert np.allclose(model.gamma_, expected, rtol=1e-6, atol=1e-9)
    assert (model.gamma_ > 0).any()
    assert (model.gamma_ == 0).any()
    for u in range(5):
        edges = literal.edges(theta, radii, expected[u], 1.0)
        assert sorted(model.neighbours(u).tolist()) == sorted({u} | {v for v in range(5) if (u, v) in edges})
        lower, upper = gap_bounds(model.graph_, u)
        assert ((lower <= upper).all(), different_users(model.graph_, u)[u]) == (True, False)


def test_one_hop_neighbourhoods_are_not_transitive():
    # three users on a line: the middle one reaches both ends, the ends do not reach each other
    Z = np.repeat([[1.0]], 60, axis=0)
    y = np.concatenate([np.repeat([1, 0], [2, 18]), np.repeat([1, 0], [10, 10]), np.repeat([1, 0], [18, 2])])
    users = np.repeat(["low", "mid", "top"], 20)
    alone = OffC2PL(gamma=0).fit(Z, y, users=users)
    step = alone.own_theta_[1, 0] - alone.own_theta_[0, 0]
    model = OffC2PL(gamma=2 * alone.radius_[0] + 1.5 * step).fit(Z, y, users=users)
    assert model.neighbours("mid").tolist() == ["low", "mid", "top"]
    assert model.neighbours("low").tolist() == ["low", "mid"]
    assert model.neighbours("top").tolist() == ["mid", "top"]


def test_item_regularity_uses_counts_and_asks_for_enough(rng, quiet):
    Z, y, users = draw_answers(rng, sizes=[30, 600, 700], dim=2)
    regular = ItemRegularity(lambda_a=0.9, sigma=0.05, set_size=2)
    least = regular.n_min(n_users=3, dim=2, delta=0.05)
    assert 30 < least < 600
    model = OffC2PL(gamma=1e6, coverage=regular).fit(Z, y, users=users)
    expected = [literal.regular_radius(n, 2, regular.smoothed, 1.0, KAPPA_UNIT_BALL, 3, 0.05) for n in (30, 600, 700)]
    assert np.allclose(model.radius_, expected, rtol=1e-9)
    assert [model.neighbours(u).tolist() for u in range(3)] == [[0], [1, 2], [1, 2]]
    assert "too few comparisons" in model.explain(0, 1).sentence


def test_when_nobody_can_be_connected_the_fit_says_what_it_would_take(rng):
    Z, y, users = draw_answers(rng)
    with pytest.warns(NoEdgeWarning, match="nobody is connected") as caught:
        model = OffC2PL(gamma=1.0).fit(Z, y, users=users)
    assert len(caught) == 1
    text = str(caught[0].message)
    threshold = float(text.split("needs gamma above ")[1].split(",")[0])
    assert all(len(model.neighbours(u)) == 1 for u in range(6))
    # the printed threshold is the one that makes the first edge
    joined = OffC2PL(gamma=threshold * 1.01).fit(Z, y, users=users)
    assert sum(len(joined.neighbours(u)) > 1 for u in range(6)) >= 2
    n = float(text.split("or about ")[1].split(" comparisons")[0])
    assert n > 1000


def test_the_number_of_comparisons_it_names_is_enough_for_equal_users(rng):
    Z, y, users = draw_answers(rng, n_users=2, dim=2, n_groups=1)
    model = OffC2PL(gamma=6.0, ridge=3.0, kappa=0.25)
    with pytest.warns(NoEdgeWarning) as caught:
        model.fit(Z, y, users=users)
    n = float(str(caught[0].message).split("or about ")[1].split(" comparisons")[0])
    many = np.tile(Z[users == 0], (int(1.1 * n / 25) + 1, 1))
    answers = np.tile(y[users == 0], int(1.1 * n / 25) + 1)
    twice = OffC2PL(gamma=6.0, ridge=3.0, kappa=0.25).fit(
        np.vstack([many, many]), np.concatenate([answers, answers]), users=np.repeat([0, 1], len(many))
    )
    assert len(twice.neighbours(0)) == 2


def test_long_differences_are_warned_about_not_refused(rng):
    Z, y, users = draw_answers(rng)
    with pytest.warns(AssumptionWarning, match=r"reach norm .* divide the features by"):
        OffC2PL(gamma=0).fit(10 * Z, y, users=users)


def test_auto_gamma_pools_like_minded_users_and_leaves_loners_alone(rng):
    Z, y, users = draw_answers(rng, sizes=[60] * 8, dim=3, strength=6.0, n_groups=2)
    model = OffC2PL().fit(Z, y, users=users)
    right = [set(model.neighbours(u).tolist()) <= set(range(u % 2, 8, 2)) for u in range(8)]
    assert np.mean(right) > 0.7
    assert np.mean([len(model.neighbours(u)) for u in range(8)]) > 2
    assert len(set(model.gamma_)) == 1


def test_auto_gamma_says_when_pooling_does_not_help(rng):
    Z, users = rng.uniform(-1, 1, (400, 2)), np.repeat([0, 1], 200)
    y = (Z[:, 0] > 0) == (users == 0)  # the two want opposite things
    with pytest.warns(NoEdgeWarning, match="pooling did not predict held-out answers better"):
        model = OffC2PL().fit(Z, y.astype(int), users=users)
    assert all(len(model.neighbours(u)) == 1 for u in range(2))


def test_explanations_state_the_numbers(rng):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(gamma=43.6).fit(Z, y, users=users)
    for u in range(6):
        for v in range(6):
            why = model.explain(u, v)
            assert why.joined == (v in model.neighbours(u))
            if u != v:
                assert why.distance == pytest.approx(np.linalg.norm(model.own_theta_[u] - model.own_theta_[v]))
                assert why.joined == (why.margin > 0)
                assert why.margin == pytest.approx(43.6 - model.radius_[u] - model.radius_[v] - why.distance)
    assert str(model.explain(0, 0)) == "0 always uses its own comparisons."


@pytest.mark.parametrize("gamma", [0.0, 43.6, np.inf, "under"])
def test_folding_in_a_copy_of_a_user_finds_that_users_place(rng, gamma, quiet):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(gamma=gamma).fit(Z, y, users=users)
    copy = model.fold_in(Z[users == 2], y[users == 2])
    assert np.allclose(copy.own_theta, model.own_theta_[2], atol=1e-12)
    assert copy.radius == pytest.approx(model.radius_[2], rel=1e-12)
    if gamma == 43.6:
        assert set(model.neighbours(2).tolist()) == set(copy.neighbours.tolist()) | {2}
    rows = np.isin(users, copy.neighbours)
    pooled = literal.optimum(np.vstack([Z[rows], Z[users == 2]]), np.concatenate([y[rows], y[users == 2]]), 1.0)
    assert np.allclose(copy.theta, pooled, atol=1e-6)


def test_a_model_offers_policies_for_each_user(rng):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(gamma=np.inf).fit(Z, y, users=users)
    candidates = Candidates(rng.standard_normal((3, 4, 3)))
    policy = model.policy(1, candidates, pessimism=0.01, reference=np.ones(3))
    value = literal.best_policy_value(
        list(candidates),
        candidates.weights,
        model.theta_[1],
        model.information(1),
        0.01 * model.width(1),
        np.ones(3),
    )
    assert policy.value == pytest.approx(value)
    with pytest.raises(InvalidParameter, match="pessimism must be"):
        model.policy(1, candidates, pessimism=-1)
    with pytest.raises(InvalidParameter, match="the candidates have 2 features"):
        model.policy(1, Candidates([[[1.0, 2.0]]]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": -1}, "gamma must be at least 0"),
        ({"gamma": "x"}, "gamma must be a number"),
        ({"gamma": np.nan}, "gamma must be"),
        ({"alpha": 0.5}, "alpha must be"),
        ({"ridge": 0}, "ridge must be"),
        ({"kappa": 0.3}, "kappa must be above 1e-75 and at most 1/4"),
        ({"delta": 1.0}, "delta must be between 0 and 1; got 1.0"),
        ({"delta": "a"}, "delta must be between"),
        ({"radius": "calibratd"}, "radius must be"),
        ({"coverage": "all"}, "coverage must be"),
    ],
)
def test_parameters_outside_their_range_are_named(change, message):
    with pytest.raises(InvalidParameter, match=message):
        OffC2PL(**{"gamma": 0.0, **change}).fit([[1.0]], [1])


def test_who_is_asked_about_must_be_known(rng):
    Z, y, users = draw_answers(rng)
    model = OffC2PL(gamma=0).fit(Z, y, users=users)
    with pytest.raises(UnknownUser, match="user 99 is not among"):
        model.neighbours(99)
    with pytest.raises(UnknownUser, match="user 99"):
        model.predict(Z[:1], users=[99])
    with pytest.raises(InvalidComparisons, match="say whose answers"):
        model.predict(Z[:1])
    with pytest.raises(InvalidComparisons, match="give one per row"):
        model.predict(Z[:2], users=[1])
    with pytest.raises(InvalidComparisons, match="bring their own"):
        OffC2PL(gamma=0).fit(Comparisons.from_arrays(Z, y, users), y)
