"""PrefKin with more people than memory holds: the prior from a sample, everybody else shard by shard.

The steps of `settling` are taken in every shard by whoever the executor sends there; a shard's outcome is a file, and
sums are added in the order of shards. So the answer does not depend on who did what, and a run that was killed goes on
with the files there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from functools import lru_cache, partial, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray, LabelArray
from prefkin.data.dependence import effective_weights
from prefkin.data.digest import digest
from prefkin.data.rows import Rows, UserRows, consecutive, only, spread
from prefkin.data.shards import ShardedComparisons, shard_name
from prefkin.data.storage import held_alone
from prefkin.errors import InvalidComparisons, InvalidParameter
from prefkin.execution.blas import single_threaded
from prefkin.execution.executor import over_shards
from prefkin.inference.quadratics import Signed
from prefkin.models.files import PEOPLE
from prefkin.models.prefkin.calibrate import Fitted, best_temperature
from prefkin.models.prefkin.in_shards.files import (
    SHARE,
    Arrays,
    as_groups,
    as_share,
    as_state,
    as_sums,
    as_terms,
    as_told,
    known_by,
    of_groups,
    of_lesson,
    of_state,
    of_sums,
    of_told,
    read_arrays,
    write_arrays,
)
from prefkin.models.prefkin.in_shards.people import PeopleInShards, Posteriors
from prefkin.models.prefkin.metric import Metric
from prefkin.models.prefkin.mixture import Mixture, Others, alone_in, nobody
from prefkin.models.prefkin.settings import LIMITS, PLACING
from prefkin.models.prefkin.settling import (
    STEPS,
    Alone,
    Memberships,
    State,
    Sums,
    Told,
    a_few,
    alone_of,
    finish,
    settle_parts,
)

if TYPE_CHECKING:
    from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["fit_shards"]

FORMAT = 8  # of files of a run that goes on
OF_THE_ASKED = ("move", "mode")  # steps that look only at those whom the step before asks to be looked at again
AT_A_TIME = 512  # people read at once


# -- work on one shard, wherever it is done --------------------------------------------------------------------------


class Task(NamedTuple):
    """A step in every shard: what is known before it, and where what is found belongs."""

    data: ShardedComparisons
    root: FloatArray  # of the metric
    step: str
    before: Path | None  # states of the step before
    after: Path  # what this step is told, and what it finds


@lru_cache(maxsize=8)
def _arrays_at(file: Path) -> Arrays:
    """`read_arrays` of what is the same for all shards, read once."""
    return read_arrays(file)


class PeopleOfShard:
    """The people of one shard in a metric, of whom a few are read at a time: memory that is new takes time."""

    def __init__(self, data: ShardedComparisons, root: FloatArray, number: int, *, checked: bool = True) -> None:
        self.data, self.metric, self.number = data, Metric(root), number
        self.checked = checked  # by the first step; the last one looks again
        self.labels, sizes = data.sizes(number)
        self.starts: IntArray = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        self.held: tuple[int, UserRows] | None = None  # from which position on
        self.apart: tuple[IntArray, UserRows] | None = None  # positions and rows of all who will be asked for

    def __len__(self) -> int:
        return len(self.labels)

    def between(self, users: slice) -> Signed:
        """Rows in the metric of people at consecutive positions."""
        if self.held is None or not self.held[0] <= users.start <= users.stop <= self.held[0] + len(self.held[1]):
            last = min(max(users.stop, users.start + AT_A_TIME), len(self))
            self.held = users.start, self.data.between(self.number, slice(users.start, last), checked=self.checked)
        first, rows = self.held
        return self.metric.signed(consecutive(rows, slice(users.start - first, users.stop - first)))

    def some(self, users: IntArray) -> Signed:
        """Rows in the metric of people at these positions, which are in order."""
        return self.metric.signed(self._rows(users))

    def keep(self, users: IntArray, file: Path) -> None:
        """Write the rows of those who will be asked again, so that the shard need not be read for them."""
        rows = self._rows(users)
        write_arrays(file, {"users": users, "starts": rows.starts, **rows.rows._asdict()})

    def take(self, file: Path) -> None:
        """Read what `keep` wrote, instead of the shard from now on."""
        kept = read_arrays(file)
        rows = Rows(kept["Z"], kept["y"], kept["weights"])
        self.apart = kept["users"], UserRows(rows, kept["starts"], kept["users"])

    def rows_of(self, users: IntArray) -> IntArray:
        """Where their rows are among those of the shard."""
        return np.concatenate([np.arange(self.starts[u], self.starts[u + 1]) for u in users])

    def _rows(self, users: IntArray) -> UserRows:
        """Of people at these positions, whose shard was checked before."""
        if self.apart is None:
            first, last = (int(users[0]), int(users[-1]) + 1) if len(users) else (0, len(self))
            return self.data.between(self.number, slice(first, last), users - first, checked=True)
        among, rows = self.apart
        return only(rows, np.searchsorted(among, users)) if len(users) else consecutive(rows, slice(0, 0))


def take_step(task: Task, number: int) -> None:
    """One shard's state after the step, and the sums over its people."""
    told = as_told(_arrays_at(task.after / "told.npz"), number)
    state = None if task.before is None else as_state(read_arrays(task.before / f"state-{number}.npz"))
    people = PeopleOfShard(task.data, task.root, number, checked=task.before is not None)
    if task.step in OF_THE_ASKED and task.before is not None:
        people.take(task.before / f"rows-{number}.npz")
    else:
        task.data.expect(number)
    state, sums = STEPS[task.step](people, state, told)
    if task.step != "mode":
        people.keep(np.flatnonzero(state.asked), task.after / f"rows-{number}.npz")
    write_arrays(task.after / f"state-{number}.npz", of_state(state))
    write_arrays(task.after / f"sums-{number}.npz", of_sums(sums))  # last: a shard that has sums is done


