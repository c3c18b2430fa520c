"""Own rows, drawn towards the estimate for everybody; how strongly is chosen by held-out answers."""

import numpy as np

from prefkin.reproduce.contracts import FOLDS, Estimate, Study, estimator
from prefkin.reproduce.many_fits import fit_many
from prefkin.reproduce.tuning import PULLS, tuned_pull


@estimator("shrink", "shrinkage to pooled, tuned")
def shrink(study: Study) -> Estimate:
    """One centre, that of all rows."""
    everybody = np.arange(study.n_users)
    member = np.array([study.uses(everybody, without=f) for f in range(FOLDS)])
    without = fit_many(study.parcels, member, np.full(FOLDS, study.ridge))
    centre = study.pool([everybody])[0]
    spread = (study.n_users, study.rows.dim)
    theta, pull, heat = tuned_pull(
        study, np.broadcast_to(without[:, None], (FOLDS, *spread)), np.broadcast_to(centre, spread), PULLS
    )
    return Estimate(theta, [everybody] * study.n_users, heat=heat, note=f"pull {pull:g}")
