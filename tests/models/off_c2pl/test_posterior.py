"""Off-C²PL in practice: calibrated radius, information distance, automatic ridge."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

import prefkin
from prefkin import Candidates, OffC2PL
from prefkin.data.comparisons import Comparisons
from prefkin.data.folds import held_out_folds
from prefkin.data.rows import Rows, UserRows, split_rows
from prefkin.errors import CalibrationWarning, InvalidParameter, NoEdgeWarning, PrefkinWarning
from prefkin.inference.ep import Convergence
from prefkin.inference.estimate import fit_preference
from prefkin.inference.held_out import RIDGES
from prefkin.inference.information import ball_radius
from prefkin.inference.loss import log_loss
from prefkin.models.off_c2pl.bounds import own_radius
from prefkin.models.off_c2pl.posterior import (
    Beliefs,
    Scale,
    calibrated_radii,
    learn_scale,
    log_evidence,
    posteriors,
)
from tests.conftest import draw_answers
from tests.oracles import literal
from tests.oracles import posterior as oracle

PRACTICAL = [
    {"radius": "calibrated"},
    {"radius": "calibrated", "ridge": "auto"},
    {"distance": "information"},
    {"distance": "information", "radius": "calibrated", "ridge": "auto"},
]


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefkinWarning)
        yield


def some_rows(seed, n, dim=2, strength=2.0):
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, dim))
    y = (rng.random(n) < expit(strength * Z[:, 0])).astype(float)
    return Rows(Z, y, rng.integers(1, 3, n).astype(float))


# -- the posterior against sums over a grid --------------------------------------------------------------------------


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), n=st.sampled_from([1, 4, 25]), variance=st.sampled_from([0.1, 1.0, 6.0]))
def test_expectation_propagation_finds_the_posterior(seed, n, variance):
    rows = some_rows(seed, n)
    evidence, mean, C = oracle.on_a_grid(*rows, variance)
    one = UserRows(rows, np.array([0, n]), np.array([0]))
    [found] = posteriors(one, np.array([variance]), Convergence())
    beliefs = Beliefs.of(one, variance)
    assert log_evidence(*found)[0] == pytest.approx(evidence, abs=0.05)
    assert np.abs(beliefs.mean[0] - mean).max() < 0.03 * np.sqrt(np.trace(C))
    # skewed posteriors, with a wide prior, are where it errs most
    assert np.abs(beliefs.covariance(0) - C).max() < 0.15 * np.trace(C)
    first, second = beliefs.square_error(0, np.ones(2))
    P, off = beliefs.covariance(0), beliefs.mean[0] - 1
    assert first == pytest.approx(np.trace(P) + off @ off)
    assert second == pytest.approx(np.trace(P @ P) + 2 * off @ P @ off)


def test_the_radius_is_that_of_the_grid_posterior():
    rows, scale = some_rows(3, 12), Scale(np.array([0.3, 1.0]), np.array([0.4, 0.6]))
    centre = fit_preference(rows, ridge=1.0)
    users = UserRows(rows, np.array([0, 12]), np.array([0]))
    ours = calibrated_radii(users, centre[None], scale, level=0.9)[0]
    parts = [oracle.on_a_grid(*rows, variance)[1:] for variance in scale.values]
    assert ours == pytest.approx(oracle.radius(parts, scale.weights, centre, 0.9), rel=0.03)


def test_the_information_distance_is_that_of_the_grid_posteriors():
    parts = [some_rows(seed, n, strength=s) for seed, n, s in ((0, 30, 2.0), (1, 10, -2.0), (2, 1, 0.0))]
    users = UserRows(Rows.join(parts), np.array([0, 30, 40, 41]), np.arange(3))
    beliefs = Beliefs.of(users, 0.8)
    exact = [oracle.on_a_grid(*rows, 0.8)[1:] for rows in parts]
    for u in range(3):
        expected = [0.0 if u == v else oracle.informed_distance(exact[u], exact[v], 0.8) for v in range(3)]
        assert np.allclose(beliefs.distances(u), expected, rtol=0.04)


def test_more_features_than_rows_give_what_the_dense_formulas_give():
    rows = some_rows(5, 4, dim=7)
    one = UserRows(rows, np.array([0, 4]), np.array([0]))
    beliefs, padded = Beliefs.of(one, 0.7), np.vstack([rows.Z, np.zeros((9, 7))])
    dense = Beliefs.of(
        UserRows(Rows(padded, *(np.append(c, np.zeros(9)) for c in rows[1:])), np.array([0, 13]), one.labels), 0.7
    )
    P = np.linalg.inv(rows.Z.T @ (rows.Z * beliefs.sites[:, None]) + np.eye(7) / 0.7)
    assert np.allclose(beliefs.mean, dense.mean)
    assert np.allclose(beliefs.covariance(0), P)
    assert np.allclose(dense.covariance(0), P)
    off = beliefs.mean[0] - np.ones(7)
    for each in (beliefs, dense):
        first, second = each.square_error(0, np.ones(7))
        assert first == pytest.approx(np.trace(P) + off @ off)
        assert second == pytest.approx((P * P).sum() + 2 * off @ P @ off)


def test_the_ball_holds_what_it_says(rng):
    C = np.diag([3.0, 1.0, 0.2])
    lengths = np.linalg.norm(rng.standard_normal((100_000, 3)) * np.sqrt(np.diag(C)), axis=1)
    assert np.mean(lengths <= ball_radius(np.trace(C), (C * C).sum(), 0.95)) == pytest.approx(0.95, abs=0.005)


@pytest.mark.long
@given(seed=st.integers(0, 300))
@settings(max_examples=5)
def test_users_who_want_the_same_are_one_apart_on_average_however_little_is_known(seed):
    """In the linear Gaussian model, where it is exact: simulated means around common preferences."""
    rng, d, variance = np.random.default_rng(seed), 3, 0.8
    Z = rng.standard_normal((7, d)) * [1.0, 0.02, 3.0]  # three rows and four, one feature hardly shown
    starts = np.array([0, 3, 7])
    sites = rng.uniform(0.05, 0.25, 7)
    users = UserRows(Rows(Z, np.ones(7), np.ones(7)), starts, np.arange(2))
    theta = np.sqrt(variance) * rng.standard_normal((4000, d))
    means = []
    for own in (slice(0, 3), slice(3, 7)):
        heard = theta @ Z[own].T + rng.standard_normal((4000, own.stop - own.start)) / np.sqrt(sites[own])
        H = Z[own].T @ (Z[own] * sites[own][:, None])
        means.append((heard * sites[own]) @ Z[own] @ np.linalg.inv(H + np.eye(d) / variance))
    squares = [
        Beliefs(users, variance, np.array(pair), sites).distances(0)[1] ** 2 for pair in zip(*means, strict=True)
    ]
    assert np.mean(squares) == pytest.approx(1.0, abs=0.12)


# -- coverage --------------------------------------------------------------------------------------------------------


def simulated(seed, dim=4, n=40, n_users=40, strength=2.0, groups=40):
    rng = np.random.default_rng(seed)
    theta = strength * rng.standard_normal((groups, dim)) / np.sqrt(dim)
    theta = theta[np.arange(n_users) % groups]
    users = np.repeat(np.arange(n_users), n)
    Z = rng.standard_normal((len(users), dim))
    y = (rng.random(len(users)) < expit(np.einsum("ij,ij->i", Z, theta[users]))).astype(int)
    return Z, y, users, theta


@pytest.mark.long
@pytest.mark.parametrize(("ridge", "delta"), [(1.0, 0.05), ("auto", 0.05), (5.0, 0.3)])
def test_the_calibrated_radius_covers_as_often_as_it_says(ridge, delta):
    covered = []
    for seed in range(8):
        Z, y, users, theta = simulated(seed)
        model = OffC2PL(0.0, ridge=ridge, radius="calibrated", delta=delta).fit(Z, y, users=users)
        covered.append(np.linalg.norm(model.own_theta_ - theta, axis=1) <= model.radius_)
    # 320 users: a radius a fifth too small or too large falls outside
    assert np.mean(covered) == pytest.approx(1 - delta, abs=0.03 if delta < 0.1 else 0.07)


@pytest.mark.long
def test_the_calibrated_width_covers_as_often_as_it_says():
    covered = []
    for seed in range(8):
        Z, y, users, theta = simulated(seed)
        model = OffC2PL(0.0, radius="calibrated").fit(Z, y, users=users)
        for u in range(40):
            off = model.theta_[u] - theta[u]
            covered.append(np.sqrt(off @ model.information(u) @ off) <= model.width(u))
    assert np.mean(covered) == pytest.approx(0.95, abs=0.03)


@pytest.mark.long
def test_the_scale_of_preferences_is_learnt():
    for strength in (0.7, 2.0, 5.0):
        Z, y, users, theta = simulated(1, strength=strength)
        scale = learn_scale(Comparisons.from_arrays(Z, y, users).by_user())
        assert scale.weights.sum() == pytest.approx(1)
        assert scale.typical == pytest.approx(np.mean(theta**2), rel=0.45)


@pytest.mark.long
def test_too_few_comparisons_for_an_honest_radius_are_warned_about():
    Z, y, users, _ = simulated(0, dim=6, n=6)
    with pytest.warns(CalibrationWarning, match="may be off, mostly too wide: users have 6 comparisons each"):
        OffC2PL(0.0, radius="calibrated").fit(Z, y, users=users)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        OffC2PL(0.0).fit(Z, y, users=users)
        Z, y, users, _ = simulated(0)
        OffC2PL(0.0, radius="calibrated").fit(Z, y, users=users)


# -- who is joined ---------------------------------------------------------------------------------------------------


def test_the_information_distance_is_not_fooled_by_what_was_never_shown():
    rng = np.random.default_rng(0)
    theta = np.array([[2.0, 2.0, 2.0, 2.0], [2.0, 2.0, -2.0, -2.0]])[np.arange(12) % 2]
    users = np.repeat(np.arange(12), 80)
    Z = rng.standard_normal((len(users), 4))
    blind = (np.arange(12) // 2) % 2  # half the users hardly saw feature 0, the others hardly feature 1
    Z[np.arange(len(Z)), blind[users]] *= 0.02
    y = (rng.random(len(users)) < expit(np.einsum("ij,ij->i", Z, theta[users]))).astype(int)
    model = OffC2PL(1.8, distance="information").fit(Z, y, users=users)
    for u in range(12):
        assert set(model.neighbours(u).tolist()) >= set(range(u % 2, 12, 2)) - {u}
        assert set(model.neighbours(u).tolist()) <= set(range(u % 2, 12, 2))


@pytest.mark.parametrize(
    "options", [*PRACTICAL[2:], *(pytest.param(each, marks=pytest.mark.long) for each in PRACTICAL[:2])]
)
def test_auto_gamma_works_with_every_option(options):
    rng, users = np.random.default_rng(2), np.repeat(np.arange(12), 40)
    theta = 3.0 * np.eye(4)[np.arange(12) % 3]
    Z = rng.standard_normal((len(users), 4))
    y = (rng.random(len(users)) < expit(np.einsum("ij,ij->i", Z, theta[users]))).astype(int)
    model = OffC2PL("auto", **options).fit(Z, y, users=users)
    before, after = (np.linalg.norm(estimate - theta, axis=1).mean() for estimate in (model.own_theta_, model.theta_))
    assert after < 0.9 * before
    assert np.mean([len(model.members(u)) for u in range(12)]) > 2


def test_appendix_thresholds_refuse_the_information_distance():
    with pytest.raises(InvalidParameter, match="gamma='under' is made of distances and radii"):
        OffC2PL("under", distance="information").fit([[1.0]], [1])
    with pytest.raises(InvalidParameter, match="distance must be 'euclidean' or 'information'"):
        OffC2PL(distance="cosine").fit([[1.0]], [1])
    with pytest.raises(InvalidParameter, match="ridge must be a finite number above 0, or 'auto'"):
        OffC2PL(ridge="big").fit([[1.0]], [1])


def test_the_papers_bounds_are_about_the_papers_radii():
    model = OffC2PL(0.0, radius="calibrated").fit([[0.5], [1.0]], [1, 0], users=["ann", "bo"])
    with pytest.raises(InvalidParameter, match="the paper's bounds are about"):
        own_radius(model, "ann")


def test_when_nobody_is_near_enough_the_fit_says_which_threshold_would_do():
    Z, y, users, _ = simulated(0, n_users=5)
    for options in PRACTICAL:
        with pytest.warns(NoEdgeWarning) as caught:
            OffC2PL(0.01, **options).fit(Z, y, users=users)
        text = next(str(one.message) for one in caught if one.category is NoEdgeWarning)
        assert "comparisons per user" not in text
        threshold = float(text.split("gamma above ")[1].split(" ")[0].rstrip(","))
        joined = OffC2PL(threshold * 1.01, **options).fit(Z, y, users=users)
        assert sum(len(joined.members(u)) > 1 for u in range(5)) >= 2


# -- the ridge -------------------------------------------------------------------------------------------------------


def test_the_automatic_ridge_is_the_best_on_held_out_answers():
    Z, y, users, _ = simulated(4, n_users=8, n=12)
    model = OffC2PL(0.0, ridge="auto").fit(Z, y, users=users)
    rows = Comparisons.from_arrays(Z, y, users).by_user()
    loss = dict.fromkeys(RIDGES, 0.0)
    for fold in held_out_folds(rows, 3):
        train, test = split_rows(rows, *fold)
        for ridge in RIDGES:
            for u in range(8):
                own = train.of(u)
                loss[ridge] += log_loss(literal.optimum(own.Z, own.y, ridge), test.of(u))
    assert model.ridge_ == min(loss, key=loss.get)
    assert model.ridge_ != 1.0
    fixed = OffC2PL(0.0, ridge=model.ridge_).fit(Z, y, users=users)
    assert np.array_equal(fixed.theta_, model.theta_)
    assert model.width(0) == fixed.width(0)
    assert np.array_equal(model.information(0), fixed.information(0))


# -- the literal mode, and everything else a model offers --------------------------------------------------------------


def test_the_literal_mode_is_what_it_was(rng):
    """Numbers of the version before these options; estimates as far as the solver's tolerance goes."""
    Z, y, users = draw_answers(rng)
    model = OffC2PL(43.6).fit(Z, y, users=users)
    assert model.ridge_ == 1.0
    assert model._scale is None
    assert model.graph_.beliefs is None
    was = LITERAL
    assert model.radius_.tolist() == pytest.approx(was["radius"], rel=1e-13)
    assert model.theta_[1].tolist() == pytest.approx(was["theta"], rel=1e-8)
    assert [model.neighbours(u).tolist() for u in range(6)] == was["neighbours"]
    assert model.width(2) == pytest.approx(was["width"], rel=1e-13)


