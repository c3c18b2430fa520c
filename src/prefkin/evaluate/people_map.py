"""People on a plane: along the two directions in which they differ most, by what features are worth to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray, above_zero
from prefkin.models.base import PreferenceModel

__all__ = ["Plane", "groups_on", "plane_of", "room_for"]

NAMED = 2  # features that name an axis


@dataclass(frozen=True, eq=False)
class Plane:
    """Two directions of preferences, each feature in units of its size in the comparisons."""

    axes: FloatArray  # (2, d); a preference is at axes @ θ
    names: tuple[str, str]  # what they stand for

    def at(self, theta: FloatArray) -> FloatArray:
        """Where preferences are, (n, 2)."""
        return theta @ self.axes.T

    def spread(self, covariance: FloatArray) -> FloatArray:
        """What is not known of a preference, as a covariance on the plane, (2, 2)."""
        return np.asarray(self.axes @ covariance @ self.axes.T)


def plane_of(model: PreferenceModel) -> Plane:
    """The plane that keeps most of how people differ; by their own answers, should all estimates be equal.

    >>> from prefkin import PrefKin
    >>> from prefkin.data.synthetic import demo_population
    >>> model = PrefKin().fit(demo_population(np.random.default_rng(0))[0].data)
    >>> plane_of(model).names[0]
    'more short, less detailed (65% of how people differ) →'
    """
    size = np.sqrt(np.mean(model.comparisons().Z ** 2, axis=0))
    for theta in (model.theta_, model.own_theta_):
        worth = theta * size
        _, sizes, found = np.linalg.svd(worth - worth.mean(axis=0), full_matrices=False)
        if sizes[0] > 1e-9:
            break
    axes, shares = np.zeros((2, worth.shape[1])), np.zeros(2)
    n = min(2, len(found))
    largest = found[np.arange(n), np.argmax(np.abs(found[:n]), axis=1)]
    axes[:n] = found[:n] * np.where(largest < 0, -1.0, 1.0)[:, None]
    shares[:n] = sizes[:n] ** 2 / above_zero((sizes**2).sum())
    one, other = (_name(axis, float(share), model.feature_names_) for axis, share in zip(axes, shares, strict=True))
    return Plane(axes * size, (one, other))


def _name(axis: FloatArray, share: float, names: Sequence[str] | None) -> str:
    if not axis.any():
        return ""
    top = np.argsort(-np.abs(axis), kind="stable")[:NAMED]
    words = "" if names is None else ", ".join(f"{'more' if axis[i] > 0 else 'less'} {names[i]}" for i in top)
    return f"{words} ({share:.0%} of how people differ) →" if words else f"{share:.0%} of how people differ →"


def groups_on(model: PreferenceModel, most: int | None = None) -> tuple[IntArray, FloatArray]:
    """For everybody the place of their group among the first `most` of `groups_`, −1: none; and how sure that is."""
    place, sure = np.full(len(model.users_), -1), np.ones(len(model.users_))
    for k, group in enumerate(model.groups_[:most]):
        who = [model.position(user) for user in group.members.tolist()]
        place[who], sure[who] = k, group.probability
    return place, sure


def room_for(
    points: FloatArray, widths: Sequence[float], height: float, taken: Sequence[FloatArray] = ()
) -> list[FloatArray | None]:
    """Middles for labels beside points, so that none covers a point, another label or a box that is `taken`.

    Boxes are left, top, right, bottom; where there is no room there is no label.

    >>> room_for(np.array([[0.0, 0.0], [4.0, 0.0]]), [20.0, 20.0], 10.0)
    [array([-16.,   0.]), array([20.,  0.])]
    """
    gap = height / 2.0 + 1.0
    boxes, found = [np.asarray(box, dtype=float) for box in taken], list[FloatArray | None]()
    for point, width in zip(points, widths, strict=True):
        far = width / 2.0 + gap
        corners = product((far, -far), (-height, height))
        ways = ((far, 0.0), (-far, 0.0), (0.0, -height), (0.0, height), *corners)
        for way in ways:
            middle, half = point + np.array(way), np.array([width, height]) / 2.0
            box = np.concatenate([middle - half, middle + half])
            covers = ((points >= box[:2] - 2.0) & (points <= box[2:] + 2.0)).all(axis=1).any()
            if not covers and all((box[2:] <= other[:2]).any() or (box[:2] >= other[2:]).any() for other in boxes):
                boxes.append(box)
                found.append(middle)
                break
        else:
            found.append(None)
    return found
