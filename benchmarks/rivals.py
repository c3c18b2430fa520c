"""What PrefKin has to beat on real people: ridges, hierarchical normals, mixtures and low-rank models, in numpy.

Every rival is a function `rival(panel, folds, Z, who) -> Forecast`: it is tuned by `folds` of the training rows that
hold out what the test rows hold out (choice sets, topics, posts or jokes), over grids that grow while the best value is
at an end; last comes one factor on its log odds, by the same folds. They share no code with the library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.sparse import csr_matrix
from scipy.special import expit, log_softmax, softmax
from sklearn.cluster import KMeans

FEW = 30  # features up to which covariances are learnt as they are
COMPONENTS = 60  # of the training rows, for covariances and low rank with more features than that
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
UNITS = ("given", "equal")
SPREADS = (0.25, 1.0, 4.0)  # factors on what empirical Bayes says

Folds = Sequence[tuple[np.ndarray, np.ndarray]]  # masks of rows to learn from, and of rows to be judged by


@dataclass(frozen=True, eq=False)
class Forecast:
    """Probabilities that the first was preferred, and what was chosen on the way."""

    p: np.ndarray
    note: str = ""


@dataclass(frozen=True, eq=False)
class Panel:
    """Row i: person `who[i]` of `people` saw the difference `X[i]` and answered `y[i]`; sorted by person."""

    X: np.ndarray  # (n, d)
    y: np.ndarray  # (n,)
    who: np.ndarray  # (n,)
    people: int

    def take(self, rows) -> Panel:
        """Some rows; everybody stays."""
        return Panel(self.X[rows], self.y[rows], self.who[rows], self.people)

    @cached_property
    def starts(self):
        """(people + 1,) where each person's rows begin."""
        return np.searchsorted(self.who, np.arange(self.people + 1))

    @cached_property
    def squares(self):
        """(n, d²): x xᵀ of each row; for few features."""
        return np.einsum("ij,ik->ijk", self.X, self.X).reshape(len(self.X), -1)

    @cached_property
    def adding(self):
        """(people, n): adds up rows of each person."""
        return csr_matrix((np.ones(len(self.y)), np.arange(len(self.y)), self.starts), (self.people, len(self.y)))


def along(X, theta, who):
    """Margins of rows under their owner's theta."""
    return np.einsum("ij,ij->i", X, theta[who])


def calibration_slope(signed, weights=None) -> float:
    """Slope of a logistic regression of answers on log odds, without intercept; `signed`: log odds of what was said."""
    weights = np.ones(len(signed)) if weights is None else weights

    def loss(slope):
        return weights @ np.logaddexp(0, -slope * signed)

    return float(minimize_scalar(loss, bounds=(-5, 20), method="bounded", options={"xatol": 1e-4}).x)


def heated(signed) -> tuple[float, float]:
    """Mean log-loss of held-out answers at the best factor on their log odds, and that factor."""
    factor = max(calibration_slope(signed), 0.02)
    return float(np.logaddexp(0, -factor * signed).mean()), factor


@dataclass(frozen=True)
class Choice:
    """A value with its held-out loss and its factor on log odds."""

    value: object
    loss: float
    heat: float


def best(options) -> Choice:
    """The least held-out loss; ties to the first."""
    return min(options, key=lambda option: round(option.loss, 6))


def tuned(grid, judge: Callable[[float], np.ndarray], most=6) -> Choice:
    """The value of a geometric grid with the least held-out loss; the grid grows while that value is at an end."""
    grid = sorted(grid)
    ratio, seen = grid[1] / grid[0], {}
    for _ in range(most):
        for value in sorted(set(grid) - set(seen), reverse=True):  # strong first: each fit begins at the one before
            seen[value] = Choice(value, *heated(judge(value)))
        top = best(seen[value] for value in sorted(seen, reverse=True))
        low, high = min(seen), max(seen)
        if top.value == low:
            grid = [low / ratio]
        elif top.value == high:
            grid = [high * ratio]
        else:
            break
    return top