LITERAL = {
    "radius": [
        *(21.651776843073506, 19.860049410071884, 22.041049065891524),
        *(20.887488308975488, 21.129795489111842, 20.886578255844423),
    ],
    "theta": [0.8744868451832232, 0.25433277289214246, -1.0731034864135993],
    "neighbours": [[0, 1, 4], [0, 1, 3, 4, 5], [2], [1, 3, 5], [0, 1, 4], [1, 3, 5]],
    "width": 78.01683699056699,
}


@pytest.mark.parametrize("options", PRACTICAL)
@pytest.mark.parametrize("gamma", [1.0, pytest.param("auto", marks=pytest.mark.long)])
def test_neither_the_order_of_rows_nor_of_users_nor_threads_matter(options, gamma, rng):
    Z, y, users = draw_answers(rng, strength=4.0)
    one = OffC2PL(gamma, n_jobs=1, **options).fit(Z, y, users=users)
    order, names = rng.permutation(len(y)), rng.permutation(6)
    other = OffC2PL(gamma, n_jobs=2, **options).fit(Z[order], y[order], users=names[users[order]])
    assert one.ridge_ == other.ridge_
    for u in range(6):
        v = other.position(names[u].item())
        assert np.allclose(one.theta_[u], other.theta_[v], atol=1e-7)
        assert np.allclose(one.radius_[u], other.radius_[v], rtol=1e-7)
        assert np.allclose(one.gamma_[u], other.gamma_[v], rtol=1e-6)
        assert {names[w] for w in one.members(u)} == set(other.neighbours(names[u].item()).tolist())


