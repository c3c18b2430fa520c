import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefkin import Comparisons, PrefKin, load
from prefkin.data.folds import held_out_folds
from prefkin.errors import InvalidParameter
from prefkin.models.baselines import pooled
from tests.conftest import draw_answers


def item_pairs(rng, n_items=20, n=150, n_users=5, dim=3):
    """Rows about recurring items: features, positions of both sides, answers, users."""
    X = rng.standard_normal((n_items, dim))
    first = rng.integers(0, n_items, n)
    second = (first + rng.integers(1, n_items, n)) % n_items
    return X, first, second, rng.integers(0, 2, n), rng.integers(0, n_users, n)


def folds_by_row(data, **options):
    """Masks over the rows of `data` in their own order."""
    order = np.argsort(data.who, kind="stable")
    found = []
    for fold in held_out_folds(data.by_user(), **options):
        masks = np.zeros((2, len(data)), dtype=bool)
        masks[:, order] = fold
        found.append(masks)
    return found


def as_set(folds, order=slice(None)):
    return {(train[order].tobytes(), test[order].tobytes()) for train, test in folds}


def everyone_shares_nothing(folds, items):
    return all(not set(items[train].ravel()) & set(items[test].ravel()) for train, test in folds)


def kinds(rng):
    """Data of every kind that is held out in a way of its own."""
    X, first, second, y, users = item_pairs(rng)
    Z, items = X[first] - X[second], np.column_stack([first, second])
    yield Comparisons.from_sides(X[first], X[second], y, users)
    yield Comparisons.from_arrays(Z, y, users, items=items)
    yield Comparisons.from_arrays(Z, y, users)
    yield Comparisons.from_arrays(Z, y, users, contexts=rng.integers(0, 11, len(y)))
    islands = rng.integers(0, 12, len(y))
    yield Comparisons.from_arrays(Z, y, users, items=items % 4 + 4 * islands[:, None])


@given(seed=st.integers(0, 10**6), predict_for=st.sampled_from(["auto", "new items", "known items"]))
def test_folds_do_not_depend_on_how_the_table_is_written(seed, predict_for):
    rng = np.random.default_rng(seed)
    for data in kinds(rng):
        found = folds_by_row(data, predict_for=predict_for, deals=2)
        order, names, flip = rng.permutation(len(data)), rng.permutation(5), rng.random(len(data)) < 0.5
        assert as_set(found, order) == as_set(folds_by_row(data.take(order), predict_for=predict_for, deals=2))
        about = {
            "contexts": data.contexts,
            "items": None if data.items is None else np.where(flip[:, None], data.items[:, ::-1], data.items),
        }
        renamed, sides = names[data.users], (data.Z,)
        if data.first is not None:
            swap = flip[:, None]
            sides = np.where(swap, data.second, data.first), np.where(swap, data.first, data.second)
            other = Comparisons.from_sides(*sides, np.where(flip, 1 - data.y, data.y), renamed)
        else:
            Z = np.where(flip[:, None], -data.Z, data.Z)
            other = Comparisons.from_arrays(Z, np.where(flip, 1 - data.y, data.y), renamed, **about)
        assert as_set(found) == as_set(folds_by_row(other, predict_for=predict_for, deals=2))


@given(seed=st.integers(0, 10**6), n_items=st.integers(8, 60), n_users=st.integers(1, 8), folds=st.integers(2, 4))
def test_rows_that_are_judged_share_no_item_with_rows_that_are_learnt_from(seed, n_items, n_users, folds):
    rng = np.random.default_rng(seed)
    X, first, second, y, users = item_pairs(rng, n_items, n_users=n_users)
    data = Comparisons.from_sides(X[first], X[second], y, users)
    once, found = (folds_by_row(data, folds=folds, deals=deals) for deals in (1, 3))
    assert as_set(once) <= as_set(found)
    assert everyone_shares_nothing(found, np.column_stack([first, second]))
    assert sum(test.sum() for _, test in once) >= 0.2 * len(y)
    assert all(train.any() and not (train & test).any() for train, test in found)


def test_items_dealt_again_let_other_rows_judge(rng):
    X, first, second, y, users = item_pairs(rng, n_items=70, n=1000)
    data = Comparisons.from_sides(X[first], X[second], y, users)
    judged = [np.any([test for _, test in folds_by_row(data, folds=5, deals=deals)], axis=0).mean() for deals in (1, 3)]
    assert judged[0] < 0.3
    assert judged[1] > 0.5