def in_units(panel: Panel, Z, units: str):
    """Rows with mean square 1 overall ("given": features keep their proportions) or in each feature ("equal")."""
    square = (panel.X**2).mean(axis=0)
    square = np.full(len(square), square.mean()) if units == "given" else square
    size = np.sqrt(np.where(square > 0, square, 1.0))
    return replace(panel, X=panel.X / size), Z / size


def by_units(rival, panel: Panel, folds: Folds, Z, who) -> Forecast:
    """The units that held-out answers prefer; with many features they stay as given."""
    some = UNITS if panel.X.shape[1] <= FEW else UNITS[:1]
    fits = []
    for units in some:
        choice, forecast = rival(*in_units(panel, Z, units), who, folds)
        fits.append((choice.loss, units, forecast))
    _, units, forecast = min(fits, key=lambda fit: fit[0])
    return Forecast(forecast.p, f"{forecast.note} {units}".strip() if len(some) > 1 else forecast.note)


def few_columns(panel: Panel, Z):
    """The leading directions of the training rows, where there are many features."""
    if panel.X.shape[1] <= FEW:
        return panel, Z
    strength, directions = np.linalg.eigh(panel.X.T @ panel.X)
    turn = directions[:, np.argsort(strength)[::-1][:COMPONENTS]]
    return replace(panel, X=panel.X @ turn), Z @ turn


def folded(panel: Panel, folds: Folds, fit: Callable[[Panel, int], Callable]) -> np.ndarray:
    """Log odds of the answers of all folds; `fit(rows, fold)` returns `odds(X, who)`."""
    parts = []
    for k, (learn, judge) in enumerate(folds):
        odds, asked = fit(panel.take(learn), k), panel.take(judge)
        parts.append((2 * asked.y - 1) * odds(asked.X, asked.who))
    return np.concatenate(parts)


# -- ridges ----------------------------------------------------------------------------------------------------------


def ridge_fit(X, y, ridge, centre, start):
    """argmin of the logistic loss + ridge/2 ‖θ − centre‖²."""

    def value(step):
        margin = X @ (centre + step)
        return np.logaddexp(0, margin).sum() - y @ margin + ridge / 2 * step @ step, X.T @ (
            expit(margin) - y
        ) + ridge * step

    options = {"maxiter": 500, "ftol": 1e-9, "gtol": 1e-4 * np.sqrt(max(len(y), 1))}
    return centre + minimize(value, start - centre, jac=True, method="L-BFGS-B", options=options).x


def own_fits(panel: Panel, ridge, centre, start):
    """`ridge_fit` of each person's rows, (people, d)."""
    d, starts = panel.X.shape[1], panel.starts
    if d > FEW:
        theta = np.tile(centre, (panel.people, 1))
        for u in np.flatnonzero(np.diff(starts)):
            own = slice(starts[u], starts[u + 1])
            theta[u] = ridge_fit(panel.X[own], panel.y[own], ridge, centre, start[u])
        return theta
    adding, theta = panel.adding, start.copy()

    def value(theta):
        margin = along(panel.X, theta, panel.who)
        return adding @ (np.logaddexp(0, margin) - panel.y * margin) + ridge / 2 * ((theta - centre) ** 2).sum(axis=1)

    now = value(theta)
    for _ in range(50):
        p = expit(along(panel.X, theta, panel.who))
        slope = adding @ ((p - panel.y)[:, None] * panel.X) + ridge * (theta - centre)
        step = np.linalg.solve(grams(panel, p * (1 - p)) + ridge * np.eye(d), slope[..., None])[..., 0]
        factor = np.ones(panel.people)
        for _ in range(12):
            new = theta - factor[:, None] * step
            later = value(new)
            worse = later > now + 1e-9 * np.abs(now)
            if not worse.any():
                break
            factor[worse] /= 2
        theta, now = np.where(worse[:, None], theta, new), np.where(worse, now, later)
        if np.abs(factor[:, None] * step).max() < 1e-4 * max(1.0, np.abs(theta).max()):
            break
    return theta


def grams(panel: Panel, weights):
    """Σ w x xᵀ over each person's rows, (people, d, d)."""
    starts, d = panel.starts, panel.X.shape[1]
    if d <= FEW:
        return (panel.adding @ (weights[:, None] * panel.squares)).reshape(-1, d, d)
    total = np.zeros((panel.people, d, d))
    for u in np.flatnonzero(np.diff(starts)):
        own = panel.X[starts[u] : starts[u + 1]]
        total[u] = (own.T * weights[starts[u] : starts[u + 1]]) @ own
    return total


