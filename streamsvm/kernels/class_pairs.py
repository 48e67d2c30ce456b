"""What the errors between classes weigh: margins Δ(y, j) and costs C(y, j) for a row of class y and class j.

A loss of the slacks 1 - M (s_y - s_j) becomes one of Δ(y, j) - M (s_y - s_j) when (Δ(y, j) - 1) / M is added
to the score of each wrong class j, so the block solvers need not know of margins. The dual term of b_j
becomes Δ(y, j) b_j. A cost multiplies the loss of one wrong class, and with it the bound and the curvature of
its dual.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.scratch import own_bits
from streamsvm.kernels.simd import cast, load_like, select, store, zeros


class ClassPairs(NamedTuple):
    """Margins from a table, or from a tree of classes as the length of the path between two; and costs.

    Without a tree its arrays are empty; they are described in `streamsvm.data.class_costs.ClassTree`.
    """

    shifts: np.ndarray  # (k, K) dtype of the weights: (Δ - 1) / M off the diagonal, else 0; or (0, K)
    costs: np.ndarray  # (k, K) float64: C(y, j); or (0, K) if all are 1
    own_costs: np.ndarray  # (K,) float64: of the own class, where it has a dual; or (0,) if all are 1
    node_of_class: np.ndarray  # (k,) int32
    parent: np.ndarray  # (n_nodes,) int32, -1 for the root
    depth: np.ndarray  # (n_nodes,) int32
    order: np.ndarray  # (k,) int32: classes so that those below node v are order[begin[v]:end[v]]
    begin: np.ndarray  # (n_nodes,) int32
    end: np.ndarray  # (n_nodes,) int32


@inlined
def cost_lanes(row, c, pairs, scratch, zero):
    """Return the factors of the losses of the classes of a vector."""
    cost = zero + 1.0
    if len(pairs.costs) > 0:
        cost = load_like(pairs.costs, (row.y, c), zero)
    if len(pairs.own_costs) > 0:
        own = own_bits(row.y, c, row.own)
        cost = select(own, load_like(pairs.own_costs, c, zero), cost)
    return cost


@inlined
def _write_part(first, last, length, problem, pairs, shift):
    """Write the shift of the classes ``order[first:last]``, whose paths have `length` and their depth."""
    for p in range(first, last):
        c = pairs.order[p]
        path = length + pairs.depth[pairs.node_of_class[c]]
        shift[c] = (path - 1.0) / problem.margin


@inlined
def _write_paths(y, problem, pairs, shift):
    """Write (Δ(y, c) - 1) / M of each class, by the path in the tree from class `y`."""
    node = pairs.node_of_class[y]
    depth = pairs.depth[node]
    first, last = pairs.begin[node], pairs.end[node]
    _write_part(first, last, -depth, problem, pairs, shift)
    while pairs.parent[node] >= 0:
        node = pairs.parent[node]
        length = depth - 2 * pairs.depth[node]
        _write_part(pairs.begin[node], first, length, problem, pairs, shift)
        _write_part(last, pairs.end[node], length, problem, pairs, shift)
        first, last = pairs.begin[node], pairs.end[node]
    shift[y] = 0.0


@inlined
def add_margins(y, vectors, n, problem, pairs, scratch):
    """Write (Δ(y, c) - 1) / M of the classes to ``scratch.shift``, and add it to their scores."""
    if len(pairs.order) > 0:
        _write_paths(y, problem, pairs, scratch.shift)
    elif len(pairs.shifts) == 0:
        return
    thin = cast(zeros(), scratch.scores)
    for r in range(n):
        c = vectors[r]
        if len(pairs.shifts) > 0:
            store(scratch.shift, c, load_like(pairs.shifts, (y, c), thin))
        store(scratch.scores, c, load_like(scratch.scores, c, thin) + load_like(scratch.shift, c, thin))
