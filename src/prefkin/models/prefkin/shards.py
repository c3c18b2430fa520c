"""PrefKin with more people than memory holds: the prior from a sample, everybody else shard by shard.

The steps of `settling` are taken in every shard by whoever the executor sends there; a shard's outcome is a file, and
sums are added in the order of shards. So the answer does not depend on who did what, and a run that was killed goes on
with the files there are. What is known about a user is a row in a Parquet shard; a question about some users is asked
of a model in memory that holds these users alone, with everybody else known by the sums over them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from prefkin.data.arrays import FloatArray, IntArray, LabelArray
from prefkin.data.comparisons import Comparisons
from prefkin.data.dependence import effective_weights
from prefkin.data.digest import digest
from prefkin.data.folds import only
from prefkin.data.rows import UserRows, consecutive
from prefkin.data.shards import ShardedComparisons, Table, replaced, shard_name
from prefkin.data.storage import held_alone, write_atomically
from prefkin.errors import InvalidComparisons, InvalidParameter, ShardError
from prefkin.execution.blas import single_threaded
from prefkin.execution.executor import over_shards, threads
from prefkin.execution.usage import keep_freed_memory
from prefkin.inference.information import ball_radius
from prefkin.inference.propagation import Sites, above_zero
from prefkin.inference.quadratics import STACKED_UP_TO, Signed, Terms, per_user_sum
from prefkin.models.crowd_files import LATER, PEOPLE, read_crowd, write_crowd
from prefkin.models.prefkin.calibrate import Fitted, best_temperature, losses_by_temperature
from prefkin.models.prefkin.metric import Metric
from prefkin.models.prefkin.mixture import (
    Centres,
    Mixture,
    Others,
    Prior,
    alone_in,
    covariances,
    finished,
    nobody,
)
from prefkin.models.prefkin.modes import at_their_modes
from prefkin.models.prefkin.newcomer import group_chances
from prefkin.models.prefkin.settings import LIMITS, TRUST
from prefkin.models.prefkin.settling import STEPS, Loners, State, Sums, Told, a_few, finish, loners_of, settle_parts
from prefkin.models.reports import FoldedIn, Summary

if TYPE_CHECKING:
    from prefkin.models.prefkin.estimator import PrefKin
    from prefkin.models.prefkin.lesson import Lesson

__all__ = ["PeopleInShards", "Posteriors", "fit_shards", "load_crowd"]

FORMAT = 2  # of files of a run that goes on
AT_A_TIME = 512  # people read at once
Arrays = dict[str, np.ndarray[Any, Any]]


# -- arrays on disk --------------------------------------------------------------------------------------------------


def _write(file: Path, arrays: Arrays) -> None:
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    write_atomically(file, content.getvalue())


def _read(file: Path) -> Arrays:
    try:
        with np.load(file, allow_pickle=False) as archive:
            return dict(archive)
    except FileNotFoundError:
        raise ShardError(f"{file}: gone while it was needed; run again") from None
    except Exception:
        raise ShardError(f"{file}: damaged; delete it and run again") from None


def _of_share(share: FloatArray) -> Arrays:
    """Memberships, most of which are 0."""
    thin = csr_array(share)
    return {"values": thin.data, "groups": thin.indices, "begins": thin.indptr, "size": np.array(share.shape)}


def _as_share(arrays: Arrays) -> FloatArray:
    shape = tuple(arrays["size"].tolist())
    return np.asarray(csr_array((arrays["values"], arrays["groups"], arrays["begins"]), shape=shape).toarray())


def _of_state(state: State) -> Arrays:
    return {**_of_share(state.share), "sites": np.array(state.sites), "asked": state.asked}


def _as_state(arrays: Arrays) -> State:
    return State(_as_share(arrays), Sites(*arrays["sites"]), arrays["asked"])


def _of_sums(sums: Sums) -> Arrays:
    return {
        "A": sums.terms.A,
        "a": sums.terms.a,
        "level": sums.terms.level,
        "sizes": sums.sizes,
        "moved": np.array(sums.moved),
        "people": sums.people,
    }


def _as_sums(arrays: Arrays) -> Sums:
    terms = Terms(arrays["A"], arrays["a"], arrays["level"])
    return Sums(terms, arrays["sizes"], float(arrays["moved"]), arrays["people"])


def _of_groups(groups: Mixture) -> Arrays:
    """Prior, centres and sizes, to the last digit; who the members are is not in it."""
    sums, prior = groups.centres.sums, groups.prior
    numbers = np.array([*prior[1:], groups.evidence, float(groups.by_degrees)])
    both = {"mean": groups.centres.mean, "doubt": groups.centres.doubt, "sizes": groups.sizes}
    return {"A": sums.A, "a": sums.a, "level": sums.level, "m0": prior.m0, "numbers": numbers, **both}


def _as_groups(arrays: Arrays) -> Mixture:
    *scales, evidence, by_degrees = arrays["numbers"].tolist()
    sums = Terms(arrays["A"], arrays["a"], arrays["level"])
    centres, prior = Centres(sums, arrays["mean"], arrays["doubt"]), Prior(arrays["m0"], *scales)
    return nobody(centres, prior, Others(arrays["sizes"], bool(by_degrees)), evidence)


# -- work on one shard, wherever it is done --------------------------------------------------------------------------


class Task(NamedTuple):
    """A step in every shard: what is known before it, and where what is found belongs."""

    data: ShardedComparisons
    root: FloatArray  # of the metric
    step: str
    before: Path | None  # states of the step before
    after: Path  # what this step is told, and what it finds


@lru_cache(maxsize=8)
def _groups_at(file: Path) -> Mixture:
    return _as_groups(_read(file))


class PeopleOfShard:
    """The people of one shard in a metric, of whom a few are read at a time: memory that is new takes time."""

    def __init__(self, data: ShardedComparisons, root: FloatArray, number: int, *, checked: bool = True) -> None:
        self.data, self.metric, self.number = data, Metric(root), number
        self.checked = checked  # by the first step
        self.labels, sizes = data.sizes(number)
        self.starts: IntArray = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        self.held: tuple[int, UserRows] | None = None  # from which position on

    def __len__(self) -> int:
        return len(self.labels)

    def between(self, users: slice) -> Signed:
        """At consecutive positions."""
        return self.metric.signed(consecutive(*self._rows(users)))

    def some(self, users: IntArray) -> Signed:
        """At these positions, in order."""
        around = slice(int(users[0]), int(users[-1]) + 1)
        return self.metric.signed(self.data.between(self.number, around, users - users[0], checked=self.checked))

    def rows_of(self, users: IntArray) -> IntArray:
        """Where their rows are among those of the shard."""
        return np.concatenate([np.arange(self.starts[u], self.starts[u + 1]) for u in users])

    def _rows(self, users: slice) -> tuple[UserRows, slice]:
        """Rows among which those of these people are, and where."""
        if self.held is None or not self.held[0] <= users.start <= users.stop <= self.held[0] + len(self.held[1]):
            last = min(max(users.stop, users.start + AT_A_TIME), len(self))
            self.held = users.start, self.data.between(self.number, slice(users.start, last), checked=self.checked)
        first, rows = self.held
        return rows, slice(users.start - first, users.stop - first)


def take_step(task: Task, number: int) -> None:
    """One shard's state after the step, and the sums over its people."""
    keep_freed_memory()
    with threads(1), single_threaded():
        own = _read(task.after / f"told-{number}.npz")
        told = Told(_groups_at(task.after / "told.npz"), own["kept"], own["who"], own["share"])
        state = None if task.before is None else _as_state(_read(task.before / f"state-{number}.npz"))
        people = PeopleOfShard(task.data, task.root, number, checked=task.before is not None)
        state, sums = STEPS[task.step](people, state, told)
        _write(task.after / f"state-{number}.npz", _of_state(state))
        _write(task.after / f"sums-{number}.npz", _of_sums(sums))  # last: a shard that has sums is done


