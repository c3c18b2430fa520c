"""The evidence behind PrefKin: every factored formula against one big Gaussian."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefkin.execution.executor import threads
from prefkin.inference.components import propagate
from prefkin.inference.propagation import Sites, refine
from prefkin.inference.quadratics import ByDirections, ByMatrices, Signed, Terms, evidence, expand
from prefkin.inference.quadratics.evidence import joining_gain, joint_evidence, set_evidence
from prefkin.models.prefkin import places
from prefkin.models.prefkin.beliefs import kept_rows
from prefkin.models.prefkin.degrees import fit_degrees
from prefkin.models.prefkin.groups import _stretch, find_groups
from prefkin.models.prefkin.merging import merge
from prefkin.models.prefkin.mixture import AllTerms, Apart, Centres, Prior, covariances, solved
from prefkin.models.prefkin.person import Person
from prefkin.models.prefkin.places import _least, _most, assign, place
from prefkin.models.prefkin.scales import Scaling
from prefkin.models.prefkin.settling import settle
from tests.oracles import gaussian


def some_users(seed, d=3, sizes=(2, 3, 8)):
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    data = Signed(rng.standard_normal((starts[-1], d)), rng.uniform(0.5, 2.0, starts[-1]), starts)
    n = len(data.X)
    sites = Sites(rng.uniform(0.05, 0.3, n), rng.uniform(0.1, 1.0, n), -rng.uniform(0.2, 1.0, n), np.zeros(n))
    return rng, data, sites


def stacked(parts):
    """Users one by one as rows of one `Signed`."""
    starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return Signed(np.concatenate(parts), np.ones(starts[-1]), starts)


def users_of(data, sites, form=ByDirections):
    users = form.of(data, sites)
    return users, [(*gaussian.dense(users, u), float(users.const[u])) for u in range(len(users))]


@pytest.mark.parametrize("d", [1, 2, 5, 32, 50])
@pytest.mark.parametrize("variance", [0.0, 1e-7, 0.3, 1e4])
@pytest.mark.parametrize("sizes", [(1, 7, 40), (9, 9, 9)])
def test_what_is_done_for_all_users_at_once_is_what_each_ones_matrices_say(d, variance, sizes):
    _, data, sites = some_users(3, d, sizes)
    users = ByMatrices.of(data, sites)
    terms = users.at(variance)
    through, pulled = kept_rows(data, terms, variance)
    for u in range(3):
        own = data.own(u)
        X = data.X[own]
        assert np.allclose(users.H[u], X.T @ (sites.precision[own, None] * X), rtol=1e-12, atol=1e-12)
        assert np.allclose(users.H[u], users.H[u].T, rtol=1e-14, atol=0.0)
        assert np.allclose(users.c[u], sites.pull[own] @ X, rtol=1e-12, atol=1e-12)
        assert np.allclose(through[own], X - variance * X @ terms.A[u], rtol=1e-12, atol=1e-12)
        assert np.allclose(pulled[own], variance * X @ terms.a[u], rtol=1e-12, atol=1e-12)
    for u in range(3):
        M = np.eye(d) + variance * users.H[u]
        assert np.allclose(terms.A[u], users.H[u] @ np.linalg.inv(M), rtol=1e-7, atol=1e-10)
        assert np.array_equal(terms.A[u], terms.A[u].T)
        assert np.allclose(terms.a[u], np.linalg.solve(M, users.c[u]), rtol=1e-9, atol=1e-12)
        added = 0.5 * (variance * users.c[u] @ terms.a[u] - np.linalg.slogdet(M)[1])
        assert terms.level[u] - users.const[u] == pytest.approx(added, rel=1e-9, abs=1e-12)
        mean, G = np.linspace(-1.0, 1.0, d), np.linalg.inv(M)
        around = terms.a[u] @ mean - 0.5 * mean @ users.H[u] @ G @ mean + terms.level[u]
        if variance:
            assert users.evidences(mean, variance)[u] == pytest.approx(around, rel=1e-9, abs=1e-7)


def test_information_that_is_not_positive_is_refused():
    users = ByMatrices(-2.0 * np.eye(3)[None], np.zeros((1, 3)), np.zeros(1))
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        users.at(1.0)


@pytest.mark.parametrize("form", [ByDirections, ByMatrices])
def test_somebody_without_answers_tells_nothing(rng, form):
    """As in a part of the rows that holds none of theirs."""
    data = Signed(rng.standard_normal((4, 9)), np.ones(4), np.array([0, 3, 3, 4]))
    terms = form.of(data, Sites.start(data.weights)).at(2.0)
    assert not terms.A[1].any()
    assert not terms.a[1].any()
    assert terms.level[1] == 0.0


@given(
    seed=st.integers(0, 500),
    variance=st.sampled_from([1e-4, 0.1, 3.0]),
    form=st.sampled_from([ByDirections, ByMatrices]),
)
def test_users_integrals_are_those_of_dense_matrices(seed, variance, form):
    rng, data, sites = some_users(seed)
    users, parts = users_of(data, sites, form)
    m, prior = rng.standard_normal(3), variance * np.eye(3)
    share = np.array([0.0, 0.5, 1.0])
    terms = users.at(variance)
    means = terms.posterior_means(np.outer(share, m), variance, share)
    for u, (H, c, const) in enumerate(parts):
        expected = gaussian.log_integral(H, c, const, m, prior)
        assert users.evidences(m, variance)[u] == pytest.approx(expected, abs=1e-8)
        assert (terms.level + terms.explained(m[None])[:, 0])[u] == pytest.approx(expected, abs=1e-8)
        mean, C = gaussian.posterior(H, c, m, prior)
        assert np.allclose(means[u], share[u] * mean, atol=1e-9)
        assert np.allclose(variance * (np.eye(3) - variance * terms.A[u]), C, atol=1e-9)
        G = np.linalg.inv(np.eye(3) + variance * H)
        assert np.allclose(terms.A[u], H @ G, atol=1e-9)
        assert np.allclose(terms.a[u], G @ c, atol=1e-9)
    shares = np.column_stack([share, 1.0 - share])
    sums = terms.summed(shares)
    assert np.allclose(sums.A, np.einsum("uk,uij->kij", shares, terms.A), atol=1e-9)
    assert np.allclose(sums.a, shares.T @ terms.a, atol=1e-9)
    some = users.some(np.array([2, 1])).at(variance)
    assert np.array_equal(some.A, terms.A[[2, 1]])
    assert np.array_equal(some.level, terms.level[[2, 1]])


def test_matrices_keep_their_digits_whatever_the_scale(rng):
    """In single precision, A by itself would drown in I − G where τ² is small."""
    X = rng.standard_normal((120, 60))
    H = X.T @ X / 4.0
    c = rng.standard_normal(60)
    users = ByMatrices(H[None].astype(np.float32), c[None], np.zeros(1))
    for variance in (0.0, 1e-8, 1e-4, 1e-2, 1.0, 100.0):
        expected = np.linalg.solve(np.eye(60) + variance * H, H)
        terms = users.at(variance)
        assert np.abs(terms.A[0] - expected).max() < 1e-4 * np.abs(expected).max()
        assert np.allclose(terms.a[0], np.linalg.solve(np.eye(60) + variance * H, c), atol=1e-4)


def test_matrices_turn_to_double_precision_where_single_is_not_enough(rng):
    """A direction known a million times as well as the prior, beside directions without any answer."""
    X = rng.standard_normal((2, 40, 64)) + 100.0 * rng.standard_normal(64)
    data = stacked(list(X.astype(np.float32)))
    sites = Sites(np.full(80, 0.2), rng.uniform(0.1, 1.0, 80), np.zeros(80), np.zeros(80))
    matrices, directions = ByMatrices.of(data, sites), ByDirections.of(replace(data, X=data.X.astype(float)), sites)
    m = rng.standard_normal(64)
    for variance in (1.0, 100.0, 1e4):
        terms, expected = matrices.at(variance), directions.at(variance)
        assert np.allclose(terms.a, expected.a, atol=2e-3)
        assert np.allclose(matrices.evidences(m, variance), directions.evidences(m, variance), atol=0.02)
        assert np.array_equal(matrices.some(np.array([1])).at(variance).a[0], terms.a[1])
        means = np.tile(m, (2, 1))
        found = terms.posterior_means(means, variance)
        assert np.allclose(found, expected.posterior_means(means, variance), atol=0.01)


@pytest.mark.long
def test_matrices_and_directions_find_the_same_people(rng, monkeypatch):
    centres = np.repeat(rng.standard_normal((2, 256)) / 8.0, 3, axis=0)
    X = rng.standard_normal((6, 200, 256)).astype(np.float32)
    signs = np.sign(np.einsum("unj,uj->un", X, centres) + rng.logistic(size=(6, 200)))
    data = stacked(list((X * signs[:, :, None]).astype(np.float32)))
    found = []
    for full in (0.6, np.inf):
        monkeypatch.setattr("prefkin.inference.quadratics.FULL", full)
        found.append(find_groups(data, fit_degrees(data)))
    assert isinstance(found[0].users, ByMatrices)
    assert isinstance(found[1].users, ByDirections)
    assert np.array_equal(np.argmax(found[0].weights, axis=1), np.argmax(found[1].weights, axis=1))
    assert np.allclose(found[0].mean, found[1].mean, atol=2e-3 * np.abs(found[1].mean).max())
    assert found[0].evidence == pytest.approx(found[1].evidence, abs=0.05)


def test_sums_of_matrices_do_not_depend_on_threads(rng):
    X = rng.standard_normal((20, 30, 24)).astype(np.float32)
    data = stacked(list(X))
    shares, sums = rng.random((20, 2)), []
    for n_jobs in (1, 3):
        with threads(n_jobs):
            sums.append(ByMatrices.of(data, Sites.start(data.weights)).at(0.1).summed(shares).A)
    assert np.array_equal(*sums)


@pytest.mark.parametrize("d", [3, 70])
def test_scales_rise_where_evidence_does(d):
    """The ratios of `Scaling` less 1 have the sign of the evidence's slope, and are 1 where it is highest."""
    rng, data, sites = some_users(5, d, (40, 60, 80, 90))
    users, share = expand(data, sites), np.array([[1.0, 0.0], [0.6, 0.4], [0.0, 0.9], [0.0, 0.0]])
    m0 = 0.1 * rng.standard_normal(d)
    alone = 1.0 - share.sum(axis=1)

    def evidence(within, between):
        sets = set_evidence(users.at(within).summed(share), m0, between).sum()
        return sets + alone @ users.evidences(m0, within + between)

    for within, between in ((0.05, 0.4), (1.0, 0.1)):
        prior = Prior(m0, within, between, 1.0)
        terms = users.at(within)
        centres = Centres.of(terms.summed(share), prior)
        found = Scaling.of(terms, share, centres, Apart.of(users, share, prior), prior)
        slope = (evidence(within * 1.001, between) - evidence(within / 1.001, between)) / 0.002
        assert (found.within - 1.0) * found.determined / 2.0 == pytest.approx(slope, rel=0.1 if d > 64 else 0.01)
        slope = (evidence(within, between * 1.001) - evidence(within, between / 1.001)) / 0.002
        assert (found.between - 1.0) * found.centred / 2.0 == pytest.approx(slope, rel=0.01)


