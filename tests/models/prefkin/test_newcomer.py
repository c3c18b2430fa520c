"""Sessions with somebody of whom nothing is known."""

import numpy as np
import pytest
from scipy.special import expit

import prefkin
from prefkin import Candidates, OffC2PL, PrefKin
from prefkin.data.synthetic import demo_population
from prefkin.decide.population import Population
from prefkin.errors import InvalidParameter, SessionError
from prefkin.models.baselines import pooled
from tests.conftest import answers_by_degrees


@pytest.fixture(scope="module")
def demo():
    people, stories = demo_population(np.random.default_rng(0))
    return people, stories, PrefKin().fit(people.data)


@pytest.fixture(scope="module")
def by_degrees():
    Z, y, users = answers_by_degrees()
    shown = Candidates(np.random.default_rng(1).standard_normal((30, 3, 3)))
    return PrefKin().fit(Z, y, users=users), shown


def converse(session, truth, n, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        question = session.ask()
        session.tell(question, bool(rng.random() < expit(session.difference(question) @ truth)))


def heard(session):
    Z = np.array([session.difference(question) for question, _ in session.log])
    return Z, np.array([int(answer) for _, answer in session.log])


@pytest.mark.parametrize("n", [1, 3, 12])
def test_fold_in_and_a_session_that_heard_the_same_agree(demo, by_degrees, n):
    people, stories, model = demo
    for fitted, shown, truth in ((model, stories, people.theta[5]), (*by_degrees, np.array([2.0, -1.0, 0.5]))):
        session = fitted.session(None, shown)
        converse(session, truth, n)
        folded = fitted.fold_in(*heard(session))
        assert np.allclose(session.theta, folded.theta, rtol=0, atol=1e-7)  # sites are matched to 1e-8 of a deviation
        assert np.allclose(session.belief.covariance, folded.covariance, rtol=0, atol=1e-7)


def test_before_any_answer_a_newcomer_is_anybody(demo):
    _, stories, model = demo
    session = model.session(None, stories, label="Zoe")
    posterior = model._learnt.posterior
    sizes = np.append(posterior.share[:, :-1].sum(axis=0), posterior.population.partition.concentration)
    assert np.allclose(session.belief.chance, sizes / sizes.sum())
    assert (session.user, session.label, session.n_answers) == (None, "Zoe", 0)
    assert "newcomer 'Zoe'" in repr(session)


def test_the_first_answers_tell_the_group(demo):
    people, stories, model = demo
    likeliest = np.argmax(model.membership_, axis=1)
    right = []
    for u in range(24):
        session = model.session(None, stories)
        converse(session, people.theta[u], 12, seed=u)
        right.append(int(np.argmax(session.belief.chance)) == likeliest[u])
    assert np.mean(right) > 0.75


def test_what_is_believed_is_the_posterior():
    """Against importance sampling from the prior."""
    rng = np.random.default_rng(3)
    means, roots = rng.standard_normal((3, 4)), 0.7 * rng.standard_normal((3, 4, 4))
    people = Population(np.array([3.0, 2.0, 1.0]), means, np.matmul(roots, roots.transpose(0, 2, 1)))
    X = rng.standard_normal((6, 4))
    belief = people.belief(X, np.ones(len(X)))
    group = rng.choice(3, size=400_000, p=[1 / 2, 1 / 3, 1 / 6])
    theta = means[group] + np.einsum("nij,nj->ni", roots[group], rng.standard_normal((len(group), 4)))
    weight = expit(theta @ X.T).prod(axis=1)
    weight /= weight.sum()
    assert np.allclose(belief.chance, [weight[group == k].sum() for k in range(3)], atol=0.005)
    mean = weight @ theta
    assert np.allclose(belief.mean, mean, atol=0.01)
    assert np.allclose(belief.covariance, (weight[:, None] * (theta - mean)).T @ (theta - mean), atol=0.02)
    drawn = belief.draws(200_000, rng)
    assert np.allclose(drawn.mean(axis=1), belief.mean, atol=0.01)
    assert np.allclose(np.cov(drawn), belief.covariance, atol=0.02)


def test_more_answers_than_features_are_the_same_posterior():
    """Ten rows of three features, by way of either space: rows with a fourth feature that nobody has."""
    rng = np.random.default_rng(4)
    means = rng.standard_normal((2, 3))
    X, C = rng.standard_normal((10, 3)), np.array([np.eye(3), np.diag([0.5, 1.0, 2.0])])
    few = Population(np.ones(2), means, C).belief(X, np.ones(len(X)))
    padded = np.zeros((2, 12, 12))
    padded[:, :3, :3], padded[:, 3:, 3:] = C, np.eye(9)
    nothing = np.zeros((10, 9))
    many = Population(np.ones(2), np.hstack([means, nothing[:2]]), padded).belief(
        np.hstack([X, nothing]), np.ones(len(X))
    )
    assert np.allclose(few.mean, many.mean[:3], atol=1e-8)
    assert np.allclose(few.chance, many.chance, atol=1e-8)
    assert np.allclose(few.covariance, many.covariance[:3, :3], atol=1e-7)


def test_the_order_of_answers_does_not_matter(demo):
    people, stories, model = demo
    session = model.session(None, stories)
    converse(session, people.theta[0], 9)
    other = model.session(None, stories)
    for question, answer in reversed(session.log):
        other.tell(question, answer)
    assert np.allclose(session.theta, other.theta, atol=1e-8)


def test_a_session_goes_on_under_the_same_model_read_from_disk(demo, tmp_path):
    people, stories, model = demo
    model.save(tmp_path / "kin")
    again = prefkin.load(tmp_path / "kin")
    for user in (None, "Ada"):
        session = model.session(user, stories)
        converse(session, people.theta[0], 4)
        session.undo()
        session.save(tmp_path / f"{user}.json")
        there = again.resume_session(tmp_path / f"{user}.json", stories)
        assert there.ask() == session.ask()
        assert np.allclose(there.theta, session.theta, atol=1e-9)
        assert there.state() == session.state()


@pytest.mark.parametrize("user", [None, "Ada"])
@pytest.mark.parametrize("rule", [None, "coverage", "random", "information"])
def test_what_was_taken_back_was_never_said(demo, user, rule):
    people, stories, model = demo
    session, straight = (model.session(user, stories, rule=rule, random_state=1) for _ in range(2))
    converse(session, people.theta[0], 3)
    converse(straight, people.theta[0], 3)
    after = straight.ask()
    asked = session.ask()
    session.tell(asked, True)
    session.skip(session.ask())
    session.undo()
    assert session.undo() == asked == after
    assert np.array_equal(session.theta, straight.theta)
    assert session.log == straight.log
    assert session.ask() == asked
    session.tell(asked, False)
    straight.tell(asked, False)
    assert np.array_equal(session.preference, straight.preference)
    for _ in range(4):
        session.undo()
    with pytest.raises(SessionError, match="no answer to take back"):
        session.undo()


def test_stopping_works_for_a_newcomer(demo):
    people, stories, model = demo
    session = model.session(None, stories)
    before = session.enough()
    assert not before
    converse(session, people.theta[0], 20)
    assert session.enough().regret < before.regret


def test_the_forecast_for_newcomers_is_right_within_a_factor(demo):
    people, stories, model = demo
    told, needed = model.session(None, stories, repeat=True).forecast(0.5), []
    for u in range(24):
        session = model.session(None, stories, repeat=True)
        while session.belief.radius > told.target and session.n_answers < 100:
            converse(session, people.theta[u], 1, seed=[u, session.n_answers])
        needed.append(session.n_answers)
    assert 0.6 < np.mean(needed) / told.answers < 1.6
    session.ask()
    state = session.state()
    session.forecast(0.8)
    assert session.state() == state


@pytest.mark.parametrize("user", [None, "Ada"])
@pytest.mark.parametrize("rule", ["information", "posterior", "random"])
def test_a_copy_looks_ahead_and_changes_nothing(demo, user, rule):
    people, stories, model = demo
    session = model.session(user, stories, rule=rule, random_state=2)
    converse(session, people.theta[0], 2)
    session.ask()
    before = session.state()
    ahead = session.copy()
    converse(ahead, people.theta[0], 3)
    assert session.state() == before
    converse(session, people.theta[0], 3)
    assert session.state() == ahead.state()


def test_somebody_known_may_be_asked_by_the_same_rule(demo):
    people, stories, model = demo
    session = model.session("Ada", stories, rule="information")
    assert np.allclose(session.theta, model.theta_[0])
    assert np.allclose(session.belief.covariance, model.covariance("Ada"), rtol=1e-3, atol=1e-6)
    before = session.belief.radius
    converse(session, people.theta[0], 10)
    assert session.belief.radius < before
    assert model.resume_session(session.state(), stories).state() == session.state()


def test_only_prefkin_knows_people_in_general(demo):
    people, stories, model = demo
    for other in (OffC2PL(gamma=0.0), pooled()):
        with pytest.raises(InvalidParameter, match="knows nothing about somebody without answers"):
            other.fit(people.data).session(None, stories)
    with pytest.raises(InvalidParameter, match="label names a newcomer"):
        model.session("Ada", stories, label="Zoe")
