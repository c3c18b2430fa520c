"""What PrefKin has to beat, behind the same interface, each tuned by held-out answers.

All are one idea: users sit in groups; a group's centre is the ridge estimate of its users' rows; each user's estimate
is their own likelihood drawn towards the centre. They differ in who sits together:

| baseline         | groups                                   |
|------------------|------------------------------------------|
| `per_user`       | everybody alone                          |
| `pooled`         | all together, nobody leaves the centre   |
| `shrink_to_pooled` | all together, own rows pull away       |
| `mixture_em`     | found by expectation-maximisation, their number by held-out likelihood |
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.folds import probe_users, splits_of
from prefkin.data.rows import Rows, UserRows, only
from prefkin.data.storage import label_from_json, label_to_json
from prefkin.errors import InvalidParameter
from prefkin.execution.blas import single_threaded
from prefkin.execution.executor import threads
from prefkin.inference.estimate import fit_preference
from prefkin.inference.held_out import RIDGES, best_option, least_on_grid, ridge_by_held_out, temperature
from prefkin.inference.information import confidence_width, information_matrix
from prefkin.inference.loss import log_loss
from prefkin.inference.many import estimate_users, fit_sets
from prefkin.inference.sets import Sets
from prefkin.models.base import PreferenceModel
from prefkin.models.reports import Explanation, FoldedIn

__all__ = ["BASELINES", "GroupShrinkage", "mixture_em", "per_user", "pooled", "shrink_to_pooled"]

PULLS = (*RIDGES, np.inf)
NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16, 24)  # of groups that are tried
ROUNDS = 15  # in which everybody may change groups
ARRAYS = ("centres", "own_theta", "theta", "radius")  # in files, beside "seats": `labels_`
NUMBERS_OF_FILE = {
    "ridge_": "ridge_",
    "pull_": "pull_",
    "heat_": "temperature_",
}  # what they are called there, and here


def per_user(predict_for: str = "auto") -> GroupShrinkage:
    """Each user's own rows, the ridge by held-out likelihood.

    >>> per_user().fit([[1.0], [2.0], [1.5]], [1, 1, 0], users=["ann", "ann", "bo"]).neighbours("ann").tolist()
    ['ann']
    """
    return GroupShrinkage("each", predict_for=predict_for)


def pooled(predict_for: str = "auto") -> GroupShrinkage:
    """One estimate for everybody.

    >>> pooled().fit([[1.0], [2.0], [1.5]], [1, 1, 0], users=["ann", "ann", "bo"]).neighbours("ann").tolist()
    ['ann', 'bo']
    """
    return GroupShrinkage("all", pull=np.inf, predict_for=predict_for)


def shrink_to_pooled(predict_for: str = "auto") -> GroupShrinkage:
    """Own rows, drawn towards the estimate for everybody.

    >>> model = shrink_to_pooled().fit([[1.0], [2.0], [1.5]], [1, 1, 0], users=["ann", "ann", "bo"])
    >>> bool(model.theta_[0, 0] >= model.theta_[1, 0])
    True
    """
    return GroupShrinkage("all", predict_for=predict_for)


def mixture_em(predict_for: str = "auto") -> GroupShrinkage:
    """Groups by expectation-maximisation, their number by held-out likelihood, own rows drawn to the group's centre.

    >>> from prefkin.data.synthetic import make_population
    >>> people = make_population(np.random.default_rng(2), n_users=6, n_groups=2, dim=2, n_comparisons=30, strength=9.0)
    >>> len(mixture_em().fit(people.data).centres_)
    2
    """
    return GroupShrinkage("em", predict_for=predict_for)


BASELINES: dict[str, Callable[[], PreferenceModel]] = {
    "per user": per_user,
    "everybody pooled": pooled,
    "shrink to pooled": shrink_to_pooled,
    "mixture EM": mixture_em,
}
"""By the names under which they are compared with PrefKin, and given to `prefkin fit --method`."""


class GroupShrinkage(PreferenceModel):
    """Ridge estimates of groups, and users drawn towards them.

    Parameters
    ----------
    groups : "each", "all", "em", or one group label per user, in the order of the sorted users
    ridge : of the centres; a number, or "auto": one of `RIDGES`, or infinity (centres at 0), by held-out answers
    pull : ridge of the way from the centre to the user; a number, infinity to stay there, or "auto"
    predict_for : "new items", "known items" or "auto", as for `PrefKin`
    n_jobs : threads

    Attributes
    ----------
    labels_ : the group of each user, as a number
    temperature_ : factor on the margins that makes held-out probabilities honest

    >>> from prefkin.data.synthetic import demo_population
    >>> data = demo_population(np.random.default_rng(0))[0].data
    >>> model = shrink_to_pooled().fit(data)
    >>> bool(0.4 <= model.temperature_ <= 1.7)
    True
    """

    def __init__(
        self,
        groups: str | Sequence[Hashable] = "all",
        *,
        ridge: float | str = "auto",
        pull: float | str = "auto",
        predict_for: str = "auto",
        n_jobs: int | None = 1,
    ) -> None:
        self.groups = groups
        self.ridge = ridge
        self.pull = pull
        self.predict_for = predict_for
        self.n_jobs = n_jobs

    def fit(self, Z: Any, y: Any = None, users: Any = None, sample_weight: Any = None, positive: Any = None) -> Self:
        """Tune on held-out answers (`prefkin.data.folds.splits_of`), then fit on all rows."""
        self._check_parameters()
        rows, classes = self._read(Z, y, users, sample_weight, positive)
        with threads(self.n_jobs), single_threaded():
            self._tune(rows)
        self.classes_ = classes
        return self

    def _tune(self, rows: UserRows) -> None:
        folds = [split.parts(rows) for split in splits_of(rows, self.predict_for)]
        labels, parts = self._labels(rows, folds)
        trials = _Trials(folds, parts, some=None if self.pull == np.inf else np.array(probe_users(rows)))
        self.ridge_, self.pull_ = self._choose(trials)
        self.temperature_ = trials.found[self.ridge_, self.pull_][1]
        self._hold(rows)
        self.labels_ = labels
        self.own_theta_ = estimate_users(rows, ridge=self._own_ridge)
        self.centres_ = _centres(rows, labels, self.ridge_)
        self.theta_ = self.temperature_ * _users_from(rows, labels, self.centres_, self.pull_)
        self.radius_ = np.array([self._own_radius(u) for u in range(len(rows))])

    def _choose(self, trials: _Trials) -> tuple[float, float]:
        """Ridge and pull: whichever is not given, by walks along their grids, one after the other and then again."""
        ridges = RIDGES if self.ridge == "auto" else (float(self.ridge),)
        if isinstance(self.groups, str) and self.groups == "each":
            return trials.best(ridges, (0.0,))
        if self.pull != "auto":
            return trials.best(ridges, (float(self.pull),))
        ridge, _ = trials.best(ridges, (np.inf,))  # pooled
        _, pull = trials.best((ridge,), PULLS)  # and drawn away from it
        if self.ridge == "auto":
            to_nothing = PULLS[:-1]  # a centre of 0 with nobody away from it would be no model
            _, pull = trials.best((np.inf,), to_nothing, near=(np.inf, pull))  # own answers, drawn to 0
            ridge, pull = trials.first
            if pull < np.inf:
                ridge, _ = trials.best((*RIDGES, np.inf), (pull,), near=(ridge, pull))
                trials.best((ridge,), PULLS if ridge < np.inf else to_nothing, near=(ridge, pull))
        return trials.first

    @property
    def _own_ridge(self) -> float:
        """Towards 0; where that is the centre, people were drawn there."""
        return self.ridge_ if np.isfinite(self.ridge_) else self.pull_

    # -- the one idea ------------------------------------------------------------------------------------------------

    def _labels(self, rows: UserRows, folds: list[tuple[UserRows, UserRows]]) -> tuple[IntArray, list[IntArray]]:
        """Who sits with whom, and who would by the training rows of each fold: as given, or by
        expectation-maximisation with the number of groups that predicts best.
        """
        n_users = len(rows)
        if not isinstance(self.groups, str):
            if len(self.groups) != n_users:
                raise InvalidParameter(f"groups has {len(self.groups)} labels for {n_users} users; give one each")
            labels = np.unique(np.asarray(self.groups), return_inverse=True)[1]
            return labels, [labels] * len(folds)
        if self.groups in ("each", "all"):
            labels = np.arange(n_users) if self.groups == "each" else np.zeros(n_users, dtype=np.intp)
            return labels, [labels] * len(folds)
        ridge = ridge_by_held_out(rows, self.predict_for) if self.ridge == "auto" else float(self.ridge)
        numbers = [k for k in NUMBERS if k == 1 or k <= n_users // 2]
        owns = [estimate_users(train, ridge=ridge) for train, _ in folds]
        labelings = [
            [_alternate(train, own, k, ridge) for (train, _), own in zip(folds, owns, strict=True)] for k in numbers
        ]

        def margins(parts: list[IntArray]) -> FloatArray:
            both = zip(folds, parts, strict=True)
            return np.concatenate([_answered(test, _centres(train, at, ridge)[at]) for (train, test), at in both])

        weights = np.concatenate([test.rows.weights for _, test in folds])
        best = best_option([margins(parts) for parts in labelings], weights)[0]
        return _alternate(rows, estimate_users(rows, ridge=ridge), numbers[best], ridge), labelings[best]

    # -- the common interface ----------------------------------------------------------------------------------------

    def members(self, position: int) -> IntArray:
        """Those in the same group."""
        return np.flatnonzero(self.labels_ == self.labels_[position])

    def _prior(self) -> tuple[float, float]:
        return self._own_ridge, 0.25

    def _membership(self) -> tuple[FloatArray, FloatArray]:
        if isinstance(self.groups, str) and self.groups != "em":
            return super()._membership()
        return np.eye(len(self.centres_))[self.labels_], self.centres_

    def _own_radius(self, user: int) -> float:
        """Root of the trace of the inverse curvature: a standard error, not a guarantee."""
        own = self._users.of(user)
        M = information_matrix(Rows(own.Z, own.y, 0.25 * own.weights), ridge=self._own_ridge, kappa=1.0)
        return float(np.sqrt(np.trace(np.linalg.inv(M))))

    def width(self, user: Hashable) -> float:
        """The paper's width at the sigmoid's largest slope, for the pooled rows."""
        members = self.members(self.position(user))
        n = float(self._users.counts[members].sum())
        return confidence_width(n, self._users.dim, ridge=self._own_ridge, kappa=0.25, failure=0.05)

    def explain(self, user: Hashable, other: Hashable) -> Explanation:
        """Whether two users were put into one group."""
        u, v = self.position(user), self.position(other)
        joined = bool(self.labels_[u] == self.labels_[v])
        distance = float(np.linalg.norm(self.own_theta_[u] - self.own_theta_[v]))
        text = f"{user!r} and {other!r} are in {'one group' if joined else 'different groups'}."
        return Explanation(joined, distance, np.nan, text, probability=float(joined))

    def fold_in(self, Z: ArrayLike, y: ArrayLike) -> FoldedIn:
        """Seat a new user at the centre that explains their answers best."""
        new = self._newcomer(Z, y).rows
        group = int(np.argmin([log_loss(centre, new) for centre in self.centres_]))
        own = fit_preference(new, ridge=self._own_ridge)
        centre = self.centres_[group]
        theta = own if self.pull_ == 0.0 else centre
        if 0.0 < self.pull_ < np.inf:
            theta = fit_preference(new, ridge=self.pull_, centre=centre)
        return FoldedIn(self.temperature_ * theta, self.users_[self.labels_ == group], float("nan"), own)

    # -- on disk -----------------------------------------------------------------------------------------------------

    def _to_file(self) -> tuple[dict[str, Any], dict[str, Any]]:
        parameters = self.get_params()
        if not isinstance(self.groups, str):
            parameters["groups"] = [label_to_json(label) for label in np.asarray(self.groups, dtype=object).tolist()]
        numbers = {key: getattr(self, name) for key, name in NUMBERS_OF_FILE.items()}
        about = {
            "parameters": {name: _finite(value) for name, value in parameters.items()},
            "numbers": {name: _finite(value) for name, value in numbers.items()},
        }
        return about, {"seats": self.labels_, **{name: getattr(self, f"{name}_") for name in ARRAYS}}

    @classmethod
    def from_file(cls, about: dict[str, Any], labels: Any, arrays: dict[str, Any]) -> GroupShrinkage:
        """What `save` wrote."""
        parameters: dict[str, Any] = dict(about["parameters"])
        for name in ("ridge", "pull"):
            parameters[name] = np.inf if parameters[name] is None else parameters[name]
        if not isinstance(parameters["groups"], str):
            parameters["groups"] = [label_from_json(label) for label in parameters["groups"]]
        model = cls(**parameters)
        for key, name in NUMBERS_OF_FILE.items():
            value = about["numbers"][key]
            setattr(model, name, np.inf if value is None else float(value))
        model._from_file(about, labels, arrays)
        for name in ARRAYS:
            setattr(model, f"{name}_", arrays[name])
        model.labels_ = arrays["seats"].astype(np.intp)
        if not (arrays["seats"] >= 0).all() or model.labels_.max() >= len(model.centres_):
            raise InvalidParameter("seats")
        return model

    def _check_parameters(self) -> None:
        if isinstance(self.groups, str) and self.groups not in ("each", "all", "em"):
            raise InvalidParameter(f"groups must be 'each', 'all', 'em' or labels; got {self.groups!r}")
        for name in ("ridge", "pull"):
            value = getattr(self, name)
            if value != "auto" and not (isinstance(value, Real) and float(value) >= 0):
                raise InvalidParameter(f"{name} must be 'auto' or a number of at least 0; got {value!r}")


def _finite(value: Any) -> Any:
    """JSON has no infinity: it is null there."""
    return None if isinstance(value, float) and np.isinf(value) else value


class _Trials:
    """Ridges and pulls that were tried on held-out answers, and how they did."""

    def __init__(
        self, folds: list[tuple[UserRows, UserRows]], labels: list[IntArray], some: IntArray | None = None
    ) -> None:
        self.labels, self.trains = labels, [train for train, _ in folds]
        self.some = np.arange(len(self.trains[0])) if some is None else some
        self.heard, self.asked = ([only(part, self.some) for part in parts] for parts in zip(*folds, strict=True))
        self.weights = np.concatenate([asked.rows.weights for asked in self.asked])
        self.centres: dict[float, list[FloatArray]] = {}
        self.found: dict[tuple[float, float], tuple[float, float]] = {}  # loss and temperature

    @property
    def first(self) -> tuple[float, float]:
        """The best so far."""
        return min(self.found, key=lambda option: (round(self.found[option][0], 6), *option))

    def best(
        self, ridges: Sequence[float], pulls: Sequence[float], near: tuple[float, float] = (3.0, 30.0)
    ) -> tuple[float, float]:
        """The best option where one of both is given, sought along the grid of the other."""
        options = [(ridge, pull) for ridge in ridges for pull in pulls]
        start = options.index(near) if near in options else len(options) // 2
        return options[least_on_grid(lambda k: self._loss(*options[k]), start, len(options))]

    def _loss(self, ridge: float, pull: float) -> float:
        if (ridge, pull) not in self.found:
            if ridge not in self.centres:
                near = min(
                    (one for one in self.centres if one < np.inf), key=lambda one: abs(one - ridge), default=None
                )
                starts = [None] * len(self.trains) if near is None else self.centres[near]
                self.centres[ridge] = [
                    _centres(train, labels, ridge, start)
                    for train, labels, start in zip(self.trains, self.labels, starts, strict=True)
                ]
            folds = zip(self.heard, self.asked, self.labels, self.centres[ridge], strict=True)
            margins = [
                _answered(asked, _users_from(heard, labels[self.some], centres, pull))
                for heard, asked, labels, centres in folds
            ]
            every = np.concatenate(margins)
            loss = float(self.weights @ np.logaddexp(0.0, -every))
            self.found[ridge, pull] = loss, temperature(every, self.weights)
        return self.found[ridge, pull][0]


def _alternate(rows: UserRows, own: FloatArray, n_groups: int, ridge: float) -> IntArray:
    """Everybody to the centre that explains their answers best, and centres anew, until nobody moves."""
    from sklearn.cluster import KMeans  # takes long to load

    labels: IntArray = KMeans(n_groups, n_init=10, random_state=0).fit_predict(own).astype(np.intp)
    signed = rows.rows.signed()
    for _ in range(ROUNDS if n_groups > 1 else 0):
        losses = rows.rows.weights[:, None] * np.logaddexp(0.0, -signed @ _centres(rows, labels, ridge).T)
        fits = np.stack([np.bincount(rows.owner, column, len(rows)) for column in losses.T], axis=1)
        new = np.unique(np.argmin(fits.round(9), axis=1), return_inverse=True)[1]
        if np.array_equal(new, labels):
            break
        labels = new
    return labels


def _centres(rows: UserRows, labels: IntArray, ridge: float, start: FloatArray | None = None) -> FloatArray:
    """The ridge estimate of each group's rows; 0 with an infinite ridge."""
    members = [np.flatnonzero(labels == k) for k in range(int(labels.max()) + 1)]
    if np.isinf(ridge):
        return np.zeros((len(members), rows.dim))
    return fit_sets(rows.rows, Sets.of(rows.starts, members), ridge=ridge, start=start, label="centres")


def _users_from(rows: UserRows, labels: IntArray, centres: FloatArray, pull: float) -> FloatArray:
    """Everybody's rows drawn towards their centre."""
    if np.isinf(pull) or pull == 0.0:  # stay at the centre; alone, one is one's own centre
        return centres[labels]
    return fit_sets(rows.rows, Sets.each(rows.starts), ridge=pull, centre=centres[labels], label="users")


def _answered(test: UserRows, theta: FloatArray) -> FloatArray:
    """Margins of the answers that were given: positive where they were predicted."""
    signed: FloatArray = (2.0 * test.rows.y - 1.0) * np.einsum("ij,ij->i", test.rows.Z, theta[test.owner])
    return signed