class Finish(NamedTuple):
    """The last step in every shard: posteriors, as they are looked up later."""

    data: ShardedComparisons
    root: FloatArray
    level: float
    tempered: bool
    states: tuple[Path, ...]  # of the mixture, and of a wider one where there is one
    groups: tuple[Path, ...]
    people: Path


class Posteriors(NamedTuple):
    """Of some people, as they are looked up later."""

    counts: FloatArray  # (n,) comparisons, by weight
    theta: FloatArray  # (n, d)
    size: FloatArray  # (n,) tr C, of which radii are made
    square: FloatArray  # (n,) tr C²
    weights: FloatArray  # (n, K + 1)
    from_others: FloatArray  # (n,)
    sites: FloatArray  # (3, rows), or 6 of them where there is a wider mixture
    loss: FloatArray  # at each temperature

    @classmethod
    def of(cls, fitted: Fitted, data: Signed, tempered: bool) -> Posteriors:
        """Covariances are made once."""
        mixture, wide, metric = fitted.mixture, fitted.wide, fitted.metric
        C = covariances(mixture, slice(None)) if tempered and data.dim <= STACKED_UP_TO else None
        known = fitted.covariances(slice(None)) if C is None or wide is not None else metric.covariance(C)
        terms = mixture.terms_of(np.arange(len(data))) if mixture.terms is None else mixture.terms
        own = np.einsum("uii->u", terms.A, dtype=np.float64)
        from_others = 1.0 - mixture.prior.within * own / data.dim
        return cls(
            per_user_sum(data.weights, data.starts),
            metric.preferences(mixture.mean),
            np.einsum("uii->u", known),
            np.einsum("uij,uij->u", known, known),
            mixture.weights,
            np.where(mixture.share.max(axis=1, initial=0.0) > 0.5, from_others, 0.0),
            np.array([site for each in (mixture, wide) if each is not None for site in each.sites[:3]]),
            losses_by_temperature(mixture, data, C) if tempered else np.zeros(1),
        )

    @classmethod
    def joined(cls, parts: Sequence[Posteriors]) -> Posteriors:
        """One after the other."""
        found = {name: [getattr(part, name) for part in parts] for name in cls._fields}
        sites, loss = np.concatenate(found.pop("sites"), axis=1), np.sum(found.pop("loss"), axis=0)
        return cls(**{name: np.concatenate(each) for name, each in found.items()}, sites=sites, loss=loss)

    def table(self, labels: LabelArray, starts: IntArray, level: float) -> Table:
        """A row each."""
        place, (n, columns) = np.argmax(self.weights, axis=1), self.weights.shape
        thin = csr_array(self.weights[:, :-1])
        begins = thin.indptr.tolist()
        return {
            "user": labels,
            "comparisons": self.counts,
            "theta": self.theta,
            "radius": TRUST.caution * ball_radius(self.size, self.square, level),
            "group": np.where(place == columns - 1, -1, place),
            "probability": self.weights[np.arange(n), place],
            "groups": [thin.indices[a:b].astype("<i4").tobytes() for a, b in pairwise(begins)],
            "shares": [thin.data[a:b].astype("<f8").tobytes() for a, b in pairwise(begins)],
            "sites": [np.ascontiguousarray(self.sites[:, a:b]).tobytes() for a, b in pairwise(starts.tolist())],
        }

    @property
    def told(self) -> Arrays:
        """Sums over them: likeliest members; how many are uncertain, what comes from others, comparisons."""
        counts = np.bincount(np.argmax(self.weights, axis=1), minlength=self.weights.shape[1])
        uncertain = float((self.weights.max(axis=1) < TRUST.certain_place).sum())
        return {"counts": counts, "sums": np.array([uncertain, self.from_others.sum(), self.counts.sum()])}


