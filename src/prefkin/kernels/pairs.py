"""Which pairs of users of two tiles are connected."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefkin.kernels.arithmetic import kernel


@kernel
def connect_tile(
    products: Any,
    top: int,
    left: int,
    square: Any,
    reach: Any,
    take: Any,
    blur: Any,
    slack: Any,
    mutual: bool,
    code: Any,
    other_code: Any,
    degree: Any,
    key: Any,
    other_key: Any,
    doubtful: Any,
) -> int:
    """Edges between the users from `top` and those from `left` on, given −2 θθᵀ of the two in float32.

    u is joined to v when ‖θ_u − θ_v‖² < (reach_u − take_v)². Both directions are counted, in `degree` and in two keys
    that sum the codes of the neighbours; where thresholds make them `mutual`, one test does for both. Pairs whose two
    sides are within their rounding errors, slack · (‖θ_u‖² + ‖θ_v‖²) and (blur_u + blur_v) (reach_u − take_v), are left
    out and listed in `doubtful`, whose fill is returned.
    """
    filled = 0
    height, m = products.shape
    crowded = False
    nothing, margin = np.float32(0), np.float32(1e-6)
    for i in range(height):
        u = top + i
        begin = i + 1 if top == left else 0
        at = left + begin  # views from there on: only loops from 0 vectorise
        product, squares, takes, reaches, blurs = products[i, begin:], square[at:], take[at:], reach[at:], blur[at:]
        codes, others = code[at:], other_code[at:]
        degrees, keys, other_keys = degree[at:], key[at:], other_key[at:]
        s, r, t, b = square[u], reach[u], take[u], blur[u]
        near = np.int32(crowded)
        if not crowded:
            for j in range(m - begin):  # could any be an edge, in either direction? In most graphs few can
                wide = max(max(r - takes[j], reaches[j] - t), nothing)
                size = s + squares[j]
                edge = size + product[j] < wide * (wide + wide * margin + b + blurs[j]) + slack * size
                near = np.int32(near + edge)  # else numba adds in 64 bits, half as many at a time
        if near == 0:
            continue
        found, mine, other, unsure = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
        c, o = code[u], other_code[u]
        if mutual:
            for j in range(m - begin):
                size = s + squares[j]
                distance = size + product[j]
                out = max(r - takes[j], nothing)
                error = slack * size + out * (b + blurs[j] + margin * out)
                apart = distance - out * out
                sure = abs(apart) > error
                joined = np.int32(sure & (apart < nothing))
                unsure = np.int32(unsure + np.int32(not sure))
                found = np.int32(found + joined)
                mine = np.int32(mine + np.int32(joined * codes[j]))
                other = np.int32(other + np.int32(joined * others[j]))
                degrees[j] = np.int32(degrees[j] + joined)
                keys[j] = np.int32(keys[j] + np.int32(joined * c))
                other_keys[j] = np.int32(other_keys[j] + np.int32(joined * o))
        else:
            for j in range(m - begin):
                size = s + squares[j]
                distance = size + product[j]
                out, back = max(r - takes[j], nothing), max(reaches[j] - t, nothing)
                error = slack * size + max(out, back) * (b + blurs[j] + margin * max(out, back))
                out *= out
                back *= back
                sure = (abs(distance - out) > error) & (abs(distance - back) > error)
                joined, heard = np.int32(sure & (distance < out)), np.int32(sure & (distance < back))
                unsure = np.int32(unsure + np.int32(not sure))
                found = np.int32(found + joined)
                mine = np.int32(mine + np.int32(joined * codes[j]))
                other = np.int32(other + np.int32(joined * others[j]))
                degrees[j] = np.int32(degrees[j] + heard)
                keys[j] = np.int32(keys[j] + np.int32(heard * c))
                other_keys[j] = np.int32(other_keys[j] + np.int32(heard * o))
        crowded = bool(found > 0)  # then the next row probably has edges too: no need to ask first
        degree[u] += found
        key[u] += mine
        other_key[u] += other
        if unsure > 0:
            for j in range(m - begin):
                size = s + squares[j]
                distance = size + product[j]
                out = max(r - takes[j], nothing)
                back = out if mutual else max(reaches[j] - t, nothing)
                error = slack * size + max(out, back) * (b + blurs[j] + margin * max(out, back))
                if not ((abs(distance - out * out) > error) & (abs(distance - back * back) > error)):
                    doubtful[filled, 0], doubtful[filled, 1] = u, at + j
                    filled += 1
    return filled