RIDGES = 10.0 ** np.arange(-0.5, 3.6, 0.5)


def warm(panel: Panel, folds: Folds, fit):
    """`judge(value)` of `fit(rows, value, start) -> theta`, each fold beginning where it was at the value before."""
    last: dict = {}

    def judge(value):
        def one(rows, k):
            last[k] = fit(rows, value, last.get(k))
            return lambda X, who: X @ last[k] if last[k].ndim == 1 else along(X, last[k], who)

        return folded(panel, folds, one)

    return judge


def fit_pooled(rows: Panel, ridge, start=None):
    """One theta for all."""
    none = np.zeros(rows.X.shape[1])
    return ridge_fit(rows.X, rows.y, ridge, none, none if start is None else start)


def fit_own(rows: Panel, ridge, start=None, centre=None):
    """Everybody for themselves, drawn to `centre`."""
    centre = np.zeros(rows.X.shape[1]) if centre is None else centre
    start = np.tile(centre, (rows.people, 1)) if start is None else start
    return own_fits(rows, ridge, centre, start)


def pooled(panel: Panel, folds: Folds, Z, who) -> Forecast:
    """One ridge logistic regression for everybody."""

    def rival(panel, Z, _, folds):
        choice = tuned(RIDGES, warm(panel, folds, fit_pooled))
        margin = Z @ fit_pooled(panel, choice.value)
        return choice, Forecast(expit(choice.heat * margin), f"ridge {choice.value:.2g}, x{choice.heat:.2f}")

    return by_units(rival, panel, folds, Z, who)


def own(panel: Panel, folds: Folds, Z, who) -> Forecast:
    """Each person's own ridge logistic regression, one ridge for all."""

    def rival(panel, Z, who, folds):
        choice = tuned(RIDGES, warm(panel, folds, fit_own))
        margin = along(Z, fit_own(panel, choice.value), who)
        return choice, Forecast(expit(choice.heat * margin), f"ridge {choice.value:.2g}, x{choice.heat:.2f}")

    return by_units(rival, panel, folds, Z, who)


def shrunken(panel: Panel, folds: Folds, Z, who) -> Forecast:
    """Own rows drawn to the pooled estimate; both strengths tuned, the latter first and again afterwards."""

    def rival(panel, Z, who, folds):
        ridge = tuned(RIDGES, warm(panel, folds, fit_pooled)).value
        choice, beginning = None, ridge
        for ridge in (beginning, beginning * 10**0.5, beginning / 10**0.5):
            centres = [fit_pooled(panel.take(learn), ridge) for learn, _ in folds]
            last: dict = {}

            def judge(pull, centres=centres, last=last):
                def one(rows, k):
                    last[k] = fit_own(rows, pull, last.get(k), centres[k])
                    return lambda X, who: along(X, last[k], who)

                return folded(panel, folds, one)

            found = tuned(RIDGES, judge)
            if choice is None or found.loss < choice.loss - 1e-6:
                choice = Choice((ridge, found.value), found.loss, found.heat)
            if panel.X.shape[1] > FEW:
                break
        ridge, pull = choice.value
        theta = fit_own(panel, pull, None, fit_pooled(panel, ridge))
        note = f"ridge {ridge:.2g}, pull {pull:.2g}, x{choice.heat:.2f}"
        return choice, Forecast(expit(choice.heat * along(Z, theta, who)), note)

    return by_units(rival, panel, folds, Z, who)


# -- hierarchical normals --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Normal:
    """θ_u ~ N(μ, Σ), μ ~ N(0, s² I) integrated out, answers by expectation propagation."""

    covariance: np.ndarray  # (d, d)  Σ
    common: float  # s²
    precision: np.ndarray  # (n,) of the sites
    pull: np.ndarray  # (n,)
    mean: np.ndarray  # (people, d)
    spread: np.ndarray  # (people, d, d) posterior covariance
    gram: np.ndarray  # (people, d, d) of the sites: the Gaussian that stands for a person's answers
    heard: np.ndarray  # (people, d) and its linear part

    def odds(self, X, who):
        """Log odds moderated by doubt: margin / √(1 + π v / 8)."""
        return along(X, self.mean, who) / np.sqrt(1 + np.pi / 8 * doubt(X, who, self.spread))


