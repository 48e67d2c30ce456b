"""Inner passes: visit the rows of a block again while they are in memory, with few classes each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.duals import DualBuffer, drop_zeros
from streamsvm.kernels.random import permutation
from streamsvm.kernels.simd import VECTOR_BYTES
from streamsvm.losses.base import Loss
from streamsvm.settings import Settings

if TYPE_CHECKING:
    from streamsvm.training.learner import Learner

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
    """

    def __init__(self, loss: Loss, settings: Settings) -> None:
        self._revisit = loss.revisit if settings.inner_passes != 0 else None
        self._wanted = settings.inner_passes
        self._seed = settings.seed

    def __call__(self, learner: Learner, rows: Rows, place: tuple[int, int]) -> None:
        """Make the passes over the rows in the learner's buffer, and drop the duals that became zero.

        `place`, the pass and the block, determines the order of the rows.
        """
        if self._revisit is None:
            return
        buffer = learner.dual_buffer
        counts = buffer.counts[: buffer.used[1]]
        starts = np.cumsum(counts, dtype=np.int64) - counts
        active = np.flatnonzero(counts)
        wanted = self._wanted
        n_passes = (
            wanted if isinstance(wanted, int) else _number(rows, learner.storage.weights.current, buffer)
        )
        for inner in range(1, n_passes + 1):
            order = active[permutation(len(active), self._seed, *place, inner)]
            self._pass(learner, rows, order, starts)
        drop_zeros(buffer)

    def compile(self, learner: Learner, rows: Rows) -> None:
        """Compile or load the kernels, on no rows."""
        if self._revisit is not None:
            nothing = np.zeros(0, np.int64)
            self._pass(learner, rows, nothing, nothing)
            drop_zeros(learner.dual_buffer)

    def _pass(self, learner: Learner, rows: Rows, order: np.ndarray, starts: np.ndarray) -> None:
        assert self._revisit is not None
        self._revisit(
            rows, order, starts, learner.problem, learner.moved_weights(), learner.dual_buffer,
            learner.scratch, learner.tally, learner.storage.sparse_rows,
        )  # fmt: skip


def _number(rows: Rows, weights: np.ndarray, buffer: DualBuffer) -> int:
    """As many passes as cost a fixed share of the visit that filled the buffer: by counts, not by time."""
    n_vectors = weights.shape[1] * weights.itemsize // VECTOR_BYTES
    counts = buffer.counts[: buffer.used[1]]
    nnz = np.diff(rows.indptr)[buffer.rows[: buffer.used[1]]]
    vectors = np.minimum(counts + 1, n_vectors)  # at most
    full = (nnz * (_READ + n_vectors + _UPDATE * vectors) + _ROW).sum()
    inner = ((nnz * (1 + _UPDATE) * vectors + _ROW) * (counts > 0)).sum()
    return min(int(_SHARE * full / max(inner, 1)), _MOST)
