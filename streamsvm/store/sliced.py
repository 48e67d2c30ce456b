"""View of a store as slices in random order, which spreads neighbouring rows over all blocks.

Cell atlases are often sorted by donor or cell type, so a block of consecutive rows contains few classes. This
view cuts the rows into slices of equal length and puts the slices in one random order for all passes. Long
slices of many chunks are read nearly as fast as rows in file order; short slices mix better.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from streamsvm.data.rows import PIECE_ROWS
from streamsvm.store.ranges import Ranges, split_ranges
from streamsvm.store.store import Facts, Store, Units
from streamsvm.store.views import View, ViewedStore

_SLICE_ORDER = -2  # block number reserved for drawing the order of the slices
_CHUNKS_PER_SLICE = 4  # length of a slice in chunks of values; it overlaps at most five
_MIN_SLICES_PER_BLOCK = 128
_MIN_SLICES = 512


@dataclasses.dataclass(frozen=True, eq=False)
class Sliced(View):
    """View of a store's rows as slices in random order; it needs 24 bytes of memory per slice."""

    begins: np.ndarray  # int64, shape (n_slices,): each slice's first row in the store, in view order
    units: Units  # each slice's first row and first non-zero in the view

    def facts(self, inner: Facts) -> Facts:
        held = inner.held_bytes + 3 * self.begins.nbytes
        return dataclasses.replace(inner, units=self.units, held_bytes=held)

    def ranges(self, ranges: Ranges) -> Ranges:
        parts, divided = split_ranges(ranges, self.units.rows)
        return divided + (self.begins[parts] - self.units.rows[parts])[:, np.newaxis]


def sliced(store: Store, slice_rows: int, seed: int) -> Store:
    """Return a view of a store in slices of `slice_rows` rows, in a random order determined by `seed`."""
    from streamsvm.kernels.random import permutation  # imports compiled code

    begins = np.arange(0, store.n_rows + slice_rows, slice_rows).clip(max=store.n_rows)
    nnz = np.concatenate([[0], *_nnz_of_slices(store, begins, slice_rows)])
    order = permutation(len(begins) - 1, seed, 0, _SLICE_ORDER, 0)
    rows = np.concatenate([[0], np.cumsum(np.diff(begins)[order])])
    units = Units(rows, np.concatenate([[0], np.cumsum(nnz[1:][order])]))
    return ViewedStore(store, Sliced(begins[:-1][order], units))


def _nnz_of_slices(store: Store, begins: np.ndarray, slice_rows: int) -> Iterator[np.ndarray]:
    step = max(1, PIECE_ROWS // slice_rows)
    for at in range(0, len(begins) - 1, step):
        piece = begins[at : at + step + 1]
        indptr = store.indptr(int(piece[0]), int(piece[-1]))
        yield np.diff(indptr[piece - piece[0]])


def choose_slice_rows(store: Store, block_rows: int) -> int:
    """Return the number of rows per slice for blocks of about `block_rows` rows.

    A slice is as long as four chunks of values, so reading it decodes at most five chunks. Slices are shorter
    if there would otherwise be fewer than 128 slices per block or 512 in total. With that many slices, nearly
    all blocks of a sorted file contain all classes.
    """
    short = min(block_rows // _MIN_SLICES_PER_BLOCK, store.n_rows // _MIN_SLICES)
    return max(1, min(int(_CHUNKS_PER_SLICE * store.chunk_rows), short))
