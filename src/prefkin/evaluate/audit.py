"""What is wrong or thin in the data, before any fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh, eigvalsh
from scipy.optimize import linprog
from scipy.stats import binom

from prefkin.data.arrays import BoolArray, FloatArray, IntArray, above_zero
from prefkin.data.comparisons import Comparisons
from prefkin.data.digest import fingerprints
from prefkin.data.folds import by_content, held_out_folds
from prefkin.data.rows import Rows, UserRows, only, split_rows, spread
from prefkin.errors import ConvergenceError
from prefkin.inference.estimate import fit_preference
from prefkin.inference.likelihood import Logistic
from prefkin.inference.many import estimate_users
from prefkin.inference.model import GAUSSIAN
from prefkin.inference.spectrum import gram
from prefkin.models.coverage import feature_name
from prefkin.models.prefkin.covariance import STRUCTURES
from prefkin.models.prefkin.fitting import design_of
from prefkin.models.prefkin.position_bias import find_biases, sides_mean_something
from prefkin.models.prefkin.posterior import Posterior
from prefkin.models.prefkin.selection import fit_continuous
from prefkin.models.prefkin.settings import POSITION_BIAS

__all__ = ["Finding", "audit", "chance_p_values", "is_separated"]

EMPTY = 1e-10  # of the largest eigenvalue: what counts as no coverage
COPIES = 1 - 1e-9  # correlation of two features that are one
FEW = 5  # with fewer answers even full agreement is no evidence: 2⁻⁴ is above 5 %
SEPARATION_WORK = 3e9  # multiplications; users beyond are not tested for separation
SAMPLE = 40_000_000  # numbers: rows × features from which a common model is fitted
SOME_USERS = 200  # by whose answers a habit is sought
SUSPICIOUS = 0.05
PREDICTABLE = 0.01  # of two models the better one counts, so stricter


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing: how bad, what, and what to do about it."""

    level: str  # "problem" (mend it), "thin" (more data would help), "note"
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.level}: {self.what}; {self.remedy}"


def audit(data: Comparisons) -> list[Finding]:
    """Findings, worst first; an empty list means nothing to complain about.

    >>> data = Comparisons.from_arrays([[0.0, 0.0], [1.0, 0.0]], [1, 1], ["ann", "ann"])
    >>> print(audit(data)[0])
    problem: 1 of 2 comparisons show the same features on both sides (first: row 0); they teach nothing, drop them
    """
    order = {"problem": 0, "thin": 1, "note": 2}
    products = gram(Rows(data.Z, data.y, np.ones(len(data))))
    found = [*_rows(data), *_users(data, products), *_answers(data), *_features(data, products)]
    return sorted(found, key=lambda finding: order[finding.level])


# -- rows ----------------------------------------------------------------------------------------------------------


def _rows(data: Comparisons) -> Iterator[Finding]:
    """Pairs that are no pairs, and pairs that come again."""
    same = np.flatnonzero((data.Z == 0).all(axis=1))
    if same.size:
        yield Finding(
            "problem",
            f"{same.size} of {len(data)} comparisons show the same features on both sides (first: row {same[0]})",
            "they teach nothing, drop them",
        )
    repeated, contradicted, example = _repeats(data)
    if repeated:
        yield Finding(
            "note",
            f"{repeated} comparisons repeat an earlier one of the same user (first: row {example})",
            "they count again: if they are copies by mistake, drop them",
        )
    if contradicted:
        yield Finding(
            "note",
            f"{contradicted} pairs were answered both ways by the same user",
            "the model reads this as indifference; many of them hint at careless answers",
        )


def _repeats(data: Comparisons) -> tuple[int, int, int]:
    """Rows that repeat an earlier (user, pair), pairs answered both ways, and the first repeating row."""
    flip = data.Z[np.arange(len(data)), (data.Z != 0).argmax(axis=1)] < 0  # a pair and its mirror image are alike
    pair = np.unique(fingerprints(data.Z, np.where(flip, -1.0, 1.0)), return_inverse=True)[1]
    own = pair * len(data.labels) + data.who
    _, first, which = np.unique(own, return_index=True, return_inverse=True)
    again = np.ones(len(data), dtype=bool)
    again[first] = False
    asked, won = np.bincount(which), np.bincount(which, np.where(flip, 1 - data.y, data.y))
    return int(again.sum()), int(np.sum((won > 0) & (won < asked))), int(np.argmax(again))


