"""Which pair to ask about next: one file per rule.

| rule        | the next pair maximises                                      | reads answers | file        |
|-------------|--------------------------------------------------------------|---------------|-------------|
| coverage    | ‖z‖_{M⁻¹}: the paper's rule  [paper: query]                  | no            | coverage    |
| fisher      | σ′(θᵀz) zᵀH⁻¹z, H the Hessian at the current estimate        | yes           | fisher      |
| posterior   | the same with the posterior covariance for H⁻¹               | yes           | fisher      |
| information | what the answer tells about θ, and about which group it is in | yes           | information |
| random      | nothing: uniform over the pairs not asked yet                | no            | random      |

To add a rule: a file with a `QueryRule`, and an entry in `RULES`. A rule looks at the
candidates as actions per context, or at the `pool` of all pairs where these are few; `pairs` finds the widest pair of
one context.
"""

from __future__ import annotations

from prefkin.decide.rules.coverage import LeastCovered
from prefkin.decide.rules.fisher import Fisher
from prefkin.decide.rules.information import Information
from prefkin.decide.rules.pairs import QueryRule
from prefkin.decide.rules.random import Random
from prefkin.errors import InvalidParameter

__all__ = ["RULES", "QueryRule", "rule_named"]


RULES: dict[str, type[QueryRule]] = {
    "coverage": LeastCovered,
    "fisher": Fisher,
    "posterior": Fisher,
    "information": Information,
    "random": Random,
}


def rule_named(name: str) -> type[QueryRule]:
    """The rule of that name, or one line that says which there are.

    >>> rule_named("coverage").reads_answers, rule_named("posterior").reads_answers
    (False, True)
    """
    if name not in RULES:
        raise InvalidParameter(f"rule must be one of {', '.join(RULES)}; got {name!r}")
    return RULES[name]
