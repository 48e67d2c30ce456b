"""Predict the best label sequence of each group of rows with the Viterbi algorithm."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamsvm.data.groups import GIVE_GROUPS, group_starts
from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError


def piece_bounds(rows: Rows, step: int, *, by_group: bool) -> Iterator[tuple[int, int]]:
    """Yield the bounds of pieces with up to `step` rows.

    If `by_group` is true, each piece consists of whole groups, and a group with more rows is one piece.
    """
    if not by_group or len(rows.qid) != rows.n_rows:
        for begin in range(0, rows.n_rows, step):
            yield begin, min(begin + step, rows.n_rows)
        return
    starts, begin = group_starts(rows.qid), 0
    while begin < rows.n_rows:
        last = int(np.searchsorted(starts, begin + step, "right")) - 1
        end = int(starts[last])
        if end <= begin:
            end = int(starts[last + 1])
        yield begin, end
        begin = end


def best_sequences(scores: np.ndarray, transitions: np.ndarray, rows: Rows, begin: int) -> np.ndarray:
    """Return the class codes of the best label sequences; ties go to the lower code.

    `scores`, shape (n, k), covers whole groups from row `begin` on. Raise `ModelError` if `qid` is missing.
    """
    from streamsvm.chains.kernels import decode_groups

    if len(rows.qid) != rows.n_rows:
        raise ModelError(
            "the model predicts whole label sequences, but the data does not say which rows form a sequence",
            remedy=GIVE_GROUPS,
        )
    best, qid = np.zeros(len(scores), np.int64), rows.qid[begin : begin + len(scores)]
    decode_groups(
        np.ascontiguousarray(scores), transitions.astype(np.float64), np.ascontiguousarray(qid), best
    )
    return best
