"""Questions for all people together: what they are expected to teach, and to whom they go."""

import numpy as np
import pytest

from prefkin import Candidates, OffC2PL, PrefKin
from prefkin.data.synthetic import make_population
from prefkin.decide.plan import Panel, _slope, _State, planned
from prefkin.errors import InvalidParameter, UnknownUser


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(3)
    population = make_population(rng, n_users=12, n_groups=3, dim=4, n_comparisons=40, strength=3.0)
    model = PrefKin(metric="isotropic").fit(population.data)
    return model, Candidates(rng.standard_normal((20, 3, 4)))


def panel(rng, n=3, d=3):
    keep = [np.linalg.inv(np.eye(d) + B @ B.T) for B in rng.standard_normal((n, d, d))]
    S = rng.standard_normal((d, d))
    return Panel(rng.standard_normal((n, d)), np.array(keep), np.full(n, 0.7), np.zeros(n, int), (S @ S.T)[None])


def joint(people):
    """Covariance of everybody's preferences together, written out."""
    n, d = people.mean.shape
    C = np.zeros((n * d, n * d))
    for u in range(n):
        for v in range(n):
            block = people.keep[u] @ people.doubt[0] @ people.keep[v]
            C[u * d : u * d + d, v * d : v * d + d] = block + (u == v) * people.spread[u] * people.keep[u]
    return C


def test_the_gain_is_what_the_joint_covariance_loses():
    rng = np.random.default_rng(1)
    people, X = panel(rng), rng.standard_normal((7, 3))
    state = _State(people, X)
    everybody = np.kron(np.eye(3), state.loss[0])
    for u in (0, 2):
        one = state.best(u, X, ())
        C = joint(people)
        z = np.zeros(9)
        z[3 * u : 3 * u + 3] = X[one.pair]
        s = z @ C @ z
        w = _slope(np.array([X[one.pair] @ people.mean[u]]), np.array([s]))[0]
        after = C - w / (1 + w * s) * np.outer(C @ z, C @ z)
        assert one.gain == pytest.approx(np.trace((C - after) @ everybody), rel=1e-4)
        state.hear(u, X[one.pair])
        people = Panel(people.mean, state.keep.copy(), people.spread, people.group, state.doubt.copy())
        np.testing.assert_allclose(joint(people), after, atol=1e-8)


def test_lazy_choices_are_those_of_looking_at_everybody():
    rng = np.random.default_rng(2)
    people, X = panel(rng, n=6), rng.standard_normal((30, 3))
    state, asked, greedy = _State(people, X), [set() for _ in range(6)], []
    for _ in range(8):
        worth = [state.best(u, X, ()).gain / (1 + 0.02 * len(asked[u])) for u in range(6)]
        u = int(np.argmax(worth))
        one = state.best(u, X, asked[u])
        greedy.append((u, one.pair))
        asked[u].add(one.pair)
        state.hear(u, X[one.pair])
    found = [(one.person, one.pair) for one in planned(people, X, 8)]
    assert sum(a == b for a, b in zip(found, greedy)) >= 7  # the slope may make a gain grow a little


def test_limits_absence_and_costs_are_kept(world):
    model, cands = world
    plan = model.plan_questions(cands, 20, per_person=2, away=[0, 5])
    asked = [user for user, _ in plan]
    assert len(plan) == 20
    assert max(asked.count(user) for user in asked) == 2
    assert not {0, 5} & set(asked)
    assert len({(user, q.context, q.pair) for user, q in plan}) == 20
    dear = model.plan_questions(cands, 20, costs=dict.fromkeys(range(6), 5.0))
    assert sum(5.0 if user < 6 else 1.0 for user, _ in dear) <= 20
    assert sum(user >= 6 for user, _ in dear) > sum(user < 6 for user, _ in dear)
    assert [user for user, _ in model.plan_questions(cands, 6)] == [
        user for user, _ in model.plan_questions(cands, 20)
    ][:6]


def test_what_cannot_be_planned_is_refused(world):
    model, cands = world
    for wrong, words in (({"budget": 0}, "budget"), ({"budget": 3, "per_person": 0}, "per_person")):
        with pytest.raises(InvalidParameter, match=words):
            model.plan_questions(cands, **wrong)
    with pytest.raises(InvalidParameter, match="cost a number above 0"):
        model.plan_questions(cands, 3, costs={1: -1.0})
    with pytest.raises(UnknownUser):
        model.plan_questions(cands, 3, away=["nobody"])
    with pytest.raises(InvalidParameter, match="5 features, the model has 4"):
        model.plan_questions(Candidates(np.ones((1, 2, 5))), 3)
    with pytest.raises(InvalidParameter, match="fit PrefKin to plan"):
        OffC2PL(gamma=0.0).fit(np.eye(2), [1, 0]).plan_questions(Candidates(np.ones((1, 2, 2))), 3)
