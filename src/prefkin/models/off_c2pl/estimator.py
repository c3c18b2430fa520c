"""Off-C²PL (Algorithm 1): the files above, called in order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import asdict, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.data.folds import probe_users
from prefkin.data.rows import Rows, UserRows, only
from prefkin.data.shards import ShardedComparisons
from prefkin.errors import AssumptionWarning, CalibrationWarning, InvalidParameter, NoEdgeWarning
from prefkin.execution.blas import single_threaded
from prefkin.execution.executor import threads
from prefkin.inference.estimate import fit_preference
from prefkin.inference.held_out import ridge_by_held_out
from prefkin.inference.information import confidence_width
from prefkin.inference.many import estimate_users
from prefkin.models.base import PreferenceModel
from prefkin.models.calls import about_users, on_its_threads, refuse_other_threads
from prefkin.models.given import refuse_more
from prefkin.models.off_c2pl.advice import what_an_edge_takes
from prefkin.models.off_c2pl.graph import Graph
from prefkin.models.off_c2pl.pooling import pool_neighbourhoods
from prefkin.models.off_c2pl.posterior import (
    Beliefs,
    Scale,
    calibrated_radii,
    calibrated_width,
    learn_scale,
    mean_square,
)
from prefkin.models.off_c2pl.radius import KAPPA_UNIT_BALL, Coverage, ItemRegularity, Measured
from prefkin.models.off_c2pl.threshold import APPENDIX, by_held_out
from prefkin.models.reports import Explanation, FoldedIn

__all__ = ["OffC2PL"]

LEAST_PER_FEATURE = 2.0  # comparisons below which calibrated radii were found off; and this many for each unit of
PER_STRENGTH = 1 / 3  # variance of the margins, since nearly certain answers tell little about strength
LONGEST_DIFFERENCE = 2.0  # ‖z‖ when ‖φ‖ ≤ 1


class OffC2PL(PreferenceModel):
    """Offline connection-based clustering of preferences: Algorithm 1 of the paper, as printed, unless told otherwise.

    With a number as gamma and ridge, radius="theory" and distance="euclidean" it is the paper, literally. Not in the
    paper: gamma="auto", ridge="auto", radius="calibrated", distance="information".

    Parameters
    ----------
    gamma : γ̂, the largest gap between two users who are still pooled: a number (0 pools nobody), "under" or "over"
        (Appendix A, for each user), or "auto" (one number, by held-out likelihood; not in the paper)
    alpha : caution of the connection test, at least 1
    ridge : λ, a number; or "auto": the one with which users' own estimates predict held-out answers best, or
        one estimate for everybody where that predicts better and gamma is above 0
    kappa : κ, the least slope of the sigmoid over the margins that occur
    delta : δ, the chance that the confidence statements are wrong
    radius : "theory", the paper's CI_u; or "calibrated": own_theta_[u] is within radius_[u] of the true preference with
        probability about 1 − δ for each user, by the posterior under a normal prior whose scale all users teach.
        `width` is then calibrated likewise, as if neighbours wanted the same
    distance : "euclidean", ‖θ̂_u − θ̂_v‖ + α (CI_u + CI_v) < γ̂; or "information",
        √((m_u − m_v)ᵀ(P_u + P_v)⁻¹(m_u − m_v) / E) < γ̂ with mean and covariance of each user's own posterior and E what
        is expected when both want the same: directions count as far as they are known, and radii and alpha do not
        enter. Users who want the same are about 1 apart; 1.1 is a good γ̂ with 50 features, 1.5 with 5. O(U d³) per user
    coverage : "measured", from λ_min(M_u); or an `ItemRegularity`
    n_jobs : threads; None or -1 for all cores. The result does not depend on it.

    Attributes
    ----------
    users_ : (U,) labels, in the order of the rows of the arrays below
    own_theta_ : (U, d) θ̂_u from each user's own rows
    radius_ : (U,) CI_u
    gamma_ : (U,) the threshold used for each user
    ridge_ : the λ used
    theta_ : (U, d) θ̃_u from the neighbourhood's rows
    graph_ : who is connected with whom: `graph_.neighbours(position)`
    n_comparisons_ : (U,) N_u

    >>> import numpy as np
    >>> Z = np.array([[0.9, 0.1], [0.8, -0.2], [0.7, 0.3], [0.9, 0.0]])
    >>> model = OffC2PL(gamma=np.inf).fit(Z, [1, 1, 1, 0], users=["ann", "ann", "bo", "bo"])
    >>> model.neighbours("ann").tolist()
    ['ann', 'bo']
    >>> model.predict_proba(Z[:1], users=["ann"]).round(2).tolist()
    [[0.4, 0.6]]
    """

    gamma_: FloatArray
    graph_: Graph
    ridge_: float
    _scale: Scale | None  # of preferences; None: not asked for
    _keeps_float32 = True
    _columns = ("users_", "own_theta_", "radius_", "n_comparisons_")
    _among: int | None = None  # U, where not all users are here

    fits_shards = True

    def __init__(
        self,
        gamma: float | str = "auto",
        *,
        alpha: float = 1.0,
        ridge: float | str = 1.0,
        kappa: float = KAPPA_UNIT_BALL,
        delta: float = 0.05,
        radius: str = "theory",
        coverage: str | Coverage = "measured",
        distance: str = "euclidean",
        n_jobs: int | None = None,
    ) -> None:
        self.gamma = gamma
        self.alpha = alpha
        self.ridge = ridge
        self.kappa = kappa
        self.delta = delta
        self.radius = radius
        self.coverage = coverage
        self.distance = distance
        self.n_jobs = n_jobs

    def fit(self, Z: Any, y: Any = None, users: Any = None, sample_weight: Any = None, positive: Any = None) -> Self:
        """Learn every user's preference from everybody's comparisons.

        Parameters
        ----------
        Z : (n, d) feature differences φ(x, a) − φ(x, a′); or `Comparisons`, and then nothing else; or what
            `prefkin.open_comparisons` returns: then everybody's own estimates and radii are kept in shards, and pooled
            ones are computed for the users who are asked about
        y : (n,) 1 when a was preferred, 0 when a′ was; or words: left and right, first and second, a and b, chosen
            and rejected; or any two labels
        users : (n,) who answered; one user when not given
        sample_weight : (n,) how often each row counts
        positive : which of two other labels means that a was preferred; the larger one unless given
        """
        self._check_parameters()
        if isinstance(Z, ShardedComparisons):
            return self._fit_shards(Z, given=(y, users, sample_weight, positive))
        self._in_shards = None
        rows, classes = self._read(Z, y, users, sample_weight, positive)
        with threads(self.n_jobs), single_threaded():
            self._prepare(rows)
            points = self._locate(rows)  # line 2: θ̂_u and CI_u
            graph = replace(points, gamma=self._thresholds(rows, points))  # lines 4-7
            pooled = pool_neighbourhoods(rows, graph, ridge=self.ridge_)  # lines 9-11
        self.classes_ = classes
        self._take(rows, graph, pooled)
        self._warn()
        return self

    def update(self, Z: Any, y: Any = None, users: Any = None, sample_weight: Any = None) -> Self:
        """New answers, and new users: own estimates of those who gave them, then the connection test and pooling.

        A threshold or λ that the fit chose stays; everything else is as a fit on all comparisons would have it.

        >>> import numpy as np
        >>> Z = np.array([[0.9, 0.1], [0.8, -0.2], [0.7, 0.3], [0.9, 0.0]])
        >>> model = OffC2PL(gamma=0.0).fit(Z[:3], [1, 1, 1], users=["ann", "ann", "bo"])
        >>> model.update(Z[3:], [0], users=["bo"]).n_comparisons_.tolist()
        [2.0, 2.0]
        """
        if self._in_shards is not None:
            raise InvalidParameter("users in shards are not updated: fit the folder again with the new files in it")
        _, more = self._read_more(Z, y, users, sample_weight)
        rows = more.rows
        with threads(self.n_jobs), single_threaded():
            own = np.empty((len(rows), rows.dim))
            own[more.before] = self.own_theta_
            own[more.who] = estimate_users(only(rows, more.who), ridge=self.ridge_)
            points = self._locate(rows, theta=own)
            chosen = np.full(len(rows), self.gamma_[0]) if self.gamma == "auto" else self._thresholds(rows, points)
            graph = replace(points, gamma=chosen)
            pooled = pool_neighbourhoods(rows, graph, ridge=self.ridge_)
        self._take(rows, graph, pooled)
        return self

    def _take(self, rows: UserRows, graph: Graph, pooled: FloatArray) -> None:
        self._forget()
        self._hold(rows)
        self.graph_, self.theta_ = graph, pooled
        self.own_theta_, self.radius_, self.gamma_ = graph.theta, graph.radius, graph.gamma

    def _fit_shards(self, data: ShardedComparisons, given: tuple[Any, ...]) -> Self:
        from prefkin.models.off_c2pl.shards import fit_shards

        refuse_more(*given)
        self._read_shards(data, "graph_", "own_theta_", "radius_", "gamma_")
        self._in_shards = None
        with threads(self.n_jobs), single_threaded():
            self._in_shards = fit_shards(self, data)
        return self

    # -- Algorithm 1, line by line -----------------------------------------------------------------------------------

    def _prepare(self, rows: UserRows) -> None:
        """What is learnt from everybody before anybody is located: λ, and how strong preferences are."""
        self.ridge_ = ridge_by_held_out(rows, pooled=self.gamma != 0) if isinstance(self.ridge, str) else self.ridge
        self._scale = learn_scale(rows, probe_users(rows)) if self._needs_scale() else None

    def _locate(self, rows: UserRows, n_users: int | None = None, theta: FloatArray | None = None) -> Graph:
        """Own estimates (unless known) and radii of these users among `n_users`: the graph before any threshold."""
        n_users = len(rows) if n_users is None else n_users
        theta = estimate_users(rows, ridge=self.ridge_) if theta is None else theta
        if self.radius == "calibrated" and self._scale is not None:
            radius = calibrated_radii(rows, theta, self._scale, level=1.0 - self.delta)
        else:
            radius = self._paper_radii(rows, n_users)
        informed = self._scale if self.distance == "information" else None
        beliefs = None if informed is None else Beliefs.of(rows, informed.typical)
        enough = rows.counts >= self._coverage().least_count(n_users=n_users, dim=rows.dim, delta=self.delta)
        return Graph(theta, radius, np.zeros(len(rows)), self.alpha, enough, beliefs)

    def _paper_radii(self, rows: UserRows, n_users: int) -> FloatArray:
        """CI_u."""
        floor = self._coverage().floor(rows, ridge=self.ridge_, kappa=self.kappa)
        counts, which = np.unique(rows.counts, return_inverse=True)
        width = np.array([self._width(n, rows.dim, n_users) for n in counts])[which]
        with np.errstate(divide="ignore"):  # item regularity knows nothing about a user without comparisons
            radius: FloatArray = width / np.sqrt(floor)
        return radius

    def _needs_scale(self) -> bool:
        return self.radius == "calibrated" or self.distance == "information"

    def _width(self, n: float, dim: int, n_users: int) -> float:
        failure = self.delta / (2 * n_users)
        return confidence_width(n, dim, ridge=self.ridge_, kappa=self.kappa, failure=failure)

    def _thresholds(self, rows: UserRows, points: Graph) -> FloatArray:
        if self.gamma in APPENDIX:
            return np.array([APPENDIX[str(self.gamma)](points, user) for user in range(len(points))])
        if self.gamma == "auto":
            chosen = by_held_out(rows, points, self._locate, ridge=self.ridge_)
            return np.full(len(points), chosen)
        return np.full(len(points), float(self.gamma))

    def _coverage(self) -> Coverage:
        return Measured() if isinstance(self.coverage, str) else self.coverage

    @on_its_threads
    def members(self, position: int) -> IntArray:
        """V(u), as positions in `users_`."""
        if "census" in vars(self.graph_) and self.graph_.census.degree[position] == 1:  # counted: nobody to look for
            return np.array([position])
        return self.graph_.neighbours(position)

    def neighbourhoods(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Each neighbourhood there is, once: positions of the users who have it, and of its members."""
        with threads(self.n_jobs), single_threaded():
            first, which = self.graph_.distinct
        owners = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
        for user, some in zip(first.tolist(), owners, strict=True):
            yield some, some if self.graph_.census.degree[user] == 1 else self.members(user)

    def _prior(self) -> tuple[float, float]:
        return self.ridge_, self.kappa

    @about_users("user")
    def width(self, user: Hashable) -> float:
        """β̃_u, from the number of comparisons in the neighbourhood  [paper: beta].

        With radius="calibrated": ‖θ̃_u − θ_u‖ in the norm of `information(user)` is below it with probability about
        1 − δ, if the neighbours want the same as the user.
        """
        u = self.position(user)
        if self.radius == "calibrated" and self._scale is not None:
            return calibrated_width(
                self._pooled_rows(user), self.theta_[u], self.information(user), self._scale, level=1.0 - self.delta
            )
        pooled = float(self.n_comparisons_[self.members(u)].sum())
        return self._width(pooled, self._users.dim, self._among or len(self._users))

    # -- telling why -------------------------------------------------------------------------------------------------

    @about_users("user", "other")
    def explain(self, user: Hashable, other: Hashable) -> Explanation:
        """Why `other`'s comparisons are used for `user`, or not."""
        u, v = self.position(user), self.position(other)
        graph = self.graph_
        if u == v:
            return Explanation(True, 0.0, np.inf, f"{user!r} always uses its own comparisons.")
        distance, allowance = float(graph.distances(u)[v]), float(graph.allowances(u)[v])
        margin = float(graph.gamma[u] - allowance - distance)
        joined, needed = bool(graph.connected(u)[v]), distance + allowance
        room = float((graph.gamma[u] - distance) / graph.alpha)  # for radii
        if graph.beliefs is not None:
            total = f"as far as both are known they are {distance:.3g} apart"
        else:
            radii = f"radii {graph.radius[u]:.3g} and {graph.radius[v]:.3g}"
            total = f"distance {distance:.3g} plus {radii} make {needed:.3g}"
        numbers = f"{total}, {'below' if joined else 'not below'} the threshold {graph.gamma[u]:.3g}"
        if joined:
            verdict = f"{user!r} uses the comparisons of {other!r}: {numbers}."
            verdict += f" A threshold of {needed:.3g} or less would undo that."
        elif not (graph.enough[u] and graph.enough[v]):
            verdict = f"{user!r} does not use {other!r}: too few comparisons for the item-regularity assumption."
        else:
            verdict = f"{user!r} does not use the comparisons of {other!r}: {numbers}."
            verdict += f" A threshold above {needed:.3g} would join them"
            if graph.beliefs is not None:
                verdict += "."
            else:
                verdict += f", or radii that sum to less than {room:.3g}." if room > 0 else "; no smaller radii would."
        return Explanation(
            joined,
            distance,
            margin,
            verdict,
            turning_threshold=needed,
            turning_radii=room,
        )

    @on_its_threads
    def fold_in(self, Z: ArrayLike, y: ArrayLike) -> FoldedIn:
        """Place a new user by the same test, without refitting anybody.

        The constants stay those of the fitted users (U, and γ̂ when it is one number).
        """
        check_is_fitted(self)
        new = self._newcomer(Z, y)
        if self._in_shards is not None:
            return self._in_shards.fold_in(new)
        known, alone = self.graph_, self._locate(new, n_users=len(self._users))
        points, at = Graph.together([known, alone]), len(known)  # the newcomer is behind everybody else
        threshold = APPENDIX[str(self.gamma)](points, at) if self.gamma in APPENDIX else known.gamma[0]
        members = points.under(threshold).neighbours(at)[:-1]
        theta = alone.theta[0]
        if len(members):
            rows = Rows.join([self._users.of_many(members), new.rows])
            theta = fit_preference(rows, ridge=self.ridge_, start=theta)
        return FoldedIn(theta, self.users_[members], float(alone.radius[0]), alone.theta[0])

    # -- saying what is not as it should be ----------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """One line for the first parameter outside its range."""

        def number(name: str, allowed: str, inside: Callable[[float], bool]) -> None:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not inside(float(value)):
                raise InvalidParameter(f"{name} must be {allowed}; got {value!r}")

        if isinstance(self.gamma, str):
            if self.gamma not in (*APPENDIX, "auto"):
                raise InvalidParameter(f"gamma must be a number, 'under', 'over' or 'auto'; got {self.gamma!r}")
        else:
            number("gamma", "at least 0, or 'under', 'over' or 'auto'", lambda x: x >= 0)
        number("alpha", "a finite number of at least 1", lambda x: 1 <= x < np.inf)
        if not (isinstance(self.ridge, str) and self.ridge == "auto"):
            number("ridge", "a finite number above 0, or 'auto'", lambda x: 0 < x < np.inf)
        number("kappa", "above 1e-75 and at most 1/4, the largest slope of the sigmoid", lambda x: 1e-75 < x <= 0.25)
        number("delta", "between 0 and 1", lambda x: 0 < x < 1)
        if self.radius not in ("theory", "calibrated"):
            raise InvalidParameter(f"radius must be 'theory' or 'calibrated'; got {self.radius!r}")
        if self.distance not in ("euclidean", "information"):
            raise InvalidParameter(f"distance must be 'euclidean' or 'information'; got {self.distance!r}")
        if self.distance == "information" and self.gamma in APPENDIX:
            raise InvalidParameter(
                f"gamma={self.gamma!r} is made of distances and radii, which distance='information' does not add up; "
                "give a number (1.1 to 1.5) or 'auto'"
            )
        if self.coverage != "measured" and not isinstance(self.coverage, Measured | ItemRegularity):
            raise InvalidParameter(f"coverage must be 'measured' or an ItemRegularity; got {self.coverage!r}")
        refuse_other_threads(self.n_jobs)

    def _warn(self) -> None:
        """What the user should know about this fit."""
        longest = float(np.sqrt(np.einsum("ij,ij->i", self._users.rows.Z, self._users.rows.Z).max()))
        if self.radius == "calibrated":
            self._warn_of_miscalibration()
        elif longest > LONGEST_DIFFERENCE * (1 + 1e-9):
            warnings.warn(
                f"feature differences reach norm {longest:.3g}, but the paper's constants assume at most 2 "
                "(‖φ‖ ≤ 1): estimates stand, radii and widths are not guaranteed; "
                f"divide the features by {longest / 2:.3g} to be inside",
                AssumptionWarning,
                stacklevel=3,
            )
        n_users = len(self._users)
        wanted = n_users > 1 and (isinstance(self.gamma, str) or self.gamma > 0)
        if wanted and self.graph_.census.degree.max() == 1:
            advice = what_an_edge_takes(
                self.graph_,
                self._users,
                self._coverage(),
                gamma=self.gamma,
                width=None if self._needs_scale() else lambda n: self._width(n, self._users.dim, n_users),
                ridge=self.ridge_,
                kappa=self.kappa,
                delta=self.delta,
            )
            warnings.warn(advice, NoEdgeWarning, stacklevel=3)

    def _warn_of_miscalibration(self) -> None:
        """Where benchmarks/coverage.py did not find the radius to cover what it says."""
        assert self._scale is not None
        middle, d = float(np.median(self.n_comparisons_)), self._users.dim
        strength = self._scale.typical * mean_square(self._users)  # variance of the margins
        wanted = d * max(LEAST_PER_FEATURE, PER_STRENGTH * strength)
        if middle < wanted:
            warnings.warn(
                f"radius_ may be off, mostly too wide: users have {middle:.3g} comparisons each (median), but "
                f"from fewer than about {wanted:.2g} answers for {d} features their strength is hard to tell",
                CalibrationWarning,
                stacklevel=4,
            )

    # -- on disk -----------------------------------------------------------------------------------------------------

    def _to_file(self) -> tuple[dict[str, Any], dict[str, Any]]:
        given = self.get_params(deep=False).items()
        about = {name: value.item() if isinstance(value, np.generic) else value for name, value in given}
        about["coverage"] = asdict(self.coverage) if isinstance(self.coverage, ItemRegularity) else "measured"
        about["ridge_used"] = float(self.ridge_)
        arrays = {
            "own_theta": self.own_theta_,
            "radius": self.radius_,
            "gamma": self.gamma_,
            "theta": self.theta_,
            "enough": self.graph_.enough,
        }
        if self._scale is not None:
            arrays |= {"scale": self._scale.table}
        if self.graph_.beliefs is not None:
            arrays |= {"believed": self.graph_.beliefs.mean, "sites": self.graph_.beliefs.sites}
        return about, arrays

    @classmethod
    def from_file(cls, about: dict[str, Any], labels: Any, arrays: dict[str, Any]) -> OffC2PL:
        """What `save` wrote."""
        if isinstance(about["coverage"], dict):
            about["coverage"] = ItemRegularity(**about["coverage"])
        ridge = about.get("ridge_used", about["ridge"])  # older files know numbers alone
        model = cls(**{name: about[name] for name in cls._get_param_names() if name in about})
        model._from_file(about, labels, arrays)
        model.ridge_, model._scale = ridge, Scale.of_table(arrays)
        beliefs = None
        if "sites" in arrays and model._scale is not None:
            beliefs = Beliefs(model._users, model._scale.typical, arrays["believed"], arrays["sites"])
        own = arrays["own_theta"], arrays["radius"], arrays["gamma"]
        model._take(model._users, Graph(*own, model.alpha, arrays["enough"], beliefs), arrays["theta"])
        return model
