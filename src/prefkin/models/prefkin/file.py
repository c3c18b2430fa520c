"""A fitted `PrefKin` in one file: comparisons, EP sites, responsibilities, messages, and hyperparameters by name.

Estimates, covariances and probabilities are computed from these after loading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from prefkin.errors import InvalidParameter, ModelFileError
from prefkin.inference.ep import Sites
from prefkin.inference.factors import Factors
from prefkin.inference.likelihood import Logistic
from prefkin.inference.model import Population
from prefkin.models.prefkin.fitting import Learnt, design_of
from prefkin.models.prefkin.partition.prior import ChineseRestaurant
from prefkin.models.prefkin.posterior import Posterior
from prefkin.models.prefkin.selection import Calibration

if TYPE_CHECKING:
    from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["learnt_from", "parameters_from", "refuse_objects", "restored", "to_file", "written"]

VERSION = 2  # of what a PrefKin writes; prefkin 0.2 wrote none
PARAMETERS = "metric", "predict_for", "level", "n_jobs", "random_state"


def written(model: PrefKin) -> tuple[dict[str, Any], dict[str, Any]]:
    """Everything that was learnt, to the last digit: plain values, and arrays."""
    refuse_objects(model)
    about, arrays = to_file(model._learnt)
    about |= {name: getattr(model, name) for name in PARAMETERS}
    about |= {
        "version": VERSION,
        "random_state": model.random_state if isinstance(model.random_state, int | None) else None,
        "refit_gain": _finite(model.refit_gain_),
    }
    return about, arrays | {"own_theta": model.own_theta_, "radius": model._radii, "habit": model.habit_}


def to_file(learnt: Learnt) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was learnt, of the users that it holds, as plain values and arrays."""
    posterior, population = learnt.posterior, learnt.posterior.population
    about = {
        "structure": learnt.structure,
        "candidate": learnt.candidate,
        "calibration": learnt.calibration._asdict(),
        "evidence": {name: _finite(value) for name, value in learnt.evidence.items()},
        "losses": learnt.losses,
        "n_iter": learnt.n_iter,
        "converged": learnt.converged,
        "over_pooled": learnt.over_pooled,
        "population": {name: getattr(population, name) for name in ("within", "between", "top", "clustered")},
        "concentration": population.partition.concentration if population.clustered else None,
    }
    arrays = {
        **posterior.sites._asdict(),
        "share": posterior.share,
        "spread": posterior.spread,
        "m0": population.m0,
        "sizes": posterior.sizes,
        **{f"message_{name}": values for name, values in vars(posterior.messages).items()},
        **({} if posterior.wide is None else {f"wide_{name}": each for name, each in vars(posterior.wide).items()}),
        **({} if population.root is None else {"root": population.root}),
    }
    return about, arrays


def refuse_objects(model: PrefKin) -> None:
    """A model with a likelihood, a population law or a structure of the caller's own cannot be written to a file."""
    for name in ("likelihood", "population"):
        if getattr(model, name) is not None:
            raise InvalidParameter(
                f"a model with {name}={getattr(model, name)!r:.60} cannot be saved: a file holds no code; save its "
                "comparisons, and fit again where the object is defined"
            )
    if not isinstance(model.metric, str):
        raise InvalidParameter(
            f"a model with a covariance structure of its own ({model.metric.name!r:.40}) cannot be saved: a file holds "
            "no code; save its comparisons, and fit again where the structure is defined"
        )


def parameters_from(about: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the constructor; files of other versions are refused."""
    if about.get("version") != VERSION:
        by = (
            "prefkin 0.2 or earlier"
            if "version" not in about
            else f"a later prefkin (version {about['version']!r:.20})"
        )
        raise ModelFileError(
            f"a PrefKin model of {by}, which this prefkin cannot read: fit again from the comparisons (prefkin fit "
            "FILE --out DIR); where they are only in the model, load it with that version and save "
            "model.comparisons()"
        )
    return {name: about[name] for name in PARAMETERS}


def restored(model: PrefKin, about: dict[str, Any], labels: Any, arrays: dict[str, Any]) -> PrefKin:
    """The model, which has its parameters, with what was `written`."""
    model._from_file(about, labels, arrays)
    model.habit_ = arrays["habit"]
    model._keep(learnt_from(about, arrays, design_of(model._with_habits(model._users), Logistic())))
    model.__dict__["radius_"] = model.__dict__["_radii"] = arrays["radius"]
    model.__dict__["own_theta_"] = arrays["own_theta"]
    model.refit_gain_ = _number(about["refit_gain"])
    return model


def learnt_from(about: dict[str, Any], arrays: dict[str, Any], design: Any) -> Learnt:
    """What `to_file` wrote, of the users of this design."""
    d, (U, C) = design.dim, arrays["share"].shape
    clustered, root = about["population"]["clustered"], arrays.get("root")
    messages, wide = (
        {name: arrays[f"{kind}_{name}"] for name in ("Lam", "eta", "level") if f"{kind}_{name}" in arrays}
        for kind in ("message", "wide")
    )
    shapes = [arrays[name].shape for name in ("tau", "nu", "level", "spread", "m0", "sizes")]
    expected = [(len(design.y),)] * 3 + [(U,), (d,), (C,)]
    if (
        shapes != expected
        or design.n_users != U
        or [each.shape for each in messages.values()] != [(C, d, d), (C, d), (C,)]
        or (wide and [each.shape for each in wide.values()] != [(C, d, d), (C, d), (C,)])
    ):
        raise ValueError("shapes")
    if (root is not None and root.shape not in ((d,), (d, d))) or (about["structure"] == "groups" and not clustered):
        raise ValueError("root" if root is not None else "structure")
    partition = ChineseRestaurant(float(about["concentration"])) if clustered else None
    population = Population(**about["population"], m0=arrays["m0"], root=root, partition=partition)
    sites = Sites(*(arrays[name] for name in Sites._fields))
    posterior = Posterior(
        design, sites, arrays["share"], arrays["spread"], population, Factors(**messages), arrays["sizes"],
        wide=Factors(**wide) if wide else None,
    )  # fmt: skip
    evidence = {name: _number(value) for name, value in about["evidence"].items()}
    names = "structure", "candidate", "losses", "n_iter", "converged"
    known = {name: about[name] for name in names}
    if (over_pooled := about["over_pooled"]) is not None:
        gain, error = map(float, over_pooled)
        known["over_pooled"] = gain, error
    return Learnt(posterior, calibration=Calibration(**about["calibration"]), evidence=evidence, **known)


def _finite(value: float) -> float | None:
    """None for −∞, for which JSON has no word."""
    return float(value) if np.isfinite(value) else None


def _number(value: float | None) -> float:
    return -np.inf if value is None else float(value)