# -- users ---------------------------------------------------------------------------------------------------------


def _users(data: Comparisons, products: FloatArray) -> Iterator[Finding]:
    """Who answered too little to be known, alone or at all."""
    d, names, sizes = data.dim, data.labels.tolist(), np.bincount(data.who)
    few = np.flatnonzero(sizes < FEW)
    if few.size:
        yield Finding(
            "thin",
            f"{few.size} of {len(names)} users have fewer than {FEW} comparisons, for example {_some(names, few)}",
            "too few to place them: what is said about them is what is said about everybody",
        )
    thin = np.flatnonzero(sizes < d)
    open_ = d - _ranks(data)
    if thin.size:
        yield Finding(
            "thin",
            f"{thin.size} of {len(names)} users have fewer comparisons than there are features ({d}); "
            f"the fewest: {_some(names, np.argsort(sizes, kind='stable'))}",
            f"alone they cannot be known in every direction (the median user leaves {np.median(open_):.0f} of {d} "
            "open); pooling or questions help",
        )
    lacking = np.flatnonzero((open_ > d - _rank(products)) & (sizes >= d))
    if lacking.size:
        yield Finding(
            "thin",
            f"{lacking.size} of {len(names)} users with comparisons enough were never asked about some directions that "
            f"others were, for example {_some(names, lacking)} ({open_[lacking[0]]} of {d} open)",
            "there they get what others want; questions by rule 'coverage' close the gaps",
        )


def _ranks(data: Comparisons) -> IntArray:
    """How many directions each user's rows cover."""
    users, size = data.by_user(), np.linalg.norm(data.Z, axis=0)
    scale = np.where(size > 0, size, 1.0)
    each = (users.of(u).Z / scale for u in range(len(users)))
    return np.array([_rank(Z @ Z.T if len(Z) < data.dim else Z.T @ Z) for Z in each], dtype=np.intp)


def _rank(products: FloatArray) -> int:
    """Rank of a Gram matrix, rows and columns of any unit: each is first divided by its size."""
    size = np.sqrt(np.diag(products))
    real = size > 1e-150
    if not real.any():
        return 0
    spectrum = eigvalsh(products[np.ix_(real, real)] / np.outer(size[real], size[real]))
    return int(np.sum(spectrum > EMPTY * spectrum[-1]))


# -- answers -------------------------------------------------------------------------------------------------------


def _answers(data: Comparisons) -> Iterator[Finding]:
    """Answers that all say the same, that a rule explains without a fault, or that nothing explains."""
    names, sizes = data.labels.tolist(), np.bincount(data.who)
    one_sided = np.flatnonzero((np.bincount(data.who, data.y == 1) % sizes == 0) & (sizes >= FEW))
    if one_sided.size:
        yield Finding(
            "note",
            f"{one_sided.size} users gave the same answer every time, for example {names[one_sided[0]]!r}",
            "fine when sides mean something; careless clicking otherwise",
        )
    users = data.by_user()
    separated, surprising = separated_users(users)
    if separated.size:
        yield Finding(
            "note",
            f"{separated.size} users with more comparisons than features answered without a single contradiction to "
            f"some linear rule, for example {_some(names, separated)} ({surprising} of them so often that random "
            "answers hardly would)",
            "how strongly they feel cannot be known from their answers alone (unregularised estimates are infinite); "
            "priors and pooling keep them finite",
        )
    yield from _sides(users)
    p_values = chance_p_values(users)
    careless = np.flatnonzero(p_values < SUSPICIOUS)
    if careless.size:
        worst = int(np.argmin(p_values))
        yield Finding(
            "note",
            f"{careless.size} users answer no better than chance by any model, for example {_some(names, careless)} "
            f"(the clearest: p = {p_values[worst]:.2g} that {names[worst]!r} is as predictable as the median user, "
            f"corrected for {len(names)} users)",
            "careless, or unlike everybody and too few answers to show it: look at them",
        )


