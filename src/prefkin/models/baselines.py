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

from collections.abc import Hashable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.folds import FOLDS, held_out_folds, only, probe_users, split_rows
from prefkin.data.rows import Rows, UserRows
from prefkin.errors import InvalidParameter
from prefkin.execution.executor import threads
from prefkin.inference.estimate import fit_preference
from prefkin.inference.held_out import RIDGES, best_option
from prefkin.inference.information import confidence_width, information_matrix
from prefkin.inference.loss import log_loss
from prefkin.inference.many import estimate_users, fit_sets
from prefkin.inference.sets import Sets
from prefkin.models.base import PreferenceModel
from prefkin.models.reports import Explanation, FoldedIn

__all__ = ["GroupShrinkage", "mixture_em", "per_user", "pooled", "shrink_to_pooled"]

PULLS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, np.inf)
NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16, 24)  # of groups that are tried
ROUNDS = 15


def per_user(predict_for: str = "auto") -> GroupShrinkage:
    """Each user's own rows, the ridge by held-out likelihood."""
    return GroupShrinkage("each", predict_for=predict_for)


def pooled(predict_for: str = "auto") -> GroupShrinkage:
    """One estimate for everybody."""
    return GroupShrinkage("all", pull=np.inf, predict_for=predict_for)


def shrink_to_pooled(predict_for: str = "auto") -> GroupShrinkage:
    """Own rows, drawn towards the estimate for everybody."""
    return GroupShrinkage("all", predict_for=predict_for)


def mixture_em(predict_for: str = "auto") -> GroupShrinkage:
    """Groups by expectation-maximisation, their number by held-out likelihood, own rows drawn to the group's centre."""
    return GroupShrinkage("em", predict_for=predict_for)


