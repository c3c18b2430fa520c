"""What PrefKin assumes, and what it spares where fits are large: every constant of the method, with its reason."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from prefkin.inference.quadratics import Signed

__all__ = [
    "CALIBRATION",
    "DRAWN",
    "GROUPS",
    "HABIT",
    "LIMITS",
    "METRIC",
    "PLACING",
    "SCALES",
    "TRUST",
    "Effort",
    "affordable",
    "bounded",
    "is_crowd",
    "largest_crowd",
    "most_teachers",
    "searching",
    "very_thin",
]


@dataclass(frozen=True)
class Limits:
    """Where numbers stop to matter."""

    least_variance: float = 1e-6  # of any scale: below, users are alike
    most_variance: float = 1e4  # above, nearly every answer is certain
    unlikely: float = 1e-6  # probability below which a group is not looked at
    sure: float = 0.999  # probability from which somebody's place is taken as found
    clear: float = 14.0  # log odds beyond which a group needs no exact look: e⁻¹⁴ is `unlikely`
    farthest: float = 10.0  # standard deviations from what all share: no centre of a group is there
    at_once: int = 1 << 23  # numbers held at a time beside the users' own
    on_the_way: int = 1 << 16  # numbers of matrices of which several are made on the way
    in_cache: int = 1 << 19  # numbers of small matrices worked on at once: more would not stay in the cache
    kept: int = 1 << 24  # numbers of covariances kept for predictions
    most_users: int = 200  # from whom the prior is learnt; its scales are then known to some percent
    most_crowd: int = 20_000  # among whom groups are sought: everybody else is placed among what is found
    most_numbers: int = 1 << 26  # of those users' matrices: a quarter of a gigabyte in single precision


@dataclass(frozen=True)
class Trust:
    """How much evidence it takes, and how sure a fit may be of itself; measured by benchmarks/coverage.py."""

    clearly: float = 1.0  # log evidence by which groups must beat "by degrees"
    clearly_each: float = 0.03  # and in a crowd for each person: sites matched to either belief move it by up to .02
    caution: float = 1.05  # on the radius, for what the posterior leaves out: the partition and the scales
    thin: float = 2.0  # comparisons per feature below which radii were found too small
    certain: float = 0.07  # mean slope of the sigmoid below which answers are nearly certain
    certain_place: float = 0.9  # membership below which a user's place is called uncertain
    confident: float = 3.0  # median margin from which a fit without contradiction is worth a warning: 95 % sure
    determined: float = 72.0  # degrees of freedom from which a scale's likeliest value stands for its mean (to 4 %)
    says_nothing: float = 0.5  # log evidence that does not differ by more, whatever the scale, is none
    alike: float = 0.02  # variance between users over that of what they share, below which they are one group
    unrelated: float = 10.0  # and above which nothing is shared


@dataclass(frozen=True)
class Calibration:
    """What held-out answers choose from."""

    folds: int = 5
    deals: int = 3  # of items to folds, where they recur: in each, a fifth of the rows are judged by
    answers: int = 20_000  # by which options are judged: more people tell no more about a handful of numbers
    reach: int = 2  # half decades to either side of the best variances so far that are tried
    moves: int = 4  # of the best so far
    from_none: tuple[int, ...] = (-4, -2)  # half decades tried again where no variance between people is best so far
    directions: int = 128  # in which options are judged, where they hold `most_of_it`
    most_of_it: float = 0.75  # of what rows vary
    farther: float = 0.1  # held-out log-likelihood against half a decade squared between a variance and its evidence
    matching: int = 2  # rounds of sites for other variances
    acquainted: int = 4  # and of people from whom the variances were not learnt
    temperatures: tuple[float, ...] = tuple(
        np.round(np.concatenate([1.06 ** np.arange(-16.0, 13.0), np.geomspace(2.2, 40.0, 17)]), 3).tolist()
    )
    loosely: float = 6.0  # log-likelihood against log² temperature: about 30 % off 1 is expected,
    surprise: float = 10.0  # and where answers are never wrong, much more: beyond, it grows with log log² of it only
    clearly: float = 1.0  # log-likelihood, beside half a standard error, by which an option must beat the plain one


@dataclass(frozen=True)
class Learning:
    """How a covariance of people is learnt."""

    full_up_to: int = 40  # features: of more, low rank gained with few tastes and lost with many (decision 10)
    effort: float = 1e8  # multiplications a round: of as many users, up to all
    rounds: int = 60  # from all rows
    again: int = 10  # from part of them, starting with that
    at_least: int = 4  # before it may be taken as found
    scales: int = 4  # of both scales in the metric, which was learnt with them
    unhindered: int = 10  # in which sites move all of the way,
    pace: float = 0.7  # and how much of it later
    imaginary: float = 4.0  # users to whom all features matter alike, so that few real ones do not decide alone
    free: float = 1.0  # and of a full covariance of many people,
    many: int = 200  # that is, of so many: of fewer, it would take two groups for a direction in which people differ
    real: float = 1e-9  # of the largest variance: below, it is rounding
    settled: float = 2e-3  # change of log variances along any axis at which a covariance is taken as found
    longest: float = 20.0  # steps at once, while they agree:
    longer: float = 1.5  # times as many as before,
    shorter: float = 0.4  # and where a step turns back
    farthest: float = 10.0  # factor between a variance and what one step promises it, up or down
    most: float = 0.7  # change of a log variance in one step


@dataclass(frozen=True)
class Side:
    """A habit of taking the first side."""

    clearly: float = 6.0  # log evidence, with two free numbers: where there is none, one fit in 400 finds one
    least_rows: int = 20
    least_share: float = 0.05  # of answers for either side, else the winner was written first
    steps: int = 6  # of Newton's
    rounds: int = 2  # of habits, then preferences
    most: float = 6.0  # log odds
    variances: tuple[float, ...] = (0.0, *np.round(np.geomspace(0.003, 10.0, 36), 5).tolist())  # between people


@dataclass(frozen=True)
class Drawn:
    """Few answers, matched as a whole by draws: half a second at most."""

    answers: int = 128  # of everybody, not counting those that were given before
    directions: int = 12  # in which margins matched together vary: beyond, draws are too rare everywhere
    draws: int = 1 << 16  # at most: variances to some permille
    numbers: int = 1 << 21  # draws of everybody's margins
    freedom: float = 6.0  # of the multivariate t law that is drawn from: its tails are longer than a posterior's
    effective: float = 4000.0  # draws that independent ones would have to be as many as, else sites stay
    rounds: int = 4
    settled: float = 0.002  # standard deviations, or share of a variance
    precise: float = 1e-7  # share of a variance
    steps: int = 500  # of quasi-Newton


@dataclass(frozen=True)
class Scales:
    """How it is learnt how far people are from what they share, τ², and that from nothing, σ²."""

    rounds: int = 16  # of sites, then scales
    crowd: int = 2  # likewise, of a crowd, from the scales of some,
    other_units: int = 1  # or from sites in other units
    first: float = 6.0  # variance of margins to try first: clear, but not certain answers
    apart: float = 4.0  # factor between variances tried,
    farthest: int = 4  # and how many of them to either side
    believed: float = 0.4  # change of log τ² that sites matched to a strength may still ask for
    most: float = 6.0  # factor by which a scale changes at once, up or down
    waiting: float = 0.05  # change of log scales at which they wait for better sites,
    settled: float = 0.003  # and at which the fit is taken as found
    steady: float = 0.97  # ratio of growth below which all the steps to come are taken at once: near 1 they have no end
    leap: float = 1.0  # change of log scales by that at most
    least_pace: float = 0.25  # share of the way that sites move at least
    agreeing: int = 20  # rounds at most of matching sites, half of the way, to scales that are means,
    agreed: float = 0.001  # and change of everybody's mean, of its length, at which they are


@dataclass(frozen=True)
class Groups:
    """How groups are sought."""

    starts: tuple[float, ...] = (0.02, 0.2)  # τ² as a share of the variance between users;
    thin: float = 0.75  # answers a feature below which the wider one finds more, where one has to do
    usual: tuple[float, ...] = (1.5, 5.0, np.inf)  # members of a group, as merging expects them: clear unions first
    all_pairs: int = 64  # sets of a crowd up to which all pairs are weighed


@dataclass(frozen=True)
class Placing:
    """Who belongs where among the groups there are."""

    others: float = 1e-3  # in a group from which it may be joined
    members: float = 1e-2  # below which a group is dropped
    share: float = 1e-9  # from which somebody's answers are taken out of a group
    undamped: int = 4  # rounds in which memberships move all of the way, then half: two partitions might alternate
    settled: float = 1e-3  # change of memberships, of a crowd in the mean, at which nobody is asked again
    moved: float = 0.01  # of one's own from which one is
    rounds: int = 8  # of sites, then places, of newcomers
    moves: int = 2  # of everybody who did not teach the prior and is not sure
    still: float = 0.25  # change of a margin that sites need not follow: log σ leaves its parabola by .0003 at most
    narrow: float = 0.25  # variance of a margin over which that holds, too
    first: float = 1 / 6  # of all people in shards, and
    times: int = 2  # as many as taught the prior: so many at least are placed first
    # of those who did not teach the prior; a search, which does both in each round, takes fewer the more it costs
    contenders: int = 12  # groups of which an exact look is taken for each user
    partners: int = 12  # sets with which a set of people left alone may merge


LIMITS, TRUST, CALIBRATION, METRIC, HABIT, DRAWN, SCALES, GROUPS, PLACING = (
    Limits(), Trust(), Calibration(), Learning(), Side(), Drawn(), Scales(), Groups(), Placing()
)  # fmt: skip


def bounded(variance: float) -> float:
    """Within what a variance may be."""
    return float(np.clip(variance, LIMITS.least_variance, LIMITS.most_variance))


def is_crowd(people: int) -> bool:
    """Are they more than those from whom the prior is learnt?

    Then not all pairs of sets are weighed but likely partners, and many unions happen at once; how many are alone, and
    how many groups there are, has a prior that is learnt, since with concentration 1 whoever is alone would pay for a
    place among thousands; a place is taken as found where it is `sure`; the search is shorter; and groups must beat "by
    degrees" by something for each person. See docs/decisions/0009-crowds.md.
    """
    return people > LIMITS.most_users


_ROUND = 5e8  # multiplications up to which a round over all users costs too little to spare anything
_SEARCH = 5e9  # multiplications that a round over those may take among whom groups are sought: a minute or two in all
_JUDGING = 2e11  # multiplications that choosing by held-out answers may take: some seconds


@dataclass(frozen=True)
class Effort:
    """How much is looked at: less, the more one round over all users costs, each economy by itself.

    What all of them together cost was measured where they are greatest, 40 users with 1,000 rows of 768 features: see
    docs/decisions/0005-prefkin-by-evidence.md, Effort by cost. Up to 5e8 multiplications a round (200 users with 200
    rows of 50 features) nothing is spared.
    """

    starts: tuple[float, ...]  # shares of the spread within groups to start from: of few answers the wider ones
    rounds: int  # of moving everybody, then matching sites
    passes: int  # of scales and moves in a round
    moves: int  # of everybody before scales are learnt again
    steps: int  # of scales
    partners: int  # sets with which a set may merge, likeliest first
    contenders: int  # groups of which an exact look is taken for each user
    first_users: int  # from whom the first scales are learnt
    warm_rounds: int  # of everybody's sites and scales after that
    values: int  # of a variance that are tried where few parameters speak about it
    pace: float  # share of the way that sites move in a round of a search for groups
    fresh: bool  # try merging from nothing once more, with the sites of the first groups
    probe_users: int  # by whose held-out answers units, spread and temperature are judged; 0: not judged


def affordable(data: Signed) -> Effort:
    """The effort that users with so many rows and features are worth.

    >>> few = affordable(Signed(np.zeros((4000, 50)), np.ones(4000), np.arange(0, 4001, 100)))
    >>> few.starts, few.first_users, few.probe_users
    ((0.02, 0.2), 40, 60)
    """
    n_users, person = len(data), _person(len(data.X) / max(len(data), 1), data.dim)
    cost = np.log10(n_users * person / _ROUND)
    economy = float(np.clip(cost / 2.2, 0.0, 1.0))  # 0: spare nothing; 1: all that can be

    def between(most: int, least: int) -> int:
        return round(most + economy * (least - most))

    thin, starts = very_thin(data), between(2, 1)
    probes = int(_JUDGING / max(CALIBRATION.folds * 20 * person, 1.0))  # rounds a fold: its fit, and the options
    return Effort(
        starts=GROUPS.starts[-starts:] if thin else GROUPS.starts[:starts],
        rounds=between(4, 3),
        passes=between(2, 1),
        moves=between(6, 3),
        steps=4 if thin else between(4, 2),
        partners=between(8, 5),
        contenders=between(12, 3),
        first_users=between(40, 6),
        warm_rounds=between(4, 2),
        values=between(19, 5),
        pace=1.0,
        fresh=between(2, 1) > 1,
        probe_users=0 if probes < 12 else min(probes, 60),
    )


def very_thin(data: Signed) -> bool:
    """Have they so few answers for so many features that groups, and their scales, start out far too weak?"""
    return data.answers.sum() < GROUPS.thin * len(data) * data.dim


def _person(rows: float, d: int) -> float:
    """Multiplications a round for somebody: matrix and margins, inverse and sets' evidence."""
    return (3.0 * rows + 2.0 * d) * d**2


