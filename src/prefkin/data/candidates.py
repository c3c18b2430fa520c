"""What could be shown or recommended: the actions available in each context, by their features φ(x, a)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from prefkin.data.arrays import FloatArray, IntArray, LabelArray
from prefkin.data.checks import LARGEST_FEATURE, distinct_labels, label_array
from prefkin.data.described import places_of_features
from prefkin.data.digest import digest
from prefkin.errors import InvalidCandidates

if TYPE_CHECKING:
    from prefkin.data.comparisons import Comparisons

__all__ = ["Candidates"]


class Candidates:
    """Actions per context, the same number in each or not, held as one flat table.

    Parameters
    ----------
    features : array (X, A, d), or a list of X arrays (A_x, d)
    weights : how often each context occurs (ρ_p up to scale); uniform unless given
    feature_names : names of the d features, if they have any
    contexts, actions : labels to report by; positions unless given. `actions` has one entry per row, contexts in order.

    >>> cands = Candidates([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [1.0, 1.0], [0.0, 3.0]]])
    >>> cands
    Candidates(2 contexts, 2 to 3 actions each, 2 features)
    >>> cands.argmax(cands.features @ [1.0, 0.5]).tolist()
    [0, 0]
    """

    features: FloatArray  # (rows, d), contexts one after the other
    starts: IntArray  # (X + 1,) context x owns rows starts[x]:starts[x + 1]
    weights: FloatArray  # (X,) summing to 1
    contexts: LabelArray  # (X,)
    actions: LabelArray  # (rows,)
    feature_names: tuple[str, ...] | None

    def __init__(
        self,
        features: ArrayLike | Sequence[ArrayLike],
        weights: ArrayLike | None = None,
        *,
        contexts: ArrayLike | Sequence[Hashable] | None = None,
        actions: ArrayLike | Sequence[Hashable] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        self.features, sizes = _flat(features)
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        bad = np.flatnonzero(~(np.abs(self.features) <= LARGEST_FEATURE).all(axis=1))
        if bad.size:
            x = int(np.searchsorted(self.starts, bad[0], side="right")) - 1
            raise InvalidCandidates(
                f"the features of context {x}, action {bad[0] - self.starts[x]} (counted from 0) are not finite "
                f"or beyond 1e75 ({bad.size} such actions); mend or leave them out"
            )
        self.feature_names = None if feature_names is None else tuple(map(str, feature_names))
        self.weights = _probabilities(weights, len(sizes))
        self.contexts = np.arange(len(sizes)) if contexts is None else label_array(contexts, "contexts")
        self.actions = (
            np.concatenate([np.arange(size) for size in sizes]) if actions is None else label_array(actions, "actions")
        )
        for name, labels, expected in (
            ("contexts", self.contexts, len(sizes)),
            ("actions", self.actions, len(self.features)),
        ):
            if len(labels) != expected:
                raise InvalidCandidates(f"{name} has {len(labels)} labels for {expected}; give one for each")

    @classmethod
    def from_comparisons(cls, data: Comparisons) -> Candidates:
        """The pairs that were logged with both sides, gathered by context, each distinct action once.

        >>> from prefkin import Comparisons
        >>> data = Comparisons.from_sides([[1.0], [2.0]], [[0.0], [1.0]], [1, 0], ["ann", "bo"], contexts=["q", "q"])
        >>> Candidates.from_comparisons(data)
        Candidates(1 contexts, 3 to 3 actions each, 1 features)
        """
        if data.first is None or data.second is None:
            raise InvalidCandidates(
                "these comparisons hold only feature differences; candidates need both sides of each pair "
                "(Comparisons.from_sides, or columns first and second)"
            )
        where = np.arange(len(data)) if data.contexts is None else data.contexts
        labels, codes = distinct_labels(where)
        sides = np.concatenate([data.first, data.second])
        owner = np.concatenate([codes, codes])
        by_context = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
        return cls([np.unique(sides[rows], axis=0) for rows in by_context], contexts=labels)

    @classmethod
    def from_items(cls, data: Comparisons) -> Candidates:
        """Every item that was compared, by its name, as the actions of one context: what could be recommended.

        >>> from prefkin import Comparisons
        >>> pairs = [("q", "p"), ("r", "q")]
        >>> data = Comparisons.from_sides([[3.0], [2.0]], [[1.0], [3.0]], [1, 0], ["ann", "bo"], items=pairs)
        >>> items = Candidates.from_items(data)
        >>> items.actions.tolist(), items.features.ravel().tolist()
        (['p', 'q', 'r'], [1.0, 3.0, 2.0])
        """
        if data.items is None or data.first is None or data.second is None:
            raise InvalidCandidates(
                "these comparisons do not name their items; give both sides and items=[(first, second), ...] "
                "(Comparisons.from_sides, from_ratings, or columns that name items)"
            )
        names, codes = distinct_labels(data.items.T.ravel())
        row = np.unique(codes, return_index=True)[1]
        features = np.concatenate([data.first, data.second])[row]
        return cls([features], contexts=["all"], actions=names, feature_names=data.feature_names)

    def described_by(self, names: Sequence[str] | None) -> Candidates:
        """With the features of these names in this order; other names are refused, and without names it stays.

        >>> named = Candidates([[[1.0, 2.0]]], feature_names=["tone", "price"])
        >>> named.described_by(["price", "tone"]).features.tolist()
        [[2.0, 1.0]]
        """
        places = places_of_features(self.feature_names, names, "the candidates", InvalidCandidates)
        if places is None or names is None:
            return self
        other = copy(self)
        other.__dict__.pop("digest", None)
        other.features, other.feature_names = np.ascontiguousarray(self.features[:, places]), tuple(names)
        return other

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        return (
            f"Candidates({len(self)} contexts, {self.sizes.min()} to {self.sizes.max()} actions each, "
            f"{self.dim} features)"
        )

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.features.shape[1]

    @cached_property
    def sizes(self) -> IntArray:
        """Actions per context."""
        return np.diff(self.starts)

    @cached_property
    def owner(self) -> IntArray:
        """The context of each row."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def digest(self) -> str:
        """Which candidates these are; names do not matter."""
        return digest(self.features, self.starts.astype(np.int64), self.weights)

    def of(self, context: int) -> FloatArray:
        """Features of one context's actions."""
        return self.features[self.starts[context] : self.starts[context + 1]]

    def __iter__(self) -> Iterator[FloatArray]:
        return (self.of(x) for x in range(len(self)))

    def argmax(self, scores: FloatArray) -> IntArray:
        """The best action of each context, the first one among equals."""
        top = np.maximum.reduceat(scores, self.starts[:-1])
        best = np.flatnonzero(scores == top[self.owner])[::-1]
        chosen = np.empty(len(self), dtype=np.intp)
        chosen[self.owner[best]] = best  # backwards, so that the first one stays
        return chosen - self.starts[:-1]

    def mean(self, actions: IntArray) -> FloatArray:
        """E_x φ(x, π(x)): the mean feature of the policy that takes these actions."""
        return self.weights @ self.features[self.starts[:-1] + actions]