def _sides(users: UserRows) -> Iterator[Finding]:
    """A habit of taking the first side, where sides are known."""
    if not sides_mean_something(users):
        return
    some = only(users, np.sort(by_content(users)[spread(len(users), SOME_USERS)]))
    design = design_of(some, Logistic())
    found = find_biases(Posterior.of(design, fit_continuous(design, STRUCTURES["isotropic"], GAUSSIAN)))
    if found.evidence >= POSITION_BIAS.clearly:
        yield Finding(
            "note",
            f"the first side is taken whatever is on it with log odds {found.mean:+.2f} (+- {found.spread:.2f} between "
            f"users; log evidence {found.evidence:+.0f})",
            "PrefKin removes the habit from preferences; show sides in random order",
        )


def separated_users(users: UserRows) -> tuple[IntArray, int]:
    """Positions of users with more rows than features whose answers a linear rule separates; how many surprise.

    With at most as many (independent) rows as features any answers are separated. Random answers to n rows are with
    probability P(Binomial(n − 1, ½) < d) (Cover 1965): a surprise where that is below 5 %. Those with the fewest rows
    are tested first; the work is capped.
    """
    sizes, d = np.diff(users.starts), users.dim
    long = np.flatnonzero(sizes > d)
    long = long[np.argsort(sizes[long], kind="stable")]
    long = long[: int(np.searchsorted(np.cumsum(30.0 * sizes[long] * d * d), SEPARATION_WORK))]
    found = np.array([int(u) for u in long if is_separated(users.of(int(u)).signed())], dtype=np.intp)
    surprising = int(np.sum(binom.cdf(d - 1, sizes[found] - 1, 0.5) < SUSPICIOUS))
    return np.sort(found), surprising


def is_separated(X: FloatArray) -> bool:
    """Is there a θ with Xθ ≥ 0 and not all 0, so that the unregularised estimate for signed rows X is infinite?

    A nearly unregularised fit answers most cases: if it gets every row right, yes; if the chances of its errors
    balance, no. The rest is a linear programme.

    >>> is_separated(np.array([[1.0, 0.0], [1.0, 1.0], [2.0, -1.0]])), is_separated(np.array([[1.0], [-1.0]]))
    (True, False)
    """
    X = X[X.any(axis=1)]
    if len(X) == 0:
        return False
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    ridge = 1e-7
    try:
        theta = fit_preference(Rows(X, np.ones(len(X)), np.ones(len(X))), ridge=ridge)
    except ConvergenceError:
        return _separable(X)
    margin = X @ theta
    if margin.min() > 0:
        return True
    miss = 1.0 / (1.0 + np.exp(np.minimum(margin, 700.0)))
    # Stiemke: no such θ if some λ > 0 has Xᵀλ = 0. At the optimum Xᵀ miss = ridge·θ, all but 0: mend it to be exact
    pull = np.linalg.lstsq(X.T @ (X * miss[:, None]), X.T @ miss, rcond=None)[0]
    certificate = miss * (1.0 - X @ pull)
    if certificate.min() > 0 and np.abs(X.T @ certificate).max() < 1e-12 * certificate.sum():
        return False
    return _separable(X)


def _separable(X: FloatArray) -> bool:
    solved = linprog(-X.sum(axis=0), A_ub=-X, b_ub=np.zeros(len(X)), bounds=(-1.0, 1.0), method="highs")
    return bool(solved.status == 0 and -solved.fun > 1e-7)