def largest_crowd(people: int, rows: float, d: int) -> int:
    """Among how many of so many people groups are sought, who have so many rows of d features each.

    >>> largest_crowd(30_000, 50.0, 16), largest_crowd(30_000, 100.0, 100), largest_crowd(150, 1000.0, 768)
    (20000, 1000, 113)
    """
    few, many = most_teachers(d), min(LIMITS.most_crowd, _most_matrices(d))
    return min(people, max(few, min(many, int(_SEARCH / _person(rows, d)))))


def most_teachers(d: int, rows: float | None = None) -> int:
    """Users from whom the prior is learnt; with so many `rows` each, as many as it takes to learn a metric, too."""
    effort = 0 if rows is None else int(METRIC.effort / _person(rows, d))
    return min(max(LIMITS.most_users, effort), _most_matrices(d))


def _most_matrices(d: int) -> int:
    """As many d × d matrices as there is room for."""
    return max(LIMITS.most_numbers // d**2, 2)


def searching(data: Signed) -> Effort:
    """What a search for groups among these users is worth.

    In a crowd three rounds are enough, since hundreds speak about the scales; with few members a group, though,
    sites and memberships swing to and fro unless sites move half of the way.
    """
    effort = affordable(data)
    if not is_crowd(len(data)):
        return effort
    return replace(effort, rounds=3, passes=1, moves=3, steps=2, contenders=6, pace=0.5, fresh=False)
