"""Pictures show what they say: how many things are drawn, where, and under which names."""

import sys

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from scipy.sparse.csgraph import connected_components

from prefkin import OffC2PL, PrefKin
from prefkin.data.synthetic import demo_population
from prefkin.errors import InvalidParameter
from prefkin.evaluate.metrics import HeldOut, reliability
from prefkin.evaluate.people_map import plane_of, room_for
from prefkin.evaluate.plots import (
    OWN,
    POOLED,
    as_png,
    can_draw,
    plot_coverage,
    plot_estimates,
    plot_held_out,
    plot_questions,
    plot_reliability,
    plot_users,
)
from tests.conftest import draw_answers


@pytest.fixture(scope="module")
def readers():
    return demo_population(np.random.default_rng(0))[0].data


@pytest.fixture(scope="module")
def kin(readers):
    return PrefKin().fit(readers)


@pytest.fixture(scope="module")
def paper(readers):
    return OffC2PL(60.0).fit(readers)


def points(ax, label):
    """Where the points under this entry of the legend are."""
    (found,) = (one for one in ax.collections if one.get_label() == label)
    return np.asarray(found.get_offsets())


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def inside(ax):
    """Is every point within the axes?"""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    for one in ax.collections:
        at = np.asarray(one.get_offsets())
        if not isinstance(one, LineCollection) and not ((at >= [left, low]) & (at <= [right, high])).all():
            return False
    return True


def test_users_are_points_by_group_with_names_and_ellipses(kin):
    ax = plot_users(kin)
    groups = [label for label in legend(ax) if label.startswith("group")]
    said = [" ".join(label.split()) for label in groups]
    assert said == [f"{str(group).replace(', 8 people', '')} (8)" for group in kin.groups_]
    shown = np.vstack([points(ax, label) for label in groups])
    assert len(np.unique(shown.round(9), axis=0)) == len(kin.users_) == len(ax.patches)
    assert len(points(ax, "by own answers only")) == 24
    assert ax.get_title("left") == "24 users: groups, 0 uncertain"
    assert (ax.get_xlabel(), ax.get_ylabel()) == plane_of(kin).names
    assert inside(ax)


def test_the_map_keeps_as_much_of_the_distances_as_two_directions_can(kin):
    ax = plot_users(kin)
    shown = np.vstack([points(ax, label) for label in legend(ax) if label.startswith("group")])
    worth = kin.theta_ * np.sqrt(np.mean(kin.comparisons().Z ** 2, axis=0))
    _, size, _ = np.linalg.svd(worth - worth.mean(axis=0))
    assert ((shown - shown.mean(axis=0)) ** 2).sum() == pytest.approx((size[:2] ** 2).sum())


def test_users_of_the_papers_model_are_joined_by_their_links(paper):
    ax = plot_users(paper)
    linked = np.array([[v in paper.neighbours(u) for v in paper.users_] for u in paper.users_])
    (lines,) = (one for one in ax.collections if isinstance(one, LineCollection))
    assert len(lines.get_segments()) == np.triu(linked, 1).sum() > 0
    count, group = connected_components(linked)
    alone = (np.bincount(group) == 1).sum()
    assert len([label for label in legend(ax) if label.startswith(("linked", "everybody"))]) == count - alone
    assert not ax.patches


def test_names_on_the_map_are_readable(kin):
    """No name covers another one, and most people have theirs."""
    ax = plot_users(kin)
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert {text.get_text() for text in ax.texts} <= set(kin.users_.tolist())
    assert len(boxes) >= 20
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])


def test_labels_find_room_or_stay_away():
    points = np.array([[0.0, 0.0], [9.0, 0.0], [9.0, 1.0]])
    first, second, third = room_for(points, [20.0] * 3, 10.0)
    assert first[0] < 0 < second[0]
    assert third is None or abs(third[1] - 1.0) >= 10.0
    assert room_for(points[:1], [20.0], 10.0, [np.array([-99.0, -99.0, 99.0, 99.0])]) == [None]


def test_many_users_have_no_names_and_one_ellipse_per_group(rng):
    Z, y, users = draw_answers(rng, sizes=[12] * 70, strength=6.0)
    kin = PrefKin(metric="isotropic").fit(Z, y, users=users)
    ax = plot_users(kin)
    assert not ax.texts
    assert len(ax.patches) == len(legend(ax)) <= 12


