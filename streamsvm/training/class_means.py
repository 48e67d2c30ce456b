"""The point from which products of dense rows begin: all duals of a row alike, and the weights that follow.

With every dual of row i equal to s C_i, where C_i is its cost, the weights of class c are

    w_c = s M (k Σ_{y_i = c} C_i x_i - Σ_i C_i x_i),

the differences of the classes' means from the mean of all rows, but for scale. The dual objective is then
s L - ½ s² ‖w‖² (w at s = 1), with L = (k - 1) Σ_i C_i, and s is best at L / ‖w‖², if the bound 1 of the duals
allows it. From there one pass leaves less of the gap than from zero where C is small and classes have many
rows; further passes do so in any case that was measured.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from streamsvm.data.blocks import Blocks
from streamsvm.data.rows import Rows
from streamsvm.run.weights import WeightStorage

_ROW_VALUES, _WEIGHTS = 2**22, 2**20  # that are worked on at a time, in about three copies


def begin_at_means(
    blocks: Blocks,
    share: float,
    storage: WeightStorage,
    n_classes: int,
    margin: float,
    progress: Callable[[int], None],
) -> float:
    """Add the weights of that point to `storage`, whose weights are zero, and return s.

    Costs of the rows, which are dense, are multiplied by `share`. `progress` is called with the number of
    rows that have been read. If the sums overflow the weights stay zero, and so is s.
    """
    current, sum_of_costs, n_read = storage.weights.current[:, :n_classes], 0.0, 0
    for rows in blocks.each(blocks.first_starts, range(len(blocks.first_starts) - 1)):
        storage.check_room(rows)
        cost = np.where(rows.norm2 > 0, rows.cost * share, 0.0)
        sum_of_costs += float(cost.sum())
        with np.errstate(over="ignore", invalid="ignore"):
            _add_class_sums(rows, cost.astype(current.dtype), current)
        n_read += rows.n_rows
        progress(n_read)
    squares, step, start = 0.0, max(1, _WEIGHTS // n_classes), 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for f in range(0, len(current), step):
            W = current[f : f + step]
            total = W.sum(axis=1, dtype=np.float64, keepdims=True)
            W[:] = margin * (n_classes * W - total)
            squares += float(np.einsum("fc,fc->", W, W, dtype=np.float64))
    if 0 < squares < np.inf:
        start = min(1.0, (n_classes - 1) * sum_of_costs / squares)
        current *= start
    else:
        current[:] = 0
    return start


def _add_class_sums(rows: Rows, cost: np.ndarray, target: np.ndarray) -> None:
    """Add the rows, each times its cost, to the columns of their classes."""
    X = rows.matrix
    step = max(1, _ROW_VALUES // X.shape[1])
    for begin in range(0, rows.n_rows, step):
        some = slice(begin, begin + step)
        classes, place = np.unique(rows.labels[some], return_inverse=True)
        of_class = sparse.csr_array((cost[some], (place, np.arange(len(place)))))
        target[: X.shape[1], classes] += (of_class @ X[some]).T