@pytest.mark.parametrize("options", PRACTICAL)
def test_explanations_folding_in_files_and_sessions_go_along(options, rng, tmp_path):
    Z, y, users = draw_answers(rng, strength=4.0)
    model = OffC2PL(1.0 if "distance" in options else 4.0, **options).fit(Z, y, users=users)
    for u in range(6):
        for v in range(6):
            why = model.explain(u, v)
            assert why.joined == (v in model.neighbours(u))
            assert u == v or why.joined == (why.margin > 0)
    if "distance" in options:
        assert "as far as both are known they are" in str(model.explain(0, 1))
    copy = model.fold_in(Z[users == 2], y[users == 2])
    assert np.allclose(copy.own_theta, model.own_theta_[2], atol=1e-12)
    assert copy.radius == pytest.approx(model.radius_[2], rel=1e-6)
    assert set(copy.neighbours.tolist()) >= set(model.neighbours(2).tolist()) - {2}
    model.save(tmp_path / "kin")
    again = prefkin.load(tmp_path / "kin")
    assert again.get_params() == model.get_params()
    assert again.ridge_ == model.ridge_
    candidates = Candidates(rng.standard_normal((3, 4, 3)))
    for u in range(6):
        assert again.neighbours(u).tolist() == model.neighbours(u).tolist()
        assert again.width(u) == model.width(u)
        assert again.policy(u, candidates).value == model.policy(u, candidates).value
    assert again.fold_in(Z[:9], y[:9]).radius == model.fold_in(Z[:9], y[:9]).radius
    session = model.session(2, candidates)
    session.tell(session.ask(), True)
    assert again.resume_session(session.state(), candidates).ask() == session.ask()
    assert np.isfinite(session.theta).all()


def test_files_from_before_these_options_still_load(rng, tmp_path):
    from tests.models.test_files import rewritten

    Z, y, users = draw_answers(rng)
    model = OffC2PL(43.6).fit(Z, y, users=users)
    model.save(tmp_path / "kin")
    about = {**model.get_params(), "classes": [0, 1]}
    del about["distance"]
    rewritten(tmp_path / "kin", {"about": about})
    again = prefkin.load(tmp_path / "kin")
    assert again.distance == "euclidean"
    assert again.ridge_ == 1.0
    assert again.width(0) == model.width(0)


def test_one_user_one_row_and_rows_of_zeros_are_no_reason_to_fail():
    for options in PRACTICAL:
        alone = OffC2PL(**options).fit([[0.5, 0.1]], [1], users=["ann"])
        assert np.isfinite(alone.radius_).all()
        blank = OffC2PL(1.0, **options).fit(np.zeros((4, 2)), [1, 0, 1, 1], users=[0, 0, 1, 1])
        assert np.isfinite(blank.radius_).all()
