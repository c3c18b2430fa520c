"""What steps over shards leave on disk: states, sums, groups and lessons as arrays, to the last digit."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from prefkin.data.arrays import FloatArray
from prefkin.data.storage import write_atomically
from prefkin.errors import ShardError
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import Terms
from prefkin.models.prefkin.mixture import Centres, Mixture, Others, Prior, nobody
from prefkin.models.prefkin.settling import State, Sums, Told

if TYPE_CHECKING:
    from prefkin.models.prefkin.lesson import Lesson

__all__ = [
    "SHARE",
    "Arrays",
    "as_groups",
    "as_share",
    "as_state",
    "as_sums",
    "as_terms",
    "as_told",
    "known_by",
    "of_groups",
    "of_lesson",
    "of_share",
    "of_state",
    "of_sums",
    "of_told",
    "read_arrays",
    "write_arrays",
]

Arrays = dict[str, np.ndarray[Any, Any]]
SHARE = ("values", "groups", "begins", "size")  # of memberships


def write_arrays(file: Path, arrays: Arrays) -> None:
    """Write a file that is there as a whole or not at all; what the machine loses is computed again."""
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    write_atomically(file, content.getvalue(), durable=False)


def read_arrays(file: Path, names: Sequence[str] | None = None) -> Arrays:
    """What `write_arrays` wrote, or some of it."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in (archive if names is None else names)}
    except FileNotFoundError:
        raise ShardError(f"{file}: gone while it was needed; run again") from None
    except Exception:
        raise ShardError(f"{file}: damaged; delete it and run again") from None


def of_share(share: FloatArray) -> Arrays:
    """Memberships, most of which are 0, as arrays."""
    thin = csr_array(share)
    return dict(zip(SHARE, (thin.data, thin.indices, thin.indptr, np.array(share.shape)), strict=True))


def as_share(arrays: Arrays) -> FloatArray:
    """Memberships from what `of_share` made of them."""
    return np.asarray(_as_thin_share(arrays).toarray())


def _as_thin_share(arrays: Arrays) -> Any:
    shape = tuple(arrays["size"].tolist())
    return csr_array((arrays["values"], arrays["groups"], arrays["begins"]), shape=shape)


def of_state(state: State) -> Arrays:
    """The state of one shard's people between two steps, as arrays."""
    return {**of_share(state.share), "sites": np.array(state.sites), "asked": state.asked, "slack": state.slack}


def as_state(arrays: Arrays) -> State:
    """A state from what `of_state` made of it."""
    return State(as_share(arrays), Sites(*arrays["sites"]), arrays["asked"], arrays["slack"])


def as_terms(arrays: Arrays) -> Terms:
    """Terms from `terms.arrays`, beside whatever else there is."""
    return Terms(arrays["A"], arrays["a"], arrays["level"])


def of_sums(sums: Sums) -> Arrays:
    """Sums over the people of one shard, or of all, as arrays."""
    return {**sums.terms.arrays, "sizes": sums.sizes, "moved": np.array(sums.moved), "people": sums.people}


def as_sums(arrays: Arrays) -> Sums:
    """Sums from what `of_sums` made of them."""
    return Sums(as_terms(arrays), arrays["sizes"], float(arrays["moved"]), arrays["people"])


def of_groups(groups: Mixture) -> Arrays:
    """Prior, centres and sizes, to the last digit; who the members are is not in it."""
    sums, prior = groups.centres.sums, groups.prior
    numbers = np.array([*prior[1:], groups.evidence, float(groups.by_degrees)])
    both = {"mean": groups.centres.mean, "doubt": groups.centres.doubt, "sizes": groups.sizes}
    return {**sums.arrays, "m0": prior.m0, "numbers": numbers, **both}


def as_groups(arrays: Arrays) -> Mixture:
    """Groups from what `of_groups` made of them, with nobody in them."""
    *scales, evidence, by_degrees = arrays["numbers"].tolist()
    centres, prior = Centres(as_terms(arrays), arrays["mean"], arrays["doubt"]), Prior(arrays["m0"], *scales)
    return nobody(centres, prior, Others(arrays["sizes"], bool(by_degrees)), evidence)


def of_told(told: dict[int, Told]) -> Arrays:
    """What a step is told about everybody, and about some people of each shard."""
    each = list(told.values())
    share = np.concatenate([one.share for one in each])
    shard, who = np.repeat(list(told), [len(one.who) for one in each]), np.concatenate([one.who for one in each])
    alike = {**of_groups(each[0].around), **of_share(share), "kept": each[0].kept}
    ways = np.array([one.ways for one in each])
    return {**alike, "shard": shard, "who": who, "shards": np.array(list(told)), "ways": ways}


def as_told(arrays: Arrays, number: int) -> Told:
    """What one shard is told."""
    mine = np.flatnonzero(arrays["shard"] == number)
    share = _as_thin_share(arrays)[mine].toarray()
    ways = arrays["ways"][int(np.flatnonzero(arrays["shards"] == number)[0])]
    return Told(as_groups(arrays), arrays["kept"], arrays["who"][mine], np.asarray(share), ways)


def of_lesson(lesson: Lesson) -> Arrays:
    """What the sample taught, and who it was."""
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
            found |= {f"{name}.{part}": values for part, values in of_groups(mixture).items()}
            found |= {f"{name}.share": mixture.share, f"{name}.sites": np.array(mixture.sites)}
    starts = lesson.rows.starts
    found["rows"] = np.diff(starts)[lesson.known]
    return found


def known_by(taught: Arrays, name: str) -> Mixture:
    """Those who taught the prior, with their memberships and sites but without their rows."""
    parts = {part.removeprefix(f"{name}."): values for part, values in taught.items() if part.startswith(f"{name}.")}
    around = as_groups(parts)
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
