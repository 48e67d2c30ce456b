"""Estimate the memory that each worker of a cluster needs for a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamsvm.kernels.sum_rows import mark
from streamsvm.training.training import Training

if TYPE_CHECKING:
    from streamsvm.store import Store

# Largest observed numbers of copies: of a pair of groups, for the first and each further split; of a block.
_PAIR_COPIES, _FURTHER_COPIES, _BLOCK_COPIES = 5, 3, 3
_COUNTED_NONZEROS = 1 << 22  # above this number, the count of features is an upper bound


def worker_bytes(store: Store, training: Training) -> dict[str, int | None]:
    """Estimate the memory of a worker, excluding the program, for one split and for each further split.

    With splits by classes, a worker holds the two class groups of a split before and after a task, the task's
    copy, and two groups in transit (of average width, or the two widest). With splits by rows, it holds all
    weights before and after a round, the sum of the changes and, for each split, the weights of its features
    and their changes. To count these features, rows of one block are read. All splits of a worker share
    up to three blocks, the duals of one block, and two copies of the margins of class pairs.

    Returns ``worker_bytes`` and ``worker_split_bytes``, which are None if there is only one split.
    """
    spec, plan, starts = training.spec, training.plan, training.starts
    if spec.settings.splits == 1:
        return {"worker_bytes": None, "worker_split_bytes": None}
    splits, itemsize, shape = spec.settings.splits, spec.dtype.itemsize, spec.shape
    largest = int(np.diff(starts).argmax())
    begin, end = int(starts[largest]), int(starts[largest + 1])
    rows, nnz = end - begin, store.nnz * (end - begin) // store.n_rows
    block_bytes = nnz * (itemsize + store.index_bytes) + rows * plan.row_bytes
    dual_bytes = min(plan.dual_bytes, rows * spec.row_dual_bytes)
    split_bytes = (block_bytes + dual_bytes) // splits
    shared_bytes = min(_BLOCK_COPIES, len(starts)) * block_bytes + dual_bytes
    shared_bytes += plan.decode_bytes + spec.pair_bytes
    column_bytes = (1 + plan.average) * itemsize  # bytes of one column for one feature
    if spec.groups is None:
        feature_bytes = column_bytes * shape[1]
        split_bytes += feature_bytes * _count_features(store, begin, begin - (-rows // splits))
        shared_bytes += feature_bytes * (2 * shape[0] + _count_features(store, begin, end))
    else:
        widths = np.sort(spec.groups.ranges[:, 2] - spec.groups.ranges[:, 0])
        column_bytes *= shape[0]
        pair = column_bytes * int(widths.sum()) // splits
        widest = column_bytes * int(widths[-2:].sum())
        split_bytes += _FURTHER_COPIES * pair
        shared_bytes += max(_PAIR_COPIES * pair, _FURTHER_COPIES * widest + pair) - _FURTHER_COPIES * pair
    return {"worker_bytes": shared_bytes + split_bytes, "worker_split_bytes": split_bytes}


def _count_features(store: Store, begin: int, end: int) -> int:
    """Count the features of rows; if there are many rows, extrapolate from the first ones."""
    read = min(end - begin, max(_COUNTED_NONZEROS * store.n_rows // max(store.nnz, 1), 1))
    seen = np.zeros(store.n_features, np.bool_)
    mark(store.rows(begin, begin + read).features, seen)
    return min(int(seen.sum()) * (end - begin) // read, store.n_features)
