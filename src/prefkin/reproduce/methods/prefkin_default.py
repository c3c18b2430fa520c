"""PrefKin as shipped."""

import warnings

import numpy as np

from prefkin.data.arrays import FloatArray, IntArray
from prefkin.errors import PrefkinWarning
from prefkin.models.prefkin.estimator import PrefKin
from prefkin.reproduce.contracts import Estimate, Study, estimator


@estimator("prefkin", "PrefKin", origin="ours")
def prefkin_default(study: Study) -> Estimate:
    """No parameter."""
    rows = study.rows
    owner = np.repeat(np.arange(study.n_users), np.diff(rows.starts))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefkinWarning)
        model = PrefKin(n_jobs=1, random_state=0).fit(rows.rows.Z, rows.rows.y, users=owner)

    def probability(Z: FloatArray, users: IntArray) -> FloatArray:
        return model.predict_proba(Z, users=users)[:, 1]

    members = [model.members(u) for u in range(study.n_users)]
    return Estimate(model.theta_, members, probability=probability, note=model.structure_)
