"""Everybody under a prior learnt from some of them: placed one by one, then all together.

People come in parts, of which each is looked at alone; what they have in common are sums over them. So a part may be
all that is in memory, or a shard of more people than memory holds, on whichever machine:

    place   everybody among the groups as they are known; where there are many parts, some first, who tell the others
            more about the groups than those did who taught the prior
    move    whoever is not sure may, their own answers taken out of a group first; twice
    match   sites, to what is believed now, of those whose margins may have moved
    mode    those whose sites may not have settled by then, where there are any
    finish  posteriors

Each step but the last ends with the sums (after `place`: with what changed in them) from which the next one is told
centres and sizes of groups. Between the first two, groups of which those who taught the prior had too few members to
see are sought among those left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray, above_zero
from prefkin.data.rows import spread
from prefkin.execution.blas import in_one_order
from prefkin.inference.propagation import Sites, refine
from prefkin.inference.quadratics import STACKED_UP_TO, Signed, Terms, expand, per_user_sum
from prefkin.inference.steps import SAFE, farthest, heavy
from prefkin.models.prefkin.merging import as_share, merge
from prefkin.models.prefkin.mixture import (
    AllTerms,
    Centres,
    Mixture,
    Others,
    Prior,
    alone_in,
    nobody,
    pieces,
    solved,
)
from prefkin.models.prefkin.modes import at_their_modes
from prefkin.models.prefkin.places import asked_anew, place
from prefkin.models.prefkin.settings import LIMITS, PLACING

__all__ = [
    "STEPS",
    "Alone",
    "Memberships",
    "Parts",
    "People",
    "State",
    "Sums",
    "Told",
    "a_few",
    "alone_of",
    "finish",
    "settle",
    "settle_parts",
]

NEW = -1  # a group that was not there when people were placed
NONE = -1.0  # slack of those whose margins have to be looked at
HYPERBOLA = float(np.log(4.0)) ** 2  # log σ(m) ≈ (m − √(m² + log² 4)) / 2, right at 0 and far from it


class State(NamedTuple):
    """What is known of the people of one part between two steps."""

    share: FloatArray  # (n, K) probability of each group
    sites: Sites
    asked: BoolArray  # (n,) whose place is not sure yet; after `match`: whose sites may not have settled
    slack: FloatArray  # (n,) way of a group's centre since then with which no margin moves by more than `PLACING.still`

    def between(self, users: slice, starts: IntArray) -> State:
        """Of people at consecutive positions; `starts` says where the rows of each of them all begin."""
        rows = slice(int(starts[users.start]), int(starts[users.stop]))
        sites = Sites(*(each[rows] for each in self.sites))
        return State(self.share[users], sites, self.asked[users], self.slack[users])

    @classmethod
    def joined(cls, parts: Sequence[State]) -> State:
        """Those of several parts, in their order."""
        share, sites, asked, slack = zip(*parts, strict=True)
        all_sites = Sites(*(np.concatenate(each) for each in zip(*sites, strict=True)))
        return cls(np.concatenate(share), all_sites, np.concatenate(asked), np.concatenate(slack))

    @classmethod
    def settled(cls, share: FloatArray, sites: Sites) -> State:
        """The state of people who are not asked any more."""
        return cls(share, sites, np.zeros(len(share), dtype=bool), np.full(len(share), NONE))


class Sums(NamedTuple):
    """What is added up over the people of one part, or of several."""

    terms: Terms  # of each group, for τ²
    sizes: FloatArray  # (K,)
    moved: float  # change of memberships
    people: IntArray  # all, and those whose place is not sure

    def __add__(self, other: Sums) -> Sums:  # type: ignore[override]
        terms, sizes = self.terms + other.terms, self.sizes + other.sizes
        return Sums(terms, sizes, self.moved + other.moved, self.people + other.people)

    def changed(self, change: Sums) -> Sums:
        """The sums after some people moved, which changed them by that."""
        return (self + change)._replace(moved=change.moved, people=change.people)

    def of(self, groups: BoolArray) -> Sums:
        """The sums of some of the groups."""
        return self._replace(terms=self.terms[groups], sizes=self.sizes[groups])

    @property
    def settled(self) -> bool:
        """Need nobody be asked again?"""
        return bool(self.moved < PLACING.settled * self.people[0] or not self.people[1])


@dataclass(frozen=True, eq=False)
class Told:
    """What a step is told about everybody, and about the people of one part."""

    around: Mixture  # of nobody: the prior, and what is known of groups
    kept: BoolArray  # (K,) of the groups before, those that are still there
    who: IntArray  # positions in this part of those who taught the prior, or whom a new group unites
    share: FloatArray  # (who, K) their memberships
    ways: FloatArray  # (K,) how far each centre is from where it was when the people of this part were placed

    def between(self, users: slice) -> Told:
        """What is told to people at consecutive positions."""
        mine = (self.who >= users.start) & (self.who < users.stop)
        return replace(self, who=self.who[mine] - users.start, share=self.share[mine])


class People(Protocol):
    """Those of one part: `Signed`, or whatever reads them when they are asked for."""

    @property
    def starts(self) -> IntArray:
        """(n + 1,) where the rows of each one begin."""

    def __len__(self) -> int: ...

    def between(self, users: slice) -> Signed:
        """Rows of people at consecutive positions."""

    def some(self, users: IntArray) -> Signed:
        """Rows of people at these positions."""

    def rows_of(self, users: IntArray) -> IntArray:
        """Where the rows of people at these positions are among all."""


Step = Callable[[People, State | None, Told], tuple[State, Sums]]


class Memberships(NamedTuple):
    """Memberships that are not asked about: of those who taught the prior, or who are united in a new group."""

    part: IntArray  # in which part each one is
    position: IntArray  # and where there
    share: FloatArray  # (n, K)

    @classmethod
    def none(cls, K: int) -> Memberships:
        """No memberships, in K groups."""
        return cls(np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp), np.empty((0, K)))


class Alone(NamedTuple):
    """People in no group, and all that is needed to unite them."""

    part: IntArray  # in which part each one is
    position: IntArray  # and where there
    terms: Terms
    share: FloatArray  # (n, K)

    @classmethod
    def joined(cls, parts: Sequence[Alone]) -> Alone:
        """Those of several parts, in their order."""
        part, position, terms, share = zip(*parts, strict=True)
        return cls(np.concatenate(part), np.concatenate(position), Terms.joined(terms), np.concatenate(share))

    @classmethod
    def nobody(cls, K: int, d: int) -> Alone:
        """Nobody, beside K groups of d features."""
        none = np.empty(0, dtype=np.intp)
        return cls(none, none, Terms.zeros(0, d), np.empty((0, K)))

    def some(self, which: IntArray) -> Alone:
        """Some of them, in the order given."""
        return Alone(self.part[which], self.position[which], self.terms[which], self.share[which])


class Parts(Protocol):
    """All people in parts, in which steps are taken: what `settle_parts` asks for."""

    @property
    def turns(self) -> list[list[int]]:
        """Numbers of the parts in which people are placed first, then of the others."""

    def taught(self) -> Memberships:
        """Where those are who taught the prior, and their memberships."""

    def each(self, step: str, tell: Callable[[int], Told], only: list[int] | None = None) -> Sums:
        """Take a step in every part, or in some; sums over all of them, in their order."""

    def alone(self, around: Mixture, most: int) -> Alone:
        """So many of those who are alone, spread evenly."""


# -- one part --------------------------------------------------------------------------------------------------------


def a_few(people: int, centres: Centres) -> Iterator[slice]:
    """Slices of so many people, few enough that what is made of them stays in the cache: not fewer than groups."""
    K, d = centres.mean.shape
    room = LIMITS.in_cache if d <= STACKED_UP_TO else LIMITS.at_once
    return pieces(people, d * d, max(room, min(K * d * d, LIMITS.at_once)))


@in_one_order
def place_step(people: People, state: State | None, told: Told) -> tuple[State, Sums]:  # noqa: ARG001 - as all steps
    """Everybody among the groups as they are known; who is sure of a group then is not asked again."""
    every = a_few(len(people), told.around.centres)
    states, sums = zip(*(_placed(people.between(few), told.between(few)) for few in every), strict=True)
    return State.joined(states), reduce(add, sums)


def _placed(data: Signed, told: Told) -> tuple[State, Sums]:
    """`place_step` for some people."""
    sites, found = _begun(data, told.around)
    placed = place(told.around, data, 1, PLACING.contenders, sure=LIMITS.sure, sites=sites)
    unsure, far = placed.share.max(axis=1, initial=0.0) < LIMITS.sure, placed.moved(data)
    again = np.flatnonzero(~found | unsure | (far > PLACING.still))
    share, terms = placed.share.copy(), placed.terms
    if len(again):
        few = data.some(again)
        sites = placed.some(data, again).refined(few)
        better = place(told.around, few, 1, PLACING.contenders, sure=LIMITS.sure, sites=sites)
        share[again], far[again] = better.share, better.moved(few)
        # places are chosen by the second sites after the centre's, or the third from nowhere: others overshoot
        moved = np.flatnonzero((far[again] > PLACING.still) & ~found[again])
        sites, terms = _with(placed, data, again, *_matched(better, few, moved))
        far[again[moved]] = np.inf
    assert terms is not None
    share[told.who], far[told.who] = told.share, np.inf  # they shaped the groups: their own data were taken out then
    most = share.max(axis=1, initial=0.0)
    slack = (PLACING.still - far) / above_zero(np.sqrt(farthest(data.sizes, data.starts)))  # G in `forms` is below I
    slack = np.where((most == 1.0) & ~heavy(data), slack, NONE)
    state = State(share, sites, most < LIMITS.sure, slack)
    counts = np.array([len(share), int(state.asked.sum())])
    return state, Sums(terms.summed(share), share.sum(axis=0), 0.0, counts)


@in_one_order
def move_step(people: People, state: State | None, told: Told) -> tuple[State, Sums]:
    """Those who are not sure of their place choose again; the sums are what that changes."""
    assert state is not None
    share, left, prior, around = _widened(state.share, told), state.asked.copy(), told.around.prior, told.around
    K, d = around.centres.mean.shape
    change, moved = Terms.zeros(K, d), np.zeros(K + 1)
    asked = np.flatnonzero(state.asked)
    for piece in a_few(len(asked), around.centres):
        who = asked[piece]
        users, old = expand(people.some(who), state.sites.of(people.rows_of(who))), share[who]
        alone, every = users.evidences(prior.m0, prior.alone) + prior.lonely, AllTerms(users, prior.within)
        new = asked_anew(every, old, np.arange(len(who)), alone, around, PLACING.contenders, LIMITS.sure)
        change, share[who] = change + every.summed(new - old), new
        moved += np.append((new - old).sum(axis=0), np.abs(new - old).sum())
        unsure = np.maximum(new.max(axis=1, initial=0.0), alone_in(new)) < LIMITS.sure
        left[who] = unsure & (np.abs(new - old).max(axis=1, initial=0.0) > PLACING.moved)
    sums = Sums(change, moved[:-1], float(moved[-1]), np.array([len(share), int(left.sum())]))
    return State(share, state.sites, left, np.where(state.asked, NONE, state.slack)), sums


@in_one_order
def match_step(people: People, state: State | None, told: Told) -> tuple[State, Sums]:
    """Sites matched to what is believed now, of those whose margins may have moved; the sums are what that changes."""
    assert state is not None
    share, sites, around = _widened(state.share, told), state.sites.copy(), told.around
    K, d = around.centres.mean.shape
    change = Terms.zeros(K, d)
    way = told.ways[np.argmax(share, axis=1)] if K else np.full(len(share), np.inf)
    looked_at, astray = np.flatnonzero(~(way <= state.slack)), np.zeros(len(share), dtype=bool)
    for piece in a_few(len(looked_at), around.centres):
        who = looked_at[piece]
        data, rows = people.some(who), people.rows_of(who)
        found = finish(data, State.settled(share[who], state.sites.of(rows)), around)
        far = found.moved(data)
        again, astray[who] = np.flatnonzero(far > PLACING.still), (far > SAFE) | heavy(data)
        if not len(again):
            continue
        assert found.terms is not None
        old = found.terms[again]
        new, terms = _matched(found, data, again)
        sites.put(rows, new)
        change = change + (terms[again] - old).summed(share[who[again]])
    state = State.settled(share, sites)._replace(asked=astray)
    return state, Sums(change, np.zeros(K), 0.0, np.array([len(share), int(astray.sum())]))


@in_one_order
def mode_step(people: People, state: State | None, told: Told) -> tuple[State, Sums]:
    """Those whose sites did not settle are set to their modes; the sums are what that changes."""
    assert state is not None
    share, sites, around = state.share, state.sites.copy(), told.around
    change, asked = Terms.zeros(*around.centres.mean.shape), np.flatnonzero(state.asked)
    for piece in a_few(len(asked), around.centres):
        who = asked[piece]
        data, rows = people.some(who), people.rows_of(who)
        found = finish(data, State.settled(share[who], sites.of(rows)), around)
        there = at_their_modes(found, data)
        if there is not found:
            sites.put(rows, there.sites)
            assert found.terms is not None
            assert there.terms is not None
            change = change + (there.terms - found.terms).summed(share[who])
    return State.settled(share, sites), Sums(change, np.zeros(share.shape[1]), 0.0, np.array([len(share), 0]))


def _begun(data: Signed, around: Mixture) -> tuple[Sites, BoolArray]:
    """Sites matched to the centre of the group that looks likeliest, and where that is as good as a round of all.

    That is so for those whose margins vary little within their group; sites of others begin where nobody is known.
    """
    prior, centres, widest = around.prior, around.centres, farthest(data.sizes, data.starts)
    if not len(around.sizes) or not (prior.within * widest <= PLACING.narrow).any():
        return prior.start(data), np.zeros(len(data), dtype=bool)
    margin = np.asarray(data.X @ centres.mean.T.astype(data.X.dtype), dtype=np.float64)
    fits = 0.5 * data.weights[:, None] * (margin - np.sqrt(margin**2 + HYPERBOLA))
    likeliest = np.argmax(per_user_sum(fits, data.starts) + np.log(above_zero(around.sizes)), axis=1)
    variance = prior.within + np.einsum("kii->k", centres.doubt, dtype=np.float64) / data.dim
    found = variance[likeliest] * widest <= PLACING.narrow
    where = np.repeat(likeliest, np.diff(data.starts))
    mean, none = margin[np.arange(len(margin)), where], np.zeros(len(margin))
    belief = mean, variance[where] * data.sizes
    sites = refine(Sites(none, none, none, none), data.weights, *belief, offset=data.offset, total=data.total)
    if found.all():
        return sites, found
    known = np.repeat(found, np.diff(data.starts))
    return Sites(*(np.where(known, *each) for each in zip(sites, prior.start(data), strict=True))), found


def _matched(found: Mixture, data: Signed, again: IntArray) -> tuple[Sites, Terms]:
    """Everybody's sites and terms, those of some of them matched to what is believed now."""
    if not len(again):
        assert found.terms is not None
        return found.sites, found.terms
    few = data.some(again)
    sites = found.some(data, again).refined(few)
    return _with(found, data, again, sites, expand(few, sites).at(found.prior.within))