def test_people_who_want_twice_as_much_are_found_to():
    """Sites matched to weak preferences hold scales back; `_stretch` must see through that, and not see more."""
    rng = np.random.default_rng(4)
    d, n, centres = 40, 20, rng.standard_normal((3, 40))
    for strength, expected in ((0.3, 1.0), (1.5, np.sqrt(2.0))):
        theta = strength * np.repeat(centres, 12, axis=0)
        parts = []
        for preference in theta:
            Z = rng.standard_normal((n, d))
            y = rng.random(n) < 1.0 / (1.0 + np.exp(-Z @ preference))
            parts.append(np.where(y, 1.0, -1.0)[:, None] * Z)
        data = stacked(parts)
        prior = Prior(np.zeros(d), 0.01 * 0.3**2, 0.3**2, 1e-3)
        sites = Sites.start(data.weights)
        blocks = solved(expand(data, sites), sites, np.repeat(np.eye(3), 12, axis=0), prior)
        assert _stretch(data, blocks) == expected


def test_quadratics_are_the_sums_of_their_sites(rng):
    _, data, sites = some_users(3)
    for d_extra in (0, 70):  # few features: decomposed together; many: one by one, with fewer rows than features
        X = np.hstack([data.X, rng.standard_normal((len(data.X), d_extra))])
        _, parts = users_of(Signed(X, data.weights, data.starts), sites)
        for u, (H, c, const) in enumerate(parts):
            own = data.own(u)
            assert np.allclose(H, X[own].T @ np.diag(sites.precision[own]) @ X[own])
            assert np.allclose(c, sites.pull[own] @ X[own])
            assert const == pytest.approx(sites.level[own].sum())


