"""The pessimistic value of a policy and the policies that maximise it  [paper: J_tilde].

With μ(π) = E_x φ(x, π(x)) the mean feature of a policy,

    J̃(π) = (μ(π) − w)ᵀ θ̃ − β̃ ‖μ(π) − w‖_{M̃⁻¹}.

J̃ is concave in μ, so over *stochastic* policies its maximum is a convex problem whose linear subproblem is a greedy
choice in each context. The solver goes through four steps, each cheap when the one before it did well:

1. fully corrective Frank-Wolfe: the best mixture of greedy policies, and with it an upper bound on every policy;
2. rounding to deterministic policies, then moves of one or two contexts while they help;
3. an action whose reduced cost exceeds the distance between bound and best policy is in no better policy: drop it;
4. what is left is enumerated when it is small; the answer is then exact.

Whoever has a `Belief` asks `safest_policy`; `best_policy` is the same for θ̃ and M̃.

Why step 1 bounds everything: for any direction c with ‖c‖_M̃ ≤ 1, the norm is at least cᵀ(μ − w), so
J̃(π) ≤ (μ − w)ᵀ(θ̃ − β̃c), a linear function, whose maximum over policies is one greedy pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prefkin.data.arrays import BoolArray, FloatArray, IntArray
from prefkin.data.candidates import Candidates
from prefkin.decide.belief import Belief
from prefkin.errors import InvalidParameter
from prefkin.execution.blas import in_one_order

__all__ = ["Policy", "best_policy", "greedy_policy", "inverse_norm", "pessimistic_value", "safest_policy"]

FRANK_WOLFE_ROUNDS = 120
PAIRED_MOVES = 400  # pairs of moves are its square
MOVE_TABLE_SIZE = 8_000_000  # numbers: 64 MB
MOST_COMBINATIONS = 20_000  # held as that many mean features
RESTARTS = 12  # of the moves, where they are cheap


@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """An action for each context, what it is worth at least, and how much better any policy could be.

    >>> from prefkin import Candidates
    >>> cands = Candidates([[[1.0, 0.0], [0.0, 0.9]]])
    >>> best_policy(cands, np.array([1.0, 1.0]), np.diag([1.0, 100.0]), beta=0.5)
    Policy(1 contexts, value 0.855, no policy exceeds 0.855)
    """

    actions: IntArray  # (X,) position of the chosen action in each context
    value: float  # J̃ of this policy
    upper_bound: float  # no policy has a larger J̃
    reward: float  # (μ − w)ᵀ θ̃, the part that the data promise
    penalty: float  # β̃ ‖μ − w‖_{M̃⁻¹}, the part that they may be wrong by
    mean: FloatArray  # (d,) μ

    def __repr__(self) -> str:
        return f"Policy({len(self.actions)} contexts, value {self.value:.4g}, no policy exceeds {self.upper_bound:.4g})"


def inverse_norm(rows: FloatArray, M: FloatArray) -> FloatArray:
    """‖row‖_{M⁻¹} for each row.

    >>> inverse_norm(np.array([[2.0, 0.0]]), np.diag([4.0, 1.0])).tolist()
    [1.0]
    """
    return Belief.from_information(np.zeros(len(M)), M).norm(rows)


def pessimistic_value(
    means: FloatArray, theta: FloatArray, M: FloatArray, *, beta: float, reference: FloatArray | float = 0.0
) -> FloatArray:
    """J̃ for each row of `means`, a policy's mean feature (P, d).

    >>> pessimistic_value(np.array([[2.0, 0.0]]), np.array([1.0, 1.0]), np.diag([4.0, 1.0]), beta=0.5).tolist()
    [1.5]
    """
    shift = means - reference
    return shift @ theta - beta * inverse_norm(shift, M)


@in_one_order
def best_policy(
    candidates: Candidates,
    theta: FloatArray,
    M: FloatArray,
    *,
    beta: float,
    reference: FloatArray | None = None,
    scope: str = "policy",
) -> Policy:
    """`safest_policy` for the estimate θ̃ with the information matrix M̃."""
    belief = Belief.from_information(theta, M)
    return safest_policy(candidates, belief, beta=beta, reference=reference, scope=scope)


@in_one_order
def safest_policy(
    candidates: Candidates,
    belief: Belief,
    *,
    beta: float,
    reference: FloatArray | None = None,
    scope: str = "policy",
) -> Policy:
    """The policy with the largest J̃ (`scope="policy"`), or the pessimistic choice in each context by itself.

    `scope="context"` maximises (φ − w)ᵀθ̃ − β̃‖φ − w‖_{M̃⁻¹} in every context alone: errors in different contexts
    are not allowed to cancel. It is a variant of ours, not the paper's policy; value and bound are J̃'s all the same.
    """
    if scope not in ("policy", "context"):
        raise InvalidParameter(f"scope must be 'policy' or 'context'; got {scope!r}")
    w = _reference(candidates, belief.mean, reference)
    if beta == 0:
        return greedy_policy(candidates, belief.mean, w)
    problem = _Problem(candidates, belief, beta, w)
    greedy = candidates.argmax(candidates.features @ belief.mean)
    alone = candidates.argmax(problem.per_row_value())
    mixture = _frank_wolfe(problem, greedy)
    if scope == "context":
        return problem.policy(alone, upper=mixture.upper)
    return _deterministic(problem, mixture, [greedy, alone])


@in_one_order
def greedy_policy(candidates: Candidates, theta: FloatArray, reference: FloatArray | None = None) -> Policy:
    """The policy that takes the estimate at its word: the best action of each context, and no penalty.

    >>> greedy_policy(Candidates([[[1.0], [3.0]]]), np.array([2.0])).actions.tolist()
    [1]
    """
    w = _reference(candidates, theta, reference)
    actions = candidates.argmax(candidates.features @ theta)
    mean = candidates.mean(actions)
    value = float((mean - w) @ theta)
    return Policy(actions, value, value, value, 0.0, mean)


def _reference(candidates: Candidates, theta: FloatArray, reference: FloatArray | None) -> FloatArray:
    """w, checked against the candidates, which are checked against the model."""
    if len(theta) != candidates.dim:
        raise InvalidParameter(
            f"the candidates have {candidates.dim} features, the model has {len(theta)}; describe both in the same way"
        )
    w = np.zeros(candidates.dim) if reference is None else np.asarray(reference, dtype=np.float64)
    if w.shape != (candidates.dim,) or not np.isfinite(w).all():
        raise InvalidParameter(f"reference must be {candidates.dim} finite numbers; got shape {w.shape}")
    return w


class _Problem:
    """J̃ of deterministic policies over fixed candidates."""

    def __init__(self, candidates: Candidates, belief: Belief, beta: float, reference: FloatArray) -> None:
        self.candidates, self.beta, self.reference = candidates, beta, reference
        self.theta, self.root = belief.mean, belief.root

    def shift(self, actions: IntArray) -> FloatArray:
        """μ(π) − w."""
        return self.candidates.mean(actions) - self.reference

    def value(self, actions: IntArray) -> float:
        """J̃."""
        return self.policy(actions).value

    def values(self, shifts: FloatArray) -> FloatArray:
        """J̃ of each μ(π) − w."""
        return shifts @ self.theta - self.beta * np.linalg.norm(shifts @ self.root, axis=1)

    def per_row_value(self) -> FloatArray:
        """The pessimistic value of each action as if its context were the only one."""
        rows, block = self.candidates.features, 8192
        blocks = (rows[at : at + block] - self.reference for at in range(0, len(rows), block))
        return np.concatenate([self.values(shifts) for shifts in blocks])

    def policy(self, actions: IntArray, upper: float = -np.inf) -> Policy:
        """What is returned; `upper` bounds every policy's J̃: this one's where it is not given."""
        shift = self.shift(actions)
        reward, penalty = float(shift @ self.theta), self.beta * float(np.linalg.norm(shift @ self.root))
        value = reward - penalty
        return Policy(actions, value, max(upper, value), reward, penalty, shift + self.reference)


@dataclass(frozen=True, eq=False)
class _Mixture:
    """The best stochastic policy found, as weights on deterministic ones, and the certificate."""

    policies: list[IntArray]
    weights: FloatArray
    upper: float
    reduced_cost: FloatArray  # (rows,) what choosing this action costs, at least, against `upper`


def _frank_wolfe(problem: _Problem, start: IntArray) -> _Mixture:
    """Maximise J̃ over mixtures of policies; each round adds the greedy policy of the current slope.

    The norm has a kink where μ = w; it is smoothed by `softness`, which only widens the bound (the direction c is
    then shorter than 1) and is tightened whenever it is what keeps the bound from closing.
    """
    candidates, beta, theta = problem.candidates, problem.beta, problem.theta
    policies = [start]
    shifts = problem.shift(start)[None]  # (K, d)
    white = shifts @ problem.root
    weights = np.ones(1)
    softness = 0.01 * max(float(np.linalg.norm(white[0])), 1e-12)
    best_upper, best_cost = np.inf, np.empty(0)
    for _ in range(FRANK_WOLFE_ROUNDS):
        weights = _mix(shifts @ theta, white, beta, softness, weights)
        mixed = weights @ white
        value = float(weights @ shifts @ theta) - beta * float(np.linalg.norm(mixed))
        direction = problem.root @ mixed
        slope = theta - beta * direction / np.sqrt(mixed @ mixed + softness**2)
        scores = candidates.features @ slope
        greedy = candidates.argmax(scores)
        top = np.maximum.reduceat(scores, candidates.starts[:-1])
        upper = float(candidates.weights @ top - problem.reference @ slope)
        if upper < best_upper:
            best_upper = upper
            best_cost = (candidates.weights * top)[candidates.owner] - candidates.weights[candidates.owner] * scores
        scale = max(abs(value), abs(best_upper), beta * softness, 1e-12)
        if best_upper - value <= 1e-7 * scale:
            break
        known = any(np.array_equal(greedy, policy) for policy in policies)
        if known or best_upper - value <= 2 * beta * softness:
            if softness <= 1e-9 * max(float(np.linalg.norm(white, axis=1).max()), 1e-12):
                break
            softness /= 10.0
            if known:
                continue
        shift = problem.shift(greedy)[None]
        policies.append(greedy)
        shifts = np.concatenate([shifts, shift])
        white = np.concatenate([white, shift @ problem.root])
        weights = np.append(weights, 0.0)
    return _Mixture(policies, weights, best_upper, best_cost)


def _mix(reward: FloatArray, white: FloatArray, beta: float, softness: float, start: FloatArray) -> FloatArray:
    """Weights on the simplex that minimise β √(‖mixed‖² + softness²) − reward: Newton on the active set."""
    gram = white @ white.T
    weights = start

    def loss(weights: FloatArray) -> float:
        return float(beta * np.sqrt(max(float(weights @ gram @ weights), 0.0) + softness**2) - reward @ weights)

    value = loss(weights)
    for _ in range(20 * len(start)):
        image = gram @ weights
        size = np.sqrt(max(float(weights @ image), 0.0) + softness**2)
        slope = beta * image / size - reward
        active = weights > 0
        active[np.argmin(slope)] = True  # the constraint whose release helps most
        step = _newton_on_simplex(gram, image, size, slope, beta, active)
        while (weights[active] == 0).any() and (step[active & (weights == 0)] < 0).any():
            active &= (weights > 0) | (step > 0)  # released, but Newton would push it below 0: hold it
            step = _newton_on_simplex(gram, image, size, slope, beta, active)
        decrease = -float(slope @ step)
        if not decrease > 1e-14 * max(1.0, abs(value)):
            break
        falling = step < 0
        length = min(1.0, float((-weights[falling] / step[falling]).min(initial=np.inf)))
        blocked = falling & (weights + length * step <= 1e-15)
        while True:
            trial = np.clip(weights + length * step, 0.0, None)
            new = loss(trial)
            if new <= value - 1e-4 * length * decrease or length < 1e-12:
                break
            length, blocked = length / 2.0, np.zeros_like(blocked)
        if not new < value:
            break
        trial[blocked] = 0.0
        weights, value = trial / trial.sum(), new
    return weights


def _newton_on_simplex(
    gram: FloatArray, image: FloatArray, size: float, slope: FloatArray, beta: float, active: BoolArray
) -> FloatArray:
    """Newton's step for the smoothed norm, on the active weights, keeping their sum."""
    at = np.flatnonzero(active)
    curvature = beta * (gram[np.ix_(at, at)] / size - np.outer(image[at], image[at]) / size**3)
    curvature[np.diag_indices_from(curvature)] += 1e-10 * (np.trace(curvature) / len(at)) + 1e-300
    solved = np.linalg.solve(curvature, np.column_stack([slope[at], np.ones(len(at))]))
    step = np.zeros(len(slope))
    step[at] = solved[:, 1] * (solved[:, 0].sum() / solved[:, 1].sum()) - solved[:, 0]
    return step


