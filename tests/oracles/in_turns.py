"""People in shards, in memory: where the same steps lead is what shards must find."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from prefkin.data.rows import Rows, UserRows
from prefkin.execution.blas import in_one_order
from prefkin.models.prefkin.in_shards import fit
from prefkin.models.prefkin.mixture import alone_in
from prefkin.models.prefkin.settling import STEPS, Alone, Memberships, State, alone_of, finish, settle_parts


def in_turns(data, labels):
    """Everybody in the order in which shards take their turns, where these labels are, and how many are first."""
    early, *late = ([data.shard(k) for k in turn] for turn in fit._turns(data, labels))
    parts = [*early, *(each for turn in late for each in turn)]
    everybody = UserRows(
        Rows.join([part.rows for part in parts]),
        np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.starts) for part in parts]))]).astype(np.intp),
        np.concatenate([part.labels for part in parts]),
    )
    order = np.argsort(everybody.labels)
    who = order[np.searchsorted(everybody.labels, labels, sorter=order)]
    return everybody, who, sum(map(len, early)) if late else None


@in_one_order
def settle_in_turns(known, who, data, first, labels, most):
    """As `settling.settle`, with the `first` so many placed before the others, and `most` of those alone looked at."""
    parts = Turns(known, who, data, first, labels, most)
    around = settle_parts(parts, known)
    return replace(finish(data, State.joined(list(parts.states.values())), around), others=None)


class Turns:
    """Everybody is one part, or two: the `first` so many, and then the others."""

    def __init__(self, known, who, data, first, labels, most):
        self.labels, self.most = labels, most
        self.cuts = np.array([0, len(data)] if first is None else [0, first, len(data)])
        self.known, self.who = known, who
        self.data = [data.between(slice(*each)) for each in pairwise(self.cuts)]
        self.turns, self.states = [[part] for part in range(len(self.data))], {}

    def taught(self):
        part = np.searchsorted(self.cuts, self.who, side="right") - 1
        return Memberships(part, self.who - self.cuts[part], self.known.share)

    def each(self, step, tell, only=None):
        found = []
        for part in range(len(self.data)) if only is None else only:
            self.states[part], sums = STEPS[step](self.data[part], self.states.get(part), tell(part))
            found.append(sums)
        return sum(found[1:], start=found[0])

    def alone(self, around, most):
        alone = [np.flatnonzero(alone_in(state.share) > 0.5) for state in self.states.values()]
        part, position = np.repeat(np.arange(len(alone)), [len(each) for each in alone]), np.concatenate(alone)
        assert self.most < most
        by_label = np.argsort(self.labels[self.cuts[part] + position])
        chosen = by_label[np.linspace(0, len(part) - 1, min(len(part), self.most)).astype(int)]
        part, position = part[chosen], position[chosen]
        return Alone.joined(
            [alone_of(data, self.states[k], position[part == k], around.prior, k) for k, data in enumerate(self.data)]
        )