def chance_p_values(users: UserRows) -> FloatArray:
    """For each user, a p-value for being as predictable as the median user; 1 for who is better than chance.

    Every answer is predicted without having been fitted, by a model of everybody and by one of the user alone; the one
    that gets more right counts. Small: significantly less predictable than the median user (binomial, corrected for the
    number of users by Bonferroni's factor) and not significantly better than guessing.

    >>> from prefkin.data.synthetic import demo_population
    >>> p_values = chance_p_values(demo_population(np.random.default_rng(0))[0].data.by_user())
    >>> p_values.shape, bool((p_values == 1.0).mean() > 0.5)
    ((24,), True)
    """
    sizes = np.diff(users.starts)
    if len(users) == 1:
        return np.ones(1)
    everybody, alone = np.zeros(len(users)), np.zeros(len(users))
    for fold in held_out_folds(users, 2, "known items"):
        train, test = split_rows(users, *fold)
        if len(train.rows.y) == 0 or len(test.rows.y) == 0:
            return np.ones(len(users))
        size = float(np.mean(train.rows.Z**2)) or 1.0
        everybody += _hits(test, _common(train, size))
        alone += _hits(test, estimate_users(train, ridge=train.dim * size))
    right = np.minimum(np.maximum(everybody, alone), sizes)
    typical = float(np.median(right / sizes))
    low = np.minimum(binom.cdf(right, sizes, typical) * len(users), 1.0)
    better = binom.sf(right - 1, sizes, 0.5) < PREDICTABLE
    return np.where(better | (typical <= 0.5), 1.0, low)


def _common(train: UserRows, size: float) -> FloatArray:
    rows = train.rows
    step = max(1, rows.Z.size // SAMPLE)
    some = Rows(rows.Z[::step], rows.y[::step], rows.weights[::step])
    return fit_preference(some, ridge=train.dim * size)


def _hits(test: UserRows, theta: FloatArray) -> FloatArray:
    """Answers predicted right per user; an undecided one counts half."""
    margin = test.rows.Z @ theta if theta.ndim == 1 else np.einsum("ij,ij->i", test.rows.Z, theta[test.owner])
    right = 0.5 + 0.5 * np.sign(margin) * (2.0 * test.rows.y - 1.0)
    return np.bincount(test.owner, right, len(test)).astype(np.float64)


# -- features ------------------------------------------------------------------------------------------------------


def _features(data: Comparisons, products: FloatArray) -> Iterator[Finding]:
    """Features that never differ, that say the same as others, or that are larger than the paper assumes."""
    d = data.dim
    norms = np.linalg.norm(data.Z, axis=1)
    if norms.max() > 2 * (1 + 1e-9):
        which = int(np.argmax(np.abs(data.Z[np.argmax(norms)])))
        largest = "" if data.feature_names is None else f"; largest: {data.feature_names[which]}"
        yield Finding(
            "note",
            f"feature differences reach norm {norms.max():.3g} (median {np.median(norms):.3g}{largest})",
            "the paper's radii assume at most 2: divide the features to be inside, estimates do not need it",
        )
    size = np.sqrt(np.diag(products))
    constant = size <= 1e-150
    if constant.any():
        yield Finding(
            "problem",
            f"{constant.sum()} of {d} features never differ between the two sides: {_listed(data, constant)}",
            "nothing can be learnt about them: drop them, or ask questions that differ in them",
        )
    scale = np.where(constant, 1.0, size)
    alike = products / np.outer(scale, scale)
    first, second = np.nonzero(np.triu(np.abs(alike) > COPIES, 1))
    copied = np.unique(second)
    if copied.size:
        one, other = (feature_name(data.feature_names, int(i)) for i in (first[0], second[0]))
        yield Finding(
            "problem",
            f"{copied.size} of {d} features say the same as another up to a factor, for example {other} and {one}",
            "weight is shared between such features as the prior pleases: keep one of them",
        )
    rest = ~constant
    rest[copied] = False
    spectrum, directions = eigh(alike[np.ix_(rest, rest)]) if rest.any() else (np.ones(1), np.ones((1, 1)))
    empty = int(np.sum(spectrum <= EMPTY * above_zero(spectrum[-1])))
    if empty:
        strongest = int(np.flatnonzero(rest)[np.argmax(np.abs(directions[:, 0]))])
        name = feature_name(data.feature_names, strongest)
        yield Finding(
            "thin",
            f"{empty} of {d} directions are covered by nobody (the emptiest leans on {name})",
            "nothing can be learnt there: ask questions that differ in them, or drop features that follow from others",
        )


def _listed(data: Comparisons, which: BoolArray) -> str:
    some = np.flatnonzero(which)
    names = ", ".join(feature_name(data.feature_names, int(i)) for i in some[:3])
    return names + (", ..." if len(some) > 3 else "")


def _some(names: list[object], which: IntArray) -> str:
    """The first three, by name."""
    return ", ".join(repr(names[i]) for i in which[:3])
