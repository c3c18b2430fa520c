"""Pessimistic MLE (pooled): everybody's rows as if of one person."""

import numpy as np

from prefkin.reproduce.contracts import Neighbourhoods, Study, grouping


@grouping("pooled", "pooled MLE", origin="paper")
def pooled(study: Study) -> Neighbourhoods:
    """All together."""
    return [np.arange(study.n_users)] * study.n_users
