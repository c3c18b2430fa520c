"""Per-user estimates with the ridge chosen by held-out answers: the fair version of per-user MLE."""

from prefkin.models.baselines import per_user
from prefkin.reproduce.contracts import Estimate, Study, estimator


@estimator("per_user_tuned", "per-user, tuned ridge")
def per_user_tuned(study: Study) -> Estimate:
    """Everybody alone."""
    model = per_user().fit(study.data)
    return Estimate.of(model, note=f"ridge {model.ridge_:g}")