def _with(found: Mixture, data: Signed, again: IntArray, sites: Sites, terms: Terms) -> tuple[Sites, Terms]:
    """Everybody's sites and terms with these of some of them."""
    assert found.terms is not None
    both, every = found.sites.copy(), found.terms
    both.put(data.rows_of(again), sites)
    every.A[again], every.a[again], every.level[again] = terms.A, terms.a, terms.level
    return both, every


def _widened(share: FloatArray, told: Told) -> FloatArray:
    """Memberships of the groups that are still there, and of new ones beside them."""
    wider = np.zeros((len(share), told.around.share.shape[1]))
    wider[:, : int(told.kept.sum())] = share[:, told.kept]
    wider[told.who] = told.share
    return wider


def finish(data: Signed, state: State, around: Mixture) -> Mixture:
    """The people of one part, with everybody else known by the sums over them."""
    share = state.share
    found = solved(expand(data, state.sites), state.sites, share, around.prior, around.evidence, centres=around.centres)
    assert around.others is not None
    return replace(found, others=replace(around.others, sizes=around.others.sizes - share.sum(axis=0)))


STEPS: dict[str, Step] = {"place": place_step, "move": move_step, "match": match_step, "mode": mode_step}


# -- all of them -----------------------------------------------------------------------------------------------------