@pytest.mark.parametrize(
    ("mean", "variance"),
    [
        (0.0, 0.01),
        (1.0, 1.0),
        (-2.0, 4.0),
        (3.0, 30.0),
        (-6.0, 2.0),
        (-12.0, 4.0),
        (-30.0, 100.0),
        (0.0, 100.0),
        (-60.0, 1.0),
    ],
)
def test_a_site_has_the_mass_mean_and_variance_of_the_answer(mean, variance):
    """Under what the other rows say, N(mean, variance): the row itself, with its old site, is taken out first."""
    old = Sites(np.array([0.1]), np.array([0.3]), np.zeros(1), np.zeros(1))
    known, pull = 1 / variance + old.precision, mean / variance + old.pull
    site = refine(old, np.ones(1), pull / known, 1 / known)
    log_mass, middle, spread = gaussian.tilted_moments(mean, variance)
    precision = 1 / variance + site.precision[0]
    assert (mean / variance + site.pull[0]) / precision == pytest.approx(middle, abs=2e-4 * (1 + abs(mean)))
    assert 1 / precision == pytest.approx(spread, rel=1e-3)
    own_mass = gaussian.log_integral(
        np.array([[site.precision[0]]]), site.pull, site.level[0], np.array([mean]), np.array([[variance]])
    )
    assert own_mass == pytest.approx(log_mass, abs=1e-4)
    compiled = propagate(np.full((1, 1, 1), np.sqrt(variance)), np.full((1, 1), mean), np.zeros(1))
    assert compiled.evidence[0] == pytest.approx(log_mass, abs=1e-4)
    assert compiled.margin[0, 0] == pytest.approx(middle, abs=2e-4 * (1 + abs(mean)))


