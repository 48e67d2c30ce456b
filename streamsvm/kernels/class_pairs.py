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
from streamsvm.kernels.label_sets import is_own


class ClassPairs(NamedTuple):
    """Margins from a table, or from a tree of classes as the length of the path between two; and costs.

    Without a tree its arrays are empty; they are described in `streamsvm.data.class_costs.ClassTree`.
    """

    shifts: np.ndarray  # (k, K) dtype of the weights: (Δ - 1) / M off the diagonal, else 0; or (0, K)
    costs: np.ndarray  # (k, K) float64: C(y, j); or (0, K) if all are 1
    own_costs: np.ndarray  # (k,) float64: of the own class, where it has a dual; or (0,) if all are 1
    node_of_class: np.ndarray  # (k,) int32
    parent: np.ndarray  # (n_nodes,) int32, -1 for the root
    depth: np.ndarray  # (n_nodes,) int32
    order: np.ndarray  # (k,) int32: classes so that those below node v are order[begin[v]:end[v]]
    begin: np.ndarray  # (n_nodes,) int32
    end: np.ndarray  # (n_nodes,) int32
    curvatures: np.ndarray  # (K,) float64, working space: of the candidates, 1 + ρ
    uppers: np.ndarray  # (K,) float64, working space: of the candidates, U

    def with_own_space(self) -> ClassPairs:
        """The same with other working space, for another thread."""
        return self._replace(curvatures=self.curvatures.copy(), uppers=self.uppers.copy())


@inlined
def _path_length(y, c, pairs):
    """The number of edges between the nodes of two classes."""
    a, b, length = pairs.node_of_class[y], pairs.node_of_class[c], 0
    while a != b:
        if pairs.depth[a] >= pairs.depth[b]:
            a = pairs.parent[a]
        else:
            b = pairs.parent[b]
        length += 1
    return length


@inlined
def _shift(y, c, problem, pairs):
    """(Δ(y, c) - 1) / M in the dtype of the scores."""
    of_type = pairs.shifts.dtype.type
    if len(pairs.shifts) > 0:
        return pairs.shifts[y, c]
    if len(pairs.order) > 0 and c != y:
        return of_type((_path_length(y, c, pairs) - 1.0) / problem.margin)
    return of_type(0.0)


@inlined
def margin_surplus(y, c, problem, pairs):
    """Δ(y, c) - 1, as the scores have it."""
    return problem.margin * np.float64(_shift(y, c, problem, pairs))


@inlined
def cost_of(y, c, own, pairs):
    """What the loss of class `c` is multiplied by in a row of class `y`, or of the classes `own`."""
    is_label = c == y if own is None else is_own(c, own)
    if is_label:
        return pairs.own_costs[c] if len(pairs.own_costs) > 0 else 1.0
    return pairs.costs[y, c] if len(pairs.costs) > 0 else 1.0


@inlined
def _shift_part(first, last, length, problem, pairs, scores):
    """Add the shift of the classes ``order[first:last]``, whose paths have `length` and their depth."""
    for p in range(first, last):
        c = pairs.order[p]
        path = length + pairs.depth[pairs.node_of_class[c]]
        scores[c] += scores.dtype.type((path - 1.0) / problem.margin)


@inlined
def add_margins(y, problem, pairs, scores):
    """Add (Δ(y, c) - 1) / M to the score of each class c but `y`."""
    if len(pairs.shifts) > 0:
        for c in range(problem.n_classes):
            scores[c] += pairs.shifts[y, c]
    elif len(pairs.order) > 0:
        own, node = scores[y], pairs.node_of_class[y]
        depth = pairs.depth[node]
        first, last = pairs.begin[node], pairs.end[node]
        _shift_part(first, last, -depth, problem, pairs, scores)
        while pairs.parent[node] >= 0:
            node = pairs.parent[node]
            length = depth - 2 * pairs.depth[node]
            _shift_part(pairs.begin[node], first, length, problem, pairs, scores)
            _shift_part(last, pairs.end[node], length, problem, pairs, scores)
            first, last = pairs.begin[node], pairs.end[node]
        scores[y] = own


@inlined
def add_margins_of_candidates(y, problem, pairs, scratch, m):
    """As `add_margins`, for the `m` candidates alone."""
    for r in range(m):
        c = scratch.ids[r]
        if c != y:
            scratch.scores[c] += _shift(y, c, problem, pairs)