def doubt(X, who, spread):
    """xᵀ C_u x for each row; rows sorted by person or not."""
    v = np.empty(len(X))
    order = np.argsort(who, kind="stable")
    for own in np.split(order, np.flatnonzero(np.diff(who[order])) + 1):
        v[own] = np.einsum("ij,ij->i", X[own] @ spread[who[own[0]]], X[own])
    return np.maximum(v, 0)


def tilted(mid, wide):
    """Precision and pull of the Gaussian site with which N(mid, wide) has the moments of N(mid, wide) · σ(margin)."""
    at = mid[:, None] + np.sqrt(wide)[:, None] * NODES
    mass = NODE_WEIGHTS * np.maximum(expit(at), 1e-300)
    mass /= mass.sum(axis=1, keepdims=True)
    mean = np.einsum("ij,ij->i", mass, at)
    variance = np.clip(np.einsum("ij,ij,ij->i", mass, at, at) - mean**2, 1e-6 * wide, wide * (1 - 1e-9))
    precision = 1 / variance - 1 / wide
    return precision, mean / variance - mid / wide


def log_relative(new, old):
    """Half of the affine-invariant way from one covariance to another: R with old = R Rᵀ, and log(R⁻¹ new R⁻ᵀ)."""
    root = np.linalg.cholesky(old)
    inside = np.linalg.solve(root, np.linalg.solve(root, new).T)
    strength, directions = np.linalg.eigh((inside + inside.T) / 2)
    return root, (directions * np.log(np.maximum(strength, 1e-12))) @ directions.T


def moved(root, way, most=1.0):
    """R exp(way) Rᵀ, no direction changed by more than exp(most)."""
    strength, directions = np.linalg.eigh(way)
    half = root @ (directions * np.exp(np.clip(strength, -most, most) / 2))
    return half @ half.T


def regularised(second, people, shape, imaginary, harmonic):
    """Σ from the summed second moments of people around μ: the M step under a shape.

    Full and diagonal covariances get `imaginary` more people, spread like the `harmonic` mean of the variances so far;
    "rank r" is r free directions above an isotropic rest.
    """
    d = len(second)
    here = second / people
    mean = np.trace(here) / d
    if shape == "iso":
        return np.eye(d) * (second.trace() + 0.3) / (people * d + 1)
    if shape == "diag":
        return np.diag((np.diag(second) + imaginary * harmonic) / (people + imaginary))
    if shape == "full":
        return (second + imaginary * harmonic * np.eye(d)) / (people + imaginary)
    rank = int(shape.removeprefix("rank "))
    strength, directions = np.linalg.eigh(here)
    rest = max(strength[:-rank].mean(), 1e-6 * mean)
    high = (strength[-rank:] * people + imaginary * rest) / (people + imaginary)
    top = directions[:, -rank:]
    return np.eye(d) * rest + (top * np.maximum(high - rest, 0)) @ top.T


