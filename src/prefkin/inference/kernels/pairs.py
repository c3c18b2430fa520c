"""Which pairs of users of two tiles are connected."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefkin.inference.kernels.arithmetic import kernel


@kernel
def connect_tile(
    excess: Any,
    top: int,
    left: int,
    low: Any,
    high: Any,
    error: Any,
    reach: Any,
    take: Any,
    both: bool,
    code: Any,
    other_code: Any,
    degree: Any,
    key: Any,
    other_key: Any,
    doubtful: Any,
) -> int:
    """Edges from the users from `top` on to those from `left` on, whose `excess` says how near they are.

    u is joined to v when excess_uv > high_u + error_v, is not when excess_uv ≤ low_u or reach_u ≤ take_v, and is listed
    in `doubtful`, whose fill is returned, in between. Edges are counted in `degree` and in two keys that sum the codes
    of the neighbours, for u and, where they hold for `both`, for v.
    """
    filled = 0
    height, m = excess.shape
    errors, takes, codes, others = error[left:], take[left:], code[left:], other_code[left:]  # only loops from 0 are
    degrees, keys, other_keys = degree[left:], key[left:], other_key[left:]  # vectorised
    crowded = False
    for i in range(height):
        u = top + i
        row = excess[i]
        least, enough, r, c, o = low[u], high[u], reach[u], code[u], other_code[u]
        if top == left:
            row[i] = -np.inf  # not with oneself
        near = np.int32(crowded)
        if not crowded:
            for j in range(m):  # could any be an edge? In most graphs few can
                near = np.int32(near + np.int32(not (row[j] <= least)))  # else numba adds in 64 bits; nan is in doubt
        if near == 0:
            continue
        found, mine, other, unsure = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
        for j in range(m):
            possible = np.int32((not (row[j] <= least)) & (takes[j] < r))
            joined = np.int32(possible & np.int32(row[j] > enough + errors[j]))
            unsure = np.int32(unsure + np.int32(possible - joined))
            found = np.int32(found + joined)
            mine = np.int32(mine + np.int32(joined * codes[j]))
            other = np.int32(other + np.int32(joined * others[j]))
            if both:
                degrees[j] = np.int32(degrees[j] + joined)
                keys[j] = np.int32(keys[j] + np.int32(joined * c))
                other_keys[j] = np.int32(other_keys[j] + np.int32(joined * o))
        crowded = bool(found > 0)  # then the next row probably has edges too: no need to ask first
        degree[u] += found
        key[u] += mine
        other_key[u] += other
        if unsure > 0:
            for j in range(m):
                if (not (row[j] <= least)) and takes[j] < r and not (row[j] > enough + errors[j]):
                    doubtful[filled, 0], doubtful[filled, 1] = u, left + j
                    filled += 1
    return filled
