"""How many more answers it takes, and when there are enough: checked by asking simulated people."""

from itertools import count

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from prefkin import Candidates, OffC2PL, PrefKin
from prefkin.data.synthetic import demo_population
from prefkin.decide.belief import Belief
from prefkin.decide.forecast import forecast, posterior_regrets
from prefkin.errors import SessionError
from prefkin.evaluate.metrics import suboptimality_gap
from tests.conftest import draw_answers


@pytest.fixture(scope="module")
def worlds():
    """Two demo populations, each with its fit and stories."""
    made = []
    for seed in (40, 41):
        people, stories = demo_population(np.random.default_rng(seed))
        made.append((people, stories, PrefKin(metric="isotropic").fit(people.data)))
    return made


def answer(session, question, theta, rng):
    return bool(rng.random() < expit(session.difference(question) @ theta))


def test_the_radius_is_the_root_of_the_trace(rng):
    Z = rng.standard_normal((9, 4))
    M = Z.T @ Z
    assert Belief.from_information(np.zeros(4), M).radius == pytest.approx(np.sqrt(np.trace(np.linalg.inv(M))))


def test_the_expected_slope_is_a_mean_over_the_posterior(rng):
    M = np.diag([1.0, 4.0])
    z, theta = np.array([1.0, -2.0]), np.array([0.5, 0.3])
    drawn = rng.multivariate_normal(theta, np.linalg.inv(M), 400_000) @ z
    assert Belief.from_information(theta, M).expected_slope(z) == pytest.approx(
        np.mean(expit(drawn) * expit(-drawn)), rel=0.01
    )


def test_the_forecast_of_a_known_course_is_exact_and_its_extrapolation_near():
    """Questions along d axes in turn, each adding 1/4: 1/radius² grows in steps of equal size every d questions."""

    def radii():
        belief = Belief(np.zeros(3), np.eye(3))
        yield belief.radius
        for n in count():
            belief = belief.heard(np.eye(3)[n % 3], 0.25)
            yield belief.radius

    played = forecast(radii(), 0.5, 200)
    assert played.answers == 36  # 1 + n/12 = 4 in each of three directions
    assert not played.extrapolated
    short = forecast(radii(), 0.5, 12)
    assert short.extrapolated
    assert short.answers == pytest.approx(36, abs=3)
    assert "extrapolated from 12" in str(short)


@pytest.mark.long
@pytest.mark.parametrize("rule", ["posterior", "coverage"])
def test_the_forecast_is_right_within_a_factor(worlds, rule):
    ratios = []
    for people, stories, model in worlds:
        rng = np.random.default_rng(3)
        for u in range(0, 24, 2):
            session = model.session(model.users_[u], stories, rule=rule, repeat=True)
            told, n = session.forecast(), 0
            while session.belief.radius > told.target and n < 1000:
                question = session.ask()
                session.tell(question, answer(session, question, people.theta[u], rng))
                n += 1
            ratios.append(n / told.answers)
    assert 0.7 < np.median(ratios) < 1.4


@pytest.mark.parametrize("rule", ["coverage", "random", pytest.param("fisher", marks=pytest.mark.long)])
def test_the_papers_sessions_are_forecast_too(rule):
    ratios = []
    for seed in range(7):
        rng = np.random.default_rng(seed)
        Z, y, users = draw_answers(rng, dim=3)
        model = OffC2PL(np.inf).fit(Z, y, users=users)
        stories = Candidates(rng.standard_normal((20, 4, 3)))
        session = model.session(0, stories, rule=rule, repeat=True, random_state=0)
        told, n = session.forecast(0.6), 0
        while session.belief.radius > told.target and n < 1000:
            question = session.ask()
            session.tell(question, answer(session, question, model.theta_[0], rng))
            n += 1
        ratios.append(n / told.answers)
    assert 0.7 < np.median(ratios) < 1.4


def test_a_forecast_changes_nothing_and_knows_when_pairs_run_out(worlds, rng):
    _, stories, model = worlds[0]
    session = model.session("Ada", stories)
    session.ask()
    before = session.state()
    session.forecast()
    session.enough()
    assert session.state() == before
    few = model.session("Ada", Candidates(stories.features[:6].reshape(2, 3, 6)))
    assert np.isinf(few.forecast(0.2).answers)
    assert "no number of answers" in str(few.forecast(0.2))
    for call in (lambda: session.forecast(1.0), lambda: session.enough(0.0), lambda: session.enough(level=1.0)):
        with pytest.raises(SessionError, match="must be"):
            call()


def test_regrets_come_from_the_posterior():
    """Two actions, one feature: regret is |θ| when the sign was wrong."""
    candidates = Candidates([[[0.0], [1.0]]])
    theta, spread = np.array([0.3]), 0.5
    lost = posterior_regrets(candidates, Belief(theta, np.eye(1) * spread), 200_000, np.random.default_rng(0))
    assert np.mean(lost > 0) == pytest.approx(norm.cdf(-0.3 / spread), abs=0.005)
    expected = spread * norm.pdf(0.3 / spread) - 0.3 * norm.cdf(-0.3 / spread)
    assert lost.mean() == pytest.approx(expected, rel=0.03)


@pytest.mark.long
def test_stopping_leaves_a_regret_below_the_tolerance_as_often_as_promised(worlds):
    """48 conversations at 90 %: fewer than 38 kept promises would have a chance of 1 % if it were true."""
    kept, asked = [], []
    for people, stories, model in worlds:
        rng = np.random.default_rng(5)
        for u in range(24):
            session = model.session(model.users_[u], stories, repeat=True)
            while not session.enough(0.1, level=0.9, draws=300) and session.n_answers < 200:
                question = session.ask()
                session.tell(question, answer(session, question, people.theta[u], rng))
            asked.append(session.n_answers)
            kept.append(suboptimality_gap(people.theta[u], stories, session.best_actions()) <= 0.1)
    assert sum(kept) >= 38
    assert 0 < np.median(asked) < 200