def test_rows_that_count_twice_are_two_rows(rng):
    X = rng.standard_normal((6, 2))
    twice = Signed(X, np.full(6, 2.0), np.array([0, 6]))
    both = Signed(np.vstack([X, X]), np.ones(12), np.array([0, 12]), repeated=np.full(12, 2.0))
    one, other = (fit_degrees(data) for data in (twice, both))
    assert np.allclose(one.mean, other.mean, atol=1e-8)
    assert one.evidence == pytest.approx(other.evidence, abs=1e-8)


def test_the_evidence_of_a_user_is_nearly_the_integral_itself(rng):
    """Expectation propagation against quadrature, where plain Laplace expansion is off by several tenths."""
    X = 2.0 * rng.standard_normal((12, 2))
    X *= np.where(rng.random(12) < 1 / (1 + np.exp(-X @ [2.0, -1.0])), 1, -1)[:, None]
    data, prior = stacked([X]), Prior(np.zeros(2), 1.0, 1e-9, 1.0)
    blocks = solved(expand(data, Sites.start(data.weights)), Sites.start(data.weights), np.ones((1, 1)), prior)
    exact = gaussian.log_evidence_by_quadrature(X, 1.0)
    laplace_at_zero = blocks.users.evidences(np.zeros(2), 1.0)[0]
    for _ in range(10):
        sites = blocks.refined(data)
        blocks = solved(expand(data, sites), sites, np.ones((1, 1)), prior)
    assert blocks.users.evidences(np.zeros(2), 1.0)[0] == pytest.approx(exact, abs=0.01)
    assert abs(laplace_at_zero - exact) > 0.3