class GroupShrinkage(PreferenceModel):
    """Ridge estimates of groups, and users drawn towards them.

    Parameters
    ----------
    groups : "each", "all", "em", or one group label per user, in the order of the sorted users
    ridge : of the centres; a number, or "auto"
    pull : ridge of the way from the centre to the user; a number, infinity to stay there, or "auto"
    predict_for : "new items", "known items" or "auto", as for `PrefKin`
    n_jobs : threads

    Attributes
    ----------
    heat_ : factor on the margins that makes held-out probabilities honest

    >>> from prefkin.data.synthetic import demo_population
    >>> data = demo_population(np.random.default_rng(0))[0].data
    >>> model = shrink_to_pooled().fit(data)
    >>> bool(0.4 <= model.heat_ <= 1.6)
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

    def fit(self, Z: Any, y: Any = None, users: Any = None, sample_weight: Any = None) -> Self:
        """Tune on folds that keep contexts together, then fit on all rows."""
        rows, classes = self._read(Z, y, users, sample_weight)
        with threads(self.n_jobs):
            self._tune(rows)
        self.classes_ = classes
        return self

    def _tune(self, rows: UserRows) -> None:
        folds = [split_rows(rows, *fold) for fold in held_out_folds(rows, FOLDS, self.predict_for)]
        seats = self._seats(rows, folds)
        ridges = RIDGES if self.ridge == "auto" else (float(self.ridge),)
        pulls = PULLS if self.pull == "auto" else (float(self.pull),)
        pulls = (0.0,) if isinstance(self.groups, str) and self.groups == "each" else pulls
        options = list(product(ridges, pulls))
        margins: dict[tuple[float, float], list[FloatArray]] = {option: [] for option in options}
        weights, some = list[FloatArray](), np.array(probe_users(rows))
        for train, test in folds:
            heard, asked = only(train, some), only(test, some)
            weights.append(asked.rows.weights)
            for ridge in ridges:
                centres = self._centres(train, seats, ridge)
                for pull in pulls:
                    theta = self._users_from(heard, seats[some], centres, pull)
                    margins[ridge, pull].append(_answered(asked, theta))
        best, self.heat_ = best_option([np.concatenate(margins[option]) for option in options], np.concatenate(weights))
        self.ridge_, self.pull_ = options[best]
        self._users, self.users_, self.seats_ = rows, rows.labels, seats
        self.n_comparisons_ = rows.counts
        self.own_theta_ = estimate_users(rows, ridge=self.ridge_)
        self.centres_ = self._centres(rows, seats, self.ridge_)
        self.theta_ = self.heat_ * self._users_from(rows, seats, self.centres_, self.pull_)
        self.radius_ = np.array([self._own_radius(u) for u in range(len(rows))])

    # -- the one idea ------------------------------------------------------------------------------------------------

    def _seats(self, rows: UserRows, folds: list[tuple[UserRows, UserRows]]) -> IntArray:
        """Who sits with whom: as given, or by expectation-maximisation with the number of groups that predicts best."""
        n_users = len(rows)
        if not isinstance(self.groups, str):
            if len(self.groups) != n_users:
                raise InvalidParameter(f"groups has {len(self.groups)} labels for {n_users} users; give one each")
            return np.unique(np.asarray(self.groups), return_inverse=True)[1]
        if self.groups == "each":
            return np.arange(n_users)
        if self.groups == "all":
            return np.zeros(n_users, dtype=np.intp)
        if self.groups != "em":
            raise InvalidParameter(f"groups must be 'each', 'all', 'em' or labels; got {self.groups!r}")
        ridge = 3.0 if self.ridge == "auto" else float(self.ridge)
        own = estimate_users(rows, ridge=ridge)
        seatings = [self._alternate(rows, own, k, ridge) for k in NUMBERS if k == 1 or k <= n_users // 2]
        margins = [
            np.concatenate([_answered(test, self._centres(train, seats, ridge)[seats]) for train, test in folds])
            for seats in seatings
        ]
        return seatings[best_option(margins, np.concatenate([test.rows.weights for _, test in folds]))[0]]

    def _alternate(self, rows: UserRows, own: FloatArray, n_groups: int, ridge: float) -> IntArray:
        """Everybody to the centre that explains their answers best, and centres anew, until nobody moves."""
        seats: IntArray = KMeans(n_groups, n_init=10, random_state=0).fit_predict(own).astype(np.intp)
        for _ in range(ROUNDS if n_groups > 1 else 0):
            centres = self._centres(rows, seats, ridge)
            fits = [[log_loss(centre, rows.of(u)) for centre in centres] for u in range(len(rows))]
            new = np.unique(np.argmin(fits, axis=1), return_inverse=True)[1]
            if np.array_equal(new, seats):
                break
            seats = new
        return seats

    def _centres(self, rows: UserRows, seats: IntArray, ridge: float) -> FloatArray:
        members = [np.flatnonzero(seats == k) for k in range(int(seats.max()) + 1)]
        return fit_sets(rows.rows, Sets.of(rows.starts, members), ridge=ridge, label="centres")

    def _users_from(self, rows: UserRows, seats: IntArray, centres: FloatArray, pull: float) -> FloatArray:
        if np.isinf(pull) or pull == 0.0:  # stay at the centre; alone, one is one's own centre
            return centres[seats]
        return fit_sets(rows.rows, Sets.each(rows.starts), ridge=pull, centre=centres[seats], label="users")

    # -- the common interface ----------------------------------------------------------------------------------------

    def members(self, position: int) -> IntArray:
        """Those in the same group."""
        return np.flatnonzero(self.seats_ == self.seats_[position])

    def _prior(self) -> tuple[float, float]:
        return self.ridge_, 0.25

    def _own_radius(self, user: int) -> float:
        """Root of the trace of the inverse curvature: a standard error, not a guarantee."""
        own = self._users.of(user)
        M = information_matrix(Rows(own.Z, own.y, 0.25 * own.weights), ridge=self.ridge_, kappa=1.0)
        return float(np.sqrt(np.trace(np.linalg.inv(M))))

    def width(self, user: Hashable) -> float:
        """The paper's width at the sigmoid's largest slope, for the pooled rows."""
        members = self.members(self.position(user))
        n = float(self._users.counts[members].sum())
        return confidence_width(n, self._users.dim, ridge=self.ridge_, kappa=0.25, failure=0.05)

    def explain(self, user: Hashable, other: Hashable) -> Explanation:
        """Whether two users were put into one group."""
        u, v = self.position(user), self.position(other)
        joined = bool(self.seats_[u] == self.seats_[v])
        distance = float(np.linalg.norm(self.own_theta_[u] - self.own_theta_[v]))
        text = f"{user!r} and {other!r} are in {'one group' if joined else 'different groups'}."
        return Explanation(joined, distance, np.nan, text, probability=float(joined))

    def fold_in(self, Z: ArrayLike, y: ArrayLike) -> FoldedIn:
        """Seat a new user at the centre that explains their answers best."""
        new = self._newcomer(Z, y).rows
        seat = int(np.argmin([log_loss(centre, new) for centre in self.centres_]))
        own = fit_preference(new, ridge=self.ridge_)
        centre = self.centres_[seat]
        theta = own if self.pull_ == 0.0 else centre
        if 0.0 < self.pull_ < np.inf:
            theta = fit_preference(new, ridge=self.pull_, centre=centre)
        return FoldedIn(self.heat_ * theta, self.users_[self.seats_ == seat], float("nan"), own)

    def save(self, path: str | Path) -> None:
        """Baselines are for comparing; only PrefKin and OffC2PL are written to files."""
        raise InvalidParameter(f"{path}: baselines are not saved; fit PrefKin or OffC2PL for keeps")


def _answered(test: UserRows, theta: FloatArray) -> FloatArray:
    """Margins of the answers that were given: positive where they were predicted."""
    signed: FloatArray = (2.0 * test.rows.y - 1.0) * np.einsum("ij,ij->i", test.rows.Z, theta[test.owner])
    return signed
