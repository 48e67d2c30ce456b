"""Inner passes: revisit a block's rows while they are in memory, with the few classes that matter."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.random import permutation
from streamsvm.kernels.simd import LINE
from streamsvm.kernels.steps import Pool, Scratch, Weights, drop_zeros
from streamsvm.settings import Settings

# The cost model counts operations on vectors, one of which adds a multiple of a vector of the weights
# to a row's scores. Figures that were measured stand beside what they are for.
_READ = 16  # to read a non-zero from the store
_MOVE = 2  # to add to a vector of the weights: it is read and written
_ROW = 40  # to solve a row's block problem
_SHARE = 0.5  # of a pass, what inner passes may cost
_MOST = 8  # more gain nothing before the rest of the data has been seen again


class InnerPasses:
    """Revisits the rows in a pool of new duals, each over the classes in which it has one.

    After a full visit a row's duals are few: 2 of 1000, 11 of 105. A visit that scores only their
    classes is cheap, one that needs no reading cheaper still, and it goes on to converge.
    """

    def __init__(self, loss: ModuleType, settings: Settings, pool: Pool, scratch: Scratch) -> None:
        self._loss = loss
        self._settings = settings
        self._pool = pool
        self._scratch = scratch

    def __call__(self, rows: Rows, weights: Weights, place: tuple[int, int], tally: np.ndarray) -> None:
        """Make the passes over what the pool holds, and drop the duals that became zero.

        `place`, the pass and the block, determines the order of the rows.
        """
        settings, pool = self._settings, self._pool
        if settings.inner_passes == 0:
            return
        counts = pool.counts[: pool.used[1]]
        starts = np.cumsum(counts, dtype=np.int64) - counts
        active = np.flatnonzero(counts)
        asked = settings.inner_passes
        n_passes = asked if isinstance(asked, int) else self._number(rows, weights.now)
        for inner in range(1, n_passes + 1):
            order = active[permutation(len(active), settings.seed, *place, inner)]
            self._revisit(rows, order, starts, weights, tally)
        drop_zeros(pool)

    def compile(self, rows: Rows, weights: Weights, tally: np.ndarray) -> None:
        """Compile or load the kernels, on no rows."""
        if self._settings.inner_passes != 0:
            nothing = np.zeros(0, np.int64)
            self._revisit(rows, nothing, nothing, weights, tally)
            drop_zeros(self._pool)

    def _revisit(
        self, rows: Rows, order: np.ndarray, starts: np.ndarray, weights: Weights, tally: np.ndarray
    ) -> None:
        settings = self._settings
        self._loss.revisit(
            rows, order, starts, weights, settings.C, settings.margin, self._pool, self._scratch, tally
        )

    def _number(self, rows: Rows, weights: np.ndarray) -> int:
        """As many passes as cost a fixed share of the visit that filled the pool: a count, not a time."""
        pool = self._pool
        n_lines = weights.shape[1] * weights.itemsize // LINE
        counts = pool.counts[: pool.used[1]]
        nnz = np.diff(rows.indptr)[pool.rows[: pool.used[1]]]
        lines = np.minimum(counts + 1, n_lines)  # at most
        full = (nnz * (_READ + n_lines + _MOVE * lines) + _ROW).sum()
        inner = ((nnz * (1 + _MOVE) * lines + _ROW) * (counts > 0)).sum()
        return min(int(_SHARE * full / max(inner, 1)), _MOST)