def finish_shard(task: Finish, number: int) -> None:
    """One shard's people: a row each."""
    from prefkin.data.buckets import write_table

    keep_freed_memory()
    with threads(1), single_threaded():
        people = PeopleOfShard(task.data, task.root, number)
        groups = [_groups_at(file) for file in task.groups]
        states = [_as_state(_read(folder / f"state-{number}.npz")) for folder in task.states]
        found = list[Posteriors]()
        for piece in a_few(len(people), groups[0].centres):
            some = people.between(piece)
            mixture, *wide = (
                at_their_modes(finish(some, state.between(piece, people.starts), around), some)
                for state, around in zip(states, groups, strict=True)
            )
            fitted = Fitted(mixture, Metric(task.root), wide[0] if wide else None)
            found.append(Posteriors.of(fitted, some, task.tempered))
        everybody = Posteriors.joined(found)
        write_table(task.people / shard_name(number), everybody.table(people.labels, people.starts, task.level))
        _write(task.people / f"told-{number}.npz", {**everybody.told, "loss": everybody.loss})


# -- all shards ------------------------------------------------------------------------------------------------------


class ShardParts:
    """All people, a shard each part; files of a run that was killed are taken as they are."""

    def __init__(self, data: ShardedComparisons, root: FloatArray, home: Path, labels: LabelArray, known: Mixture):
        self.data, self.root, self.home = data, root, home
        self.labels, self.known = labels, known  # those who taught the prior
        self.numbers = [number for number in range(data.n_shards) if data.users[number]]
        self.state: Path | None = None
        self.steps = 0

    def taught(self) -> list[tuple[IntArray, FloatArray]]:
        """Positions and memberships, in each shard, of those who taught the prior."""
        nothing = np.empty(0, dtype=np.intp), np.empty((0, self.known.share.shape[1]))
        found = [nothing] * self.data.n_shards
        shard = self.data.shard_of(self.labels)
        for number in np.unique(shard).tolist():
            mine = np.flatnonzero(shard == number)
            where = {label: at for at, label in enumerate(self.data.labels(number).tolist())}
            at = np.array([where[label] for label in self.labels[mine].tolist()], dtype=np.intp)
            found[number] = at, self.known.share[mine]
        return found

    def each(self, step: str, tell: Callable[[int], Told]) -> Sums:
        """Take a step in every shard that has not taken it; sums over all of them, in their order."""
        self.steps += 1
        before, self.state = self.state, self.home / f"{self.steps}-{step}"
        total = self.state / "total.npz"
        if total.exists():
            return _as_sums(_read(total))
        self.state.mkdir(parents=True, exist_ok=True)
        for number in self.numbers:
            told = tell(number)
            if number == self.numbers[0]:
                _write(self.state / "told.npz", _of_groups(told.around))
            _write(self.state / f"told-{number}.npz", {"kept": told.kept, "who": told.who, "share": told.share})
        left = [number for number in self.numbers if not (self.state / f"sums-{number}.npz").exists()]
        task = Task(self.data, self.root, step, before, self.state)
        label = f"everybody, step {self.steps} ({step})"
        over_shards(
            partial(take_step, task), left, label=label, done=len(self.numbers) - len(left), room=self.data.room
        )
        sums = self._summed()
        _write(total, _of_sums(sums))
        if before is not None:
            for file in before.glob("state-*.npz"):
                file.unlink()
        return sums

    def _summed(self) -> Sums:
        assert self.state is not None
        first, *others = (self.state / f"sums-{number}.npz" for number in self.numbers)
        sums = _as_sums(_read(first))
        for file in others:
            sums = sums + _as_sums(_read(file))
        return sums

    def loners(self, around: Mixture, most: int) -> Loners:
        """So many of those who are alone, spread evenly by label."""
        assert self.state is not None
        file = self.state / "loners.npz"
        if file.exists():
            kept = _read(file)
            terms = Terms(kept["A"], kept["a"], kept["level"])
            return Loners(kept["part"], kept["position"], terms, kept["share"])
        most = max(min(most, self.data.memory // (64 * len(around.prior.m0) ** 2)), 2)
        found: list[tuple[Hashable, int, int]] = []
        for number in self.numbers:
            alone = np.flatnonzero(alone_in(_as_share(_read(self.state / f"state-{number}.npz"))) > 0.5)
            if len(alone):
                labels = self.data.labels(number)[alone].tolist()
                found += zip(labels, [number] * len(alone), alone.tolist(), strict=True)
        found.sort(key=lambda each: each[0])  # type: ignore[arg-type, return-value]
        chosen = [found[at] for at in np.linspace(0, len(found) - 1, min(len(found), most)).astype(int)]
        parts, order = list[Loners](), list[int]()
        for number in sorted({number for _, number, _ in chosen}):
            mine = [i for i, each in enumerate(chosen) if each[1] == number]
            at = np.array([chosen[i][2] for i in mine], dtype=np.intp)
            state = _as_state(_read(self.state / f"state-{number}.npz"))
            with single_threaded():
                parts.append(loners_of(PeopleOfShard(self.data, self.root, number), state, at, around.prior, number))
            order += mine
        loners = _joined(parts, np.argsort(order), around)
        terms = loners.terms
        arrays = {"A": terms.A, "a": terms.a, "level": terms.level, "share": loners.share}
        _write(file, {"part": loners.part, "position": loners.position, **arrays})
        return loners


def _joined(parts: Sequence[Loners], order: IntArray, around: Mixture) -> Loners:
    K, d = around.centres.mean.shape
    if not parts:
        nothing = Terms(np.empty((0, d, d)), np.empty((0, d)), np.empty(0))
        return Loners(np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp), nothing, np.empty((0, K)))
    part, position, share = (
        np.concatenate([getattr(each, name) for each in parts])[order] for name in ("part", "position", "share")
    )
    A, a, level = (np.concatenate([getattr(each.terms, name) for each in parts])[order] for name in ("A", "a", "level"))
    return Loners(part, position, Terms(A, a, level), share)


def fit_shards(model: PrefKin, data: ShardedComparisons) -> PeopleInShards:
    """Everybody in the shards; what a former run of the same fit finished is taken as it is."""
    data.refuse_if_changed()
    told = (model.metric, model.predict_for, model.level, _seed(model), _sample_size(data), FORMAT)
    home = data.home / "fits" / digest(json.dumps([data.fingerprint, *told]))
    home.mkdir(parents=True, exist_ok=True)
    with held_alone(home):
        return _fitted(model, data, home)


def _fitted(model: PrefKin, data: ShardedComparisons, home: Path) -> PeopleInShards:
    lesson = home / "lesson.npz"
    if not lesson.exists():
        rows = _sample(data)
        _refuse_rankings(data, rows)
        _write(lesson, _of_lesson(model._teacher.lesson(rows)))
    taught = _read(lesson)
    about = json.loads(str(taught["about"]))
    root, labels = taught["root"], taught["labels"]
    labels = labels if data.integers else labels.astype(object)
    everybody = len(labels) == data.n_users
    states, groups = list[Path](), list[Path]()
    for name in ("chosen", "wide") if about["wide"] else ("chosen",):
        known = _known(taught, name)
        parts = ShardParts(data, root, home / name, labels, known)
        around = _as_they_are(parts, known, taught["rows"]) if everybody else settle_parts(parts, known)
        assert parts.state is not None
        states.append(parts.state)
        groups.append(home / f"{name}.npz")
        _write(groups[-1], _of_groups(around))
    people = home / PEOPLE
    people.mkdir(exist_ok=True)
    numbers = parts.numbers
    left = [number for number in numbers if not (people / f"told-{number}.npz").exists()]
    task = Finish(data, root, model.level, about["tempered"], tuple(states), tuple(groups), people)
    over_shards(partial(finish_shard, task), left, label="posteriors", done=len(numbers) - len(left), room=data.room)
    found = [_read(people / f"told-{number}.npz") for number in numbers]
    loss = sum(each["loss"] for each in found)
    counts, sums = (sum(each[name] for each in found) for name in ("counts", "sums"))
    return PeopleInShards(
        data,
        people,
        model.get_params(),
        Metric(root),
        tuple(_groups_at(file) for file in groups),
        best_temperature(np.asarray(loss)) if about["tempered"] else float(about["temperature"]),
        about["structure"],
        {name: -np.inf if value is None else float(value) for name, value in about["evidence"].items()},
        float(about["own_variance"]),
        np.asarray(counts),
        np.asarray(sums),
    )


def _seed(model: PrefKin) -> int | None:
    if not isinstance(model.random_state, int | None):
        raise InvalidParameter("with people in shards random_state must be None or a number, so that a run can go on")
    return model.random_state


def _sample_size(data: ShardedComparisons) -> int:
    """People from whom the prior is learnt: as many as half of the memory holds with all that is made of them."""
    rows = data.n_comparisons / data.n_users
    each = 8.0 * (4.0 * rows * data.dim + 4.0 * data.dim**2)
    return max(
        min(LIMITS.most_crowd, data.n_users, int(0.5 * data.memory / each)), min(data.n_users, LIMITS.most_users)
    )


def _sample(data: ShardedComparisons) -> UserRows:
    """The people of the first shards: a hash brought them there, so that they are anybody."""
    wanted = _sample_size(data)
    enough = int(np.searchsorted(np.cumsum(data.users), wanted)) + 1
    rows = data.shards(range(min(enough, data.n_shards)))
    if len(rows) > wanted:
        rows = only(rows, np.linspace(0, len(rows) - 1, wanted).astype(int))
    return UserRows(rows.rows._replace(Z=rows.rows.Z.astype(np.float64)), rows.starts, rows.labels, rows.contexts)


def _refuse_rankings(data: ShardedComparisons, rows: UserRows) -> None:
    if not data.weighted and effective_weights(rows) is not None:
        raise InvalidComparisons(
            f"{data.source}: rows look like all pairs of rankings or ratings: nobody ever contradicts themselves; "
            "add a column weight (1 for each, if they are answers)"
        )
    if not (rows.rows.Z.any(axis=1) & (rows.rows.weights > 0)).any():
        raise InvalidComparisons(
            f"{data.source}: comparisons show the same features on both sides, so that they teach nothing; "
            "check how the features were made"
        )


def _of_lesson(lesson: Lesson) -> Arrays:
    about = {
        "temperature": lesson.temperature,
        "tempered": bool(lesson.tempered),
        "structure": lesson.structure,
        "evidence": {name: value if np.isfinite(value) else None for name, value in lesson.evidence.items()},
        "own_variance": lesson.own_variance,
        "wide": lesson.wide is not None,
    }
    found: Arrays = {
        "about": np.array(json.dumps(about)),
        "root": lesson.metric.root,
        "labels": np.array(lesson.rows.labels[lesson.known].tolist()),
    }
    for name, mixture in (("chosen", lesson.chosen), ("wide", lesson.wide)):
        if mixture is not None:
            found |= {f"{name}.{part}": values for part, values in _of_groups(mixture).items()}
            found |= {f"{name}.share": mixture.share, f"{name}.sites": np.array(mixture.sites)}
    starts = lesson.rows.starts
    found["rows"] = np.diff(starts)[lesson.known]
    return found


def _known(taught: Arrays, name: str) -> Mixture:
    """Those who taught the prior, with their memberships and sites but without their rows."""
    parts = {part.removeprefix(f"{name}."): values for part, values in taught.items() if part.startswith(f"{name}.")}
    around = _as_groups(parts)
    return Mixture(
        around.users,
        parts["share"],
        np.empty((0, len(around.prior.m0))),
        around.prior,
        around.centres,
        Sites(*parts["sites"]),
        around.evidence,
        None,
        Others(around.sizes - parts["share"].sum(axis=0), around.by_degrees),
    )


def _as_they_are(parts: ShardParts, known: Mixture, sizes: IntArray) -> Mixture:
    """Everybody taught the prior: nobody is left to be placed."""
    parts.state = parts.home / "known"
    parts.state.mkdir(parents=True, exist_ok=True)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    shard = parts.data.shard_of(parts.labels)
    where = {label: at for at, label in enumerate(parts.labels.tolist())}
    for number in np.unique(shard).tolist():
        mine = np.array([where[label] for label in parts.data.labels(number).tolist()], dtype=np.intp)
        rows = np.concatenate([np.arange(begins[u], begins[u + 1]) for u in mine])
        state = State(known.share[mine], known.sites.of(rows), np.zeros(len(mine), dtype=bool))
        _write(parts.state / f"state-{number}.npz", _of_state(state))
    return nobody(known.centres, known.prior, Others(known.sizes, known.by_degrees), known.evidence)


# -- what is known about people in shards ----------------------------------------------------------------------------


class PeopleInShards:
    """Everybody, on disk: behind every method of a fitted `PrefKin` whose people are not in memory."""

    def __init__(
        self,
        data: ShardedComparisons,
        people: Path,
        parameters: dict[str, Any],
        metric: Metric,
        groups: tuple[Mixture, ...],
        temperature: float,
        structure: str,
        evidence: dict[str, float],
        own_variance: float,
        counts: IntArray,
        sums: FloatArray,
        later: Path | None = None,
    ) -> None:
        self.data, self.people, self.parameters, self.metric, self.groups = data, people, parameters, metric, groups
        self.temperature, self.structure, self.evidence, self.own_variance = (
            temperature,
            structure,
            evidence,
            own_variance,
        )
        self.counts = counts  # likeliest members of each group, and last those alone
        self.sums = sums  # people whose place is uncertain, what comes from others, comparisons
        self.later = later  # where those are who answered more since; they and what all share are no longer the same
        self.read: dict[str, Any] = {}

    @property
    def _numbers(self) -> list[int]:
        return [number for number in range(self.data.n_shards) if self.data.users[number]]

    def _tables(self, columns: list[str], only: LabelArray | None = None) -> list[Table]:
        shard = np.empty(0, dtype=np.intp) if only is None else self.data.shard_of(only)
        numbers = range(self.data.n_shards) if only is None else np.unique(shard).tolist()
        return [
            table
            for number in numbers
            for table in self._in_shard(number, columns, None if only is None else only[shard == number])
        ]

    def _in_shard(self, number: int, columns: list[str], only: LabelArray | None = None) -> list[Table]:
        """People of one shard: those who did not answer since, and those who did."""
        from prefkin.data.buckets import read_table

        columns = list(dict.fromkeys(["user", *columns]))
        tables = [read_table(self.people / shard_name(number), columns, only)] if self.data.users[number] else []
        if self.later is not None and (file := self.later / PEOPLE / shard_name(number)).exists():
            return replaced(tables, read_table(file, columns, only))
        return tables

    def _anew(self, name: str) -> list[FloatArray]:
        """An attribute of everybody, shard after shard, as it is now that groups have changed."""
        labels = (
            [label for table in self._in_shard(k, []) for label in np.asarray(table["user"]).tolist()]
            for k in range(self.data.n_shards)
        )
        models = ((self.only(each), each) for each in labels if each)
        return [getattr(model, name)[[model._users.index(label) for label in each]] for model, each in models]

    def column(self, name: str) -> Any:
        """Of everybody, shard after shard; read once."""
        if name not in self.read:
            if name == "membership_":
                share = np.concatenate([self._shares(table) for table in self._tables(["groups", "shares"])])
                self.read[name] = np.column_stack([share, alone_in(share)])
            elif self.later is not None and name in ("theta_", "radius"):
                self.read[name] = np.concatenate(self._anew({"radius": "_radii"}.get(name, name)))
            else:
                stored = {"users_": "user", "theta_": "theta", "n_comparisons_": "comparisons"}.get(name, name)
                self.read[name] = np.concatenate([np.asarray(table[stored]) for table in self._tables([stored])])
        return self.read[name]

    def position(self, user: Hashable) -> int:
        """Where somebody stands in what `column` reads."""
        if "positions" not in self.read:
            self.read["positions"] = {label: at for at, label in enumerate(self.column("users_").tolist())}
        self.data.refuse_strangers([user])
        return int(self.read["positions"][user])

    def _shares(self, table: Table) -> FloatArray:
        share = np.zeros((len(table["groups"]), len(self.groups[0].sizes)))
        for row, (groups, values) in enumerate(zip(table["groups"], table["shares"], strict=True)):
            share[row, np.frombuffer(groups, "<i4")] = np.frombuffer(values, "<f8")
        return share

    def only(self, users: Sequence[Hashable]) -> PrefKin:
        """A model in memory that holds these users alone; everybody else is known by the sums over them."""
        from prefkin.models.prefkin.estimator import PrefKin

        self.data.refuse_if_changed()
        rows = self.data.of(users)
        rows = UserRows(rows.rows._replace(Z=rows.rows.Z.astype(np.float64)), rows.starts, rows.labels, rows.contexts)
        model = PrefKin(**self.parameters)
        model._users, model.users_, model.n_comparisons_ = rows, rows.labels, rows.counts
        model.habit_, model._own_variance = np.zeros(len(rows)), self.own_variance
        model.structure_, model.evidence_ = self.structure, self.evidence
        model.classes_, model.positive_ = np.array([0, 1]), 1
        model.n_features_in_, model.feature_names_ = self.data.dim, self.data.feature_names
        if len(rows):
            tables = self._tables(["user", "radius", "groups", "shares", "sites"], rows.labels)
            labels = np.concatenate([np.asarray(table["user"]) for table in tables])
            order = np.argsort(labels, kind="stable")
            blobs = [blob for table in tables for blob in table["sites"]]
            sizes = np.diff(rows.starts)
            whole = np.concatenate(
                [np.frombuffer(blobs[at], "<f8").reshape(-1, n) for at, n in zip(order, sizes.tolist(), strict=True)],
                axis=1,
            )
            share = np.concatenate([self._shares(table) for table in tables])[order]
            radius = np.concatenate([np.asarray(table["radius"]) for table in tables])[order]
            if self.later is None:
                model.__dict__["radius_"] = model.__dict__["_radii"] = radius
        else:
            whole, share = np.empty((3 * len(self.groups), 0)), np.empty((0, len(self.groups[0].sizes)))
        data = self.metric.signed(rows)
        every, shares = np.zeros(len(rows), dtype=bool), (share, np.ones((len(rows), 1)))
        with single_threaded():
            mixture, *wide = (
                finished(finish(data, State(shares[k], Sites.kept(*whole[3 * k : 3 * k + 3]), every), groups))
                if len(rows)
                else groups
                for k, groups in enumerate(self.groups)
            )
        model._keep(Fitted(mixture, self.metric, wide[0] if wide else None, self.temperature))
        model.__dict__["_digest"] = self.digest
        return model

    @property
    def digest(self) -> str:
        """Which model this is."""
        if "digest" not in self.read:
            learnt = [array for groups in self.groups for array in _of_groups(groups).values()]
            self.read["digest"] = digest("PrefKin", self.data.fingerprint, self.metric.root, *learnt)
        return str(self.read["digest"])

    def log_odds(self, checked: Callable[[Any], FloatArray], Z: Any, users: Any) -> FloatArray:
        """Positive where the first action is preferred; users of one shard are read together."""
        if isinstance(Z, Comparisons):
            users, Z = Z.users if users is None else users, Z.Z
        features = checked(Z)
        labels = self.data.whose(users, len(features))
        self.data.refuse_strangers(labels.tolist())
        shard, found = self.data.shard_of(labels), np.empty(len(features))
        for number in np.unique(shard).tolist():
            mine = np.flatnonzero(shard == number)
            found[mine] = self.only(labels[mine].tolist())._log_odds(features[mine], labels[mine])
        return found

    def comparisons(self, user: Hashable) -> Comparisons:
        """One user's; those of everybody are where they were."""
        self.data.refuse_everybody(user)
        return self.only([user]).comparisons()

    def _alike(self, chance: FloatArray) -> LabelArray:
        """Everybody likelier than not in the groups that are likely by these chances."""
        together = self.column("membership_")[:, :-1] @ chance
        return np.asarray(self.column("users_")[together > 0.5])

    def neighbours(self, user: Hashable, weights: bool) -> Any:
        """Labels of everybody who likelier shares a group with `user` than not; with `weights`, how much they count."""
        share = self.only([user]).membership_[0, :-1]
        together = self.column("membership_")[:, :-1] @ share
        u = self.position(user)
        together[u] = 1.0
        members = np.flatnonzero(together > 0.5)
        labels = self.column("users_")[members]
        if not weights:
            return labels
        others = np.where(members == u, 0.0, (together * self.column("n_comparisons_"))[members])
        counted = (1.0 - self.only([user])._own_share(0)) * others / above_zero(others.sum())
        counted[members == u] = 1.0 - float(counted.sum())
        return labels, counted

    def fold_in(self, Z: Any, y: Any) -> FoldedIn:
        """A newcomer among everybody."""
        model = self.only([])
        folded = model.fold_in(Z, y)
        new = model._newcomer(Z, y).rows
        belief = model._population.belief(new.Z, new.y)
        return replace(folded, neighbours=self._alike(group_chances(model._fitted, belief)))

    def summary(self) -> Summary:
        """How alike these people are."""
        grouped, (uncertain, from_others, comparisons) = self.structure == "groups", self.sums.tolist()
        sizes = tuple(sorted((int(size) for size in self.counts[:-1] if size), reverse=True))
        n = self.data.n_users
        return Summary(
            self.structure,
            n,
            comparisons,
            self.data.dim,
            sizes if grouped else (),
            int(self.counts[-1]) if grouped else 0,
            int(uncertain) if grouped else None,
            from_others / n,
            None if n == 1 else self.evidence["groups"] - self.evidence["by degrees"],
            None,
        )

    # -- on disk -----------------------------------------------------------------------------------------------------

    def save(self, folder: Any, past: dict[str, Any]) -> None:
        """A folder with a small file and the shards of people, linked where the file system can."""
        about = {
            "past": past,
            "parameters": self.parameters,
            "temperature": self.temperature,
            "structure": self.structure,
            "evidence": {name: value if np.isfinite(value) else None for name, value in self.evidence.items()},
            "own_variance": self.own_variance,
            "groups": len(self.groups),
        }
        arrays = {"root": self.metric.root, "counts": self.counts.astype(np.int64), "sums": self.sums}
        for k, groups in enumerate(self.groups):
            arrays |= {f"{k}.{name}": values for name, values in _of_groups(groups).items()}
        write_crowd(folder, "PrefKin", self.data, about, arrays, self.people, self._numbers, self.later)


def load_crowd(folder: Path) -> PrefKin:
    """What `save` wrote."""
    from prefkin.models.prefkin.estimator import PrefKin

    about, arrays, data = read_crowd(folder)
    groups = []
    for k in range(about["groups"]):
        parts = {name.removeprefix(f"{k}."): values for name, values in arrays.items() if name.startswith(f"{k}.")}
        groups.append(_as_groups(parts))
    model = PrefKin(**about["parameters"])
    model._crowd = PeopleInShards(
        data,
        folder / PEOPLE,
        about["parameters"],
        Metric(arrays["root"]),
        tuple(groups),
        float(about["temperature"]),
        str(about["structure"]),
        {name: -np.inf if value is None else float(value) for name, value in about["evidence"].items()},
        float(about["own_variance"]),
        arrays["counts"],
        arrays["sums"],
        folder / LATER if data.later is not None else None,
    )
    model._past = dict(about.get("past", {}))
    model.n_features_in_, model.feature_names_ = data.dim, data.feature_names
    model.classes_, model.positive_ = np.array([0, 1]), 1
    model.structure_, model.evidence_ = model._crowd.structure, model._crowd.evidence
    return model
