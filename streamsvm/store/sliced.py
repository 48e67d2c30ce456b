"""View of a store in random order of slices: neighbours in the file are spread over all blocks.

A file of an atlas is often sorted, by donor or by cell type, and a block of successive rows then holds few
classes. Here the rows are cut into slices of equal length, which are put in random order, the same one in
all passes. A block of successive rows of this store is the union of slices from anywhere in the file. Slices
that are long compared with the file's chunks are read nearly as fast as the whole; short ones mix better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.store.chunk_reader import Ranges
from streamsvm.store.reader import Store, Units
from streamsvm.store.views import RearrangedStore

_SLICE_ORDER = -2  # stands for a block's number where the order of the slices is drawn
_CHUNKS_PER_SLICE = 4  # of values in a slice: it reads at most five
_MIN_SLICES_PER_BLOCK = 128  # in a block
_MIN_SLICES = 512
_PIECE_ROWS = 2**18  # row pointers read at a time


class SlicedStore(RearrangedStore):
    """View of the rows of a store, slice by slice in random order.

    Memory: 40 bytes for each slice.

    Parameters
    ----------
    inner : Store
    slice_rows : int
        Rows of a slice; the last one of the file may have fewer.
    seed : int
        Of the order.
    """

    def __init__(self, inner: Store, slice_rows: int, seed: int) -> None:
        from streamsvm.kernels.random import permutation  # compiled

        super().__init__(inner)
        self.slice_rows = slice_rows
        begins = np.arange(0, inner.n_rows + slice_rows, slice_rows).clip(max=inner.n_rows)
        nnz = np.concatenate([[0], *self._nnz_of_slices(begins)])
        order = permutation(len(begins) - 1, seed, 0, _SLICE_ORDER, 0)
        self._begins = begins[:-1][order]
        self._starts = np.concatenate([[0], np.cumsum(np.diff(begins)[order])])
        self.held_bytes += 3 * order.nbytes
        self.units = Units(self._starts, np.concatenate([[0], np.cumsum(nnz[1:][order])]))

    def _nnz_of_slices(self, begins: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the non-zeros of the slices in the order of the file."""
        step = max(1, _PIECE_ROWS // self.slice_rows)
        for at in range(0, len(begins) - 1, step):
            few = begins[at : at + step + 1]
            indptr = self.inner.indptr(int(few[0]), int(few[-1]))
            yield np.diff(indptr[few - few[0]])

    def _parts(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the ranges of rows of `inner` that make up the rows ``start:stop``."""
        self._check_range(start, stop)
        if start == stop:
            return []
        rows = self._starts
        first, last = np.searchsorted(rows, (start, stop - 1), "right") - 1
        begins = self._begins[first : last + 1].copy()
        ends = begins + np.diff(rows[first : last + 2])
        begins[0] += start - rows[first]
        ends[-1] -= rows[last + 1] - stop
        return list(zip(begins.tolist(), ends.tolist(), strict=True))

    def _each(self, read: Callable[[Store, int, int], np.ndarray], start: int, stop: int) -> np.ndarray:
        found = [read(self.inner, *part) for part in self._parts(start, stop)]
        return np.concatenate(found) if found else read(self.inner, 0, 0)

    def labels(self, start: int, stop: int) -> np.ndarray:
        return self.inner.labels_of(self._parts(start, stop))

    def rows_of(self, ranges: Ranges) -> Rows:
        return self.inner.rows_of([part for each in ranges for part in self._parts(*each)] or [(0, 0)])

    def labels_of(self, ranges: Ranges) -> np.ndarray:
        return self.inner.labels_of([part for each in ranges for part in self._parts(*each)])

    def label_sets(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        found = [self.inner.label_sets(*part) for part in self._parts(start, stop)] or [
            self.inner.label_sets(0, 0)
        ]
        lengths = np.concatenate([np.diff(indptr) for _, indptr in found])
        return np.concatenate([codes for codes, _ in found]), np.concatenate([[0], np.cumsum(lengths)])

    def numbers(self, start: int, stop: int) -> np.ndarray:
        return self._each(lambda store, *ends: store.numbers(*ends), start, stop)


def choose_slice_rows(store: Store, block_rows: int) -> int:
    """Return the number of rows in a slice, for blocks of about `block_rows`.

    Four chunks of values, of which at most five are decoded to read them; or fewer, so that a block has 128
    slices, and all blocks together 512: the classes of a file sorted by them are then in nearly all blocks.
    """
    short = min(block_rows // _MIN_SLICES_PER_BLOCK, store.n_rows // _MIN_SLICES)
    return max(1, min(int(_CHUNKS_PER_SLICE * store.chunk_rows), short))
