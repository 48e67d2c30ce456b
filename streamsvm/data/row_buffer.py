"""Reusable arrays that collect the rows of a block from several reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.data.rows import OF_EACH_ROW, POINTERS, Rows, pointed_to, row_span

_VALUE_ARRAYS = POINTERS["indptr"]


class RowBuffer:
    """Arrays for the rows of one block at a time, whose memory pages are allocated on first use.

    The parameters are the maximum numbers of rows, non-zeros and labels; `n_labels` is 0 for single-label
    rows. The attribute `n_rows` is the number of rows of the current block that have been appended.
    """

    def __init__(self, n_rows: int, nnz: int, n_labels: int) -> None:
        self._sizes = dict.fromkeys(_VALUE_ARRAYS, nnz) | dict.fromkeys(OF_EACH_ROW, n_rows)
        self._sizes |= dict.fromkeys(POINTERS, n_rows + 1) | {"label_codes": n_labels}
        self._arrays: Rows | None = None
        self.begin(n_rows)

    def begin(self, n_rows: int) -> None:
        """Start a block with `n_rows` rows."""
        self.n_rows, self._block_rows, self._rows = 0, n_rows, self._arrays

    def append(self, part: Rows) -> None:
        """Append the next rows of the block, which are copied unless they are the whole block."""
        if part.n_rows == self._block_rows:
            self._rows, self.n_rows = part, part.n_rows
            return
        if self._arrays is None:
            self._arrays = self._new_arrays(part)
        self._rows, at = self._arrays, self.n_rows
        self.n_rows += part.n_rows
        for name in OF_EACH_ROW:
            if len(values := getattr(part, name)):
                getattr(self._rows, name)[at : self.n_rows] = values
        for name, targets in POINTERS.items():
            if not len(pointers := getattr(part, name)):
                continue
            pointers_so_far = getattr(self._rows, name)
            begin = int(pointers_so_far[at])
            np.add(pointers[1:], begin, out=pointers_so_far[at + 1 : self.n_rows + 1])
            for target, values in pointed_to(part, targets):
                getattr(self._rows, target)[begin : begin + len(values)] = values

    def _new_arrays(self, like: Rows) -> Rows:
        arrays: dict[str, Any] = {"indices": None}
        for name, array in pointed_to(like, Rows._fields):
            is_absent = name in self._sizes.keys() - {*_VALUE_ARRAYS, "label_codes"} and not len(array)
            arrays[name] = np.empty(0 if is_absent else self._sizes[name], array.dtype)
        for name in POINTERS:
            arrays[name][:1] = 0
        return Rows(**arrays)

    def span(self, start: int, stop: int) -> Rows:
        """Return views of the rows ``start:stop`` of the block, which must have been appended."""
        assert self._rows is not None
        is_all = (start, stop) == (0, len(self._rows.labels))
        return self._rows if is_all and self._rows is not self._arrays else row_span(self._rows, start, stop)
