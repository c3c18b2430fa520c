"""Told who is in which group: what any clustering could reach with the same pooling."""

import numpy as np

from prefkin.reproduce.contracts import Neighbourhoods, Study, Truth, grouping


@grouping("true_groups", "true groups, pooled", origin="oracle", told=True)
def true_groups(study: Study, truth: Truth) -> Neighbourhoods:
    """The true group of each user."""
    return [np.flatnonzero(truth.group == truth.group[u]) for u in range(study.n_users)]
