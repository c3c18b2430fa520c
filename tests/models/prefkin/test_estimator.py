"""PrefKin as people use it."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import prefkin
from prefkin import Candidates, Comparisons, PrefKin
from prefkin.data.synthetic import demo_population, make_population
from prefkin.errors import InvalidComparisons, InvalidParameter
from prefkin.evaluate.compare import compare
from prefkin.evaluate.metrics import held_out
from prefkin.models.baselines import mixture_em, per_user, pooled, shrink_to_pooled
from prefkin.models.prefkin.settings import REPORTING
from tests.conftest import answers_by_degrees


@pytest.fixture(scope="module")
def grouped():
    return make_population(np.random.default_rng(3), n_users=15, n_groups=3, dim=4, n_comparisons=60, strength=3.0)


@pytest.fixture(scope="module")
def model(grouped):
    return PrefKin(metric="isotropic").fit(grouped.data)


@pytest.mark.filterwarnings("ignore::prefkin.errors.SeparationWarning")  # iris is separable,
@pytest.mark.filterwarnings("ignore::prefkin.errors.AnswerWarning")  # and answers are of any two kinds
@pytest.mark.parametrize(
    "metric", ["isotropic", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("diagonal", "auto"))]
)
def test_scikit_learns_own_checks_pass(metric):
    results = check_estimator(PrefKin(metric=metric), on_skip=None, on_fail="raise")
    assert sum(result["status"] == "passed" for result in results) > 50
    assert clone(PrefKin(level=0.9)).level == 0.9


def test_like_minded_users_are_found_and_the_estimate_profits(grouped, model):
    assert model.structure_ == "groups"
    for u in range(15):
        assert set(model.neighbours(u).tolist()) == set(np.flatnonzero(grouped.group == grouped.group[u]).tolist())
    error = np.linalg.norm(model.theta_ - grouped.theta, axis=1)
    own = np.linalg.norm(model.own_theta_ - grouped.theta, axis=1)
    assert error.mean() < 0.75 * own.mean()
    result = held_out(model, grouped.held_out)
    for rival in (per_user(), pooled()):
        assert result.log_loss < held_out(rival.fit(grouped.data), grouped.held_out).log_loss


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("groups", {"groups"}),
        ("alike", {"one group"}),
        ("degrees", {"by degrees"}),
        ("unrelated", {"unrelated", "by degrees"}),
    ],
)
def test_it_says_what_it_saw(kind, expected):
    rng = np.random.default_rng(5)
    middle, centres = 2 * rng.standard_normal(5), 2 * rng.standard_normal((3, 5))
    theta = {
        "groups": centres[np.arange(18) % 3],
        "alike": np.tile(middle, (18, 1)),
        "degrees": middle + 0.8 * rng.standard_normal((18, 5)),
        "unrelated": 1.5 * rng.standard_normal((18, 5)),
    }[kind]
    owner = np.repeat(np.arange(18), 80)
    Z = rng.standard_normal((len(owner), 5))
    y = rng.random(len(owner)) < expit(np.einsum("ij,ij->i", Z, theta[owner]))
    assert PrefKin().fit(Z, y.astype(int), users=owner).structure_ in expected


def test_everybody_counts_by_degrees_and_nobody_is_asked_to_be_alike():
    Z, y, users = answers_by_degrees()
    model = PrefKin(metric="isotropic").fit(Z, y, users=users)
    assert model.structure_ == "by degrees"
    labels, share = model.neighbours(3, weights=True)
    assert len(labels) == 12
    assert share.sum() == pytest.approx(1.0)
    assert labels[0] == 3
    assert share[0] == share.max()
    assert "No groups were found" in model.explain(3, 4).sentence


def test_probabilities_are_moderated_by_doubt(grouped, model):
    Z = grouped.data.Z[:5]
    C = model.covariance(0)
    calibrated = model._learnt.posterior.covariances(np.array([0]))[0]  # by which the temperature was chosen
    doubt = np.einsum("ij,jk,ik->i", Z, calibrated, Z)
    temperature = model.temperature_
    expected = expit(temperature * (Z @ model.theta_[0]) / np.sqrt(1 + np.pi * doubt / 8))
    assert np.allclose(model.predict_proba(Z, users=[0] * 5)[:, 1], expected)
    assert np.allclose(model.information(0) @ C, np.eye(4), atol=1e-8)


def test_the_radius_is_the_quantile_of_the_posteriors_distance(model, rng):
    C = model.covariance(2)
    draws = np.linalg.norm(rng.multivariate_normal(np.zeros(4), C, 200_000), axis=1)
    assert model.radius_[2] == pytest.approx(REPORTING.caution * np.quantile(draws, 0.95), rel=0.02)


def test_explanations_carry_the_probability(grouped, model):
    for u, v in ((0, 1), (0, 2), (3, 4)):
        why = model.explain(u, v)
        same = grouped.group[u] == grouped.group[v]
        assert why.joined == same
        assert (why.probability > 0.5) == same
        assert (f"{why.probability:.2g}" if why.probability > 0.001 else "under 0.001") in why.sentence


def test_a_new_person_is_placed_as_a_refit_would_place_them(grouped):
    data = grouped.data
    others = data.take(data.who != 4)
    mine = data.take(data.who == 4)
    without = PrefKin(metric="isotropic").fit(others)
    folded = without.fold_in(mine.Z, mine.y)
    refitted = PrefKin(metric="isotropic").fit(data)
    assert set(folded.neighbours.tolist()) == set(refitted.neighbours(4).tolist()) - {4}
    assert np.linalg.norm(folded.theta - refitted.theta_[4]) < 0.1 * np.linalg.norm(refitted.theta_[4])
    few = without.fold_in(mine.Z[:3], mine.y[:3])
    assert few.radius > folded.radius


def test_a_known_person_folded_in_gets_nearly_the_same_estimate(grouped, model):
    """The copy counts itself among the others, so the estimates differ by what one more member adds."""
    mine = grouped.data.take(grouped.data.who == 4)
    folded = model.fold_in(mine.Z, mine.y)
    assert 4 in folded.neighbours
    assert np.linalg.norm(folded.theta - model.theta_[4]) < 0.1 * np.linalg.norm(model.theta_[4])


def same_people(one, other, rename=lambda u: u, turn=None):
    turn = np.eye(one.theta_.shape[1]) if turn is None else turn
    for u, user in enumerate(one.users_.tolist()):
        v = other.position(rename(user))
        assert np.allclose(one.theta_[u] @ turn, other.theta_[v], atol=1e-6)
    assert one.structure_ == other.structure_


def test_order_names_and_mirror_images_do_not_matter(grouped):
    data, rng = grouped.data, np.random.default_rng(0)
    one = PrefKin().fit(data)
    order = rng.permutation(len(data))
    same_people(one, PrefKin().fit(data.take(order)))
    names = rng.permutation(15)
    renamed = PrefKin().fit(data.Z, data.y, users=names[data.users])
    same_people(one, renamed, lambda user: names[user].item())
    flip = rng.random(len(data)) < 0.5
    same_people(
        one,
        PrefKin().fit(np.where(flip[:, None], -data.Z, data.Z), np.where(flip, 1 - data.y, data.y), users=data.users),
    )


def test_rotations_do_not_matter_to_the_isotropic_metric(grouped):
    data = grouped.data
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((4, 4)))[0]
    one = PrefKin(metric="isotropic").fit(data)
    same_people(one, PrefKin(metric="isotropic").fit(data.Z @ turn, data.y, users=data.users), turn=turn)


def test_units_do_not_matter_to_the_diagonal_metric(grouped):
    data, units = grouped.data, np.array([1e-3, 1.0, 50.0, 1e4])
    one = PrefKin(metric="diagonal").fit(data)
    other = PrefKin(metric="diagonal").fit(data.Z * units, data.y, users=data.users)
    assert np.allclose(one.theta_, other.theta_ * units, rtol=1e-4, atol=1e-6)
    assert np.allclose(
        one.predict_proba(data.Z, data.users), other.predict_proba(data.Z * units, data.users), atol=1e-6
    )


def test_thin_users_single_users_and_weights_are_handled(grouped):
    data = grouped.data
    thin = data.take(np.flatnonzero((data.who > 2) | (np.arange(len(data)) % 60 == 0)))  # three users with one row each
    model = PrefKin().fit(thin)
    assert np.isfinite(model.theta_).all()
    assert model.radius_[0] > model.radius_[10]
    alone = PrefKin().fit(data.Z[:40], data.y[:40])
    assert alone.structure_ == "unrelated"
    assert np.isfinite(alone.radius_).all()
    twice = PrefKin(metric="isotropic").fit(data.Z, data.y, users=data.users, sample_weight=np.full(len(data), 2.0))
    copies = np.repeat(np.arange(len(data)), 2)
    copied = PrefKin(metric="isotropic").fit(data.Z[copies], data.y[copies], users=data.users[copies])
    assert np.allclose(twice.theta_, copied.theta_, atol=1e-6)


def test_fewer_rows_than_features_work():
    people = make_population(np.random.default_rng(0), n_users=12, n_groups=2, dim=40, n_comparisons=25, strength=3.0)
    model = PrefKin().fit(people.data)
    cosine = np.einsum("ij,ij->i", model.theta_, people.theta) / np.linalg.norm(model.theta_, axis=1) / 3.0
    own = np.einsum("ij,ij->i", model.own_theta_, people.theta) / np.linalg.norm(model.own_theta_, axis=1) / 3.0
    assert cosine.mean() > own.mean()


def test_all_answers_equal_and_empty_features_do_no_harm(rng):
    Z = rng.standard_normal((60, 3))
    Z[:, 1] = 0.0
    model = PrefKin().fit(Z, np.ones(60, dtype=int), users=np.repeat(["a", "b", "c"], 20))
    assert np.isfinite(model.theta_).all()
    assert np.allclose(model.theta_[:, 1], 0.0, atol=1e-9)
    assert np.isfinite(model.predict_proba(Z, users=["a"] * 60)).all()


def test_policies_play_safe_by_the_posterior(model, rng):
    candidates = Candidates(rng.standard_normal((20, 5, 4)))
    careful, greedy = model.policy(3, candidates), model.policy(3, candidates, pessimism=0)
    assert careful.penalty < greedy.mean @ model.theta_[3]
    assert careful.value <= careful.upper_bound
    spread = float(np.sqrt(careful.mean @ model.covariance(3) @ careful.mean))
    assert careful.penalty == pytest.approx(1.6448536 * spread, rel=1e-6)


def test_questions_come_from_the_posterior_and_sharpen_it(grouped, model, rng):
    candidates = Candidates(rng.standard_normal((15, 4, 4)))
    session = model.session(5, candidates)
    C, theta = model.covariance(5), model.theta_[5]
    scores = {}
    for x, part in enumerate(candidates):
        for i in range(4):
            for j in range(i + 1, 4):
                z = part[i] - part[j]
                p = expit(z @ theta)
                scores[x, i, j] = p * (1 - p) * (z @ C @ z)
    question = session.ask()
    assert scores[question.context, question.first, question.second] == pytest.approx(max(scores.values()))
    before = np.trace(np.linalg.inv(session.information))
    for _ in range(10):
        question = session.ask()
        session.tell(question, bool(rng.random() < expit(session.difference(question) @ grouped.theta[5])))
    assert np.trace(np.linalg.inv(session.information)) < before
    assert np.linalg.norm(session.preference - grouped.theta[5]) < 1.5 * np.linalg.norm(theta - grouped.theta[5]) + 0.5
    again = model.resume_session(session.state(), candidates)
    assert again.ask() == session.ask()


@pytest.mark.parametrize("labels", [int, str])
def test_a_saved_model_is_the_same_model(grouped, tmp_path, labels):
    data = grouped.data
    model = PrefKin().fit(data.Z, data.y, users=[labels(u) for u in data.users])
    model.save(tmp_path / "kin")
    again = prefkin.load(tmp_path / "kin")
    assert isinstance(again, PrefKin)
    user = labels(3)
    assert np.array_equal(again.theta_, model.theta_)
    assert np.allclose(again.covariance(user), model.covariance(user), rtol=1e-9)
    assert (again.structure_, again.evidence_) == (model.structure_, model.evidence_)
    assert np.allclose(again.radius_, model.radius_)
    assert np.allclose(again.fold_in(data.Z[:9], data.y[:9]).theta, model.fold_in(data.Z[:9], data.y[:9]).theta)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"metric": "round"}, "metric must be"), ({"level": 1.0}, "level must be"), ({"n_jobs": 0}, "n_jobs must be")],
)
def test_parameters_outside_their_range_are_named(change, message):
    with pytest.raises(InvalidParameter, match=message):
        PrefKin(**change).fit([[1.0]], [1])


@pytest.mark.parametrize("make", [per_user, pooled, shrink_to_pooled, mixture_em])
def test_baselines_offer_the_same_interface(grouped, make, rng, tmp_path):
    model = make().fit(grouped.data)
    assert model.theta_.shape == (15, 4)
    assert 0 in model.neighbours(0)
    assert model.predict_proba(grouped.data).shape == (900, 2)
    candidates = Candidates(rng.standard_normal((4, 3, 4)))
    assert len(model.policy(0, candidates, pessimism=0).actions) == 4
    assert model.session(0, candidates).ask()
    assert model.fold_in(grouped.data.Z[:20], grouped.data.y[:20]).theta.shape == (4,)
    assert isinstance(model.explain(0, 1).joined, bool)
    assert model.information(0).shape == (4, 4)
    assert model.width(0) > 0
    model.save(tmp_path / "kin")
    again = prefkin.load(tmp_path / "kin")
    assert again.get_params() == model.get_params()
    assert (again.predict_proba(grouped.data) == model.predict_proba(grouped.data)).all()
    assert str(again.summary()) == str(model.summary())
    later = again.fold_in(grouped.data.Z[:20], grouped.data.y[:20])
    assert (later.theta == model.fold_in(grouped.data.Z[:20], grouped.data.y[:20]).theta).all()
    session = model.session(0, candidates)
    session.tell(session.ask(), True)
    assert again.resume_session(session.state(), candidates).n_answers == 1


def test_mixture_em_finds_clear_groups(grouped):
    labels = mixture_em().fit(grouped.data).labels_
    assert all((labels[u] == labels[v]) == (grouped.group[u] == grouped.group[v]) for u in range(15) for v in range(15))


def test_methods_are_compared_on_the_same_held_out_rows(grouped):
    result = compare(
        grouped.data, {"PrefKin": lambda: PrefKin(metric="isotropic"), "pooled": pooled, "per user": per_user}, folds=2
    )
    names = [row[0] for row in result.rows()]
    assert names == ["PrefKin", "pooled", "per user"]
    assert result.verdict == "PrefKin predicts best here"
    assert result.log_loss.shape == (3, 15)
    with pytest.raises(InvalidComparisons, match="at least two users"):
        compare(Comparisons.from_arrays(np.eye(2), [1, 0], ["a", "a"]))


def test_of_many_answers_the_first_parts_are_enough(grouped):
    methods = {"pooled": pooled, "per user": per_user}
    few = compare(grouped.data, methods, held_out=300)
    assert few.how == "450 answers, 2 of 4 parts held out in turn"
    every = compare(grouped.data, methods)
    assert every.how == "900 answers, all parts held out in turn"
    assert few.best == every.best == "per user"


def test_one_thin_user_does_not_decide_how_the_others_are_fitted(grouped):
    data = grouped.data
    one_row = data.take(np.flatnonzero((data.who > 0) | (np.arange(len(data)) == 0)))
    units = np.array([1e-3, 1.0, 50.0, 1e4])  # only a metric that is learnt can live with these
    model = PrefKin().fit(one_row.Z * units, one_row.y, users=one_row.users)
    assert len(np.unique(model._learnt.posterior.population.root)) >= 4
    result = compare(one_row, {"pooled": pooled, "per user": per_user}, folds=2)
    assert result.log_loss.shape == (2, 14)


@pytest.mark.long
def test_the_demo_readers_are_grouped_on_seeds_that_are_not_shown():
    losses = []
    for seed in range(200, 206):
        people, _ = demo_population(np.random.default_rng(seed))
        model = PrefKin().fit(people.data)
        joined = [set(people.group[model.members(u)]) == {people.group[u]} for u in range(24)]
        assert np.mean(joined) > 0.9
        own = per_user().fit(people.data)
        losses.append([held_out(one, people.held_out).log_loss for one in (model, own)])
    ours, theirs = np.mean(losses, axis=0)
    assert ours < theirs


def test_everybody_alike_and_very_sure_does_not_make_the_fit_swing():
    """Parallel expectation propagation overshoots where many sure answers say the same; folds once came out inverted."""
    rng = np.random.default_rng(5)
    wanted = 2 * rng.standard_normal(5)
    owner = np.repeat(np.arange(18), 80)
    Z = rng.standard_normal((len(owner), 5))
    model = PrefKin().fit(Z, rng.random(len(owner)) < expit(Z @ wanted), users=owner)
    cosine = model.theta_ @ wanted / np.linalg.norm(model.theta_, axis=1) / np.linalg.norm(wanted)
    assert cosine.min() > 0.98
    assert np.all(np.abs(np.linalg.norm(model.theta_, axis=1) / np.linalg.norm(wanted) - 1) < 0.3)


def test_answers_that_tell_nothing_do_not_make_the_fit_sure_of_itself():
    """Coin flips: nobody wants anything, but that is not certain; and somebody who wants something clear is heard."""
    rng = np.random.default_rng(0)
    Z, owner = rng.standard_normal((960, 6)), np.repeat(np.arange(24), 40)
    model = PrefKin().fit(Z, rng.integers(0, 2, 960), users=owner)
    assert model.radius_.min() > 0.15
    new = rng.standard_normal((200, 6))
    folded = model.fold_in(new, (new[:, 0] > 0).astype(int))
    assert folded.theta[0] > 3 * np.abs(folded.theta[1:]).max()
    assert folded.theta[0] > 0.1


@pytest.mark.long
def test_weak_preferences_are_within_their_radius():
    """Weak preferences and few answers, d = 2, ten each: scales that are not known must not be taken for 0."""
    missed = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        theta, owner = 0.3 * rng.standard_normal((10, 2)), np.repeat(np.arange(10), 10)
        Z = rng.standard_normal((100, 2))
        y = rng.random(100) < expit(np.einsum("ij,ij->i", Z, theta[owner]))
        model = PrefKin().fit(Z, y, users=owner)
        missed += int(np.sum(np.linalg.norm(model.theta_ - theta, axis=1) > model.radius_))
    assert missed <= 30  # of 200


@pytest.mark.long
@pytest.mark.parametrize("dim", [3, 70])
def test_somebody_whose_rows_count_nothing_is_no_obstacle(dim):
    rng = np.random.default_rng(0)
    owner, Z = np.repeat(np.arange(30), 8), rng.standard_normal((240, dim))
    model = PrefKin().fit(Z, rng.integers(0, 2, 240), users=owner, sample_weight=(owner != 29).astype(float))
    assert np.isfinite(model.theta_).all()


def test_a_frame_with_other_columns_is_no_newcomer(grouped):
    pandas = pytest.importorskip("pandas")
    data = grouped.data
    frame = pandas.DataFrame(data.Z, columns=["salt", "sugar", "fat", "tang"])
    model = PrefKin().fit(frame, data.y.astype(int), users=data.users)
    with pytest.raises(ValueError, match="feature names"):
        model.fold_in(frame[["tang", "fat", "sugar", "salt"]][:3], data.y[:3])
