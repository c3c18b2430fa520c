import warnings
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax

from prefkin import Comparisons, PrefKin
from prefkin.data.dependence import effective_weights
from prefkin.data.folds import splits_of
from prefkin.data.rows import Rows, only
from prefkin.errors import DependenceWarning, InvalidComparisons
from prefkin.inference.estimate import fit_preference
from prefkin.models.baselines import pooled
from tests.oracles.choices import choice_loss, pooled_logit


def people_rank(rng, n_users=30, each=8, n_items=25, dim=12, noise=1.0):
    """Features, and everybody's items, best first; noise is drawn once an item and person, as in a ranking."""
    X = rng.standard_normal((n_items, dim))
    taste = rng.standard_normal(dim) + 0.3 * rng.standard_normal((n_users, dim))
    shown = [rng.permutation(n_items)[:each] for _ in range(n_users)]
    worth = [X[some] @ theta + noise * rng.gumbel(size=each) for some, theta in zip(shown, taste)]
    return X, [some[np.argsort(-value)].tolist() for some, value in zip(shown, worth)], taste


def all_pairs(X, rankings, rng):
    """Every pair of each ranking as a row of its own, sides at random."""
    rows = [(u, a, b) for u, ranking in enumerate(rankings) for a, b in combinations(ranking, 2)]
    owner, won, lost = np.array(rows).T
    flip = rng.random(len(rows)) < 0.5
    first, second = np.where(flip, lost, won), np.where(flip, won, lost)
    return first, second, (~flip).astype(float), owner


# -- rankings --------------------------------------------------------------------------------------------------------


def test_a_ranking_is_a_sequence_of_choices(rng):
    X = rng.standard_normal((5, 3))
    data = Comparisons.from_rankings(X, [[3, 0, 4], [1, 2]], ["ann", "bo"], contexts=["x", "y"])
    assert data.items.tolist() == [[0, 3], [3, 4], [0, 4], [1, 2]]
    assert data.y.tolist() == [0, 1, 1, 1]
    assert data.weights.tolist() == [2 / 3, 2 / 3, 1, 1]
    assert data.users.tolist() == ["ann"] * 3 + ["bo"]
    assert data.contexts.tolist() == ["x"] * 3 + ["y"]
    assert np.allclose(data.Z, X[data.items[:, 0].astype(int)] - X[data.items[:, 1].astype(int)])


