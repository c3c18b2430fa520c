"""Inner loops compiled by numba. Imported by `compiled` alone, and only when the work pays for loading it.

Every function trusts its arrays, holds no Python lock while it runs (users are shared out to threads by `for_each`),
and treats each user by itself: results do not depend on threads. Data may be float32 or float64.
"""

from prefkin.inference.kernels.arithmetic import aligned
from prefkin.inference.kernels.many_features import note_rows, quasi_newton
from prefkin.inference.kernels.newton import newton_cg
from prefkin.inference.kernels.pairs import connect_tile
from prefkin.inference.kernels.pooled import misses
from prefkin.inference.kernels.side_by_side import descend_together
from prefkin.inference.kernels.small_users import descend

__all__ = ["aligned", "connect_tile", "descend", "descend_together", "misses", "newton_cg", "note_rows", "quasi_newton"]