def _deterministic(problem: _Problem, mixture: _Mixture, starts: list[IntArray]) -> Policy:
    """Round the mixture, improve, and enumerate what could still be better."""
    starts = sorted([*starts, *mixture.policies], key=problem.value, reverse=True)
    moves = _Moves(problem, mixture.reduced_cost)
    tries = RESTARTS if len(moves.rows) * problem.candidates.dim < 100_000 else 2
    best = max((moves.improve(policy) for policy in [_rounded(problem, mixture), *starts[:tries]]), key=problem.value)
    better = _enumerate(problem, mixture, best)
    return problem.policy(best, mixture.upper) if better is None else problem.policy(better)


def _rounded(problem: _Problem, mixture: _Mixture) -> IntArray:
    """One action per context: where the mixture is undecided, the one that keeps J̃ largest, context by context.

    Contexts not yet reached count with their mixture, so that later choices make up for earlier ones.
    """
    candidates = problem.candidates
    used = mixture.weights > 0
    weights = mixture.weights[used]
    policies = np.array(mixture.policies)[used]  # (K, X)
    actions = policies[0].copy()
    mean = weights @ np.array([problem.shift(policy) for policy in policies])
    reward, white = float(mean @ problem.theta), mean @ problem.root
    undecided = np.flatnonzero((policies != policies[0]).any(axis=0))
    for x in undecided[np.argsort(-candidates.weights[undecided], kind="stable")]:
        options, which = np.unique(policies[:, x], return_inverse=True)
        features = candidates.of(x)[options]
        share = np.bincount(which, weights, len(options))
        moved = candidates.weights[x] * (features - share @ features)
        rewards, whites = reward + moved @ problem.theta, white + moved @ problem.root
        best = int(np.argmax(rewards - problem.beta * np.linalg.norm(whites, axis=1)))
        actions[x], reward, white = options[best], float(rewards[best]), whites[best]
    return actions