@given(seed=st.integers(0, 500), within=st.sampled_from([0.01, 0.5]), between=st.sampled_from([0.05, 2.0]))
def test_the_evidence_of_a_set_is_the_joint_integral_over_its_users(seed, within, between):
    rng, data, sites = some_users(seed)
    (users, parts), m0 = users_of(data, sites), rng.standard_normal(3)
    single = users.at(within)
    whole = set_evidence(single.summed(np.ones((3, 1))), m0, between)[0]
    assert whole == pytest.approx(gaussian.joint_log_integral(parts, m0, within, between), abs=1e-7)
    assert whole == pytest.approx(set_evidence(single[0] + single[1] + single[2], m0, between), abs=1e-9)


@given(seed=st.integers(0, 500), within=st.sampled_from([0.01, 0.5]))
def test_means_and_covariances_are_those_of_the_joint_posterior(seed, within):
    rng, data, sites = some_users(seed)
    (users, parts), m0 = users_of(data, sites), rng.standard_normal(3)
    blocks = solved(users, sites, np.ones((3, 1)), Prior(m0, within, 0.7, 1.0))
    mean, C = gaussian.joint_posterior(parts, m0, within, 0.7)
    assert np.allclose(blocks.mean, mean, atol=1e-8)
    rows = rng.standard_normal((5, 3))
    for u in range(3):
        person = blocks.person(u)
        assert np.allclose(person.mean, mean[u], atol=1e-8)
        assert np.allclose(person.covariance(), C[u, :, u], atol=1e-8)
        assert np.allclose(covariances(blocks, slice(None))[u], C[u, :, u], atol=1e-8)
        assert np.allclose(person.variance(rows), np.einsum("ij,jk,ik->i", rows, C[u, :, u], rows), atol=1e-8)


def test_somebody_torn_between_blocks_has_the_moments_of_the_mixture():
    rng, data, sites = some_users(4)
    (users, parts), prior = users_of(data, sites), Prior(np.zeros(3), 0.1, 0.5, 1.0)
    blocks = solved(users, sites, np.array([[0.5, 0.2], [1.0, 0.0], [0.0, 1.0]]), prior)
    person = blocks.person(0)
    H, c, _ = parts[0]
    means, covs = [], []
    for k in range(2):
        spread = 0.1 * np.eye(3) + blocks.centres.doubt[k]
        mean, C = gaussian.posterior(H, c, blocks.centres.mean[k], spread)
        means.append(gaussian.posterior(H, c, blocks.centres.mean[k], 0.1 * np.eye(3))[0])
        G = np.linalg.inv(np.eye(3) + 0.1 * H)
        covs.append(np.linalg.inv(H + np.eye(3) / 0.1) + G @ blocks.centres.doubt[k] @ G.T)
    mean, C = gaussian.posterior(H, c, np.zeros(3), 0.6 * np.eye(3))
    means, covs, weights = np.array([*means, mean]), [*covs, C], np.array([0.5, 0.2, 0.3])
    middle = weights @ means
    whole = sum(w * (C + np.outer(m - middle, m - middle)) for w, C, m in zip(weights, covs, means, strict=True))
    assert np.allclose(person.mean, middle, atol=1e-9)
    assert np.allclose(blocks.mean[0], middle, atol=1e-9)
    assert np.allclose(person.covariance(), whole, atol=1e-9)
    assert np.allclose(covariances(blocks, np.array([2, 0]))[1], whole, atol=1e-9)
    rows = rng.standard_normal((4, 3))
    assert np.allclose(person.variance(rows), np.einsum("ij,jk,ik->i", rows, whole, rows), atol=1e-9)