def stepping(panel: Panel, shape, imaginary):
    """`step(Σ, s², sites) -> (posterior, new Σ, new s², new sites)`: one round of EP and EM."""
    d, people, who = panel.X.shape[1], panel.people, panel.who
    facing = replace(panel, X=panel.X * (2 * panel.y - 1)[:, None])
    X, adding = facing.X, panel.adding

    def step(covariance, common, precision, pull):
        inverse = np.linalg.inv(covariance)
        inverse = (inverse + inverse.T) / 2
        gram, heard = grams(facing, precision), adding @ (pull[:, None] * X)
        own = np.linalg.inv(inverse + gram)  # of θ_u given μ
        follow = own @ inverse  # how far θ_u goes with μ
        about = np.linalg.inv(people * inverse - inverse @ follow.sum(axis=0) + np.eye(d) / common)
        about = (about + about.T) / 2
        mu = about @ np.einsum("uji,uj->i", follow, heard)
        mean = follow @ mu + np.einsum("uij,uj->ui", own, heard)
        spread = own + follow @ about @ follow.transpose(0, 2, 1)
        apart, away = mean - mu, follow - np.eye(d)
        second = apart.T @ apart + own.sum(axis=0) + np.einsum("uij,jk,ulk->il", away, about, away, optimize=True)
        mid = along(X, mean, who)
        if d <= FEW:
            wide = np.einsum("ij,ij->i", facing.squares, spread.reshape(people, -1)[who])
        else:
            wide = doubt(X, who, spread)
        wide = np.maximum(wide, 1e-12)
        left = np.maximum(1 / wide - precision, 0.02 / wide)
        new_precision, new_pull = tilted((mid / wide - pull) / left, 1 / left)
        before, common = common, (mu @ mu + np.trace(about) + 1) / (d + 1)
        state = Normal(covariance, before, precision, pull, mean, spread, gram, heard)
        sites = precision + 0.8 * (new_precision - precision), pull + 0.8 * (new_pull - pull)
        new = regularised((second + second.T) / 2, people, shape, imaginary, d / inverse.trace())
        return state, new, common, *sites

    return step


def at_first(panel: Panel, start: Normal | None):
    """Σ, s² and sites to begin with."""
    n, d = panel.X.shape
    if start is None:
        return np.eye(d) * 0.3, 1.0, np.full(n, 0.2), np.full(n, 0.5)
    return start.covariance, start.common, start.precision, start.pull


def normal(panel: Panel, shape, imaginary=4.0, start: Normal | None = None, tol=0.005) -> Normal:
    """Empirical Bayes: sites, Σ and s² in turn; squared extrapolation (Varadhan & Roland 2008) on the log scale."""
    d, step = panel.X.shape[1], stepping(panel, shape, imaginary)
    covariance, common, precision, pull = at_first(panel, start)
    for _ in range(6):  # sites first
        _, _, common, precision, pull = step(covariance, common, precision, pull)
    for _ in range(100 if d <= FEW else 25):
        _, one, wide_one, precision, pull = step(covariance, common, precision, pull)
        _, two, wide_two, precision, pull = step(one, wide_one, precision, pull)
        root, way = log_relative(one, covariance)
        bend = log_relative(two, covariance)[1] - 2 * way
        log_way = np.log(wide_one / common)
        log_bend = np.log(wide_two / common) - 2 * log_way
        size, turn = np.hypot(np.linalg.norm(way), log_way), np.hypot(np.linalg.norm(bend), log_bend)
        far = float(np.clip(size / max(turn, 1e-12), 1, 10))
        if far == 1:
            covariance, common = two, wide_two
        else:
            covariance = moved(root, 2 * far * way + far**2 * bend)
            common *= np.exp(np.clip(2 * far * log_way + far**2 * log_bend, -1, 1))
        if far * size < tol:
            break
    for _ in range(4):
        state, covariance, common, precision, pull = step(covariance, common, precision, pull)
    return state


def with_spread(panel: Panel, start: Normal, own: float, shared: float) -> Normal:
    """The same with Σ times `own` and s² times `shared`: sites anew."""
    step = stepping(panel, "iso", 0.0)
    covariance, common, precision, pull = at_first(panel, start)
    for _ in range(15):
        state, _, _, precision, pull = step(own * covariance, shared * common, precision, pull)
    return state


