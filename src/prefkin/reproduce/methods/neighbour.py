"""Pessimistic MLE (neighbour): the rows of the k nearest users by the cosine of θ̂; k is the setting `neighbours`."""

import numpy as np
from sklearn.metrics.pairwise import cosine_similarity

from prefkin.reproduce.contracts import Neighbourhoods, Study, grouping


@grouping("neighbour", "k-NN MLE (cosine)", origin="paper")
def neighbour(study: Study) -> Neighbourhoods:
    """Oneself and the k − 1 most alike."""
    k = min(int(study.settings["neighbours"]), study.n_users)
    likeness = cosine_similarity(study.own)
    np.fill_diagonal(likeness, np.inf)
    return [np.sort(np.argsort(-row, kind="stable")[:k]) for row in likeness]
