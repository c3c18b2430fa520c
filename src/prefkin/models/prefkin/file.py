"""A `PrefKin` in one file: its comparisons, sites and memberships, from which the rest is computed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from prefkin.data.arrays import FloatArray
from prefkin.inference.propagation import Sites
from prefkin.inference.quadratics import expand
from prefkin.models.prefkin.calibrate import Fitted
from prefkin.models.prefkin.metric import Metric
from prefkin.models.prefkin.mixture import Mixture, Prior, finished, solved

if TYPE_CHECKING:
    from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["restored", "written"]


def written(model: PrefKin) -> tuple[dict[str, Any], dict[str, Any]]:
    """Everything that was learnt, to the last digit: plain values, and arrays."""
    mixture, wide = model._fitted.mixture, model._fitted.wide
    about = {
        "metric": model.metric,
        "level": model.level,
        "n_jobs": model.n_jobs,
        "predict_for": model.predict_for,
        "random_state": model.random_state if isinstance(model.random_state, int | None) else None,
        "structure": model.structure_,
        "numbers": [mixture.prior.within, mixture.prior.between, mixture.prior.top, mixture.evidence],
        "lonely": mixture.prior.lonely,
        "heat": model._fitted.temperature,
        "wide": None if wide is None else [*wide.prior[1:4], wide.evidence],
        "own_variance": model._own_variance,
        "over_pooled": model._over_pooled,
        "refit_gain": model.refit_gain_ if np.isfinite(model.refit_gain_) else None,
        "evidence": {name: value if np.isfinite(value) else None for name, value in model.evidence_.items()},
    }
    arrays = {
        "root": model._fitted.metric.root,
        "own_theta": model.own_theta_,
        "habit": model.habit_,
        "radius": model._radii,
        "share": mixture.share,
        "m0": mixture.prior.m0,
        **_kept(mixture.sites, "site"),
        **({} if wide is None else _kept(wide.sites, "wide")),
    }
    return about, arrays


def restored(model: PrefKin, about: dict[str, Any], labels: Any, arrays: dict[str, Any]) -> PrefKin:
    """The model, which has its parameters, with what was `written`; files of before 0.3 say less."""
    model.predict_for = about.get("predict_for", "auto")
    model._from_file(about, labels, arrays)
    users = model._users
    model.habit_ = arrays.get("habit", np.zeros(len(users)))
    # files of before 0.3 hold what features were divided by
    metric = Metric(arrays["root"] if "root" in arrays else 1.0 / arrays["scale"])
    data = metric.signed(users)

    def people(name: str, share: FloatArray, prior: Prior, evidence: float) -> Mixture:
        sites = Sites.kept(*(arrays[f"{name}_{part}"] for part in ("precision", "pull", "level")))
        return finished(solved(expand(data, sites), sites, share, prior, evidence))

    within, between, top, evidence = about["numbers"]
    prior, wide = Prior(arrays["m0"], within, between, top, about.get("lonely", 0.0)), None
    mixture = people("site", arrays["share"], prior, evidence)
    if about.get("wide"):  # one group with everybody, around 0
        *spreads, evidence = about["wide"]
        prior = Prior(np.zeros(metric.dim), *spreads)
        wide = people("wide", np.ones((len(users), 1)), prior, evidence)
    model._keep(Fitted(mixture, metric, wide, about["heat"]))
    model.__dict__["radius_"] = model.__dict__["_radii"] = arrays["radius"]
    model.__dict__["own_theta_"], model.structure_ = arrays["own_theta"], about["structure"]
    kept = {name: about["evidence"][name] for name in ("by degrees", "groups")}
    model.evidence_ = {name: -np.inf if value is None else float(value) for name, value in kept.items()}
    gain = about.get("refit_gain")
    model.refit_gain_ = -np.inf if gain is None else float(gain)
    spread = prior.alone + float((mixture.prior.m0**2).mean())  # about that; not said in older files
    model._own_variance = float(about.get("own_variance", spread))
    if about.get("over_pooled") is not None:
        gain, error = map(float, about["over_pooled"])
        model._over_pooled = gain, error
    return model


def _kept(sites: Sites, name: str) -> dict[str, FloatArray]:
    """Sites for a model file."""
    return {f"{name}_precision": sites.precision, f"{name}_pull": sites.pull, f"{name}_level": sites.level}
