"""PrefKin: an empirical-Bayes hierarchical model of users (`prefkin.inference.model`) as a scikit-learn estimator.

`fit` chooses clusters or continuous heterogeneity, and a covariance structure, by held-out answers (`fitting`).
Estimates, probabilities, policies, questions and explanations are computed from the posterior (`posterior`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from prefkin.data.arrays import FloatArray, IntArray, LabelArray
from prefkin.data.candidates import Candidates
from prefkin.data.rows import UserRows
from prefkin.data.shards import ShardedComparisons
from prefkin.decide.belief import Belief
from prefkin.decide.plan import Panel
from prefkin.decide.population import Population
from prefkin.decide.session import ActiveSession
from prefkin.errors import (
    InvalidComparisons,
    InvalidParameter,
    PriorWarning,
)
from prefkin.execution.blas import single_threaded
from prefkin.execution.executor import threads
from prefkin.inference.information import ball_radius
from prefkin.inference.loss import moderated
from prefkin.inference.many import estimate_users
from prefkin.inference.model import Likelihood, PopulationLaw, in_units_of
from prefkin.models.base import PreferenceModel
from prefkin.models.calls import (
    about_users,
    as_fitted,
    generator,
    on_its_threads,
    refuse_a_second_label,
)
from prefkin.models.given import refuse_more
from prefkin.models.likeness import Likeness
from prefkin.models.prefkin.covariance import Structure
from prefkin.models.prefkin.explain import explained
from prefkin.models.prefkin.file import parameters_from, restored, written
from prefkin.models.prefkin.fitting import Learnt, learn
from prefkin.models.prefkin.new_user import (
    everybody_at_once,
    group_probabilities,
    person_as_population,
    prior_predictive,
)
from prefkin.models.prefkin.out_of_core.fit import fit_out_of_core
from prefkin.models.prefkin.out_of_core.users import OutOfCore
from prefkin.models.prefkin.parameters import check_parameters, specification_of
from prefkin.models.prefkin.position_bias import with_position_bias
from prefkin.models.prefkin.reporting import summary_of, warn_of_miscalibration, warn_of_the_fit
from prefkin.models.prefkin.settings import REPORTING
from prefkin.models.prefkin.shares import difference_covariance, doubt_left, shares_of
from prefkin.models.prefkin.update import clearly_better, gain_of_refit, updated
from prefkin.models.reports import Explanation, FoldedIn, Summary

__all__ = ["PrefKin"]


class PrefKin(PreferenceModel):
    """Personal preferences from few comparisons each; no parameter needed.

    Parameters
    ----------
    metric : covariance structure of users: "isotropic", "scaled" (isotropic in features scaled to mean square 1),
        "diagonal", "full", "whitened" (full, with a stronger prior towards isotropic in whitened features), a
        `Structure`, or "auto": the one that predicts held-out answers best
    predict_for : what is held out together when held-out answers choose (`held_out_folds`): "new items" (answers about
        items that were learnt from do not count), "known items" (they do), or "auto": contexts as a whole where they
        are known; new items where items are known (`from_sides`, `items=`); pairs that several people were asked about
    level : of `radius_` and of the lower confidence bound in `policy`
    n_jobs : threads; None or -1 for all cores
    random_state : for draws from a sample of users, where there are many
    likelihood : of an answer given its margin (`prefkin.inference.model.Likelihood`); None: logistic
    population : law of a user around the group mean (`prefkin.inference.model.PopulationLaw`); None: Gaussian

    Attributes
    ----------
    users_ : (U,) labels
    theta_ : (U, d) posterior mean of each user's preference
    own_theta_ : (U, d) from each user's own rows, with the same overall shrinkage
    radius_ : (U,) radius of the ball around `theta_` that holds the preference with probability `level`
    structure_ : "groups", "by degrees" (continuous heterogeneity), "one group" or "unrelated"
    membership_ : (U, K + 1) probability of each group and, last, of being a singleton
    evidence_ : log evidence of the best continuous heterogeneity ("by degrees") and of "groups"; −∞: not tried
    temperature_ : factor on log odds that makes held-out answers likeliest
    converged_, n_iter_ : whether expectation propagation converged, and in how many iterations
    habit_ : (U,) position bias: log odds of each user for the first side, where both sides are known (`from_sides`)
        and evidence finds a bias, else 0; preferences and predictions are without it
    refit_gain_ : after `update`, log evidence of the new answers under a prior learnt from them alone, over that under
        the prior in use; −∞ after `fit`

    >>> import numpy as np
    >>> from prefkin.data.synthetic import demo_population
    >>> data = demo_population(np.random.default_rng(0))[0].data
    >>> model = PrefKin().fit(data)
    >>> model.structure_, model.membership_.shape
    ('groups', (24, 4))
    """

    _learnt: Learnt
    structure_: str
    evidence_: dict[str, float]
    temperature_: float
    converged_: bool
    n_iter_: int
    habit_: FloatArray
    has_posterior = fits_shards = sums_up_shards = True
    _columns = ("users_", "theta_", "membership_", "n_comparisons_")

    def __init__(
        self,
        *,
        metric: str | Structure = "auto",
        predict_for: str = "auto",
        level: float = 0.95,
        n_jobs: int | None = None,
        random_state: Any = None,
        likelihood: Likelihood | None = None,
        population: PopulationLaw | None = None,
    ) -> None:
        self.metric = metric
        self.predict_for = predict_for
        self.level = level
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.likelihood = likelihood
        self.population = population

    # -- learning ----------------------------------------------------------------------------------------------------

    def fit(self, Z: Any, y: Any = None, users: Any = None, sample_weight: Any = None, positive: Any = None) -> Self:
        """Learn every user's preference, and how much users have in common.

        Parameters are those of `OffC2PL.fit`. Z may also be what `prefkin.open_comparisons` returns; then what is
        learnt about users is kept in shards, too.
        """
        self._check_parameters()
        if isinstance(Z, ShardedComparisons):
            return self._fit_shards(Z, given=(y, users, sample_weight, positive))
        rows, classes = self._read(Z, y, users, sample_weight, positive)
        _refuse_nothing(rows)
        with threads(self.n_jobs), single_threaded():
            specification = specification_of(self)
            rows, learnt = with_position_bias(rows, specification, learn(rows, specification))
            self._in_shards = None
            self._hold(rows)
            self.habit_ = np.zeros(len(rows)) if rows.habits is None else rows.habits
            self.refit_gain_ = -np.inf
            self._keep(learnt)
        self.classes_ = classes
        warn_of_the_fit(self, self._plain_margins)
        return self

    def _fit_shards(self, data: ShardedComparisons, given: tuple[Any, ...]) -> Self:
        refuse_more(*given)
        self._past = {}
        with threads(self.n_jobs), single_threaded():
            self._keep_shards(fit_out_of_core(self, data))
        return self

    def _keep_shards(self, users: OutOfCore) -> None:
        """Everything that was learnt of users in shards."""
        self._read_shards(users.data, "_learnt", "membership_", "habit_")
        self._in_shards, self.refit_gain_ = users, -np.inf
        self._say(users.learnt)

    @on_its_threads
    def update(self, Z: Any, y: Any = None, users: Any = None, sample_weight: Any = None) -> Self:
        """New answers, and new users, under the hyperparameters as they are.

        Nobody else's responsibilities change; their estimates follow the group means. Hyperparameters and the groups
        there are stay until the next `fit`; `refit_gain_` says whether that is worth while, and `PriorWarning` when it
        clearly is. Parameters are those of `fit`; rows count in addition to those there are.

        >>> import numpy as np
        >>> from prefkin.data.synthetic import demo_population
        >>> data = demo_population(np.random.default_rng(0))[0].data
        >>> model = PrefKin().fit(data.take(np.arange(0, len(data), 2)))
        >>> more = model.update(data.take(np.arange(1, len(data), 2)))
        >>> more is model, float(model.n_comparisons_.sum()) == len(data), model.refit_gain_ < 0
        (True, True, True)
        """
        if self._in_shards is not None:
            new = self._read_new(Z, y, users, sample_weight)
            self._in_shards, self.refit_gain_ = self._in_shards.updated(new)
            self._forget()
        else:
            new, more = self._read_more(Z, y, users, sample_weight)
            habits = np.full(len(more.rows), float(np.mean(self.habit_)))
            habits[more.before] = self.habit_
            rows = replace(more.rows, habits=habits if self.habit_.any() else None)
            gain = gain_of_refit(self._learnt.posterior, new)
            posterior = updated(self._learnt.posterior, more._replace(rows=rows))
            self._hold(rows)
            self.habit_, self.refit_gain_ = habits, gain
            self._keep(replace(self._learnt, posterior=posterior))
        if clearly_better(self.refit_gain_, len(new)):
            again = "fit the folder with the new files in it" if self._in_shards else "model.fit(model.comparisons())"
            warnings.warn(
                "the new answers come from users unlike those whom the model knows: log evidence "
                f"{self.refit_gain_:+.1f} for a prior learnt from them alone; learn it again: {again}",
                PriorWarning,
                stacklevel=3,
            )
        return self

    def _with_habits(self, rows: UserRows) -> UserRows:
        """The rows with the position bias of each user as an offset."""
        return replace(rows, habits=self.habit_ if self.habit_.any() else None)

    def _keep(self, learnt: Learnt) -> None:
        """Everything that was learnt of the users that are held."""
        self._forget()
        self._learnt, posterior = learnt, learnt.posterior
        self.theta_ = posterior.theta
        singleton = [] if posterior.population.clustered else [np.zeros(len(posterior))]
        self.membership_ = np.column_stack([posterior.share, *singleton])
        self._say(learnt)

    def _say(self, learnt: Learnt) -> None:
        """What was learnt of all users together."""
        self.structure_, self.temperature_ = learnt.structure, learnt.calibration.temperature
        self.converged_, self.n_iter_ = learnt.converged, learnt.n_iter
        tried = {"by degrees": [-np.inf], "groups": [-np.inf]}
        for name, value in learnt.evidence.items():
            tried["groups" if name.startswith("groups") else "by degrees"].append(value)
        self.evidence_ = {name: max(values) for name, values in tried.items()}

    def _check_parameters(self) -> None:
        check_parameters(self)

    # -- groups ------------------------------------------------------------------------------------------------------

    def members(self, position: int) -> IntArray:
        """Positions of those likelier in the same group than not; everybody under continuous heterogeneity."""
        return np.flatnonzero(self._together(position) > 0.5)

    def neighbourhoods(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Members of each group, and singletons one by one, as users and members."""
        place, last = np.argmax(self.membership_, axis=1), self.membership_.shape[1] - 1
        for group in range(last):
            if len(some := np.flatnonzero(place == group)):
                yield some, some
        for user in np.flatnonzero(place == last):
            yield np.array([user]), np.array([user])

    def _together(self, position: int) -> FloatArray:
        """Probability of sharing a group with each user."""
        found = self.membership_[:, :-1] @ self.membership_[position, :-1]
        found[position] = 1.0
        return found

    @overload
    def neighbours(self, user: Hashable, weights: Literal[False] = False) -> LabelArray: ...

    @overload
    def neighbours(self, user: Hashable, weights: Literal[True]) -> tuple[LabelArray, FloatArray]: ...

    def neighbours(self, user: Hashable, weights: bool = False) -> LabelArray | tuple[LabelArray, FloatArray]:
        """Labels of the users whose data shape `user`'s estimate: itself first, then those most like it.

        That is the group, and everybody under continuous heterogeneity; `closest(user)` says how alike they are. With
        `weights=True` also how much: the user's own answers decide a share of the estimate, the rest comes from the
        others in proportion to their comparisons and the probability that they belong together.
        """
        model = self if self._in_shards is None else self._in_shards.only([user])
        u, here = self.position(user), model.position(user)
        together = self._together(u)
        members = np.flatnonzero(together > 0.5)
        if self._in_shards is None:
            members = members[np.argsort(self._likeness.from_(u)[members], kind="stable")]
        if not weights:
            return self.users_[members]
        counts = (together * self.n_comparisons_)[members]
        return self.users_[members], shares_of(
            model._learnt.posterior, here, np.where(members == u, 0.0, counts), members == u
        )

    @cached_property
    def _likeness(self) -> Likeness:
        """With the posterior variance of everybody's margins."""
        known = Likeness(self._users.rows, self.theta_)
        moments = known.root @ known.root.T
        known.doubt = self._of_covariances(lambda C: np.einsum("uij,ij->u", C, moments))
        return known

    def _difference(self, position: int, other: int) -> Belief:
        C = difference_covariance(self._learnt.uncertainty, position, other)
        return Belief.from_covariance(self.theta_[position] - self.theta_[other], C)

    def _membership(self) -> tuple[FloatArray, FloatArray]:
        if self.structure_ in ("by degrees", "unrelated"):
            return super()._membership()
        posterior, n_groups = self._learnt.posterior, self.membership_.shape[1] - 1
        return self.membership_, posterior.population.preferences(posterior.groups.means[:n_groups])

    @about_users("user", "other")
    def explain(self, user: Hashable, other: Hashable) -> Explanation:
        """Why `other` counts for `user`, or not: how sure that is, what speaks for it, and what would change it.

        `answers` and `prior` are the log odds of `user` belonging where `other` most likely does, everybody else where
        they are. Without groups, `answers` is about the two wanting exactly the same.
        """
        return explained(self, self.position(user), self.position(other))

    # -- posterior ---------------------------------------------------------------------------------------------------

    @about_users("user")
    def covariance(self, user: Hashable) -> FloatArray:
        """Posterior covariance of a user's preference, shape (d, d); computed when asked for."""
        return self._learnt.uncertainty.covariances(np.array([self.position(user)]))[0]

    @about_users("user")
    def information(self, user: Hashable) -> FloatArray:
        """Posterior precision of a user's preference, the inverse of `covariance`, shape (d, d)."""
        return self.belief(user).information

    @about_users("user")
    def belief(self, user: Hashable) -> Belief:
        """The posterior of a user's preference: what policies and questions are made from."""
        return Belief.from_covariance(self.theta_[self.position(user)], self.covariance(user))

    @about_users("user")
    def width(self, user: Hashable) -> float:
        """The normal quantile of `level`: a policy's value is below its reward with that probability."""
        self.position(user)
        return float(norm.ppf(self.level))

    @cached_property
    def radius_(self) -> FloatArray:  # type: ignore[override]
        """Radius of the ball around `theta_` that holds the preference with probability `level`; (U,).

        ‖θ − E θ‖² is a sum of squares; a Gamma law with its mean tr C and variance 2 tr C² stands in for it. The factor
        `caution` makes up for what the posterior leaves out (the partition, the scales); benchmarks/coverage.py
        measures it. Warns where that study found the radius too small.
        """
        check_is_fitted(self)
        if self._in_shards is not None:
            return self._in_shards.column("radius")
        warn_of_miscalibration(self, self._plain_margins)
        return self._radii

    @cached_property
    def _radii(self) -> FloatArray:
        mean, square = self._of_covariances(lambda C: np.array([np.einsum("uii->u", C), np.einsum("uij,uij->u", C, C)]))
        return REPORTING.caution * ball_radius(mean, square, self.level)

    def _of_covariances(self, number: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """A number, or several, of each user's posterior covariance, (..., U)."""
        with threads(self.n_jobs), single_threaded():
            return self._learnt.uncertainty.of_covariances(number)

    @cached_property
    def own_theta_(self) -> FloatArray:  # type: ignore[override]
        """Each user's preference from their own rows alone, shrunk by the variance of all users."""
        check_is_fitted(self)
        with threads(self.n_jobs), single_threaded():
            return self._estimated(self._users)

    def _estimated(self, rows: UserRows) -> FloatArray:
        """Estimates from users' own rows alone."""
        population, ridge = self._learnt.posterior.population, 1.0 / self._learnt.posterior.own_variance
        if population.root is not None:
            rows = replace(rows, rows=rows.rows._replace(Z=in_units_of(population.root, rows.rows.Z)))
        return population.preferences(estimate_users(rows, ridge=ridge))

    @property
    def _plain_margins(self) -> FloatArray:
        """zᵀθ of the rows that were learnt from."""
        return super()._margins(self._users.rows.Z, self._users.owner)

    def _margins(self, features: FloatArray, owner: IntArray) -> FloatArray:
        """Moderated margins zᵀθ / √(1 + π zᵀCz / 8) times the temperature."""
        return self.temperature_ * moderated(*self._learnt.posterior.margins(features, owner))

    def _doubt_left(self, user: Hashable) -> tuple[FloatArray, FloatArray]:
        """What own answers, and everybody's, leave of a singleton's prior covariance, in features scaled by it."""
        return doubt_left(self._learnt.uncertainty, self.position(user))

    def summary(self) -> Summary:
        """How alike these users are, and how sure that is; `print` says it in words."""
        check_is_fitted(self)
        return summary_of(self)

    # -- acting on it ------------------------------------------------------------------------------------------------

    @about_users("user")
    def session(
        self,
        user: Hashable,
        candidates: Candidates,
        rule: str | None = None,
        repeat: bool = False,
        random_state: Any = None,
        label: Hashable = None,
    ) -> ActiveSession:
        """Questions for `user`, starting from the posterior: by default the pair whose answer tells most about it.

        With `user=None` for a new user (cold start), whom `label` may name: it starts from the population, and asks
        first what tells the groups apart (rule "information", which also keeps the groups to which a known user may
        belong apart, and is quick with many features).

        >>> import numpy as np
        >>> from prefkin.data.synthetic import demo_population
        >>> people, stories = demo_population(np.random.default_rng(0))
        >>> session = PrefKin().fit(people.data).session(None, stories, label="Zoe")
        >>> for _ in range(5):
        ...     session.tell(session.ask(), True)
        >>> session
        ActiveSession(newcomer 'Zoe', 5 answers, rule 'information', no pair twice)
        >>> session.belief.chance.shape  # of each group, and of a singleton
        (4,)
        """
        check_is_fitted(self)
        candidates = as_fitted(self, candidates)
        refuse_a_second_label(user, label)
        rule = rule if rule is not None else "information" if user is None else "posterior"
        settings: dict[str, Any] = {"rule": rule, "repeat": repeat, "rng": generator(random_state)}
        settings |= {"user": user, "model": self._digest}
        if user is None:
            return ActiveSession.of_newcomer(self._population, candidates, label=label, **settings)
        habit = float(self.habit_[self.position(user)])
        if rule == "information":
            person = person_as_population(self._learnt.uncertainty, self.position(user), habit)
            return ActiveSession.of_newcomer(person, candidates, **settings)
        return ActiveSession.from_belief(self.belief(user), candidates, habit=habit, **settings)

    def _as_panel(self, Z: FloatArray) -> tuple[Panel, FloatArray]:
        if len(self._users) * self._users.dim**2 > REPORTING.most_numbers:
            raise InvalidParameter(
                f"{len(self._users)} people with {self._users.dim} features are too many to plan for at once: it takes "
                "a matrix each; use a model of fewer people or features"
            )
        return everybody_at_once(self._learnt.uncertainty, Z)

    @cached_property
    def _population(self) -> Population:
        """Of new users."""
        with single_threaded():
            habit = float(np.mean(self.habit_)) if len(self.habit_) else 0.0
            return prior_predictive(self._learnt.uncertainty, habit)

    @on_its_threads
    def fold_in(self, Z: ArrayLike | None = None, y: ArrayLike | None = None) -> FoldedIn:
        """The posterior of a new user, everybody else fixed; without answers the prior predictive law.

        >>> import numpy as np
        >>> from prefkin.data.synthetic import demo_population
        >>> model = PrefKin().fit(demo_population(np.random.default_rng(0))[0].data)
        >>> anybody = model.fold_in()
        >>> anybody.predict_proba(np.eye(model.n_features_in_)).shape
        (6, 2)
        """
        check_is_fitted(self)
        model = self if self._in_shards is None else self._in_shards.only([])
        posterior, belief, own = model._learnt.posterior, model._population.nobody, np.zeros(self.n_features_in_)
        if Z is not None or y is not None:
            new = self._newcomer(Z, y)
            belief, own = model._population.belief(new.rows.Z, new.rows.y), model._estimated(new)[0]
        joined = self.users_[self.membership_[:, :-1] @ group_probabilities(posterior, belief) > 0.5]
        C = belief.covariance
        radius = REPORTING.caution * float(ball_radius(np.trace(C), (C * C).sum(), self.level))
        return FoldedIn(belief.mean, joined, radius, own, C, model.temperature_)

    # -- on disk -----------------------------------------------------------------------------------------------------

    def _of_digest(self) -> tuple[FloatArray, ...]:
        posterior, population = self._learnt.posterior, self._learnt.posterior.population
        scales = np.array([population.within, population.between, population.top, self.temperature_])
        root = np.empty(0) if population.root is None else population.root
        return root, posterior.share, population.m0, scales, posterior.messages.eta, *posterior.sites

    def _to_file(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return written(self)

    @classmethod
    def from_file(cls, about: dict[str, Any], labels: Any, arrays: dict[str, Any]) -> PrefKin:
        """What `save` wrote."""
        return restored(cls(**parameters_from(about)), about, labels, arrays)


def _refuse_nothing(rows: UserRows) -> None:
    """With no difference in any feature there is nothing to learn, not even a scale."""
    if not (rows.rows.Z.any(axis=1) & (rows.rows.weights > 0)).any():
        raise InvalidComparisons(
            "all comparisons show the same features on both sides, so that they teach nothing; "
            "check how the features were made"
        )
