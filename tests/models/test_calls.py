"""Candidates and comparisons meet a model by the names of their features, wherever they do."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import prefkin
from prefkin import Candidates, Comparisons
from prefkin.data.synthetic import demo_population
from prefkin.errors import InvalidCandidates, InvalidComparisons


@pytest.fixture(scope="module")
def demo():
    people, stories = demo_population(np.random.default_rng(0))
    stories = Candidates(list(stories), feature_names=people.data.feature_names)
    return people.data, stories


def otherwise(stories, names=None, order=slice(None, None, -1)):
    """The same candidates with their columns in another order, or under other names."""
    return Candidates([part[:, order] for part in stories], feature_names=names or stories.feature_names[order])


def backwards(data):
    names = data.feature_names[::-1]
    return replace(data, Z=data.Z[:, ::-1], first=data.first[:, ::-1], second=data.second[:, ::-1], feature_names=names)


def asked(model, stories):
    """All that a model says about candidates."""
    session = model.session("Ada", stories)
    question = session.ask()
    policy = model.policy("Ada", stories)
    said = [
        policy.value,
        policy.mean.tolist(),
        (question.first, question.second),
        session.difference(question).tolist(),
    ]
    if model.has_posterior:
        said += [model.plan_questions(stories, 3), model.session(None, stories, label="Zoe").ask()]
    return said


@pytest.mark.parametrize("method", [prefkin.PrefKin, lambda: prefkin.OffC2PL("auto")])
def test_candidates_in_another_order_mean_the_same_and_others_are_refused(demo, method):
    data, stories = demo
    model = method().fit(data)
    assert asked(model, otherwise(stories)) == asked(model, stories)
    others = [*data.feature_names[:-1], "brevity"]
    for ask in (model.policy, model.session):
        with pytest.raises(InvalidCandidates, match=f"lack {data.feature_names[-1]} and have brevity instead"):
            ask("Ada", otherwise(stories, others, slice(None)))
    with pytest.raises(InvalidCandidates, match=f"they lack {data.feature_names[0]};"):
        model.policy("Ada", otherwise(stories, data.feature_names[1:], slice(1, None)))
    unnamed = Candidates(list(stories))
    assert model.policy("Ada", unnamed).value == model.policy("Ada", stories).value
    assert model.policy("Ada", otherwise(stories, [f"z{k}" for k in range(6)], slice(None))).value


def test_a_saved_session_goes_on_with_columns_in_another_order(demo):
    data, stories = demo
    model = prefkin.PrefKin().fit(data)
    session = model.session("Ada", stories)
    session.tell(session.ask(), True)
    again = model.resume_session(session.state(), otherwise(stories))
    assert np.array_equal(again.theta, session.theta)


@pytest.mark.parametrize("method", [prefkin.PrefKin, prefkin.OffC2PL])
def test_comparisons_in_another_order_mean_the_same_and_others_are_refused(demo, method):
    data, _ = demo
    new = data.take(data.users == "Ada")
    model = method().fit(data)
    assert np.array_equal(model.predict_proba(backwards(new)), model.predict_proba(new))
    updated = [method().fit(data).update(each) for each in (backwards(new), new)]
    assert np.array_equal(updated[0].theta_, updated[1].theta_)
    frame = pd.DataFrame(new.Z, columns=new.feature_names)[list(new.feature_names[::-1])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(model.predict_proba(frame, users=new.users), model.predict_proba(new))
        given = [model.fold_in(Z, new.y).theta for Z in (frame, new.Z)]
    assert np.array_equal(*given)
    with pytest.raises(InvalidComparisons, match="and have brevity instead"):
        model.predict(frame.rename(columns={new.feature_names[0]: "brevity"}), users=new.users)
    other = Comparisons.from_arrays(new.Z, new.y, new.users, feature_names=["brevity", *data.feature_names[1:]])
    for ask in (model.predict_proba, model.update):
        with pytest.raises(InvalidComparisons, match=f"lack {data.feature_names[0]} and have brevity instead"):
            ask(other)
