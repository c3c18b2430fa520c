"""How well each user's preference is known: information, width of the confidence set, radius.

`coverage` says where the floor of a user's information comes from: measured on the user's own rows, or granted by
the paper's item-regularity assumption and then growing with the count.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np
from scipy.integrate import quad

from prefkin.data.arrays import FloatArray, above_zero
from prefkin.data.rows import UserRows, spread
from prefkin.errors import InvalidParameter
from prefkin.inference.spectrum import least_eigenvalue, least_eigenvalues

__all__ = ["KAPPA_UNIT_BALL", "Coverage", "ItemRegularity", "Measured"]

KAPPA_UNIT_BALL = float(1.0 / (2.0 + np.e**2 + np.e**-2))
"""κ: the least slope σ′ of the sigmoid when ‖θ‖ ≤ 1 and ‖φ‖ ≤ 1, so that |θᵀz| ≤ 2  [paper: kappa]."""


class Measured:
    """No assumption: each user's own smallest eigenvalue  [paper: CI]."""

    def floor(self, users: UserRows, *, ridge: float, kappa: float) -> FloatArray:
        """λ_min(M_u) of each user, shape (U,), or a lower bound of it."""
        return least_eigenvalues(users.rows, users.starts) + ridge / kappa

    def least_count(self, *, n_users: int, dim: int, delta: float) -> float:  # noqa: ARG002
        """Comparisons without which a user is not connected at all: none."""
        return 0.0

    def growth(self, users: UserRows, *, ridge: float, kappa: float) -> tuple[float, float]:
        """The floor without comparisons, and by how much each one raises it if coverage goes on as it is.

        From the median user; with fewer rows than features, the mean eigenvalue, which is the best case.
        """
        prior = ridge / kappa
        some = spread(len(users), 20)
        rates = [least_eigenvalue(users.of(user)) / above_zero(users.counts[user]) for user in some]
        squares = np.einsum("ij,ij->i", users.rows.Z, users.rows.Z)
        evenly = float(np.average(squares, weights=users.rows.weights)) / users.dim
        measured = float(np.median(rates))
        return prior, measured if measured > 1e-9 * evenly else evenly


@dataclass(frozen=True)
class ItemRegularity:
    """Data rich in every direction, so that information grows with the count  [paper: item regularity].

    Parameters
    ----------
    lambda_a : smallest eigenvalue of E[z zᵀ] under the distribution the candidates come from.
    sigma : sub-Gaussian scale of (θᵀz)² for unit θ.
    set_size : S, the largest number of candidates a logged pair was chosen from.

    >>> regular = ItemRegularity(lambda_a=0.2, sigma=0.1, set_size=2)
    >>> round(regular.smoothed, 4)
    0.049
    >>> round(regular.n_min(n_users=10, dim=5, delta=0.05))
    100301
    """

    lambda_a: float
    sigma: float
    set_size: int

    def __post_init__(self) -> None:
        for name in ("lambda_a", "sigma", "set_size"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and 1e-100 < float(value) < 1e100):
                raise InvalidParameter(f"ItemRegularity: {name} must be a number above 0; got {value!r}")

    @cached_property
    def smoothed(self) -> float:
        """λ̃_a = ∫₀^λ_a (1 − exp(−(λ_a − x)² / 2σ²))^S dx, by quadrature."""

        def chance(x: float) -> float:
            return float((-np.expm1(-((self.lambda_a - x) ** 2) / (2.0 * self.sigma**2))) ** self.set_size)

        # the integrand falls to 0 over a few σ below λ_a: tell the quadrature where
        bend = max(0.0, self.lambda_a - 8.0 * self.sigma)
        parts = ((0.0, bend), (bend, self.lambda_a)) if bend else ((0.0, self.lambda_a),)
        return sum(float(quad(chance, a, b, epsabs=0.0, epsrel=1e-12, limit=500)[0]) for a, b in parts)

    def n_min(self, *, n_users: int, dim: int, delta: float) -> float:
        """N_min = 16/λ̃_a² · log(8Ud / (λ̃_a² δ)): with fewer comparisons a user stays alone."""
        square = self.smoothed**2
        if square == 0.0:
            raise InvalidParameter(
                f"ItemRegularity: with set_size {self.set_size} no information is left (its floor is 0); "
                "give a smaller set_size or sigma, or a larger lambda_a"
            )
        return float(16.0 / square * np.log(8.0 * n_users * dim / (square * delta)))

    def floor(self, users: UserRows, *, ridge: float, kappa: float) -> FloatArray:  # noqa: ARG002
        """λ̃_a N_u / 2."""
        return self.smoothed * users.counts / 2.0

    def least_count(self, *, n_users: int, dim: int, delta: float) -> float:
        """N_min."""
        return self.n_min(n_users=n_users, dim=dim, delta=delta)

    def growth(self, users: UserRows, *, ridge: float, kappa: float) -> tuple[float, float]:  # noqa: ARG002
        """λ̃_a / 2 each, by assumption."""
        return 0.0, self.smoothed / 2.0


Coverage = Measured | ItemRegularity
"""Where the information floor of each user comes from."""