class _Moves:
    """Changes of one or two contexts at a time, among the actions that the certificate makes promising."""

    def __init__(self, problem: _Problem, reduced_cost: FloatArray) -> None:
        candidates = problem.candidates
        self.problem = problem
        most = max(4 * PAIRED_MOVES, MOVE_TABLE_SIZE // candidates.dim)
        self.rows = np.sort(np.argsort(reduced_cost, kind="stable")[:most])
        self.owner = candidates.owner[self.rows]
        self.weight = candidates.weights[self.owner]
        self.white = candidates.features[self.rows] @ problem.root
        self.square = np.einsum("ij,ij->i", self.white, self.white)
        self.reward = candidates.features[self.rows] @ problem.theta

    def improve(self, actions: IntArray) -> IntArray:
        """Take the best move while it raises J̃; pairs of moves only when no single one does."""
        problem, candidates, owner = self.problem, self.problem.candidates, self.owner
        actions = actions.copy()
        chosen = candidates.features[candidates.starts[:-1] + actions]
        now = chosen @ problem.root  # (X, d) of the actions taken now
        now_reward = chosen @ problem.theta
        overlap = np.einsum("ij,ij->i", self.white, now[owner])
        for _ in range(20 * len(candidates) + 100):
            white = candidates.weights @ now - problem.reference @ problem.root
            base = float(candidates.weights @ now_reward - problem.reference @ problem.theta)
            length = float(white @ white)
            value = base - problem.beta * np.sqrt(length)
            gain = self.weight * (self.reward - now_reward[owner])
            along = self.weight * (self.white @ white - (now @ white)[owner])
            size = self.weight**2 * (self.square + np.einsum("ij,ij->i", now, now)[owner] - 2 * overlap)
            single = base + gain - problem.beta * np.sqrt(np.maximum(length + 2 * along + size, 0.0))
            tolerance = 1e-12 * max(1.0, abs(value), problem.beta * np.sqrt(length))
            taken = [int(np.argmax(single))]
            if not single[taken[0]] > value + tolerance:
                near = np.argsort(-single, kind="stable")[:PAIRED_MOVES]
                change = self.weight[near, None] * (self.white[near] - now[owner[near]])
                pair_length = (
                    length + 2 * (np.add.outer(along[near], along[near]) + change @ change.T)
                ) + np.add.outer(size[near], size[near])
                double = base + np.add.outer(gain[near], gain[near])
                double -= problem.beta * np.sqrt(np.maximum(pair_length, 0.0))
                double[owner[near][:, None] == owner[near][None]] = -np.inf
                i, j = np.unravel_index(int(np.argmax(double)), double.shape)
                if not double[i, j] > value + tolerance:
                    break
                taken = [int(near[i]), int(near[j])]
            for move in taken:
                x = owner[move]
                actions[x] = self.rows[move] - candidates.starts[x]
                now[x], now_reward[x] = self.white[move], self.reward[move]
                same = owner == x
                overlap[same] = self.white[same] @ now[x]
        return actions


def _enumerate(problem: _Problem, mixture: _Mixture, best: IntArray) -> IntArray | None:
    """The best policy of all, if few enough are left that could beat `best`; None otherwise.

    Reduced costs add up over contexts: a policy is worth at most upper − Σ reduced costs of its actions.
    """
    candidates = problem.candidates
    value = problem.value(best)
    budget = mixture.upper - value + 1e-12 * max(1.0, abs(mixture.upper), abs(value))
    possible = mixture.reduced_cost <= budget
    possible[(candidates.weights == 0)[candidates.owner]] = False  # contexts that never occur: any action will do
    possible[candidates.starts[:-1] + best] = True
    alive = np.flatnonzero(possible)
    options = np.split(alive, np.cumsum(np.bincount(candidates.owner[alive], minlength=len(candidates)))[:-1])
    undecided = sorted((x for x, rows in enumerate(options) if len(rows) > 1), key=lambda x: len(options[x]))
    spent, chosen = np.zeros(1), np.zeros((1, 0), dtype=np.intp)
    for x in undecided:
        if len(spent) * len(options[x]) > 10 * MOST_COMBINATIONS:
            return None
        total = np.add.outer(spent, mixture.reduced_cost[options[x]])
        parent, option = np.nonzero(total <= budget)
        if len(parent) > MOST_COMBINATIONS:
            return None
        spent = total[parent, option]
        chosen = np.column_stack([chosen[parent], options[x][option]])
    if len(chosen) == 0:
        return best
    shift = np.repeat(problem.shift(best)[None], len(chosen), axis=0)
    for column, x in enumerate(undecided):
        now = candidates.features[candidates.starts[x] + best[x]]
        shift += candidates.weights[x] * (candidates.features[chosen[:, column]] - now)
    values = problem.values(shift)
    winner = int(np.argmax(values))
    if not values[winner] > value:
        return best
    actions = best.copy()
    actions[undecided] = chosen[winner] - candidates.starts[undecided]
    return actions
