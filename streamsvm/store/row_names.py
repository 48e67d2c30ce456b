"""Names of the rows of AnnData that streamsvm did not write: the index of ``obs``, of any kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.errors import StoreError
from streamsvm.store.container import Container, StoredArray

_MISSING = "<NA>"  # as pandas shows it


class RowNames:
    """The index of ``obs``: text or numbers, or of these a categorical or nullable column.

    Parameters
    ----------
    container : Container
    n_rows : int or None
        What its length must be; None if that is not known.
    table : {"obs", "var"}
        For ``var`` these are the names of the features.

    Attributes
    ----------
    length : int

    Raises
    ------
    StoreError
        If there is no such index, or it has another length.
    """

    def __init__(self, container: Container, n_rows: int | None = None, table: str = "obs") -> None:
        path = container.path
        name = container.attrs(table).get("_index") if container.node(table) == "group" else None
        if not isinstance(name, str):
            raise StoreError(
                f"{path}: {table} is not a dataframe of a known format; read and write it with anndata >= 0.8"
            )
        node = f"{table}/{name}"
        self._categories: np.ndarray | None = None
        self._mask: StoredArray | None = None
        if container.node(node) != "group":
            self._values = container.array(node)
        elif container.attr(node, "encoding-type") == "categorical":
            self._values = container.array(f"{node}/codes")
            categories = container.array(f"{node}/categories")
            categories.check_claimed_size()
            texts = [_text(value) for value in categories.read(0, categories.length).tolist()]
            self._categories = np.array([*texts, _MISSING], dtype=object)  # the code -1 is the last one
        else:  # nullable
            self._values = container.array(f"{node}/values")
            self._mask = container.array(f"{node}/mask")
        self.length = self._values.length
        for array in (self._values, self._mask):
            if array is None:
                continue
            array.check_claimed_size()
            expected = self.length if n_rows is None else n_rows
            if array.length != expected:
                raise StoreError(f"{path}: array {array.name} has {array.length} names, expected {expected}")

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the names of the rows ``start:stop``: int64, or else an array of str objects."""
        values = self._values.read(start, stop)
        if self._categories is not None:
            if len(values) and not -1 <= int(values.min()) <= int(values.max()) < len(self._categories) - 1:
                at = int(np.argmax((values < -1) | (values >= len(self._categories) - 1)))
                raise self._values.damage(start + at, f"code {values[at]} is out of range")
            return self._categories[values.astype(np.int64)]
        if self._mask is None and values.dtype.kind in "iu":
            return values.astype(np.int64)
        names = np.empty(len(values), dtype=object)
        names[:] = [_text(value) for value in values.tolist()]
        if self._mask is not None:
            names[self._mask.read(start, stop).astype(bool)] = _MISSING
        return names


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
