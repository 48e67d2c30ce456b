"""Inner passes, which visit rows with non-zero duals again while their block is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.random import local_permutation
from streamsvm.kernels.simd import VECTOR_BYTES

# The cost model counts vector operations. One operation adds a multiple of a vector of weights to the scores
# of a row. The constants were measured.
READ_BEFORE = 16  # reading a non-zero before training starts
READ_AHEAD = 4  # reading a non-zero while other rows are trained on
_UPDATE_COST = 1  # updating a vector of weights that was just scored
_VISIT_COST = 60  # fetching a row and solving its block problem
_REVISIT_COST = 40  # solving the block problem again for the classes with duals
_MAX_PASSES = 8  # more passes gain nothing until the other blocks are visited again


class Place(NamedTuple):
    """Position of visits in a training run. It determines the number and row order of inner passes."""

    pass_number: int
    number: int  # number of the block, or of the part of a block, in the pass
    read_work: int  # cost of reading a non-zero: `READ_BEFORE`, `READ_AHEAD`, or 0 for rows already in memory


class InnerPasses:
    """Repeated visits of rows with non-zero duals, restricted to the classes of these duals.

    After a full visit, a row has only a few non-zero duals, such as 2 for 1,000 classes or 11 for 105
    classes. Visits over only these classes improve the dual objective further. They are cheap, especially if
    the row need not be read again. If the duals are a matrix, visits cover all classes (see
    `streamsvm.kernels.duals`). If `n_passes` is "auto", a cost model determines the number of passes.
    """

    def __init__(self, n_passes: int | str, seed: int) -> None:
        self._n_passes = n_passes
        self._seed = seed

    def orders(
        self, rows: Rows, weights: np.ndarray, visited: np.ndarray, counts: np.ndarray, place: Place
    ) -> Iterator[np.ndarray]:
        """Yield the rows of each inner pass in the order in which they are to be visited.

        Parameters
        ----------
        weights : ndarray, shape (n_features, n_columns)
        visited : ndarray of int, shape (n,)
            Rows that had full visits.
        counts : ndarray of int, shape (n,)
            Number of classes that an inner pass visits for each row; 0 if the row has no duals.
        """
        active = np.flatnonzero(counts > 0)
        n_passes = self._n_passes
        if not isinstance(n_passes, int):
            n_passes = _choose_n_passes(np.diff(rows.indptr)[visited], counts, weights, place.read_work)
        for inner in range(1, n_passes + 1):
            order = active[local_permutation(len(active), self._seed, place.pass_number, place.number, inner)]
            yield visited[order].astype(np.int64, copy=False)


def _choose_n_passes(nnz: np.ndarray, counts: np.ndarray, weights: np.ndarray, read_work: int) -> int:
    """Return how many inner passes cost as much as the full visits, or half as much if rows were read.

    Costs are counted, not timed. Rows are read in the first pass and, if there are several blocks, in every
    pass. Inner passes then gain less: in the first pass the classes with duals still change, and with several
    blocks each block undoes part of the gains in other blocks.
    """
    n_vectors = weights.shape[1] * weights.itemsize // VECTOR_BYTES
    vectors = np.minimum(counts + (counts > 0), n_vectors)  # upper bound on the number of vectors with duals
    moved = int(nnz @ vectors)
    updates = _UPDATE_COST * moved
    full = int(nnz.sum()) * (n_vectors + read_work) + updates + _VISIT_COST * len(counts)
    inner = moved + _REVISIT_COST * np.count_nonzero(counts) + updates
    fraction = 0.5 if read_work else 1.0
    return min(int(fraction * full / max(inner, 1)), _MAX_PASSES)
