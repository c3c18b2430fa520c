"""PrefKin: evidence decides who is pooled, and how much.

The prior over users is learnt from all of them (`degrees`, `groups`): groups of equals, people who differ by degrees,
everybody alike, or nobody related. All else follows from the posterior: estimates, probabilities, caution, questions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from prefkin.data.arrays import FloatArray, IntArray, LabelArray, above_zero
from prefkin.data.candidates import Candidates
from prefkin.data.folds import PREDICT_FOR
from prefkin.data.rows import Grown, Rows, UserRows, only
from prefkin.data.shards import ShardedComparisons
from prefkin.decide.belief import Belief
from prefkin.decide.plan import Panel
from prefkin.decide.population import Population
from prefkin.decide.session import ActiveSession
from prefkin.errors import CalibrationWarning, InvalidComparisons, InvalidParameter, PriorWarning, SeparationWarning
from prefkin.execution.blas import single_threaded
from prefkin.execution.executor import for_each, threads
from prefkin.inference.estimate import fit_preference
from prefkin.inference.information import ball_radius
from prefkin.inference.many import estimate_users
from prefkin.models.base import PreferenceModel
from prefkin.models.calls import (
    about_users,
    as_fitted,
    generator,
    on_its_threads,
    refuse_a_second_label,
    refuse_other_random_state,
    refuse_other_threads,
)
from prefkin.models.given import refuse_more
from prefkin.models.likeness import Likeness
from prefkin.models.prefkin.by_draws import matched_by_draws
from prefkin.models.prefkin.calibrate import Fitted, temperature_of_groups
from prefkin.models.prefkin.explain import difference_covariance, explained, own_share
from prefkin.models.prefkin.file import restored, written
from prefkin.models.prefkin.in_shards.fit import fit_shards
from prefkin.models.prefkin.in_shards.update import with_new_answers
from prefkin.models.prefkin.lesson import Teacher
from prefkin.models.prefkin.metric import KINDS, Metric
from prefkin.models.prefkin.mixture import AllTerms, Mixture, finished, pieces
from prefkin.models.prefkin.newcomer import everybody_at_once, group_chances, people_in_general, person_as_population
from prefkin.models.prefkin.settings import LIMITS, TRUST
from prefkin.models.prefkin.settling import settle
from prefkin.models.prefkin.update import clearly_better, gain_of_refit, taken_in
from prefkin.models.reports import Explanation, FoldedIn, Summary

__all__ = ["PrefKin"]


class PrefKin(PreferenceModel):
    """Personal preferences from few comparisons each; no parameter needed.

    Parameters
    ----------
    metric : how people differ: "isotropic" (in all features alike), "diagonal" (in some more; free of units), "full"
        (any covariance), "whitened" (the same, free of mixtures of features too), or "auto": whichever predicts
        held-out answers best; with more than 40 features isotropic
    predict_for : what is held out together when held-out answers choose (`held_out_folds`): "new items" (answers about
        items that were learnt from do not count), "known items" (they do), or "auto": contexts as a whole where they
        are known; new items where items are known (`from_sides`, `items=`); pairs that several people were asked about
    level : of `radius_` and of the caution in `policy`
    n_jobs : threads; None or -1 for all cores
    random_state : with so many users that it would take long, the metric is learnt from some (at least 200), and with
        more than 20,000 groups are sought among so many: chosen by what they answered (None), or drawn

    Attributes
    ----------
    users_ : (U,) labels
    theta_ : (U, d) posterior mean of each user's preference
    own_theta_ : (U, d) from each user's own rows, with the same overall shrinkage
    radius_ : (U,) radius of the ball around `theta_` that holds the preference with probability `level`
    structure_ : "groups", "by degrees", "one group" or "unrelated"
    membership_ : (U, K + 1) probability of each group and, last, of standing alone
    habit_ : (U,) log odds by which each takes the first side whatever is on it, where both sides are known
        (`from_sides`) and evidence finds such a habit, else 0; preferences and predictions are without it
    refit_gain_ : after `update`, log evidence of the new answers under a prior learnt from them alone, over that under
        the prior in use; −∞ after `fit`

    >>> import numpy as np
    >>> from prefkin.data.synthetic import demo_population
    >>> data = demo_population(np.random.default_rng(0))[0].data
    >>> model = PrefKin().fit(data)
    >>> model.structure_, model.membership_.shape
    ('groups', (24, 4))
    """

    structure_: str
    evidence_: dict[str, float]
    habit_: FloatArray
    has_posterior = fits_shards = sums_up_shards = True
    _over_pooled: tuple[float, float] | None = None  # as in `Summary`
    _columns = ("users_", "theta_", "membership_", "n_comparisons_")

    def __init__(
        self,
        *,
        metric: str = "auto",
        predict_for: str = "auto",
        level: float = 0.95,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.metric = metric
        self.predict_for = predict_for
        self.level = level
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, Z: Any, y: Any = None, users: Any = None, sample_weight: Any = None, positive: Any = None) -> Self:
        """Learn every user's preference, and how much users have in common.

        Parameters are those of `OffC2PL.fit`. Z may also be what `prefkin.open_comparisons` returns; then what is
        learnt about people is kept in shards, too.
        """
        self._check_parameters()
        if isinstance(Z, ShardedComparisons):
            return self._fit_shards(Z, given=(y, users, sample_weight, positive))
        rows, classes = self._read(Z, y, users, sample_weight, positive)
        _refuse_nothing(rows)
        with threads(self.n_jobs), single_threaded():
            self._learn(rows)
        self.classes_ = classes
        self._warn_of_separation()
        return self

    def _fit_shards(self, data: ShardedComparisons, given: tuple[Any, ...]) -> Self:
        refuse_more(*given)
        self._read_shards(data, "_fitted", "membership_")
        with threads(self.n_jobs), single_threaded():
            self._in_shards = fit_shards(self, data)
        self.structure_, self.evidence_ = self._in_shards.structure, self._in_shards.evidence
        return self

    @on_its_threads
    def update(self, Z: Any, y: Any = None, users: Any = None, sample_weight: Any = None) -> Self:
        """New answers, and new users, under the prior as it is; those who gave them are placed anew.

        Nobody else is: their memberships stay, and estimates follow the centre of the group they share. Metric, scales
        and the groups there are stay until the next `fit`; `refit_gain_` says whether that is worth while, and
        `PriorWarning` when it clearly is. Parameters are those of `fit`; rows count in addition to those there are.

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
            self._in_shards, self.refit_gain_ = with_new_answers(self._in_shards, new)
            self._forget()
        else:
            new, more = self._read_more(Z, y, users, sample_weight)
            self._update_in_memory(new, more)
        if clearly_better(self.refit_gain_, len(new)):
            again = "fit the folder with the new files in it" if self._in_shards else "model.fit(model.comparisons())"
            warnings.warn(
                "the new answers come from people unlike those whom the model knows: log evidence "
                f"{self.refit_gain_:+.1f} for a prior learnt from them alone; learn it again: {again}",
                PriorWarning,
                stacklevel=3,
            )
        return self

    def _update_in_memory(self, new: UserRows, more: Grown) -> None:
        habits = np.full(len(more.rows), float(np.mean(self.habit_)))
        habits[more.before] = self.habit_
        rows = replace(more.rows, habits=habits if self.habit_.any() else None)
        more = more._replace(rows=rows)
        gain = gain_of_refit(self._fitted, new)
        fitted = taken_in(self._fitted, more)
        own = None
        if "own_theta_" in self.__dict__:  # known of those who said nothing new
            own = np.empty((len(rows), rows.dim))
            own[more.before], own[more.who] = self.own_theta_, self._estimated(only(rows, more.who), fitted.metric)
        self._hold(rows)
        self.habit_, self.refit_gain_ = habits, gain
        self._keep(fitted)
        if own is not None:
            self.__dict__["own_theta_"] = own

    def _estimated(self, rows: UserRows, metric: Metric) -> FloatArray:
        measured = replace(rows, rows=rows.rows._replace(Z=metric.rows(rows.rows.Z)))
        return metric.preferences(estimate_users(measured, ridge=1.0 / max(self._own_variance, LIMITS.least_variance)))

    def _learn(self, rows: UserRows) -> None:
        self._in_shards = None
        lesson = self._teacher.lesson(rows)
        rows, metric, known = lesson.rows, lesson.metric, lesson.known
        data = lesson.data if len(lesson.data) == len(rows) else metric.signed(rows)
        lesson = lesson._replace(data=data)  # so that rows of a part of them are not held while all are placed

        def everybody(taught: Mixture) -> Mixture:
            if len(known) < len(rows):
                taught = settle(taught, known, data)
            return matched_by_draws(taught, data)

        chosen = everybody(lesson.chosen)
        wide = None if lesson.wide is None else finished(everybody(lesson.wide))
        temperature = temperature_of_groups(chosen, data, known) if lesson.tempered else lesson.temperature
        self.structure_, self.evidence_ = lesson.structure, lesson.evidence
        self._hold(rows)
        self.habit_ = np.zeros(len(rows)) if rows.habits is None else rows.habits
        self._keep(Fitted(finished(chosen), metric, wide, temperature))
        self._own_variance, self.refit_gain_ = lesson.own_variance, -np.inf
        self._over_pooled = lesson.over_pooled

    @property
    def _teacher(self) -> Teacher:
        return Teacher(self.metric, self.predict_for, self.random_state)

    def _keep(self, fitted: Fitted) -> None:
        self._forget()
        self._fitted = fitted
        self.theta_ = fitted.metric.preferences(fitted.mixture.mean)
        self.membership_ = fitted.mixture.weights

    def _check_parameters(self) -> None:
        if self.metric not in (*KINDS, "auto"):
            kinds = ", ".join(map(repr, KINDS))
            raise InvalidParameter(f"metric must be 'auto' or one of {kinds}; got {self.metric!r}")
        if self.predict_for not in PREDICT_FOR:
            raise InvalidParameter(
                f"predict_for must be 'auto', 'new items' or 'known items'; got {self.predict_for!r}"
            )
        if not (isinstance(self.level, float) and 0 < self.level < 1):
            raise InvalidParameter(f"level must be between 0 and 1; got {self.level!r}")
        refuse_other_random_state(self.random_state)
        refuse_other_threads(self.n_jobs)

    # -- reading what was learnt -------------------------------------------------------------------------------------

    def members(self, position: int) -> IntArray:
        """Positions of those likelier in the same group than not; everybody when people differ by degrees."""
        return np.flatnonzero(self._together(position) > 0.5)

    def neighbourhoods(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Everybody in their likeliest group, and those likeliest alone one by one, as users and members."""
        place, last = np.argmax(self.membership_, axis=1), self.membership_.shape[1] - 1
        for group in range(last):
            if len(some := np.flatnonzero(place == group)):
                yield some, some
        for user in np.flatnonzero(place == last):
            yield np.array([user]), np.array([user])

    @property
    def _groups(self) -> FloatArray:
        """(U, K) probability of each group."""
        return self.membership_[:, :-1]

    def _together(self, position: int) -> FloatArray:
        """Probability of sharing a group with each user."""
        found = self._groups @ self._groups[position]
        found[position] = 1.0
        return found

    @overload
    def neighbours(self, user: Hashable, weights: Literal[False] = False) -> LabelArray: ...

    @overload
    def neighbours(self, user: Hashable, weights: Literal[True]) -> tuple[LabelArray, FloatArray]: ...

    def neighbours(self, user: Hashable, weights: bool = False) -> LabelArray | tuple[LabelArray, FloatArray]:
        """Labels of the users whose data shape `user`'s estimate: itself first, then those most like it.

        That is the group, and everybody where people differ by degrees; `closest(user)` says how alike they are. With
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
        others = np.where(members == u, 0.0, (together * self.n_comparisons_)[members])
        share = (1.0 - own_share(model, here)) * others / above_zero(others.sum())
        share[members == u] = 1.0 - float(share.sum())
        return self.users_[members], share

    @cached_property
    def _likeness(self) -> Likeness:
        """With what is not known about everybody."""
        known = Likeness(self._users.rows, self.theta_)
        moments = known.root @ known.root.T
        known.doubt = self._of_covariances(lambda C: np.einsum("uij,ij->u", C, moments), "doubt")
        return known

    def _of_covariances(self, number: Callable[[FloatArray], FloatArray], label: str) -> FloatArray:
        """A number, or several, of each user's posterior covariance, (..., U): some users at a time, on all threads."""

        def some(users: slice) -> FloatArray:
            return number(self._fitted.covariances(users))

        with threads(self.n_jobs), single_threaded():
            every = list(pieces(len(self._users), self._users.dim**2, LIMITS.in_cache))
            return np.concatenate(for_each(some, every, label=label), axis=-1)

    def _difference(self, position: int, other: int) -> Belief:
        C = self._fitted.metric.covariance(difference_covariance(self._fitted.believed, position, other))
        return Belief.from_covariance(self.theta_[position] - self.theta_[other], C)

    def _membership(self) -> tuple[FloatArray, FloatArray]:
        if self.structure_ in ("by degrees", "unrelated"):
            return super()._membership()
        return self.membership_, self._fitted.metric.preferences(self._fitted.mixture.centres.mean)

    @about_users("user")
    def covariance(self, user: Hashable) -> FloatArray:
        """Posterior covariance of a user's preference, shape (d, d); computed when asked for."""
        return self._fitted.covariance(self.position(user))

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
        self._warn_of_miscalibration()
        return self._radii

    @cached_property
    def _radii(self) -> FloatArray:
        mean, square = self._of_covariances(
            lambda C: np.array([np.einsum("uii->u", C), np.einsum("uij,uij->u", C, C)]), "radii"
        )
        return TRUST.caution * ball_radius(mean, square, self.level)

    @cached_property
    def own_theta_(self) -> FloatArray:  # type: ignore[override]
        """Each user's preference from their own rows alone, shrunk as people's overall variance asks for."""
        check_is_fitted(self)
        with threads(self.n_jobs), single_threaded():
            return self._estimated(self._users, self._fitted.metric)

    def _warn_of_miscalibration(self) -> None:
        """Where benchmarks/coverage.py found norms underestimated: too few rows, or answers that are nearly certain."""
        users = self._users
        middle, d = float(np.median(users.counts)), users.dim
        chance = expit(super()._margins(users.rows.Z, users.owner))
        slope = float(np.average(chance * (1.0 - chance), weights=users.rows.weights))
        if middle < TRUST.thin * d:
            reason = f"users have {middle:.3g} comparisons each for {d} features (median)"
        elif slope < TRUST.certain and middle < 10 * TRUST.thin * d:
            reason = "answers are nearly certain, so that little tells how strong preferences are"
        else:
            return
        warnings.warn(
            f"radius_ may be too small: {reason}; directions and probabilities suffer less, more comparisons help",
            CalibrationWarning,
            stacklevel=4,
        )

    def _warn_of_separation(self) -> None:
        """Say so when nobody ever contradicts the fit: then nothing limits how strong preferences are but the prior."""
        users = self._users
        margin = (2.0 * users.rows.y - 1.0) * super()._margins(users.rows.Z, users.owner)
        told = (users.rows.weights > 0) & users.rows.Z.any(axis=1)
        if told.sum() > users.dim and margin[told].min() > 0 and float(np.median(margin[told])) > TRUST.confident:
            warnings.warn(
                "every answer agrees with the fit, so that nothing tells how strong preferences are: their directions "
                "stand, but probabilities near 0 and 1 rest on the prior; repeated or closer comparisons would tell",
                SeparationWarning,
                stacklevel=3,
            )

    def _margins(self, features: FloatArray, owner: IntArray) -> FloatArray:
        """Moderated margins zᵀθ / √(1 + π zᵀCz / 8): drawn towards 0 by doubt, so that probabilities are honest."""
        return self._fitted.margins(features, owner)

    def summary(self) -> Summary:
        """How alike these people are, and how sure that is; `print` says it in words."""
        check_is_fitted(self)
        grouped, more = self.structure_ == "groups", dict[str, Any]()
        if self._in_shards is not None:
            n, places, sums = self._in_shards.data.n_users, self._in_shards.counts, self._in_shards.sums
        else:
            n, membership = len(self._users), self.membership_
            places = np.bincount(np.argmax(membership, axis=1), minlength=membership.shape[1])
            uncertain = (membership.max(axis=1) < TRUST.certain_place).sum()
            sums = np.array([uncertain, self._from_others().sum(), self._users.counts.sum()])
            more = self._who_is_like_whom(self.structure_) | {"over_pooled": self._over_pooled}
            if self.habit_.any():
                more["first_side"] = float(np.mean(self.habit_)), float(np.std(self.habit_))
        return Summary(
            self.structure_,
            n,
            float(sums[2]),
            self.n_features_in_,
            tuple(sorted((int(size) for size in places[:-1] if size), reverse=True)) if grouped else (),
            int(places[-1]) if grouped else 0,
            int(sums[0]) if grouped else None,
            float(sums[1]) / n,
            None if n == 1 else self.evidence_["groups"] - self.evidence_["by degrees"],
            **more,
        )

    def _from_others(self) -> FloatArray:
        """How much of each estimate others decide, (U,); nothing where nobody is likely in the same group."""
        mixture = self._fitted.mixture
        share, found = mixture.share, np.zeros(len(mixture))
        if len(mixture) < 2 or not share.shape[1]:
            return found
        top, everybody = np.argmax(share, axis=1), np.arange(len(share))
        first, second = np.argsort(-share, axis=0, kind="stable")[:2, top]  # the likeliest members of everybody's group
        other = np.where(first == everybody, second, first)
        leaning = np.einsum("uk,uk->u", share, share[other]) > 0.5
        for piece, terms in AllTerms(mixture.users, mixture.prior.within):
            own = mixture.prior.within * np.einsum("uii->u", terms.A, dtype=np.float64) / self._users.dim
            found[piece] = np.where(leaning[piece], 1.0 - own, 0.0)
        return found

    @about_users("user", "other")
    def explain(self, user: Hashable, other: Hashable) -> Explanation:
        """Why `other` counts for `user`, or not: how sure that is, what speaks for it, and what would change it.

        `answers` and `prior` are the log odds of `user` belonging where `other` most likely does, everybody else where
        they are. Without groups, `answers` is about the two wanting exactly the same.
        """
        return explained(self, self.position(user), self.position(other))

    def _doubt_left(self, user: Hashable) -> tuple[FloatArray, FloatArray]:
        """What own answers, and everybody's, leave of the covariance before any answer, in scaled features."""
        u, mixture = self.position(user), self._fitted.mixture
        prior = mixture.prior.alone  # of somebody about whom, and about whose group, nothing is known
        own = np.eye(self._fitted.metric.dim) - prior * mixture.users.some(np.array([u])).at(prior).A[0]
        return own, mixture.person(u).covariance() / prior

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

        With `user=None` for somebody who has not answered yet, whom `label` may name: it starts from what is known
        about people in general, and asks first what tells the groups apart (rule "information", which also keeps the
        groups to which a known user may belong apart, and is quick with many features).

        >>> import numpy as np
        >>> from prefkin.data.synthetic import demo_population
        >>> people, stories = demo_population(np.random.default_rng(0))
        >>> session = PrefKin().fit(people.data).session(None, stories, label="Zoe")
        >>> for _ in range(5):
        ...     session.tell(session.ask(), True)
        >>> session
        ActiveSession(newcomer 'Zoe', 5 answers, rule 'information', no pair twice)
        >>> session.belief.chance.shape  # of each group, and of standing alone
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
            person = person_as_population(self._fitted, self.position(user), habit)
            return ActiveSession.of_newcomer(person, candidates, **settings)
        return ActiveSession.from_belief(self.belief(user), candidates, habit=habit, **settings)

    def _as_panel(self, Z: FloatArray) -> tuple[Panel, FloatArray]:
        if len(self._users) * self._fitted.metric.dim**2 > LIMITS.most_numbers:
            raise InvalidParameter(
                f"{len(self._users)} people with {self._users.dim} features are too many to plan for at once: it takes "
                "a matrix each; use a model of fewer people or features"
            )
        return everybody_at_once(self._fitted), self._fitted.metric.rows(Z)

    @cached_property
    def _population(self) -> Population:
        """Made once for all newcomers."""
        with single_threaded():
            return people_in_general(self._fitted, float(np.mean(self.habit_)) if len(self.habit_) else 0.0)

    def _of_digest(self) -> tuple[FloatArray, ...]:
        mixture, wide = self._fitted.mixture, self._fitted.wide
        prior = [np.array(each.prior[1:]) for each in (mixture, wide) if each is not None]
        return self._fitted.metric.root, mixture.share, mixture.prior.m0, *mixture.sites[:3], *prior

    @on_its_threads
    def fold_in(self, Z: ArrayLike | None = None, y: ArrayLike | None = None) -> FoldedIn:
        """Place a new user, everybody else fixed; without answers, somebody of whom nothing is known.

        >>> import numpy as np
        >>> from prefkin.data.synthetic import demo_population
        >>> model = PrefKin().fit(demo_population(np.random.default_rng(0))[0].data)
        >>> anybody = model.fold_in()
        >>> anybody.predict_proba(np.eye(model.n_features_in_)).shape
        (6, 2)
        """
        check_is_fitted(self)
        model = self if self._in_shards is None else self._in_shards.only([])
        fitted, belief, own = model._fitted, model._population.nobody, np.zeros(self.n_features_in_)
        if Z is not None or y is not None:
            new = self._newcomer(Z, y)
            belief, data = model._population.belief(new.rows.Z, new.rows.y), fitted.metric.signed(new)
            rows = Rows(data.X, np.ones(len(data.X)), data.weights)
            own = fitted.metric.preferences(fit_preference(rows, ridge=1.0 / fitted.mixture.prior.alone))
        joined = self.users_[self._groups @ group_chances(fitted, belief) > 0.5]
        C = belief.covariance
        radius = TRUST.caution * float(ball_radius(np.trace(C), (C * C).sum(), self.level))
        return FoldedIn(belief.mean, joined, radius, own, C, fitted.temperature)

    # -- on disk -----------------------------------------------------------------------------------------------------

    def _to_file(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return written(self)

    @classmethod
    def from_file(cls, about: dict[str, Any], labels: Any, arrays: dict[str, Any]) -> PrefKin:
        """What `save` wrote."""
        return restored(
            cls(**{name: about[name] for name in ("metric", "level", "n_jobs", "random_state")}), about, labels, arrays
        )


def _refuse_nothing(rows: UserRows) -> None:
    """With no difference in any feature there is nothing to learn, not even how unsure to be."""
    if not (rows.rows.Z.any(axis=1) & (rows.rows.weights > 0)).any():
        raise InvalidComparisons(
            "all comparisons show the same features on both sides, so that they teach nothing; "
            "check how the features were made"
        )