def hierarchical(shapes, counts=(4.0,)):
    """The rival with one of `shapes` and numbers of imaginary people, then factors on Σ and s², by held-out answers."""

    def rival(panel, Z, who, folds):
        plain = [normal(panel.take(learn), "iso") for learn, _ in folds]
        options, fits = [], {}
        for shape in shapes:
            if shape.startswith("rank") and int(shape.removeprefix("rank ")) >= panel.X.shape[1]:
                continue  # no rest would be left
            last = list(plain)

            def judge(count, shape=shape, last=last):
                def fit(rows, k):
                    last[k] = plain[k] if shape == "iso" else normal(rows, shape, count, last[k])
                    fits[shape, count, k] = last[k]
                    return last[k].odds

                return folded(panel, folds, fit)

            found = tuned(counts, judge, most=3) if len(counts) > 1 else Choice(counts[0], *heated(judge(counts[0])))
            options.append(Choice((shape, found.value), found.loss, found.heat))
        shape, count = best(options).value

        def wider(own, shared):
            def fit(rows, k):
                return with_spread(rows, fits[shape, count, k], own, shared).odds

            return folded(panel, folds, fit)

        own = tuned(SPREADS, lambda own: wider(own, 1.0)).value
        shared = tuned(SPREADS, lambda shared: wider(own, shared))
        choice = Choice((own, shared.value), shared.loss, shared.heat)
        fitted = normal(panel, "iso")
        fitted = fitted if shape == "iso" else normal(panel, shape, count, fitted)
        fitted = with_spread(panel, fitted, *choice.value)
        said = [shape] * (len(shapes) > 1) + [f"+{count:g}"] * (len(counts) > 1)
        said += [f"*{own:.2g}/{shared.value:.2g}", f"x{choice.heat:.2f}"]
        return choice, Forecast(expit(choice.heat * fitted.odds(Z, who)), " ".join(said))

    def whole(panel: Panel, folds: Folds, Z, who) -> Forecast:
        panel, Z = few_columns(panel, Z)
        return by_units(rival, panel, folds, Z, who)

    return whole


# -- mixtures and low rank ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Mixture:
    """θ_u ~ Σ_k π_k N(μ_k, Σ)."""

    share: np.ndarray  # (people, K) responsibilities
    mean: np.ndarray  # (people, K, d)
    spread: np.ndarray  # (people, d, d) the same in every component

    def odds(self, X, who):
        """Log odds of the averaged probability."""
        moderate = np.sqrt(1 + np.pi / 8 * doubt(X, who, self.spread))
        margins = np.einsum("ij,ikj->ik", X, self.mean[who]) / moderate[:, None]
        p = np.clip((self.share[who] * expit(margins)).sum(axis=1), 1e-12, 1 - 1e-12)
        return np.log(p) - np.log1p(-p)


def mixture_of(base: Normal, number: int, shape: str, steps=80) -> Mixture:
    """EM over people whose answers are stood for by the Gaussian sites of one normal."""
    people, d = base.mean.shape
    seats = KMeans(number, n_init=5, random_state=0).fit(base.mean)
    mu, share = seats.cluster_centers_, np.bincount(seats.labels_, minlength=number) / people
    covariance = base.covariance
    for _ in range(steps):
        inverse = np.linalg.inv(covariance)
        own = np.linalg.inv(inverse + base.gram)
        toward = (mu @ inverse)[None] + base.heard[:, None]  # (people, K, d)
        mean = np.einsum("uij,ukj->uki", own, toward)
        level = 0.5 * (toward * mean).sum(axis=2) - 0.5 * np.einsum("ki,ij,kj->k", mu, inverse, mu)
        member = softmax(np.log(np.maximum(share, 1e-12)) + level, axis=1)
        count = member.sum(axis=0)
        before = mu
        mu = (
            np.einsum("uk,uki->ki", member, mean)
            / np.maximum(count + covariance.trace() / d / base.common, 1e-9)[:, None]
        )
        apart = mean - mu
        second = np.einsum("uk,uki,ukj->ij", member, apart, apart, optimize=True) + own.sum(axis=0)
        covariance, share = (
            regularised(second, people, shape, d + 1.0, d / inverse.trace()),
            (count + 1) / (people + number),
        )
        if np.abs(mu - before).max() < 1e-3:
            break
    return Mixture(member, mean, own)


def mixture(panel: Panel, folds: Folds, Z, who) -> Forecast:
    """2, 3 or 5 normals with one covariance, isotropic or full."""

    def rival(panel, Z, who, folds):
        bases = [normal(panel.take(learn), "iso") for learn, _ in folds]
        options = [
            Choice(
                (k, shape),
                *heated(folded(panel, folds, lambda _, f, k=k, shape=shape: mixture_of(bases[f], k, shape).odds)),
            )
            for k in (2, 3, 5)
            for shape in ("iso", "full")
        ]
        choice = best(options)
        p = expit(choice.heat * mixture_of(normal(panel, "iso"), *choice.value).odds(Z, who))
        return choice, Forecast(p, f"{choice.value[0]} {choice.value[1]} x{choice.heat:.2f}")

    panel, Z = few_columns(panel, Z)
    return by_units(rival, panel, folds, Z, who)