def test_one_user_is_a_picture_too(rng):
    Z, y, _ = draw_answers(rng, n_users=1, dim=1)
    ax = plot_users(OffC2PL(0.0).fit(Z[:3], y[:3]))
    assert len(ax.texts) == 1


def test_estimates_show_own_and_pooled_weights_of_every_feature(paper, readers):
    user = max(paper.users_, key=lambda u: len(paper.neighbours(u)))
    u = paper.position(user)
    ax = plot_estimates(paper, user, [f"quality {i}" for i in range(readers.dim)])
    own = points(ax, "own comparisons only")
    assert own[:, 0].tolist() == paper.own_theta_[u].tolist()
    assert points(ax, f"with {len(paper.neighbours(user)) - 1} neighbours")[:, 0].tolist() == paper.theta_[u].tolist()
    names = dict(zip(ax.get_yticks(), (text.get_text() for text in ax.get_yticklabels()), strict=True))
    assert [names[height] for height in own[:, 1]] == [f"quality {i}" for i in range(readers.dim)]
    assert inside(ax)


def test_of_many_features_those_that_moved_most_are_shown(rng):
    Z, y, users = draw_answers(rng, dim=30)
    model = OffC2PL(np.inf).fit(Z, y, users=users)
    ax = plot_estimates(model, 2)
    moved = np.abs(model.theta_[2] - model.own_theta_[2])
    shown = points(ax, "own comparisons only")[:, 0]
    assert sorted(shown) == sorted(model.own_theta_[2][np.argsort(-moved)[:20]])
    assert "20 of 30 features" in ax.get_title("left")


def test_coverage_shows_the_doubt_of_each_direction(kin):
    ax = plot_coverage(kin, "Ada", 4)
    known = kin.coverage_map("Ada", 4).directions
    assert points(ax, "own answers only")[:, 0].tolist() == [one.own_doubt for one in known]
    assert points(ax, "with others")[:, 0].tolist() == [one.doubt for one in known]
    assert [text.get_text() for text in ax.get_yticklabels()] == [one.name for one in known]
    assert ax.get_xlim()[0] == 0
    assert inside(ax)


def test_questions_show_how_far_each_weight_may_be_off():
    ax = plot_questions(np.diag([1.0, 4.0]), np.diag([4.0, 16.0]), "taught", ["salt", "fat"])
    assert points(ax, "before the questions")[:, 0].tolist() == [1.0, 0.5]
    assert points(ax, "after")[:, 0].tolist() == [0.5, 0.25]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["salt", "fat"]
    assert (ax.get_title("left"), ax.get_xlim()[0]) == ("taught", 0)
    assert inside(ax)


def test_held_out_losses_are_bars_and_the_best_stands_out():
    results = {"one": HeldOut(0.6, 0.02, 0.7, 0.01), "other": HeldOut(0.5, 0.03, 0.8, 0.01)}
    ax = plot_held_out(results)
    assert [bar.get_width() for bar in ax.patches] == [0.6, 0.5]
    worse, best = (bar.get_facecolor() for bar in ax.patches)
    assert best == pytest.approx(_rgb(POOLED), abs=0.01)
    assert worse != best
    assert [text.get_text() for text in ax.get_yticklabels()] == ["one", "other"]
    (guessing,) = (line for line in ax.lines if len(set(line.get_xdata())) == 1)
    assert guessing.get_xdata()[0] == pytest.approx(np.log(2))
    assert guessing.get_color() == OWN


def _rgb(colour):
    return (*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)), 1.0)


def test_reliability_draws_promised_against_observed_with_counts(rng):
    one, other = (reliability(rng.random(400)) for _ in range(2))
    ax = plot_reliability({"one": one, "other": other})
    drawn = [container.lines[0].get_xydata() for container in ax.containers]
    for result, line in zip((one, other), drawn, strict=True):
        assert np.allclose(line, np.column_stack([result.predicted, result.observed]))
    assert legend(ax) == [f"one: off by {one.gap:.1%}", f"other: off by {other.gap:.1%}"]
    assert [text.get_text() for text in ax.texts] == [f"{count:,.0f}" for count in one.counts]
    assert as_png(ax).startswith(b"\x89PNG")


def test_without_matplotlib_one_line_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InvalidParameter, match=r"pictures need matplotlib; pip install 'prefkin\[plots\]'"):
        plot_questions(np.eye(1), np.eye(1), "taught")
    assert can_draw()
