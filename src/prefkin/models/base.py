"""What every fitted model offers, whatever decided who is pooled with whom.

A model is an estimate θ_u per user, the rows that shaped it, and how far it may be wrong. From these follow
probabilities, policies, questions and files, so they are written once, here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from prefkin.data.arrays import FloatArray, IntArray, LabelArray, above_zero
from prefkin.data.candidates import Candidates
from prefkin.data.checks import in_file
from prefkin.data.comparisons import Comparisons
from prefkin.data.digest import digest
from prefkin.data.rows import Rows
from prefkin.data.storage import label_from_json
from prefkin.decide.belief import Belief
from prefkin.decide.plan import Panel, planned
from prefkin.decide.policy import Policy, greedy_policy, safest_policy
from prefkin.decide.rules.pairs import Question
from prefkin.decide.rules.pool import Pool
from prefkin.decide.session import ActiveSession
from prefkin.decide.states import fingerprint, read_state
from prefkin.errors import InvalidParameter, SessionError
from prefkin.execution.blas import single_threaded
from prefkin.inference.information import information_matrix
from prefkin.models.calls import about_users, as_fitted, generator, on_its_threads, refuse_a_second_label
from prefkin.models.coverage import CoverageMap, coverage_map
from prefkin.models.files import KINDS, write_model_file
from prefkin.models.given import Given
from prefkin.models.likeness import Closest, Group, Likeness, groups_of
from prefkin.models.reports import Alike, Summary, counted

MOST_PESSIMISM = 1e6
PAIRS_OF_PEOPLE = 3  # in a summary
IN_CACHE = 2**18  # numbers of θ that are laid beside rows at a time
SMALL = 64  # features up to which a product with one row is never divided among threads

__all__ = ["PreferenceModel"]


class PreferenceModel(Given, ClassifierMixin, BaseEstimator):
    """Base of the estimators: a scikit-learn classifier of "the first one is preferred", with users as metadata."""

    own_theta_: FloatArray  # (U, d)
    radius_: FloatArray  # (U,)
    theta_: FloatArray  # (U, d)
    refit_gain_: float = -np.inf  # log evidence for a refit after `update`, where a method weighs it

    has_posterior: ClassVar[bool] = False
    """Does it know how sure it is of everybody (`covariance`), what people are like in general (`fold_in()`,
    `session(None, ...)`), and what an answer of one person tells about others (`plan_questions`)?"""
    fits_shards: ClassVar[bool] = False
    """Can it be fitted to what `open_comparisons` returns?"""
    sums_up_shards: ClassVar[bool] = False
    """Has it a `summary` then, too?"""

    _in_shards: Any = None  # people who are in shards, not in memory
    _columns: ClassVar[tuple[str, ...]] = ()  # attributes that are read from there when they are asked for

    def __getattr__(self, name: str) -> Any:
        """What is in shards is read when it is asked for, of everybody."""
        if self._in_shards is not None and name in self._columns:
            return self._in_shards.column(name)
        if self._in_shards is not None and name in ("_users", "_fitted", "_learnt", "graph_"):
            raise InvalidParameter(
                "this is about everybody together, and these people are in shards, not in memory; ask about them one "
                "by one, or fit some of the files"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- what a method decides ---------------------------------------------------------------------------------------

    @abstractmethod
    def fit(self, Z: Any, y: Any = None, users: Any = None, sample_weight: Any = None, positive: Any = None) -> Self:
        """Learn every user's preference."""

    @abstractmethod
    def members(self, position: int) -> IntArray:
        """Positions of the users whose rows shape the estimate of the user at `position`."""

    def _prior(self) -> tuple[float, float]:
        """Ridge λ and slope κ of the information matrix, of methods that are made of one."""
        raise NotImplementedError

    @abstractmethod
    def width(self, user: Hashable) -> float:
        """β̃_u: how far the estimate may be off, in the norm of `information(user)`."""

    # -- reading what was learnt -------------------------------------------------------------------------------------

    @overload
    def neighbours(self, user: Hashable, weights: Literal[False] = False) -> LabelArray: ...

    @overload
    def neighbours(self, user: Hashable, weights: Literal[True]) -> tuple[LabelArray, FloatArray]: ...

    @about_users("user")
    def neighbours(self, user: Hashable, weights: bool = False) -> LabelArray | tuple[LabelArray, FloatArray]:
        """Labels of the users whose data shape `user`'s estimate, itself included.

        With `weights=True` also how much: each one's share of the comparisons that are used.
        """
        members = self.members(self.position(user))
        if not weights:
            return self.users_[members]
        counts = self._users.counts[members]
        return self.users_[members], counts / above_zero(counts.sum())

    def together(self, user: Hashable) -> FloatArray:
        """How surely everybody belongs together with `user`, (U,): 0 or 1 where a method has no probabilities for it.

        >>> from prefkin import OffC2PL
        >>> model = OffC2PL(gamma=0.0).fit([[0.5], [1.0], [-1.0]], [1, 1, 1], users=["ann", "bo", "cy"])
        >>> model.together("bo").tolist()
        [0.0, 1.0, 0.0]
        """
        return self._together(self.position(user))

    def _together(self, position: int) -> FloatArray:
        return np.isin(np.arange(len(self.users_)), self.members(position)).astype(np.float64)

    @about_users("user")
    def closest(self, user: Hashable, n: int = 10) -> Closest:
        """The `n` people whose preferences are most like those of `user`, and how sure that is; `print` shows them.

        Takes time in proportion to the number of people. Whether they form groups does not matter.

        >>> import numpy as np
        >>> from prefkin import PrefKin
        >>> from prefkin.data.synthetic import demo_population
        >>> model = PrefKin().fit(demo_population(np.random.default_rng(0))[0].data)
        >>> closest = model.closest("Ada", n=3)
        >>> len(closest.labels), bool(closest.probability[0] > 0.5)
        (3, True)
        """
        u = self.position(user)
        if not isinstance(n, Integral) or n < 1:
            raise InvalidParameter(f"n must be a whole number of at least 1; got {n!r}")
        return self._likeness.closest(u, int(n), self.users_, self._difference)

    def nearest(self) -> tuple[LabelArray, FloatArray]:
        """Everybody's closest person, and the share of pairs in which both would choose alike; in about linear time.

        Of several who are almost as close, another one may be given. Nobody (None) where there is but one user.

        >>> from prefkin import OffC2PL
        >>> OffC2PL(gamma=0.0).fit([[0.5], [1.0], [-1.0]], [1, 1, 1], users=["ann", "bo", "cy"]).nearest()[0].tolist()
        ['bo', 'ann', 'ann']
        """
        check_is_fitted(self)
        if len(self._users) == 1:
            return np.array([None], dtype=object), np.full(1, np.nan)
        likeness = self._likeness
        other = likeness.nearest()
        agreement = [float(likeness.agreement(u, other[[u]])[0]) for u in range(len(other))]
        return self.users_[other], np.array(agreement)

    @cached_property
    def _likeness(self) -> Likeness:
        return Likeness(self._users.rows, self.theta_)

    def _difference(self, position: int, other: int) -> Belief:
        """What is believed about θ_u − θ_v."""
        one, two = map(self.belief, self.users_[[position, other]].tolist())
        return Belief.from_covariance(one.mean - two.mean, one.covariance + two.covariance)

    @property
    def groups_(self) -> tuple[Group, ...]:
        """The groups that were found, largest first: label, members, centre, and what they like in a few words.

        Nothing where people differ by degrees or have little in common, and for OffC2PL, whose neighbourhoods overlap.

        >>> import numpy as np
        >>> from prefkin import PrefKin
        >>> from prefkin.data.synthetic import demo_population
        >>> model = PrefKin().fit(demo_population(np.random.default_rng(0))[0].data)
        >>> print(model.groups_[0])
        group 0, 8 people: likes short; dislikes detailed
        """
        check_is_fitted(self)
        membership, centres = self._membership()
        found = groups_of(self.users_, membership, centres, self._users.rows, self.feature_names_)
        return tuple(sorted(found, key=lambda group: (-len(group), group.label)))

    def _membership(self) -> tuple[FloatArray, FloatArray]:
        """Probability of each group, (U, K or more), and the groups' centres, (K, d)."""
        return np.empty((len(self._users), 0)), np.empty((0, self._users.dim))

    @on_its_threads
    def information(self, user: Hashable) -> FloatArray:
        """M̃_u = (λ/κ) I + Σ z zᵀ over the neighbourhood's rows, shape (d, d); computed when asked for."""
        rows, (ridge, kappa) = self._pooled_rows(user), self._prior()
        return information_matrix(rows, ridge=ridge, kappa=kappa)

    @about_users("user")
    def belief(self, user: Hashable) -> Belief:
        """θ_u and, as its covariance, the inverse of `information(user)`: what policies and questions are made from."""
        return Belief.from_information(self.theta_[self.position(user)], self.information(user))

    def decision_function(self, Z: ArrayLike | Comparisons, users: Any = None) -> FloatArray:
        """The log-odds of the answer `classes_[1]` for each row: with answers 0 and 1, positive when the first action
        is the one `users[i]` would prefer.
        """
        margin = self._log_odds(Z, users)
        return margin if self.classes_[1] == self.positive_ else -margin

    def _log_odds(self, Z: ArrayLike | Comparisons, users: Any) -> FloatArray:
        """Positive where the first action is preferred."""
        if "_users" not in vars(self):
            check_is_fitted(self)
        if isinstance(Z, Comparisons):
            users = Z.users if users is None else users
            Z = Z.described_by(self.feature_names_).Z
        features = self._checked_features(Z)
        if self._in_shards is not None:
            return self._in_shards.log_odds(features, users)
        owner = self._owners(users, len(features))
        if features.shape[1] <= SMALL and len(features) == 1:  # no BLAS divides that: nothing to put in order
            return self._margins(features, owner)
        with single_threaded():
            return self._margins(features, owner)

    def _margins(self, features: FloatArray, owner: IntArray) -> FloatArray:
        """θ_uᵀz of each row, u its owner."""
        margin, step = np.empty(len(features)), max(1, IN_CACHE // features.shape[1])
        for rows in (slice(start, start + step) for start in range(0, len(features), step)):
            np.einsum("ij,ij->i", features[rows], self.theta_[owner[rows]], out=margin[rows])
        return margin

    def predict_proba(self, Z: ArrayLike | Comparisons, users: Any = None) -> FloatArray:
        """Probability of each of `classes_`, shape (n, 2); with answers 0 and 1, column 1: the first is preferred."""
        margin = self.decision_function(Z, users=users)
        return np.column_stack([expit(-margin), expit(margin)])

    def predict(self, Z: ArrayLike | Comparisons, users: Any = None) -> LabelArray:
        """The likelier answer for each row."""
        larger = self.decision_function(Z, users=users) > 0
        return self.classes_[larger.astype(np.intp)]

    def score(self, X: ArrayLike, y: ArrayLike, users: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Share of answers predicted right."""
        from sklearn.metrics import accuracy_score  # a sixteenth of all that is loaded, and seldom needed

        return float(accuracy_score(y, self.predict(X, users=users), sample_weight=sample_weight))

    def summary(self) -> Summary:
        """How alike these people are; `print` says it in words."""
        check_is_fitted(self)
        if self._in_shards is not None:
            raise InvalidParameter("with users in shards neighbourhoods are computed when asked for: neighbours(user)")
        counts, n = self._users.counts, len(self._users)
        sizes, from_own = np.empty(n, dtype=np.intp), np.empty(n)
        distinct = list[int]()
        for owners, members in self.neighbourhoods():
            sizes[owners] = len(members)
            from_own[owners] = counts[owners] / above_zero(counts[members].sum())
            distinct.append(len(members))
        structure = "unrelated" if sizes.max() == 1 else "one group" if sizes.min() == n else "neighbourhoods"
        return Summary(
            structure,
            n,
            float(counts.sum()),
            self._users.dim,
            tuple(sorted((size for size in distinct if size > 1), reverse=True)),
            int((sizes == 1).sum()) if n > 1 else 0,
            None,
            float(1.0 - np.mean(from_own)),
            None,
            **self._who_is_like_whom(structure),
        )

    def _who_is_like_whom(self, structure: str) -> dict[str, Any]:
        """For the summary: groups in words, or the closest pairs of people."""
        if structure == "groups":
            return {"groups": tuple(map(str, self.groups_))}
        pairs = self._likeness.pairs_of_people(PAIRS_OF_PEOPLE) if structure in ("by degrees", "unrelated") else []
        return {"alike": tuple(self._alike(*pair) for pair in pairs)}

    def _alike(self, position: int, other: int) -> Alike:
        """How alike two people are who are each other's nearest."""
        found = self._likeness.closest(position, 1, self.users_, self._difference)
        agreement = float(self._likeness.agreement(position, np.array([other]))[0])
        one, two = self.users_[[position, other]].tolist()
        return Alike(one, two, agreement, float(found.probability[0]))

    def neighbourhoods(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Each neighbourhood there is, once: positions of the users who have it, and of its members."""
        owners: dict[bytes, list[int]] = {}
        for user in range(len(self._users)):
            owners.setdefault(self.members(user).tobytes(), []).append(user)
        for members, some in owners.items():
            yield np.array(some), np.frombuffer(members, dtype=np.intp)

    @about_users("user")
    def coverage_map(self, user: Hashable, n: int = 5) -> CoverageMap:
        """The `n` directions in which `user`'s preference is known least, in words; `print` shows a small table."""
        own, pooled = self._doubt_left(user)
        return coverage_map(user, own, pooled, self.feature_names_, n)

    def _doubt_left(self, user: Hashable) -> tuple[FloatArray, FloatArray]:
        """What own rows, and all that are used, leave of the prior: (λ/κ) M⁻¹ of each, shape (d, d)."""
        ridge, kappa = self._prior()
        own = information_matrix(self._users.of(self.position(user)), ridge=ridge, kappa=kappa)
        own_left, left = (ridge / kappa * np.linalg.inv(M) for M in (own, self.information(user)))
        return (own_left + own_left.T) / 2.0, (left + left.T) / 2.0

    def comparisons(self, user: Hashable = None) -> Comparisons:
        """What the model was fitted on, sorted by user; or one user's part of it."""
        check_is_fitted(self)
        if self._in_shards is not None:
            return self._in_shards.comparisons(user)
        every = np.arange(len(self._users)) if user is None else np.array([self.position(user)])
        rows, sizes = self._users.of_many(every.tolist()), np.diff(self._users.starts)[every]
        users = self.users_[np.repeat(every, sizes)]
        return Comparisons.from_arrays(rows.Z, rows.y, users, weights=rows.weights, feature_names=self.feature_names_)

    # -- acting on it ------------------------------------------------------------------------------------------------

    @about_users("user")
    def policy(
        self,
        user: Hashable,
        candidates: Candidates,
        pessimism: float = 1.0,
        reference: ArrayLike | None = None,
        scope: str = "policy",
    ) -> Policy:
        """The actions to recommend to `user`, and what they are worth at least.

        Parameters
        ----------
        pessimism : scales β̃_u; 0 is the greedy policy, 1 the paper's
        reference : w, the mean feature against which a policy is valued; 0 unless given. It matters: unlike the
            paper says, other references give other policies.
        scope : "policy" values a policy as a whole, as the paper does; "context" plays safe in each context alone
        """
        u = self.position(user)
        if not isinstance(pessimism, Real) or not 0 <= pessimism <= MOST_PESSIMISM:
            raise InvalidParameter(f"pessimism must be a number from 0 to {MOST_PESSIMISM:g}; got {pessimism!r}")
        candidates = as_fitted(self, candidates)
        try:
            w = None if reference is None else np.asarray(reference, dtype=np.float64)
        except (TypeError, ValueError):
            raise InvalidParameter(f"reference must be {self.n_features_in_} numbers; got {reference!r:.40}") from None
        if pessimism == 0:
            return greedy_policy(candidates, self.theta_[u], w)
        beta = pessimism * self.width(user)
        return safest_policy(candidates, self.belief(user), beta=beta, reference=w, scope=scope)

    @about_users("user")
    def session(
        self,
        user: Hashable,
        candidates: Candidates,
        rule: str = "coverage",
        repeat: bool = False,
        random_state: Any = None,
        label: Hashable = None,
    ) -> ActiveSession:
        """Questions for `user`, warm-started from the neighbours' answers.

        Parameters
        ----------
        user : label; None for somebody who has not answered yet, of whom only PrefKin knows something
        rule : "coverage" (the paper's), "fisher", "information" or "random"
        repeat : may a pair that was answered be asked again?
        random_state : seed or generator, for rule "random"
        label : what to call a newcomer
        """
        if user is None:
            raise InvalidParameter(
                f"{type(self).__name__} knows nothing about somebody without answers: pass a user it was fitted on, "
                "or fit PrefKin, whose sessions can start with a newcomer"
            )
        refuse_a_second_label(user, label)
        rows, (ridge, kappa) = self._pooled_rows(user), self._prior()
        candidates = as_fitted(self, candidates)
        return ActiveSession(
            rows,
            candidates,
            theta=self.theta_[self.position(user)],
            ridge=ridge,
            kappa=kappa,
            rule=rule,
            repeat=repeat,
            rng=generator(random_state),
            user=user,
            model=self._digest,
        )

    def plan_questions(
        self,
        candidates: Candidates,
        budget: float,
        *,
        per_person: int | None = None,
        away: Iterable[Hashable] = (),
        costs: Mapping[Hashable, float] | None = None,
    ) -> list[tuple[Any, Question]]:
        """Whom to ask what: `budget` questions over all people together, as (user, question) in the order to ask.

        An answer also tells about those who are alike, so the next question goes to the person and the pair that take
        most from everybody's expected log-loss. Answers are not waited for: plan some, `update`, and plan again.

        Parameters
        ----------
        budget : questions; with `costs`, what they may cost together
        per_person : questions for one person at most
        away : users who cannot be asked
        costs : what a question costs, of users for whom it is not 1

        >>> import numpy as np
        >>> from prefkin import PrefKin
        >>> from prefkin.data.synthetic import demo_population
        >>> people, stories = demo_population(np.random.default_rng(0))
        >>> plan = PrefKin().fit(people.data).plan_questions(stories, 5, per_person=1)
        >>> len(plan), len({user for user, _ in plan})
        (5, 5)
        """
        check_is_fitted(self)
        candidates = as_fitted(self, candidates)
        if candidates.dim != self.n_features_in_:
            raise InvalidParameter(
                f"the candidates have {counted(candidates.dim, 'feature')}, the model has {self.n_features_in_}"
            )
        if not (isinstance(budget, Real) and 0 < budget < np.inf):
            raise InvalidParameter(f"budget must be a number above 0; got {budget!r}")
        if per_person is not None and not (isinstance(per_person, Integral) and per_person > 0):
            raise InvalidParameter(f"per_person must be a whole number above 0; got {per_person!r}")
        n = len(self.users_)
        most, price = np.full(n, np.inf if per_person is None else float(per_person)), np.ones(n)
        for user in away:
            most[self.position(user)] = 0.0
        for user, cost in ({} if costs is None else costs).items():
            if not (isinstance(cost, Real) and 0 < cost < np.inf):
                raise InvalidParameter(f"a question must cost a number above 0; for {user!r} got {cost!r}")
            price[self.position(user)] = float(cost)
        pool, labels = Pool.of(candidates), self.users_.tolist()
        with single_threaded():
            people, X = self._as_panel(pool.Z * np.float64(pool.unit))
            found = planned(people, X, float(budget), most=most, costs=price)
        return [(labels[one.person], pool.question(one.pair, one.gain)) for one in found]

    def _as_panel(self, Z: FloatArray) -> tuple[Panel, FloatArray]:  # noqa: ARG002
        """What is known about everybody together, and pairs in the same units."""
        raise InvalidParameter(
            f"{type(self).__name__} does not know what an answer of one person tells about others; fit PrefKin to plan "
            "for all, or plan for each person with model.session(user, candidates).plan(n)"
        )

    def resume_session(self, source: str | Path | dict[str, Any], candidates: Candidates) -> ActiveSession:
        """A session saved with `session.save(path)` or `session.state()`, ready to go on."""
        state = read_state(source)
        user, label = (label_from_json(state.get(name)) for name in ("user", "label"))
        rule, repeat = str(state.get("rule")), bool(state.get("repeat"))
        with in_file(source):
            session = self.session(user, candidates, rule=rule, repeat=repeat, label=label if user is None else None)
            self._refuse_earlier(state, session)
            session.restore(state)
        return session

    def _refuse_earlier(self, state: dict[str, Any], session: ActiveSession) -> None:
        """A session with this model as it was before `prefkin update`."""
        mine, past = str(state.get("fingerprint")), getattr(self, "_past", {})
        about = session.user, session.label, session.candidates
        earlier = {fingerprint(model, *about) for model in past.get("models", [])}
        if mine in earlier - {session.state()["fingerprint"]}:
            heard = past.get("sessions", {}).get(mine, 0) == len(state["log"])
            raise SessionError(
                "the model has been updated since; "
                + (
                    "the answers of this session are in it: "
                    if heard
                    else "take these answers in by prefkin update, then "
                )
                + "begin a new session, in a new file (--state)"
            )

    @cached_property
    def _digest(self) -> str:
        """Which model this is, also after it was saved and loaded: its data and what was learnt."""
        Z, y, weights = self._users.rows
        return digest(type(self).__name__, Z, y, weights, self._users.starts.astype(np.int64), *self._of_digest())

    def _of_digest(self) -> tuple[FloatArray, ...]:
        """Arrays that a model file holds to the last digit."""
        return (self.theta_,)

    # -- on disk -----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path | BinaryIO) -> None:
        """Write the fitted model, with its comparisons, to one file; `prefkin.load(path)` reads it back.

        With users in shards `path` is a folder, and the comparisons stay where they are.
        """
        check_is_fitted(self)
        if self._in_shards is not None:
            self._in_shards.save(path, getattr(self, "_past", {}))
            return
        (given, rows), (learnt, arrays) = self._for_file(), self._to_file()
        kind = next(each.__name__ for each in type(self).__mro__ if each.__name__ in KINDS)
        write_model_file(path, kind, given | learnt, self.users_, rows | arrays)

    @abstractmethod
    def _to_file(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What was learnt, as plain values and arrays, to be read by `from_file`."""

    # -- data in -----------------------------------------------------------------------------------------------------

    def update(self, Z: Any, y: Any = None, users: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002
        """New answers, and new users, without learning everybody again; this method cannot."""
        raise InvalidParameter(
            f"{type(self).__name__} cannot take in new answers one by one: fit it again on all comparisons, or fit "
            "PrefKin or OffC2PL, which can"
        )

    def position(self, user: Hashable) -> int:
        """Where `user` stands in `users_` and the arrays beside it."""
        check_is_fitted(self)
        return int(self._in_shards.position(user)) if self._in_shards is not None else self._users.index(user)

    def _pooled_rows(self, user: Hashable) -> Rows:
        members = self.members(self.position(user))  # says so when nothing is fitted
        return self._users.of_many(members)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
