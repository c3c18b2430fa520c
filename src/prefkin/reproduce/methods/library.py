"""Models of the library as they are shipped: PrefKin, and the rivals that choose by held-out answers."""

from prefkin.models.baselines import GroupShrinkage, per_user
from prefkin.models.prefkin.estimator import PrefKin
from prefkin.reproduce.contracts import Estimate, Study, estimator


@estimator("per_user_tuned", "per-user, tuned ridge")
def per_user_tuned(study: Study) -> Estimate:
    """Everybody alone, with the ridge chosen: the fair version of per-user MLE."""
    model = per_user().fit(study.data)
    return Estimate.of(model, note=f"ridge {model.ridge_:g}")


@estimator("shrink", "shrinkage to pooled, tuned")
def shrink(study: Study) -> Estimate:
    """Own rows, drawn towards the estimate for everybody as strongly as is chosen; the ridge is that of all here."""
    model = GroupShrinkage("all", ridge=study.ridge).fit(study.data)
    return Estimate.of(model, note=f"pull {model.pull_:g}")


@estimator("mixture_em", "mixture-EM, tuned")
def mixture_em(study: Study) -> Estimate:
    """Expectation-maximisation; how many groups, and the pull to their centres, are chosen."""
    model = GroupShrinkage("em", ridge=study.ridge).fit(study.data)
    return Estimate.of(model, note=f"{len(model.centres_)} groups, pull {model.pull_:g}")


@estimator("prefkin", "PrefKin", origin="ours")
def prefkin_default(study: Study) -> Estimate:
    """As it is shipped: nothing is chosen here."""
    model = PrefKin(n_jobs=1, random_state=0).fit(study.data)
    return Estimate.of(model, note=model.structure_)
