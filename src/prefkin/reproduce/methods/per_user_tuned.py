"""Per-user estimates with the ridge chosen by held-out answers: the fair version of per-user MLE."""

import numpy as np

from prefkin.reproduce.contracts import FOLDS, Estimate, Study, estimator
from prefkin.reproduce.tuning import RIDGES, tuned_pull


@estimator("per_user_tuned", "per-user, tuned ridge")
def per_user_tuned(study: Study) -> Estimate:
    """A centre of 0 for everybody; own rows pull away from it."""
    zero = np.zeros((study.n_users, study.rows.dim))
    theta, ridge, heat = tuned_pull(study, np.zeros((FOLDS, *zero.shape)), zero, RIDGES)
    return Estimate(theta, [np.array([u]) for u in range(study.n_users)], heat=heat, note=f"ridge {ridge:g}")
