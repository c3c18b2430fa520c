"""Topics are found again from differences alone, and only where there are any."""

import numpy as np
import pytest

from prefkin import Comparisons
from prefkin.data.folds import held_out_folds
from prefkin.data.triangles import topics_of_differences


def compared(rng, topics=12, items=9, pairs=1200, dim=6):
    """Pairs of items of one topic each, on either side."""
    features = rng.normal(size=(topics, items, dim))
    topic, ends = (
        rng.integers(topics, size=pairs),
        np.array([rng.choice(items, 2, replace=False) for _ in range(pairs)]),
    )
    return features[topic, ends[:, 0]], features[topic, ends[:, 1]], topic


def the_same_partition(a, b):
    return len(np.unique(a)) == len(np.unique(b)) == len(np.unique(np.column_stack([a, b]), axis=0))


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_topics_are_found_from_differences(rng, kind):
    first, second, topic = compared(rng)
    found = topics_of_differences((first.astype(kind) - second.astype(kind)).astype(kind))
    assert the_same_partition(found, topic)


def test_neither_order_nor_sides_nor_units_matter(rng):
    first, second, _ = compared(rng)
    Z = first - second
    found, order = topics_of_differences(Z), rng.permutation(len(Z))
    turned = Z[order] * rng.choice([-1.0, 1.0], size=(len(Z), 1)) * np.array([1e-4, 1.0, 1.0, 7.0, 1e5, 1.0])
    assert the_same_partition(topics_of_differences(turned), found[order])


@pytest.mark.parametrize("n", [1, 2, 50, 3000])
def test_rows_that_share_nothing_have_no_topics(rng, n):
    assert topics_of_differences(rng.normal(size=(n, 4))) is None
    assert topics_of_differences(np.zeros((n, 4))) is None


def test_what_is_held_out_shares_no_topic_with_what_is_learnt_from(rng):
    first, second, topic = compared(rng)
    users = rng.integers(6, size=len(topic))
    data = Comparisons.from_arrays(first - second, rng.integers(2, size=len(topic)), users)
    rows = data.by_user()
    sorted_topic = topic[np.argsort(users, kind="stable")]
    for train, test in held_out_folds(rows):
        assert not np.intersect1d(sorted_topic[train], sorted_topic[test]).size
    known = held_out_folds(rows, predict_for="known items")
    assert any(np.intersect1d(sorted_topic[train], sorted_topic[test]).size for train, test in known)
