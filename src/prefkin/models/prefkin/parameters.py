"""Arguments of `PrefKin`: checked, and as the specification of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefkin.data.folds import PREDICT_FOR
from prefkin.errors import InvalidParameter
from prefkin.inference.likelihood import Logistic
from prefkin.inference.model import GAUSSIAN
from prefkin.models.calls import refuse_other_random_state, refuse_other_threads
from prefkin.models.prefkin.covariance import STRUCTURES, Structure
from prefkin.models.prefkin.fitting import Specification

if TYPE_CHECKING:
    from prefkin.models.prefkin.estimator import PrefKin

__all__ = ["METRICS", "check_parameters", "specification_of"]

METRICS = tuple(STRUCTURES)


def check_parameters(model: PrefKin) -> None:
    """Refuse what no fit can use, before any work."""
    if not isinstance(model.metric, Structure) and model.metric not in (*METRICS, "auto"):
        names = ", ".join(map(repr, METRICS))
        raise InvalidParameter(f"metric must be 'auto', one of {names}, or a Structure; got {model.metric!r}")
    if model.predict_for not in PREDICT_FOR:
        raise InvalidParameter(f"predict_for must be 'auto', 'new items' or 'known items'; got {model.predict_for!r}")
    if not (isinstance(model.level, float) and 0 < model.level < 1):
        raise InvalidParameter(f"level must be between 0 and 1; got {model.level!r}")
    for name, method in (("likelihood", "tilted"), ("population", "spread")):
        given = getattr(model, name)
        if given is not None and (isinstance(given, type) or not callable(getattr(given, method, None))):
            raise InvalidParameter(f"{name} must be None or an object with a method {method}; got {given!r:.60}")
    refuse_other_random_state(model.random_state)
    refuse_other_threads(model.n_jobs)


def specification_of(model: PrefKin) -> Specification:
    """What the fit is asked to do."""
    structures = None
    if model.metric != "auto":
        structures = (STRUCTURES[model.metric] if isinstance(model.metric, str) else model.metric,)
    likelihood = Logistic() if model.likelihood is None else model.likelihood
    law = GAUSSIAN if model.population is None else model.population
    return Specification(structures, model.predict_for, likelihood, law, model.random_state)
