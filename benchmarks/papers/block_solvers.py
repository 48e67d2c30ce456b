"""Block solvers of Crammer-Singer that the papers compare, on the frame of the engine.

With the own class's b_y = C - Σ_{j≠y} b_j the block is a simplex {b >= 0, Σ b = C}, and the gradient of its
dual is g_j = 1 - (s_y - s_j) for the wrong classes, and g_y = 0. A step δ with sum 0 changes the dual by gᵀδ
- ½‖x‖²‖δ‖², so the exact solution is the projection of b + g/‖x‖² to the simplex.

`pivot` finds it, `bisection` up to its tolerance. The others only improve on the old duals: their results are
feasible, and except for `oeg`, and `bisection` near the optimum, the dual never falls.

Importing this file adds them to the solvers of the loss ``cs``.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.kernels.frame import Kernels, make_kernels
from streamsvm.kernels.jit import allocating, inlined, kernel
from streamsvm.kernels.simd import LANES, LOG_LANES
from streamsvm.losses import LOSSES
from streamsvm.losses.crammer_singer import make
from streamsvm.losses.hinges import HINGE
from streamsvm.losses.largest_slacks import largest_slack
from streamsvm.losses.published import KERNELS, polished
from streamsvm.losses.top_m import partition

_STEPS = 10  # of SMO, at most, for each class
_TOLERANCE = 1e-3  # of SMO in slacks, of the bisection in shares of C
_LEAST_SHARE = 1e-12  # of C, for BCPL and OEG: from 0 they could not rise
_VERSION = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]  # kernels are cached by their names


@allocating
def threshold_pivot(d, m, C, u_top):
    """Find θ by partitions around pivots: Duchi et al. (2008), Figure 2, in expected linear time.

    Arguments are those of `threshold_sorted`, with C for `most` and a slope of 1. The simplex includes class
    y, whose entry is C - u_top. Pivots are functions of the step alone, so that runs repeat.
    """
    u, end = np.empty(m + 1), 1
    u[0] = C - u_top
    for r in range(m):
        if d[r] > -np.inf:
            u[end] = d[r]
            end += 1
    begin, step = 0, 0
    total, n_free = 0.0, 0  # of the entries known to be above θ
    while begin < end:
        step += 1
        split, part = partition(u, begin, end, step)
        if total + part - (n_free + split - begin) * u[begin] < C:
            total += part
            n_free += split - begin
            begin = split
        else:
            begin, end = begin + 1, split
    return polished(d, m, C, 1.0, u_top, (total - C) / n_free)


@inlined
def _find_pivot(d, m, upper, most, slope, u_top, dual, problem):
    return threshold_pivot(d, m, most, u_top)


def _make(step: Any) -> Kernels:
    """Make the kernels of ``step(b, g, norm2, C, problem)``, which changes b; the own class is the last."""
    name = f"cs_{step.__name__}_{_VERSION}"

    def improve(row, n, problem, scratch):
        m = 0
        positions = np.empty(n * LANES, np.int64)
        for p in range(n * LANES):
            scratch.v[p] = 0.0
            if scratch.hidden[scratch.vectors[p >> LOG_LANES] + (p & (LANES - 1))] == 0.0:
                positions[m] = p
                m += 1
        b, g = np.empty(m + 1), np.empty(m + 1)
        for r in range(m):
            c = scratch.vectors[positions[r] >> LOG_LANES] + (positions[r] & (LANES - 1))
            b[r], g[r] = scratch.old[c], 1.0 - (row.own_score - np.float64(scratch.scores[c]))
        b[m], g[m] = max(row.C - row.old_sum, 0.0), 0.0
        step(b, g, row.norm2, row.C, problem)
        for r in range(m):
            scratch.v[positions[r]] = b[r]

    improve = allocating(improve, name=f"{name}_improve")

    def solve(row, n, problem, pairs, scratch):
        improve(row, n, problem, scratch)
        return max(largest_slack(row, n, scratch), 0.0), -np.inf

    return make_kernels(name, solve=inlined(solve, name=f"{name}_solve"), needs_all=True)


@allocating
def bisection(b, g, norm2, C, problem):
    """Project b + g/‖x‖² to the simplex, up to a tolerance of Σ b: Blondel et al. (2014), Algorithm 3.

    The paper's bracket [0, max u] fails if the solution is negative; [max u - C, max u] holds always. The
    result is scaled to the simplex, without which the dual would be wrong by the tolerance.
    """
    u = np.empty(len(b))
    for r in range(len(b)):
        u[r] = b[r] + g[r] / norm2
    high = u[np.argmax(u)]
    low = high - C
    middle, total = low, np.inf
    for _ in range(100):
        if total > C:
            low = middle
        else:
            high = middle
        middle = 0.5 * (low + high)
        total = 0.0
        for r in range(len(u)):
            total += max(u[r] - middle, 0.0)
        if abs(total - C) <= _TOLERANCE * C:
            break
    if total > 0.0:  # else C is below the rounding of u
        for r in range(len(b)):
            b[r] = max(u[r] - middle, 0.0) * (C / total)


@kernel
def smo(b, g, norm2, C, problem):
    """Move the pair of the largest violation, until that is small: sequential minimal optimization."""
    for _ in range(_STEPS * len(b)):
        up, down = np.argmax(g), -1
        for r in range(len(b)):
            if b[r] > 0.0 and (down < 0 or g[r] < g[down]):
                down = r
        if down < 0 or not g[up] - g[down] >= _TOLERANCE:
            break
        step = min((g[up] - g[down]) / (2.0 * norm2), b[down])
        b[up] += step
        b[down] -= step
        g[up] -= norm2 * step
        g[down] += norm2 * step


@kernel
def tilt(b, g, C, temperature, target):
    """Write the point C s of the simplex with s_j ∝ b_j exp(g_j / τ): Mohapatra et al. (2016), equation 9.

    The paper begins inside the simplex, with a pass that makes all b_j equal. Here a row's first step takes
    them as equal in this formula only.
    """
    is_first = b[-1] >= C
    for r in range(len(b)):
        share = 1.0 if is_first else max(b[r] / C, _LEAST_SHARE)
        target[r] = np.log(share) + g[r] / temperature
    top, total = target[np.argmax(target)], 0.0
    for r in range(len(b)):
        target[r] = np.exp(target[r] - top)
        total += target[r]
    for r in range(len(b)):
        target[r] *= C / total


@kernel
def move_towards(b, g, target, norm2, full):
    """Move b towards another point of the simplex: all the way if `full`, else as far as the dual rises.

    Mohapatra et al. (2016), equation 10, with the step clipped to [0, 1].
    """
    gain, length = 0.0, 0.0
    for r in range(len(b)):
        direction = target[r] - b[r]
        gain += g[r] * direction
        length += direction * direction
    step = 1.0
    if not full and not gain >= norm2 * length:
        step = gain / (norm2 * length) if gain > 0.0 else 0.0
    for r in range(len(b)):
        b[r] += step * (target[r] - b[r])


@allocating
def frank_wolfe(b, g, norm2, C, problem):
    """Move towards the vertex of the largest gradient, as far as the dual rises: Frank-Wolfe."""
    target = np.zeros(len(b))
    target[np.argmax(g)] = C
    move_towards(b, g, target, norm2, False)


@allocating
def bcpl(b, g, norm2, C, problem):
    """Move towards the tilted distribution, as far as the dual rises: Mohapatra et al. (2016)."""
    target = np.zeros(len(b))
    tilt(b, g, C, problem.temperature, target)
    move_towards(b, g, target, norm2, False)


@allocating
def oeg(b, g, norm2, C, problem):
    """Move to the tilted distribution: exponentiated gradient."""
    target = np.zeros(len(b))
    tilt(b, g, C, problem.temperature, target)
    move_towards(b, g, target, norm2, True)


SOLVERS = {
    "pivot": make(f"cs_pivot_{_VERSION}", HINGE, _find_pivot),
    **{each.__name__.replace("_", "-"): _make(each) for each in (bisection, smo, frank_wolfe, bcpl, oeg)},
}
KERNELS.update({("cs", solver): kernels for solver, kernels in SOLVERS.items()})
LOSSES["cs"] = dataclasses.replace(LOSSES["cs"], solvers=(*LOSSES["cs"].solvers, *SOLVERS))
