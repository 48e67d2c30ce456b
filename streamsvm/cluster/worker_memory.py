"""How much memory each worker of a cluster needs for a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamsvm.data.memory_plan import Plan
from streamsvm.kernels.sum_rows import mark
from streamsvm.settings.fit import ROWS, Settings
from streamsvm.training.fit_plan import columns_of, pair_bytes, row_dual_bytes, weight_rows
from streamsvm.training.parallel.splits import groups_of

if TYPE_CHECKING:
    from streamsvm.store import Store

# Copies that a worker was seen to hold at most: of two groups of classes for one split, and for each further
# one; and of a block.
_PAIR_COPIES, _FURTHER_COPIES, _BLOCK_COPIES = 5, 3, 3
_MOST_READ = 1 << 22  # non-zeros whose features are counted: of more, it is a bound


def worker_bytes(store: Store, settings: Settings, plan: Plan, starts: np.ndarray) -> dict[str, int | None]:
    """What each worker of a cluster holds, without the program itself. By rows, it reads rows of one block.

    By classes, it has the two groups of a split before and after a task and what the task works on, and two
    that arrive or were passed on: of average width, or, if that is more, those of the task the widest ones.
    By rows, it has all weights before and after a round; for each split those of the features of its rows,
    and by what they move; and the sum of these. All share the blocks: one that is learned from, and the next
    one. Costs of pairs of classes are the run's, and again each task's.

    Parameters
    ----------
    starts : ndarray of int64
        The first row of each block, and the number of rows.

    Returns
    -------
    dict
        ``worker_bytes``, if it has one split to do, and ``worker_split_bytes``, what each further one adds;
        None if there is one in all.
    """
    if settings.splits == 1:
        return {"worker_bytes": None, "worker_split_bytes": None}
    splits, itemsize = settings.splits, np.dtype(settings.dtype).itemsize
    largest = int(np.diff(starts).argmax())
    begin, end = int(starts[largest]), int(starts[largest + 1])
    rows, nnz = end - begin, store.nnz * (end - begin) // store.n_rows
    block_bytes = nnz * (itemsize + store.index_dtype.itemsize) + rows * plan.row_bytes
    dual_bytes = min(plan.dual_bytes, rows * row_dual_bytes(store, settings))
    table_bytes = pair_bytes(store.n_classes, settings, columns_of(store, settings))
    split_bytes = (block_bytes + dual_bytes) // splits + table_bytes
    shared_bytes = min(_BLOCK_COPIES, len(starts)) * block_bytes + plan.decode_bytes + table_bytes
    column_bytes = (1 + settings.average) * itemsize  # of one feature
    if settings.split == ROWS:
        feature_bytes = column_bytes * columns_of(store, settings)
        split_bytes += feature_bytes * _count_features(store, begin, begin - (-rows // splits))
        shared_bytes += feature_bytes * (
            2 * weight_rows(store, settings) + _count_features(store, begin, end)
        )
    else:
        groups = groups_of(settings, store.class_counts)
        assert groups is not None
        widths = np.sort(groups.ranges[:, 2] - groups.ranges[:, 0])
        column_bytes *= weight_rows(store, settings)
        pair = column_bytes * int(widths.sum()) // splits
        widest = column_bytes * int(widths[-2:].sum())
        split_bytes += _FURTHER_COPIES * pair
        shared_bytes += max(_PAIR_COPIES * pair, _FURTHER_COPIES * widest + pair) - _FURTHER_COPIES * pair
    return {"worker_bytes": shared_bytes + split_bytes, "worker_split_bytes": split_bytes}


def _count_features(store: Store, begin: int, end: int) -> int:
    """How many features the rows from `begin` to `end` have.

    Of many rows it reads the first ones, and takes each further row to have as many new features: that is a
    bound for rows in random order.
    """
    read = min(end - begin, max(_MOST_READ * store.n_rows // max(store.nnz, 1), 1))
    seen = np.zeros(store.n_features, np.bool_)
    mark(store.rows(begin, begin + read).indices, seen)
    return min(int(seen.sum()) * (end - begin) // read, store.n_features)