def test_what_hangs_together_is_held_out_as_a_whole_where_it_is_small(rng):
    X, first, second, y, users = item_pairs(rng, n_items=5, n=300)
    island = rng.integers(0, 12, 300)[:, None]
    items = np.column_stack([first, second]) + 5 * island
    found = folds_by_row(Comparisons.from_arrays(X[first] - X[second], y, users, items=items))
    assert everyone_shares_nothing(found, items)
    assert all((train | test).all() for train, test in found)  # and nothing is lost
    assert max(test.sum() for _, test in found) < 1.3 * min(test.sum() for _, test in found)


def test_items_of_one_person_only_leave_rows_of_that_person_in_each_fold(rng):
    pairs = np.array([(a, b) for a in range(6) for b in range(a)])
    items = np.concatenate([pairs + 6 * user for user in range(4)])
    users = np.repeat(np.arange(4), len(pairs))
    X = rng.standard_normal((24, 3))
    found = folds_by_row(Comparisons.from_sides(X[items[:, 0]], X[items[:, 1]], np.ones(60), users))
    assert everyone_shares_nothing(found, items)
    for train, test in found:
        assert set(users[train]) == set(users[test]) == {0, 1, 2, 3}


def test_an_item_that_is_always_there_counts_as_known(rng):
    X = rng.standard_normal((30, 3))
    offered, users = rng.integers(1, 30, 200), rng.integers(0, 4, 200)
    found = folds_by_row(Comparisons.from_sides(X[offered], X[np.zeros(200, dtype=int)], np.ones(200), users))
    assert everyone_shares_nothing(found, offered)
    assert all((train | test).all() for train, test in found)


def test_items_alike_with_other_names_are_others():
    Z, names = np.ones((6, 2)), np.arange(12).reshape(6, 2)
    alike = folds_by_row(Comparisons.from_arrays(Z, np.ones(6), np.zeros(6)))
    named = folds_by_row(Comparisons.from_arrays(Z, np.ones(6), np.zeros(6), items=names))
    assert [test.sum() for _, test in alike] == [6]
    assert [test.sum() for _, test in named] == [2, 2, 2]


def test_contexts_stay_whole_and_rows_without_them_are_spread_evenly(rng):
    Z, y, users = draw_answers(rng, sizes=[30] * 4)
    contexts = np.arange(len(y)) % 40
    for predict_for in ("auto", "new items", "known items"):
        data = Comparisons.from_arrays(Z, y, users, contexts=contexts)
        for train, test in folds_by_row(data, predict_for=predict_for):
            assert not set(contexts[train]) & set(contexts[test])
            assert (train | test).all()
    alone = folds_by_row(Comparisons.from_arrays(Z, y, users))
    assert [np.bincount(users[test]).tolist() for _, test in alone] == [[10] * 4] * 3


def test_a_context_that_is_all_a_person_said_is_not_held_out_as_a_whole(rng):
    Z, y, users = draw_answers(rng, sizes=[30] * 4)
    for _, test in folds_by_row(Comparisons.from_arrays(Z, y, users, contexts=users)):
        assert np.bincount(users[test]).tolist() == [10] * 4


def test_a_pair_asked_of_several_people_is_held_out_for_all_of_them_unless_it_is_known(rng):
    pairs = rng.standard_normal((30, 3))
    asked, users = np.tile(np.arange(30), 4), np.repeat(np.arange(4), 30)
    sign = rng.choice([-1.0, 1.0], 120)
    data = Comparisons.from_arrays(sign[:, None] * pairs[asked], (sign > 0).astype(int), users)
    for train, test in folds_by_row(data):
        assert not set(asked[train]) & set(asked[test])
    for train, test in folds_by_row(data, predict_for="known items"):
        assert np.bincount(users[test]).tolist() == [10] * 4
        assert (train | test).all()


def test_copies_of_a_row_of_one_person_stay_together(rng):
    pairs = rng.standard_normal((20, 3))
    asked, sign = rng.integers(0, 20, 200), rng.choice([-1.0, 1.0], 200)
    data = Comparisons.from_arrays(sign[:, None] * pairs[asked], (sign > 0).astype(int), np.zeros(200))
    for predict_for in ("auto", "new items", "known items"):
        for train, test in folds_by_row(data, predict_for=predict_for):
            assert not set(asked[train]) & set(asked[test])


@pytest.mark.parametrize("model", [PrefKin(predict_for="new"), pooled("new")])
def test_what_is_predicted_for_is_checked(rng, model):
    Z, y, users = draw_answers(rng)
    with pytest.raises(InvalidParameter, match="predict_for must be .*; got 'new'"):
        model.fit(Z, y, users=users)


def test_what_was_predicted_for_is_kept_in_files(rng, tmp_path):
    Z, y, users = draw_answers(rng)
    model = PrefKin(predict_for="known items").fit(Z, y, users=users)
    model.save(tmp_path / "model.prefkin")
    assert load(tmp_path / "model.prefkin").get_params()["predict_for"] == "known items"