class Finish(NamedTuple):
    """The last step in every shard: posteriors, as they are looked up later."""

    data: ShardedComparisons
    root: FloatArray
    level: float
    taught: Path | None  # labels of those by whom the temperature is judged
    states: tuple[Path, ...]  # of the mixture, and of a wider one where there is one
    groups: tuple[Path, ...]
    people: Path


def finish_shard(task: Finish, number: int) -> None:
    """Write what is known in the end about one shard's people, a row each, and sums over them."""
    from prefkin.data.buckets import write_table

    task.data.expect(number)
    people = PeopleOfShard(task.data, task.root, number, checked=False)
    groups = [as_groups(_arrays_at(file)) for file in task.groups]
    states = [as_state(read_arrays(folder / f"state-{number}.npz")) for folder in task.states]
    taught = set() if task.taught is None else set(_arrays_at(task.taught)["labels"].tolist())
    judge = np.array([label in taught for label in people.labels.tolist()], dtype=bool)
    found = list[Posteriors]()
    for piece in a_few(len(people), groups[0].centres):
        some = people.between(piece)
        mixture, *wide = (
            finish(some, state.between(piece, people.starts), around)
            for state, around in zip(states, groups, strict=True)
        )
        fitted = Fitted(mixture, Metric(task.root), wide[0] if wide else None)
        found.append(Posteriors.of(fitted, some, np.flatnonzero(judge[piece])))
    everybody = Posteriors.joined(found)
    write_table(task.people / shard_name(number), everybody.table(people.labels, people.starts, task.level))
    write_arrays(task.people / f"told-{number}.npz", {**everybody.told, "loss": everybody.loss})


# -- all shards ------------------------------------------------------------------------------------------------------


