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
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.folds import FOLDS, content_folds, split_rows
from prefkin.data.rows import Rows, UserRows
from prefkin.errors import InvalidParameter
from prefkin.execution.executor import for_each
from prefkin.inference.estimate import estimate_users, fit_preference, log_loss
from prefkin.inference.held_out import RIDGES
from prefkin.inference.information import confidence_width, information_matrix
from prefkin.models.base import PreferenceModel
from prefkin.models.reports import Explanation, FoldedIn

__all__ = ["GroupShrinkage", "mixture_em", "per_user", "pooled", "shrink_to_pooled"]

PULLS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, np.inf)
HEATS = np.geomspace(0.4, 1.6, 13)


def per_user() -> GroupShrinkage:
    """Each user's own rows, the ridge by held-out likelihood."""
    return GroupShrinkage("each")


def pooled() -> GroupShrinkage:
    """One estimate for everybody."""
    return GroupShrinkage("all", pull=np.inf)


def shrink_to_pooled() -> GroupShrinkage:
    """Own rows, drawn towards the estimate for everybody."""
    return GroupShrinkage("all")


def mixture_em() -> GroupShrinkage:
    """Groups by expectation-maximisation, their number by held-out likelihood, own rows drawn to the group's centre."""
    return GroupShrinkage("em")


class GroupShrinkage(PreferenceModel):
    """Ridge estimates of groups, and users drawn towards them.

    Parameters
    ----------
    groups : "each", "all", "em", or one group label per user, in the order of the sorted users
    ridge : of the centres; a number, or "auto"
    pull : ridge of the way from the centre to the user; a number, infinity to stay there, or "auto"
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
        n_jobs: int | None = 1,
    ) -> None:
        self.groups = groups
        self.ridge = ridge
        self.pull = pull
        self.n_jobs = n_jobs

    def fit(self, Z: Any, y: Any = None, users: Any = None, sample_weight: Any = None) -> Self:
        """Tune on folds that keep contexts together, then fit on all rows."""
        rows, classes = self._read(Z, y, users, sample_weight)
        choices = self._seatings(rows)
        ridges = RIDGES if self.ridge == "auto" else (float(self.ridge),)
        pulls = PULLS if self.pull == "auto" else (float(self.pull),)
        pulls = (0.0,) if isinstance(self.groups, str) and self.groups == "each" else pulls
        fold_of = content_folds(rows, FOLDS)
        best = (np.inf, 1.0, choices[0], ridges[0], pulls[0])
        for seats in choices:
            margins: dict[tuple[float, float], list[FloatArray]] = {(r, p): [] for r in ridges for p in pulls}
            weights = []
            for fold in range(FOLDS):
                train, test = split_rows(rows, fold_of != fold)
                weights.append(test.rows.weights)
                for ridge in ridges:
                    centres = self._centres(train, seats, ridge)
                    for pull in pulls:
                        theta = self._users_from(train, seats, centres, pull)
                        side = 2.0 * test.rows.y - 1.0
                        margins[ridge, pull].append(side * np.einsum("ij,ij->i", test.rows.Z, theta[test.owner]))
            every = np.concatenate(weights)
            for (ridge, pull), parts in margins.items():
                margin = np.concatenate(parts)
                losses = [float(every @ np.logaddexp(0.0, -heat * margin)) for heat in HEATS]
                found = (round(min(losses), 9), float(HEATS[int(np.argmin(losses))]), seats, ridge, pull)
                best = min(best, found, key=lambda one: one[0])
        _, self.heat_, seats, self.ridge_, self.pull_ = best
        self._users, self.users_, self.classes_, self.seats_ = rows, rows.labels, classes, seats
        self.n_comparisons_ = rows.counts
        self.own_theta_ = estimate_users(rows, ridge=self.ridge_, n_jobs=self.n_jobs)
        self.centres_ = self._centres(rows, seats, self.ridge_)
        self.theta_ = self.heat_ * self._users_from(rows, seats, self.centres_, self.pull_)
        self.radius_ = np.array([self._own_radius(u) for u in range(len(rows))])
        return self

    # -- the one idea ------------------------------------------------------------------------------------------------

    def _seatings(self, rows: UserRows) -> list[IntArray]:
        """Who may sit with whom: one seating, or one for each number of groups tried."""
        n_users = len(rows)
        if not isinstance(self.groups, str):
            if len(self.groups) != n_users:
                raise InvalidParameter(f"groups has {len(self.groups)} labels for {n_users} users; give one each")
            return [np.unique(np.asarray(self.groups), return_inverse=True)[1]]
        if self.groups == "each":
            return [np.arange(n_users)]
        if self.groups == "all" or n_users < 3:
            return [np.zeros(n_users, dtype=np.intp)]
        if self.groups != "em":
            raise InvalidParameter(f"groups must be 'each', 'all', 'em' or labels; got {self.groups!r}")
        numbers = sorted({k for k in (1, 2, 3, 4, 6, 8, 12, 16, 24) if k <= n_users // 2} | {1})
        return [self._expectation_maximisation(rows, k) for k in numbers]

    def _expectation_maximisation(self, rows: UserRows, n_groups: int) -> IntArray:
        if n_groups == 1:
            return np.zeros(len(rows), dtype=np.intp)
        own = estimate_users(rows, ridge=3.0, n_jobs=self.n_jobs)
        seats: IntArray = KMeans(n_groups, n_init=10, random_state=0).fit_predict(own).astype(np.intp)
        for _ in range(15):
            centres = self._centres(rows, seats, 1.0)
            fits = np.array([[log_loss(centre, rows.of(u)) for centre in centres] for u in range(len(rows))])
            new = np.argmin(fits, axis=1)
            if np.array_equal(new, seats):
                break
            seats = new
        return np.unique(seats, return_inverse=True)[1]

    def _centres(self, rows: UserRows, seats: IntArray, ridge: float) -> FloatArray:
        members = [np.flatnonzero(seats == k) for k in range(int(seats.max()) + 1)]
        fits = for_each(
            lambda some: fit_preference(rows.of_many(some), ridge=ridge) if len(some) else np.zeros(rows.dim),
            members,
            label="centres",
            n_jobs=self.n_jobs,
        )
        return np.array(fits)

    def _users_from(self, rows: UserRows, seats: IntArray, centres: FloatArray, pull: float) -> FloatArray:
        if np.isinf(pull) or pull == 0.0:  # stay at the centre; alone, one is one's own centre
            return centres[seats]

        def away(user: int) -> FloatArray:
            own, centre = rows.of(user), centres[seats[user]]
            return centre + fit_preference(own, ridge=pull, offset=own.Z @ centre)

        return np.array(for_each(away, range(len(rows)), label="users", n_jobs=self.n_jobs))

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
        away = 0.0 if np.isinf(self.pull_) else fit_preference(new, ridge=max(self.pull_, 0.1), offset=new.Z @ centre)
        theta = own if self.pull_ == 0.0 else centre + away
        return FoldedIn(self.heat_ * theta, self.users_[self.seats_ == seat], float("nan"), own)

    def save(self, path: str | Path) -> None:
        """Baselines are for comparing; only PrefKin and OffC2PL are written to files."""
        raise InvalidParameter(f"{path}: baselines are not saved; fit PrefKin or OffC2PL for keeps")
