"""No clustering at all: pessimistic MLE of a user's own rows (Zhu et al. 2023), of everybody's, of a true group's."""

import numpy as np

from prefkin.reproduce.contracts import Neighbourhoods, Study, Truth, grouping


@grouping("per_user", "per-user MLE", origin="paper")
def per_user(study: Study) -> Neighbourhoods:
    """Everybody alone."""
    return [np.array([u]) for u in range(study.n_users)]


@grouping("pooled", "pooled MLE", origin="paper")
def pooled(study: Study) -> Neighbourhoods:
    """All rows as if of one person."""
    return [np.arange(study.n_users)] * study.n_users


@grouping("true_groups", "true groups, pooled", origin="oracle", told=True)
def true_groups(study: Study, truth: Truth) -> Neighbourhoods:
    """Told who is in which group: what any clustering could reach with the same pooling."""
    return [np.flatnonzero(truth.group == truth.group[u]) for u in range(study.n_users)]
