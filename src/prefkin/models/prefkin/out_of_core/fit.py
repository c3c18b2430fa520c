"""Hyperparameters and groups from a sample, then passes of the E-step over all shards.

Each step over a shard is done by whoever the executor sends there, and leaves a file; statistics are added in the order
of shards. So the result does not depend on who did what, and a run that was killed goes on with the files there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from prefkin.data.arrays import IntArray, LabelArray
from prefkin.data.dependence import effective_weights
from prefkin.data.digest import digest
from prefkin.data.rows import UserRows, spread
from prefkin.data.shards import ShardedComparisons, shard_name
from prefkin.data.storage import held_alone
from prefkin.errors import InvalidComparisons, InvalidParameter
from prefkin.execution.executor import over_shards
from prefkin.inference.factors import Factors
from prefkin.inference.model import Design
from prefkin.models.files import PEOPLE
from prefkin.models.prefkin.e_step import NUMBERS, Shared, State, Statistics, blocks_of_users, e_step
from prefkin.models.prefkin.everybody import (
    Singletons,
    kept_components,
    likely_singletons,
    most_singletons,
    passes,
    sample_of,
    singletons_of,
)
from prefkin.models.prefkin.fitting import Learnt, Specification, design_of, learn
from prefkin.models.prefkin.out_of_core.files import (
    Arrays,
    as_learnt,
    as_state,
    as_statistics,
    of_learnt,
    of_singletons,
    of_state,
    of_statistics,
    read_arrays,
    with_shared,
    write_arrays,
)
from prefkin.models.prefkin.out_of_core.users import OutOfCore, UserTable, in_double
from prefkin.models.prefkin.parameters import specification_of
from prefkin.models.prefkin.settings import PASSES

if TYPE_CHECKING:
    from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["fit_out_of_core"]

FORMAT = 10  # of files of a run that goes on
READ_AT_ONCE = 512  # users of a shard


# -- work on one shard, wherever it is done ----------------------------------------------------------------------------


class Task(NamedTuple):
    """A step in every shard: what is known before it, and where its results belong."""

    data: ShardedComparisons
    specification: Specification
    scores: bool
    before: Path | None  # states of the step before
    united: Path | None  # singletons who are in new clusters since
    after: Path  # what users share, and what the step finds


@lru_cache(maxsize=8)
def _arrays_at(file: Path) -> Arrays:
    """`read_arrays` of what is the same for all shards, read once."""
    return read_arrays(file)


class Block(NamedTuple):
    """Some users of one shard, read together."""

    first: int  # position in the shard
    rows: UserRows
    design: Design
    state: State | None


def _blocks(task: Task, number: int, state: State | None, n_components: int, *, checked: bool) -> Iterator[Block]:
    """Users of one shard, a few at a time."""
    task.data.expect(number)
    at = 0
    for users in blocks_of_users(task.data.users[number], task.data.dim, n_components, READ_AT_ONCE):
        rows = in_double(task.data.between(number, users, checked=checked))
        design = design_of(rows, task.specification.likelihood)
        some = slice(at, at := at + len(design.y))
        theirs = None if state is None else State(state.sites.take(some), state.share[users], state.spread[users])
        yield Block(users.start, rows, design, theirs)


def take_step(task: Task, number: int) -> None:
    """The E-step of the users of one shard: their states and statistics."""
    learnt = as_learnt(_arrays_at(task.after / "shared.npz"), task.specification)
    shared = Shared(learnt.posterior.population, learnt.posterior.messages, learnt.posterior.sizes)
    state = None if task.before is None else as_state(read_arrays(task.before / f"state-{number}.npz"))
    if state is not None and task.united is not None:
        united = _arrays_at(task.united)
        mine = united["part"] == number
        n_new = len(shared) - state.share.shape[1]
        state = state.united(united["position"][mine], united["cluster"][mine], n_new)
    states, found, alone = list[State](), list[Statistics](), list[Singletons]()
    most = most_singletons(task.data.dim) / task.data.n_users
    for first, _, design, before in _blocks(task, number, state, len(shared), checked=state is not None):
        after, statistics = e_step(design, before, shared, scores=task.scores, sure_stay=True)
        states.append(after)
        found.append(statistics)
        who = likely_singletons(after.share) if shared.population.clustered else np.empty(0, dtype=np.intp)
        who = who[spread(len(who), int(np.ceil(most * design.n_users)))]
        each = singletons_of(design, after, who, shared, number)
        alone.append(each._replace(position=who + first))
    if task.before is None:
        write_arrays(task.after / f"singletons-{number}.npz", of_singletons(alone))
    write_arrays(task.after / f"state-{number}.npz", of_state(State.join(states)))
    write_arrays(task.after / f"sums-{number}.npz", of_statistics(reduce(add, found)))  # last: then the shard is done


def widen_shard(task: Task, number: int) -> None:
    """Sum the messages of the users of one shard with the variances of the uncertainty."""
    found = [learnt.posterior.messages_with(*learnt.widening) for _, learnt in _learnt(task, number)]
    write_arrays(task.after / f"sums-{number}.npz", vars(reduce(add, found)))


def _learnt(task: Task, number: int) -> Iterator[tuple[UserRows, Learnt]]:
    """What was learnt of the users of one shard, a few at a time."""
    assert task.before is not None
    learnt, kept = as_learnt(_arrays_at(task.after / "shared.npz"), task.specification), task.after / "kept.npz"
    which, state = _arrays_at(kept)["kept"], as_state(read_arrays(task.before / f"state-{number}.npz"))
    for _, rows, design, some in _blocks(task, number, state, len(which), checked=False):
        assert some is not None
        sites, share, factors = some
        posterior = replace(learnt.posterior, design=design, sites=sites, share=share[:, which], spread=factors)
        yield rows, replace(learnt, posterior=posterior)


def finish_shard(task: Task, number: int, *, level: float) -> None:
    """Write the posteriors of the users of one shard, a row each, and sums over them."""
    from prefkin.data.buckets import write_table

    table = UserTable.joined([UserTable.of(rows, learnt, level) for rows, learnt in _learnt(task, number)])
    write_table(task.after / shard_name(number), table.columns)
    write_arrays(task.after / f"sums-{number}.npz", {"counts": table.counts, "sums": table.sums})


# -- all shards --------------------------------------------------------------------------------------------------------


class Shards:
    """All users, a shard each part; files of a run that was killed are taken as they are."""

    def __init__(self, data: ShardedComparisons, specification: Specification, learnt: Learnt, home: Path) -> None:
        self.data, self.specification, self.learnt, self.home = data, specification, learnt, home
        self.numbers = data.inhabited
        self.state: Path | None = None

    def e_step(self, name: str, shared: Shared, united: Singletons | None = None, *, scores: bool) -> Statistics:
        """Take a step in every shard that has not taken it."""
        before, self.state = self.state, self.home / name
        total = self.state / "total.npz"
        if total.exists():
            return as_statistics(read_arrays(total))
        self.state.mkdir(parents=True, exist_ok=True)
        write_arrays(self.state / "shared.npz", of_learnt(with_shared(self.learnt, shared)))
        told = None if united is None else self.state / "united.npz"
        if united is not None and told is not None:
            write_arrays(told, of_singletons([united]))
        left, task = self._left(self.state), Task(self.data, self.specification, scores, before, told, self.state)
        done = len(self.numbers) - len(left)
        over_shards(partial(take_step, task), left, label=f"everybody, {name} pass", done=done, room=self.data.room)
        statistics = reduce(add, (as_statistics(read_arrays(self.state / f"sums-{k}.npz")) for k in self.numbers))
        write_arrays(total, of_statistics(statistics))
        for file in () if before is None else before.glob("state-*.npz"):
            file.unlink()
        return statistics

    def singletons(self, shared: Shared) -> Singletons:  # noqa: ARG002 - the first pass wrote them
        """Of all shards."""
        assert self.state is not None
        every = [read_arrays(self.state / f"singletons-{number}.npz") for number in self.numbers]
        names = ("part", "position", *NUMBERS)
        part, position, *messages = (np.concatenate([each[name] for each in every]) for name in names)
        return Singletons(part, position, Factors(*messages), np.full(len(part), -1))

    def _left(self, folder: Path) -> list[int]:
        return [number for number in self.numbers if not (folder / f"sums-{number}.npz").exists()]

    def take(self, learnt: Learnt, labels: LabelArray) -> None:
        """States of users who are all in the sample, as they were learnt."""
        self.state = self.home / "sample"
        self.state.mkdir(parents=True, exist_ok=True)
        posterior, design = learnt.posterior, learnt.posterior.design
        state = State(posterior.sites, posterior.share, posterior.spread)
        position = {label: at for at, label in enumerate(labels.tolist())}
        for number in self.numbers:
            who = np.array([position[label] for label in self.data.labels(number).tolist()], dtype=np.intp)
            write_arrays(self.state / f"state-{number}.npz", of_state(state.some(design, who)))

    def finish(self, shared: Shared, level: float) -> tuple[Learnt, Arrays]:
        """Posteriors of everybody in tables; what is known of everybody together, and sums over them."""
        kept = kept_components(shared)
        shared = Shared(shared.population, shared.messages[kept], shared.sizes[kept])
        learnt = with_shared(self.learnt, shared)
        if learnt.widening != (1.0, 1.0):
            wide = self._sums("uncertainty", learnt, kept, widen_shard)
            learnt = with_shared(learnt, shared, Factors(*(wide[name] for name in NUMBERS)))
        return learnt, self._sums(PEOPLE, learnt, kept, partial(finish_shard, level=level))

    def _sums(self, name: str, learnt: Learnt, kept: IntArray, work: Callable[..., None]) -> Arrays:
        """Do something in every shard with the posteriors of its users; the sums of what that finds."""
        folder = self.home / name
        folder.mkdir(exist_ok=True)
        write_arrays(folder / "shared.npz", of_learnt(learnt))
        write_arrays(folder / "kept.npz", {"kept": kept})
        left, task = self._left(folder), Task(self.data, self.specification, False, self.state, None, folder)
        label, done = "posteriors" if name == PEOPLE else name, len(self.numbers) - len(left)
        over_shards(partial(work, task), left, label=label, done=done, room=self.data.room)
        found = [read_arrays(folder / f"sums-{number}.npz") for number in self.numbers]
        return {name: np.sum([each[name] for each in found], axis=0) for name in found[0]}


def fit_out_of_core(model: PrefKin, data: ShardedComparisons) -> OutOfCore:
    """Everybody in the shards; what a former run of the same fit finished is taken as it is."""
    data.refuse_if_changed()
    told = {name: repr(value) for name, value in model.get_params().items() if name != "n_jobs"}
    home = data.home / "fits" / digest(json.dumps([data.fingerprint, told, _sample_size(data), _seed(model), FORMAT]))
    home.mkdir(parents=True, exist_ok=True)
    with held_alone(home):
        return _fitted(model, data, home)


def _fitted(model: PrefKin, data: ShardedComparisons, home: Path) -> OutOfCore:
    specification, file = specification_of(model), home / "sample.npz"
    rows = _sample(data)
    if file.exists():
        learnt = as_learnt(read_arrays(file), specification, design_of(rows, specification.likelihood))
    else:
        _refuse_rankings(data, rows)
        learnt = learn(rows, specification)
        write_arrays(file, of_learnt(learnt))
    shards = Shards(data, specification, learnt, home)
    sample = sample_of(learnt.posterior)
    if len(rows) == data.n_users:
        shards.take(learnt, rows.labels)
        shared = sample.shared
    else:
        del rows
        shared = passes(shards, sample)
    everybody, sums = shards.finish(shared, model.level)
    return OutOfCore(data, home / PEOPLE, model.get_params(), everybody, sums["counts"], sums["sums"])


def _seed(model: PrefKin) -> int | None:
    if not isinstance(model.random_state, int | None):
        raise InvalidParameter("with users in shards random_state must be None or a number, so that a run can go on")
    return model.random_state


def _sample_size(data: ShardedComparisons) -> int:
    """Users from whom hyperparameters are learnt: as many as half of the memory holds with all that is made of them."""
    rows = data.n_comparisons / data.n_users
    room = int(0.5 * data.memory / (8.0 * (4.0 * rows * data.dim + 4.0 * data.dim**2)))
    most = int(PASSES.sample_work / ((3.0 * rows + 2.0 * data.dim) * (data.dim**2 + PASSES.row_work)))
    return min(data.n_users, max(min(room, most, PASSES.most_sample), PASSES.least_sample))


def _sample(data: ShardedComparisons) -> UserRows:
    """Users from whom hyperparameters are learnt."""
    return in_double(data.sample(_sample_size(data)))


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