def low_rank(rows: Panel, rank, kind, ridge, start=None):
    """LoRe: θ_u = B w_u, w_u on the simplex ("simplex") or free ("free"), ridge on both; local optimum by L-BFGS."""
    d, adding = rows.X.shape[1], rows.adding
    if start is None:
        rng = np.random.default_rng(0)
        theta = fit_own(rows, 30.0, None, fit_pooled(rows, 30.0))
        if kind == "free":
            left, size, right = np.linalg.svd(theta, full_matrices=False)
            k = min(rank, len(size))
            B, W = 0.01 * rng.standard_normal((d, rank)), 0.01 * rng.standard_normal((rows.people, rank))
            B[:, :k], W[:, :k] = (right[:k].T * np.sqrt(size[:k])), left[:, :k] * np.sqrt(size[:k])
        else:
            seats = KMeans(min(rank, rows.people), n_init=3, random_state=0).fit(theta)
            B, W = seats.cluster_centers_.T, 2.0 * np.eye(rank)[seats.labels_]
        start = np.concatenate([B.ravel(), W.ravel()])

    def parts(packed):
        B, W = packed[: d * rank].reshape(d, rank), packed[d * rank :].reshape(-1, rank)
        return B, W, np.exp(log_softmax(W, axis=1)) if kind == "simplex" else W

    def value(packed):
        B, W, weights = parts(packed)
        tastes, mine = rows.X @ B, weights[rows.who]
        margin = (tastes * mine).sum(axis=1)
        residual = (expit(margin) - rows.y)[:, None]
        slope = adding @ (residual * tastes)
        if kind == "simplex":
            slope = weights * (slope - (slope * weights).sum(axis=1, keepdims=True))
        small = ridge if kind == "free" else 0.1
        total = np.logaddexp(0, margin).sum() - rows.y @ margin + ridge / 2 * (B**2).sum() + small / 2 * (W**2).sum()
        return total, np.concatenate([(rows.X.T @ (residual * mine) + ridge * B).ravel(), (slope + small * W).ravel()])

    found = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 150, "gtol": 1e-3})
    B, _, weights = parts(found.x)
    return weights @ B.T, found.x


def lore(panel: Panel, folds: Folds, Z, who) -> Forecast:
    """Low-rank rewards: kind, rank and ridge by held-out answers (ridge at rank 4, then rank, then ridge again)."""

    def rival(panel, Z, who, folds):
        def judge(rank, kind, ridge, last):
            def fit(rows, k):
                theta, last[k] = low_rank(rows, rank, kind, ridge, last.get(k))
                return lambda X, who: along(X, theta, who)

            return folded(panel, folds, fit)

        options = []
        for kind in ("free", "simplex"):
            last: dict = {}
            ridge = tuned((1.0, 3.0, 10.0, 30.0), lambda value, kind=kind, last=last: judge(4, kind, value, last)).value
            options += [
                Choice((rank, kind, value), *heated(judge(rank, kind, value, {})))
                for rank in (1, 2, 4, 8, 16)
                if rank <= panel.X.shape[1]
                for value in (ridge / 2, ridge, ridge * 2)
            ]
        choice = best(options)
        theta = low_rank(panel, *choice.value)[0]
        rank, kind, ridge = choice.value
        note = f"rank {rank} {kind} {ridge:.2g} x{choice.heat:.2f}"
        return choice, Forecast(expit(choice.heat * along(Z, theta, who)), note)

    panel, Z = few_columns(panel, Z)
    return by_units(rival, panel, folds, Z, who)


RIVALS = {
    "pooled": pooled,
    "own": own,
    "shrunken": shrunken,
    "iso": hierarchical(["iso"]),
    "diag": hierarchical(["diag"], (4.0, 16.0)),
    "full": hierarchical(["full"], (4.0, 16.0, 64.0, 256.0)),
    "rank": hierarchical(["rank 1", "rank 2", "rank 4"]),
    "mixture": mixture,
    "lore": lore,
}