def _flat(features: Any) -> tuple[FloatArray, IntArray]:
    if isinstance(features, np.ndarray) and features.ndim == 3 and features.dtype.kind in "biuf":
        n_contexts, n_actions, dim = features.shape
        flat = np.ascontiguousarray(features, dtype=np.float64).reshape(n_contexts * n_actions, dim)
        sizes = np.full(n_contexts, n_actions, dtype=np.intp)
    else:
        try:
            parts = [np.asarray(part) for part in features]
            if any(np.iscomplexobj(part) for part in parts):
                raise TypeError
            parts = [part.astype(np.float64, copy=False) for part in parts]
        except (TypeError, ValueError):
            raise InvalidCandidates(
                "features must be numbers: an array (contexts, actions, features), "
                "or one (actions, features) array per context"
            ) from None
        for x, part in enumerate(parts):
            if part.ndim != 2 or part.shape[1:] != parts[0].shape[1:]:
                raise InvalidCandidates(
                    f"context {x} (counted from 0) has features of shape {part.shape}; each context needs one "
                    "(actions, features) array, with the same features everywhere"
                )
        sizes = np.array([len(part) for part in parts], dtype=np.intp)
        flat = np.concatenate(parts) if parts else np.empty((0, 0))
    if len(sizes) == 0 or flat.size == 0:
        raise InvalidCandidates("there are no candidates; give at least one context with one action and one feature")
    if (empty := np.flatnonzero(sizes == 0)).size:
        raise InvalidCandidates(f"context {empty[0]} (counted from 0) has no actions; leave such contexts out")
    return flat, sizes


def _probabilities(weights: ArrayLike | None, n_contexts: int) -> FloatArray:
    if weights is None:
        return np.full(n_contexts, 1.0 / n_contexts)
    try:
        given = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidCandidates("weights must be numbers, one per context") from None
    if given.shape != (n_contexts,):
        raise InvalidCandidates(f"weights has shape {given.shape} for {n_contexts} contexts; give one per context")
    if not (np.isfinite(given).all() and (given >= 0).all() and given.max() > 0):
        raise InvalidCandidates("weights must be finite, at least 0, and not all 0")
    given = given / given.max()  # so that the sum cannot overflow
    return given / given.sum()
