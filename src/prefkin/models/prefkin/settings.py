"""Every constant of the method: small dataclasses, each field a full sentence with its reason."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    *("PASSES", "POSITION_BIAS", "REPORTING", "SCALES", "SEARCH", "SELECTION"),
    *("Passes", "PositionBias", "Reporting", "Scales", "Search", "Selection"),
]


@dataclass(frozen=True)
class Scales:
    """Constants of the variances."""

    least_margin_variance: float = 1e-6
    """Users whose margins vary by less from the group mean are alike."""
    most_margin_variance: float = 1e4
    """Beyond this variance of margins nearly every answer is certain, and the data say no more about the variance."""
    least_deviation: float = 1e-4
    """Users differ in every direction by this part, at least, of what they differ by in the direction of most."""
    most_change: float = 3.0
    """One M-step changes a variance by at most this factor, since sites follow only after it."""
    most_step: float = 1.0
    """A lengthened step changes the logarithm of a variance by at most this."""
    shortest_step: float = 0.3
    """Steps are shortened to this part where they turn back, and"""
    longest_step: float = 4.0
    """Steps are lengthened by at most this factor."""
    scale_step: float = 1.0
    """The overall scale is sought in steps of a factor e of the variances,"""
    scale_steps: int = 8
    """at most so many to either side."""
    scale_sweeps: int = 4
    """Sweeps of the sites at each scale: evidence does not change to first order with what they still lack."""
    well_determined: float = 20.0
    """With more parameters determined by the answers, evidence peaks at one scale; with fewer it is averaged over."""
    negligible: float = 5.0
    """Scales whose evidence is behind by so many nats do not count in the average."""
    says_nothing: float = 0.5
    """Evidence that varies by fewer nats does not tell scales apart."""
    first_margin_variance: float = 2.0
    """Learning starts with margins of this variance: clear, but not certain answers."""


@dataclass(frozen=True)
class Search:
    """Constants of the search for a partition."""

    start: float = 0.05
    """The search starts with this share of the variance within groups, so that merging sees clear differences."""
    rounds: int = 6
    """Rounds of merging and reassignment; more changed nothing in planted groups (docs/decisions)."""
    all_pairs: int = 80
    """Up to so many clusters all pairs are candidates for merging."""
    sweeps: int = 3
    """Sweeps of the sites, at most, before and after reassignment in a round, and"""
    last_sweeps: int = 10
    """under the best partition."""
    hub: float = 8.0
    """Clusters join one that is so many times as large many at a time."""
    partners: int = 20
    """Of more clusters, each is compared with so many that are most alike."""
    contenders: int = 6
    """So many clusters of each user are asked exactly; more gave the same partitions."""
    clear: float = 14.0
    """A user whose likeliest cluster leads by so many nats is not asked exactly."""
    reassignments: int = 6
    """Passes of reassignment in a round."""
    least_share: float = 0.01
    """Clusters whose responsibilities sum to less are dropped."""
    most_users: int = 1000
    """Of more users some teach the hyperparameters and the groups: at least so many,"""
    most_work: float = 4e8
    """and as many as take so many multiplications in an E-step."""
    most_numbers: int = 1 << 25
    """Numbers of the matrices of those users among whom groups are sought: a quarter of a gigabyte."""


@dataclass(frozen=True)
class PositionBias:
    """Constants of the position bias."""

    clearly: float = 6.0
    """Log evidence, with two free numbers, from which a bias is believed: one fit in 400 without a bias exceeds it."""
    least_rows: int = 20
    """Fewer rows say nothing about sides."""
    least_share: float = 0.05
    """Where either side was preferred in a smaller share of the rows, the winner was written first, or last."""
    rounds: int = 4
    """Newton steps of the biases, each followed by"""
    sweeps: int = 3
    """so many sweeps of the sites."""
    most: float = 6.0
    """Biases are at most so many log odds."""


POSITION_BIAS = PositionBias()


@dataclass(frozen=True)
class Selection:
    """Constants of model selection."""

    folds: int = 5
    """Folds of the held-out answers."""
    full_up_to: int = 40
    """Features up to which diagonal and full covariances are candidates."""
    directions: int = 128
    """Beyond so many features choices are made along the leading directions of the rows."""
    max_iter: int = 15
    """Iterations of a fit of continuous heterogeneity before and after `best_scale`, at most."""
    known_iter: int = 6
    """Iterations of such a fit, at most, whose hyperparameters a sample of the users has taught."""
    members: int = 10
    """Users for each cluster, at least, among those whose held-out answers choose."""
    most_users: int = 100
    """Of more users some choose the covariance structure: at least so many,"""
    most_work: float = 2.5e6
    """and as many as take so many multiplications in an E-step."""
    enough_judged: int = 3000
    """Folds are judged until there are so many held-out answers: more do not change a choice."""
    last_iter: int = 60
    """Iterations, at most, after the variances were multiplied by what held-out answers say; most fits take few."""
    lift_iter: int = 3
    """Iterations in all features of a fit that was learnt along the leading directions, at most."""
    deals: int = 3
    """Times that items are dealt to folds, where they recur."""
    temperature_prior: float = 5.0
    """Held-out log-loss against the squared logarithm of a temperature: a standard deviation of about 30 %."""
    most_log_temperature: float = 1.5
    """Temperatures are between exp(-1.5) and exp(1.5)."""
    beats_a_coin: float = 3.0
    """Held-out answers must beat a coin by so many nats before a temperature above 2 is believed."""
    scale_prior: float = 0.1
    """Held-out log-loss against the square of half a decade of a variance."""
    scale_step: float = 0.5
    """Variances are moved by half a decade (log10)."""
    most_steps: int = 10
    """Half decades by which a variance is moved at most: by then users are alike, or unrelated."""
    pooled: float = 1e-6
    """Complete pooling is the chosen model with the variance within groups multiplied by this."""
    far_behind: float = 30.0
    """A candidate whose evidence is so many nats behind the best of its kind is not learnt in the folds."""
    alike: float = 0.02
    """Users whose variance is below this part of the square of their mean are one group, and"""
    unrelated: float = 10.0
    """above so many times it they have nothing in common."""
    clearly: float = 1.0
    """Log evidence by which groups must beat continuous heterogeneity to be a candidate."""


@dataclass(frozen=True)
class Passes:
    """Constants of passes over all users, and of updates."""

    near: float = 6.0
    """Clusters that are behind by fewer nats are weighed with a user's sites matched to each of them."""
    sure: float = 0.999
    """Members of a cluster with this responsibility are not weighed again by later passes over the same answers."""
    contender_sweeps: int = 6
    """Sweeps of the sites for a contender, at most, until"""
    contender_tol: float = 0.1
    """no margin moves by this many posterior standard deviations."""
    max_iter: int = 12
    """Sweeps of a user's sites in a pass, at most."""
    tol: float = 0.03
    """A user's sites have converged when no margin moves by this many posterior standard deviations."""
    numbers: int = 1 << 21
    """Numbers of the d x d matrices of one block of users: 16 MB."""
    sample_work: float = 1.5e8
    """Hyperparameters are learnt from a sample of users whose EP sweep takes about so many multiplications, with"""
    row_work: float = 1e3
    """The tilted moments of one answer take about so many multiplications."""
    least_sample: int = 200
    """at least so many users, from whom scales are known to some percent, and"""
    most_sample: int = 20_000
    """at most so many."""
    singletons: int = 2000
    """So many singletons are looked at for clusters of which the sample had too few members."""
    updates: int = 3
    """Passes over the users of an update: their answers change the group means, and these the answers' sites."""
    sampled: int = 40
    """Users with new answers by whom it is judged whether hyperparameters should be learnt again."""
    clearly: float = 1.0
    """Log evidence by which a prior learnt from new answers alone must beat the prior in use, and"""
    clearly_each: float = 0.03
    """for each user who is judged, since sites differ between the two."""


@dataclass(frozen=True)
class Reporting:
    """Constants of what a fitted model reports, and of its warnings."""

    caution: float = 1.05
    """Radii are multiplied by this, for what the posterior leaves out: the partition and the scales."""
    thin: float = 2.0
    """Radii were found too small below so many comparisons per feature (benchmarks/coverage.py)."""
    certain: float = 0.07
    """Answers are nearly certain where the mean slope of the sigmoid is below this."""
    certain_place: float = 0.9
    """The group of a user is called uncertain below this responsibility."""
    confident: float = 3.0
    """A fit that no answer contradicts is worth a warning from this median margin."""
    usual_temperature: float = 2.0
    """A temperature that differs from 1 by more than this factor is worth a warning."""
    most_numbers: int = 1 << 26
    """Numbers of the matrices of all users for whom questions are planned together: half a gigabyte."""


PASSES, REPORTING, SCALES, SEARCH, SELECTION = Passes(), Reporting(), Scales(), Search(), Selection()
