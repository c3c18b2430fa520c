"""prefkin: find the people who want the same, pool their comparisons, recommend what is safe, ask what teaches most.

Eight packages, each of which uses those above it in this list and none below:

execution  how work is carried out: threads, BLAS, progress
data       what people answered, and what could be shown to them
inference  estimates and posteriors: functions of arrays
decide     what to recommend, and what to ask next
models     scikit-learn estimators: Off-C²PL, PrefKin, baselines
evaluate   metrics, comparisons of methods, audits, pictures
reproduce  the paper's experiments, and how fast every public call is
apps       the command line, pages on which people answer

Names below are imported when they are first used, so that `import prefkin` is quick.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as typing's, without importing it
if TYPE_CHECKING:
    from typing import Any

    from prefkin.data.candidates import Candidates
    from prefkin.data.comparisons import Comparisons
    from prefkin.data.shards import open_comparisons
    from prefkin.data.tables import read_candidates, read_comparisons
    from prefkin.decide.policy import Policy
    from prefkin.decide.rules.pairs import Question
    from prefkin.decide.session import ActiveSession
    from prefkin.errors import PrefkinError, PrefkinWarning
    from prefkin.models.files import load
    from prefkin.models.off_c2pl.estimator import OffC2PL
    from prefkin.models.off_c2pl.radius import KAPPA_UNIT_BALL, ItemRegularity
    from prefkin.models.prefkin.estimator import PrefKin

__version__ = "0.2.0"

__all__ = [
    "KAPPA_UNIT_BALL",
    "ActiveSession",
    "Candidates",
    "Comparisons",
    "ItemRegularity",
    "OffC2PL",
    "Policy",
    "PrefKin",
    "PrefkinError",
    "PrefkinWarning",
    "Question",
    "__version__",
    "load",
    "open_comparisons",
    "read_candidates",
    "read_comparisons",
]

_HOME = {
    "KAPPA_UNIT_BALL": "prefkin.models.off_c2pl.radius",
    "ActiveSession": "prefkin.decide.session",
    "Candidates": "prefkin.data.candidates",
    "Comparisons": "prefkin.data.comparisons",
    "ItemRegularity": "prefkin.models.off_c2pl.radius",
    "OffC2PL": "prefkin.models.off_c2pl.estimator",
    "Policy": "prefkin.decide.policy",
    "PrefKin": "prefkin.models.prefkin.estimator",
    "PrefkinError": "prefkin.errors",
    "PrefkinWarning": "prefkin.errors",
    "Question": "prefkin.decide.rules.pairs",
    "load": "prefkin.models.files",
    "open_comparisons": "prefkin.data.shards",
    "read_candidates": "prefkin.data.tables",
    "read_comparisons": "prefkin.data.tables",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'prefkin' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
