"""PrefKin as shipped."""

from prefkin.models.prefkin.estimator import PrefKin
from prefkin.reproduce.contracts import Estimate, Study, estimator


@estimator("prefkin", "PrefKin", origin="ours")
def prefkin_default(study: Study) -> Estimate:
    """No parameter."""
    model = PrefKin(n_jobs=1, random_state=0).fit(study.data)
    return Estimate.of(model, note=model.structure_)
