"""Arrays in which the rows of a block are put together from pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.data.rows import OF_EACH_ROW, POINTERS, Rows, pointed_to

_OF_VALUES = POINTERS["indptr"]
_PAGE = 4096  # bytes


class RowSpace:
    """Arrays for the rows of one block after another, which are touched by no more rows than there are.

    Parameters
    ----------
    n_rows, nnz, n_labels : int
        The most that a block has; labels only if rows may have several.

    Attributes
    ----------
    n_rows : int
        Rows of the block that are there.
    """

    def __init__(self, n_rows: int, nnz: int, n_labels: int) -> None:
        self.n_rows = 0
        self._sizes = dict.fromkeys(_OF_VALUES, nnz) | dict.fromkeys(OF_EACH_ROW, n_rows)
        self._sizes |= dict.fromkeys(POINTERS, n_rows + 1) | {"label_codes": n_labels}
        self._arrays: dict[str, np.ndarray] = {}
        self._touched = 0

    def begin(self, first: Rows, n_rows: int) -> Rows:
        """Return arrays for a block of `n_rows` rows, of the types of `first`, its first rows.

        They are valid as far as rows are there; values, indices and label codes end where the pointers say.
        """
        views: dict[str, Any] = {}
        for name, like in first._asdict().items():
            if like is None:  # indices of dense rows
                views[name] = None
                continue
            if name not in self._arrays:  # the system provides pages of it when they are first written
                is_absent = name not in (*_OF_VALUES, "label_codes") and not len(like)
                self._arrays[name] = np.empty(0 if is_absent else self._sizes[name], like.dtype)
            size = n_rows + (name in POINTERS) if name in OF_EACH_ROW or name in POINTERS else None
            views[name] = self._arrays[name][:size]
        if first.dense:  # whose width follows from the sizes
            views["data"] = views["data"][: n_rows * first.matrix.shape[1]]
        self._rows = Rows(**views)
        for name in POINTERS:
            views[name][:1] = 0
        self.n_rows = 0
        return self._rows

    def touch(self, start: int, stop: int) -> None:
        """Have the system provide the pages of some values and indices that will be put there next.

        That takes time, and need not be in the thread that puts them there. Pages that earlier blocks had
        are left alone.
        """
        start = max(start, self._touched)
        for name in _OF_VALUES:
            array = self._arrays.get(name)  # unless the block has not begun
            if array is not None:
                array[start : max(start, stop) : _PAGE // array.itemsize] = 0
        self._touched = max(self._touched, stop)

    def append(self, piece: Rows) -> None:
        """Copy the next rows of the block."""
        at, end = self.n_rows, self.n_rows + piece.n_rows
        for name in OF_EACH_ROW:
            if len(part := getattr(piece, name)):
                getattr(self._rows, name)[at:end] = part
        for name, targets in POINTERS.items():
            pointers, part = getattr(self._rows, name), getattr(piece, name)
            if not len(part):
                continue
            begin = int(pointers[at])
            np.add(part[1:], begin, out=pointers[at + 1 : end + 1])
            for target, values in pointed_to(piece, targets):
                getattr(self._rows, target)[begin : begin + len(values)] = values
        self.n_rows = end

    def rows(self) -> Rows:
        """Return the rows of a block that is complete."""
        found: dict[str, Any] = {}
        for name, targets in POINTERS.items():
            pointers = getattr(self._rows, name)
            end = int(pointers[-1]) if len(pointers) else 0
            found |= {target: values[:end] for target, values in pointed_to(self._rows, targets)}
        return self._rows._replace(**found)
