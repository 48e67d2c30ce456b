"""top-m: the loss is the mean of the hinges of the m wrong classes with the largest scores.

    min ½‖w‖² + C Σ_i (mean of the m largest of max(0, 1 - (w_y - w_j)ᵀx_i) over the wrong classes j)

This is the top-k hinge of Lapin, Hein & Schiele (2015), for applications that show the m best classes. It
equals Crammer-Singer for m = 1, and Weston-Watkins with C / (k - 1) for m >= k - 1. In the block problem of
`streamsvm.losses.largest_slacks`, κ = 1, U = C/m and Z = C. The term in the dual objective is Σb.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import allocating, inlined
from streamsvm.kernels.random import GAMMA, mix
from streamsvm.kernels.simd import LANES
from streamsvm.losses.largest_slacks import make_kernels_of_largest


@inlined
def number_of_slacks(problem):
    """Return m, but at most the number of wrong classes and at least 1."""
    return max(min(problem.top, problem.n_classes - 1), 1)


@allocating
def _sum_of_largest_slacks(row, n, scratch, m):
    """Return the sum of the positive slacks among the `m` largest, by partitioning around pivots."""
    slacks, begin, end, step, total = np.empty(n * LANES), 0, 0, 0, 0.0
    for r in range(n):
        c = scratch.vectors[r]
        for j in range(LANES):
            slack = 1.0 - (row.own_score - np.float64(scratch.scores[c + j]))
            if not slack <= 0.0:
                slacks[end] = slack
                end += 1
    while begin < end and m > 0:
        step += 1
        split, part_sum = partition(slacks, begin, end, step)
        if split - begin <= m:
            total += part_sum
            m -= split - begin
            begin = split
        else:  # too many: drop the pivot, which is the smallest of them
            begin, end = begin + 1, split
    return total


@inlined
def partition(u, begin, end, step):
    """Move a pivot, chosen by `step`, and all entries >= it to the front; return their end and their sum."""
    at = begin + np.int64(mix(np.uint64(step) * GAMMA) % np.uint64(end - begin))
    u[begin], u[at] = u[at], u[begin]
    part_sum, split = u[begin], begin + 1
    for r in range(begin + 1, end):
        if u[r] >= u[begin]:
            u[split], u[r] = u[r], u[split]
            part_sum += u[split]
            split += 1
    return split, part_sum


@inlined
def _loss(row, n, problem, scratch):
    m = number_of_slacks(problem)
    return _sum_of_largest_slacks(row, n, scratch, m) / m


_bounds = inlined(lambda C, problem: (C / number_of_slacks(problem), C), name="top_m_bounds")
KERNELS = {"top-m": make_kernels_of_largest("top_m", _loss, _bounds, has_two_bounds=True)}