def _told_by(prior: Prior, sums: Sums, by_degrees: bool, evidence: float) -> Mixture:
    """What sums over everybody say."""
    return nobody(Centres.of(sums.terms, prior), prior, Others(sums.sizes, by_degrees), evidence)


def settle_parts(parts: Parts, known: Mixture) -> Mixture:
    """Everybody, in all parts; what is known about prior and groups in the end, with nobody in it."""
    taught, prior = parts.taught(), known.prior

    def say(sums: Sums) -> Mixture:
        return _told_by(prior, sums, known.by_degrees, known.evidence)

    around = nobody(known.centres, prior, Others(known.sizes, known.by_degrees), known.evidence)
    kept, none = np.ones(len(known.sizes), dtype=bool), np.zeros(len(known.sizes))
    placed, found = dict[int, FloatArray](), list[Sums]()
    for turn in parts.turns:
        placed |= dict.fromkeys(turn, around.centres.mean)  # what people of each part were told
        found.append(parts.each("place", partial(_told, around, kept, taught, none), turn))
        sums = reduce(add, found)
        around = say(sums)
    columns = np.arange(len(kept))  # of memberships, in all parts: which groups they were when people were placed
    if not known.by_degrees:
        sums, fixed = _with_groups_of_those_alone(parts.alone(around, LIMITS.most_crowd), sums, prior)
        for _ in range(PLACING.moves):
            kept = sums.sizes > PLACING.members
            if not kept.any():
                break
            sums, fixed = sums.of(kept), fixed._replace(share=fixed.share[:, kept])
            sums = sums.changed(parts.each("move", partial(_told, say(sums), kept[: len(columns)], fixed, none)))
            columns = np.append(columns, np.full(len(kept) - len(columns), NEW))[kept]
            fixed = Memberships.none(len(columns))
            if sums.settled:
                break
        kept = sums.sizes > PLACING.members
        sums = sums.of(kept)
        around, kept = say(sums), kept[: len(columns)]
        columns = columns[kept]

    def match(part: int) -> Told:
        ways = np.linalg.norm(around.centres.mean - placed[part][columns], axis=1)
        return _told(around, kept, Memberships.none(len(columns)), np.where(columns == NEW, np.inf, ways), part)

    sums = sums.changed(parts.each("match", match))
    if sums.people[1]:
        kept, none = np.ones(len(columns), dtype=bool), np.zeros(len(columns))
        sums = sums.changed(parts.each("mode", partial(_told, say(sums), kept, Memberships.none(len(columns)), none)))
    return say(sums)