def test_soft_seats_are_leave_one_out_odds():
    """With everybody seated for certain: odds of a block are (others there) × evidence with / evidence without."""
    _, data, sites = some_users(3, 3, (6, 6, 6, 6))
    (users, parts), m0 = users_of(data, sites), np.zeros(3)
    share = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    soft = assign(AllTerms(users, 0.1), share, Prior(m0, 0.1, 0.5, 1.0), 1, 12)
    for u in range(4):
        odds = []
        for block in (0, 1):
            others = [v for v in range(4) if share[v, block] and v != u]
            with_ = gaussian.joint_log_integral([parts[v] for v in [*others, u]], m0, 0.1, 0.5)
            without = gaussian.joint_log_integral([parts[v] for v in others], m0, 0.1, 0.5)
            odds.append(np.log(len(others)) + with_ - without)
        odds.append(gaussian.log_integral(*parts[u], m0, 0.6 * np.eye(3)))
        chance = np.exp(np.array(odds) - max(odds))
        assert np.allclose(soft[u], (chance / chance.sum())[:2], atol=1e-5)


def test_merging_follows_the_evidence():
    """Two pairs of equals: the best partition on the way has two sets, and no other partition has more evidence."""
    rng = np.random.default_rng(0)
    truth = np.array([[2.0, 0.0], [2.0, 0.0], [-2.0, 0.0], [-2.0, 0.0]])
    X = []
    for theta in truth:
        Z = rng.standard_normal((80, 2))
        X.append(np.where(rng.random(80) < 1 / (1 + np.exp(-Z @ theta)), 1, -1)[:, None] * Z)
    data = stacked(X)
    users = expand(data, Sites.start(data.weights))
    seats = merge(users.at(0.01), Prior(np.zeros(2), 0.01, 1.0, 1.0), np.arange(4), 8)
    assert seats[0] == seats[1] != seats[2] == seats[3]
    score = [
        set_evidence(users.at(0.01).summed(np.eye(max(p) + 1)[list(p)]), np.zeros(2), 1.0).sum()
        for p in ((0, 0, 1, 1), (0, 1, 0, 1), (0, 0, 0, 0), (0, 1, 2, 3), (0, 0, 1, 2), (0, 1, 2, 2))
    ]
    assert np.argmax(score) == 0


def test_groups_are_found_when_there_are_some_and_not_otherwise():
    rng = np.random.default_rng(1)

    def signed(theta, n=80):
        Z = rng.standard_normal((n, len(theta)))
        return np.where(rng.random(n) < 1 / (1 + np.exp(-Z @ theta)), 1, -1)[:, None] * Z

    centres = 2 * rng.standard_normal((3, 4))
    grouped = stacked([signed(centres[u % 3]) for u in range(12)])
    cloud = fit_degrees(grouped)
    blocks = find_groups(grouped, cloud)
    assert blocks.evidence > cloud.evidence + 10
    assert [set(np.flatnonzero(column > 0.5)) for column in blocks.share.T] in (
        [{0, 3, 6, 9}, {1, 4, 7, 10}, {2, 5, 8, 11}],
        *([set(range(a, 12, 3)), set(range(b, 12, 3)), set(range(c, 12, 3))] for a, b, c in ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))),
    )  # fmt: skip
    middle = rng.standard_normal(4)
    by_degrees = stacked([signed(middle + 0.7 * rng.standard_normal(4)) for _ in range(12)])
    cloud = fit_degrees(by_degrees)
    assert find_groups(by_degrees, cloud).evidence < cloud.evidence + 1


