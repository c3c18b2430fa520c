"""Each user's log-likelihood as a quadratic, matched to what is believed about the user.

1. sites       each row's likelihood as a quadratic in its margin, by expectation propagation
2. forms       what a user's quadratic has to tell
3. directions  kept along the eigenvectors of the user's information: any τ², any rank
4. matrices    kept as a matrix: many features and answers, few τ²
5. expansion   from sites to quadratics, in the form that takes less time
"""

from prefkin.inference.quadratics.directions import STACKED_UP_TO, ByDirections
from prefkin.inference.quadratics.expansion import expand
from prefkin.inference.quadratics.forms import Quadratic, Quadratics
from prefkin.inference.quadratics.matrices import mirrored
from prefkin.inference.quadratics.sites import Signed, Sites, per_user_sum, refine

__all__ = [
    "STACKED_UP_TO",
    "ByDirections",
    "Quadratic",
    "Quadratics",
    "Signed",
    "Sites",
    "expand",
    "mirrored",
    "per_user_sum",
    "refine",
]
