"""Convert files in this process, with several threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from streamsvm_converters.external_shuffle import ExternalShuffle
from streamsvm_converters.kinds.reader import Reader
from streamsvm_converters.libsvm.position import Source
from streamsvm_converters.libsvm.sample_weights import WeightFile
from streamsvm_converters.waiting_rows import NumberedRows, WaitingRows

from streamsvm.data.label_sets import recode
from streamsvm.data.prefetch import Prefetcher
from streamsvm.store.writer import StoreWriter


class ProcessConversion:
    """The steps of one conversion: all rows are read and stored on disk, and then written in their order."""

    def __init__(self, reader: Reader, waiting: WaitingRows, threads: int) -> None:
        self._reader, self._threads = reader, threads
        self._shuffle = ExternalShuffle(waiting, expected=reader.expected_bytes)

    def read(self, weights: str | Path | None) -> list[Source]:
        """Store all rows, with their weights if there is a file of them; return what was read."""
        with self._shuffle:
            if weights is None:
                for rows, numbers in self._reader:
                    self._shuffle.append(rows, numbers)
                return self._reader.sources
            with WeightFile(weights) as file:
                for rows, numbers in self._reader:
                    self._shuffle.append(rows._replace(cost=file.at(numbers)), numbers)
                return [*self._reader.sources, file.finish(_rows_read(self._reader))]

    @property
    def n_labels(self) -> int:
        """Labels of all lists of labels together."""
        return self._shuffle.n_labels

    def write(self, writer: StoreWriter, code_of: np.ndarray | None, shift: int, dtype: np.dtype) -> str:
        """Write all rows, and complete the store; returns its fingerprint.

        Parameters
        ----------
        writer : StoreWriter
        code_of : ndarray, or None
            As for `recode`; None if the codes of labels are right.
        shift : int
            Is subtracted from all indices.
        dtype : dtype
            Of the indices.
        """
        batches: Iterator[NumberedRows] = self._shuffle.drain(shift, dtype)
        with contextlib.ExitStack() as stack:
            if self._threads > 1:
                batches = stack.enter_context(Prefetcher(batches))
            for rows, numbers in batches:
                writer.append(rows if code_of is None else recode(rows, code_of), numbers)
            return writer.finish()


def _rows_read(reader: Reader) -> int:
    """The number of rows of the input, those that were left out included."""
    counts = reader.counts
    return counts.rows + counts.skipped + getattr(counts, "unlabelled", 0)