def _told(around: Mixture, kept: BoolArray, fixed: Memberships, ways: FloatArray, part: int) -> Told:
    """What one part is told; `kept` are the groups of before that are still there."""
    mine = fixed.part == part
    return Told(around, kept, fixed.position[mine], fixed.share[mine], ways)


def _with_groups_of_those_alone(alone: Alone, sums: Sums, prior: Prior) -> tuple[Sums, Memberships]:
    """Groups of which those who taught the prior had too few members to see: sought among those left alone.

    Sums with these groups, and who sits there.
    """
    old = sums.sizes.shape[0]
    if len(alone.part) < 2:
        return sums, Memberships.none(old)
    partition = merge(alone.terms, prior, np.arange(len(alone.part)), PLACING.partners)
    new = as_share(partition)  # in sets of two and more
    united = np.flatnonzero(new.any(axis=1))
    terms, change = alone.terms[united], np.zeros((len(united), old + new.shape[1]))
    change[:, :old], change[:, old:] = -alone.share[united], new[united]
    both = Terms.joined([sums.terms, Terms.zeros(new.shape[1], len(prior.m0))])
    sums = sums._replace(
        terms=both + terms.summed(change), sizes=np.append(sums.sizes, np.zeros(new.shape[1])) + change.sum(axis=0)
    )
    share = np.zeros_like(change)
    share[:, old:] = new[united]
    return sums, Memberships(alone.part[united], alone.position[united], share)