def test_items_that_are_tied_are_not_compared(rng):
    X = rng.standard_normal((4, 2))
    data = Comparisons.from_rankings(X, [[[0, 1], 2, [3]]], ["ann"])
    assert data.items.tolist() == [[0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert data.y.tolist() == [1] * 5
    assert np.allclose(data.weights, [2 / 3] * 4 + [1])


@pytest.mark.parametrize(
    ("rankings", "users", "message"),
    [
        ([[0, 1, 0]], ["ann"], r"ranking 0 \(counted from 0\) has item 0 twice"),
        (
            [[0, 1], [0, 7]],
            ["ann", "bo"],
            r"ranking 1 \(counted from 0\) has 7, which is no row of features; .* 0 to 2",
        ),
        ([["p", "q"]], ["ann"], "has 'p', which is no row of features"),
        ([[0.5, 1]], ["ann"], "has 0.5, which is no row"),
        ([[0, 1]], ["ann", "bo"], "users has 2 entries for 1 sets of items"),
        ([[0], [1]], ["ann", "bo"], "nothing was compared"),
        ([[[0, 1]]], ["ann"], "nothing was compared"),
    ],
)
def test_rankings_that_say_nothing_are_refused(rankings, users, message):
    with pytest.raises(InvalidComparisons, match=message):
        Comparisons.from_rankings(np.eye(3), rankings, users)


# -- choices ---------------------------------------------------------------------------------------------------------


def drawn_choices(rng, n=600, sizes=(2, 3, 5), dim=4, strength=1.0):
    theta = strength * rng.standard_normal(dim)
    options = [rng.standard_normal((rng.choice(sizes), dim)) for _ in range(n)]
    chosen = [int(np.argmax(some @ theta + rng.gumbel(size=len(some)))) for some in options]
    return options, chosen, theta


@pytest.mark.parametrize("strength", [0.3, 1.0, 2.0])
def test_weighted_pairs_are_hardly_worse_than_the_exact_conditional_logit(strength):
    rng = np.random.default_rng(5)
    options, chosen, theta = drawn_choices(rng, strength=strength)
    data = Comparisons.from_choices(options, chosen, np.zeros(len(chosen)))
    ours = fit_preference(Rows(data.Z, data.y, data.weights), ridge=1.0)
    exact = pooled_logit(options, chosen, ridge=1.0)
    new = [rng.standard_normal((5, 4)) for _ in range(4000)]
    picks = [int(np.argmax(some @ theta + rng.gumbel(size=5))) for some in new]
    assert choice_loss(ours, new, picks) < 1.01 * choice_loss(exact, new, picks)


def test_the_best_of_a_ranking_carries_the_information_of_the_exact_logit_near_indifference(rng):
    some, A = rng.standard_normal((6, 3)), 6
    exact = np.cov(some.T, bias=True)
    best = [[pick, [other for other in range(A) if other != pick]] for pick in range(A)]
    every = [Comparisons.from_rankings(some, [ranking], ["ann"]) for ranking in best]
    ours = sum((0.25 * data.weights[:, None] * data.Z).T @ data.Z for data in every) / A
    assert np.allclose(ours, exact)


def literal_choice_weights(options, chosen, users):
    """p_c + p_j, chances by a slow conditional logit: one for all, then each person's own, drawn to it."""
    sets = list(zip(options, chosen, strict=True))
    ahead = np.concatenate([some[pick] - np.delete(some, pick, axis=0) for some, pick in sets])
    size = np.sqrt((ahead**2).mean(axis=0) / 2)

    def fitted(some, centre, ridge):
        def loss(theta):
            lost = sum(logsumexp(options[t] / size @ theta) - options[t][chosen[t]] / size @ theta for t in some)
            return lost + ridge / 2 * ((theta - centre) ** 2).sum()

        return minimize(loss, centre, options={"gtol": 1e-7}).x

    shared, weights = fitted(range(len(chosen)), np.zeros(len(size)), 0.1), []
    for t, (some, pick) in enumerate(sets):
        p = softmax(some / size @ fitted(np.flatnonzero(users == users[t]), shared, 1.0))
        weights.append(p[pick] + np.delete(p, pick))
    return np.concatenate(weights)


def test_a_pair_of_a_choice_counts_by_the_chance_that_the_choice_was_between_these_two(rng):
    options, chosen, _ = drawn_choices(rng, n=15, dim=2)
    users = rng.integers(3, size=15)
    data = Comparisons.from_choices(options, chosen, users)
    assert np.allclose(data.weights, literal_choice_weights(options, chosen, users), atol=2e-4)
    order = rng.permutation(15)
    again = Comparisons.from_choices([options[t] * 100 for t in order], np.array(chosen)[order], users[order])
    assert np.array_equal(np.sort(again.weights), np.sort(data.weights))  # neither order nor units matter


def test_held_out_pairs_of_choices_count_by_the_number_of_options_alone(rng):
    """What they tell is less where somebody chose against expectations: judged by that, all would look too sure."""
    options, chosen, _ = drawn_choices(rng, n=40, sizes=(2, 8))
    data = Comparisons.from_choices(options, chosen, rng.integers(3, size=40)).take(np.arange(100)[::-1])
    assert set(data.judged.tolist()) == {0.5, 1.0}
    assert np.array_equal(data.held_out_weights, data.judged)
    rows = only(data.by_user(), np.array([0, 2]))
    mine = np.concatenate([data.judged[data.who == user] for user in (0, 2)])
    assert np.array_equal(rows.judged, mine)
    splits = splits_of(rows)
    assert len(splits) > 1
    often = np.sum([split.held for split in splits], axis=0)
    for split in splits:
        assert np.array_equal(split.weight, (mine / often.clip(1))[split.held])


def test_a_choice_is_one_context_and_its_options_keep_their_places(rng):
    options = rng.standard_normal((3, 4, 2))
    data = Comparisons.from_choices(options, [0, 3, 1], ["ann", "ann", "bo"])
    assert data.contexts.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    assert data.y.tolist() == [1, 1, 1, 0, 0, 0, 0, 1, 1]
    assert np.allclose(data.first[3:6], options[1, :3])
    assert np.allclose(data.second[3:6], options[1, 3])
    assert (Comparisons.from_choices(options[:, :2], [0, 1, 1], ["ann", "ann", "bo"]).weights == 1.0).all()
    same = Comparisons.from_choices([options[0], np.vstack([options[1], options[1][3]])], [0, 3], ["ann", "bo"])
    assert len(same) == 6  # an option like the chosen one tells nothing


@pytest.mark.parametrize(
    ("options", "chosen", "message"),
    [
        (np.zeros((2, 3, 1)), [0], "chosen must be one position for each of the 2 choice sets"),
        (np.zeros((2, 3, 1)), [0.5, 1.0], "chosen must be one position"),
        (np.ones((2, 3, 1)), [0, 3], r"chosen is 3 in set 1 \(counted from 0\), which has 3 options"),
        ([np.ones((2, 2)), np.ones((2, 3))], [0, 1], r"options\[1\] has 3 features, options\[0\] has 2"),
        (np.ones((2, 3, 1)), [0, 1], "nothing was compared"),
    ],
)
def test_choices_that_do_not_fit_are_refused(options, chosen, message):
    with pytest.raises(InvalidComparisons, match=message):
        Comparisons.from_choices(options, chosen, ["ann", "bo"])


# -- rows that depend on each other ------------------------------------------------------------------------------------


def test_all_pairs_of_rankings_are_recognised_and_count_as_rankings_do(rng):
    X, rankings, _ = people_rank(rng)
    first, second, y, owner = all_pairs(X, rankings, rng)
    right = Comparisons.from_rankings(X, rankings, np.arange(30))
    plain = Comparisons.from_sides(X[first], X[second], y, owner)
    weights = effective_weights(plain.by_user())
    of = {(u, *sorted(pair)): w for u, pair, w in zip(right.users, right.items.tolist(), right.weights)}
    assert np.allclose(weights, [of[u, *sorted(pair)] for u, *pair in zip(owner, first, second)])
    with pytest.warns(
        DependenceWarning, match=r"840 rows count for \d+; use Comparisons.from_rankings, or pass weights"
    ):
        guessed = pooled().fit(plain)
    told = pooled(predict_for="known items").fit(right)
    assert np.isclose(guessed._users.counts.sum(), told._users.counts.sum())


def test_differences_alone_betray_all_pairs_of_few_items_among_many_features(rng):
    X, rankings, _ = people_rank(rng, each=7)
    first, second, y, owner = all_pairs(X, rankings, rng)
    weights = effective_weights(Comparisons.from_arrays(X[first] - X[second], y, owner).by_user())
    assert np.allclose(weights, 6 / 21)
    with pytest.warns(DependenceWarning, match="or pass sample_weight"):
        pooled().fit(X[first] - X[second], y, users=owner)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pooled().fit(X[first] - X[second], y, users=owner, sample_weight=np.ones(len(y)))
        pooled().fit(Comparisons.from_sides(X[first], X[second], y, owner, weights=np.ones(len(y))))


@pytest.mark.parametrize("known", [True, False])
def test_people_who_contradict_themselves_answered_every_question(rng, known):
    X, rankings, taste = people_rank(rng)
    first, second, _, owner = all_pairs(X, rankings, rng)
    Z = X[first] - X[second]
    y = (rng.random(len(owner)) < expit(np.einsum("ij,ij->i", Z, taste[owner]))).astype(float)
    data = Comparisons.from_sides(X[first], X[second], y, owner) if known else Comparisons.from_arrays(Z, y, owner)
    assert effective_weights(data.by_user()) is None


def test_contradictory_repeats_are_answers_too(rng):
    X, rankings, _ = people_rank(rng)
    first, second, y, owner = all_pairs(X, rankings, rng)
    again = rng.choice(len(y), 60, replace=False)
    both = [np.concatenate([part, part[again]]) for part in (first, second, owner)]
    answers = np.concatenate([y, 1 - y[again]])
    assert effective_weights(Comparisons.from_sides(X[both[0]], X[both[1]], answers, both[2]).by_user()) is None


def test_certain_answers_about_scattered_pairs_count_as_they_are(rng):
    """Nobody contradicts themselves here either, but nobody was asked about all pairs."""
    X, taste = rng.standard_normal((60, 6)), rng.standard_normal((20, 6))
    first, second = rng.integers(0, 60, (2, 1000))
    second = np.where(first == second, (second + 1) % 60, second)
    owner = np.repeat(np.arange(20), 50)
    y = (np.einsum("ij,ij->i", X[first] - X[second], taste[owner]) > 0).astype(float)
    assert effective_weights(Comparisons.from_sides(X[first], X[second], y, owner).by_user()) is None
    Z = X[first] - X[second]
    assert effective_weights(Comparisons.from_arrays(np.hstack([Z, Z[:, :2]]), y, owner).by_user()) is None


@pytest.mark.long
def test_rankings_told_as_such_predict_better_than_all_their_pairs():
    losses = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, rankings, taste = people_rank(rng, n_users=25, each=10, n_items=60, noise=2.0)
        first, second, y, owner = all_pairs(X, rankings, rng)
        plain = Comparisons.from_sides(X[first], X[second], y, owner, weights=np.ones(len(y)))
        new = rng.standard_normal((4000, 12)) * np.sqrt(2)
        who = rng.integers(0, 25, 4000)
        chance = expit(np.einsum("ij,ij->i", new, taste[who]) / 2.0)
        for data in (Comparisons.from_rankings(X, rankings, np.arange(25)), plain):
            p = PrefKin().fit(data).predict_proba(new, users=who)
            losses.append(-np.mean(chance * np.log(p[:, 1]) + (1 - chance) * np.log(p[:, 0])))
    told, not_told = np.mean(losses[::2]), np.mean(losses[1::2])
    assert told < not_told
