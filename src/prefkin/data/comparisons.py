"""Who saw which pair and what they chose.

Row i of a data set says: user `users[i]` was shown two actions in one context, whose features differ by
`Z[i] = φ(x, a) − φ(x, a′)`, and answered `y[i]`: 1 when `a` was preferred, 0 when `a′` was.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from prefkin.data.answers import answer_array
from prefkin.data.arrays import FloatArray, IntArray, LabelArray
from prefkin.data.checks import (
    any_in_row,
    distinct_labels,
    feature_matrix,
    label_array,
    largest_entry,
    missing_labels,
    number_array,
    refuse_bad_rows,
    refuse_vanishing,
)
from prefkin.data.choices import Pairs, pairs_of_choices, pairs_of_rankings, weights_of_choices
from prefkin.data.described import places_of_features
from prefkin.data.items import codes_of_features, codes_of_names, item_names
from prefkin.data.ratings import Ratings, pairs_of_ratings
from prefkin.data.rows import Rows, UserRows
from prefkin.errors import InvalidComparisons

__all__ = ["Comparisons"]


DROPPABLE = ("ties", "missing")
OF_EACH_ROW = ("Z", "y", "users", "weights", "contexts", "first", "second", "items", "judged")


@dataclass(frozen=True, eq=False, repr=False)
class Comparisons:
    """Checked comparisons; build them with `from_arrays`, `from_sides`, `from_rankings`, `from_choices`, `from_ratings`
    or `prefkin.read_comparisons`.

    >>> data = Comparisons.from_arrays([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [1, 0, 1], ["ann", "ann", "bo"])
    >>> data
    Comparisons(3 comparisons by 2 users, 2 features)
    >>> data.users.tolist()
    ['ann', 'ann', 'bo']
    """

    Z: FloatArray  # (n, d)  φ(x, a) − φ(x, a′)
    y: FloatArray  # (n,)    1 when a was preferred, 0 when a′ was
    users: LabelArray  # (n,)    any hashable labels
    weights: FloatArray  # (n,)    how often a row counts; 1 unless given
    contexts: LabelArray | None = None  # (n,)    what was asked about, for grouped splits
    first: FloatArray | None = None  # (n, d)  φ(x, a), when both sides are known
    second: FloatArray | None = None  # (n, d)  φ(x, a′), likewise
    feature_names: tuple[str, ...] | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)  # rows left out on request, by reason
    items: LabelArray | None = None  # (n, 2)  names of a and a′, where they have any
    weighted: bool = False  # were the weights given?
    learnt_features: bool = False  # are the features factors of the ratings themselves?
    judged: FloatArray | None = None  # (n,)    what a row counts when it is held out, where that is not its weight

    @classmethod
    def from_arrays(
        cls,
        Z: ArrayLike,
        y: ArrayLike,
        users: ArrayLike | Sequence[Hashable],
        *,
        weights: ArrayLike | None = None,
        contexts: ArrayLike | Sequence[Hashable] | None = None,
        items: Any = None,
        feature_names: Sequence[str] | None = None,
        drop: str | Sequence[str] = (),
        ties: str | None = None,
    ) -> Comparisons:
        """Check and hold feature differences, answers and who gave them.

        `items`, two names a row, says what was compared, so that a choice by held-out answers can be made for items
        that were not seen. `drop="ties"` or `drop="missing"` (or both) leaves such rows out and counts them in
        `dropped`; `ties="half"` keeps ties as half an answer for each side, two rows of half the weight; otherwise they
        are refused.

        >>> Comparisons.from_arrays([[1.0], [2.0]], [1, 0.5], ["ann", "bo"], drop="ties").dropped
        {'ties': 1}
        >>> kept = Comparisons.from_arrays([[1.0], [2.0]], [1, 0.5], ["ann", "bo"], ties="half")
        >>> kept.y.tolist(), kept.weights.tolist()
        ([1.0, 1.0, 0.0], [1.0, 0.5, 0.5])
        >>> Comparisons.from_arrays([[1.0], [2.0]], [1, 0], ["ann", "bo"], items=[("p", "q"), ("r", "q")]).items.shape
        (2, 2)
        """
        Z = feature_matrix(Z, "Z")
        return cls._checked(Z, None, None, y, users, weights, contexts, items, feature_names, drop, ties)

    @classmethod
    def from_sides(
        cls,
        first: ArrayLike,
        second: ArrayLike,
        y: ArrayLike,
        users: ArrayLike | Sequence[Hashable],
        *,
        weights: ArrayLike | None = None,
        contexts: ArrayLike | Sequence[Hashable] | None = None,
        items: Any = None,
        feature_names: Sequence[str] | None = None,
        drop: str | Sequence[str] = (),
        ties: str | None = None,
    ) -> Comparisons:
        """As `from_arrays`, from the features of both actions; sides with equal features are the same item, unless
        `items` says otherwise.

        >>> Comparisons.from_sides([[3.0, 1.0]], [[1.0, 1.0]], [1], ["ann"]).Z.tolist()
        [[2.0, 0.0]]
        """
        one, other = feature_matrix(first, "first"), feature_matrix(second, "second")
        if one.shape != other.shape:
            raise InvalidComparisons(
                f"first has shape {one.shape} but second has {other.shape}; "
                "both sides of a pair need one row each and the same features"
            )
        with np.errstate(invalid="ignore"):
            difference = one - other
        difference[np.isinf(one) | np.isinf(other)] = np.inf  # also inf − inf: infinite, not missing
        return cls._checked(difference, one, other, y, users, weights, contexts, items, feature_names, drop, ties)

    @classmethod
    def from_rankings(
        cls,
        features: ArrayLike,
        rankings: Sequence[Sequence[Any]],
        users: ArrayLike | Sequence[Hashable],
        *,
        contexts: ArrayLike | Sequence[Hashable] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> Comparisons:
        """Rankings of items, as pairs that count for what they tell: fewer answers than there are pairs.

        Parameters
        ----------
        features : (items, d)
        rankings : for each, rows of `features`, best first; not all need be there, a nested list is a tie
        users : whose ranking each is
        contexts : what each is about; unless given, each ranking is a context of its own

        An item is heard as the best of itself and those below it, each of these pairs with weight 2/A for A items left.
        On rankings of 10 jokes made of Jester ratings this took PrefKin's held-out log-loss from .690 (pairs that all
        count 1) to .646, and the slope of answers on log odds from .49 to 1.10; with 5 jokes from .703 to .656 (slope
        .43 to 1.01), with 20 from .888 to .624 (.24 to 1.03): docs/method.md, Rankings and choices.

        >>> X = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
        >>> data = Comparisons.from_rankings(X, [[2, 0, 1], [1, [0, 2]]], ["ann", "bo"])
        >>> data.items.tolist()
        [[0, 2], [1, 2], [0, 1], [0, 1], [1, 2]]
        >>> data.y.tolist(), data.weights.round(2).tolist()
        ([0.0, 0.0, 1.0, 0.0, 1.0], [0.67, 0.67, 1.0, 0.67, 0.67])
        """
        X = feature_matrix(features, "features")
        return cls._of_sets(X, pairs_of_rankings(rankings, len(X)), True, len(rankings), users, contexts, feature_names)

    @classmethod
    def from_choices(
        cls,
        options: ArrayLike | Sequence[ArrayLike],
        chosen: ArrayLike | Sequence[int],
        users: ArrayLike | Sequence[Hashable],
        *,
        contexts: ArrayLike | Sequence[Hashable] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> Comparisons:
        """Choices among several options: the chosen one against each other, no option thrown away.

        Parameters
        ----------
        options : (choices, A, d), or a list of (A_t, d) where sets differ in size; "none of these" is a row like others
        chosen : position of the chosen option in each set
        users : whose choice each is
        contexts : what each is about; unless given, each choice is a context of its own

        Each pair counts by the chance that the choice was between these two, as a conditional logit of these choices
        tells: from 2/A where nobody cares which of A it is, to 1 where two compete alone. So pairs predict choices as
        the exact conditional logit does, for all and for each. Such a weight is smaller where somebody chose against
        what was expected, so that held-out answers are judged by weights that only A decides, `judged`:
        docs/method.md, Rankings and choices.

        >>> data = Comparisons.from_choices([[[1.0], [2.0], [0.0]], [[3.0], [1.0], [0.0]]], [1, 0], ["ann", "bo"])
        >>> data.Z.ravel().tolist(), data.y.tolist()
        ([-1.0, 2.0, 2.0, 3.0], [0.0, 1.0, 1.0, 1.0])
        >>> data.weights.round(2).tolist(), data.contexts.tolist()
        ([0.97, 0.84, 0.99, 0.96], [0, 0, 1, 1])
        """
        X, pairs = pairs_of_choices(options, chosen)
        data = cls._of_sets(X, pairs, False, len(np.asarray(chosen)), users, contexts, feature_names)
        ahead = data.Z * (2.0 * data.y - 1.0)[:, None]
        return replace(data, weights=weights_of_choices(ahead, np.array(pairs.sets), data.who), judged=data.weights)

    @classmethod
    def from_ratings(
        cls,
        users: ArrayLike | Sequence[Hashable],
        items: ArrayLike | Sequence[Hashable],
        ratings: ArrayLike,
        features: Mapping[Hashable, ArrayLike] | None = None,
        *,
        n_factors: int = 16,
        margin: float | None = None,
        pairs_per_user: int = 200,
        feature_names: Sequence[str] | None = None,
        random_state: int = 0,
    ) -> Comparisons:
        """Ratings, as pairs of which somebody rated one clearly higher.

        Parameters
        ----------
        users, items, ratings : who rated what how, a row for each rating
        features : item → features. Without them, items are described by factors learnt from these ratings: the mean
            rating and `n_factors` leading directions of a truncated singular value decomposition, which
            `feature_names` and `learnt_features` of the result say; `Candidates.from_items` has them for every item
        margin : ratings that differ by less are not compared; by default half their standard deviation within people
        pairs_per_user : at most so many pairs a person, drawn by `random_state` from those that differ

        All pairs of a person count together as much as a ranking of the same items does (`from_rankings`), about twice
        the number of ratings, so that nobody counts by its square. Which side is first is left to chance.

        >>> who, what = ["ann", "ann", "ann", "bo", "bo"], ["tea", "milk", "rum", "tea", "rum"]
        >>> data = Comparisons.from_ratings(who, what, [5, 3, 1, 2, 4], n_factors=1)
        >>> data
        Comparisons(4 comparisons by 2 users, 2 features)
        >>> data.feature_names, data.learnt_features
        (('mean rating', 'factor 1'), True)
        """
        for name, given in (("n_factors", n_factors), ("pairs_per_user", pairs_per_user)):
            if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 1:
                raise InvalidComparisons(f"{name} must be a whole number of at least 1; got {given!r:.40}")
        if margin is not None and not margin >= 0:
            raise InvalidComparisons(f"margin must be a number of at least 0; got {margin!r:.40}")
        rated = Ratings.checked(users, items, ratings)
        pairs = pairs_of_ratings(rated, margin, int(pairs_per_user), np.random.default_rng(random_state))
        if not len(pairs.y):
            raise InvalidComparisons(
                "nobody rated two items clearly differently, so nothing was compared; give a smaller margin"
            )
        if features is None:
            X, feature_names = rated.factors(n_factors)
        else:
            X = rated.features(features)
        one, other = rated.what[pairs.first], rated.what[pairs.second]
        data = cls.from_sides(
            X[one],
            X[other],
            pairs.y,
            rated.people[rated.who[pairs.first]],
            weights=pairs.weights,
            items=np.column_stack([rated.items[one], rated.items[other]]),
            feature_names=feature_names,
        )
        return replace(data, learnt_features=features is None)

    @classmethod
    def _of_sets(
        cls,
        X: FloatArray,
        pairs: Pairs,
        named: bool,
        n_sets: int,
        users: ArrayLike | Sequence[Hashable],
        contexts: ArrayLike | Sequence[Hashable] | None,
        feature_names: Sequence[str] | None,
    ) -> Comparisons:
        """Pairs out of sets of items: owners and contexts are given for each set; `named`: rows of X are items."""
        owners = label_array(users, "users")
        about = np.arange(n_sets) if contexts is None else label_array(contexts, "contexts")
        for name, part in (("users", owners), ("contexts", about)):
            if len(part) != n_sets:
                raise InvalidComparisons(
                    f"{name} has {len(part)} entries for {n_sets} sets of items; give one for each"
                )
        first, second = np.array(pairs.first, dtype=np.intp), np.array(pairs.second, dtype=np.intp)
        if not len(first):
            raise InvalidComparisons("nothing was compared: no set has two items that differ; give at least one")
        number = np.array(pairs.sets)
        return cls.from_sides(
            X[first],
            X[second],
            pairs.y,
            owners[number],
            weights=pairs.weights,
            contexts=about[number],
            items=np.column_stack([first, second]) if named else None,
            feature_names=feature_names,
        )

    @classmethod
    def _checked(
        cls,
        Z: FloatArray,
        first: FloatArray | None,
        second: FloatArray | None,
        y: ArrayLike,
        users: ArrayLike | Sequence[Hashable],
        weights: ArrayLike | None,
        contexts: ArrayLike | Sequence[Hashable] | None,
        items: Any,
        feature_names: Sequence[str] | None,
        drop: str | Sequence[str],
        ties: str | None,
    ) -> Comparisons:
        wanted = {drop} if isinstance(drop, str) else set(drop)
        if unknown := sorted(wanted - set(DROPPABLE)):
            raise InvalidComparisons(f"drop must be among {', '.join(DROPPABLE)}; got {unknown[0]!r}")
        if ties not in (None, "half"):
            raise InvalidComparisons(f"ties may be 'half', or left out with drop='ties'; got ties={ties!r:.40}")
        answers, owners = answer_array(y), label_array(users, "users")
        scale = np.ones(len(Z)) if weights is None else number_array(weights, "weights")
        where = None if contexts is None else label_array(contexts, "contexts")
        names = None if items is None else item_names(items)
        parts = (("y", answers), ("users", owners), ("weights", scale), ("contexts", where), ("items", names))
        for name, part in parts:
            if part is not None and len(part) != len(Z):
                raise InvalidComparisons(
                    f"{name} has {len(part)} rows but the features have {len(Z)}; give one per comparison"
                )
        if len(Z) == 0:
            raise InvalidComparisons("there are no comparisons: the table is empty; give at least one row")
        if feature_names is not None and len(feature_names) != Z.shape[1]:
            raise InvalidComparisons(
                f"{len(feature_names)} feature_names for {Z.shape[1]} features; give one name per feature"
            )

        gaps = {"y": np.isnan(answers), "the user": missing_labels(owners)}
        if where is not None:
            gaps["the context"] = missing_labels(where)
        if names is not None:
            gaps["the name of an item"] = missing_labels(names[:, 0]) | missing_labels(names[:, 1])
        gaps["the weight"] = np.isnan(scale)
        missing, largest = np.any(list(gaps.values()), axis=0), largest_entry(Z)
        if np.isnan(largest):
            missing |= any_in_row(Z, np.isnan)
        tied = answers == 0.5
        keep = np.ones(len(Z), dtype=bool)
        dropped = {}
        for reason, rows in (("ties", tied), ("missing", missing & ~tied)):
            if reason in wanted:
                keep &= ~rows
                dropped[reason] = int(rows.sum())
        halved = tied & keep & (ties == "half")
        refuse_bad_rows(Z, np.where(halved, 1.0, answers), scale, gaps, keep, largest, feature_names)
        if not keep.any():
            raise InvalidComparisons(
                f"no comparison is left after dropping {' and '.join(sorted(wanted))} ({len(Z)} rows read)"
            )
        if not keep.all() or halved.any():
            rows = np.repeat(np.arange(len(Z)), keep.astype(np.intp) + halved)
            again = np.append(False, rows[1:] == rows[:-1])
            scale = np.where(halved, 0.5 * scale, scale)[rows]
            answers = np.where(halved[rows], ~again, answers[rows])
            Z, owners, where = Z[rows], owners[rows], None if where is None else where[rows]
            first, second, names = (None if part is None else part[rows] for part in (first, second, names))
        refuse_vanishing(largest if keep.all() else largest_entry(Z))
        if not scale.any():
            raise InvalidComparisons("all weights are 0, so nothing was compared; give some row a weight above 0")
        titles = None if feature_names is None else tuple(str(name) for name in feature_names)
        weighted = weights is not None or bool(halved.any())
        data = cls(Z, answers, owners, scale, where, first, second, titles, dropped, names, weighted)
        data._coded  # noqa: B018 - labels that cannot be told apart are refused here, not later
        return data

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"Comparisons({len(self)} comparisons by {len(self.labels)} users, {self.dim} features)"

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.Z.shape[1]

    @cached_property
    def _coded(self) -> tuple[LabelArray, IntArray]:
        return distinct_labels(self.users)

    @property
    def labels(self) -> LabelArray:
        """The distinct users: sorted where they can be, in order of appearance otherwise."""
        return self._coded[0]

    @property
    def who(self) -> IntArray:
        """Position of each row's user in `labels`."""
        return self._coded[1]

    @cached_property
    def item_codes(self) -> IntArray | None:
        """Items as numbers, shape (n, 2): by name, or equal where features are; None where only differences are known.

        >>> Comparisons.from_sides([[3.0], [1.0]], [[1.0], [2.0]], [1, 0], ["ann", "ann"]).item_codes.tolist()
        [[2, 0], [0, 1]]
        """
        if self.items is not None:
            return codes_of_names(self.items)
        return None if self.first is None or self.second is None else codes_of_features(self.first, self.second)

    @property
    def held_out_weights(self) -> FloatArray:
        """(n,) what each row counts when predictions of it are judged."""
        return self.weights if self.judged is None else self.judged

    def take(self, rows: ArrayLike) -> Comparisons:
        """Some of the rows, chosen by position or mask.

        >>> Comparisons.from_arrays([[1.0], [2.0]], [1, 0], ["ann", "bo"]).take([1]).users.tolist()
        ['bo']
        """
        pick = np.asarray(rows)
        given = {name: part for name in OF_EACH_ROW if (part := getattr(self, name)) is not None}
        return replace(self, dropped={}, **{name: part[pick] for name, part in given.items()})

    def described_by(self, names: Sequence[str] | None) -> Comparisons:
        """With the features of these names in this order; other names are refused, and without names it stays.

        >>> data = Comparisons.from_arrays([[1.0, 2.0]], [1], ["ann"], feature_names=["tone", "price"])
        >>> data.described_by(["price", "tone"]).Z.tolist()
        [[2.0, 1.0]]
        """
        places = places_of_features(self.feature_names, names, "the comparisons", InvalidComparisons)
        if places is None or names is None:
            return self
        Z, first, second = (
            None if part is None else np.ascontiguousarray(part[:, places])
            for part in (self.Z, self.first, self.second)
        )
        assert Z is not None
        return replace(self, Z=Z, first=first, second=second, feature_names=tuple(names))

    def by_user(self, *, copy: bool = True) -> UserRows:
        """Sorted by user, each user's rows in their order. Without `copy`, rows already in order are shared."""
        sizes = np.bincount(self.who, minlength=len(self.labels))
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        contexts = None if self.contexts is None else distinct_labels(self.contexts)[1]
        parts: list[Any] = [self.Z, self.y, self.weights, contexts, self.item_codes, self.judged]
        if not (self.who[1:] >= self.who[:-1]).all():
            order = np.argsort(self.who, kind="stable")
            parts = [None if part is None else part[order] for part in parts]
        elif copy:
            parts[:3] = [part.copy() for part in parts[:3]]
        rows, (contexts, items, judged) = Rows(*parts[:3]), parts[3:]
        return UserRows(rows, starts, self.labels, contexts, items, self.first is not None, judged=judged)
