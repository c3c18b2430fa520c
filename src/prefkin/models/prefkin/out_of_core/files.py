"""What E-steps over shards leave on disk: states, statistics and what users share, as arrays to the last digit."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from prefkin.data.storage import write_atomically
from prefkin.errors import ShardError
from prefkin.inference.ep import Sites
from prefkin.inference.factors import Factors
from prefkin.inference.model import Design
from prefkin.models.prefkin.e_step import NUMBERS, Shared, State, Statistics
from prefkin.models.prefkin.everybody import Singletons
from prefkin.models.prefkin.file import learnt_from, to_file
from prefkin.models.prefkin.fitting import Learnt, Specification

__all__ = [
    *("Arrays", "as_learnt", "as_state", "as_statistics", "of_learnt"),
    *("of_singletons", "of_state", "of_statistics", "read_arrays", "with_shared", "write_arrays"),
]

Arrays = dict[str, np.ndarray[Any, Any]]
SHARE = ("values", "columns", "begins", "shape")  # of responsibilities, most of which are 0


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


def of_state(state: State) -> Arrays:
    """States of the users of one shard between two E-steps."""
    thin = csr_array(state.share)
    share = thin.data, thin.indices, thin.indptr, np.array(state.share.shape)
    return {**dict(zip(SHARE, share, strict=True)), "sites": np.array(state.sites), "spread": state.spread}


def as_state(arrays: Arrays) -> State:
    """From what `of_state` made of it."""
    values, columns, begins, shape = (arrays[name] for name in SHARE)
    share = csr_array((values, columns, begins), shape=tuple(shape.tolist())).toarray()
    return State(Sites(*arrays["sites"]), np.asarray(share), arrays["spread"])


def of_statistics(statistics: Statistics) -> Arrays:
    """Sums over the users of one shard, or of all."""
    messages = {name: getattr(statistics.messages, name) for name in NUMBERS}
    return {**messages, "sizes": statistics.sizes, "scores": statistics.scores}


def as_statistics(arrays: Arrays) -> Statistics:
    """From what `of_statistics` made of it."""
    return Statistics(Factors(arrays["Lam"], arrays["eta"], arrays["level"]), arrays["sizes"], arrays["scores"])


def of_singletons(parts: Sequence[Singletons]) -> Arrays:
    """Singletons of several parts, one after the other."""
    arrays = {name: np.concatenate([getattr(each, name) for each in parts]) for name in ("part", "position", "cluster")}
    return arrays | {name: np.concatenate([getattr(each.messages, name) for each in parts]) for name in NUMBERS}


def with_shared(learnt: Learnt, shared: Shared, wide: Factors | None = None) -> Learnt:
    """What was learnt, with what all users share, and without single users."""
    nobody = learnt.posterior.some(np.empty(0, dtype=np.intp))
    posterior = replace(
        nobody, population=shared.population, messages=shared.messages, sizes=shared.sizes,
        share=np.empty((0, len(shared))), wide=wide,
    )  # fmt: skip
    return replace(learnt, posterior=posterior)


def of_learnt(learnt: Learnt) -> Arrays:
    """What was learnt, of the users that it holds."""
    about, arrays = to_file(learnt)
    return {"about": np.array(json.dumps(about)), **arrays}


def as_learnt(arrays: Arrays, specification: Specification, design: Design | None = None) -> Learnt:
    """From what `of_learnt` made of it; without a `design` that of no users."""
    C, d = arrays["message_eta"].shape
    if design is None:
        none = np.empty(0)
        design = Design.of(specification.likelihood, np.empty((0, d)), none, none, np.zeros(1, dtype=np.intp))
        arrays = arrays | dict.fromkeys((*Sites._fields, "spread"), none) | {"share": np.empty((0, C))}
    learnt = learnt_from(json.loads(str(arrays["about"])), arrays, design)
    population = replace(learnt.posterior.population, law=specification.law)
    return replace(learnt, posterior=replace(learnt.posterior, population=population))
