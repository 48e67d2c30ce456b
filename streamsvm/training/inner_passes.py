"""Inner passes: further visits of a block's rows that have duals, while they are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.random import local_permutation
from streamsvm.kernels.simd import VECTOR_BYTES

# The cost model counts operations on vectors, one of which adds a multiple of a vector of the weights to a
# row's scores. The constants were measured.
READ_BEFORE = 16  # reading a non-zero before training begins
READ_AHEAD = 4  # reading a non-zero while other rows are trained on
_UPDATE_COST = 1  # adding to a vector of the weights that was just scored
_VISIT_COST = 60  # fetching a row, and solving its block problem
_REVISIT_COST = 40  # solving the problem again for the classes with duals alone
_MAX_PASSES = 8  # more passes gain nothing before the other blocks have been visited again


class Place(NamedTuple):
    """Where visits are made, which determines the order of inner passes over the rows, and their number."""

    pass_number: int
    number: int  # of the block in the pass, or of the part of it
    read_work: int  # cost of reading a non-zero: `READ_BEFORE`, `READ_AHEAD`, or 0 if rows were in memory


class InnerPasses:
    """Further visits of the rows that have duals, each over the classes for which it has one.

    After a full visit a row has few duals: 2 of 1000, 11 of 105. A visit that scores only these classes is
    cheap, and cheaper still without reading; and it makes further progress. Where duals are a matrix, visits
    are over all classes (see `streamsvm.kernels.duals`).

    Parameters
    ----------
    wanted : int or "auto"
        The number of passes; "auto" lets a cost model choose it.
    seed : int
        Seed of the order of the rows.
    """

    def __init__(self, wanted: int | str, seed: int) -> None:
        self._wanted = wanted
        self._seed = seed

    def orders(
        self, rows: Rows, weights: np.ndarray, visited: np.ndarray, counts: np.ndarray, place: Place
    ) -> Iterator[np.ndarray]:
        """Yield the rows of each pass in the order in which it visits them.

        Parameters
        ----------
        rows : Rows
        weights : ndarray, shape (n_features, K)
        visited : ndarray of int, shape (n,)
            The rows that full visits were made of.
        counts : ndarray of int, shape (n,)
            The number of classes that further visits of each of them are over: 0 if it has no duals.
        place : Place
        """
        active = np.flatnonzero(counts > 0)
        n_passes = self._wanted
        if not isinstance(n_passes, int):
            n_passes = _number(np.diff(rows.indptr)[visited], counts, weights, place.read_work)
        for inner in range(1, n_passes + 1):
            order = active[local_permutation(len(active), self._seed, place.pass_number, place.number, inner)]
            yield visited[order].astype(np.int64, copy=False)


def _number(nnz: np.ndarray, counts: np.ndarray, weights: np.ndarray, read_work: int) -> int:
    """Choose the number of passes that cost as much as the full visits; half of it if rows were read.

    Costs are counted, not timed. Rows are read in the first pass, in which other classes have duals than in
    later ones, and if there are several blocks, each of which undoes a part of what the others gained.
    """
    n_vectors = weights.shape[1] * weights.itemsize // VECTOR_BYTES
    vectors = np.minimum(counts + (counts > 0), n_vectors)  # with duals, at most: of the rows that have any
    moved = int(nnz @ vectors)
    updates = _UPDATE_COST * moved
    full = int(nnz.sum()) * (n_vectors + read_work) + updates + _VISIT_COST * len(counts)
    inner = moved + _REVISIT_COST * np.count_nonzero(counts) + updates
    share = 0.5 if read_work else 1.0
    return min(int(share * full / max(inner, 1)), _MAX_PASSES)
