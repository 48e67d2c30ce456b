"""top-m: the wrong classes with the m largest scores add to the loss, if they are inside the margin.

    min ½‖w‖² + C Σ_i (mean of the m largest of max(0, 1 - (w_y - w_j)ᵀx_i) over the wrong classes j)

The top-k hinge of Lapin, Hein & Schiele (2015), over the wrong classes: for models whose m best classes are
shown. With m = 1 it is Crammer-Singer, with m = k - 1 Weston-Watkins with C / (k - 1); a larger m is k - 1.
In the block problem of `streamsvm.losses.largest_slacks` κ = 1, U = C/m and Z = C; the dual term is Σb.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.candidates import beats
from streamsvm.kernels.jit import allocating, inlined
from streamsvm.losses.largest_slacks import find_newton, make_kernels_of_largest
from streamsvm.losses.simplex import partition


@inlined
def number_of_slacks(problem):
    """m; 1 while only one class is known."""
    return max(min(problem.top, problem.n_classes - 1), 1)


@allocating
def _sum_of_largest_slacks(y, scratch, m, most):
    """The sum of the largest `most` slacks of the `m` candidates, if they are positive."""
    slacks = np.empty(m)
    begin, end, step, total = 0, 0, 0, 0.0
    for r in range(m):
        slack = 1.0 - (np.float64(scratch.scores[y]) - scratch.scores[scratch.ids[r]])
        if not slack <= 0.0:
            slacks[end] = slack
            end += 1
    while begin < end and most > 0:
        step += 1
        split, part = partition(slacks, begin, end, step)
        if split - begin <= most:
            total += part
            most -= split - begin
            begin = split
        else:  # without the pivot, which is the smallest of too many
            begin, end = begin + 1, split
    return total


@inlined
def _loss(y, best, problem, scratch, m):
    """The mean of the largest slacks, of which the `m` candidates have all that are positive."""
    several = number_of_slacks(problem)
    total = _sum_of_largest_slacks(y, scratch, m, several)
    return total / several, beats(best, y, scratch.scores)


@inlined
def _bounds(C, problem):
    return C / number_of_slacks(problem), C


KERNELS = {
    "top-m": make_kernels_of_largest("top_m", _loss, _bounds, find_newton, has_two_bounds=True),
}
