"""Everything that a model offers, on data of odd sizes and shapes: right or refused, never silently not a number."""

import warnings
from contextlib import suppress

import numpy as np
import pytest

import prefkin
from prefkin import Candidates, OffC2PL, PrefKin
from prefkin.errors import ConvergenceError, InvalidComparisons, InvalidParameter, PrefkinWarning

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
KINDS = ("plain", "one user", "one row", "one feature", "constant answers", "rows of zeros", "one row again and again")
MODELS = {"OffC2PL": lambda: OffC2PL(1.0), "PrefKin": lambda: PrefKin(metric="isotropic")}


def comparisons(kind, size, weight=1.0):
    rng = np.random.default_rng(0)
    n_users, each, d = 1 if kind == "one user" else 3, 1 if kind == "one row" else 6, 1 if kind == "one feature" else 2
    Z, users = size * rng.standard_normal((n_users * each, d)), np.repeat(np.arange(n_users), each)
    y = rng.integers(0, 2, len(Z))
    y[0] = 1 - y[-1]
    if kind == "constant answers":
        y[:] = 1
    elif kind == "rows of zeros":
        Z[::2] = 0.0
    elif kind == "one row again and again":
        Z[:] = Z[0]
    return Z, y, users, np.full(len(Z), weight)


def fitted(model, kind, size, weight=1.0):
    Z, y, users, weights = comparisons(kind, size, weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefkinWarning)
        return MODELS[model]().fit(Z, y, users=users, sample_weight=weights)


def told_by(model, kind, size, weight, tmp_path):
    """Numbers by what they were asked of; what was refused is left out."""
    Z, y, users, _ = comparisons(kind, size, weight)
    fit = fitted(model, kind, size, weight)
    shown, user = Candidates(size * np.random.default_rng(1).standard_normal((2, 3, Z.shape[1]))), fit.users_[0]

    def talk(session):
        for answer in (True, False):
            session.tell(session.ask(), answer)
        return [*session.theta, *session.preference, session.enough().regret]

    def reloaded():
        fit.save(tmp_path / "model")
        return prefkin.load(tmp_path / "model").predict_proba(Z, users=users)

    asked = {
        "theta": lambda: fit.theta_,
        "own": lambda: fit.own_theta_,
        "radius": lambda: np.nan_to_num(fit.radius_, nan=np.nan, posinf=0.0),  # infinite: nothing is known
        "chances": lambda: fit.predict_proba(Z, users=users),
        "information": lambda: fit.information(user),
        "policy": lambda: fit.policy(user, shown).value,
        "session": lambda: talk(fit.session(user, shown)),
        "newcomer": lambda: talk(fit.session(None, shown)),
        "fold_in": lambda: fit.fold_in(Z[:2], y[:2]).theta,
        "explained": lambda: fit.explain(user, fit.users_[-1]).distance,
        "neighbours": lambda: float(len(fit.neighbours(user))),
        "planned": lambda: float(len(fit.plan_questions(shown, 2))),
        "summary": lambda: float(len(str(fit.summary()))),
        "reloaded": reloaded,
        "updated": lambda: fit.update(Z[:1], y[:1], users=users[:1]).theta_,
    }
    told = {}
    for name, ask in asked.items():
        with warnings.catch_warnings(), suppress(ConvergenceError, InvalidParameter):
            warnings.simplefilter("ignore", PrefkinWarning)
            told[name] = np.asarray(ask(), dtype=float)
    return told


@pytest.mark.parametrize(
    ("model", "kind", "size", "weight"),
    [
        *(("OffC2PL", kind, size, 1.0) for kind in KINDS for size in (1e-30, 1e-8, 1.0, 1e8, 1e30)),
        *(("PrefKin", kind, size, 1.0) for kind in KINDS for size in (1e-30, 1e30)),
        *((model, "plain", size, weight) for model in MODELS for size in (1e-8, 1e8) for weight in (1e-150, 1e8)),
    ],
)
def test_whatever_is_told_is_a_number(model, kind, size, weight, tmp_path):
    told = told_by(model, kind, size, weight, tmp_path)
    assert {"theta", "own", "radius", "chances", "reloaded"} <= set(told)
    assert model == "OffC2PL" or set(told) >= {
        "policy",
        "session",
        "newcomer",
        "fold_in",
        "planned",
        "summary",
        "updated",
    }
    assert [name for name, numbers in told.items() if not np.isfinite(numbers).all()] == []


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("size", "weight", "words"),
    [(1e-150, 1.0, "squares vanish"), (1e150, 1.0, "beyond 1e75"), (1.0, 1e150, "weight is beyond 1e9")],
)
def test_sizes_that_cannot_be_computed_with_are_refused(model, size, weight, words):
    with pytest.raises(InvalidComparisons, match=words):
        fitted(model, "plain", size, weight)


def test_a_slope_that_would_make_information_infinite_is_refused():
    Z, y, users, _ = comparisons("plain", 1.0)
    with pytest.raises(InvalidParameter, match="kappa must be above 1e-75"):
        OffC2PL(0.0, kappa=1e-320).fit(Z, y, users=users)


def test_rows_that_leave_no_digits_for_other_directions_are_refused_in_words():
    fit = fitted("OffC2PL", "one row again and again", 1e30)
    with pytest.raises(ConvergenceError, match="scale the features down"):
        fit.policy(0, Candidates(np.eye(2)[None]))