@given(seed=st.integers(0, 300), within=st.sampled_from([0.01, 0.5]), between=st.sampled_from([0.05, 2.0]))
def test_bounds_hold(seed, within, between):
    """The evidence that a newcomer adds to a block lies between the bounds that decide whether to compute it."""
    rng, data, sites = some_users(seed)
    (users, _), prior = users_of(data, sites), Prior(rng.standard_normal(3), within, between, 1.0)
    own = users.at(within)
    block = own[0] + own[1]
    block = Terms(block.A[None], block.a[None], block.level[None])
    centres = Centres.of(block, prior)
    low, high = _least(own, centres), _most(own, centres, np.arange(3), np.zeros(3, dtype=int))
    joined = Terms(block.A[0] + own.A[2], block.a[0] + own.a[2], block.level[0] + own.level[2])
    gained = set_evidence(joined, prior.m0, between) - set_evidence(block, prior.m0, between)[0]
    assert low[2, 0] - 1e-9 <= gained <= high[2] + 1e-9


def in_two_groups(rng, kind, precision=0.2, within=0.05, between=2.0):
    """Seven people with 3 to 9 rows of 80 features, one of them torn: terms, centres, and pairs of a person and a group."""
    sizes = np.arange(3, 10)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    n, none = starts[-1], np.zeros(starts[-1])
    data = Signed(rng.standard_normal((n, 80)).astype(kind), np.ones(n), starts)
    own = expand(data, Sites(np.full(n, precision), 0.5 * rng.standard_normal(n), none, none)).at(within)
    share = np.eye(2)[np.arange(7) % 2]
    share[3] = 0.7, 0.3
    prior = Prior(0.1 * rng.standard_normal(80), within, between, 1.0)
    who, where = np.repeat(np.arange(7), 2), np.tile([0, 1], 7)
    return own, Centres.of(own.summed(share), prior), prior, who, where, share[who, where]


@pytest.mark.parametrize(("kind", "off"), [(np.float64, 1e-9), (np.float32, 1e-3)])
def test_what_somebody_adds_to_a_group_is_told_along_their_own_directions(rng, kind, off):
    own, centres, prior, who, where, part = in_two_groups(rng, kind)
    gain = joining_gain(centres.mean, centres.doubt, own, who, where, part)
    exact = Terms(own.A.astype(float), own.a, own.level), centres.sums, prior.m0, prior.between
    for i, (u, k, p) in enumerate(zip(who, where, part)):
        one, sums, *given = exact
        A, a = sums.A[k].astype(float), sums.a[k]
        with_, without = (
            set_evidence(Terms(A + t * one.A[u], a + t * one.a[u], np.zeros(())), *given) for t in (1.0 - p, -p)
        )
        assert gain[i] == pytest.approx(with_ - without, abs=off)


def test_what_single_precision_cannot_tell_is_not_told(rng):
    own, centres, _, who, where, part = in_two_groups(rng, np.float32, precision=5.0, within=1e-6, between=1e5)
    assert joining_gain(centres.mean, centres.doubt, own, who, where, part) is None
    assert joining_gain(centres.mean, centres.doubt, replace(own, roots=None), who, where, part) is None


def people(rng, n_users, n_groups=3, n=60, d=4):
    centres = 2 * rng.standard_normal((n_groups, d))
    parts = []
    for u in range(n_users):
        Z = rng.standard_normal((n, d))
        parts.append(np.where(rng.random(n) < 1 / (1 + np.exp(-Z @ centres[u % n_groups])), 1, -1)[:, None] * Z)
    return stacked(parts)


def test_everybody_settles_where_a_search_among_all_would_seat_them(rng):
    data = people(rng, 36)
    known = np.arange(12)
    everybody = find_groups(data, fit_degrees(data))
    some = find_groups(data.some(known), fit_degrees(data.some(known)))
    settled = settle(some, known, data)
    together = everybody.share @ everybody.share.T > 0.5
    assert ((settled.share @ settled.share.T > 0.5) == together).mean() > 0.97
    assert np.abs(settled.mean - everybody.mean).max() < 0.25
    assert np.allclose(settled.weights.sum(axis=1), 1.0)


