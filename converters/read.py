"""LIBSVM text straight to batches of rows, without a store: for prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.format import index_dtype
from streamsvm.text import parse_size

if TYPE_CHECKING:
    from streamsvm_converters.libsvm import Counts, LibsvmReader


class TextRows:
    """Rows of text, to be iterated over once.

    Yields ``(rows, names)``: `Rows` in the order of the input, and the number of each in it, an
    ndarray of int64 that counts skipped rows too. Arrays are the caller's to keep.

    Attributes
    ----------
    counts : Counts
        Rows, skipped rows, unseen labels and features and so on, up to what was drawn so far.
    """

    def __init__(self, reader: LibsvmReader, shift: int, index_dtype: np.dtype) -> None:
        self._reader, self._shift, self._index_dtype = reader, shift, index_dtype
        self.counts: Counts = reader.counts

    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]:
        for batch in self._reader:
            indices = (batch.indices - self._shift).astype(self._index_dtype, copy=False)
            yield Rows(batch.data, indices, batch.indptr, batch.labels, batch.norm2), batch.numbers


def read_rows(
    inputs: Sequence[str | Path],
    *,
    classes: Sequence[str],
    n_features: int | None,
    index_base: int,
    dtype: str = "float32",
    unseen_label: str = "keep",
    memory: int | str = 2**28,
    share: int = 1,
    on_error: str = "raise",
) -> TextRows:
    """Stream LIBSVM text as batches of rows that fit a model.

    Parameters
    ----------
    inputs : sequence of path or "-"
        Plain or compressed by gzip, bzip2, xz or zstd; read one after another.
    classes : sequence of str
        Label texts by class code.
    n_features : int, optional
        Features beyond are dropped and counted; None keeps them all.
    index_base : {0, 1}
        Index of the first feature in the text.
    dtype : {"float32", "float64"}
        Of the values.
    unseen_label : {"keep", "error"}
        Labels that are not among `classes` get -1, or end the reading.
    memory : int or str
        Bytes this may take ("500M", "2G").
    share : int, optional
        It takes one of so many equal parts of `memory`; messages speak of the whole.
    on_error : {"raise", "skip", "fix"}
        As for `convert`.

    Returns
    -------
    TextRows
        Iterate over it for pairs of `Rows` and row numbers; its `counts` say what was met.

    Raises
    ------
    InputError
        While iterating, for text that cannot be understood, with file, line, column and token.
    PlanError
        While iterating, if a line does not fit the memory; the message says what would do.
    """
    from streamsvm_converters.libsvm import LibsvmReader

    if index_base not in (0, 1):
        raise ValueError(f"index_base is 0 or 1, not {index_base!r}")
    reader = LibsvmReader(
        [inputs] if isinstance(inputs, str | Path) else inputs,
        dtype=dtype,
        lowest_index=index_base,
        last_index=None if n_features is None else n_features - 1 + index_base,
        classes=classes,
        unseen_label=unseen_label,
        on_error=on_error,
        memory=parse_size(memory),
        share=share,
        options=False,  # predict and evaluate have none
    )
    widest = np.dtype(np.int64) if n_features is None else index_dtype(n_features)
    return TextRows(reader, index_base, widest)