class ShardParts:
    """All people, a shard each part; files of a run that was killed are taken as they are."""

    def __init__(self, data: ShardedComparisons, root: FloatArray, home: Path, labels: LabelArray, known: Mixture):
        self.data, self.root, self.home = data, root, home
        self.labels, self.known = labels, known  # those who taught the prior
        self.numbers, self.turns = data.inhabited, _turns(data, labels)
        self.state: Path | None = None
        self.steps = 0

    def taught(self) -> Memberships:
        """Where those are who taught the prior, shard and position, and their memberships."""
        shard = self.data.shard_of(self.labels)
        position = np.empty(len(shard), dtype=np.intp)
        for number in np.unique(shard).tolist():
            mine = np.flatnonzero(shard == number)
            where = {label: at for at, label in enumerate(self.data.labels(number).tolist())}
            position[mine] = [where[label] for label in self.labels[mine].tolist()]
        return Memberships(shard, position, self.known.share)

    def each(self, step: str, tell: Callable[[int], Told], only: list[int] | None = None) -> Sums:
        """Take a step in every shard that has not taken it, or in some; sums over all of them, in their order."""
        numbers = self.numbers if only is None else only
        self.steps += 1
        before, self.state = self.state, self.home / f"{self.steps}-{step}"
        total = self.state / "total.npz"
        if total.exists():
            return as_sums(read_arrays(total))
        self.state.mkdir(parents=True, exist_ok=True)
        write_arrays(self.state / "told.npz", of_told({number: tell(number) for number in numbers}))
        left = [number for number in numbers if not (self.state / f"sums-{number}.npz").exists()]
        task = Task(self.data, self.root, step, None if step == "place" else before, self.state)
        label, done = f"everybody, step {self.steps} ({step})", len(numbers) - len(left)
        over_shards(partial(take_step, task), left, label=label, done=done, room=self.data.room)
        sums = reduce(add, (as_sums(read_arrays(self.state / f"sums-{number}.npz")) for number in numbers))
        states = [] if before is None else [*before.glob("state-*.npz"), *before.glob("rows-*.npz")]
        for file in states:  # of shards that are not among these
            if not (self.state / file.name).exists():
                file.rename(self.state / file.name)
        write_arrays(total, of_sums(sums))
        for file in states:
            file.unlink(missing_ok=True)
        return sums

    def alone(self, around: Mixture, most: int) -> Alone:
        """So many of those who are alone, spread evenly by label."""
        assert self.state is not None
        file = self.state / "alone.npz"
        if file.exists():
            kept = read_arrays(file)
            return Alone(kept["part"], kept["position"], as_terms(kept), kept["share"])
        most = max(min(most, self.data.memory // (64 * len(around.prior.m0) ** 2)), 2)
        found: list[tuple[Hashable, int, int]] = []
        for number in self.numbers:
            alone = np.flatnonzero(alone_in(as_share(read_arrays(self.state / f"state-{number}.npz", SHARE))) > 0.5)
            if len(alone):
                labels = self.data.labels(number)[alone].tolist()
                found += zip(labels, [number] * len(alone), alone.tolist(), strict=True)
        found.sort(key=lambda each: each[0])  # type: ignore[arg-type, return-value]
        chosen = [found[at] for at in spread(len(found), most)]
        parts, order = list[Alone](), list[int]()
        for number in sorted({number for _, number, _ in chosen}):
            mine = [i for i, each in enumerate(chosen) if each[1] == number]
            at = np.array([chosen[i][2] for i in mine], dtype=np.intp)
            state = as_state(read_arrays(self.state / f"state-{number}.npz"))
            with single_threaded():
                parts.append(alone_of(PeopleOfShard(self.data, self.root, number), state, at, around.prior, number))
            order += mine
        picked = Alone.joined(parts).some(np.argsort(order)) if parts else Alone.nobody(*around.centres.mean.shape)
        about = {"part": picked.part, "position": picked.position, "share": picked.share}
        write_arrays(file, {**about, **picked.terms.arrays})
        return picked


def _turns(data: ShardedComparisons, labels: LabelArray) -> list[list[int]]:
    """First the shards in which those are who taught the prior, and some times as many people; then the others."""
    enough, numbers = max(PLACING.first * data.n_users, PLACING.times * len(labels)), data.inhabited
    first = int(np.searchsorted(np.cumsum(data.users), enough)) + 1
    early, late = [k for k in numbers if k < first], [k for k in numbers if k >= first]
    return [early, late] if len(late) > len(early) else [numbers]


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
        write_arrays(lesson, of_lesson(model._teacher.lesson(rows)))
    taught = read_arrays(lesson)
    about = json.loads(str(taught["about"]))
    root, labels = taught["root"], taught["labels"]
    labels = labels if data.integers else labels.astype(object)
    everybody = len(labels) == data.n_users
    states, groups = list[Path](), list[Path]()
    for name in ("chosen", "wide") if about["wide"] else ("chosen",):
        known = known_by(taught, name)
        parts = ShardParts(data, root, home / name, labels, known)
        around = _as_they_are(parts, known, taught["rows"]) if everybody else settle_parts(parts, known)
        assert parts.state is not None
        states.append(parts.state)
        groups.append(home / f"{name}.npz")
        write_arrays(groups[-1], of_groups(around))
    people = home / PEOPLE
    people.mkdir(exist_ok=True)
    numbers = parts.numbers
    left = [number for number in numbers if not (people / f"told-{number}.npz").exists()]
    write_arrays(home / "taught.npz", {"labels": taught["labels"]})
    judges = home / "taught.npz" if about["tempered"] else None
    task = Finish(data, root, model.level, judges, tuple(states), tuple(groups), people)
    over_shards(partial(finish_shard, task), left, label="posteriors", done=len(numbers) - len(left), room=data.room)
    found = [read_arrays(people / f"told-{number}.npz") for number in numbers]
    loss = sum(each["loss"] for each in found)
    counts, sums = (sum(each[name] for each in found) for name in ("counts", "sums"))
    return PeopleInShards(
        data,
        people,
        model.get_params(),
        Metric(root),
        tuple(as_groups(read_arrays(file)) for file in groups),
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
    """Those from whom the prior is learnt, in double precision."""
    rows = data.sample(_sample_size(data))
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
        state = State.settled(known.share[mine], known.sites.of(rows))
        write_arrays(parts.state / f"state-{number}.npz", of_state(state))
    return nobody(known.centres, known.prior, Others(known.sizes, known.by_degrees), known.evidence)
