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
_READ_COST = 16  # to read a non-zero from the store
_UPDATE_COST = 1  # to add to a vector of the weights that was just scored
_VISIT_COST = 60  # to fetch a row, to solve its block problem, and to find its candidates
_REVISIT_COST = 40  # to solve it again for those alone
_MAX_PASSES = 8  # more gain nothing before the rest of the data has been seen again


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
        *,
        was_read: bool,
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
        was_read : bool
            Whether the rows were read for the full visits, and not kept in memory from an earlier pass.
        """
        counts = buffer.counts[: buffer.used[1]]
        starts = np.cumsum(counts, dtype=np.int64) - counts
        active = np.flatnonzero(counts)
        n_passes = self._wanted if isinstance(self._wanted, int) else _number(rows, weights, buffer, was_read)
        for inner in range(1, n_passes + 1):
            revisit(active[local_permutation(len(active), self._seed, *place, inner)], starts)
        drop_zeros(buffer)


def _number(rows: Rows, weights: np.ndarray, buffer: DualBuffer, was_read: bool) -> int:
    """As many passes as cost what the full visits do, or half of it if rows were read: counted, not timed.

    The rows that were read for this pass are those of the first one, in which classes become candidates that
    soon are none, or of one block among others, which undo a part of what is gained in it.
    """
    n_vectors = weights.shape[1] * weights.itemsize // VECTOR_BYTES
    counts = buffer.counts[: buffer.used[1]]
    nnz = np.diff(rows.indptr)[buffer.rows[: buffer.used[1]]]
    vectors = np.minimum(counts + 1, n_vectors)  # at most
    updates = _UPDATE_COST * nnz * vectors * (counts > 0)
    full = (nnz * (n_vectors + _READ_COST * was_read) + updates + _VISIT_COST).sum()
    inner = ((nnz * vectors + _REVISIT_COST) * (counts > 0) + updates).sum()
    share = 0.5 if was_read else 1.0
    return min(int(share * full / max(inner, 1)), _MAX_PASSES)
