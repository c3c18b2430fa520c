"""Pessimistic MLE (per-user): only the user's own rows, fixed ridge (Zhu et al. 2023)."""

import numpy as np

from prefkin.reproduce.contracts import Neighbourhoods, Study, grouping


@grouping("per_user", "per-user MLE", origin="paper")
def per_user(study: Study) -> Neighbourhoods:
    """Everybody alone."""
    return [np.array([u]) for u in range(study.n_users)]
