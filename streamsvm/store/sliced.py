"""View of a store in random order of slices: neighbours in the file are spread over all blocks.

A file of an atlas is often sorted, by donor or by cell type, and a block of successive rows then holds few
classes. Here the rows are cut into slices of equal length, which are put in random order, the same one in
all passes. A block of successive rows of this store is the union of slices from anywhere in the file. Slices
that are long compared with the file's chunks are read nearly as fast as the whole; short ones mix better.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from streamsvm.data.rows import PIECE_ROWS
from streamsvm.store.ranges import Ranges, split_ranges
from streamsvm.store.store import Facts, Store, Units
from streamsvm.store.views import View, ViewedStore

_SLICE_ORDER = -2  # stands for a block's number where the order of the slices is drawn
_CHUNKS_PER_SLICE = 4  # of values in a slice: it reads at most five
_MIN_SLICES_PER_BLOCK = 128  # in a block
_MIN_SLICES = 512


@dataclasses.dataclass(frozen=True, eq=False)
class Sliced(View):
    """View of the rows of a store, slice by slice in random order; takes 40 bytes for each slice.

    Attributes
    ----------
    begins : ndarray of int64, shape (n_slices,)
        The first row in the store of each slice, in their order.
    units : Units
        The first row of each slice in the view, and its first non-zero.
    """

    begins: np.ndarray
    units: Units

    def facts(self, inner: Facts) -> Facts:
        held = inner.held_bytes + 3 * self.begins.nbytes
        return dataclasses.replace(inner, units=self.units, held_bytes=held)

    def ranges(self, ranges: Ranges) -> Ranges:
        parts, divided = split_ranges(ranges, self.units.rows)
        return divided + (self.begins[parts] - self.units.rows[parts])[:, np.newaxis]


def sliced(store: Store, slice_rows: int, seed: int) -> Store:
    """Return a view of a store in slices of `slice_rows` rows, whose random order is that of `seed`."""
    from streamsvm.kernels.random import permutation  # compiled

    begins = np.arange(0, store.n_rows + slice_rows, slice_rows).clip(max=store.n_rows)
    nnz = np.concatenate([[0], *_nnz_of_slices(store, begins, slice_rows)])
    order = permutation(len(begins) - 1, seed, 0, _SLICE_ORDER, 0)
    rows = np.concatenate([[0], np.cumsum(np.diff(begins)[order])])
    units = Units(rows, np.concatenate([[0], np.cumsum(nnz[1:][order])]))
    return ViewedStore(store, Sliced(begins[:-1][order], units))


def _nnz_of_slices(store: Store, begins: np.ndarray, slice_rows: int) -> Iterator[np.ndarray]:
    """Yield the non-zeros of the slices in the order of the file."""
    step = max(1, PIECE_ROWS // slice_rows)
    for at in range(0, len(begins) - 1, step):
        few = begins[at : at + step + 1]
        indptr = store.indptr(int(few[0]), int(few[-1]))
        yield np.diff(indptr[few - few[0]])


def choose_slice_rows(store: Store, block_rows: int) -> int:
    """Return the number of rows in a slice, for blocks of about `block_rows`.

    Four chunks of values, of which at most five are decoded to read them; or fewer, so that a block has 128
    slices, and all blocks together 512: the classes of a file sorted by them are then in nearly all blocks.
    """
    short = min(block_rows // _MIN_SLICES_PER_BLOCK, store.n_rows // _MIN_SLICES)
    return max(1, min(int(_CHUNKS_PER_SLICE * store.chunk_rows), short))