# -- in memory -------------------------------------------------------------------------------------------------------


class _InMemory:
    """Everybody is one part."""

    turns: ClassVar = [[0]]

    def __init__(self, known: Mixture, who: IntArray, data: Signed) -> None:
        self.known, self.data = Memberships(np.zeros(len(who), dtype=np.intp), who, known.share), data
        self.state: State | None = None

    def taught(self) -> Memberships:
        return self.known

    def each(self, step: str, tell: Callable[[int], Told], only: list[int] | None = None) -> Sums:  # noqa: ARG002
        self.state, sums = STEPS[step](self.data, self.state, tell(0))
        return sums

    def alone(self, around: Mixture, most: int) -> Alone:
        assert self.state is not None
        alone = np.flatnonzero(alone_in(self.state.share) > 0.5)
        alone = alone[spread(len(alone), most)]
        return alone_of(self.data, self.state, alone, around.prior, 0)


def alone_of(data: People, state: State, alone: IntArray, prior: Prior, part: int) -> Alone:
    """Those of one part who are alone, at these positions, with all that is needed to unite them."""
    some = data.some(alone) if len(alone) else data.between(slice(0, 0))
    sites = state.sites.of(data.rows_of(alone) if len(alone) else np.empty(0, dtype=np.intp))
    terms = expand(some, sites).at(prior.within)
    return Alone(np.full(len(alone), part), alone, terms, state.share[alone])


@in_one_order
def settle(known: Mixture, who: IntArray, data: Signed) -> Mixture:
    """Everybody in memory, under a prior learnt from some of them (`who`)."""
    parts = _InMemory(known, who, data)
    around = settle_parts(parts, known)
    assert parts.state is not None
    return replace(finish(data, parts.state, around), others=None)
