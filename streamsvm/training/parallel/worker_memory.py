"""How much memory each worker of a cluster needs for a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamsvm.data.memory_plan import Plan
from streamsvm.kernels.sum_rows import mark
from streamsvm.settings import ROWS, Settings
from streamsvm.training.fit_plan import columns_of, duals_of_row, weight_rows

if TYPE_CHECKING:
    from streamsvm.store import Store

# Copies that a worker was seen to hold at most: of two groups of classes for one split, and for each further
# one; and of a block.
_PAIR_COPIES, _FURTHER_COPIES, _BLOCK_COPIES = 5, 3, 3
_READ_NNZ = 1 << 22  # non-zeros that are read at a time


def worker_bytes(store: Store, settings: Settings, plan: Plan, starts: np.ndarray) -> dict[str, int | None]:
    """What each worker of a cluster holds, without the program itself: reads the rows of one block.

    By classes, it has the two groups of a split before and after a task, what the task works on, and groups
    that arrive or were passed on. By rows, it has all weights before and after a round; for each split those
    of the features of its rows, and by what they move; and the sum of these. All share the blocks: one that
    is learned from, and the next one.

    Parameters
    ----------
    starts : ndarray of int64
        The first row of each block.

    Returns
    -------
    dict
        ``worker_bytes``, if it has one split to do, and ``worker_split_bytes``, what each further one adds at
        most; None if there is one in all.
    """
    if settings.splits == 1:
        return {"worker_bytes": None, "worker_split_bytes": None}
    splits, dtype = settings.splits, np.dtype(settings.dtype)
    rows = int(np.diff(starts).max())
    nnz, in_part, in_block = _features_of_block(store, rows, rows // splits)
    block = nnz * (dtype.itemsize + store.index_dtype.itemsize) + rows * plan.row_bytes
    duals = min(plan.dual_bytes, rows * duals_of_row(store, settings))
    feature = (1 + settings.average) * dtype.itemsize * columns_of(store, settings)
    split = (block + duals) // splits
    shared = min(_BLOCK_COPIES, len(starts)) * block + plan.decode_bytes
    if settings.split == ROWS:
        split += feature * in_part
        shared += feature * (2 * weight_rows(store, settings) + in_block)
    else:
        pair = feature * weight_rows(store, settings) // splits
        split += _FURTHER_COPIES * pair
        shared += (_PAIR_COPIES - _FURTHER_COPIES) * pair
    return {"worker_bytes": shared + split, "worker_split_bytes": split}


def _features_of_block(store: Store, rows: int, part: int) -> tuple[int, int, int]:
    """The non-zeros of the first rows; how many features a part of these has, and how many all of them."""
    seen = np.zeros(store.n_features, np.bool_)
    nnz, in_part, begin = 0, 0, 0
    step = max(_READ_NNZ * store.n_rows // max(store.nnz, 1), 1)
    while begin < rows:
        end = min(begin + step, part if begin < part else rows)
        indices = store.rows(begin, end).indices
        mark(indices, seen)
        nnz += len(indices)
        begin = end
        if begin == part:
            in_part = int(seen.sum())
    return nnz, in_part, int(seen.sum())
