"""DBSCAN and HDBSCAN on θ̂. Noise points stay alone.

The paper does not say how it chose DBSCAN's radius; here it is the usual knee-free rule, the median distance to the
`min_samples`-th neighbour, which sees no truth.
"""

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import DBSCAN, HDBSCAN

from prefkin.data.arrays import IntArray
from prefkin.reproduce.contracts import Neighbourhoods, Study, grouping


@grouping("dbscan", "DBSCAN", origin="paper")
def dbscan(study: Study) -> Neighbourhoods:
    """Radius: the median distance to the min_samples-th neighbour."""
    k = min(int(study.settings["min_samples"]), study.n_users - 1)
    radius = float(np.median(np.sort(cdist(study.own, study.own), axis=1)[:, k]))
    return together(DBSCAN(eps=max(radius, 1e-12), min_samples=k).fit_predict(study.own))


@grouping("hdbscan", "HDBSCAN")
def hdbscan(study: Study) -> Neighbourhoods:
    """Clusters of any density, of at least min_samples people."""
    least = max(2, min(int(study.settings["min_samples"]), study.n_users))
    return together(HDBSCAN(min_cluster_size=least, copy=True).fit_predict(study.own))


def together(label: IntArray) -> Neighbourhoods:
    """Those with the same label; −1 is alone."""
    return [np.flatnonzero(label == mine) if mine >= 0 else np.array([u]) for u, mine in enumerate(label)]
