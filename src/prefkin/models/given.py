"""What models are given, by callers of scikit-learn too: answers under two labels, features that are numbers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from numbers import Number, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_feature_names, _get_feature_names, check_is_fitted, validate_data

from prefkin.data.answers import as_word, sides_of
from prefkin.data.arrays import FloatArray, IntArray, LabelArray
from prefkin.data.checks import feature_matrix, is_missing, missing_labels, number_array, plain_array, refuse_gaps
from prefkin.data.comparisons import Comparisons
from prefkin.data.dependence import effective_weights
from prefkin.data.described import places_of_features
from prefkin.data.rows import Grown, Rows, UserRows, grown
from prefkin.data.shards import ShardedComparisons
from prefkin.data.storage import label_from_json, label_to_json
from prefkin.errors import AnswerWarning, DependenceWarning, InvalidComparisons, InvalidParameter
from prefkin.models.reports import counted

__all__ = ["Given", "as_features", "refuse_more", "two_answers"]


def two_answers(y: Any, who: str, positive: Any = None) -> tuple[FloatArray, LabelArray, Any]:
    """Answers as 0 and 1, the two labels they were given as, sorted, and which one means "the first is preferred".

    That one is `positive`, or 1 beside 0 or 2, or a word that says so (`prefkin.data.answers.SIDES`). scikit-learn
    lets a classifier's two labels be anything; the larger one then counts, as it does there, and a warning says so.

    >>> two_answers(["right", "left"], "model")
    (array([0., 1.]), array(['left', 'right'], dtype='<U5'), 'left')
    """
    if y is None:
        raise InvalidComparisons(f"{who} requires y to be passed, but the target y is None; say what was answered")
    with _in_one_line("one answer for each row, such as 1 and 0"):
        given = _of_one_kind(column_or_1d(plain_array(y, "y") if isinstance(y, list) else y, warn=True))
    if positive is None and given.dtype.kind in "biuf":
        numbers = given if given.dtype.kind != "f" else given[~np.isnan(given)]  # missing ones and
        if np.isin(numbers, (0, 0.5, 1)).all():  # ties are refused by row with the other checks
            whole = given.dtype.kind != "f" or np.isin(given, (0, 1)).all()
            classes = np.array([0, 1]).astype(given.dtype if whole else int)
            return given.astype(np.float64), classes, classes[1].item()
    with _in_one_line("two answers, such as 1 and 0"):
        check_classification_targets(given)
    labels, rows, counts = np.unique(given, return_index=True, return_counts=True)
    sides = None if positive is not None or len(labels) > 2 else sides_of(labels.tolist())
    if sides is not None and len(labels) == 1:
        labels = np.unique(np.array(sides))  # nobody gave the other answer
        given = np.array([as_word(label) for label in given.tolist()])
    if len(labels) != 2:
        kind, rarest = "one class" if len(labels) == 1 else "multiclass", int(np.argmin(counts))
        some = ", ".join(map(repr, labels[:4].tolist())) + ", ..." * (len(labels) > 4)
        raise InvalidComparisons(
            f"Only binary classification is supported. The type of the target is {kind}: y holds {len(labels)} "
            f"different answers ({some:.100}), of which {labels.tolist()[rarest]!r:.40} in row {rows[rarest]} (counted "
            "from 0) is rarest; mend it, or code answers 0 and 1"
        )
    small, large = labels.tolist()
    if sides is not None:
        positive = small if as_word(small) == sides[0] else large
    elif positive is None:
        positive = large
        if (small, large) not in ((0, 1), (-1, 1)):
            warnings.warn(
                f"answers are {small!r} and {large!r}: {large!r} is taken to mean that the first was preferred; "
                f"say so with positive={large!r}, or positive={small!r} if it is the other one",
                AnswerWarning,
                stacklevel=4,
            )
    elif positive not in (small, large):
        raise InvalidComparisons(f"positive={positive!r:.40} is not among the answers, {small!r} and {large!r}")
    return (given == positive).astype(np.float64), labels, positive


@contextmanager
def _in_one_line(wanted: str) -> Iterator[None]:
    """What scikit-learn says about answers, without the array that it shows."""
    try:
        yield
    except InvalidComparisons:
        raise
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".: ")
        raise InvalidComparisons(f"y cannot be used: {reason:.200}; give {wanted}") from None


def _of_one_kind(given: LabelArray) -> LabelArray:
    """Answers that are all there and can be compared."""
    if (gaps := missing_labels(given)).any():
        raise InvalidComparisons(
            f"y is missing in row {int(np.argmax(gaps))} (counted from 0), {gaps.sum()} in all; leave such rows out"
        )
    if given.dtype.kind != "O":
        return given
    answers = given.tolist()
    texts = [isinstance(answer, str) for answer in answers]
    if len(set(texts)) > 1:
        row = texts.index(not texts[0])
        raise InvalidComparisons(
            f"y mixes texts and others: {answers[0]!r:.40} in row 0 (counted from 0), {answers[row]!r:.40} in row "
            f"{row}; write all answers alike"
        )
    return np.array(answers) if all(isinstance(answer, str | Number) for answer in answers) else given


def as_features(Z: Any) -> Any:
    """Features as numbers, or what scikit-learn reads itself (frames, for their names); others are refused by row."""
    if hasattr(Z, "toarray"):
        return Z
    matrix = feature_matrix(Z, "Z")
    return Z if hasattr(Z, "columns") else matrix


def refuse_more(*given: Any) -> None:
    """`Comparisons` hold answers, users and weights: nothing may stand beside them."""
    if any(each is not None for each in given):
        raise InvalidComparisons("comparisons bring their own y, users and weights; give nothing else")


class Given:
    """A model's way in: what `fit`, `update` and predictions are given, checked once, and against the fit."""

    classes_: LabelArray  # (2,) the two answers, sorted
    positive_: Any  # the one of them that means: the first was preferred
    n_features_in_: int
    users_: LabelArray  # (U,)
    n_comparisons_: FloatArray  # (U,) N_u
    feature_names_: tuple[str, ...] | None  # from a frame's columns or from `Comparisons`, where they had any
    _users: UserRows
    _past: dict[str, Any]  # what was taken in since the fit, as plain values: so that nothing counts twice
    _keeps_float32 = False  # features given as float32 stay so, in half the memory

    def _read(self, Z: Any, y: Any, users: Any, sample_weight: Any, positive: Any) -> tuple[UserRows, LabelArray]:
        """Check what `fit` was given, once: a copy sorted by user, and the two labels of the answers."""
        self._past = {}
        self._forget()
        if isinstance(Z, Comparisons):
            refuse_more(y, users, sample_weight, positive)
            data, classes, self.positive_ = Z, np.array([0, 1]), 1
            validate_data(self, data.Z, skip_check_array=True)
            self.feature_names_ = data.feature_names
        else:
            kinds = [np.float64, np.float32] if self._keeps_float32 else np.float64
            features = validate_data(self, as_features(Z), dtype=kinds, ensure_all_finite=False)
            answers, classes, self.positive_ = two_answers(y, type(self).__name__, positive)
            weights = None
            if sample_weight is not None:
                n = len(features)
                weights = number_array(
                    np.full(n, sample_weight) if isinstance(sample_weight, Real) else sample_weight, "sample_weight"
                )
                if len(weights) != n:
                    raise InvalidComparisons(f"sample_weight has {len(weights)} entries for {n} rows; give one per row")
                if n and not weights.any():
                    raise InvalidComparisons(
                        "all sample weights are zero, so nothing was compared; give some row a weight above 0"
                    )
            owners = np.zeros(len(features), dtype=np.intp) if users is None else users
            data = Comparisons.from_arrays(features, answers, owners, weights=weights)
            given = getattr(self, "feature_names_in_", None)  # scikit-learn's, when Z was a frame
            self.feature_names_ = None if given is None else tuple(str(name) for name in given)
        rows = data.by_user(copy=not isinstance(Z, Comparisons))
        rows = self._counted(rows, data.weighted, "weights" if isinstance(Z, Comparisons) else "sample_weight")
        if rows.rows.Z.dtype == np.float32 and not self._keeps_float32:
            rows = replace(rows, rows=rows.rows._replace(Z=rows.rows.Z.astype(np.float64)))
        return rows, classes

    def _read_shards(self, data: ShardedComparisons, *attributes: str) -> None:
        """As `_read`, of people in shards; these attributes of a fit in memory are gone."""
        self._forget("_users", "users_", "theta_", "n_comparisons_", *attributes)
        self.n_features_in_, self.feature_names_ = data.dim, data.feature_names
        self.classes_, self.positive_ = np.array([0, 1]), 1

    def _hold(self, rows: UserRows) -> None:
        """Those whose preferences are known."""
        self._users, self.users_, self.n_comparisons_ = rows, rows.labels, rows.counts

    def _forget(self, *attributes: str) -> None:
        """What was computed from the last fit when it was asked for, and these attributes of it."""
        members = (each for kind in type(self).__mro__ for each in vars(kind).items())
        computed = [name for name, value in members if isinstance(value, cached_property)]
        for name in (*computed, *attributes):
            self.__dict__.pop(name, None)

    def _read_new(self, Z: Any, y: Any, users: Any, sample_weight: Any) -> UserRows:
        """Check what `update` was given against the fit."""
        check_is_fitted(self)
        if isinstance(Z, Comparisons):
            refuse_more(y, users, sample_weight)
            data = Z.described_by(self.feature_names_)
        else:
            Z = self._in_order(Z)
            _check_feature_names(self, Z, reset=False)
            if y is None or users is None:
                raise InvalidComparisons("new answers need y and users: say what was answered, and who answered")
            answers = y if set(self.classes_.tolist()) == {0, 1} else self._known_answers(y)
            data = Comparisons.from_arrays(Z, answers, users, weights=sample_weight)
        if data.dim != self.n_features_in_:
            raise InvalidComparisons(
                f"the new answers have {counted(data.dim, 'feature')}, the model has "
                f"{self.n_features_in_}; describe both in the same way"
            )
        return self._counted(
            data.by_user(), data.weighted, "weights" if isinstance(Z, Comparisons) else "sample_weight"
        )

    def _read_more(self, Z: Any, y: Any, users: Any, sample_weight: Any) -> tuple[UserRows, Grown]:
        """The new rows alone that `update` was given, and all of them."""
        new = self._read_new(Z, y, users, sample_weight)
        return new, grown(self._users, new)

    def _newcomer(self, Z: Any, y: Any) -> UserRows:
        """The rows of somebody who was not fitted, checked against the model."""
        Z = self._in_order(Z)
        _check_feature_names(self, Z, reset=False)
        answers = y if set(self.classes_.tolist()) == {0, 1} else self._known_answers(y)
        new = Comparisons.from_arrays(Z, answers, np.zeros(np.size(answers), dtype=np.intp)).by_user()
        if new.dim != self.n_features_in_:
            raise InvalidParameter(
                f"the new user has {counted(new.dim, 'feature')}, the model has {self.n_features_in_}; describe both "
                "alike"
            )
        return new

    def _known_answers(self, y: ArrayLike) -> FloatArray:
        """Answers in the labels of the fit as 0 and 1; NaN where missing, other labels are refused."""
        given = plain_array(y, "y").tolist()
        missing = np.fromiter((is_missing(label) for label in given), dtype=bool, count=len(given))
        known = self.classes_.tolist()
        for row, label in enumerate(given):
            if not missing[row] and label not in known:
                raise InvalidComparisons(
                    f"answer {label!r:.40} in row {row} (counted from 0) is neither {known[0]!r} nor {known[1]!r}, "
                    "with which the model was fitted; use these"
                )
        first = np.fromiter((label == self.positive_ for label in given), dtype=np.float64, count=len(given))
        return np.where(missing, np.nan, first)

    @staticmethod
    def _counted(rows: UserRows, weighted: bool, name: str) -> UserRows:
        """Rows that were made from rankings count for what they tell, and a warning says so."""
        counted = None if weighted else effective_weights(rows)
        if counted is None:
            return rows
        warnings.warn(
            f"rows look like all pairs of rankings or ratings, where nobody ever contradicts themselves: "
            f"{len(counted)} rows count for {counted.sum():.0f}; use Comparisons.from_rankings, or pass "
            f"{name} (1 for each, if they are answers)",
            DependenceWarning,
            stacklevel=4,
        )
        return replace(rows, rows=rows.rows._replace(weights=counted))

    def _in_order(self, Z: Any) -> Any:
        """A frame's columns by their names, where those of the fit were not a frame's, which scikit-learn compares."""
        if hasattr(self, "feature_names_in_") or (given := _get_feature_names(Z)) is None:
            return Z
        places = places_of_features(given.tolist(), self.feature_names_, "the rows", InvalidComparisons)
        features = np.asarray(Z)
        return features if places is None else np.ascontiguousarray(features[:, places])

    def _checked_features(self, Z: Any) -> FloatArray:
        """Features to predict for; what needs no conversion and has no names to compare is looked at, and no more."""
        plain = type(Z) is np.ndarray and Z.dtype == np.float64 and Z.ndim == 2 and len(Z) > 0
        if plain and Z.shape[1] == self.n_features_in_ and not hasattr(self, "feature_names_in_"):
            features: FloatArray = Z
            if np.isfinite(features).all():
                return features
        features = validate_data(
            self, as_features(self._in_order(Z)), reset=False, dtype=np.float64, ensure_all_finite=False
        )
        refuse_gaps(features)
        return features

    def _owners(self, users: Any, n: int) -> IntArray:
        if users is None:
            if len(self._users) > 1:
                raise InvalidComparisons(
                    f"the model knows {len(self._users)} users; say whose answers to predict with users=[...]"
                )
            return np.zeros(n, dtype=np.intp)
        owner = self._users.indices(users)
        if len(owner) != n:
            raise InvalidComparisons(f"users has {len(owner)} labels for {n} rows; give one per row")
        return owner

    def _for_file(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What every model file says about answers and features, and the comparisons.

        Feature names that are `checked` came from a frame and are compared with later frames.
        """
        about = {
            "classes": [label_to_json(label) for label in self.classes_],
            "positive": label_to_json(self.positive_),
            "feature_names": self.feature_names_,
            "feature_names_checked": hasattr(self, "feature_names_in_"),
            "past": self._past,
        }
        return about, {**self._users.rows._asdict(), "starts": self._users.starts}

    def _from_file(self, about: dict[str, Any], labels: Any, arrays: dict[str, Any]) -> None:
        """Take that out of a model file; older ones say neither which answer is positive nor any names."""
        rows = Rows(arrays["Z"], arrays["y"], arrays["weights"])
        self._hold(UserRows(rows, arrays["starts"].astype(np.intp), labels))
        self.n_features_in_ = rows.Z.shape[1]
        self.classes_ = np.array([label_from_json(label) for label in about["classes"]])
        self.positive_ = label_from_json(about.get("positive", self.classes_[1].item()))
        self._past = dict(about.get("past", {}))
        names = about.get("feature_names")
        self.feature_names_ = None if names is None else tuple(names)
        if names is not None and about.get("feature_names_checked", False):
            self.feature_names_in_ = np.array(names, dtype=object)
