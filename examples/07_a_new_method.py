"""
A new method in the harness
===========================

A method of your own beside those of the paper, on the paper's synthetic users: same data, same pooling, same metrics,
and nothing in the package to edit.
"""

from dataclasses import replace

import numpy as np
from sklearn.cluster import AgglomerativeClustering

from prefkin.reproduce.contracts import Neighbourhoods, Study, grouping
from prefkin.reproduce.plan import read_plan
from prefkin.reproduce.trial import run_trial

# %%
# A grouping says who is pooled with whom. It sees a ``Study``: everybody's own estimates, the rows, never the truth.


@grouping("ward", "Ward's linkage, ⌈√U⌉ clusters")
def ward(study: Study) -> Neighbourhoods:
    """Those in the same cluster."""
    label = AgglomerativeClustering(int(np.ceil(np.sqrt(study.n_users)))).fit_predict(study.own)
    return [np.flatnonzero(label == mine) for mine in label]


# %%
# One trial of the first experiment, with this method among the others.

plan = replace(read_plan("exp1", "synthetic", "quick"), runs=1, methods=("per_user", "kmeans", "ward", "off_c2pl"))
rows = run_trial(plan.trials()[0])
print(plan.title, dict(plan.trials()[0].cell))
for row in rows:
    print(f"{row['method']:10} gap {row['gap']:.3f}  precision {row['precision']:.2f}  recall {row['recall']:.2f}")
