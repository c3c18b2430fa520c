"""KMeans on θ̂ with ⌈√U⌉ clusters, as in the paper; and, for comparison, told the true number."""

import numpy as np
from sklearn.cluster import KMeans

from prefkin.reproduce.contracts import Neighbourhoods, Study, Truth, grouping


@grouping("kmeans", "KMeans ⌈√U⌉", origin="paper")
def kmeans(study: Study) -> Neighbourhoods:
    """The paper's number of clusters."""
    return clusters(study, int(np.ceil(np.sqrt(study.n_users))))


@grouping("kmeans_true", "KMeans, true number", origin="oracle", told=True)
def kmeans_true(study: Study, truth: Truth) -> Neighbourhoods:
    """Told how many groups there are."""
    return clusters(study, len(np.unique(truth.group)))


def clusters(study: Study, number: int) -> Neighbourhoods:
    """Those in the same cluster."""
    label = KMeans(min(number, study.n_users), n_init=10, random_state=0).fit_predict(study.own)
    return [np.flatnonzero(label == mine) for mine in label]
