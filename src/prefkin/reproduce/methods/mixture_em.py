"""Mixture by expectation-maximisation; the number of groups, and the pull to their centres, by held-out answers."""

from prefkin.models.baselines import GroupShrinkage
from prefkin.reproduce.contracts import Estimate, Study, estimator


@estimator("mixture_em", "mixture-EM, tuned")
def mixture_em(study: Study) -> Estimate:
    """The baseline, with the ridge that everybody has here."""
    model = GroupShrinkage("em", ridge=study.ridge).fit(study.data)
    return Estimate.of(model, note=f"{len(model.centres_)} groups, pull {model.pull_:g}")
