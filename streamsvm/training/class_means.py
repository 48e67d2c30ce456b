"""Starting point for training on dense rows, computed from the class means.

If every dual of row i equals s C_i, where C_i is the cost of the row, the weights of class c are

    w_c = s M (k Σ_{y_i = c} C_i x_i - Σ_i C_i x_i)

for k classes and the margin scale M. If all classes have the same total cost, these weights are proportional
to the differences between the class means and the mean of all rows. The dual objective is s L - ½ s² ‖w‖²,
where w are the weights for s = 1, and L = (k - 1) Σ_i C_i. The best s is therefore L / ‖w‖², or 1 if that is
smaller, because no dual may exceed C_i. One pass from this point leaves a smaller gap than one pass from zero
if C is small and classes have many rows. After several passes, the gap was smaller in all measured cases.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from streamsvm.data.blocks import Blocks
from streamsvm.data.rows import Rows
from streamsvm.run.weights import WeightStorage

_ROW_VALUES, _WEIGHTS = 2**22, 2**20  # number of values processed at a time, in about three copies


def begin_at_means(
    blocks: Blocks,
    share: float,
    storage: WeightStorage,
    n_classes: int,
    margin: float,
    progress: Callable[[int], None],
) -> float:
    """Set the weights in `storage`, which must be zero, to the starting point, and return s.

    The rows must be dense. Their costs are multiplied by `share`. `progress` is called with the number of
    rows read so far. If the sums overflow, the weights stay zero and s is 0.
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
    X = rows.matrix
    step = max(1, _ROW_VALUES // X.shape[1])
    for begin in range(0, rows.n_rows, step):
        part = slice(begin, begin + step)
        classes, place = np.unique(rows.labels[part], return_inverse=True)
        class_costs = sparse.csr_array((cost[part], (place, np.arange(len(place)))))
        target[: X.shape[1], classes] += (class_costs @ X[part]).T