def test_a_group_that_the_first_users_do_not_belong_to_is_found_among_the_others(rng):
    data = people(rng, 24)
    known = np.array([u for u in range(24) if u % 3])  # nobody of the first group
    some = find_groups(data.some(known), fit_degrees(data.some(known)))
    settled = settle(some, known, data)
    first = np.arange(0, 24, 3)
    together = settled.share @ settled.share.T
    assert (together[np.ix_(first, first)] > 0.5).mean() > 0.8
    assert together[np.ix_(first, known)].max() < 0.5


def test_placing_somebody_is_what_seating_them_with_everybody_else_fixed_gives(rng):
    data = people(rng, 12)
    blocks = find_groups(data.some(np.arange(11)), fit_degrees(data.some(np.arange(11))))
    one = place(blocks, data.some([11]))
    assert isinstance(one.person(0), Person)
    assert one.share[0].max() > 0.9
    # the centre of that block as prior, by dense matrices, at the sites found
    H, c = gaussian.dense(one.users, 0)
    k = int(np.argmax(one.share[0]))
    mean, _ = gaussian.posterior(H, c, blocks.centres.mean[k], blocks.prior.within * np.eye(4))
    assert np.allclose(one.mean[0], mean, atol=0.05)


def test_whoever_is_sure_by_bounds_is_where_exact_evidence_would_seat_them(rng, monkeypatch):
    data, exact = people(rng, 60, n=40), []
    some = find_groups(data.some(np.arange(40)), fit_degrees(data.some(np.arange(40))))
    weigh = places.joint_evidence
    monkeypatch.setattr(places, "joint_evidence", lambda *args: exact.append(len(args[1])) or weigh(*args))
    quick, looked = place(some, data, 1, sure=0.99).share, sum(exact)
    monkeypatch.setattr(places, "_settled", lambda low, *_: np.zeros(len(low), dtype=bool))
    np.testing.assert_array_equal(quick, place(some, data, 1, sure=0.99).share)
    assert looked < 0.6 * (sum(exact) - looked)
    assert 0 < (quick.max(axis=1) < 1.0).sum() < 30  # some are torn


def test_single_precision_with_many_features_changes_little(rng, monkeypatch):
    data = people(rng, 6, n=30, d=5)
    wide = Signed(np.hstack([data.X, 0.1 * rng.standard_normal((len(data.X), 275))]), data.weights, data.starts)
    narrow = Signed(wide.X.astype(np.float32), data.weights, data.starts)
    one, other = (fit_degrees(which, rounds=4) for which in (wide, narrow))
    assert other.users.V.dtype == np.float32
    assert np.allclose(one.mean, other.mean, atol=1e-3)
    assert one.evidence == pytest.approx(other.evidence, abs=0.01)


@pytest.mark.parametrize("compiled_below", [100, 0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_evidence_of_pairs_is_the_integral_over_their_centre(monkeypatch, rng, compiled_below, dtype):
    monkeypatch.setattr(evidence, "STACKED_CHOLESKY", compiled_below)
    half = rng.standard_normal((4, 5, 5))
    terms = Terms((half @ half.transpose(0, 2, 1)).astype(dtype), rng.standard_normal((4, 5)), np.zeros(4))
    m0, between, times = rng.standard_normal(5), 0.7, np.array([1.0, 0.3, -0.2])
    at, which = np.array([0, 1, 2]), np.array([3, 0, 2])
    found = joint_evidence(terms, at, terms, which, times, m0, between)
    for value, k, u, t in zip(found, at, which, times, strict=True):
        A, a = terms.A[k] + t * terms.A[u].astype(float), terms.a[k] + t * terms.a[u]
        P, pull = A + np.eye(5) / between, a + m0 / between
        log_det = np.linalg.slogdet(between * P)[1]
        wanted = 0.5 * (pull @ np.linalg.solve(P, pull) - m0 @ m0 / between - log_det)
        assert value == pytest.approx(wanted, abs=1e-9 if dtype is np.float64 else 1e-4)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        joint_evidence(terms, at, terms, which, np.full(3, -100.0), m0, between)
