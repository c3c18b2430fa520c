"""Own rows, drawn towards the estimate for everybody; how strongly is chosen by held-out answers."""

from prefkin.models.baselines import GroupShrinkage
from prefkin.reproduce.contracts import Estimate, Study, estimator


@estimator("shrink", "shrinkage to pooled, tuned")
def shrink(study: Study) -> Estimate:
    """One centre, that of all rows, with the ridge that everybody has here."""
    model = GroupShrinkage("all", ridge=study.ridge).fit(study.data)
    return Estimate.of(model, note=f"pull {model.pull_:g}")
