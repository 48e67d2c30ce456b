"""Inner passes: visit the rows of a block again while they are in memory, with few classes each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.duals import DualBuffer, drop_zeros
from streamsvm.kernels.random import local_permutation
from streamsvm.kernels.simd import VECTOR_BYTES

# The cost model counts operations on vectors, one of which adds a multiple of a vector of the weights to a
# row's scores. The constants were measured.
_READ = 16  # to read a non-zero from the store
_UPDATE = 2  # to add to a vector of the weights: it is read and written
_ROW = 40  # to solve a row's block problem
_SHARE = 0.5  # of a pass: what inner passes may cost
_MOST = 8  # more gain nothing before the rest of the data has been seen again


class InnerPasses:
    """Visits the rows in a buffer of new duals again, each over the classes in which it has a dual.

    After a full visit a row has few duals: 2 of 1000, 11 of 105. A visit that scores only their classes is
    cheap, one that needs no reading is cheaper still, and it makes further progress.

    Parameters
    ----------
    wanted : int or "auto"
        The number of passes; by default a cost model chooses it.
    seed : int
        Of the order of the rows.
    """

    def __init__(self, wanted: int | str, seed: int) -> None:
        self._wanted = wanted
        self._seed = seed

    def __call__(
        self,
        revisit: Callable[[np.ndarray, np.ndarray], None],
        rows: Rows,
        weights: np.ndarray,
        buffer: DualBuffer,
        place: tuple[int, int],
    ) -> None:
        """Make the passes, and drop the duals that became zero.

        Parameters
        ----------
        revisit : callable
            ``revisit(order, starts)`` makes one pass over the buffer's rows ``order``; the duals of the
            buffer's row r begin at ``starts[r]``.
        rows : Rows
        weights : ndarray, shape (n_features, K)
        buffer : DualBuffer
        place : tuple of int
            The pass and the block, which determine the order of the rows.
        """
        counts = buffer.counts[: buffer.used[1]]
        starts = np.cumsum(counts, dtype=np.int64) - counts
        active = np.flatnonzero(counts)
        n_passes = self._wanted if isinstance(self._wanted, int) else _number(rows, weights, buffer)
        for inner in range(1, n_passes + 1):
            revisit(active[local_permutation(len(active), self._seed, *place, inner)], starts)
        drop_zeros(buffer)


def _number(rows: Rows, weights: np.ndarray, buffer: DualBuffer) -> int:
    """As many passes as cost a fixed share of the visit that filled the buffer: by counts, not by time."""
    n_vectors = weights.shape[1] * weights.itemsize // VECTOR_BYTES
    counts = buffer.counts[: buffer.used[1]]
    nnz = np.diff(rows.indptr)[buffer.rows[: buffer.used[1]]]
    vectors = np.minimum(counts + 1, n_vectors)  # at most
    full = (nnz * (_READ + n_vectors + _UPDATE * vectors) + _ROW).sum()
    inner = ((nnz * (1 + _UPDATE) * vectors + _ROW) * (counts > 0)).sum()
    return min(int(_SHARE * full / max(inner, 1)), _MOST)
